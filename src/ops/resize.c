/* resize.c - pictures in other sizes. */
#include <math.h>
#include <string.h>

#include "ops/op.h"

/* ---- nearest enlargement plus big ---- */

static int64_t nearest(int64_t i, int64_t from, int64_t to)
{
    int64_t at = (int64_t)floorf((float)i * ((float)from / (float)to));
    return at < from - 1 ? at : from - 1;
}

static void upsample_add_backward(run *r, const op_node *node)
{
    tensor *s = node->in[0], *big = node->in[1], *y = node->out;
    int64_t channels = y->dim[3], size = y->dim[1] * y->dim[2] * channels;
    float *ds = op_grad(r, s), *dbig = op_grad(r, big);

    if (!run_ok(r))
        return;
    if (dbig && big->dim[0] == y->dim[0])
        kernels_get()->axpy(dbig, y->grad, 1, tensor_count(y));
    else if (dbig)
        kernels_get()->column_sums(dbig, y->grad, y->dim[0], size, size);
    if (!ds)
        return;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < y->dim[0]; b++)
        for (int64_t i = 0; i < y->dim[1]; i++)
            for (int64_t j = 0; j < y->dim[2]; j++) {
                int64_t si = nearest(i, s->dim[1], y->dim[1]), sj = nearest(j, s->dim[2], y->dim[2]);
                float *to = ds + ((b * s->dim[1] + si) * s->dim[2] + sj) * channels;
                const float *from = y->grad + ((b * y->dim[1] + i) * y->dim[2] + j) * channels;
                for (int64_t c = 0; c < channels; c++)
                    to[c] += from[c];
            }
}

static const op_info upsample_add_op = {"upsample_add", upsample_add_backward, false};

static void upsample_add_compute(float *y, const tensor *s, const tensor *big, const int64_t *dim)
{
    int64_t lines = dim[0] * dim[1], channels = dim[3];
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < lines; i++) {
        int64_t b = i / dim[1], si = nearest(i % dim[1], s->dim[1], dim[1]);
        int64_t line = big->dim[0] == 1 ? i % dim[1] : i;
        for (int64_t j = 0; j < dim[2]; j++) {
            const float *from = s->data + ((b * s->dim[1] + si) * s->dim[2] + nearest(j, s->dim[2], dim[2])) * channels;
            const float *plus = big->data + (line * dim[2] + j) * channels;
            float *to = y + (i * dim[2] + j) * channels;
            for (int64_t c = 0; c < channels; c++)
                to[c] = from[c] + plus[c];
        }
    }
}

tensor *upsample_add(run *r, tensor *small, tensor *big)
{
    op_call c = {.op = &upsample_add_op, .in = {small, big}, .inputs = 2};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (small->axes != 4 || big->axes != 4 || small->dim[3] != big->dim[3] || !is_contiguous(small) ||
        !is_contiguous(big) || (big->dim[0] != small->dim[0] && big->dim[0] != 1) || small->dim[1] < 1 ||
        small->dim[2] < 1)
        return op_mismatch(r, &c, small, big, "wants [B, h, w, C] and [B or 1, H, W, C]");
    tensor *y = op_output(r, &c, 4, (int64_t[]){small->dim[0], big->dim[1], big->dim[2], big->dim[3]});
    c.flops = (double)tensor_count(y);
    if (op_computes(r, y))
        upsample_add_compute(y->data, small, big, y->dim);
    return op_finish(r, &c, y);
}

/* ---- bilinear ---- */

/* Where place i of `to` lies in `from`: between pixel `low` and `high`, `part` of the way. */
typedef struct between { int64_t low, high; float part; } between;

static between between_of(int64_t i, int64_t from, int64_t to)
{
    float at = fmaxf(((float)i + 0.5f) * ((float)from / (float)to) - 0.5f, 0.0f);
    int64_t low = (int64_t)at;
    if (low > from - 1)
        low = from - 1;
    return (between){low, low < from - 1 ? low + 1 : low, fminf(at - (float)low, 1.0f)};
}

/* Each output row is added to two rows of its item: items are shared out, their rows are not. */
static void resize_bilinear_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0], *y = n->out;
    int64_t channels = x->dim[3], line = x->dim[2] * channels;
    float *dx = op_grad(r, x);

    if (!dx)
        return;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < y->dim[0]; b++)
        for (int64_t i = 0; i < y->dim[1]; i++) {
            between v = between_of(i, x->dim[1], y->dim[1]);
            float *top = dx + (b * x->dim[1] + v.low) * line, *bottom = dx + (b * x->dim[1] + v.high) * line;
            for (int64_t j = 0; j < y->dim[2]; j++) {
                between h = between_of(j, x->dim[2], y->dim[2]);
                const float *from = y->grad + ((b * y->dim[1] + i) * y->dim[2] + j) * channels;
                for (int64_t c = 0; c < channels; c++) {
                    float upper = from[c] * (1 - v.part), lower = from[c] * v.part;
                    top[h.low * channels + c] += upper * (1 - h.part);
                    top[h.high * channels + c] += upper * h.part;
                    bottom[h.low * channels + c] += lower * (1 - h.part);
                    bottom[h.high * channels + c] += lower * h.part;
                }
            }
        }
}

static const op_info resize_bilinear_op = {"resize_bilinear", resize_bilinear_backward, false};

static void resize_bilinear_compute(float *y, const tensor *x, int64_t height, int64_t width)
{
    int64_t lines = x->dim[0] * height, channels = x->dim[3], line = x->dim[2] * channels;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < lines; i++) {
        between v = between_of(i % height, x->dim[1], height);
        const float *item = x->data + i / height * x->dim[1] * line;
        const float *top = item + v.low * line, *bottom = item + v.high * line;
        for (int64_t j = 0; j < width; j++) {
            between h = between_of(j, x->dim[2], width);
            float *to = y + (i * width + j) * channels;
            for (int64_t c = 0; c < channels; c++) {
                float upper = top[h.low * channels + c] * (1 - h.part) + top[h.high * channels + c] * h.part;
                float lower = bottom[h.low * channels + c] * (1 - h.part) + bottom[h.high * channels + c] * h.part;
                to[c] = upper * (1 - v.part) + lower * v.part;
            }
        }
    }
}

tensor *resize_bilinear(run *r, tensor *x, int64_t height, int64_t width)
{
    op_call c = {.op = &resize_bilinear_op, .in = {x}, .inputs = 1};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 4 || x->dim[1] < 1 || x->dim[2] < 1 || height < 1 || width < 1 || !is_contiguous(x))
        return op_mismatch(r, &c, x, NULL, "wants [B, h, w, C] without gaps, and sides of at least 1");
    tensor *y = op_output(r, &c, 4, (int64_t[]){x->dim[0], height, width, x->dim[3]});
    c.flops = 7.0 * (double)tensor_count(y);
    if (op_computes(r, y))
        resize_bilinear_compute(y->data, x, height, width);
    return op_finish(r, &c, y);
}
