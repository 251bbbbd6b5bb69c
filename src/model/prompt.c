/* prompt.c - a point is the code of its place plus what it says; a mask is shrunk to the size of the picture's tokens. */
#include "model/prompt.h"

#include <stdio.h>
#include <stdlib.h>

#define NORM_EPS      1e-6f
#define MASK_CHANNELS 16

void prompt_declare(prompt_encoder *e, registry *g, const config *c)
{
    size_t mark = registry_enter(g, "tracker.sam_prompt_encoder");
    g->part = PART_CLICK;
    e->side = c->image;
    e->frequencies = declare_matrix(g, "pe_layer.positional_encoding_gaussian_matrix", 2, c->d / 2);
    for (int i = 0; i < POINT_KINDS; i++) {
        char name[40];
        snprintf(name, sizeof name, "point_embeddings.%d.weight", i);
        e->kind[i] = declare_matrix(g, name, 1, c->d);
    }
    e->none = declare_matrix(g, "not_a_point_embed.weight", 1, c->d);
    declare_conv(g, "mask_downscaling.0", &e->halve[0], 1, MASK_CHANNELS / 4, 2, 2, 0, 1);
    declare_norm(g, "mask_downscaling.1", &e->halve_norm[0], MASK_CHANNELS / 4, NORM_EPS);
    declare_conv(g, "mask_downscaling.3", &e->halve[1], MASK_CHANNELS / 4, MASK_CHANNELS, 2, 2, 0, 1);
    declare_norm(g, "mask_downscaling.4", &e->halve_norm[1], MASK_CHANNELS, NORM_EPS);
    declare_conv1(g, "mask_downscaling.6", &e->widen, MASK_CHANNELS, c->d);
    e->no_mask = declare_matrix(g, "no_mask_embed.weight", 1, c->d);
    registry_leave(g, mark);
}

/* Kind of point i of prompt b, where i == count is the missing point at the end. */
static int kind_of(const clicks *p, int64_t b, int i)
{
    int kind = i < p->count ? p->kind[b * p->count + i] : POINT_NONE;
    return kind >= 0 && kind < POINT_KINDS ? kind : POINT_NONE;
}

/* Places of all points as fractions of the picture (centres of pixels) [rows, 2], and 1 where there is a point [rows, d]. */
static void places(run *r, const prompt_encoder *e, const clicks *p, int64_t d, tensor **at, tensor **there)
{
    int64_t n = p->count + 1;
    *at = run_constant(r, 2, (int64_t[]){p->batch * n, 2});
    *there = run_constant(r, 2, (int64_t[]){p->batch * n, d});
    if (!run_ok(r) || !(*at)->data || !(*there)->data)
        return;
    for (int64_t row = 0; row < p->batch * n; row++) {
        int64_t b = row / n, i = row % n;
        bool known = kind_of(p, b, (int)i) != POINT_NONE;
        for (int k = 0; k < 2; k++)
            (*at)->data[row * 2 + k] = known ? (p->xy[(b * p->count + i) * 2 + k] + 0.5f) / (float)e->side : 0.5f;
        for (int64_t k = 0; k < d; k++)
            (*there)->data[row * d + k] = known;
    }
}

tensor *prompt_tokens(run *r, const prompt_encoder *e, tensor *at, tensor *there, tensor *says, int64_t batch)
{
    tensor *y = add(r, multiply(r, fourier_embed(r, at, e->frequencies), there), says);
    return reshape(r, y, 3, (int64_t[]){batch, y->dim[0] / batch, tensor_cols(y)});
}

tensor *prompt_points(run *r, const prompt_encoder *e, const clicks *p)
{
    run_part(r, "prompt.points");
    int64_t n = p->count + 1, d = 2 * e->frequencies->t.dim[1];
    int32_t *index = malloc(sizeof *index * (size_t)(p->batch * n));
    if (!index)
        return run_fail(r, SAMITE_RESOURCE, "not enough memory for %d points", (int)(p->batch * n));
    for (int64_t row = 0; row < p->batch * n; row++)
        index[row] = kind_of(p, row / n, (int)(row % n)) + 1;
    tensor *table = run_param(r, e->none), *at, *there;
    for (int i = 0; i < POINT_KINDS; i++)
        table = concat(r, table, run_param(r, e->kind[i]), 0);
    places(r, e, p, d, &at, &there);
    tensor *says = gather_rows(r, table, index, p->batch * n);
    free(index);
    return prompt_tokens(r, e, at, there, says, p->batch);
}

tensor *prompt_mask(run *r, const prompt_encoder *e, tensor *mask)
{
    run_part(r, "prompt.mask");
    tensor *x = mask;
    for (int i = 0; i < 2; i++)
        x = activate(r, norm(r, conv(r, x, &e->halve[i], ACT_NONE), &e->halve_norm[i]), ACT_GELU);
    x = linear(r, x, &e->widen);
    return reshape(r, x, 3, (int64_t[]){x->dim[0], x->dim[1] * x->dim[2], tensor_cols(x)});
}

tensor *prompt_no_mask(run *r, const prompt_encoder *e)
{
    tensor *t = run_param(r, e->no_mask);
    return reshape(r, t, 1, (int64_t[]){tensor_cols(t)});
}

tensor *prompt_grid(run *r, const prompt_encoder *e, int64_t tokens)
{
    run_part(r, "prompt.grid");
    tensor *at = run_constant(r, 2, (int64_t[]){tokens * tokens, 2});
    for (int64_t i = 0; at->data && run_ok(r) && i < tokens * tokens; i++) {
        at->data[2 * i] = ((float)(i % tokens) + 0.5f) / (float)tokens;
        at->data[2 * i + 1] = ((float)(i / tokens) + 0.5f) / (float)tokens;
    }
    return fourier_embed(r, at, e->frequencies);
}
