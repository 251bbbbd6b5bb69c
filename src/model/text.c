/* text.c - 24 causal layers over at most 32 tokens. */
#include "model/text.h"

#include <stdlib.h>

#define NORM_EPS 1e-5f

static void declare_block(registry *g, text_block *b, int64_t w)
{
    size_t mark = registry_enter(g, "attn");
    declare_linear_rows(g, "in_proj", &b->qkv, w, 0, 3 * w, 3 * w);
    declare_linear(g, "out_proj", &b->out, w, w);
    registry_leave(g, mark);
    declare_norm(g, "ln_1", &b->norm1, w, NORM_EPS);
    declare_norm(g, "ln_2", &b->norm2, w, NORM_EPS);
    declare_linear(g, "mlp.c_fc", &b->fc1, w, 4 * w);
    declare_linear(g, "mlp.c_proj", &b->fc2, 4 * w, w);
}

bool text_open(text_encoder *t, registry *g, const config *c)
{
    int64_t w = c->text_dim;
    *t = (text_encoder){.layers = c->text_layers, .heads = c->text_heads};
    t->block = calloc((size_t)t->layers, sizeof *t->block);
    if (!t->block)
        return false;
    size_t mark = registry_enter(g, "detector.backbone.language_backbone");
    g->part = PART_TEXT;
    size_t inner = registry_enter(g, "encoder");
    t->positions = declare_matrix(g, "positional_embedding", c->context, w);
    size_t from = g->count;
    declare_matrix(g, "text_projection", w, c->text_projection);
    registry_unused(g, from);
    t->tokens = declare_matrix(g, "token_embedding.weight", c->vocabulary, w);
    for (int i = 0; i < t->layers; i++) {
        size_t block = registry_enter(g, "transformer.resblocks.%d", i);
        t->block[i].heads = t->heads;
        declare_block(g, &t->block[i], w);
        registry_leave(g, block);
    }
    declare_norm(g, "ln_final", &t->norm, w, NORM_EPS);
    registry_leave(g, inner);
    declare_linear(g, "resizer", &t->resizer, w, c->d);
    registry_leave(g, mark);
    return !g->failed;
}

void text_close(text_encoder *t)
{
    free(t->block);
}

/* A checkpoint: in[0] [B, n, w]. */
static tensor *block_forward(run *r, void *block, tensor **in)
{
    const text_block *b = block;
    tensor *x = in[0];
    int64_t w = tensor_cols(x);
    tensor *qkv = norm_linear(r, x, &b->norm1, &b->qkv);
    attend_options o = {.heads = b->heads, .causal = true};
    tensor *y = attention(r, columns(r, qkv, 0, w), columns(r, qkv, w, w), columns(r, qkv, 2 * w, w), &o);
    return feed_forward(r, linear_add(r, y, &b->out, x), &b->norm2, &b->fc1, &b->fc2, ACT_GELU);
}

tensor *text_forward(run *r, const text_encoder *t, tensor *ids)
{
    run_part(r, "text");
    size_t mark = run_mark(r);
    tensor *x = embed(r, t->tokens, ids);
    x = run_keep(r, mark, add(r, x, rows(r, run_param(r, t->positions), 0, ids->dim[ids->axes - 1])));
    for (int i = 0; i < t->layers; i++) {
        run_part(r, "text.block.%d", i);
        x = run_keep(r, mark, run_checkpoint(r, block_forward, &t->block[i], &x, 1));
    }
    x = note(r, norm(r, x, &t->norm), "text.memory");
    return run_keep(r, mark, note(r, linear(r, x, &t->resizer), "text.resized"));
}
