/* api_engine.c - pictures and prompts through exported parts in another engine. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "base/file.h"
#include "base/text.h"
#include "formats/onnx.h"
#include "model/tokenizer_reduced.h"
#include "runtime/config_file.h"

/* ---- the folder ---- */

static char *path_of(const char *folder, export_part p)
{
    char name[64];
    snprintf(name, sizeof name, "%s.onnx", export_part_name(p));
    return path_join(folder, name);
}

/* -1: any number. Where one picture is wanted, a file for any number of them will do. */
static bool has_dims(const onnx_value_info *v, const char *name, int axes, const int64_t *dim)
{
    bool same = onnx_is(v->name, name) && v->axes == axes;
    for (int i = 0; i < axes && same; i++)
        same = dim[i] < 0 || v->dim[i] == dim[i] || (dim[i] == 1 && v->dim[i] < 0);
    return same;
}

/* Files for a fixed number of pictures other than one are of no use here. */
static int refuse_batch(const char *path, int64_t batch, samite_error *err)
{
    return fail(err, SAMITE_INPUT, "%s takes %lld pictures at once: export it with --batch 1 or --batch dynamic", path,
                (long long)batch);
}

static int refuse(const char *path, const char *what, samite_error *err)
{
    return fail(err, SAMITE_INPUT, "%s: %s; export all parts again, from one model", path, what);
}

/* What is told about a part in its file: the same of all three. */
typedef struct told {
    char   *config, *source;
    int64_t side, prompt;      /* pixels, tokens; 0: not of this part */
    int64_t boxes;             /* of the head */
} told;

static void told_free(told *t)
{
    free(t->config);
    free(t->source);
}

static int64_t boxes_in(const onnx_file *f)
{
    for (size_t i = 0; i < f->inputs; i++)
        if (has_dims(&f->input[i], "boxes", 3, (int64_t[]){1, -1, 4}) && f->input[i].dim[1] <= 64)
            return f->input[i].dim[1];
    return 0;
}

static int read_part(told *out, const char *path, export_part p, samite_error *err)
{
    onnx_file f;
    int code = onnx_open(&f, path, err);
    if (code)
        return code;
    *out = (told){.config = onnx_meta(&f, CONFIG_KEY), .source = onnx_meta(&f, "samite.source")};
    const part_io *io = export_io(p);
    for (size_t i = 0; io->in[i] && !code; i++)
        if (i >= f.inputs || !onnx_is(f.input[i].name, io->in[i]))
            code = refuse(path, "its inputs are not those of this part", err);
    if (!code && !out->config)
        code = refuse(path, "it was not written by samite", err);
    if (!code && p == EXPORT_IMAGE && has_dims(&f.input[0], "image", 4, (int64_t[]){1, 3, -1, -1}))
        out->side = f.input[0].dim[2];
    else if (!code && p == EXPORT_TEXT && has_dims(&f.input[0], "token_ids", 2, (int64_t[]){1, -1}))
        out->prompt = f.input[0].dim[1];
    else if (!code && p == EXPORT_HEAD && has_dims(&f.input[4], "text_memory_resized", 3, (int64_t[]){-1, 1, -1}))
        out->prompt = f.input[4].dim[0], out->boxes = boxes_in(&f);
    else if (!code && f.input[0].axes && f.input[0].dim[0] > 1)
        code = refuse_batch(path, f.input[0].dim[0], err);
    else if (!code)
        code = refuse(path, "its inputs have other shapes than expected", err);
    onnx_close(&f);
    return code;
}

static bool agree(const told *a, const told *b)
{
    return !strcmp(a->config, b->config) && (!a->source || !b->source || !strcmp(a->source, b->source)) &&
           (!a->prompt || !b->prompt || a->prompt == b->prompt);
}

/* Axis `axis` of input number `input` of a part, as the listing has it; 0: not told. */
static int listed(const json_t *o, export_part p, size_t input, size_t axis)
{
    const json_t *inputs = json_object_get(json_object_get(o, "parts"), export_part_name(p));
    json_int_t v = json_integer_value(json_array_get(json_object_get(json_array_get(inputs, input), "shape"), axis));
    return v > 0 && v <= 64 ? (int)v : 0;
}

/* The listing beside converted parts, which say nothing about themselves. */
static int read_listing(config *c, part_engine *e, samite_error *err)
{
    char *path = path_join(e->folder, "parts.json");
    uint8_t *data = NULL;
    size_t size;
    if (!path)
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", e->folder);
    int code = file_read(&data, &size, path, 1 << 20, err);
    json_t *o = code ? NULL : json_loadb((const char *)data, size, 0, NULL);
    json_int_t prompt = json_integer_value(json_object_get(o, "prompt"));
    if (!code)
        code = config_from_json(c, json_string_value(json_object_get(o, CONFIG_KEY)), path, err);
    if (!code && (prompt < 3 || prompt > 256))
        code = fail(err, SAMITE_INPUT, "%s: prompts of %lld tokens: expected 3 to 256", path, (long long)prompt);
    if (!code)
        c->context = e->prompt = (int)prompt;
    e->boxes = listed(o, EXPORT_HEAD, 6, 1);
    e->points = listed(o, EXPORT_CLICK, 4, 1);
    e->maps = listed(o, EXPORT_MEMORY_ATTENTION, 2, 0);
    e->pointers = listed(o, EXPORT_MEMORY_ATTENTION, 4, 0);
    json_decref(o);
    free(data);
    free(path);
    return code;
}

/* Reads all parts' headers; the first one says what the network is. */
static int read_parts(config *c, part_engine *e, samite_error *err)
{
    told all[EXPORT_DETECTOR] = {{0}};
    int code = 0;
    for (int p = 0; p < EXPORT_DETECTOR && !code; p++) {
        char *path = path_of(e->folder, (export_part)p);
        if (path && access(path, R_OK) != 0)
            code = fail(err, SAMITE_INPUT, "%s is not there: write it with samite export onnx -m MODEL --out %s", path,
                        e->folder);
        else
            code = path ? read_part(&all[p], path, (export_part)p, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
        if (!code && p && !agree(&all[p], &all[p - 1]))
            code = refuse(path, "it belongs to another model or size than the part before", err);
        if (!code && p == 0)
            code = config_from_json(c, all[0].config, path, err);
        if (!code && p == 0 && !(e->config = text_copy(all[0].config)))
            code = fail(err, SAMITE_RESOURCE, "not enough memory");
        if (!code && p == 0 && all[0].side != c->image)
            code = refuse(path, "its input has another size than its metadata says", err);
        free(path);
    }
    int64_t prompt = code ? 0 : all[EXPORT_HEAD].prompt < all[EXPORT_TEXT].prompt ? 0 : all[EXPORT_HEAD].prompt;
    if (!code && (prompt < 3 || prompt > 256))
        code = fail(err, SAMITE_INPUT, "%s: prompts of %lld tokens: expected 3 to 256", e->folder, (long long)prompt);
    c->context = e->prompt = (int)prompt;
    e->boxes = code ? 0 : (int)all[EXPORT_HEAD].boxes;
    for (int p = 0; p < EXPORT_DETECTOR; p++)
        told_free(&all[p]);
    return code;
}

/* ---- settings: "key=value,key=value" ---- */

static int open_engine(samite_model *m, samite_error *err)
{
    const char *setting[32];
    engine_options o = {.threads = m->options.threads, .library = m->options.engine_library, .setting = setting};
    char *copy = text_copy(m->options.engine_settings ? m->options.engine_settings : "");
    for (char *at = copy; at && *at && o.settings < 32;) {
        setting[o.settings++] = at;
        at = strchr(at, ',');
        if (at)
            *at++ = 0;
    }
    int code =
        copy ? engine_open(&m->parts->e, m->options.engine, &o, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
    free(copy);
    return code;
}

int engine_model_open(samite_model *m, const char *folder, samite_error *err)
{
    config c;
    m->parts = calloc(1, sizeof *m->parts);
    if (!m->parts || !(m->parts->folder = text_copy(folder)))
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", folder);
    m->parts->converted = starts_with(m->options.engine, "ascend");
    int code = m->parts->converted ? read_listing(&c, m->parts, err) : read_parts(&c, m->parts, err);
    if (!code)
        code = native_open_empty(&m->n, folder, &c, err);
    if (!code)
        code = open_engine(m, err);
    return code;
}

static void words_free(engine_words *w)
{
    free(w->said);
    engine_tensor_free(&w->out[0]);
    engine_tensor_free(&w->out[1]);
    *w = (engine_words){.said = NULL};
}

void engine_model_close(samite_model *m)
{
    if (!m->parts)
        return;
    for (int p = 0; p < EXPORT_PARTS; p++)
        engine_unload(m->parts->part[p]);
    for (int i = 0; i < ENGINE_WORDS; i++)
        words_free(&m->parts->words[i]);
    engine_close(m->parts->e);
    free(m->parts->config);
    free(m->parts->folder);
    free(m->parts);
}

char *engine_part_path(const samite_model *m, export_part p)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", export_part_name(p), m->parts->converted ? "om" : "onnx");
    return path_join(m->parts->folder, name);
}

bool engine_has_part(const samite_model *m, export_part p)
{
    char *path = engine_part_path(m, p);
    bool there = path && access(path, R_OK) == 0;
    free(path);
    return there;
}

int engine_part_ready(samite_model *m, export_part p, samite_error *err)
{
    int code = 0;
    pthread_mutex_lock(&m->lock);
    if (!m->parts->part[p]) {
        char *path = engine_part_path(m, p);
        code = path ? engine_load(&m->parts->part[p], m->parts->e, path, err)
                    : fail(err, SAMITE_RESOURCE, "not enough memory");
        free(path);
    }
    pthread_mutex_unlock(&m->lock);
    return code;
}

/* ---- the picture ---- */

static const char *const features[ENGINE_FEATURES] = {"backbone_fpn_0", "backbone_fpn_1", "backbone_fpn_2",
                                                      "vision_pos_enc_2"};

void engine_features_free(samite_image *im)
{
    for (int i = 0; i < ENGINE_FEATURES; i++)
        engine_tensor_free(&im->features[i]);
}

int engine_input(const samite_image *im, engine_tensor *out, samite_error *err)
{
    int64_t side = im->model->n->net->c.image, pixels = side * side;
    *out = (engine_tensor){.name = "image"};
    int code = engine_make(out, DT_F32, 4, (int64_t[]){1, 3, side, side}, err);
    for (int64_t i = 0; !code && i < pixels; i++)
        for (int c = 0; c < 3; c++)
            ((float *)out->data)[c * pixels + i] = im->input[3 * i + c];
    return code;
}

/* Of `encoded`, the tracker only wants to know how large masks are. */
static int note_side(samite_image *im, samite_error *err)
{
    int64_t side = 4 * config_tokens(&im->model->n->net->c), d = im->model->n->net->c.d;
    if (im->features[0].type != DT_F32 || engine_count(&im->features[0]) != side * side * d)
        return fail(err, SAMITE_INPUT, "output backbone_fpn_0 of image_encoder has another type or shape than expected");
    im->encoded.level[0] = run_input(im->r, im->features[0].data, 4, (int64_t[]){1, side, side, d});
    return run_status(im->r, err);
}

int engine_encode(samite_image *im, bool track, samite_error *err)
{
    samite_model *m = im->model;
    engine_tensor in = {.name = "image"}, out[ENGINE_FEATURES + 1];
    image_stage(im, "encode", 1);
    engine_features_free(im);
    engine_tracked_free(im);
    run_reset(im->r);
    im->clicks_ready = false;
    int code = engine_part_ready(m, EXPORT_IMAGE, err);
    if (!code)
        code = engine_input(im, &in, err);
    for (int i = 0; i < ENGINE_FEATURES; i++)
        out[i] = (engine_tensor){.name = features[i]};
    out[ENGINE_FEATURES] = (engine_tensor){.name = "trunk_features"};
    if (!code)
        code = engine_run(m->parts->part[EXPORT_IMAGE], &in, 1, out, ENGINE_FEATURES + track, err);
    memcpy(im->features, out, sizeof im->features);
    if (!code)
        code = note_side(im, err);
    if (!code && track)
        code = engine_track_picture(im, &out[ENGINE_FEATURES], err);
    engine_tensor_free(&out[ENGINE_FEATURES]);
    engine_tensor_free(&in);
    return code;
}

/* ---- the prompt ---- */

static int copy_tensor(engine_tensor *to, const engine_tensor *from, samite_error *err)
{
    to->name = from->name;
    int code = engine_make(to, from->type, from->axes, from->dim, err);
    if (!code)
        memcpy(to->data, from->data, engine_bytes(from));
    return code;
}

static int copy_words(engine_words *to, const engine_words *from, samite_error *err)
{
    *to = (engine_words){.said = text_copy(from->said), .tokens = from->tokens, .cut = from->cut};
    int code =
        to->said ? copy_tensor(&to->out[0], &from->out[0], err) : fail(err, SAMITE_RESOURCE, "not enough memory");
    if (!code)
        code = copy_tensor(&to->out[1], &from->out[1], err);
    if (code)
        words_free(to);
    return code;
}

/* A prompt asked before; out->said stays NULL if it is new. */
static int recall(samite_model *m, const char *said, engine_words *out, samite_error *err)
{
    int code = 0;
    *out = (engine_words){.said = NULL};
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < ENGINE_WORDS && !code && !out->said; i++)
        if (m->parts->words[i].said && !strcmp(m->parts->words[i].said, said))
            code = copy_words(out, &m->parts->words[i], err);
    pthread_mutex_unlock(&m->lock);
    return code;
}

/* Failing to remember is harmless. */
static void remember(samite_model *m, const engine_words *w)
{
    engine_words copy;
    if (copy_words(&copy, w, NULL))
        return;
    pthread_mutex_lock(&m->lock);
    engine_words *slot = &m->parts->words[m->parts->next_words];
    m->parts->next_words = (m->parts->next_words + 1) % ENGINE_WORDS;
    words_free(slot);
    *slot = copy;
    pthread_mutex_unlock(&m->lock);
}

static int encode_words(samite_image *im, const char *said, engine_words *out, samite_error *err)
{
    samite_model *m = im->model;
    int prompt = m->parts->prompt;
    int32_t ids[256];
    int64_t wide[256] = {0};
    int code = recall(m, said, out, err);
    if (code || out->said)
        return code;
    config c = m->n->net->c;
    c.context = prompt;
    out->tokens = tokenize_reduced(ids, &c, said, strlen(said), &out->cut, NULL);
    if (out->cut)
        model_log(m, "the text '%.60s%s' is longer than %d tokens and was cut: short noun phrases work best", said,
                  strlen(said) > 60 ? "..." : "", prompt);
    for (int i = 0; i < out->tokens; i++)
        wide[i] = ids[i];
    engine_tensor in = {.name = "token_ids", .type = DT_I64, .axes = 2, .dim = {1, prompt}, .data = wide};
    out->out[0] = (engine_tensor){.name = "text_memory_resized"};
    out->out[1] = (engine_tensor){.name = "text_attention_mask"};
    image_stage(im, "text", 1);
    code = engine_part_ready(m, EXPORT_TEXT, err);
    if (!code)
        code = engine_run(m->parts->part[EXPORT_TEXT], &in, 1, out->out, 2, err);
    if (!code && !(out->said = text_copy(said)))
        code = fail(err, SAMITE_RESOURCE, "not enough memory");
    if (!code)
        remember(m, out);
    return code;
}

int engine_words_value(samite_image *im, const char *said, tensor **out, int *tokens, bool *cut, samite_error *err)
{
    engine_words w;
    int64_t d = im->model->n->net->c.d;
    int code = encode_words(im, said, &w, err);
    *tokens = w.tokens;
    *cut = w.cut;
    if (!code && (w.out[0].type != DT_F32 || engine_count(&w.out[0]) != im->model->parts->prompt * d))
        code = fail(err, SAMITE_INPUT, "output text_memory_resized of text_encoder has another type or shape than expected");
    *out = run_constant(im->r, 3, (int64_t[]){1, w.tokens, d});
    if (!code && !(code = run_status(im->r, err)))
        memcpy((*out)->data, w.out[0].data, sizeof(float) * (size_t)(w.tokens * d));
    words_free(&w);
    return code;
}

/* The last layer's answers, after checking that every output has the shape it must have. */
static int read_found(engine_found *f, const config *c, samite_error *err)
{
    const engine_tensor *logits = &f->out[0], *boxes = &f->out[1], *masks = &f->out[2], *presence = &f->out[3];
    int64_t q = c->queries, layers = presence->dim[0], side = 4 * config_tokens(c);
    for (int i = 0; i < 4; i++)
        if (f->out[i].type != DT_F32)
            return fail(err, SAMITE_INPUT, "output %s of the grounding head is not f32", f->out[i].name);
    if (layers < 1 || engine_count(presence) != layers || engine_count(logits) != layers * q ||
        engine_count(boxes) != layers * q * 4 || engine_count(masks) != q * side * side)
        return fail(err, SAMITE_INPUT,
                    "the grounding head answers with other shapes than expected: is it of the same model?");
    f->logits = (const float *)logits->data + (layers - 1) * q;
    f->boxes = (const float *)boxes->data + (layers - 1) * q * 4;
    f->masks = masks->data;
    f->presence = ((const float *)presence->data)[layers - 1];
    f->queries = (int)q;
    f->side = (int)side;
    return 0;
}

/* The boxes, and empty places for those that the head could take besides. */
static int give_boxes(const samite_image *im, const examples *x, engine_tensor *in, samite_error *err)
{
    int64_t n = im->model->parts->boxes, used = x ? x->box_count : 0;
    if (used > n)
        return fail(err, SAMITE_USAGE,
                    "%lld example boxes: these parts take %lld; export them with more (--boxes N), or use "
                    "the native engine",
                    (long long)used, (long long)n);
    in[0] = (engine_tensor){.name = "boxes"};
    in[1] = (engine_tensor){.name = "box_labels"};
    int code = n ? engine_make(&in[0], DT_F32, 3, (int64_t[]){1, n, 4}, err) : 0;
    if (!code && n)
        code = engine_make(&in[1], DT_I64, 2, (int64_t[]){1, n}, err);
    for (int64_t i = 0; i < n && !code; i++) {
        static const float nothing[4];
        memcpy((float *)in[0].data + 4 * i, i < used ? x->boxes + 4 * i : nothing, sizeof nothing);
        ((int64_t *)in[1].data)[i] = i < used ? x->box_positive[i] != 0 : -1;
    }
    return code;
}

/* words: memory and mask. */
static int ground(samite_image *im, const engine_tensor *words, const examples *x, engine_found *out, samite_error *err)
{
    samite_model *m = im->model;
    engine_tensor in[ENGINE_FEATURES + 4] = {{0}}, *boxes = in + ENGINE_FEATURES + 2;
    int inputs = ENGINE_FEATURES + 2 + (m->parts->boxes ? 2 : 0);
    *out = (engine_found){.out = {{.name = "pred_logits"}, {.name = "pred_boxes"}, {.name = "pred_masks"},
                                  {.name = "presence_logit_dec"}}};
    int code = give_boxes(im, x, boxes, err);
    image_stage(im, "ground", 1);
    if (!code)
        code = engine_part_ready(m, EXPORT_HEAD, err);
    memcpy(in, im->features, sizeof im->features);
    in[ENGINE_FEATURES] = words[0];
    in[ENGINE_FEATURES + 1] = words[1];
    in[ENGINE_FEATURES + 1].name = "text_attention_mask_float";
    if (!code)
        code = engine_run(m->parts->part[EXPORT_HEAD], in, inputs, out->out, 4, err);
    if (!code)
        code = read_found(out, &m->n->net->c, err);
    engine_tensor_free(&boxes[0]);
    engine_tensor_free(&boxes[1]);
    if (code)
        engine_found_free(out);
    return code;
}

int engine_ground(samite_image *im, const char *said, const examples *x, engine_found *out, int *tokens, bool *cut,
                  samite_error *err)
{
    engine_words words;
    *out = (engine_found){.queries = 0};
    int code = encode_words(im, said, &words, err);
    *tokens = words.tokens;
    *cut = words.cut;
    if (!code)
        code = ground(im, words.out, x, out, err);
    words_free(&words);
    return code;
}

int engine_ground_values(samite_image *im, const float *words, int tokens, const examples *x, engine_found *out,
                         samite_error *err)
{
    int64_t n = im->model->parts->prompt, d = im->model->n->net->c.d;
    engine_tensor w[2] = {{.name = "text_memory_resized"}, {.name = "text_attention_mask"}};
    *out = (engine_found){.queries = 0};
    int code = engine_make(&w[0], DT_F32, 3, (int64_t[]){n, 1, d}, err);
    if (!code)
        code = engine_make(&w[1], DT_F32, 2, (int64_t[]){1, n}, err);
    if (!code) {
        memset(w[0].data, 0, engine_bytes(&w[0]));
        memcpy(w[0].data, words, sizeof(float) * (size_t)((tokens < n ? tokens : n) * d));
        for (int64_t i = 0; i < n; i++)
            ((float *)w[1].data)[i] = i >= tokens;
        code = ground(im, w, x, out, err);
    }
    engine_tensor_free(&w[0]);
    engine_tensor_free(&w[1]);
    return code;
}

void engine_found_free(engine_found *f)
{
    for (int i = 0; i < 4; i++)
        engine_tensor_free(&f->out[i]);
}
