/* api_engine_track.c - clicks and video through exported parts: what the tracker asks of the network, one object at a
 * time, answered by another engine. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/text.h"
#include "formats/onnx.h"

/* Places of im->tracked. */
enum { PLAIN, FINE0, FINE1, UNSEEN };
static const char *const names[ENGINE_TRACKED] = {"pix_feat", "high_res_feats_0", "high_res_feats_1", "image_embed"};

/* ---- are the parts there? ---- */

static int lacking(const samite_model *m, const char *path, const char *what, samite_error *err)
{
    return fail(err, SAMITE_INPUT, "%s %s; write all parts again: samite export onnx -m MODEL --out %s --parts "
                "image,text,grounding,click,memory", path, what, m->parts->folder);
}

/* What the tracker has to know of a part: how many places it has. */
static void note_places(part_engine *e, export_part p, const onnx_file *f)
{
    if (p == EXPORT_MEMORY_ATTENTION) {
        e->maps = (int)f->input[2].dim[0];
        e->pointers = (int)f->input[4].dim[0];
    } else if (p == EXPORT_CLICK) {
        e->points = (int)f->input[4].dim[1];
    }
}

static bool has_inputs(const onnx_file *f, const part_io *io)
{
    size_t n = 0;
    while (io->in[n] && n < f->inputs && onnx_is(f->input[n].name, io->in[n]) && f->input[n].axes > 0)
        n++;
    return !io->in[n];
}

static bool gives_trunk(const onnx_file *f)
{
    for (size_t i = 0; i < f->outputs; i++)
        if (onnx_is(f->output[i].name, "trunk_features"))
            return true;
    return false;
}

static int check_header(samite_model *m, export_part p, const char *path, bool video, samite_error *err)
{
    onnx_file f;
    int code = onnx_open(&f, path, err);
    if (code)
        return code;
    char *told = onnx_meta(&f, "samite.config");
    if (!told || strcmp(told, m->parts->config) != 0)
        code = lacking(m, path, "belongs to another model or size than image_encoder.onnx", err);
    else if (!has_inputs(&f, export_io(p)) || (p == EXPORT_MEMORY_ATTENTION && (f.input[2].dim[0] < 1 ||
                                                                                f.input[4].dim[0] < 1)))
        code = lacking(m, path, "has other inputs than this part", err);
    else if (video && p == EXPORT_IMAGE && !gives_trunk(&f))
        code = lacking(m, path, "does not give trunk_features, which video needs", err);
    else
        note_places(m->parts, p, &f);
    free(told);
    onnx_close(&f);
    return code;
}

int engine_check_part(samite_model *m, export_part p, bool video, samite_error *err)
{
    char *path = engine_part_path(m, p);
    if (!path)
        return fail(err, SAMITE_RESOURCE, "not enough memory");
    int code = 0;
    if (!engine_has_part(m, p))
        code = lacking(m, path, "is not there", err);
    else if (!m->parts->converted)
        code = check_header(m, p, path, video, err);
    free(path);
    return code;
}

/* Converted image encoders do not tell; those beside the other parts for video do. */
bool engine_gives_trunk(samite_model *m)
{
    return m->parts->converted ? engine_has_part(m, EXPORT_TRACKER_NECK)
                               : engine_check_part(m, EXPORT_IMAGE, true, NULL) == 0;
}

static int check_parts(samite_model *m, const export_part *p, size_t count, bool video, samite_error *err)
{
    int code = 0;
    for (size_t i = 0; i < count && !code; i++)
        code = engine_check_part(m, p[i], video, err);
    return code;
}

int engine_check_video(samite_model *m, samite_error *err)
{
    static const export_part wanted[] = {EXPORT_IMAGE, EXPORT_CLICK, EXPORT_TRACKER_NECK, EXPORT_MEMORY_ATTENTION,
                                         EXPORT_TRACKED_HEAD, EXPORT_MEMORY_ENCODER, EXPORT_POINTERS,
                                         EXPORT_MASK_PROMPT};
    return check_parts(m, wanted, sizeof wanted / sizeof *wanted, true, err);
}

/* ---- running a part ---- */

typedef struct calling {
    samite_image *im;
    samite_error *err;
    int code;
    engine_tensor in[ENGINE_TRACKED + 4];
    int inputs;
} calling;

static void give(calling *c, const engine_tensor *t, const char *name)
{
    c->in[c->inputs] = *t;
    c->in[c->inputs].owned = false;
    c->in[c->inputs++].name = name;
}

/* A new input, zeroed; its data, or NULL after a failure. */
static void *make(calling *c, const char *name, dtype type, int axes, const int64_t *dim)
{
    engine_tensor *t = &c->in[c->inputs];
    *t = (engine_tensor){.name = name};
    if (!c->code && !(c->code = engine_make(t, type, axes, dim, c->err)))
        memset(t->data, 0, engine_bytes(t));
    c->inputs += !c->code;
    return c->code ? NULL : t->data;
}

/* Runs the part; out[0..outputs) have their names, and must come back with `count` numbers each. */
static void call(calling *c, export_part p, engine_tensor *out, const int64_t *count, int outputs)
{
    if (!c->code)
        c->code = engine_part_ready(c->im->model, p, c->err);
    if (!c->code)
        c->code = engine_run(c->im->model->parts->part[p], c->in, c->inputs, out, outputs, c->err);
    for (int i = 0; i < outputs && !c->code; i++)
        if (out[i].type != DT_F32 || engine_count(&out[i]) != count[i])
            c->code = fail(c->err, SAMITE_INPUT, "output %s of %s has another type or shape than expected: is it of the "
                           "same model?", out[i].name, export_part_name(p));
    for (int i = 0; i < c->inputs; i++)
        engine_tensor_free(&c->in[i]);
}

/* One output, copied. */
static void call_for(calling *c, export_part p, const char *name, float *to, int64_t count)
{
    engine_tensor out = {.name = name};
    call(c, p, &out, &count, 1);
    if (!c->code)
        memcpy(to, out.data, sizeof *to * (size_t)count);
    engine_tensor_free(&out);
}

/* [a, b] to [b, a] */
static void turn(float *out, const float *in, int64_t a, int64_t b)
{
    for (int64_t i = 0; i < a; i++)
        for (int64_t k = 0; k < b; k++)
            out[k * a + i] = in[i * b + k];
}

/* ---- what is asked ---- */

static int ground(void *user, const float *words, int tokens, const examples *x, grounded_elsewhere *out,
                  samite_error *err)
{
    samite_image *im = user;
    engine_found_free(&im->found);
    int code = engine_ground_values(im, words, tokens, x, &im->found, err);
    if (!code)
        *out = (grounded_elsewhere){im->found.logits, im->found.boxes, im->found.masks, im->found.presence,
                                    im->found.queries};
    return code;
}

static int look(void *user, const float *maps, const int *age, int map_count, const float *pointers,
                const float *distance, int pointer_count, float *out, samite_error *err)
{
    samite_image *im = user;
    const config *k = &im->model->n->net->c;
    int64_t t = config_tokens(k), n = t * t, most = im->model->parts->maps, places = im->model->parts->pointers;
    calling c = {.im = im, .err = err};
    engine_tensor seen = {.name = "image_embed"};
    if (map_count > most || pointer_count > places)
        return fail(err, SAMITE_INPUT, "memory_attention has places for %lld frames and %lld pointers, and %d and %d are "
                    "remembered: export it again", (long long)most, (long long)places, map_count, pointer_count);
    give(&c, &im->tracked[PLAIN], "pix_feat");
    float *m = make(&c, "memory_maps", DT_F32, 3, (int64_t[]){1, most * n, k->mem_dim});
    int64_t *ages = make(&c, "memory_ages", DT_I64, 1, &most);
    float *p = make(&c, "memory_pointers", DT_F32, 3, (int64_t[]){1, places, k->d});
    float *far = make(&c, "pointer_distances", DT_F32, 1, &places);
    if (!c.code) {
        memcpy(m, maps, sizeof *m * (size_t)(map_count * n * k->mem_dim));
        memcpy(p, pointers, sizeof *p * (size_t)(pointer_count * k->d));
        for (int i = 0; i < most; i++)
            ages[i] = i < map_count ? age[i] : -1;
        for (int i = 0; i < places; i++)
            far[i] = i < pointer_count ? distance[i] : -1;
    }
    call(&c, EXPORT_MEMORY_ATTENTION, &seen, (int64_t[]){n * k->d}, 1);
    if (!c.code)
        turn(out, seen.data, k->d, n);
    engine_tensor_free(&seen);
    return c.code;
}

static void give_points(calling *c, const clicks *points)
{
    int room = c->im->model->parts->points;
    int64_t n = room < 0 ? points->count : room;
    if (!c->code && points->count > n) {
        c->code = fail(c->err, SAMITE_INPUT, "%d points and corners: interactive_head takes %d; export it again with "
                       "--points %d, or --points dynamic", points->count, room, points->count);
        return;
    }
    if (!c->code && points->count < n)
        model_log(c->im->model, "interactive_head takes %lld points and got %d: places that are not used change the "
                  "answer; an export with --points dynamic has none", (long long)n, points->count);
    float *xy = make(c, "point_coords", DT_F32, 3, (int64_t[]){1, n, 2});
    int64_t *label = make(c, "point_labels", DT_I64, 2, (int64_t[]){1, n});
    for (int64_t i = 0; !c->code && i < n; i++) {
        label[i] = i < points->count ? points->kind[i] : POINT_NONE;
        for (int k = 0; i < points->count && k < 2; k++)
            xy[2 * i + k] = points->xy[2 * i + k];
    }
}

/* The picture as the object sees it. */
static void give_seen(calling *c, seen_as how, const float *seen)
{
    const config *k = &c->im->model->n->net->c;
    int64_t t = config_tokens(k);
    if (how != SEEN_BY_MEMORY) {
        give(c, &c->im->tracked[how == SEEN_PLAIN ? PLAIN : UNSEEN], "image_embed");
        return;
    }
    float *map = make(c, "image_embed", DT_F32, 4, (int64_t[]){1, k->d, t, t});
    if (map)
        turn(map, seen, t * t, k->d);
}

static int click(void *user, seen_as how, const float *seen, const clicks *points, const float *mask, guessed *out,
                 samite_error *err)
{
    samite_image *im = user;
    const config *k = &im->model->n->net->c;
    int64_t side = 4 * config_tokens(k), one = 1;
    int64_t count[] = {MASK_GUESSES * side * side, MASK_GUESSES, MASK_GUESSES * k->d, 1};
    float *to[] = {out->masks, out->overlap, out->tokens, out->object};
    bool none = points->count == 1 && points->kind[0] == POINT_NONE;
    calling c = {.im = im, .err = err};
    engine_tensor made[4] = {{.name = "masks"}, {.name = "iou_predictions"}, {.name = "object_tokens"},
                             {.name = "object_score_logits"}};
    give_seen(&c, how, seen);
    give(&c, &im->tracked[FINE0], names[FINE0]);
    give(&c, &im->tracked[FINE1], names[FINE1]);
    if (!none)
        give_points(&c, points);
    float *prior = make(&c, "mask_input", DT_F32, 4, (int64_t[]){1, 1, side, side});
    float *has = make(&c, "has_mask_input", DT_F32, 1, &one);
    if (!c.code && mask) {
        memcpy(prior, mask, sizeof *prior * (size_t)(side * side));
        *has = 1;
    }
    call(&c, none ? EXPORT_TRACKED_HEAD : EXPORT_CLICK, made, count, 4);
    for (int i = 0; i < 4; i++) {
        if (!c.code)
            memcpy(to[i], made[i].data, sizeof(float) * (size_t)count[i]);
        engine_tensor_free(&made[i]);
    }
    return c.code;
}

static void give_mask(calling *c, const float *mask)
{
    int64_t side = 16 * config_tokens(&c->im->model->n->net->c);
    float *to = make(c, "mask", DT_F32, 4, (int64_t[]){1, 1, side, side});
    if (to)
        memcpy(to, mask, sizeof *to * (size_t)(side * side));
}

static int encode(void *user, const float *mask, bool hidden, float *out, samite_error *err)
{
    samite_image *im = user;
    const config *k = &im->model->n->net->c;
    int64_t t = config_tokens(k), one = 1;
    calling c = {.im = im, .err = err};
    give(&c, &im->tracked[PLAIN], "pix_feat");
    give_mask(&c, mask);
    float *is = make(&c, "object_hidden", DT_F32, 1, &one);
    if (is)
        *is = hidden;
    call_for(&c, EXPORT_MEMORY_ENCODER, "memory", out, t * t * k->mem_dim);
    return c.code;
}

static int mask_prompt(void *user, const float *mask, float *out, samite_error *err)
{
    samite_image *im = user;
    int64_t side = 4 * config_tokens(&im->model->n->net->c);
    calling c = {.im = im, .err = err};
    give_mask(&c, mask);
    call_for(&c, EXPORT_MASK_PROMPT, "mask_input", out, side * side);
    return c.code;
}

static int pointers(void *user, const float *tokens, float score, float *out, samite_error *err)
{
    samite_image *im = user;
    int64_t d = im->model->n->net->c.d;
    calling c = {.im = im, .err = err};
    float *t = make(&c, "object_tokens", DT_F32, 3, (int64_t[]){1, MASK_GUESSES, d});
    float *s = make(&c, "object_score_logits", DT_F32, 2, (int64_t[]){1, 1});
    if (s) {
        if (tokens)
            memcpy(t, tokens, sizeof *t * (size_t)(MASK_GUESSES * d));
        *s = score;
    }
    call_for(&c, EXPORT_POINTERS, "object_pointers", out, MASK_GUESSES * d);
    return c.code;
}

static void set_up(samite_image *im)
{
    im->outside = (elsewhere){.user = im, .ground = ground, .look = look, .click = click, .encode = encode,
                              .mask_prompt = mask_prompt, .pointers = pointers, .no_pointer = im->no_pointer};
}

/* ---- pictures ---- */

void engine_tracked_free(samite_image *im)
{
    for (int i = 0; i < ENGINE_TRACKED; i++)
        engine_tensor_free(&im->tracked[i]);
}

/* im->clicks: what the tracker wants to know of shapes; the numbers lie as the engine has them and are not looked at. */
static int note_shapes(samite_image *im, samite_error *err)
{
    const config *k = &im->model->n->net->c;
    int64_t t = config_tokens(k), d = k->d;
    const int64_t expected[ENGINE_TRACKED] = {t * t * d, 2 * t * t * d, t * t * d, t * t * d};
    for (int i = 0; i < ENGINE_TRACKED; i++)
        if (im->tracked[i].data && (im->tracked[i].type != DT_F32 || engine_count(&im->tracked[i]) != expected[i]))
            return fail(err, SAMITE_INPUT, "output %s has another type or shape than expected: are all parts of one model?",
                        names[i]);
    float *at = im->tracked[UNSEEN].data;
    im->clicks = (click_image){
        .image = run_input(im->r, im->tracked[PLAIN].data ? im->tracked[PLAIN].data : at, 4, (int64_t[]){1, t, t, d}),
        .fine0 = run_input(im->r, im->tracked[FINE0].data, 3, (int64_t[]){4 * t, 4 * t, d / 8}),
        .fine1 = run_input(im->r, im->tracked[FINE1].data, 3, (int64_t[]){2 * t, 2 * t, d / 4}),
        .codes = run_input(im->r, at, 2, (int64_t[]){t * t, d}),
        .places = run_input(im->r, at, 2, (int64_t[]){t * t, d})};
    im->clicks_ready = true;
    set_up(im);
    return run_status(im->r, err);
}

static int run_into_tracked(samite_image *im, export_part p, const engine_tensor *in, int first, samite_error *err)
{
    int code = engine_part_ready(im->model, p, err);
    engine_tracked_free(im);
    for (int i = 0; i < ENGINE_TRACKED; i++)
        im->tracked[i] = (engine_tensor){.name = names[i]};
    if (!code)
        code = engine_run(im->model->parts->part[p], in, 1, im->tracked + first, ENGINE_TRACKED - first, err);
    return code ? code : note_shapes(im, err);
}

int engine_track_picture(samite_image *im, const engine_tensor *trunk, samite_error *err)
{
    return run_into_tracked(im, EXPORT_TRACKER_NECK, trunk, PLAIN, err);
}

int engine_clicks(samite_image *im, samite_error *err)
{
    static const export_part wanted[] = {EXPORT_CLICK_IMAGE, EXPORT_CLICK};
    engine_tensor in;
    int code = check_parts(im->model, wanted, 2, false, err);
    if (!code)
        code = engine_input(im, &in, err);
    if (code)
        return code;
    image_stage(im, "click", 1);
    code = run_into_tracked(im, EXPORT_CLICK_IMAGE, &in, FINE0, err);
    engine_tensor_free(&in);
    return code;
}

int engine_track_open(samite_image *im, samite_error *err)
{
    int64_t d = im->model->n->net->c.d;
    int code = engine_check_video(im->model, err);
    if (!code && !(im->no_pointer = malloc(sizeof(float) * (size_t)(MASK_GUESSES * d))))
        code = fail(err, SAMITE_RESOURCE, "not enough memory for a video session");
    if (!code)
        code = pointers(im, NULL, -1, im->no_pointer, err);
    set_up(im);
    return code;
}
