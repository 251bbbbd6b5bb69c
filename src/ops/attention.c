/* attention.c - softmax(q k^T) v over heads, with rotary positions, masks and box bias in one op. */
#include <math.h>

#include "ops/op.h"

/* Stands for "there is a table here" in TRACE, where only sizes are asked for. */
static const float something[1];

static const float *address(const tensor *t)
{
    return !t ? NULL : t->data ? t->data : something;
}

static attention_args arguments(tensor *const *in, const attention_attributes *o)
{
    const tensor *q = in[0], *k = in[1], *v = in[2], *mask = in[3], *bx = in[4], *by = in[5];
    int64_t shared_k = k->dim[0] == 1, shared_v = v->dim[0] == 1;
    return (attention_args){
        .q = address(q), .k = address(k), .v = address(v),
        .batch = q->dim[0], .heads = o->heads, .dim = q->dim[2] / o->heads, .nq = q->dim[1], .nk = k->dim[1],
        .v_dim = v->dim[2] / o->heads,
        .q_stride = q->stride, .k_stride = k->stride, .v_stride = v->stride, .y_stride = v->dim[2],
        .q_batch = q->dim[1] * q->stride, .y_batch = q->dim[1] * v->dim[2],
        .k_batch = shared_k ? 0 : k->dim[1] * k->stride, .v_batch = shared_v ? 0 : v->dim[1] * v->stride,
        .scale = o->scale, .causal = o->causal, .key_mask = address(mask),
        .bias_x = address(bx), .bias_y = address(by), .grid_w = bx ? bx->dim[2] : 0, .grid_h = by ? by->dim[2] : 0,
        .rope = o->rope, .rope_rows = o->rope_rows, .rope_keys = o->rope_keys,
    };
}

/* The fast levels want heads of whole vectors; the reference takes any width (small networks have narrow heads). */
static const kernels *kernels_for(const attention_args *a)
{
    const kernels *lowest;

    if ((a->dim % 8 == 0 && a->v_dim % 8 == 0) || kernels_levels(&lowest, 1) < 1)
        return kernels_get();
    return lowest;
}

static void attention_backward(run *r, const op_node *n)
{
    attention_args a = arguments(n->in, n->attributes);
    attention_grads g = {.dy = n->out->grad, .y = n->out->data, .lse = n->saved[0]};

    a.y = n->out->data;
    a.lse = n->saved[0];
    g.dq = op_grad(r, n->in[0]);
    g.dk = op_grad(r, n->in[1]);
    g.dv = op_grad(r, n->in[2]);
    g.dbias_x = n->in[4] ? op_grad(r, n->in[4]) : NULL;
    g.dbias_y = n->in[5] ? op_grad(r, n->in[5]) : NULL;
    a.scratch = op_scratch(r, attention_scratch(&a));
    g.scratch = op_scratch(r, attention_backward_scratch(&a));
    if (run_ok(r))
        kernels_for(&a)->attention_backward(&a, &g);
}

static const op_info attention_op = {"attention", attention_backward, false};

static bool is_bias(const tensor *t, const tensor *q, int heads)
{
    return t->axes == 4 && t->dim[0] == q->dim[0] && t->dim[1] == q->dim[1] && t->dim[3] == heads && is_contiguous(t);
}

const char *attention_rule(const run *r, tensor *const *in, const attend_options *o, const tensor **with)
{
    const tensor *q = in[0], *k = in[1], *v = in[2], *mask = in[3], *bx = in[4], *by = in[5];
    *with = k;
    if (q->axes != 3 || k->axes != 3 || k->dim[2] != q->dim[2] || (k->dim[0] != q->dim[0] && k->dim[0] != 1))
        return "wants q [B, nq, C] with k [B or 1, nk, C]";
    if (k->dim[1] < 1)
        return "there are no keys";
    if (o->heads < 1 || q->dim[2] % o->heads || (q->dim[2] / o->heads) % 4 || q->dim[2] / o->heads > 256)
        return "the width of a head must be a multiple of 4, at most 256";
    *with = v;
    if (v->axes != 3 || v->dim[1] != k->dim[1] || (v->dim[0] != q->dim[0] && v->dim[0] != 1) ||
        v->dim[2] % o->heads || v->dim[2] > q->dim[2])
        return "v must be [B or 1, nk, C or less]";
    if (v->dim[2] != q->dim[2] && run_mode_of(r) != RUN)
        return "v narrower than q can only be computed, not recorded";
    *with = mask;
    if (mask && (mask->axes != 2 || mask->dim[0] != q->dim[0] || mask->dim[1] != k->dim[1] || !is_contiguous(mask)))
        return "the mask must be [B, nk]";
    *with = bx;
    if (!bx != !by)
        return "the bias needs both directions";
    if (bx && (!is_bias(bx, q, o->heads) || !is_bias(by, q, o->heads) || bx->dim[2] * by->dim[2] != k->dim[1]))
        return "the bias must be [B, nq, grid side, heads], and the sides' product the number of keys";
    if (o->rope && (o->rope_rows < 1 || o->rope_keys < 0 || o->rope_keys > k->dim[1]))
        return "the table of rotations has no rows, or more keys are to be rotated than there are";
    return NULL;
}

attention_attributes attention_attributes_of(const tensor *q, const tensor *k, const attend_options *o)
{
    attention_attributes a = {o->heads, o->scale, o->causal, o->rope, o->rope_rows, o->rope_keys};
    if (a.scale == 0.0f)
        a.scale = 1.0f / sqrtf((float)(q->dim[2] / o->heads));
    if (a.rope_keys == 0)
        a.rope_keys = k->dim[1];
    return a;
}

tensor *attention(run *r, tensor *q, tensor *k, tensor *v, const attend_options *o)
{
    op_call c = {.op = &attention_op, .in = {q, k, v, o->key_mask, o->bias_x, o->bias_y}, .inputs = 6};
    const tensor *with;

    if (!op_begin(r, &c))
        return run_bad(r);
    const char *rule = attention_rule(r, c.in, o, &with);
    if (rule)
        return op_mismatch(r, &c, q, with, rule);
    attention_attributes a = attention_attributes_of(q, k, o);
    c.attributes = &a;
    c.attribute_bytes = sizeof a;
    tensor *y = op_output(r, &c, 3, (int64_t[]){q->dim[0], q->dim[1], v->dim[2]});
    attention_args args = arguments(c.in, &a);
    c.flops = 2.0 * (double)(q->dim[0] * q->dim[1]) * (double)(q->dim[2] + v->dim[2]) * (double)k->dim[1];
    args.lse = op_save(r, &c, 0, q->dim[0] * o->heads * q->dim[1]);
    args.scratch = op_scratch(r, attention_scratch(&args));
    args.y = y->data;
    const kernels *kernel = kernels_for(&args);
    void (*const compute[])(const attention_args *) = {
        [GEMM_F32] = kernel->attention, [GEMM_BF16] = kernel->attention_bf16, [GEMM_INT8] = kernel->attention_int8};
    if (op_computes(r, y))
        compute[run_type(r)](&args);
    return op_finish(r, &c, y);
}

tensor *attention_linear(run *r, tensor *q, tensor *k, tensor *x, const linear_w *w, const attend_options *o)
{
    bool late = run_mode_of(r) == RUN && o->heads == 1 && !o->key_mask && x->dim[x->axes - 1] < w->out;

    return late ? linear(r, attention(r, q, k, x, o), w) : attention(r, q, k, linear(r, x, w), o);
}
