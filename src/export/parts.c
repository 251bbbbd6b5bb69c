/* parts.c - image encoder, text encoder and grounding head: their inputs, a trace, their outputs. */
#include "export/parts_build.h"

#include <stdlib.h>
#include <string.h>

static const part_io parts[EXPORT_PARTS] = {
    {"image_encoder",
     {"image"},
     {"vision_features", "vision_pos_enc_0", "vision_pos_enc_1", "vision_pos_enc_2", "backbone_fpn_0", "backbone_fpn_1",
      "backbone_fpn_2", "trunk_features"}},
    {"text_encoder", {"token_ids"}, {"text_attention_mask", "text_memory_resized"}},
    {"grounding_head",
     {"backbone_fpn_0", "backbone_fpn_1", "backbone_fpn_2", "vision_pos_enc_2", "text_memory_resized",
      "text_attention_mask_float"},
     {"pred_logits", "pred_boxes", "pred_masks", "presence_logit_dec"}},
    {"interactive_encoder", {"image"}, {"image_embed", "high_res_feats_0", "high_res_feats_1"}},
    {"interactive_head",
     {"image_embed", "high_res_feats_0", "high_res_feats_1", "point_coords", "point_labels", "mask_input",
      "has_mask_input"},
     {"masks", "iou_predictions", "object_score_logits", "object_tokens"}},
    {"tracker_neck", {"trunk_features"}, {"pix_feat", "high_res_feats_0", "high_res_feats_1", "image_embed"}},
    {"memory_attention",
     {"pix_feat", "memory_maps", "memory_ages", "memory_pointers", "pointer_distances"},
     {"image_embed"}},
    {"tracked_head",
     {"image_embed", "high_res_feats_0", "high_res_feats_1", "mask_input", "has_mask_input"},
     {"masks", "iou_predictions", "object_score_logits", "object_tokens"}},
    {"memory_encoder", {"pix_feat", "mask", "object_hidden"}, {"memory"}},
    {"object_pointers", {"object_tokens", "object_score_logits"}, {"object_pointers"}},
    {"mask_prompt", {"mask"}, {"mask_input"}},
};

const part_io *export_io(export_part p)
{
    return &parts[p];
}

const char *export_part_name(export_part p)
{
    return parts[p].name;
}

/* ---- image encoder ---- */

/* Position codes of a level, [1, d, side, side]: the first half depends on the row only, the second on the column. */
static int level_codes(building *b, int64_t side)
{
    int64_t d = b->m->c.d, half = d / 2;
    float *codes = malloc(sizeof *codes * (size_t)(side * side * d)),
          *line = malloc(sizeof *line * (size_t)(half * side));
    int axis[2] = {0, 0};
    if (codes && line) {
        grid_codes(codes, side, side, d);
        for (int k = 0; k < 2; k++) {
            for (int64_t c = 0; c < half; c++)
                for (int64_t i = 0; i < side; i++)
                    line[c * side + i] = k ? codes[i * d + half + c] : codes[i * side * d + c];
            int v =
                graph_numbers(b->g, DT_F32, 4, k ? (int64_t[]){1, half, 1, side} : (int64_t[]){1, half, side, 1}, line);
            axis[k] = g_expand(b->g, v, 4, (int64_t[]){1, half, side, side});
        }
    } else {
        graph_fail(b->g, SAMITE_RESOURCE, "not enough memory for position codes");
    }
    free(codes);
    free(line);
    return g_concat2(b->g, axis[0], axis[1], 1);
}

static void trace_image(building *b, encoded_image *im)
{
    int64_t side = b->m->c.image;
    sam3_encode_image(b->r, b->m, build_map_input(b, "image", b->o->batch, 3, side), b->o->trunk, im);
}

static void finish_image(building *b, const encoded_image *im)
{
    static const char *const levels[] = {"backbone_fpn_0", "backbone_fpn_1", "backbone_fpn_2"};
    static const char *const codes[] = {"vision_pos_enc_0", "vision_pos_enc_1", "vision_pos_enc_2"};
    int64_t side = config_tokens(&b->m->c);
    int fine[3];
    for (int i = 0; i < 3; i++)
        fine[i] = lower_first(&b->l, im->level[i]);
    graph_output(b->g, g_unary(b->g, P_IDENTITY, fine[2]), "vision_features");
    for (int i = 0; i < 3; i++)
        graph_output(b->g, level_codes(b, side * 4 >> i), codes[i]);
    for (int i = 0; i < 3; i++)
        graph_output(b->g, fine[i], levels[i]);
    if (b->o->trunk)
        graph_output(b->g, g_unary(b->g, P_IDENTITY, lower_first(&b->l, im->trunk)), "trunk_features");
}

/* ---- text encoder ---- */

static tensor *trace_text(building *b)
{
    int64_t dim[] = {b->o->batch, b->o->prompt};
    tensor *ids = run_indices(b->r, NULL, 2, dim);
    lower_bind_last(&b->l, ids, graph_input(b->g, "token_ids", DT_I64, 2, dim));
    return text_forward(b->r, &b->m->text, ids);
}

static void finish_text(building *b, const tensor *said)
{
    static const int64_t padding = 0;
    int none =
        g_binary(b->g, P_EQUAL, b->g->input ? b->g->input[0] : 0, graph_numbers(b->g, DT_I64, 0, NULL, &padding));
    graph_output(b->g, g_cast(b->g, none, DT_F32), "text_attention_mask");
    graph_output(b->g, g_transpose(b->g, lower_last(&b->l, said), (int[]){1, 0, 2}), "text_memory_resized");
}

/* ---- grounding head ---- */

typedef struct head {
    decoder_output found;
    tensor *masks;
} head;

/* cx cy w h to x0 y0 x1 y1, times the side. */
static int corners_of(graph *g, int boxes, int64_t side)
{
    int centre = g_slice(g, boxes, 1, 0, 2),
        half = g_binary(g, P_MUL, g_slice(g, boxes, 1, 2, 2), graph_scalar(g, 0.5f));
    int both = g_concat2(g, g_binary(g, P_SUB, centre, half), g_binary(g, P_ADD, centre, half), 1);
    return g_binary(g, P_MUL, both, graph_scalar(g, (float)side));
}

/* Rows of the label table by 0 or 1; what is below counts as 0 there, and as no box at all elsewhere. */
static int labels_of(graph *g, const param *table, int labels, int64_t n)
{
    int row = g_cast(g, g_binary(g, P_MAX, g_cast(g, labels, DT_F32), graph_scalar(g, 0)), DT_I64);
    gnode gather = {.op = P_GATHER, .inputs = 2};
    gather.in[0] = graph_weight(g, &(weight_view){.p = table}, 2, table->t.dim);
    gather.in[1] = row;
    return g_node(g, gather, DT_F32, 2, (int64_t[]){n, table->t.dim[1]});
}

/* 1 for boxes that are not there, 0 for the token behind them: [batch, n + 1]. */
static int unused_of(graph *g, int labels, int64_t batch, int64_t n)
{
    static const float zero;
    int missing = graph_numbers(g, DT_I64, 1, (int64_t[]){1}, (int64_t[]){-1});
    int unused = g_reshape(g, g_cast(g, g_binary(g, P_EQUAL, labels, missing), DT_F32), 2, (int64_t[]){batch, n});
    int token = g_expand(g, graph_numbers(g, DT_F32, 2, (int64_t[]){1, 1}, &zero), 2, (int64_t[]){batch, 1});
    return g_concat2(g, unused, token, 1);
}

/* Inputs for example boxes, and what follows from them, as values of the trace. */
static void box_inputs(building *b, box_values *v)
{
    int64_t n = b->o->boxes, batch = b->o->batch, all = batch * n, t = config_tokens(&b->m->c), d = b->m->c.d;
    graph *g = b->g;
    int boxes = g_reshape(g, graph_input(g, "boxes", DT_F32, 3, (int64_t[]){batch, n, 4}), 2, (int64_t[]){all, 4});
    int labels = g_reshape(g, graph_input(g, "box_labels", DT_I64, 2, (int64_t[]){batch, n}), 1, &all);
    *v = (box_values){run_input(b->r, NULL, 2, (int64_t[]){all, 4}), run_input(b->r, NULL, 2, (int64_t[]){all, 4}),
                      run_input(b->r, NULL, 2, (int64_t[]){all, d}),
                      run_input(b->r, NULL, 2, (int64_t[]){batch, n + 1})};
    lower_bind_last(&b->l, v->boxes, boxes);
    lower_bind_last(&b->l, v->corners, corners_of(g, boxes, t));
    lower_bind_last(&b->l, v->labels, labels_of(g, b->m->geometry.label, labels, all));
    lower_bind_last(&b->l, v->unused, unused_of(g, labels, batch, n));
}

static void trace_head(building *b, head *out)
{
    int64_t t = config_tokens(&b->m->c), d = b->m->c.d, batch = b->o->batch, n = b->o->prompt;
    encoded_image im = {0};
    im.level[0] = build_map_input(b, "backbone_fpn_0", batch, d, 4 * t);
    im.level[1] = build_map_input(b, "backbone_fpn_1", batch, d, 2 * t);
    im.level[2] = build_map_input(b, "backbone_fpn_2", batch, d, t);
    tensor *codes = build_map_input(b, "vision_pos_enc_2", 1, d, t);
    im.codes = reshape(b->r, codes, 3, (int64_t[]){t, t, d});
    im.begun = fusion_begin(b->r, &b->m->fusion, im.level[2], im.codes);
    tensor *said = run_input(b->r, NULL, 3, (int64_t[]){batch, n, d});
    int words = graph_input(b->g, "text_memory_resized", DT_F32, 3, (int64_t[]){n, batch, d});
    lower_bind_last(&b->l, said, g_transpose(b->g, words, (int[]){1, 0, 2}));
    tensor *mask = run_input(b->r, NULL, 2, (int64_t[]){batch, n});
    lower_bind_last(&b->l, mask, graph_input(b->g, "text_attention_mask_float", DT_F32, 2, mask->dim));
    grounded g;
    box_values values;
    if (b->o->boxes)
        box_inputs(b, &values);
    sam3_ground_with(b->r, b->m, &im, said, mask, b->o->boxes ? &(examples){.values = &values} : NULL,
                     &(decoder_options){.every_layer = true}, &g);
    tensor *pixels = seghead_pixels(b->r, &b->m->seghead, im.level, g.memory, g.prompt, g.mask);
    out->masks = seghead_masks(b->r, &b->m->seghead, pixels, g.found.queries);
    out->found = g.found;
}

/* One value of every layer, one above the other. */
static void layers_output(building *b, tensor *const *layer, const char *name)
{
    int part[DECODER_MAX_LAYERS], layers = b->m->decoder.layers;
    if (layers > GRAPH_INPUTS) {
        graph_fail(b->g, SAMITE_FAILED, "a decoder of more than %d layers cannot be exported", GRAPH_INPUTS);
        return;
    }
    for (int i = 0; i < layers; i++) {
        int64_t dim[MAX_AXES] = {1};
        memcpy(dim + 1, layer[i]->dim, sizeof *dim * 3);
        part[i] = g_reshape(b->g, lower_last(&b->l, layer[i]), layer[i]->axes + 1, dim);
    }
    graph_output(b->g, g_concat(b->g, part, layers, 0), name);
}

static void finish_head(building *b, const head *h)
{
    tensor *logits[DECODER_MAX_LAYERS], *boxes[DECODER_MAX_LAYERS], *presence[DECODER_MAX_LAYERS];
    for (int i = 0; i < b->m->decoder.layers; i++) {
        logits[i] = h->found.layer[i].logits;
        boxes[i] = h->found.layer[i].boxes;
        presence[i] = h->found.layer[i].presence;
    }
    layers_output(b, logits, "pred_logits");
    layers_output(b, boxes, "pred_boxes");
    graph_output(b->g, lower_last(&b->l, h->masks), "pred_masks");
    layers_output(b, presence, "presence_logit_dec");
}

/* ---- all of them ---- */

bool build_lower(building *b)
{
    samite_error e = {0};
    if (run_status(b->r, &e))
        graph_fail(b->g, e.code, "%s", e.text);
    else
        lower_all(&b->l);
    return !b->g->error.code;
}

static void build_image(building *b)
{
    encoded_image im = {0};
    trace_image(b, &im);
    if (build_lower(b))
        finish_image(b, &im);
}

static void build_text(building *b)
{
    tensor *said = trace_text(b);
    if (build_lower(b))
        finish_text(b, said);
}

static void build_head(building *b)
{
    head h = {.masks = NULL};
    trace_head(b, &h);
    if (build_lower(b))
        finish_head(b, &h);
}

static void build(building *b, export_part p)
{
    static void (*const builders[EXPORT_PARTS])(building *b) = {
        build_image,         build_text,    build_head,
        build_click_image,   build_click,   build_tracker_neck,
        build_memory_attention, build_tracked,
        build_memory_encoder, build_pointers, build_mask_prompt};
    builders[p](b);
}

int export_part_graph(graph *g, const sam3 *m, export_part p, const part_options *o, samite_error *err)
{
    part_options options = *o;
    options.batch = options.batch ? options.batch : 1;
    options.prompt = options.prompt ? options.prompt : m->c.context;
    options.points = options.points ? options.points : 4;
    options.maps = options.maps ? options.maps : EXPORT_MAPS;
    options.pointers = options.pointers ? options.pointers : EXPORT_POINTERS_KEPT;
    building b = {.g = g, .m = m, .o = &options};
    if (!graph_open(g))
        return fail(err, SAMITE_RESOURCE, "not enough memory to export the model");
    if (options.prompt > m->c.context || options.prompt < 3)
        return fail(err, SAMITE_USAGE, "prompts of %d tokens: expected 3 to %d", options.prompt, m->c.context);
    if (options.boxes < 0 || options.boxes > 64)
        return fail(err, SAMITE_USAGE, "%d example boxes: expected 0 to 64", options.boxes);
    if (options.points < 1 || options.points > 64 || (p >= EXPORT_DETECTOR && options.batch > 1))
        return fail(err, SAMITE_USAGE, "%d points: expected 1 to 64, and a batch of 1", options.points);
    b.r = run_open(&(run_options){.mode = TRACE, .keep_constants = true}, err);
    if (!b.r)
        return SAMITE_RESOURCE;
    if (lowering_open(&b.l, g, b.r))
        build(&b, p);
    else
        graph_fail(g, SAMITE_RESOURCE, "not enough memory to export the model");
    lowering_close(&b.l);
    run_close(b.r);
    return g->error.code ? fail(err, g->error.code, "%s", g->error.text) : 0;
}
