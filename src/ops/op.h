/* op.h - what the files of this folder need to write an op: outputs, temporaries, gradients, records. Private to ops.
 *
 * The shape of every op:
 *
 *     op_call c = {.op = &scale_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};
 *     if (!op_begin(r, &c)) return run_bad(r);           the run failed before
 *     if (shapes do not fit) return op_mismatch(r, &c, ...);
 *     tensor *y = op_output(r, &c, axes, dim);
 *     float *t = op_scratch(r, bytes);                   NULL in TRACE and after a failure
 *     if (op_computes(r, y)) { ... }
 *     return op_finish(r, &c, y);                        gives the scratch back, records
 */
#ifndef OPS_OP_H
#define OPS_OP_H

#include "ops/ops.h"

enum { OP_INPUTS = 8, OP_SAVED = 2 };

typedef struct op_call {
    const op_info *op;
    tensor        *in[OP_INPUTS];        /* NULL = absent */
    int            inputs;
    const param   *params[2];            /* parameters whose gradient this op makes; NULL = none */
    const void    *attributes;           /* copied into the record */
    size_t         attribute_bytes;
    double         flops;
    float         *saved[OP_SAVED];      /* from op_save */
    /* filled by op_begin */
    bool           grad;                 /* the output takes part in the gradient */
    bool           saves;                /* this call will be replayed backwards: keep what that needs */
    size_t         scratch;              /* mark of the scratch arena */
    double         began;                /* when, if somebody wants to know */
} op_call;

/* false when the run has failed or is cancelled; then the op returns run_bad(). */
bool    op_begin(run *r, op_call *c);
tensor *run_bad(run *r);
/* Uninitialised contiguous value; BAD (and the run's error set) when the shape is impossible or memory is out. */
tensor *op_output(run *r, const op_call *c, int axes, const int64_t *dim);
tensor *op_output_like(run *r, const op_call *c, const tensor *x);
/* A value that looks into x from element `shift` on. */
tensor *op_view(run *r, const op_call *c, tensor *x, int axes, const int64_t *dim, int64_t stride, int64_t shift);
/* Temporary memory of this op, and memory kept for its backward. NULL in TRACE and after a failure. */
void   *op_scratch(run *r, size_t bytes);
float  *op_scratch_floats(run *r, int64_t count);
size_t  op_scratch_mark(const run *r);
void    op_scratch_release(run *r, size_t mark);
void   *op_record(run *r, size_t bytes);                   /* attributes of a size known only at run time */
float  *op_save(run *r, op_call *c, int slot, int64_t count);
/* For listeners of run_options.rows, before a product. */
void    op_tell_rows(const run *r, const linear_w *w, const float *x, int64_t ld, int64_t rows);
/* Is there something to compute: not TRACE, no failure, the output not empty? */
bool    op_computes(const run *r, const tensor *y);
tensor *op_finish(run *r, op_call *c, tensor *y);

/* Gradient buffer of a value (made and zeroed at first use), or NULL: none wanted, or the run failed. */
float *op_grad(run *r, tensor *t);
/* Gradient buffer of a parameter, or NULL when it is frozen or absent. */
float *param_grad(const param *p);

/* Factors of a product in the arithmetic that the run wants for what learns: f32 as they are, or rounded to bf16 in
 * scratch memory. op_narrows: is a product of m x n with inner side k worth the latter? Then both factors are made so. */
typedef struct factor {
    const float    *wide;
    const uint16_t *narrow;                  /* or NULL */
    int64_t         ld;
} factor;
bool   op_narrows(const run *r, int64_t m, int64_t n, int64_t k);
factor op_factor(run *r, bool narrow, const float *x, int64_t ld, int64_t rows, int64_t cols);
/* c = op(a) op(b) + (add ? c : 0) */
bool   op_product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, factor a, factor b, bool add,
                  float *c, int64_t ldc);

/* Errors. `rule` says in plain words what has to hold. b or p may be NULL. Both return BAD. */
tensor *op_mismatch(run *r, const op_call *c, const tensor *a, const tensor *b, const char *rule);
tensor *op_mismatch_param(run *r, const op_call *c, const tensor *a, const param *p, const char *rule);
tensor *op_engine_failed(run *r, const op_call *c);       /* a GEMM or convolution was refused */

/* Small helpers for shapes. */
bool    is_contiguous(const tensor *t);
bool    same_shape(const tensor *a, const tensor *b);
int64_t last_dim(const tensor *t);
/* Matrix view of a parameter: dim[0] rows of param_cols() values. */
int64_t param_cols(const param *p);
/* Is the packed copy there, and still what the parameter says? */
bool    linear_packed(const linear_w *w);
/* Attention: NULL, or the rule that its inputs break, *with being the other shape to show; and what its node keeps. */
const char *attention_rule(const run *r, tensor *const *in, const attend_options *o, const tensor **with);
attention_attributes attention_attributes_of(const tensor *q, const tensor *k, const attend_options *o);
/* dy [n] -> zeroed scratch -> dy times the derivative of act at `pre`; dy itself for ACT_NONE. NULL: no memory. */
const float *activation_gradient(run *r, const float *dy, const float *pre, activation act, int64_t n);

#endif
