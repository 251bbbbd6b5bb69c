/* parts_click.c - the parts for clicks: a picture for the tracker, and the answer to points, a box and a mask. */
#include <stdlib.h>

#include "export/parts_build.h"

tensor *build_map_input(building *b, const char *name, int64_t n, int64_t channels, int64_t side)
{
    tensor *t = run_input(b->r, NULL, 4, (int64_t[]){n, side, side, channels});
    lower_bind_first(&b->l, t, graph_input(b->g, name, DT_F32, 4, (int64_t[]){n, channels, side, side}));
    return t;
}

/* A value [.., C] of a square map as [1, side, side, C]. */
static tensor *as_map(building *b, tensor *t, int64_t side)
{
    return reshape(b->r, t, 4, (int64_t[]){1, side, side, tensor_cols(t)});
}

void build_click_levels(building *b, tensor *coarse, const click_image *c, const char *name)
{
    int64_t t = config_tokens(&b->m->c);
    tensor *seen = as_map(b, coarse, t), *fine0 = as_map(b, c->fine0, 4 * t), *fine1 = as_map(b, c->fine1, 2 * t);
    if (!build_lower(b))
        return;
    graph_output(b->g, lower_first(&b->l, seen), name);
    graph_output(b->g, lower_first(&b->l, fine0), "high_res_feats_0");
    graph_output(b->g, lower_first(&b->l, fine1), "high_res_feats_1");
}

void build_click_image(building *b)
{
    encoded_image im = {0};
    click_image c = {0};
    sam3_encode_image(b->r, b->m, build_map_input(b, "image", 1, 3, b->m->c.image), true, &im);
    sam3_click_image(b->r, b->m, &im, &c);
    if (run_ok(b->r))
        build_click_levels(b, sam3_unseen(b->r, b->m, &c), &c, "image_embed");
    else
        build_lower(b);
}

/* ---- points ---- */

typedef struct point_values {
    tensor *at, *there, *says;
} point_values;

/* All kinds as one table: the missing point first. */
static int kinds_table(building *b)
{
    const prompt_encoder *e = &b->m->prompt;
    int part[1 + POINT_KINDS];
    part[0] = graph_weight(b->g, &(weight_view){.p = e->none}, 2, e->none->t.dim);
    for (int i = 0; i < POINT_KINDS; i++)
        part[1 + i] = graph_weight(b->g, &(weight_view){.p = e->kind[i]}, 2, e->kind[i]->t.dim);
    return g_concat(b->g, part, 1 + POINT_KINDS, 0);
}

/* Labels as kinds counted from 0 = missing, one more missing point at the end: [n + 1] as numbers. */
static int kinds_of(graph *g, int labels, int64_t n)
{
    static const float missing;
    int kind = g_binary(g, P_ADD, g_cast(g, g_reshape(g, labels, 1, &n), DT_F32), graph_scalar(g, 1));
    return g_concat2(g, kind, graph_numbers(g, DT_F32, 1, (int64_t[]){1}, &missing), 0);
}

/* (pixel + 1/2) / side where there is a point, the middle of the picture elsewhere: [n + 1, 2]. */
static int places_of(building *b, int coords, int known, int64_t n)
{
    static const float nowhere[2];
    graph *g = b->g;
    int xy = g_concat2(g, g_reshape(g, coords, 2, (int64_t[]){n, 2}),
                       graph_numbers(g, DT_F32, 2, (int64_t[]){1, 2}, nowhere), 0);
    xy = g_binary(g, P_ADD, xy, graph_scalar(g, 0.5f));
    xy = g_binary(g, P_MUL, g_binary(g, P_DIV, xy, graph_scalar(g, (float)b->m->prompt.side)), known);
    int middle = g_binary(g, P_MUL, g_binary(g, P_SUB, graph_scalar(g, 1), known), graph_scalar(g, 0.5f));
    return g_binary(g, P_ADD, xy, middle);
}

/* [1, n] */
static int ones(graph *g, int64_t n)
{
    float *one = malloc(sizeof *one * (size_t)n);
    for (int64_t i = 0; one && i < n; i++)
        one[i] = 1;
    int v = one ? graph_numbers(g, DT_F32, 2, (int64_t[]){1, n}, one)
                : graph_fail(g, SAMITE_RESOURCE, "not enough memory to export the model");
    free(one);
    return v;
}

static void point_inputs(building *b, point_values *v)
{
    graph *g = b->g;
    int64_t n = b->o->points, d = b->m->c.d, all = n + 1;
    int coords = graph_input(g, "point_coords", DT_F32, 3, (int64_t[]){1, n, 2});
    int kind = kinds_of(g, graph_input(g, "point_labels", DT_I64, 2, (int64_t[]){1, n}), n);
    int known = g_reshape(g, g_binary(g, P_MIN, kind, graph_scalar(g, 1)), 2, (int64_t[]){all, 1});
    gnode gather = {.op = P_GATHER, .in = {kinds_table(b), g_cast(g, kind, DT_I64)}, .inputs = 2};
    *v = (point_values){run_input(b->r, NULL, 2, (int64_t[]){all, 2}), run_input(b->r, NULL, 2, (int64_t[]){all, d}),
                        run_input(b->r, NULL, 2, (int64_t[]){all, d})};
    known = g_binary(g, P_MAX, known, graph_scalar(g, 0));
    lower_bind_last(&b->l, v->at, places_of(b, coords, known, n));
    lower_bind_last(&b->l, v->there, g_binary(g, P_MUL, known, ones(g, d)));
    lower_bind_last(&b->l, v->says, g_node(g, gather, DT_F32, 2, (int64_t[]){all, d}));
}

/* The mask prompt where has_mask_input is 1, what stands for none where it is 0: [1, t * t, d]. */
static tensor *mask_inputs(building *b)
{
    int64_t side = 4 * config_tokens(&b->m->c), d = b->m->c.d;
    tensor *mask = build_map_input(b, "mask_input", 1, 1, side), *has = run_input(b->r, NULL, 1, &d);
    tensor *lacks = run_input(b->r, NULL, 1, &d);
    int given = graph_input(b->g, "has_mask_input", DT_F32, 1, (int64_t[]){1});
    lower_bind_last(&b->l, has, g_expand(b->g, given, 1, &d));
    lower_bind_last(&b->l, lacks, g_expand(b->g, g_binary(b->g, P_SUB, graph_scalar(b->g, 1), given), 1, &d));
    tensor *rough = multiply(b->r, prompt_mask(b->r, &b->m->prompt, mask), has);
    return add(b->r, rough, multiply(b->r, prompt_no_mask(b->r, &b->m->prompt), lacks));
}

/* tokens [1, k, d]: what the points say. */
typedef tensor *(*tokens_fn)(building *b);

static tensor *given_points(building *b)
{
    point_values v;
    point_inputs(b, &v);
    return prompt_tokens(b->r, &b->m->prompt, v.at, v.there, v.says, 1);
}

/* On a frame that is only looked at, and with a given mask: one point that is missing. */
static tensor *no_points(building *b)
{
    static const float nowhere[2];
    static const int kind = POINT_NONE;
    return prompt_points(b->r, &b->m->prompt, &(clicks){1, 1, nowhere, &kind});
}

static void build_head(building *b, tokens_fn tokens_of)
{
    const config *c = &b->m->c;
    int64_t t = config_tokens(c), d = c->d;
    guesses out;
    tensor *embed = build_map_input(b, "image_embed", 1, d, t);
    tensor *fine0 = build_map_input(b, "high_res_feats_0", 1, d / 8, 4 * t);
    tensor *fine1 = build_map_input(b, "high_res_feats_1", 1, d / 4, 2 * t);
    tensor *tokens = tokens_of(b);
    tensor *rough = mask_inputs(b);
    tensor *image = add(b->r, reshape(b->r, embed, 3, (int64_t[]){1, t * t, d}), rough);
    fine0 = reshape(b->r, fine0, 3, (int64_t[]){4 * t, 4 * t, d / 8});
    fine1 = reshape(b->r, fine1, 3, (int64_t[]){2 * t, 2 * t, d / 4});
    mask_decoder_forward(b->r, &b->m->mask_decoder, image, prompt_grid(b->r, &b->m->prompt, t), tokens, fine0, fine1,
                         &out);
    if (!build_lower(b))
        return;
    int64_t dim[MAX_AXES] = {1, MASK_GUESSES, 4 * t, 4 * t};
    graph_output(b->g, g_reshape(b->g, lower_last(&b->l, out.masks), 4, dim), "masks");
    graph_output(b->g, lower_last(&b->l, out.overlap), "iou_predictions");
    graph_output(b->g, lower_last(&b->l, out.object), "object_score_logits");
    graph_output(b->g, lower_last(&b->l, out.tokens), "object_tokens");
}

void build_click(building *b)
{
    build_head(b, given_points);
}

void build_tracked(building *b)
{
    build_head(b, no_points);
}
