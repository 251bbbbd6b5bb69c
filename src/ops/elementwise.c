/* elementwise.c - one number in, one number out. Inputs may be column views; then they are taken row by row. */
#include <math.h>

#include "ops/op.h"

/* Runs of consecutive numbers: the whole of a contiguous value, else its rows. */
static int64_t run_length(const tensor *x)
{
    return is_contiguous(x) ? tensor_count(x) : last_dim(x);
}

/* ---- add, multiply: b's shape is a's or ends it ---- */

/* Elements of b, after which it is repeated: whole rows of a. -1 when the shapes do not fit. Leading axes of length 1
 * do not count. */
static int64_t period_of(const tensor *a, const tensor *b)
{
    int skip = 0;
    while (skip < b->axes - 1 && b->dim[skip] == 1)
        skip++;
    int axes = b->axes - skip;
    if (axes > a->axes)
        return -1;
    for (int i = 0; i < axes; i++)
        if (a->dim[a->axes - axes + i] != b->dim[skip + i])
            return -1;
    return is_contiguous(b) ? tensor_count(b) : -1;
}

static void add_backward(run *r, const op_node *n)
{
    tensor *a = n->in[0], *b = n->in[1];
    const kernels *k = kernels_get();
    int64_t count = tensor_count(a), period = tensor_count(b), length = run_length(a);
    const float *dy = n->out->grad;
    float *da = op_grad(r, a), *db = op_grad(r, b);

    if (!run_ok(r))
        return;
    if (da)
        for (int64_t i = 0; i * length < count; i++)
            k->axpy(da + i * a->stride, dy + i * length, 1, length);
    if (db)
        k->column_sums(db, dy, count / period, period, period);
}

static const op_info add_op = {"add", add_backward, false};

static const char pair_rule[] = "the second must have the shape of the first, or of its last axes, without gaps";

tensor *add(run *r, tensor *a, tensor *b)
{
    op_call c = {.op = &add_op, .in = {a, b}, .inputs = 2};

    if (!op_begin(r, &c))
        return run_bad(r);
    int64_t period = period_of(a, b), count = tensor_count(a), length = run_length(a);
    if (period < 0)
        return op_mismatch(r, &c, a, b, pair_rule);
    tensor *y = op_output_like(r, &c, a);
    c.flops = (double)count;
    if (op_computes(r, y)) {
        if (is_contiguous(a))
            kernels_get()->add(y->data, a->data, b->data, count, period);
        else
            for (int64_t i = 0; i * length < count; i++)
                kernels_get()->add(y->data + i * length, a->data + i * a->stride, b->data + i * length % period, length,
                                   length);
    }
    return op_finish(r, &c, y);
}

static void multiply_backward(run *r, const op_node *n)
{
    tensor *a = n->in[0], *b = n->in[1];
    int64_t rows = tensor_rows(a), cols = last_dim(a), period = tensor_count(b);
    const float *dy = n->out->grad, *from = a->data, *by = b->data;
    float *da = op_grad(r, a), *db = op_grad(r, b);

    if (!run_ok(r))
        return;
    if (da) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < rows; i++) {
            const float *b_row = by + i * cols % period;
            for (int64_t j = 0; j < cols; j++)
                da[i * a->stride + j] += dy[i * cols + j] * b_row[j];
        }
    }
    if (db) {
#pragma omp parallel for schedule(static)
        for (int64_t p = 0; p < period; p++) {
            double sum = 0;
            for (int64_t at = p; at < rows * cols; at += period)
                sum += (double)dy[at] * from[at / cols * a->stride + at % cols];
            db[p] += (float)sum;
        }
    }
}

static const op_info multiply_op = {"multiply", multiply_backward, false};

tensor *multiply(run *r, tensor *a, tensor *b)
{
    op_call c = {.op = &multiply_op, .in = {a, b}, .inputs = 2};

    if (!op_begin(r, &c))
        return run_bad(r);
    int64_t period = period_of(a, b), rows = tensor_rows(a), cols = last_dim(a);
    if (period < 0)
        return op_mismatch(r, &c, a, b, pair_rule);
    tensor *y = op_output_like(r, &c, a);
    c.flops = (double)tensor_count(a);
    if (op_computes(r, y)) {
        const float *from = a->data, *by = b->data;
        float *to = y->data;
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < rows; i++) {
            const float *b_row = by + i * cols % period;
            for (int64_t j = 0; j < cols; j++)
                to[i * cols + j] = from[i * a->stride + j] * b_row[j];
        }
    }
    return op_finish(r, &c, y);
}

/* ---- functions of one number ---- */

static void scale_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0];
    float s = ((const scale_attributes *)n->attributes)->s, *dx = op_grad(r, x);
    int64_t length = run_length(x), count = tensor_count(x);

    if (dx)
        for (int64_t i = 0; i * length < count; i++)
            kernels_get()->axpy(dx + i * x->stride, n->out->grad + i * length, s, length);
}

static const op_info scale_op = {"scale", scale_backward, false};

tensor *scale(run *r, tensor *x, float s)
{
    scale_attributes a = {s};
    op_call c = {.op = &scale_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    tensor *y = op_output_like(r, &c, x);
    int64_t rows = tensor_rows(x), cols = last_dim(x);
    c.flops = (double)tensor_count(x);
    if (op_computes(r, y)) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                y->data[i * cols + j] = s * x->data[i * x->stride + j];
    }
    return op_finish(r, &c, y);
}

static void activate_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0];
    activation act = ((const activate_attributes *)n->attributes)->act;
    float *dx = op_grad(r, x);
    int64_t length = run_length(x), count = tensor_count(x);

    if (dx)
        for (int64_t i = 0; i * length < count; i++)
            kernels_get()->activate_backward(dx + i * x->stride, n->out->grad + i * length, x->data + i * x->stride,
                                             act, length);
}

static const op_info activate_op = {"activate", activate_backward, false};

tensor *activate(run *r, tensor *x, activation act)
{
    activate_attributes a = {act};
    op_call c = {.op = &activate_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    tensor *y = op_output_like(r, &c, x);
    int64_t length = run_length(x), count = tensor_count(x);
    c.flops = (double)count;
    if (op_computes(r, y))
        for (int64_t i = 0; i * length < count; i++)
            kernels_get()->activate(y->data + i * length, x->data + i * x->stride, act, length);
    return op_finish(r, &c, y);
}

static void clamp_backward(run *r, const op_node *n)
{
    const clamp_attributes *a = n->attributes;
    tensor *x = n->in[0];
    int64_t rows = tensor_rows(x), cols = last_dim(x);
    float *dx = op_grad(r, x);

    if (!dx)
        return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float v = x->data[i * x->stride + j];
            if (v >= a->low && v <= a->high)
                dx[i * x->stride + j] += n->out->grad[i * cols + j];
        }
}

static const op_info clamp_op = {"clamp", clamp_backward, false};

tensor *clamp(run *r, tensor *x, float low, float high)
{
    clamp_attributes a = {low, high};
    op_call c = {.op = &clamp_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    tensor *y = op_output_like(r, &c, x);
    int64_t rows = tensor_rows(x), cols = last_dim(x);
    c.flops = (double)tensor_count(x);
    if (op_computes(r, y))
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                float v = x->data[i * x->stride + j];
                y->data[i * cols + j] = v < low ? low : v > high ? high : v;
            }
    return op_finish(r, &c, y);
}

/* ---- inverse sigmoid ---- */

static const float smallest_odds = 1e-3f;

/* Both branches of the fraction stop at smallest_odds; beyond 0..1 nothing moves. */
static void inverse_sigmoid_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0];
    int64_t rows = tensor_rows(x), cols = last_dim(x);
    float *dx = op_grad(r, x);

    if (!dx)
        return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            float v = x->data[i * x->stride + j], slope = 0;
            if (v < 0.0f || v > 1.0f)
                continue;
            if (v >= smallest_odds)
                slope += 1.0f / v;
            if (1.0f - v >= smallest_odds)
                slope += 1.0f / (1.0f - v);
            dx[i * x->stride + j] += slope * n->out->grad[i * cols + j];
        }
}

static const op_info inverse_sigmoid_op = {"inverse_sigmoid", inverse_sigmoid_backward, false};

tensor *inverse_sigmoid(run *r, tensor *x)
{
    op_call c = {.op = &inverse_sigmoid_op, .in = {x}, .inputs = 1};

    if (!op_begin(r, &c))
        return run_bad(r);
    tensor *y = op_output_like(r, &c, x);
    int64_t rows = tensor_rows(x), cols = last_dim(x);
    c.flops = 4.0 * (double)tensor_count(x);
    if (op_computes(r, y))
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                float v = fminf(fmaxf(x->data[i * x->stride + j], 0.0f), 1.0f);
                y->data[i * cols + j] = logf(fmaxf(v, smallest_odds) / fmaxf(1.0f - v, smallest_odds));
            }
    return op_finish(r, &c, y);
}

/* ---- detach ---- */

static const op_info detach_op = {"detach", NULL, false};

tensor *detach(run *r, tensor *x)
{
    op_call c = {.op = &detach_op, .in = {x}, .inputs = 1};

    if (!op_begin(r, &c))
        return run_bad(r);
    return op_finish(r, &c, op_view(r, &c, x, x->axes, x->dim, x->stride, 0));
}
