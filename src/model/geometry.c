/* geometry.c - each example is the sum of its coordinates, of what the picture shows there, of a position code and of a
 * label; a CLS token joins them, and a small transformer lets them look at the picture. */
#include "model/geometry.h"

#include <stdlib.h>
#include <string.h>

#define NORM_EPS 1e-5f

void declare_encoder_layer(registry *g, encoder_layer *l, int64_t d, int heads, int64_t hidden)
{
    declare_attend(g, "self_attn", &l->self, d, heads);
    declare_attend(g, "cross_attn_image", &l->cross, d, heads);
    declare_linear(g, "linear1", &l->fc1, d, hidden);
    declare_linear(g, "linear2", &l->fc2, hidden, d);
    declare_norm(g, "norm1", &l->norm1, d, NORM_EPS);
    declare_norm(g, "norm2", &l->norm2, d, NORM_EPS);
    declare_norm(g, "norm3", &l->norm3, d, NORM_EPS);
}

static void declare_examples(registry *g, geometry_encoder *e, int64_t d)
{
    e->label = declare_matrix(g, "label_embed.weight", 2, d);
    e->cls = declare_matrix(g, "cls_embed.weight", 1, d);
    size_t from = g->count;
    declare_linear(g, "points_direct_project", &e->point_direct, 2, d);
    declare_linear(g, "points_pool_project", &e->point_pool, d, d);
    declare_linear(g, "points_pos_enc_project", &e->point_position, d, d);
    registry_unused(g, from);      /* only example points need them; files in transformers' naming lack them */
    declare_linear(g, "boxes_direct_project", &e->box_direct, 4, d);
    declare_conv(g, "boxes_pool_project", &e->box_pool, d, d, ROI_SIZE, 1, 0, 1);
    declare_linear(g, "boxes_pos_enc_project", &e->box_position, d + 2, d);
    declare_linear(g, "final_proj", &e->final, d, d);
    declare_norm(g, "norm", &e->final_norm, d, NORM_EPS);
    declare_norm(g, "img_pre_norm", &e->image_norm, d, NORM_EPS);
}

bool geometry_open(geometry_encoder *e, registry *g, const config *c)
{
    *e = (geometry_encoder){.layers = c->geo_layers};
    e->layer = calloc((size_t)e->layers, sizeof *e->layer);
    if (!e->layer)
        return false;
    size_t mark = registry_enter(g, "detector.geometry_encoder");
    g->part = PART_GEOMETRY;
    declare_examples(g, e, c->d);
    for (int i = 0; i < e->layers; i++) {
        size_t inner = registry_enter(g, "encode.%d", i);
        declare_encoder_layer(g, &e->layer[i], c->d, c->heads, c->ffn);
        registry_leave(g, inner);
    }
    declare_norm(g, "encode_norm", &e->encode_norm, c->d, NORM_EPS);
    registry_leave(g, mark);
    return !g->failed;
}

void geometry_close(geometry_encoder *e)
{
    free(e->layer);
}

/* A [n, columns] constant copied from the caller's numbers. */
static tensor *numbers(run *r, const float *values, int64_t n, int64_t cols)
{
    tensor *t = run_constant(r, 2, (int64_t[]){n, cols});
    if (t->data && run_ok(r))
        memcpy(t->data, values, sizeof(float) * (size_t)(n * cols));
    return t;
}

static tensor *labels(run *r, const geometry_encoder *e, const int *positive, int n)
{
    int32_t *index = malloc(sizeof *index * (size_t)(n ? n : 1));
    if (!index)
        return run_fail(r, SAMITE_RESOURCE, "not enough memory for %d example labels", n);
    for (int i = 0; i < n; i++)
        index[i] = positive[i] ? 1 : 0;
    tensor *t = gather_rows(r, run_param(r, e->label), index, n);
    free(index);
    return t;
}

/* Corners in feature pixels of boxes given as fractions. */
static tensor *box_corners(run *r, const float *boxes, int n, int64_t height, int64_t width)
{
    tensor *t = run_constant(r, 2, (int64_t[]){n, 4});
    for (int i = 0; t->data && run_ok(r) && i < n; i++) {
        const float *b = boxes + 4 * i;
        float *y = t->data + 4 * i;
        y[0] = (b[0] - 0.5f * b[2]) * (float)width;
        y[1] = (b[1] - 0.5f * b[3]) * (float)height;
        y[2] = (b[0] + 0.5f * b[2]) * (float)width;
        y[3] = (b[1] + 0.5f * b[3]) * (float)height;
    }
    return t;
}

/* image: normalised by image_norm. */
static tensor *embed_box_values(run *r, const geometry_encoder *e, const box_values *v, tensor *image)
{
    int64_t d = tensor_cols(image), n = v->boxes->dim[0];
    tensor *region = roi_align(r, image, v->corners, ROI_SIZE);
    tensor *y = reshape(r, conv(r, region, &e->box_pool, ACT_NONE), 2, (int64_t[]){n, d});
    y = linear_add(r, v->boxes, &e->box_direct, y);
    tensor *code = sine_embed(r, v->boxes, (const int[]){1, 0}, 2, (int)(d / 2));   /* y, then x of the centre */
    tensor *sizes = concat(r, columns(r, v->boxes, 3, 1), columns(r, v->boxes, 2, 1), 1);
    y = linear_add(r, concat(r, code, sizes, 1), &e->box_position, y);
    return add(r, y, v->labels);
}

static tensor *embed_boxes(run *r, const geometry_encoder *e, const examples *x, tensor *image)
{
    if (x->values)
        return embed_box_values(r, e, x->values, image);
    box_values v = {.boxes = numbers(r, x->boxes, x->box_count, 4),
                    .corners = box_corners(r, x->boxes, x->box_count, image->dim[1], image->dim[2]),
                    .labels = labels(r, e, x->box_positive, x->box_count)};
    return embed_box_values(r, e, &v, image);
}

static tensor *embed_points(run *r, const geometry_encoder *e, const examples *x, tensor *image)
{
    int64_t d = tensor_cols(image), n = x->point_count;
    if (!e->point_direct.packed && !e->point_direct.w->t.data && run_mode_of(r) != TRACE)
        return run_fail(r, SAMITE_INPUT, "this checkpoint has no weights for example points");
    tensor *points = numbers(r, x->points, n, 2);
    tensor *y = linear(r, points, &e->point_direct);
    y = linear_add(r, point_sample(r, image, points), &e->point_pool, y);
    tensor *code = sine_embed(r, points, (const int[]){0, 1}, 2, (int)(d / 2));  /* x, then y */
    y = linear_add(r, code, &e->point_position, y);
    return add(r, y, labels(r, e, x->point_positive, (int)n));
}

static tensor *layer_forward(run *r, const encoder_layer *l, tensor *x, tensor *unused, tensor *keys, tensor *values)
{
    tensor *t = norm(r, x, &l->norm1);
    attend_options o = {.key_mask = unused};
    x = attend_drop_add(r, x, &l->self, t, t, t, &o);
    x = attend_drop_add(r, x, &l->cross, norm(r, x, &l->norm2), keys, values, NULL);
    return feed_forward_drop(r, x, &l->norm3, &l->fc1, &l->fc2, ACT_RELU);
}

tensor *geometry_forward(run *r, const geometry_encoder *e, const examples *x, tensor *image, tensor *codes,
                         int64_t prompts)
{
    run_part(r, "geometry");
    size_t mark = run_mark(r);
    int64_t d = tensor_cols(image), batch = image->dim[0], n = image->dim[1] * image->dim[2];
    tensor *token = NULL;
    bool boxes = x && (x->box_count || x->values);
    if (boxes || (x && x->point_count)) {
        tensor *seen = norm(r, image, &e->image_norm);
        if (x->point_count)
            token = embed_points(r, e, x, seen);
        if (boxes)
            token = token ? concat(r, token, embed_boxes(r, e, x, seen), 0) : embed_boxes(r, e, x, seen);
    }
    tensor *cls = run_param(r, e->cls);
    bool apart = token && batch > 1;          /* every picture has examples of its own */
    if (apart) {
        token = reshape(r, token, 3, (int64_t[]){batch, tensor_rows(token) / batch, d});
        token = concat(r, token, repeat(r, reshape(r, cls, 3, (int64_t[]){1, 1, d}), batch), 1);
    } else {
        token = token ? concat(r, token, cls, 0) : cls;
        token = reshape(r, token, 3, (int64_t[]){1, tensor_rows(token), d});
    }
    token = norm(r, linear(r, token, &e->final), &e->final_norm);
    if (!apart && (batch > 1 || prompts > 1))
        token = repeat(r, token, batch > 1 ? batch : prompts);
    tensor *values = reshape(r, image, 3, (int64_t[]){batch, n, d});
    tensor *keys = add(r, values, reshape(r, codes, 2, (int64_t[]){n, d}));
    for (int i = 0; i < e->layers; i++)
        token = layer_forward(r, &e->layer[i], token, x && x->values ? x->values->unused : NULL, keys, values);
    return run_keep(r, mark, note(r, norm(r, token, &e->encode_norm), "geometry"));
}
