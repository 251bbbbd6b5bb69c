/* memory.c - writes a frame and its masks into memories, and lets the next frame read them. */
#include "model/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define NORM_EPS   1e-5f
#define PIXEL_EPS  1e-6f
#define CODE_SHARE 0.1f        /* of the position codes that the picture starts with */

/* ---- tensors ---- */

static void declare_attention(registry *g, memory *m, const config *c)
{
    size_t mark = registry_enter(g, "transformer.encoder");
    for (int i = 0; i < MEMORY_LAYERS; i++) {
        memory_layer *l = &m->layer[i];
        size_t inner = registry_enter(g, "layers.%d", i);
        declare_attend_projected(g, "self_attn", &l->self, c->d, c->d, c->d, 1);
        declare_attend_projected(g, "cross_attn_image", &l->cross, c->d, c->mem_dim, c->d, 1);
        declare_linear(g, "linear1", &l->fc1, c->d, c->ffn);
        declare_linear(g, "linear2", &l->fc2, c->ffn, c->d);
        declare_norm(g, "norm1", &l->norm1, c->d, NORM_EPS);
        declare_norm(g, "norm2", &l->norm2, c->d, NORM_EPS);
        declare_norm(g, "norm3", &l->norm3, c->d, NORM_EPS);
        registry_leave(g, inner);
    }
    declare_norm(g, "norm", &m->norm, c->d, NORM_EPS);
    registry_leave(g, mark);
}

static void declare_fuse_layer(registry *g, fuse_layer *l, int64_t d)
{
    l->gamma = declare_vector(g, "gamma", d);
    declare_conv(g, "dwconv", &l->spread, d, d, 7, 1, 3, (int)d);
    declare_norm(g, "norm", &l->norm, d, PIXEL_EPS);
    declare_linear(g, "pwconv1", &l->fc1, d, 4 * d);
    declare_linear(g, "pwconv2", &l->fc2, 4 * d, d);
}

static void declare_encoder(registry *g, memory *m, const config *c)
{
    size_t mark = registry_enter(g, "maskmem_backbone");
    int64_t channels = 1;
    for (int i = 0; i < MASK_HALVES; i++, channels *= 4) {
        char name[48];
        snprintf(name, sizeof name, "mask_downsampler.encoder.%d", 3 * i);
        declare_conv(g, name, &m->halve[i], channels, channels * 4, 3, 2, 1, 1);
        snprintf(name, sizeof name, "mask_downsampler.encoder.%d", 3 * i + 1);
        declare_norm(g, name, &m->halve_norm[i], channels * 4, PIXEL_EPS);
    }
    declare_conv1(g, "mask_downsampler.encoder.12", &m->mask, channels, c->d);
    declare_conv1(g, "pix_feat_proj", &m->image, c->d, c->d);
    for (int i = 0; i < FUSE_LAYERS; i++) {
        size_t inner = registry_enter(g, "fuser.layers.%d", i);
        declare_fuse_layer(g, &m->fuse[i], c->d);
        registry_leave(g, inner);
    }
    declare_conv1(g, "out_proj", &m->narrow, c->d, c->mem_dim);
    registry_leave(g, mark);
}

bool memory_declare(memory *m, registry *g, const config *c)
{
    m->d = c->d;
    m->width = c->mem_dim;
    if (m->width < 1 || m->d % m->width)
        return false;
    size_t mark = registry_enter(g, "tracker");
    g->part = PART_MEMORY;
    m->age = declare(g, "maskmem_tpos_enc", 4, (int64_t[]){MEMORY_FRAMES, 1, 1, m->width});
    size_t from = g->count;
    declare(g, "no_mem_pos_enc", 3, (int64_t[]){1, 1, m->d});
    registry_unused(g, from);
    m->no_pointer = declare_matrix(g, "no_obj_ptr", 1, m->d);
    m->no_object = declare_matrix(g, "no_obj_embed_spatial", 1, m->width);
    declare_conv(g, "mask_downsample", &m->mask_prompt, 1, 1, 4, 4, 0, 1);
    declare_attention(g, m, c);
    declare_encoder(g, m, c);
    declare_mlp(g, "obj_ptr_proj", &m->pointer, m->d, m->d, m->d, 3);
    declare_linear(g, "obj_ptr_tpos_proj", &m->distance, m->d, m->width);
    registry_leave(g, mark);
    return true;
}

/* ---- reading ---- */

void memory_rotations(float *out, int64_t tokens, int64_t d)
{
    rope_table(out, tokens, d, 1.0f, 0);
}

static tensor *look_at_picture(run *r, const memory_layer *l, tensor *x, const float *rotations)
{
    attend_options o = {.rope = rotations, .rope_rows = x->dim[1]};
    tensor *t = norm(r, x, &l->norm1);
    return attend_add(r, x, &l->self, t, t, t, &o);
}

static tensor *queries(run *r, const memory_layer *l, tensor *x)
{
    return linear(r, norm(r, x, &l->norm2), &l->cross.q);
}

static tensor *look_back(run *r, const memory_layer *l, tensor *x, tensor *q, tensor *keys, const memories *past)
{
    attend_options o = {.heads = l->cross.heads, .key_mask = past->unused, .rope = past->rotations,
                        .rope_rows = x->dim[1],
                        .rope_keys = past->tokens->dim[1] - past->pointer_rows};
    tensor *y = attention_linear(r, q, linear(r, keys, &l->cross.k), past->tokens, &l->cross.v, &o);
    x = linear_add(r, y, &l->cross.out, x);
    return feed_forward(r, x, &l->norm3, &l->fc1, &l->fc2, ACT_RELU);
}

tensor *memory_begin(run *r, const memory *m, tensor *image, tensor *codes, const float *rotations)
{
    size_t mark = run_mark(r);
    run_part(r, "memory.layer.0");
    tensor *x = reshape(r, image, 3, (int64_t[]){1, codes->dim[0], m->d});
    x = add(r, x, scale(r, codes, CODE_SHARE));
    return run_keep(r, mark, look_at_picture(r, &m->layer[0], x, rotations));
}

tensor *memory_look(run *r, const memory *m, tensor *begun, const memories *past)
{
    size_t mark = run_mark(r);
    int64_t batch = past->tokens->dim[0];
    tensor *keys = add(r, past->tokens, past->places), *x = begun;
    size_t inner = run_mark(r);
    for (int i = 0; i < MEMORY_LAYERS; i++) {
        const memory_layer *l = &m->layer[i];
        run_part(r, "memory.layer.%d", i);
        if (i)
            x = look_at_picture(r, l, x, past->rotations);
        tensor *q = queries(r, l, x);
        if (x->dim[0] < batch) {       /* until here all objects share the work */
            x = repeat(r, x, batch);
            q = repeat(r, q, batch);
        }
        x = run_keep(r, inner, look_back(r, l, x, q, keys, past));
    }
    return run_keep(r, mark, norm(r, x, &m->norm));
}

tensor *memory_attend(run *r, const memory *m, tensor *image, tensor *codes, const memories *past)
{
    size_t mark = run_mark(r);
    return run_keep(r, mark, memory_look(r, m, memory_begin(r, m, image, codes, past->rotations), past));
}

float memory_distance_divisor(int64_t k, int64_t d)
{
    return powf(10000.0f, (float)(2 * (k / 2)) / (float)(d / 2));
}

/* Sines, then cosines of each distance: [pointers, d]. */
static tensor *distance_codes(run *r, const float *distance, int pointers, int64_t d)
{
    tensor *t = run_constant(r, 2, (int64_t[]){pointers, d});
    int64_t half = d / 2;
    for (int64_t i = 0; t->data && run_ok(r) && i < pointers * half; i++) {
        int64_t p = i / half, k = i % half;
        float angle = distance[p] / memory_distance_divisor(k, d);
        t->data[p * d + k] = sinf(angle);
        t->data[p * d + half + k] = cosf(angle);
    }
    return t;
}

/* Each row `times` times. */
static tensor *stretch(run *r, tensor *rows, int64_t times)
{
    int64_t count = rows->dim[0] * times;
    int32_t *index = malloc(sizeof *index * (size_t)(count + 1));
    if (!index)
        return run_fail(r, SAMITE_RESOURCE, "not enough memory for %d rows", (int)count);
    for (int64_t i = 0; i < count; i++)
        index[i] = (int32_t)(i / times);
    tensor *y = gather_rows(r, rows, index, count);
    free(index);
    return y;
}

/* maps [maps or 1, n, width] with one of `rows` [maps, width] added to each. */
static tensor *add_to_maps(run *r, tensor *maps, tensor *rows)
{
    int64_t n = maps->dim[1], width = tensor_cols(maps), count = rows->dim[0];
    tensor *y = upsample_add(r, reshape(r, rows, 4, (int64_t[]){count, 1, 1, width}),
                             reshape(r, maps, 4, (int64_t[]){maps->dim[0], n, 1, width}));
    return reshape(r, y, 3, (int64_t[]){count, n, width});
}

tensor *memory_places_each(run *r, const memory *m, tensor *grid, int64_t batch, const int *age, int maps,
                           const float *distance, int pointers)
{
    run_part(r, "memory.places");
    size_t mark = run_mark(r);
    int64_t n = grid->dim[0], rows = m->d / m->width;
    tensor *table = reshape(r, run_param(r, m->age), 2, (int64_t[]){MEMORY_FRAMES, m->width});
    tensor *ages = gather_rows(r, table, age, batch * maps);
    tensor *y = add_to_maps(r, reshape(r, grid, 3, (int64_t[]){1, n, m->width}), ages);
    y = reshape(r, y, 3, (int64_t[]){batch, maps * n, m->width});
    if (pointers) {
        tensor *t = linear(r, distance_codes(r, distance, (int)batch * pointers, m->d), &m->distance);
        t = reshape(r, stretch(r, t, rows), 3,
                    (int64_t[]){batch, pointers * rows, m->width});
        y = concat(r, y, t, 1);
    }
    return run_keep(r, mark, y);
}

tensor *memory_places(run *r, const memory *m, tensor *grid, const int *age, int maps, const float *distance,
                      int pointers)
{
    tensor *y = memory_places_each(r, m, grid, 1, age, maps, distance, pointers);
    return reshape(r, y, 2, (int64_t[]){y->dim[1], m->width});
}

/* ---- writing ---- */

static tensor *shrink_mask(run *r, const memory *m, tensor *mask)
{
    size_t mark = run_mark(r);
    tensor *x = mask;
    for (int i = 0; i < MASK_HALVES; i++) {
        run_part(r, "memory.mask.%d", i);
        x = norm(r, conv(r, x, &m->halve[i], ACT_NONE), &m->halve_norm[i]);
        x = run_keep(r, mark, activate(r, x, ACT_GELU));
    }
    return run_keep(r, mark, linear(r, x, &m->mask));
}

static tensor *fuse(run *r, const fuse_layer *l, tensor *x)
{
    tensor *y = norm(r, conv(r, x, &l->spread, ACT_NONE), &l->norm);
    y = linear(r, linear_act(r, y, &l->fc1, ACT_GELU), &l->fc2);
    return add(r, multiply(r, y, run_param(r, l->gamma)), x);
}

/* Nothing for objects that are seen, `instead` for those that are not: [batch, width]. */
static tensor *where_hidden(run *r, param *instead, const bool *hidden, int64_t batch)
{
    int64_t width = instead->t.dim[1];
    tensor *none = run_constant(r, 2, (int64_t[]){1, width});
    int32_t *row = malloc(sizeof *row * (size_t)batch);
    if (!row)
        return run_fail(r, SAMITE_RESOURCE, "not enough memory for %d objects", (int)batch);
    for (int64_t i = 0; none->data && run_ok(r) && i < width; i++)
        none->data[i] = 0;
    for (int64_t i = 0; i < batch; i++)
        row[i] = hidden[i];
    tensor *y = gather_rows(r, concat(r, none, run_param(r, instead), 0), row, batch);
    free(row);
    return y;
}

static bool any(const bool *flag, int64_t n)
{
    for (int64_t i = 0; flag && i < n; i++)
        if (flag[i])
            return true;
    return false;
}

tensor *memory_encode(run *r, const memory *m, tensor *image, tensor *mask, const bool *hidden)
{
    size_t mark = run_mark(r);
    int64_t batch = mask->dim[0], n = image->dim[1] * image->dim[2];
    tensor *x = shrink_mask(r, m, mask);
    run_part(r, "memory.fuse");
    tensor *seen = linear(r, image, &m->image);
    x = add(r, x, reshape(r, seen, 3, (int64_t[]){image->dim[1], image->dim[2], m->d}));
    for (int i = 0; i < FUSE_LAYERS; i++)
        x = run_keep(r, mark, fuse(r, &m->fuse[i], x));
    tensor *y = reshape(r, linear(r, x, &m->narrow), 3, (int64_t[]){batch, n, m->width});
    if (any(hidden, batch))
        y = add_to_maps(r, y, where_hidden(r, m->no_object, hidden, batch));
    return run_keep(r, mark, y);
}

tensor *memory_mask_prompt(run *r, const memory *m, tensor *mask)
{
    run_part(r, "memory.mask_prompt");
    return conv(r, mask, &m->mask_prompt, ACT_NONE);
}

tensor *memory_pointers(run *r, const memory *m, tensor *tokens, const bool *hidden)
{
    run_part(r, "memory.pointers");
    size_t mark = run_mark(r);
    int64_t batch = tokens->dim[0];
    tensor *y = mlp(r, tokens, &m->pointer);
    if (any(hidden, batch)) {
        int32_t *row = malloc(sizeof *row * (size_t)batch);
        if (!row)
            return run_fail(r, SAMITE_RESOURCE, "not enough memory for %d objects", (int)batch);
        for (int64_t i = 0; i < batch; i++)
            row[i] = (int32_t)(hidden[i] ? batch : i);
        y = gather_rows(r, concat(r, y, run_param(r, m->no_pointer), 0), row, batch);
        free(row);
    }
    return run_keep(r, mark, y);
}
