/* position.c - where something is, as numbers a network can use. */
#include <math.h>
#include <string.h>

#include "ops/op.h"

/* ---- sine codes ---- */

static const float full_circle = 6.28318530717958647692f;

/* Divisors 10000^(2 floor(i/2) / features), in single precision as the trained network knew them. */
static void sine_divisors(float *divisor, int features)
{
    for (int i = 0; i < features; i++)
        divisor[i] = powf(10000.0f, 2.0f * (float)(i / 2) / (float)features);
}

static void sine_embed_backward(run *r, const op_node *n)
{
    const sine_attributes *a = n->attributes;
    tensor *x = n->in[0];
    int64_t rows = tensor_rows(x), width = last_dim(n->out);
    float *dx = op_grad(r, x), *divisor = op_scratch_floats(r, a->features);

    if (!dx || !divisor)
        return;
    sine_divisors(divisor, a->features);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < a->count; k++) {
            const float *dy = n->out->grad + i * width + (int64_t)k * a->features;
            float v = x->data[i * x->stride + a->order[k]] * full_circle, sum = 0;
            for (int f = 0; f < a->features; f++) {
                float angle = v / divisor[f];
                sum += dy[f] * (f % 2 ? -sinf(angle) : cosf(angle)) * full_circle / divisor[f];
            }
            dx[i * x->stride + a->order[k]] += sum;
        }
}

static const op_info sine_embed_op = {"sine_embed", sine_embed_backward, false};

static bool order_is_good(const int *order, int count, int64_t columns)
{
    for (int i = 0; i < count; i++)
        if (order[i] < 0 || order[i] >= columns)
            return false;
    return true;
}

static void sine_embed_compute(float *y, const tensor *x, const sine_attributes *a, const float *divisor)
{
    int64_t rows = tensor_rows(x), width = (int64_t)a->count * a->features;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int k = 0; k < a->count; k++) {
            float v = x->data[i * x->stride + a->order[k]] * full_circle;
            float *to = y + i * width + (int64_t)k * a->features;
            for (int f = 0; f < a->features; f++)
                to[f] = f % 2 ? cosf(v / divisor[f]) : sinf(v / divisor[f]);
        }
}

tensor *sine_embed(run *r, tensor *x, const int *order, int count, int features)
{
    sine_attributes a = {.count = count, .features = features};
    op_call c = {.op = &sine_embed_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};
    int64_t dim[MAX_AXES];

    if (!op_begin(r, &c))
        return run_bad(r);
    if (count < 1 || count > (int)(sizeof a.order / sizeof *a.order) || features < 2 || features % 2 ||
        features > 65536 || !order_is_good(order, count, last_dim(x)))
        return op_mismatch(r, &c, x, NULL, "wants 1 to 8 of the columns there are, and an even number of features");
    memcpy(a.order, order, (size_t)count * sizeof *order);
    memcpy(dim, x->dim, sizeof dim);
    dim[x->axes - 1] = (int64_t)count * features;
    tensor *y = op_output(r, &c, x->axes, dim);
    float *divisor = op_scratch_floats(r, features);
    c.flops = 20.0 * (double)tensor_count(y);
    if (op_computes(r, y)) {
        sine_divisors(divisor, features);
        sine_embed_compute(y->data, x, &a, divisor);
    }
    return op_finish(r, &c, y);
}

/* ---- distances to box edges ---- */

/* Signed distance of grid line i of n to the low (e = 0) or high edge of a box along an axis. */
static float distance_of(const float *box, int axis, int e, int64_t i, int64_t n)
{
    float half = 0.5f * box[2 + axis];
    float edge = e ? box[axis] + half : box[axis] - half;
    return ((float)i / (float)n - edge) * 8.0f;
}

static void box_distances_backward(run *r, const op_node *node)
{
    tensor *boxes = node->in[0];
    int axis = ((const distance_attributes *)node->attributes)->axis;
    int64_t n = node->out->dim[node->out->axes - 2], count = tensor_rows(boxes);
    float *dboxes = op_grad(r, boxes);

    if (!dboxes)
        return;
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < count; k++) {
        const float *box = boxes->data + k * boxes->stride, *dy = node->out->grad + k * n * 2;
        double edge[2] = {0, 0};
        for (int64_t i = 0; i < n; i++)
            for (int e = 0; e < 2; e++) {
                float d = distance_of(box, axis, e, i, n);
                edge[e] -= 8.0 * dy[i * 2 + e] / ((fabs(d) + 1.0) * log(8.0));
            }
        dboxes[k * boxes->stride + axis] += (float)(edge[0] + edge[1]);
        dboxes[k * boxes->stride + 2 + axis] += (float)(0.5 * (edge[1] - edge[0]));
    }
}

static const op_info box_distances_op = {"box_distances", box_distances_backward, false};

tensor *box_distances(run *r, tensor *boxes, int axis, int64_t n)
{
    distance_attributes a = {axis};
    op_call c = {.op = &box_distances_op, .in = {boxes}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};
    int64_t dim[MAX_AXES];
    int axes = boxes->axes;

    if (!op_begin(r, &c))
        return run_bad(r);
    if (axes > 3 || last_dim(boxes) != 4 || axis < 0 || axis > 1 || n < 1)
        return op_mismatch(r, &c, boxes, NULL, "wants boxes [.., 4] with at most 3 axes, and an axis 0 or 1");
    memcpy(dim, boxes->dim, sizeof dim);
    dim[axes - 1] = n;
    dim[axes] = 2;
    tensor *y = op_output(r, &c, axes + 1, dim);
    int64_t count = tensor_rows(boxes);
    c.flops = 10.0 * (double)tensor_count(y);
    if (op_computes(r, y)) {
#pragma omp parallel for schedule(static)
        for (int64_t k = 0; k < count; k++)
            for (int64_t i = 0; i < 2 * n; i++) {
                float d = distance_of(boxes->data + k * boxes->stride, axis, (int)(i % 2), i / 2, n);
                y->data[k * 2 * n + i] = copysignf(log2f(fabsf(d) + 1.0f) / 3.0f, d);
            }
    }
    return op_finish(r, &c, y);
}
