/* lower_picture.c - convolutions, pyramids, windows and samples of maps. */
#include "export/lower.h"

#include <string.h>

/* ---- convolutions, channels in front ---- */

static const int64_t *front_dims(const tensor *t, int64_t *dim)
{
    dim[0] = t->dim[0];
    dim[1] = t->dim[3];
    dim[2] = t->dim[1];
    dim[3] = t->dim[2];
    return dim;
}

/* Weights as they are, and the bias if there is one. */
static void add_weights(graph *g, gnode *n, const param *w, const param *b)
{
    n->in[1] = graph_weight(g, &(weight_view){.p = w}, w->t.axes, w->t.dim);
    if (b)
        n->in[2] = graph_weight(g, &(weight_view){.p = b}, b->t.axes, b->t.dim);
    n->inputs = b ? 3 : 2;
}

static void bind_map(lowering *l, const tensor *y, gnode n, activation act)
{
    int64_t dim[MAX_AXES];
    lower_bind_first(l, y, lower_activation(l, g_node(l->g, n, DT_F32, 4, front_dims(y, dim)), act));
}

void lower_conv(lowering *l, const op_node *n)
{
    const conv_attributes *a = n->attributes;
    const conv_shape *s = &a->w->shape;
    gnode conv = {.op = P_CONV, .n = {s->kernel, s->stride, s->pad, s->groups}};
    conv.in[0] = lower_first(l, n->in[0]);
    add_weights(l->g, &conv, a->w->w, a->w->b);
    bind_map(l, n->out, conv, a->act);
}

void lower_conv_up2(lowering *l, const op_node *n)
{
    const up_attributes *a = n->attributes;
    gnode up = {.op = P_CONV_UP2};
    graph_scope(l->g, "%s", a->w->w->name);
    up.in[0] = lower_first(l, n->in[0]);
    add_weights(l->g, &up, a->w->w, a->w->b);
    bind_map(l, n->out, up, a->act);
}

/* Patches exist only together with the linear layer behind them: a convolution. */
void lower_patches(lowering *l, const op_node *n)
{
    (void)l;
    (void)n;
}

void lower_patch_linear(lowering *l, const op_node *patches, const op_node *linear)
{
    const linear_attributes *a = linear->attributes;
    int64_t size = ((const window_attributes *)patches->attributes)->size;
    gnode conv = {.op = P_CONV, .n = {size, size, 0, 1}};
    conv.in[0] = lower_first(l, patches->in[0]);
    add_weights(l->g, &conv, a->w->w, a->w->b);
    bind_map(l, linear->out, conv, a->act);
}

void lower_group_norm(lowering *l, const op_node *n)
{
    const norm_attributes *a = n->attributes;
    gnode norm = {.op = P_GROUP_NORM, .n = {a->groups}, .f = a->w->eps};
    norm.in[0] = lower_first(l, n->in[0]);
    add_weights(l->g, &norm, a->w->gain, a->w->shift);
    bind_map(l, n->out, norm, a->relu ? ACT_RELU : ACT_NONE);
}

void lower_max_pool2(lowering *l, const op_node *n)
{
    bind_map(l, n->out, (gnode){.op = P_MAX_POOL2, .in = {lower_first(l, n->in[0])}, .inputs = 1}, ACT_NONE);
}

/* ---- sizes ---- */

static int resized(lowering *l, prim op, const tensor *x, int64_t height, int64_t width)
{
    gnode n = {.op = op, .in = {lower_first(l, x)}, .inputs = 1, .n = {height, width}};
    return g_node(l->g, n, DT_F32, 4, (int64_t[]){x->dim[0], x->dim[3], height, width});
}

void lower_upsample_add(lowering *l, const op_node *n)
{
    const tensor *big = n->in[1];
    int small = resized(l, P_RESIZE_NEAREST, n->in[0], big->dim[1], big->dim[2]);
    lower_bind_first(l, n->out, g_binary(l->g, P_ADD, small, lower_first(l, big)));
}

void lower_resize_bilinear(lowering *l, const op_node *n)
{
    lower_bind_first(l, n->out, resized(l, P_RESIZE_LINEAR, n->in[0], n->out->dim[1], n->out->dim[2]));
}

/* ---- windows: with at most four axes, since rows of windows are whole batch items ---- */

void lower_window_partition(lowering *l, const op_node *n)
{
    const int64_t *d = n->in[0]->dim, s = ((const window_attributes *)n->attributes)->size;
    int x = g_reshape(l->g, lower_last(l, n->in[0]), 4, (int64_t[]){d[0] * d[1] / s, s, d[2] / s, s * d[3]});
    x = g_transpose(l->g, x, (int[]){0, 2, 1, 3});
    lower_bind_last(l, n->out, g_reshape(l->g, x, 3, n->out->dim));
}

void lower_window_merge(lowering *l, const op_node *n)
{
    const int64_t *d = n->out->dim, s = ((const window_attributes *)n->attributes)->size;
    int x = g_reshape(l->g, lower_last(l, n->in[0]), 4, (int64_t[]){d[0] * d[1] / s, d[2] / s, s, s * d[3]});
    x = g_transpose(l->g, x, (int[]){0, 2, 1, 3});
    lower_bind_last(l, n->out, g_reshape(l->g, x, 4, d));
}

/* ---- samples ---- */

void lower_roi_align(lowering *l, const op_node *n)
{
    int64_t size = ((const roi_attributes *)n->attributes)->size, dim[MAX_AXES];
    gnode roi = {.op = P_ROI_ALIGN, .inputs = 2, .n = {size, n->out->dim[0] / n->in[0]->dim[0]}};
    roi.in[0] = lower_first(l, n->in[0]);
    roi.in[1] = lower_last(l, n->in[1]);
    lower_bind_first(l, n->out, g_node(l->g, roi, DT_F32, 4, front_dims(n->out, dim)));
}

void lower_point_sample(lowering *l, const op_node *n)
{
    graph *g = l->g;
    int64_t count = n->out->dim[0], width = n->out->dim[1];
    int at = g_binary(g, P_SUB, g_binary(g, P_MUL, lower_last(l, n->in[1]), graph_scalar(g, 2)), graph_scalar(g, 1));
    gnode sample = {.op = P_GRID_SAMPLE, .inputs = 2};
    sample.in[0] = lower_first(l, n->in[0]);
    sample.in[1] = g_reshape(g, at, 4, (int64_t[]){1, 1, count, 2});
    int y = g_node(g, sample, DT_F32, 4, (int64_t[]){1, width, 1, count});
    y = g_transpose(g, g_reshape(g, y, 2, (int64_t[]){width, count}), (int[]){1, 0});
    lower_bind_last(l, n->out, y);
}
