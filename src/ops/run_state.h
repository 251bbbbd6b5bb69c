/* run_state.h - the inside of a run, shared by run.c and tape.c. */
#ifndef OPS_RUN_STATE_H
#define OPS_RUN_STATE_H

#include "ops/op.h"

#define NOT_OURS SIZE_MAX

/* Every tensor handed out by a run is the head of one of these. */
typedef struct value {
    tensor        t;
    struct value *root;          /* the value whose memory this one looks into; itself if none */
    int64_t       shift;         /* elements from the root's data to ours */
    size_t        offset;        /* root: place in the values arena, or NOT_OURS for borrowed memory */
    size_t        bytes;         /* root: size there */
    size_t        grad_bytes;    /* root: size of a gradient block from the pool, or 0: not from the pool */
    bool          wants;         /* takes part in the gradient */
    int           section;       /* number of nested tapes around it when it was made */
    const char   *name;          /* from note(), TRACE only */
} value;

/* Memory for tensor structs, attributes and names: chunks taken in order, given back by run_reset or a nested tape. */
typedef struct chunk {
    struct chunk *next;
    size_t        size, used;
    char          data[];
} chunk;

typedef struct record_mark {
    chunk *at;
    size_t used;
} record_mark;

/* A gradient block that is free again. */
typedef struct grad_block {
    size_t offset, bytes;
} grad_block;

struct run {
    run_options  options;
    arena        values, scratch;
    size_t       peak;
    bool         failed;
    samite_error error;
    value        bad;
    float        bad_value;
    chunk       *first, *chunk;
    char         part[160];
    uint64_t     parts;          /* begun so far */
    const char  *part_copy;      /* of `part` in the records; NULL after it changed */
    int          last_id;
    /* tape */
    op_node    **nodes;
    size_t       node_count, node_room;
    size_t       taped_until;    /* the values arena up to here is needed by recorded nodes */
    bool         recording;
    bool         quiet;          /* computing something a second time: nobody is told */
    int          section;
    drop_options drop;
    uint64_t     drops;          /* ops that drop, begun so far */
    grad_block  *free_grads;
    size_t       free_count, free_room;
};

value *value_of(const tensor *t);
void  *run_record(run *r, size_t bytes);                       /* NULL and an error when out of memory */
record_mark run_record_mark(const run *r);
void   run_record_release(run *r, record_mark mark);
value *value_new(run *r, int axes, const int64_t *dim);        /* no memory yet; NULL and an error */
value *value_with_memory(run *r, int axes, const int64_t *dim);   /* uninitialised; NULL and an error */
void  *value_take(run *r, size_t bytes, size_t *offset);       /* from the values arena; bytes padded */
void  *scratch_take(run *r, size_t bytes);                     /* from the scratch arena; bytes padded */
bool   run_polled(run *r);                                     /* false: failed or cancelled */
size_t padded(size_t bytes);                                   /* to ARENA_ALIGN */
bool   record_node(run *r, const op_call *c, tensor *y);

#endif
