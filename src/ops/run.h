/* run.h - decides what calling an op means: compute (RUN), compute and remember (TAPE), only propagate shapes (TRACE).
 *
 * Sticky error: the first op that fails records a message in the run; ops then return a shared BAD tensor (axes 1,
 * dim 1) and do nothing. Check run_status() once per public call. BAD has data NULL, as every value of a TRACE has but
 * constants that were asked for: code that touches numbers itself (constants, observers) looks at `data` first.
 *
 * Memory: values live in one arena. run_mark / run_keep bracket a scope: everything taken since the mark is given back,
 * the kept tensors move down to it (with the whole value they look into, if they are views). In TAPE nothing is given
 * back once something was recorded in the scope (backward needs it); frozen parts record nothing. In TRACE only sizes
 * move.
 */
#ifndef OPS_RUN_H
#define OPS_RUN_H

#include "base/arena.h"
#include "base/error.h"
#include "ops/tensor.h"

typedef enum run_mode { RUN, TAPE, TRACE } run_mode;
typedef struct run run;

typedef struct run_options {
    run_mode  mode;
    size_t    memory_limit;                /* bytes for values; 0 = no limit of our own */
    gemm_type type;                        /* RUN: arithmetic of attention; weights have their own, from packing.
                                              TAPE: of products with weights that are not packed, both ways */
    bool      keep_all;                    /* TAPE: run_checkpoint keeps everything: no second computation, more memory */
    bool      keep_constants;              /* TRACE: run_constant has data, which stays as long as the records */
    /* Called now and then from long ops and parts with the part's path; nonzero = stop (SAMITE_CANCELLED). */
    int     (*cancelled)(void *user);
    void     *cancel_user;
    /* Called at the end of every op of RUN with its part's path, when it began (seconds_now) and how long it took. */
    void    (*timed)(void *user, const char *part, const char *op, double start, double seconds, double flops);
    void     *timed_user;
    /* RUN: called with the input of every product with packed f32 weights, row-major with stride ld. NULL = none. */
    void    (*rows)(void *user, const linear_w *w, const float *x, int64_t ld, int64_t rows);
    void     *rows_user;
    /* Called by note() with every named value, in computation order; for align and tests. NULL = none. */
    void    (*observe)(void *user, const char *name, const tensor *t);
    void     *observe_user;
} run_options;

run *run_open(const run_options *o, samite_error *err);      /* NULL and *err on failure */
void run_close(run *r);                                      /* accepts NULL */
void run_reset(run *r);                                      /* forgets all values, the tape and the error */
void run_set_observer(run *r, void (*observe)(void *, const char *, const tensor *), void *user);
void run_set_timer(run *r, void (*timed)(void *, const char *, const char *, double, double, double), void *user);
void run_set_rows(run *r, void (*rows)(void *, const linear_w *, const float *, int64_t, int64_t), void *user);
run_mode run_mode_of(const run *r);
gemm_type run_type(const run *r);                            /* GEMM_F32 in TAPE */
gemm_type run_products(const run *r);                        /* GEMM_BF16 in TAPE where asked for and the CPU has it */
int  run_status(const run *r, samite_error *err);            /* 0, or the first error */
/* Records an error of this run unless there is one already; returns BAD. */
tensor *run_fail(run *r, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool run_ok(const run *r);

/* Path of the part being computed ("trunk.block.3"), for messages and exported nodes. Also polls `cancelled`. */
void run_part(run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* How many parts were begun so far; for progress. */
uint64_t run_parts(const run *r);
/* Names a value. RUN and TAPE: goes to the observer. TRACE: the name of that value in exports. Returns t. */
tensor *note(run *r, tensor *t, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool run_observed(const run *r);                             /* is anybody listening to note()? */

size_t  run_mark(run *r);
tensor *run_keep(run *r, size_t mark, tensor *t);            /* close the scope, keep t; returns t (its data moves) */
void    run_keep_all(run *r, size_t mark, tensor **t, int count);   /* the same for several */
void    run_drop(run *r, size_t mark);                       /* close the scope, keep nothing */
/* RUN: a point to come back to, error or not: everything made since is forgotten, its bookkeeping too. For sessions
 * that answer any number of questions about values made before the point. */
typedef struct run_point { size_t values, used; void *chunk; int last_id; } run_point;
run_point run_save(const run *r);
void    run_restore(run *r, run_point p);
size_t  run_peak(const run *r);                              /* most bytes in use at once so far, values and scratch */

/* Values that come from outside. `data` is borrowed and must live as long as the value is used (NULL in TRACE). */
tensor *run_input(run *r, const float *data, int axes, const int64_t *dim);
tensor *run_indices(run *r, const int32_t *index, int axes, const int64_t *dim);
/* An uninitialised value of this run (for constants computed by the caller: position codes), id 0, no gradient. In
 * TRACE it has data only if keep_constants was asked for. */
tensor *run_constant(run *r, int axes, const int64_t *dim);
/* A parameter as a value (id 0): its gradient is recorded in TAPE when it is trainable and has t.grad. */
tensor *run_param(run *r, param *p);
/* TAPE: asks for a gradient at an input (tests, adversarial prompts): t->grad, zeroed here, complete after
 * run_backward. */
void    run_want_grad(run *r, tensor *t);
/* The same, but what is found is added to `grad`, which is borrowed, contiguous as t is. */
void    run_grad_into(run *r, tensor *t, float *grad);
/* TAPE: the gradient of the loss at t, for the caller to add to before run_backward(r, NULL, ..). Zeroed at the first
 * call. NULL: t depends on nothing trainable, or the run failed. */
float  *run_seed(run *r, tensor *t);

/* What is left out at random while learning (TAPE; TRACE for its size). From here to the next run_reset; the same
 * numbers come again with the same seed, order of ops and rows, also where a part is computed a second time. Row i of
 * axis 0 counts as row first + i, so that a batch may be cut. */
typedef struct drop_options { float rate, path_rate; uint64_t seed; int64_t first; } drop_options;
void  run_set_drop(run *r, drop_options o);
float run_drop_rate(const run *r);                           /* of single numbers; 0: none */
float run_path_rate(const run *r);                           /* of whole branches, in the last block of the trunk */

/* Walks the tape backwards from `loss` (one element, gradient 1) or from all values that were seeded (loss NULL).
 * Gradients are added to param.t.grad (allocated by the trainer; NULL = frozen) and to those asked for. Gradients of
 * other values live only as long as the walk needs them. */
int  run_backward(run *r, tensor *loss, samite_error *err);

/* Runs fn over `in` (at most 8); in TAPE only inputs and output are remembered and fn is run again in backward. `ctx`
 * must live until then. fn must be a pure function of its inputs, of parameters and of constants reached through ctx; a
 * value that takes part in the gradient must come in through `in`. Not a node of its own in TRACE. */
typedef tensor *(*run_part_fn)(run *r, void *ctx, tensor **in);
tensor *run_checkpoint(run *r, run_part_fn fn, void *ctx, tensor **in, int count);

/* The record of a TRACE or TAPE, in order of computation. */
typedef struct op_node {
    const struct op_info *op;
    tensor *in[8];               /* NULL = absent */
    int     inputs;
    tensor *out;
    const void *attributes;      /* the op's own struct, see ops.h */
    const char *part;            /* run_part at that time */
    double  flops;
    float  *saved[2];            /* TAPE: what the op's backward needs besides inputs and output */
} op_node;
size_t         run_nodes(const run *r);
const op_node *run_node(const run *r, size_t i);
const char    *run_name_of(const run *r, const tensor *t);   /* given by note() in TRACE, or NULL */

#endif
