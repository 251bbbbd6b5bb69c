/* fourier.c - position codes from random frequencies: sines and cosines of linear mixtures of the coordinates. */
#include <math.h>

#include "ops/op.h"

static const float full_circle = 6.28318530717958647692f;

/* Angles of one row: sum_k (2 x[k] - 1) m[k, f], times a full circle. */
static float fourier_angle(const float *x, const float *m, int64_t axes, int64_t features, int64_t f)
{
    float sum = 0;
    for (int64_t k = 0; k < axes; k++)
        sum += (2.0f * x[k] - 1.0f) * m[k * features + f];
    return full_circle * sum;
}

static void fourier_embed_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0];
    const param *p = ((const fourier_attributes *)n->attributes)->matrix;
    int64_t rows = tensor_rows(x), axes = last_dim(x), features = param_cols(p);
    float *dx = op_grad(r, x);

    if (!dx)
        return;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const float *dy = n->out->grad + i * 2 * features;
        for (int64_t f = 0; f < features; f++) {
            float a = fourier_angle(x->data + i * x->stride, p->t.data, axes, features, f);
            float da = (dy[f] * cosf(a) - dy[features + f] * sinf(a)) * 2.0f * full_circle;
            for (int64_t k = 0; k < axes; k++)
                dx[i * x->stride + k] += da * p->t.data[k * features + f];
        }
    }
}

static const op_info fourier_embed_op = {"fourier_embed", fourier_embed_backward, false};

tensor *fourier_embed(run *r, tensor *x, param *matrix)
{
    fourier_attributes a = {matrix};
    op_call c = {.op = &fourier_embed_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};
    int64_t dim[MAX_AXES], features = param_cols(matrix);

    if (!op_begin(r, &c))
        return run_bad(r);
    if (matrix->t.axes != 2 || matrix->t.dim[0] != last_dim(x))
        return op_mismatch_param(r, &c, x, matrix, "wants one row of frequencies for each coordinate");
    for (int i = 0; i < x->axes; i++)
        dim[i] = x->dim[i];
    dim[x->axes - 1] = 2 * features;
    tensor *y = op_output(r, &c, x->axes, dim);
    c.flops = 20.0 * (double)tensor_count(y);
    if (op_computes(r, y)) {
        int64_t rows = tensor_rows(x), axes = last_dim(x);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t f = 0; f < features; f++) {
                float angle = fourier_angle(x->data + i * x->stride, matrix->t.data, axes, features, f);
                y->data[i * 2 * features + f] = sinf(angle);
                y->data[i * 2 * features + features + f] = cosf(angle);
            }
    }
    return op_finish(r, &c, y);
}
