/* native.h - a network with its values: bound to a file or a formula, prepared part by part when first needed. */
#ifndef RUNTIME_NATIVE_H
#define RUNTIME_NATIVE_H

#include <pthread.h>

#include "formats/weights.h"
#include "model/sam3.h"
#include "runtime/pack_cache.h"

typedef struct native {
    sam3     *net;
    weights  *file;                    /* NULL for a formula */
    uint64_t  seed;                    /* of the formula */
    char     *source;                  /* the path as given */
    gemm_type type;                    /* arithmetic of the big layers */
    bool      calibrated;              /* the file says which layers are for 8 bits: entry.eight */
    bool      available[PART_COUNT];   /* all tensors of the part are there */
    bool      ready[PART_COUNT];       /* packed */
    uint64_t  loaded, ignored, missing;/* tensors of the file, tensors of the network; computed tables do not count */
    char      misfit[256];             /* "NAME has shape [..], expected [..]" in a part that is not needed, or "" */
    pack_cache *cache;                 /* packed weights of earlier processes, or NULL */
    uint64_t  mapped;                  /* parts that came from it, 1 << PART_.. */
    pthread_mutex_t lock;              /* guards ready[] and the preparation */
} native;

typedef struct native_options {
    int         side;                  /* input side, 0 = the model's own */
    const char *precision;             /* "f32", "bf16", "int8", "auto"; NULL: "auto" for a calibrated file, else "f32" */
    const char *cache;                 /* folder for packed weights; NULL: they are packed anew */
    size_t      cache_least;           /* bytes from which a part is kept; 0: 16 MB */
} native_options;

/* Path as in samite_model_open. Fails when a tensor of the detector is missing or has another shape, naming the first
 * few and what the file looks like. Nothing is copied. */
int  native_open(native **out, const char *path, const native_options *o, samite_error *err);
/* A network of that size without any weights, for what other engines compute. */
int  native_open_empty(native **out, const char *source, const config *c, samite_error *err);
void native_close(native *n);

/* Makes parts (a set of 1 << PART_..) ready for computing. `progress` (may be NULL) returns nonzero to stop. */
typedef int (*native_progress)(void *user, uint64_t done, uint64_t total);
int  native_prepare(native *n, unsigned parts, native_progress progress, void *user, samite_error *err);
#define PARTS_IMAGE  (1u << PART_TRUNK | 1u << PART_NECK | 1u << PART_FUSION)
#define PARTS_TEXT   (1u << PART_TEXT)
#define PARTS_GROUND (1u << PART_GEOMETRY | 1u << PART_FUSION | 1u << PART_DECODER)
#define PARTS_MASKS  (1u << PART_MASK_HEAD)
#define PARTS_CLICK  (1u << PART_TRACKER_NECK | 1u << PART_CLICK)
#define PARTS_TRACK  (PARTS_CLICK | 1u << PART_MEMORY)

/* The weights of these parts are not needed for now: their memory is given back, and preparing them again is cheap where
 * there is a cache. Nobody may be computing with them. */
void native_release(native *n, unsigned parts);
/* Waits until what was packed is kept; a failure only costs time later. */
int  native_keep(native *n, samite_error *err);

/* Does the checkpoint have all of these parts? */
bool native_has(const native *n, unsigned parts);

/* "f32", "bf16" or "int8". */
const char *native_precision(const native *n);
/* Which arithmetic a layer has when the model has `type`. */
gemm_type native_layer_type(const native *n, const layer *l, gemm_type type);

/* Values of one tensor as f32 in a new buffer (yours to free): for writing a formula model. NULL: out of memory. */
float *native_values(const native *n, const entry *e);

#endif
