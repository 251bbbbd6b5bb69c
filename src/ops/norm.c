/* norm.c - LayerNorm and GroupNorm. */
#include <math.h>
#include <string.h>

#include "ops/op.h"

static bool norm_fits(const norm_w *w, int64_t channels)
{
    return w->gain && w->shift && tensor_count(&w->gain->t) == channels && tensor_count(&w->shift->t) == channels;
}

/* ---- LayerNorm; x may be a column view, then row by row ---- */

static void norm_backward(run *r, const op_node *n)
{
    const norm_w *w = ((const norm_attributes *)n->attributes)->w;
    const kernels *k = kernels_get();
    tensor *x = n->in[0];
    int64_t rows = tensor_rows(x), cols = last_dim(x), step = is_contiguous(x) ? rows : 1;
    float *dx = op_grad(r, x), *dgain = param_grad(w->gain), *dshift = param_grad(w->shift);

    if (!run_ok(r))
        return;
    for (int64_t i = 0; i < rows; i += step)
        k->norm_backward(dx ? dx + i * x->stride : NULL, dgain, dshift, n->out->grad + i * cols,
                         x->data + i * x->stride, n->saved[0] + i, n->saved[1] + i, w->gain->t.data, step, cols);
}

static const op_info norm_op = {"norm", norm_backward, false};

tensor *norm(run *r, tensor *x, const norm_w *w)
{
    norm_attributes a = {w, 0, false};
    op_call c = {.op = &norm_op, .in = {x}, .inputs = 1, .params = {w->gain, w->shift},
                 .attributes = &a, .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (!norm_fits(w, last_dim(x)))
        return op_mismatch_param(r, &c, x, w->gain, "the last axis must be as long as gain and shift");
    tensor *y = op_output_like(r, &c, x);
    int64_t rows = tensor_rows(x), cols = last_dim(x), step = is_contiguous(x) ? rows : 1;
    float *mean = op_save(r, &c, 0, rows), *rstd = op_save(r, &c, 1, rows);
    c.flops = 8.0 * (double)tensor_count(x);
    if (op_computes(r, y))
        for (int64_t i = 0; i < rows; i += step)
            kernels_get()->norm(y->data + i * cols, mean ? mean + i : NULL, rstd ? rstd + i : NULL,
                                x->data + i * x->stride, w->gain->t.data, w->shift->t.data, step, cols, w->eps);
    return op_finish(r, &c, y);
}

/* ---- GroupNorm ---- */

typedef struct group_shape { int64_t batch, pixels, channels, groups; } group_shape;

static group_shape group_shape_of(const tensor *x, int groups)
{
    return (group_shape){x->dim[0], x->dim[1] * x->dim[2], x->dim[3], groups};
}

/* Per item and channel: sum of dy and of dy * normalised x over the pixels, into sums [batch, channels, 2]. If `relu`,
 * dy counts as 0 where y is not positive. */
static void group_sums(double *sums, const float *dy, const float *y, const float *x, const float *mean,
                       const float *rstd, const group_shape *s, bool relu)
{
    int64_t per = s->channels / s->groups;
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t g = 0; g < s->groups; g++) {
            float m = mean[b * s->groups + g], is = rstd[b * s->groups + g];
            double *sum = sums + (b * s->channels + g * per) * 2;
            memset(sum, 0, (size_t)(2 * per) * sizeof *sum);
            for (int64_t p = 0; p < s->pixels; p++) {
                int64_t at = (b * s->pixels + p) * s->channels + g * per;
                for (int64_t i = 0; i < per; i++) {
                    double d = relu && y[at + i] <= 0.0f ? 0.0 : dy[at + i];
                    sum[2 * i] += d;
                    sum[2 * i + 1] += d * (x[at + i] - m) * is;
                }
            }
        }
    }
}

/* dx = rstd (dy gain - mean(dy gain) - xhat mean(dy gain xhat)), the means over the pixels and channels of a group. */
static void group_dx(float *dx, const double *sums, const float *dy, const float *y, const float *x, const float *mean,
                     const float *rstd, const float *gain, const group_shape *s, bool relu)
{
    int64_t per = s->channels / s->groups;
    double n = (double)(s->pixels * per);
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t g = 0; g < s->groups; g++) {
            float m = mean[b * s->groups + g], is = rstd[b * s->groups + g];
            const double *sum = sums + (b * s->channels + g * per) * 2;
            double first = 0, second = 0;
            for (int64_t i = 0; i < per; i++) {
                first += sum[2 * i] * gain[g * per + i];
                second += sum[2 * i + 1] * gain[g * per + i];
            }
            float a = (float)(first / n), h = (float)(second / n);
            for (int64_t p = 0; p < s->pixels; p++) {
                int64_t at = (b * s->pixels + p) * s->channels + g * per;
                for (int64_t i = 0; i < per; i++) {
                    float d = relu && y[at + i] <= 0.0f ? 0.0f : dy[at + i] * gain[g * per + i];
                    dx[at + i] += is * (d - a - (x[at + i] - m) * is * h);
                }
            }
        }
    }
}

static void group_norm_backward(run *r, const op_node *n)
{
    const norm_attributes *a = n->attributes;
    tensor *x = n->in[0];
    group_shape s = group_shape_of(x, a->groups);
    const float *dy = n->out->grad, *y = n->out->data, *mean = n->saved[0], *rstd = n->saved[1];
    float *dx = op_grad(r, x), *dgain = param_grad(a->w->gain), *dshift = param_grad(a->w->shift);
    double *sums = op_scratch(r, (size_t)(s.batch * s.channels * 2) * sizeof *sums);

    if (!run_ok(r))
        return;
    group_sums(sums, dy, y, x->data, mean, rstd, &s, a->relu);
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t i = 0; i < s.channels; i++) {
            if (dshift)
                dshift[i] += (float)sums[(b * s.channels + i) * 2];
            if (dgain)
                dgain[i] += (float)sums[(b * s.channels + i) * 2 + 1];
        }
    if (dx)
        group_dx(dx, sums, dy, y, x->data, mean, rstd, a->w->gain->t.data, &s, a->relu);
}

static const op_info group_norm_op = {"group_norm", group_norm_backward, false};

tensor *group_norm(run *r, tensor *x, const norm_w *w, int groups, bool relu)
{
    norm_attributes a = {w, groups, relu};
    op_call c = {.op = &group_norm_op, .in = {x}, .inputs = 1, .params = {w->gain, w->shift},
                 .attributes = &a, .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 4 || !norm_fits(w, x->dim[3]) || groups < 1 || x->dim[3] % groups || !is_contiguous(x))
        return op_mismatch_param(r, &c, x, w->gain, "wants [B, h, w, C], C as long as gain and divisible by groups");
    tensor *y = op_output_like(r, &c, x);
    group_shape s = group_shape_of(x, groups);
    float *mean = op_save(r, &c, 0, s.batch * groups), *rstd = op_save(r, &c, 1, s.batch * groups);
    c.flops = 8.0 * (double)tensor_count(x);
    if (op_computes(r, y))
        kernels_get()->group_norm(y->data, mean, rstd, x->data, w->gain->t.data, w->shift->t.data, s.batch, s.pixels,
                                  s.channels, groups, w->eps, relu);
    return op_finish(r, &c, y);
}
