/* engine_native.c - our own network behind the interface of the engines, for comparisons. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/engine.h"
#include "runtime/native.h"

typedef struct native_engine {
    engine  base;
    native *n;
} native_engine;

typedef struct io {
    const engine_tensor *in;
    int                  inputs;
    engine_tensor       *out;
    int                  outputs;
    samite_error        *err;
    int                  code;
} io;

typedef struct native_part {
    engine_part base;
    void      (*compute)(const native *n, run *r, io *x);
    unsigned    needs;
} native_part;

/* ---- exchange of tensors ---- */

static const engine_tensor *input(io *x, const char *name, dtype type, int axes)
{
    for (int i = 0; i < x->inputs; i++) {
        const engine_tensor *t = &x->in[i];
        if (strcmp(t->name, name) != 0)
            continue;
        if (t->type == type && t->axes == axes)
            return t;
        x->code = fail(x->err, SAMITE_USAGE, "input %s has the wrong type or number of axes", name);
        return NULL;
    }
    x->code = fail(x->err, SAMITE_USAGE, "input %s is missing", name);
    return NULL;
}

/* Moves between [n, a, b] and [n, b, a]: channels in front and channels last. */
static void turn(float *out, const float *in, int64_t n, int64_t a, int64_t b)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < a; j++)
            for (int64_t k = 0; k < b; k++)
                out[(i * b + k) * a + j] = in[(i * a + j) * b + k];
}

/* A map [B, C, h, w] as a value [B, h, w, C]. */
static tensor *map_input(run *r, io *x, const char *name)
{
    const engine_tensor *t = x->code ? NULL : input(x, name, DT_F32, 4);
    if (!t)
        return run_fail(r, SAMITE_USAGE, "an input is missing");
    tensor *y = run_constant(r, 4, (int64_t[]){t->dim[0], t->dim[2], t->dim[3], t->dim[1]});
    if (run_ok(r))
        turn(y->data, t->data, t->dim[0], t->dim[1], t->dim[2] * t->dim[3]);
    return y;
}

/* Puts numbers into the output of that name, if it is wanted. */
static float *output(io *x, const char *name, int axes, const int64_t *dim)
{
    engine_tensor *t = x->code ? NULL : engine_find(x->out, x->outputs, name);
    if (!t || (x->code = engine_make(t, DT_F32, axes, dim, x->err)))
        return NULL;
    return t->data;
}

static void map_output(io *x, const char *name, const tensor *t)
{
    int64_t h = t->dim[t->axes - 3], w = t->dim[t->axes - 2], c = t->dim[t->axes - 1], n = t->axes == 4 ? t->dim[0] : 1;
    float *to = output(x, name, 4, (int64_t[]){n, c, h, w});
    if (to)
        turn(to, t->data, n, h * w, c);
}

/* ---- parts ---- */

static void image_part(const native *n, run *r, io *x)
{
    static const char *const levels[] = {"backbone_fpn_0", "backbone_fpn_1", "backbone_fpn_2"};
    static const char *const codes[] = {"vision_pos_enc_0", "vision_pos_enc_1", "vision_pos_enc_2"};
    encoded_image im;
    bool trunk = engine_find(x->out, x->outputs, "trunk_features") != NULL;
    sam3_encode_image(r, n->net, map_input(r, x, "image"), trunk, &im);
    if (!run_ok(r))
        return;
    if (trunk)
        map_output(x, "trunk_features", im.trunk);
    for (int i = 0; i < 3; i++)
        map_output(x, levels[i], im.level[i]);
    map_output(x, "vision_features", im.level[2]);
    for (int i = 0; i < 3; i++) {
        int64_t side = im.level[i]->dim[1], d = n->net->c.d;
        tensor *t = engine_find(x->out, x->outputs, codes[i]) ? run_constant(r, 3, (int64_t[]){side, side, d}) : NULL;
        if (!t || !run_ok(r))
            continue;
        grid_codes(t->data, side, side, d);
        map_output(x, codes[i], t);
    }
}

static void text_part(const native *n, run *r, io *x)
{
    const engine_tensor *ids = input(x, "token_ids", DT_I64, 2);
    int32_t index[1024];
    int64_t count = ids ? engine_count(ids) : 0;
    if (!ids || count > 1024) {
        run_fail(r, SAMITE_USAGE, "token_ids: expected at most 1024 of them");
        return;
    }
    float *mask = output(x, "text_attention_mask", 2, ids->dim);
    for (int64_t i = 0; i < count; i++) {
        index[i] = (int32_t)((const int64_t *)ids->data)[i];
        if (mask)
            mask[i] = index[i] == 0;
    }
    tensor *said = text_forward(r, &n->net->text, run_indices(r, index, 2, ids->dim));
    float *to =
        run_ok(r) ? output(x, "text_memory_resized", 3, (int64_t[]){said->dim[1], said->dim[0], said->dim[2]}) : NULL;
    for (int64_t b = 0; to && b < said->dim[0]; b++)
        for (int64_t i = 0; i < said->dim[1]; i++)
            memcpy(to + (i * said->dim[0] + b) * said->dim[2], said->data + (b * said->dim[1] + i) * said->dim[2],
                   sizeof *to * (size_t)said->dim[2]);
}

/* One value of every layer, one above the other. */
static void layers_output(io *x, const char *name, tensor *const *layer, int layers)
{
    int64_t dim[ENGINE_AXES] = {layers};
    memcpy(dim + 1, layer[0]->dim, sizeof *dim * (size_t)layer[0]->axes);
    float *to = output(x, name, layer[0]->axes + 1, dim);
    for (int i = 0; to && i < layers; i++)
        memcpy(to + i * tensor_count(layer[i]), layer[i]->data, sizeof *to * (size_t)tensor_count(layer[i]));
}

static void head_outputs(const native *n, io *x, const decoder_output *found, const tensor *masks)
{
    tensor *logits[DECODER_MAX_LAYERS], *boxes[DECODER_MAX_LAYERS], *presence[DECODER_MAX_LAYERS];
    int layers = n->net->decoder.layers;
    for (int i = 0; i < layers; i++) {
        logits[i] = found->layer[i].logits;
        boxes[i] = found->layer[i].boxes;
        presence[i] = found->layer[i].presence;
    }
    layers_output(x, "pred_logits", logits, layers);
    layers_output(x, "pred_boxes", boxes, layers);
    layers_output(x, "presence_logit_dec", presence, layers);
    float *to = output(x, "pred_masks", 4, masks->dim);
    if (to)
        memcpy(to, masks->data, sizeof *to * (size_t)tensor_count(masks));
}

/* Example boxes, if there are inputs for them; those with the label -1 are not there. */
typedef struct example_list {
    float    boxes[64 * 4];
    int      positive[64];
    examples x;
} example_list;

static void read_examples(io *x, example_list *out)
{
    const engine_tensor *boxes = NULL, *labels = NULL;
    out->x = (examples){.boxes = out->boxes, .box_positive = out->positive};
    for (int i = 0; i < x->inputs; i++) {
        boxes = !strcmp(x->in[i].name, "boxes") ? &x->in[i] : boxes;
        labels = !strcmp(x->in[i].name, "box_labels") ? &x->in[i] : labels;
    }
    if (!boxes || !labels || boxes->axes != 3 || engine_count(labels) > 64 ||
        engine_count(boxes) != 4 * engine_count(labels))
        return;
    for (int64_t i = 0; i < engine_count(labels); i++) {
        int64_t label = ((const int64_t *)labels->data)[i];
        if (label < 0)
            continue;
        memcpy(out->boxes + 4 * out->x.box_count, (const float *)boxes->data + 4 * i, 4 * sizeof(float));
        out->positive[out->x.box_count++] = label > 0;
    }
}

static void head_part(const native *n, run *r, io *x)
{
    example_list list;
    int queries = n->net->c.queries;
    encoded_image im = {.level = {map_input(r, x, "backbone_fpn_0"), map_input(r, x, "backbone_fpn_1"),
                                  map_input(r, x, "backbone_fpn_2")}};
    tensor *codes = map_input(r, x, "vision_pos_enc_2");
    const engine_tensor *words = x->code ? NULL : input(x, "text_memory_resized", DT_F32, 3);
    const engine_tensor *padding = x->code ? NULL : input(x, "text_attention_mask_float", DT_F32, 2);
    int32_t *query = calloc((size_t)queries, sizeof *query);
    if (!words || !padding || !query || words->dim[1] != 1) {
        run_fail(r, SAMITE_USAGE, "the grounding head takes one prompt, with its padding");
        free(query);
        return;
    }
    for (int i = 0; i < queries; i++)
        query[i] = i;
    im.codes = reshape(r, codes, 3, codes->dim + 1);
    im.begun = fusion_begin(r, &n->net->fusion, im.level[2], im.codes);
    tensor *said = run_input(r, words->data, 3, (int64_t[]){1, words->dim[0], words->dim[2]});
    tensor *mask = run_input(r, padding->data, 2, padding->dim);
    grounded g;
    read_examples(x, &list);
    sam3_ground_with(r, n->net, &im, said, mask, &list.x, &(decoder_options){.every_layer = true}, &g);
    tensor *masks = sam3_masks(r, n->net, &im, &g, query, queries);
    if (run_ok(r))
        head_outputs(n, x, &g.found, masks);
    free(query);
}

static void click_image_part(const native *n, run *r, io *x)
{
    encoded_image im;
    click_image c;
    int64_t t = config_tokens(&n->net->c);
    sam3_encode_image(r, n->net, map_input(r, x, "image"), true, &im);
    sam3_click_image(r, n->net, &im, &c);
    if (!run_ok(r))
        return;
    tensor *seen = sam3_unseen(r, n->net, &c);
    map_output(x, "image_embed", reshape(r, seen, 3, (int64_t[]){t, t, n->net->c.d}));
    map_output(x, "high_res_feats_0", c.fine0);
    map_output(x, "high_res_feats_1", c.fine1);
}

/* Copies a value out as it is. */
static void plain_output(io *x, const char *name, const tensor *t, int axes, const int64_t *dim)
{
    float *to = output(x, name, axes, dim);
    if (to)
        memcpy(to, t->data, sizeof *to * (size_t)tensor_count(t));
}

static void click_outputs(const native *n, io *x, const guesses *g)
{
    int64_t side = 4 * config_tokens(&n->net->c);
    plain_output(x, "masks", g->masks, 4, (int64_t[]){1, MASK_GUESSES, side, side});
    plain_output(x, "iou_predictions", g->overlap, 2, (int64_t[]){1, MASK_GUESSES});
    plain_output(x, "object_score_logits", g->object, 2, (int64_t[]){1, 1});
    plain_output(x, "object_tokens", g->tokens, 3, (int64_t[]){1, MASK_GUESSES, n->net->c.d});
}

/* The answer to points about a picture, with a mask where has_mask_input is 1. */
static void ask(const native *n, run *r, io *x, const clicks *points)
{
    int64_t t = config_tokens(&n->net->c), d = n->net->c.d;
    tensor *embed = map_input(r, x, "image_embed"), *fine0 = map_input(r, x, "high_res_feats_0");
    tensor *fine1 = map_input(r, x, "high_res_feats_1"), *mask = map_input(r, x, "mask_input");
    const engine_tensor *has = x->code ? NULL : input(x, "has_mask_input", DT_F32, 1);
    if (!has || !run_ok(r)) {
        run_fail(r, SAMITE_USAGE, "an input of the head is missing");
        return;
    }
    click_image c = {.image = embed, .fine0 = reshape(r, fine0, 3, (int64_t[]){4 * t, 4 * t, d / 8}),
                     .fine1 = reshape(r, fine1, 3, (int64_t[]){2 * t, 2 * t, d / 4}),
                     .places = prompt_grid(r, &n->net->prompt, t)};
    guesses g;
    sam3_click(r, n->net, &c, reshape(r, embed, 3, (int64_t[]){1, t * t, d}), points,
               *(const float *)has->data > 0 ? mask : NULL, &g);
    if (run_ok(r))
        click_outputs(n, x, &g);
}

static void click_part(const native *n, run *r, io *x)
{
    int kind[64];
    const engine_tensor *at = x->code ? NULL : input(x, "point_coords", DT_F32, 3);
    const engine_tensor *label = x->code ? NULL : input(x, "point_labels", DT_I64, 2);
    if (!at || !label || engine_count(label) > 64 || engine_count(at) != 2 * engine_count(label)) {
        run_fail(r, SAMITE_USAGE, "the interactive head takes up to 64 points with their labels");
        return;
    }
    for (int64_t i = 0; i < engine_count(label); i++)
        kind[i] = (int)((const int64_t *)label->data)[i];
    ask(n, r, x, &(clicks){.batch = 1, .count = (int)engine_count(label), .xy = at->data, .kind = kind});
}

/* ---- parts for video ---- */

static void tracked_part(const native *n, run *r, io *x)
{
    const float nowhere[2] = {0, 0};
    int kind = POINT_NONE;
    ask(n, r, x, &(clicks){1, 1, nowhere, &kind});
}

static void neck_part(const native *n, run *r, io *x)
{
    int64_t t = config_tokens(&n->net->c), d = n->net->c.d;
    click_image c;
    encoded_image im = {.trunk = map_input(r, x, "trunk_features"), .codes = run_constant(r, 3, (int64_t[]){t, t, d})};
    sam3_click_image(r, n->net, &im, &c);
    if (!run_ok(r))
        return;
    map_output(x, "pix_feat", c.image);
    map_output(x, "image_embed", reshape(r, sam3_unseen(r, n->net, &c), 3, (int64_t[]){t, t, d}));
    map_output(x, "high_res_feats_0", c.fine0);
    map_output(x, "high_res_feats_1", c.fine1);
}

/* Places that are not used, as a mask over the rows of maps and pointers. */
static tensor *unused_rows(run *r, const engine_tensor *ages, const engine_tensor *distances, int64_t map_rows,
                           int64_t pointer_rows)
{
    int64_t maps = engine_count(ages) * map_rows, all = maps + engine_count(distances) * pointer_rows;
    tensor *y = run_constant(r, 2, (int64_t[]){1, all});
    for (int64_t i = 0; y->data && run_ok(r) && i < all; i++)
        y->data[i] = i < maps ? ((const int64_t *)ages->data)[i / map_rows] < 0
                              : ((const float *)distances->data)[(i - maps) / pointer_rows] < 0;
    return y;
}

static void attention_part(const native *n, run *r, io *x)
{
    int64_t t = config_tokens(&n->net->c), d = n->net->c.d, rows = d / n->net->c.mem_dim, places = t * t;
    tensor *image = map_input(r, x, "pix_feat");
    const engine_tensor *maps = x->code ? NULL : input(x, "memory_maps", DT_F32, 3);
    const engine_tensor *ages = x->code ? NULL : input(x, "memory_ages", DT_I64, 1);
    const engine_tensor *pointers = x->code ? NULL : input(x, "memory_pointers", DT_F32, 3);
    const engine_tensor *distances = x->code ? NULL : input(x, "pointer_distances", DT_F32, 1);
    float *rotations = malloc(sizeof *rotations * (size_t)(places * d));
    int age[64];
    if (!maps || !ages || !pointers || !distances || !rotations || engine_count(ages) > 64 ||
        engine_count(maps) != engine_count(ages) * places * n->net->c.mem_dim ||
        engine_count(pointers) != engine_count(distances) * d) {
        run_fail(r, SAMITE_USAGE, "the memory attention takes up to 64 maps with their ages, and pointers");
        free(rotations);
        return;
    }
    for (int64_t i = 0; i < engine_count(ages); i++) {
        int64_t v = ((const int64_t *)ages->data)[i];
        age[i] = v < 0 || v >= MEMORY_FRAMES ? 0 : (int)v;
    }
    int64_t width = n->net->c.mem_dim, some = engine_count(ages), others = engine_count(distances);
    tensor *grid = run_constant(r, 2, (int64_t[]){places, width}), *codes = run_constant(r, 2, (int64_t[]){places, d});
    if (run_ok(r)) {
        memory_rotations(rotations, t, d);
        grid_codes(grid->data, t, t, width);
        grid_codes(codes->data, t, t, d);
    }
    tensor *first = run_input(r, maps->data, 3, (int64_t[]){1, some * places, width});
    tensor *second = run_input(r, pointers->data, 3, (int64_t[]){1, others * rows, width});
    memories past = {.tokens = concat(r, first, second, 1),
                     .places = memory_places(r, &n->net->memory, grid, age, (int)some, distances->data, (int)others),
                     .unused = unused_rows(r, ages, distances, places, rows),
                     .pointer_rows = others * rows, .rotations = rotations};
    tensor *seen = memory_attend(r, &n->net->memory, image, codes, &past);
    if (run_ok(r))
        map_output(x, "image_embed", reshape(r, seen, 3, (int64_t[]){t, t, d}));
    free(rotations);
}

static void memory_part(const native *n, run *r, io *x)
{
    tensor *image = map_input(r, x, "pix_feat"), *mask = map_input(r, x, "mask");
    const engine_tensor *hidden = x->code ? NULL : input(x, "object_hidden", DT_F32, 1);
    bool is = hidden && *(const float *)hidden->data > 0;
    tensor *y = memory_encode(r, &n->net->memory, image, mask, &is);
    if (run_ok(r))
        plain_output(x, "memory", y, 3, y->dim);
}

static void pointers_part(const native *n, run *r, io *x)
{
    int64_t d = n->net->c.d;
    const engine_tensor *tokens = input(x, "object_tokens", DT_F32, 3);
    const engine_tensor *score = x->code ? NULL : input(x, "object_score_logits", DT_F32, 2);
    if (!tokens || !score || engine_count(tokens) != MASK_GUESSES * d) {
        run_fail(r, SAMITE_USAGE, "pointers are made of the %d tokens of an object and its score", MASK_GUESSES);
        return;
    }
    bool is = !(*(const float *)score->data > 0), hidden[MASK_GUESSES] = {is, is, is, is};
    tensor *all = run_input(r, tokens->data, 2, (int64_t[]){MASK_GUESSES, d});
    tensor *y = memory_pointers(r, &n->net->memory, all, hidden);
    if (run_ok(r))
        plain_output(x, "object_pointers", y, 3, (int64_t[]){1, MASK_GUESSES, d});
}

static void mask_prompt_part(const native *n, run *r, io *x)
{
    tensor *y = memory_mask_prompt(r, &n->net->memory, map_input(r, x, "mask"));
    if (run_ok(r))
        map_output(x, "mask_input", y);
}

static const struct {
    const char *name;
    void      (*compute)(const native *n, run *r, io *x);
    unsigned    needs;
} parts[] = {
    {"image_encoder", image_part, PARTS_IMAGE},
    {"text_encoder", text_part, PARTS_TEXT},
    {"grounding_head", head_part, PARTS_GROUND | PARTS_MASKS},
    {"interactive_encoder", click_image_part, PARTS_IMAGE | PARTS_CLICK},
    {"interactive_head", click_part, PARTS_CLICK},
    {"tracker_neck", neck_part, PARTS_CLICK},
    {"tracked_head", tracked_part, PARTS_CLICK},
    {"memory_attention", attention_part, PARTS_TRACK},
    {"memory_encoder", memory_part, PARTS_TRACK},
    {"object_pointers", pointers_part, PARTS_TRACK},
    {"mask_prompt", mask_prompt_part, PARTS_TRACK},
};

/* ---- the driver ---- */

static int part_load(engine_part **out, engine *e, const char *name, samite_error *err)
{
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, name) != 0)
            continue;
        int code = native_prepare(((native_engine *)e)->n, parts[i].needs, NULL, NULL, err);
        native_part *p = code ? NULL : calloc(1, sizeof *p);
        if (!p)
            return code ? code : fail(err, SAMITE_RESOURCE, "not enough memory for %s", name);
        *p = (native_part){.compute = parts[i].compute, .needs = parts[i].needs};
        *out = &p->base;
        return 0;
    }
    return fail(err, SAMITE_USAGE, "there is no part \"%s\"", name);
}

static int part_run(engine_part *part, const engine_tensor *in, int inputs, engine_tensor *out, int outputs,
                    samite_error *err)
{
    run *r = run_open(&(run_options){.mode = RUN, .type = ((native_engine *)part->e)->n->type}, err);
    io x = {.in = in, .inputs = inputs, .out = out, .outputs = outputs, .err = err};
    if (!r)
        return SAMITE_RESOURCE;
    ((native_part *)part)->compute(((native_engine *)part->e)->n, r, &x);
    int code = x.code ? x.code : run_status(r, err);
    run_close(r);
    for (int i = 0; i < outputs && !code; i++)
        if (!out[i].data)
            code = fail(err, SAMITE_USAGE, "there is no output %s", out[i].name);
    return code;
}

static void part_unload(engine_part *p)
{
    free(p);
}

static void native_engine_close(engine *e)
{
    free(e);
}

static const engine_driver driver = {"native", part_load, part_run, part_unload, native_engine_close};

int native_engine_open(engine **out, native *n, samite_error *err)
{
    native_engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e)
        return fail(err, SAMITE_RESOURCE, "not enough memory for an engine");
    *e = (native_engine){.base = {&driver}, .n = n};
    *out = &e->base;
    return 0;
}
