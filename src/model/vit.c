/* vit.c - the image trunk. Tokens stay in window order from the first block to the last, so that windowed attention is a
 * plain batch and global attention only needs its rotary table in the same order. */
#include "model/vit.h"

#include <stdlib.h>

#define NORM_EPS 1e-5f

static void declare_block(registry *g, vit_block *b, const config *c)
{
    int64_t d = c->vit_dim;
    declare_norm(g, "norm1", &b->norm1, d, NORM_EPS);
    declare_linear(g, "attn.qkv", &b->qkv, d, 3 * d);
    declare_linear(g, "attn.proj", &b->proj, d, d);
    declare_norm(g, "norm2", &b->norm2, d, NORM_EPS);
    declare_linear(g, "mlp.fc1", &b->fc1, d, c->vit_mlp);
    declare_linear(g, "mlp.fc2", &b->fc2, c->vit_mlp, d);
}

/* Which row of the position table belongs to each token: the table is repeated like tiles over the grid. */
static void place_tiles(vit *v)
{
    int64_t side = v->tokens, w = v->window, windows = side / w;
    for (int64_t i = 0; i < side * side; i++) {
        int64_t window = i / (w * w), y = window / windows * w + i % (w * w) / w, x = window % windows * w + i % w;
        v->position[i] = (int32_t)(1 + y % v->grid * v->grid + x % v->grid);
    }
}

static bool make_tables(vit *v, const config *c)
{
    int64_t dim = c->vit_dim / c->vit_heads;
    v->position = malloc(sizeof *v->position * (size_t)((int64_t)v->tokens * v->tokens));
    v->rope_window = malloc(sizeof(float) * (size_t)(v->window * v->window * dim));
    v->rope_global = malloc(sizeof(float) * (size_t)((int64_t)v->tokens * v->tokens * dim));
    if (!v->position || !v->rope_window || !v->rope_global)
        return false;
    place_tiles(v);
    rope_table(v->rope_window, v->window, dim, 1.0f, 0);
    rope_table(v->rope_global, v->tokens, dim, (float)v->window / (float)v->tokens, v->window);
    return true;
}

bool vit_open(vit *v, registry *g, const config *c)
{
    int64_t d = c->vit_dim, p = c->patch;
    *v = (vit){.depth = c->vit_depth, .heads = c->vit_heads, .window = c->vit_window, .patch = c->patch,
               .grid = c->pretrain / c->patch, .tokens = config_tokens(c)};
    v->block = calloc((size_t)v->depth, sizeof *v->block);
    if (!v->block || !make_tables(v, c))
        return false;
    size_t mark = registry_enter(g, "detector.backbone.vision_backbone.trunk");
    g->part = PART_TRUNK;
    v->pos_embed = declare(g, "pos_embed", 3, (int64_t[]){1, 1 + (int64_t)v->grid * v->grid, d});
    declare_linear_no_bias(g, "patch_embed.proj", &v->patch_embed, 3 * p * p, d, 4, (int64_t[]){d, 3, p, p});
    declare_norm(g, "ln_pre", &v->ln_pre, d, NORM_EPS);
    for (int i = 0; i < v->depth; i++) {
        size_t inner = registry_enter(g, "blocks.%d", i);
        v->block[i].global = c->vit_global[i];
        v->block[i].trunk = v;
        declare_block(g, &v->block[i], c);
        registry_leave(g, inner);
    }
    registry_leave(g, mark);
    return !g->failed;
}

void vit_close(vit *v)
{
    free(v->block);
    free(v->position);
    free(v->rope_window);
    free(v->rope_global);
}

/* The position table repeated like tiles over the grid, in window order: [side * side, D]. */
static tensor *tiled_positions(run *r, const vit *v)
{
    tensor *table = run_param(r, v->pos_embed);
    table = reshape(r, table, 2, (int64_t[]){tensor_rows(table), tensor_cols(table)});
    return gather_rows(r, table, v->position, (int64_t)v->tokens * v->tokens);
}

/* A checkpoint: in[0] [B * windows, window * window, D]. */
static tensor *block_forward(run *r, void *block, tensor **in)
{
    const vit_block *b = block;
    const vit *v = b->trunk;
    tensor *x = in[0];
    if (!run_ok(r))
        return x;
    int64_t d = tensor_cols(x), all = tensor_rows(x), window = (int64_t)v->window * v->window;
    int64_t batch = all / ((int64_t)v->tokens * v->tokens);
    tensor *qkv = norm_linear(r, x, &b->norm1, &b->qkv);
    int64_t groups = b->global ? batch : all / window;
    qkv = reshape(r, qkv, 3, (int64_t[]){groups, all / groups, 3 * d});
    attend_options o = {.heads = v->heads, .rope = b->global ? v->rope_global : v->rope_window,
                        .rope_rows = all / groups};
    tensor *y = attention(r, columns(r, qkv, 0, d), columns(r, qkv, d, d), columns(r, qkv, 2 * d, d), &o);
    y = reshape(r, y, x->axes, x->dim);
    float rate = run_path_rate(r) * (float)(b - v->block) / (float)(v->depth > 1 ? v->depth - 1 : 1);
    if (rate > 0) {
        x = add(r, x, drop_path(r, linear(r, y, &b->proj), rate, batch));
        y = linear(r, linear_act(r, norm(r, x, &b->norm2), &b->fc1, ACT_GELU), &b->fc2);
        return add(r, x, drop_path(r, y, rate, batch));
    }
    x = linear_add(r, y, &b->proj, x);
    return feed_forward(r, x, &b->norm2, &b->fc1, &b->fc2, ACT_GELU);
}

/* For listeners only: the tokens in raster order. */
static void note_raster(run *r, tensor *x, int64_t batch, int64_t side, const vit *v, int block)
{
    if (!run_observed(r))
        return;
    size_t mark = run_mark(r);
    note(r, window_merge(r, x, batch, side, side, v->window), "trunk.block.%d", block);
    run_drop(r, mark);
}

tensor *vit_forward(run *r, const vit *v, tensor *image)
{
    size_t mark = run_mark(r);
    run_part(r, "trunk.patch_embed");
    tensor *x = note(r, linear(r, patches(r, image, v->patch), &v->patch_embed), "trunk.patch_embed");
    int64_t batch = image->dim[0], side = x->dim[1];
    if (!run_ok(r))
        return x;        /* its shape says nothing, and what follows divides by it */
    if (side != v->tokens)
        return run_fail(r, SAMITE_USAGE, "the picture has %d tokens per side, the model was opened for %d", (int)side,
                        v->tokens);
    x = window_partition(r, x, v->window);
    tensor *flat = reshape(r, x, 3, (int64_t[]){batch, side * side, tensor_cols(x)});
    flat = norm(r, add(r, flat, tiled_positions(r, v)), &v->ln_pre);
    x = run_keep(r, mark, reshape(r, flat, 3, x->dim));
    for (int i = 0; i < v->depth; i++) {
        run_part(r, "trunk.block.%d", i);
        x = run_keep(r, mark, run_checkpoint(r, block_forward, &v->block[i], &x, 1));
        note_raster(r, x, batch, side, v, i);
    }
    return run_keep(r, mark, note(r, window_merge(r, x, batch, side, side, v->window), "trunk.out"));
}
