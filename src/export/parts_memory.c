/* parts_memory.c - the parts that follow objects through a video: one object at a time, with a fixed number of places for
 * what is remembered; places that are not used are told by a -1 and change nothing. */
#include <stdlib.h>
#include <string.h>

#include "export/parts_build.h"

void build_tracker_neck(building *b)
{
    const config *c = &b->m->c;
    int64_t t = config_tokens(c);
    click_image out = {0};
    encoded_image im = {.trunk = build_map_input(b, "trunk_features", 1, c->vit_dim, t),
                        .codes = run_constant(b->r, 3, (int64_t[]){t, t, c->d})};
    sam3_click_image(b->r, b->m, &im, &out);
    if (!run_ok(b->r)) {
        build_lower(b);
        return;
    }
    tensor *unseen = reshape(b->r, sam3_unseen(b->r, b->m, &out), 4, out.image->dim);
    build_click_levels(b, out.image, &out, "pix_feat");
    if (!b->g->error.code)
        graph_output(b->g, lower_first(&b->l, unseen), "image_embed");
}

/* ---- looking back ---- */

/* 1 where a place is not used: [1, n] of a list that has -1 there. */
static int unused_places(graph *g, int list, int64_t n)
{
    int below = g_binary(g, P_MIN, g_unary(g, P_SIGN, g_cast(g, list, DT_F32)), graph_scalar(g, 0));
    return g_reshape(g, g_binary(g, P_MUL, below, graph_scalar(g, -1)), 2, (int64_t[]){1, n});
}

/* [1, n] to [1, n * times], each number `times` times in turn. */
static int each_times(graph *g, int x, int64_t n, int64_t times)
{
    int wide = g_expand(g, g_reshape(g, x, 3, (int64_t[]){1, n, 1}), 3, (int64_t[]){1, n, times});
    return g_reshape(g, wide, 2, (int64_t[]){1, n * times});
}

/* Codes of maps: that of each one's age, added to those of its places. [maps * n, w] */
static int map_places(building *b, int ages, int64_t n)
{
    const memory *m = &b->m->memory;
    graph *g = b->g;
    int64_t maps = b->o->maps, w = m->width, side = config_tokens(&b->m->c);
    float *codes = malloc(sizeof *codes * (size_t)(n * w));
    if (!codes)
        return graph_fail(g, SAMITE_RESOURCE, "not enough memory for position codes");
    grid_codes(codes, side, side, w);
    int grid = graph_numbers(g, DT_F32, 2, (int64_t[]){n, w}, codes);
    free(codes);
    int known = g_cast(g, g_binary(g, P_MAX, g_cast(g, ages, DT_F32), graph_scalar(g, 0)), DT_I64);
    gnode gather = {.op = P_GATHER, .inputs = 2};
    gather.in[0] = g_reshape(g, graph_weight(g, &(weight_view){.p = m->age}, 4, m->age->t.dim), 2,
                             (int64_t[]){MEMORY_FRAMES, w});
    gather.in[1] = known;
    int age = g_reshape(g, g_node(g, gather, DT_F32, 2, (int64_t[]){maps, w}), 3, (int64_t[]){maps, 1, w});
    return g_reshape(g, g_binary(g, P_ADD, age, grid), 2, (int64_t[]){maps * n, w});
}

/* Sines, then cosines of the pointers' distances: [pointers, d]; see memory_places. */
static int distance_waves(building *b, int distances)
{
    graph *g = b->g;
    int64_t p = b->o->pointers, half = b->m->memory.d / 2;
    float *divisor = malloc(sizeof *divisor * (size_t)half);
    if (!divisor)
        return graph_fail(g, SAMITE_RESOURCE, "not enough memory for position codes");
    for (int64_t k = 0; k < half; k++)
        divisor[k] = memory_distance_divisor(k, b->m->memory.d);
    int by = graph_numbers(g, DT_F32, 2, (int64_t[]){1, half}, divisor);
    free(divisor);
    int angle = g_binary(g, P_DIV, g_reshape(g, distances, 2, (int64_t[]){p, 1}), by);
    return g_concat2(g, g_unary(g, P_SIN, angle), g_unary(g, P_COS, angle), 1);
}

/* Codes of pointers, of `rows` rows each: [pointers * rows, w] */
static int pointer_places(building *b, int distances, int64_t rows)
{
    const linear_w *l = &b->m->memory.distance;
    graph *g = b->g;
    int64_t p = b->o->pointers, w = b->m->memory.width;
    weight_view view = {.p = l->w, .first = l->first, .rows = l->out, .transpose = true};
    int y = g_matmul(g, distance_waves(b, distances), graph_weight(g, &view, 2, (int64_t[]){l->in, l->out}));
    y = g_binary(g, P_ADD, y, graph_weight(g, &(weight_view){.p = l->b}, 1, &l->out));
    y = g_expand(g, g_reshape(g, y, 3, (int64_t[]){p, 1, w}), 3, (int64_t[]){p, rows, w});
    return g_reshape(g, y, 2, (int64_t[]){p * rows, w});
}

/* What is remembered, as values of the trace. */
static void memory_inputs(building *b, memories *past)
{
    const memory *m = &b->m->memory;
    graph *g = b->g;
    int64_t t = config_tokens(&b->m->c), n = t * t, w = m->width, maps = b->o->maps, p = b->o->pointers;
    int64_t rows = m->d / w, all = maps * n + p * rows;
    int memory = graph_input(g, "memory_maps", DT_F32, 3, (int64_t[]){1, maps * n, w});
    int ages = graph_input(g, "memory_ages", DT_I64, 1, &maps);
    int pointers = graph_input(g, "memory_pointers", DT_F32, 3, (int64_t[]){1, p, m->d});
    int distances = graph_input(g, "pointer_distances", DT_F32, 1, &p);
    past->tokens = run_input(b->r, NULL, 3, (int64_t[]){1, all, w});
    past->places = run_input(b->r, NULL, 2, (int64_t[]){all, w});
    past->unused = run_input(b->r, NULL, 2, (int64_t[]){1, all});
    past->pointer_rows = p * rows;
    pointers = g_reshape(g, pointers, 3, (int64_t[]){1, p * rows, w});
    lower_bind_last(&b->l, past->tokens, g_concat2(g, memory, pointers, 1));
    lower_bind_last(&b->l, past->places, g_concat2(g, map_places(b, ages, n), pointer_places(b, distances, rows), 0));
    lower_bind_last(&b->l, past->unused,
                    g_concat2(g, each_times(g, unused_places(g, ages, maps), maps, n),
                              each_times(g, unused_places(g, distances, p), p, rows), 1));
}

void build_memory_attention(building *b)
{
    const config *c = &b->m->c;
    int64_t t = config_tokens(c), n = t * t;
    memories past = {.pointer_rows = 0};
    float *rotations = malloc(sizeof *rotations * (size_t)(n * c->d));
    tensor *image = build_map_input(b, "pix_feat", 1, c->d, t), *codes = run_constant(b->r, 2, (int64_t[]){n, c->d});
    if (!rotations || !codes->data) {
        graph_fail(b->g, SAMITE_RESOURCE, "not enough memory for position codes");
        free(rotations);
        return;
    }
    memory_rotations(rotations, t, c->d);
    grid_codes(codes->data, t, t, c->d);
    past.rotations = rotations;
    memory_inputs(b, &past);
    tensor *seen = memory_attend(b->r, &b->m->memory, image, codes, &past);
    seen = run_ok(b->r) ? reshape(b->r, seen, 4, (int64_t[]){1, t, t, c->d}) : seen;
    if (build_lower(b))
        graph_output(b->g, lower_first(&b->l, seen), "image_embed");
    free(rotations);
}

/* ---- remembering ---- */

void build_memory_encoder(building *b)
{
    const config *c = &b->m->c;
    const param *no_object = b->m->memory.no_object;
    int64_t t = config_tokens(c), one = 1;
    tensor *image = build_map_input(b, "pix_feat", 1, c->d, t), *mask = build_map_input(b, "mask", 1, 1, 16 * t);
    int hidden = graph_input(b->g, "object_hidden", DT_F32, 1, &one);
    tensor *made = memory_encode(b->r, &b->m->memory, image, mask, NULL);
    if (!build_lower(b))
        return;
    int instead = g_binary(b->g, P_MUL, graph_weight(b->g, &(weight_view){.p = no_object}, 2, no_object->t.dim),
                           g_reshape(b->g, hidden, 2, (int64_t[]){1, 1}));
    graph_output(b->g, g_binary(b->g, P_ADD, lower_last(&b->l, made), instead), "memory");
}

/* A pointer of each guess; of an object that cannot be seen the one that stands for it. */
void build_pointers(building *b)
{
    const param *none = b->m->memory.no_pointer;
    int64_t d = b->m->c.d;
    graph *g = b->g;
    tensor *tokens = run_input(b->r, NULL, 2, (int64_t[]){MASK_GUESSES, d});
    int given = graph_input(g, "object_tokens", DT_F32, 3, (int64_t[]){1, MASK_GUESSES, d});
    int score = graph_input(g, "object_score_logits", DT_F32, 2, (int64_t[]){1, 1});
    lower_bind_last(&b->l, tokens, g_reshape(g, given, 2, tokens->dim));
    tensor *made = memory_pointers(b->r, &b->m->memory, tokens, NULL);
    if (!build_lower(b))
        return;
    int there = g_binary(g, P_MAX, g_unary(g, P_SIGN, score), graph_scalar(g, 0));
    int instead = g_binary(g, P_MUL, graph_weight(g, &(weight_view){.p = none}, 2, none->t.dim),
                           g_binary(g, P_SUB, graph_scalar(g, 1), there));
    int all = g_binary(g, P_ADD, g_binary(g, P_MUL, lower_last(&b->l, made), there), instead);
    graph_output(g, g_reshape(g, all, 3, (int64_t[]){1, MASK_GUESSES, d}), "object_pointers");
}

void build_mask_prompt(building *b)
{
    int64_t t = config_tokens(&b->m->c);
    tensor *made = memory_mask_prompt(b->r, &b->m->memory, build_map_input(b, "mask", 1, 1, 16 * t));
    if (build_lower(b))
        graph_output(b->g, lower_first(&b->l, made), "mask_input");
}
