/* linear.c - rows times weights, and rows times rows. */
#include <string.h>

#include "ops/op.h"

bool linear_pack(linear_w *w, gemm_type type)
{
    const float *b = w->b ? w->b->t.data + w->first : NULL;
    gemm_weights_free(w->packed);
    w->packed = gemm_pack(w->w->t.data + w->first * w->in, b, w->out, w->in, w->in, type);
    return w->packed != NULL;
}

/* Packed weights are a copy: of no use once the parameter may change. */
bool linear_packed(const linear_w *w)
{
    return w->packed && !w->w->trainable && !(w->b && w->b->trainable);
}

static bool weights_fit(const linear_w *w)
{
    return w->w && param_cols(w->w) == w->in && w->first >= 0 && w->out > 0 && w->w->t.dim[0] - w->first >= w->out &&
           (!w->b || tensor_count(&w->b->t) - w->first >= w->out);
}

static factor weights_factor(run *r, bool narrow, const linear_w *w)
{
    return op_factor(r, narrow, w->w->t.data + w->first * w->in, w->in, w->out, w->in);
}

/* y = x w^T + b without activation. */
static bool multiply_rows(run *r, const linear_w *w, float *y, const float *x, int64_t ldx, int64_t rows)
{
    bool narrow = op_narrows(r, rows, w->out, w->in);
    factor fx = op_factor(r, narrow, x, ldx, rows, w->in), fw = weights_factor(r, narrow, w);

    if (!run_ok(r) || !op_product(false, true, rows, w->out, w->in, fx, fw, false, y, w->out))
        return false;
    if (w->b)
        kernels_get()->add(y, y, w->b->t.data + w->first, rows * w->out, w->out);
    return true;
}

static bool linear_compute(run *r, const linear_w *w, float *y, float *pre, const tensor *x, activation act,
                           const float *residual, void *scratch)
{
    const kernels *k = kernels_get();
    int64_t rows = tensor_rows(x), n = rows * w->out;
    float *sum = pre ? pre : y;

    if (linear_packed(w)) {
        if (!pre)
            return gemm_run(w->packed, y, w->out, x->data, x->stride, rows, act, residual, scratch);
        if (!gemm_run(w->packed, pre, w->out, x->data, x->stride, rows, ACT_NONE, NULL, scratch))
            return false;
    } else if (!multiply_rows(r, w, sum, x->data, x->stride, rows)) {
        return false;
    }
    if (act != ACT_NONE)
        k->activate(y, sum, act, n);
    if (residual)
        k->add(y, y, residual, n, n);
    return true;
}

/* dw and db are the rows of the parameters' gradients that this op uses. */
static void linear_backward(run *r, const op_node *n)
{
    const linear_attributes *a = n->attributes;
    const linear_w *w = a->w;
    tensor *x = n->in[0];
    int64_t rows = tensor_rows(x), count = rows * w->out;
    const float *dy = activation_gradient(r, n->out->grad, n->saved[0] ? n->saved[0] : n->out->data, a->act, count);
    float *dx = op_grad(r, x), *dw = param_grad(w->w), *db = param_grad(w->b);
    float *dresidual = n->in[1] ? op_grad(r, n->in[1]) : NULL;
    bool ok = true, narrow = (dx || dw) && op_narrows(r, rows, w->out, w->in);

    if (!dy || !run_ok(r))
        return;
    factor fdy = op_factor(r, narrow, dy, w->out, rows, w->out);
    if (dx)
        ok &= op_product(false, false, rows, w->in, w->out, fdy, weights_factor(r, narrow, w), true, dx, x->stride);
    if (dw)
        ok &= op_product(true, false, w->out, w->in, rows, fdy, op_factor(r, narrow, x->data, x->stride, rows, w->in),
                         true, dw + w->first * w->in, w->in);
    if (db)
        kernels_get()->column_sums(db + w->first, dy, rows, w->out, w->out);
    if (dresidual)
        kernels_get()->axpy(dresidual, n->out->grad, 1, count);
    if (!ok)
        run_fail(r, SAMITE_RESOURCE, "backward of linear: the matrix engine refused the work");
}

static const op_info linear_op = {"linear", linear_backward, false};

static tensor *linear_plain(run *r, tensor *x, const linear_w *w, activation act, tensor *residual)
{
    linear_attributes a = {w, act};
    op_call c = {.op = &linear_op, .in = {x, residual}, .inputs = residual ? 2 : 1, .params = {w->w, w->b},
                 .attributes = &a, .attribute_bytes = sizeof a};
    int64_t dim[MAX_AXES];

    if (!op_begin(r, &c))
        return run_bad(r);
    if (!weights_fit(w) || last_dim(x) != w->in)
        return op_mismatch_param(r, &c, x, w->w, "the last axis must be the inputs of the weights");
    memcpy(dim, x->dim, sizeof dim);
    dim[x->axes - 1] = w->out;
    tensor *y = op_output(r, &c, x->axes, dim);
    if (residual && run_ok(r) && (!same_shape(y, residual) || !is_contiguous(residual)))
        return op_mismatch(r, &c, residual, y, "the residual must have the shape of the output, without gaps");
    int64_t rows = tensor_rows(x);
    c.flops = 2.0 * (double)rows * (double)w->in * (double)w->out;
    float *pre = act == ACT_NONE || act == ACT_RELU ? NULL : op_save(r, &c, 0, rows * w->out);
    void *scratch = linear_packed(w) ? op_scratch(r, gemm_scratch(w->packed, rows)) : NULL;
    if (op_computes(r, y))
        op_tell_rows(r, w, x->data, x->stride, rows);
    if (op_computes(r, y) && !linear_compute(r, w, y->data, pre, x, act, residual ? residual->data : NULL, scratch))
        return op_engine_failed(r, &c);
    return op_finish(r, &c, y);
}

/* An adapter is made of ops of its own: what it changes has to be there before the activation. */
static tensor *linear_call(run *r, tensor *x, const linear_w *w, activation act, tensor *residual)
{
    const adapter_w *a = w->adapter;
    if (!a)
        return linear_plain(r, x, w, act, residual);
    tensor *y = linear_plain(r, x, w, ACT_NONE, residual);
    y = linear_plain(r, scale(r, linear_plain(r, x, &a->down, ACT_NONE, NULL), a->scale), &a->up, ACT_NONE, y);
    return act == ACT_NONE ? y : activate(r, y, act);
}

tensor *linear(run *r, tensor *x, const linear_w *w)
{
    return linear_call(r, x, w, ACT_NONE, NULL);
}

tensor *linear_act(run *r, tensor *x, const linear_w *w, activation act)
{
    return linear_call(r, x, w, act, NULL);
}

tensor *linear_add(run *r, tensor *x, const linear_w *w, tensor *residual)
{
    return linear_call(r, x, w, ACT_NONE, residual);
}

/* ---- product with a linear layer folded in ---- */

static const op_info product_linear_op = {"product_linear", NULL, false};

/* y [n, m] = (a W) x^T + a b for one item; moved [n, in] is a W. */
static bool folded_product(float *y, float *moved, const linear_w *w, const float *a, int64_t lda, int64_t n,
                           const float *x, int64_t m)
{
    const float *values = w->w->t.data + w->first * w->in, *bias = w->b ? w->b->t.data + w->first : NULL;

    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int64_t o = 0; bias && o < w->out; o++)
            sum += a[i * lda + o] * bias[o];
        for (int64_t j = 0; j < m; j++)
            y[i * m + j] = sum;
    }
    return gemm(false, false, n, w->in, w->out, 1, a, lda, values, w->in, 0, moved, w->in) &&
           gemm(false, true, n, m, w->in, 1, moved, w->in, x, w->in, 1, y, m);
}

tensor *product_linear(run *r, tensor *a, tensor *pixels, const linear_w *w)
{
    op_call c = {.op = &product_linear_op, .in = {a, pixels}, .inputs = 2};
    bool whole = run_ok(r) && a->axes == 3 && pixels->axes == 4 && a->dim[0] == pixels->dim[0] && weights_fit(w) &&
                 a->dim[2] == w->out && pixels->dim[3] == w->in && is_contiguous(pixels);

    if (!whole || run_mode_of(r) != RUN || w->adapter || !w->w->t.data || (w->b && !w->b->t.data)) {
        tensor *p = linear(r, pixels, w);
        return product(r, a, reshape(r, p, 3, (int64_t[]){p->dim[0], p->dim[1] * p->dim[2], last_dim(p)}));
    }
    if (!op_begin(r, &c))
        return run_bad(r);
    int64_t batch = a->dim[0], n = a->dim[1], m = pixels->dim[1] * pixels->dim[2];
    tensor *y = op_output(r, &c, 3, (int64_t[]){batch, n, m});
    float *moved = op_scratch_floats(r, n * w->in);
    c.flops = 2.0 * (double)(batch * n * w->in) * (double)(m + w->out);
    if (op_computes(r, y))
        for (int64_t i = 0; i < batch; i++)
            if (!folded_product(y->data + i * n * m, moved, w, a->data + i * n * a->stride, a->stride, n,
                                pixels->data + i * m * w->in, m))
                return op_engine_failed(r, &c);
    return op_finish(r, &c, y);
}

/* ---- product ---- */

/* With b shared by the batch all rows of a are one matrix. */
static int64_t product_steps(const tensor *a, const tensor *b)
{
    return b->dim[0] == 1 ? 1 : a->dim[0];
}

static void product_backward(run *r, const op_node *node)
{
    tensor *a = node->in[0], *b = node->in[1];
    int64_t steps = product_steps(a, b), n = tensor_rows(a) / steps, m = b->dim[1], d = last_dim(a);
    const float *dy = node->out->grad;
    float *da = op_grad(r, a), *db = op_grad(r, b);
    bool ok = run_ok(r);

    for (int64_t i = 0; i < steps && ok; i++) {
        const float *dyi = dy + i * n * m;
        if (da)
            ok &= gemm(false, false, n, d, m, 1, dyi, m, b->data + i * m * b->stride, b->stride, 1,
                       da + i * n * a->stride, a->stride);
        if (db)
            ok &= gemm(true, false, m, d, n, 1, dyi, m, a->data + i * n * a->stride, a->stride, 1,
                       db + i * m * b->stride, b->stride);
    }
    if (!ok)
        run_fail(r, SAMITE_RESOURCE, "backward of product: the matrix engine refused the work");
}

static const op_info product_op = {"product", product_backward, false};

tensor *product(run *r, tensor *a, tensor *b)
{
    op_call c = {.op = &product_op, .in = {a, b}, .inputs = 2};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (a->axes != 3 || b->axes != 3 || (a->dim[0] != b->dim[0] && b->dim[0] != 1) || a->dim[2] != b->dim[2] ||
        a->dim[0] < 1)
        return op_mismatch(r, &c, a, b, "wants [B, n, d] with [B or 1, m, d]");
    tensor *y = op_output(r, &c, 3, (int64_t[]){a->dim[0], a->dim[1], b->dim[1]});
    int64_t steps = product_steps(a, b), n = tensor_rows(a) / steps, m = b->dim[1], d = last_dim(a);
    c.flops = 2.0 * (double)tensor_rows(a) * (double)m * (double)d;
    if (op_computes(r, y))
        for (int64_t i = 0; i < steps; i++)
            if (!gemm(false, true, n, m, d, 1, a->data + i * n * a->stride, a->stride, b->data + i * m * b->stride,
                      b->stride, 0, y->data + i * n * m, m))
                return op_engine_failed(r, &c);
    return op_finish(r, &c, y);
}
