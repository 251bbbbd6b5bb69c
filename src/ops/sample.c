/* sample.c - values of a feature map at places between its pixels. */
#include <math.h>
#include <string.h>

#include "ops/op.h"

/* Four pixels (elements from the start of the map) and their shares; share 0: outside. */
typedef struct taps { int64_t at[4]; float share[4]; } taps;

static void taps_read(float *sum, const float *map, const taps *t, int64_t channels)
{
    for (int i = 0; i < 4; i++)
        if (t->share[i] != 0.0f)
            for (int64_t c = 0; c < channels; c++)
                sum[c] += t->share[i] * map[t->at[i] + c];
}

static void taps_add(float *map, const float *dy, float factor, const taps *t, int64_t channels)
{
    for (int i = 0; i < 4; i++)
        if (t->share[i] != 0.0f)
            for (int64_t c = 0; c < channels; c++)
                map[t->at[i] + c] += t->share[i] * factor * dy[c];
}

/* ---- ROI align ---- */

/* Up to one pixel outside counts as the border, beyond that nothing. */
static taps border_taps(float y, float x, int64_t height, int64_t width, int64_t stride)
{
    taps t = {{0}, {0}};
    if (!(y >= -1.0f && y <= (float)height && x >= -1.0f && x <= (float)width))
        return t;
    y = fmaxf(y, 0.0f);
    x = fmaxf(x, 0.0f);
    int64_t top = (int64_t)y, left = (int64_t)x, bottom = top + 1, right = left + 1;
    if (top >= height - 1) {
        bottom = top = height - 1;
        y = (float)top;
    }
    if (left >= width - 1) {
        right = left = width - 1;
        x = (float)left;
    }
    float down = y - (float)top, over = x - (float)left;
    int64_t row[2] = {top, bottom}, col[2] = {left, right};
    float share_y[2] = {1.0f - down, down}, share_x[2] = {1.0f - over, over};
    for (int i = 0; i < 4; i++) {
        t.at[i] = (row[i / 2] * width + col[i % 2]) * stride;
        t.share[i] = share_y[i / 2] * share_x[i % 2];
    }
    return t;
}

/* A box cut into size x size bins, each sampled on a grid of points. */
typedef struct bins { float x0, y0, bin_w, bin_h; int64_t grid_w, grid_h; } bins;

static bins bins_of(const float *box, int size)
{
    float w = fmaxf(box[2] - box[0], 1.0f), h = fmaxf(box[3] - box[1], 1.0f);
    return (bins){box[0], box[1], w / (float)size, h / (float)size, (int64_t)ceilf(w / (float)size),
                  (int64_t)ceilf(h / (float)size)};
}

static taps bin_taps(const bins *b, int64_t py, int64_t px, int64_t i, const tensor *x)
{
    int64_t gy = i / b->grid_w, gx = i % b->grid_w;
    float y = b->y0 + (float)py * b->bin_h + ((float)gy + 0.5f) * b->bin_h / (float)b->grid_h;
    float at = b->x0 + (float)px * b->bin_w + ((float)gx + 0.5f) * b->bin_w / (float)b->grid_w;
    return border_taps(y, at, x->dim[1], x->dim[2], x->stride);
}

/* Boxes overlap, so they take their turns; that keeps the sums in one order. */
static void roi_align_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0], *boxes = n->in[1];
    int size = ((const roi_attributes *)n->attributes)->size;
    int64_t channels = x->dim[3], map = x->dim[1] * x->dim[2] * x->stride, each = boxes->dim[0] / x->dim[0];
    float *dx = op_grad(r, x);

    for (int64_t k = 0; dx && k < boxes->dim[0]; k++) {
        bins b = bins_of(boxes->data + k * boxes->stride, size);
        int64_t points = b.grid_w * b.grid_h;
        for (int64_t p = 0; p < (int64_t)size * size; p++)
            for (int64_t i = 0; i < points; i++) {
                taps t = bin_taps(&b, p / size, p % size, i, x);
                taps_add(dx + k / each * map, n->out->grad + (k * size * size + p) * channels, 1.0f / (float)points, &t,
                         channels);
            }
    }
}

static const op_info roi_align_op = {"roi_align", roi_align_backward, false};

/* Boxes far outside the map, or not numbers, would make for endless grids. */
static bool boxes_are_sane(const tensor *boxes, const tensor *x)
{
    float limit = 8.0f * (float)(x->dim[1] > x->dim[2] ? x->dim[1] : x->dim[2]);
    for (int64_t i = 0; i < boxes->dim[0]; i++)
        for (int j = 0; j < 4; j++)
            if (!(fabsf(boxes->data[i * boxes->stride + j]) <= limit))
                return false;
    return true;
}

static void roi_align_compute(float *y, const tensor *x, const tensor *boxes, int size)
{
    int64_t bins_in_all = boxes->dim[0] * size * size, channels = x->dim[3];
    int64_t map = x->dim[1] * x->dim[2] * x->stride, each = bins_in_all / x->dim[0];
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < bins_in_all; k++) {
        bins b = bins_of(boxes->data + k / (size * size) * boxes->stride, size);
        int64_t p = k % (size * size), points = b.grid_w * b.grid_h;
        float *sum = y + k * channels;
        memset(sum, 0, (size_t)channels * sizeof *sum);
        for (int64_t i = 0; i < points; i++) {
            taps t = bin_taps(&b, p / size, p % size, i, x);
            taps_read(sum, x->data + k / each * map, &t, channels);
        }
        for (int64_t c = 0; c < channels; c++)
            sum[c] /= (float)points;
    }
}

tensor *roi_align(run *r, tensor *x, tensor *boxes, int size)
{
    roi_attributes a = {size};
    op_call c = {.op = &roi_align_op, .in = {x, boxes}, .inputs = 2, .attributes = &a, .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 4 || x->dim[0] < 1 || x->dim[1] < 1 || x->dim[2] < 1 || boxes->axes != 2 || boxes->dim[1] != 4 ||
        boxes->dim[0] % x->dim[0] || size < 1 || size > 64)
        return op_mismatch(r, &c, x, boxes, "wants maps [B, H, W, C] and boxes [B n, 4]");
    tensor *y = op_output(r, &c, 4, (int64_t[]){boxes->dim[0], size, size, x->dim[3]});
    c.flops = 8.0 * (double)tensor_count(y);
    if (op_computes(r, y)) {
        if (!boxes_are_sane(boxes, x))
            return op_mismatch(r, &c, x, boxes, "a box is not a number, or lies far outside the picture");
        roi_align_compute(y->data, x, boxes, size);
    }
    return op_finish(r, &c, y);
}

/* ---- points ---- */

/* The pixel grid of a map whose corners are at 0 and 1, zeros around it. */
static taps point_taps(const float *point, int64_t height, int64_t width, int64_t stride)
{
    taps t = {{0}, {0}};
    float x = ((2.0f * point[0] - 1.0f + 1.0f) * (float)width - 1.0f) / 2.0f;
    float y = ((2.0f * point[1] - 1.0f + 1.0f) * (float)height - 1.0f) / 2.0f;
    if (!(x > -1.0f && x < (float)width && y > -1.0f && y < (float)height))
        return t;
    int64_t left = (int64_t)floorf(x), top = (int64_t)floorf(y);
    float over = x - (float)left, down = y - (float)top;
    for (int i = 0; i < 4; i++) {
        int64_t row = top + i / 2, col = left + i % 2;
        if (row < 0 || row >= height || col < 0 || col >= width)
            continue;
        t.at[i] = (row * width + col) * stride;
        t.share[i] = (i / 2 ? down : 1.0f - down) * (i % 2 ? over : 1.0f - over);
    }
    return t;
}

static void point_sample_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0], *points = n->in[1];
    float *dx = op_grad(r, x);

    for (int64_t i = 0; dx && i < points->dim[0]; i++) {
        taps t = point_taps(points->data + i * points->stride, x->dim[1], x->dim[2], x->stride);
        taps_add(dx, n->out->grad + i * x->dim[3], 1.0f, &t, x->dim[3]);
    }
}

static const op_info point_sample_op = {"point_sample", point_sample_backward, false};

tensor *point_sample(run *r, tensor *x, tensor *points)
{
    op_call c = {.op = &point_sample_op, .in = {x, points}, .inputs = 2};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 4 || x->dim[0] != 1 || points->axes != 2 || points->dim[1] != 2)
        return op_mismatch(r, &c, x, points, "wants a map [1, H, W, C] and points [n, 2]");
    tensor *y = op_output(r, &c, 2, (int64_t[]){points->dim[0], x->dim[3]});
    c.flops = 8.0 * (double)tensor_count(y);
    if (op_computes(r, y)) {
        memset(y->data, 0, (size_t)tensor_count(y) * sizeof *y->data);
        for (int64_t i = 0; i < points->dim[0]; i++) {
            taps t = point_taps(points->data + i * points->stride, x->dim[1], x->dim[2], x->stride);
            taps_read(y->data + i * x->dim[3], x->data, &t, x->dim[3]);
        }
    }
    return op_finish(r, &c, y);
}
