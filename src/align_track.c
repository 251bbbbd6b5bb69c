/* align_track.c - tracks prompted objects through the reference's clip and compares every frame. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "base/dtype.h"
#include "base/text.h"
#include "io/mask.h"
#include "io/preprocess.h"
#include "track/tracker.h"

#define MAX_FRAMES  64
#define MAX_OBJECTS 16
#define MAX_POINTS  16

/* Memories are stored as bf16 on both sides, and made from masks cut at 0: two units in its last place are no difference. */
#define BF16_STEP 0x1p-6
#define DECIDED_COSINE 0.995

/* Copies of what the tracker reads of one frame. */
typedef struct kept { float *image, *fine0, *fine1; } kept;

typedef struct clip {
    aligner      *a;
    samite_image *im;
    track_tables  tables;
    tracker       t;
    kept          frame[MAX_FRAMES];
    float        *places, *codes;      /* the same on all frames */
    int           frames;
    int           id[MAX_OBJECTS], objects;
} clip;

/* ---- the frames ---- */

static float *copy_values(const tensor *t)
{
    size_t bytes = sizeof(float) * (size_t)tensor_count(t);
    float *y = malloc(bytes);
    if (y)
        memcpy(y, t->data, bytes);
    return y;
}

static int keep_frame(clip *c, int f, samite_error *err)
{
    const click_image *x = &c->im->clicks;
    c->frame[f] = (kept){copy_values(x->image), copy_values(x->fine0), copy_values(x->fine1)};
    if (f == 0) {
        c->places = copy_values(x->places);
        c->codes = copy_values(x->codes);
    }
    if (!c->frame[f].image || !c->frame[f].fine0 || !c->frame[f].fine1 || !c->places || !c->codes)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d frames", c->frames);
    return 0;
}

static int encode_frame(clip *c, int f, samite_error *err)
{
    char name[40];
    snprintf(name, sizeof name, "frames/%d.png", f);
    char *path = path_join(c->a->o->reference, name);
    image_options o = IMAGE_OPTIONS_INIT;
    pixels p;
    int code = path ? image_read(&p, path, &o, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
    free(path);
    if (code)
        return code;
    c->im->width = p.width;
    c->im->height = p.height;
    code = preprocess(c->im->input, &p, c->im->model->n->net->c.image, err);
    pixels_free(&p);
    if (!code && !(code = image_encode(c->im, true, err)) && !(code = image_clicks(c->im, err)))
        code = keep_frame(c, f, err);
    return code;
}

/* The kept values of a frame as values of the run, which is emptied. */
static tracked_frame open_frame(clip *c, int f, click_image *x)
{
    run *r = c->im->r;
    int64_t t = config_tokens(&c->im->model->n->net->c), d = c->im->model->n->net->c.d;
    run_reset(r);
    c->im->clicks_ready = false;
    const kept *k = &c->frame[f];
    x->image = run_input(r, k->image, 4, (int64_t[]){1, t, t, d});
    x->fine0 = run_input(r, k->fine0, 3, (int64_t[]){4 * t, 4 * t, d / 8});
    x->fine1 = run_input(r, k->fine1, 3, (int64_t[]){2 * t, 2 * t, d / 4});
    x->codes = run_input(r, c->codes, 2, (int64_t[]){t * t, d});
    x->places = run_input(r, c->places, 2, (int64_t[]){t * t, d});
    return (tracked_frame){r, x, f};
}

/* ---- comparing ---- */

static int compare_video_masks(clip *c, const char *prefix, const moment *m, samite_error *err)
{
    int w = c->im->width, h = c->im->height, side = 4 * config_tokens(&c->im->model->n->net->c), code = 0;
    int64_t area = (int64_t)w * h;
    float *wide = malloc(sizeof *wide * (size_t)(c->objects * area));
    if (!wide)
        return fail(err, SAMITE_RESOURCE, "not enough memory to compare %d masks", c->objects);
    for (int i = 0; i < c->objects && !code; i++)
        code = mask_resize_bilinear(wide + i * area, w, h, m->mask + (int64_t)i * side * side, side, side, err);
    char name[96];
    snprintf(name, sizeof name, "%s.masks", prefix);
    if (!code)
        align_decided(c->a, name, wide, 4, (int64_t[]){c->objects, 1, h, w});
    free(wide);
    return code;
}

static int compare_memory(clip *c, const char *prefix, const moment *m, samite_error *err)
{
    const bank *b = &c->t.bank;
    int64_t t = config_tokens(&c->im->model->n->net->c), n = b->objects * b->tokens * b->width;
    float *values = malloc(sizeof *values * (size_t)n), *turned = malloc(sizeof *turned * (size_t)n);
    char name[96];
    snprintf(name, sizeof name, "%s.memory", prefix);
    if (values && turned) {
        dtype_to_f32(values, m->memory, DT_BF16, (size_t)n);
        for (int64_t i = 0; i < n; i++) {
            int64_t object = i / (b->tokens * b->width), place = i / b->width % b->tokens, channel = i % b->width;
            turned[(object * b->width + channel) * b->tokens + place] = values[i];
        }
        double limit = c->a->max_relative, cosine = c->a->min_cosine;
        c->a->max_relative = fmax(limit, BF16_STEP);
        if (c->a->min_side > 0)     /* made from masks that were decided first */
            c->a->min_cosine = fmin(cosine, DECIDED_COSINE);
        align_tensor(c->a, name, turned, 4, (int64_t[]){b->objects, b->width, t, t}, AS_IS);
        c->a->max_relative = limit;
        c->a->min_cosine = cosine;
    }
    bool ok = values && turned;
    free(values);
    free(turned);
    return ok ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to compare memories");
}

static int compare_moment(clip *c, const char *pass, const moment *m, samite_error *err)
{
    const bank *b = &c->t.bank;
    int64_t side = 4 * config_tokens(&c->im->model->n->net->c);
    char prefix[64], name[96];
    snprintf(prefix, sizeof prefix, "track.%.30s.%d", pass, (int)m->frame);
    snprintf(name, sizeof name, "%s.low_res", prefix);
    align_tensor(c->a, name, m->mask, 4, (int64_t[]){b->objects, 1, side, side}, AS_IS);
    snprintf(name, sizeof name, "%s.score", prefix);
    align_tensor(c->a, name, m->score, 2, (int64_t[]){b->objects, 1}, AS_IS);
    snprintf(name, sizeof name, "%s.ptr", prefix);
    align_tensor(c->a, name, m->pointer, 2, (int64_t[]){b->objects, b->d}, AS_IS);
    int code = compare_video_masks(c, prefix, m, err);
    return code ? code : compare_memory(c, prefix, m, err);
}

/* ---- prompts ---- */

static int object_index(clip *c, int id)
{
    for (int i = 0; i < c->objects; i++)
        if (c->id[i] == id)
            return i;
    if (c->objects == MAX_OBJECTS)
        return -1;
    c->id[c->objects] = id;
    return c->objects++;
}

/* {"pass": .., "frame": .., "object": .., "points": [[x, y], ..], "labels": [..], "box": [x0, y0, x1, y1]} */
static int run_prompt(clip *c, const json_t *p, samite_error *err)
{
    const json_t *points = json_object_get(p, "points"), *labels = json_object_get(p, "labels");
    const json_t *box = json_object_get(p, "box");
    float xy[2 * (MAX_POINTS + 2)], side = (float)c->im->model->n->net->c.image;
    int kind[MAX_POINTS + 2], n = 0, f = (int)json_integer_value(json_object_get(p, "frame"));
    int object = object_index(c, (int)json_integer_value(json_object_get(p, "object")));
    if (f < 0 || f >= c->frames || object < 0 || json_array_size(points) > MAX_POINTS)
        return fail(err, SAMITE_INPUT, "prompts.json: a prompt for frame %d of %d cannot be used", f, c->frames);
    for (; box && n < 2; n++) {
        for (int k = 0; k < 2; k++)
            xy[2 * n + k] = (float)json_number_value(json_array_get(box, (size_t)(2 * n + k))) * side;
        kind[n] = n ? POINT_CORNER2 : POINT_CORNER1;
    }
    for (size_t i = 0; i < json_array_size(points); i++, n++) {
        for (size_t k = 0; k < 2; k++)
            xy[2 * n + (int)k] = (float)json_number_value(json_array_get(json_array_get(points, i), k)) * side;
        kind[n] = json_number_value(json_array_get(labels, i)) != 0 ? POINT_POSITIVE : POINT_NEGATIVE;
    }
    click_image x;
    tracked_frame at = open_frame(c, f, &x);
    return tracker_click(&c->t, &at, object, xy, kind, n, NULL, err);
}

static bool in_pass(const json_t *p, const char *pass)
{
    const char *own = json_string_value(json_object_get(p, "pass"));
    return own && strcmp(own, pass) == 0;
}

/* Prompts of a pass, then its frames from the first prompted one to the end. */
static int run_pass(clip *c, const json_t *prompts, const char *pass, samite_error *err)
{
    const json_t *p;
    size_t i;
    int code = 0, start = c->frames;
    json_array_foreach(prompts, i, p) {
        if (code || !in_pass(p, pass))
            continue;
        int f = (int)json_integer_value(json_object_get(p, "frame"));
        start = f < start ? f : start;
        code = run_prompt(c, p, err);
    }
    for (int f = start; f < c->frames && !code; f++) {
        click_image x;
        tracked_frame at = open_frame(c, f, &x);
        const moment *m;
        code = tracker_settle(&c->t, &at, true, err);
        if (!code && !(code = tracker_step(&c->t, &at, &m, err)))
            code = compare_moment(c, pass, m, err);
    }
    return code;
}

static int run_clip(clip *c, const json_t *prompts, samite_error *err)
{
    static const char *const passes[] = {"first", "corrected"};
    const json_t *p;
    size_t i;
    int code = image_prepare(c->im, PARTS_TRACK, err);
    for (int f = 0; f < c->frames && !code; f++)
        code = encode_frame(c, f, err);
    json_array_foreach(prompts, i, p)
        object_index(c, (int)json_integer_value(json_object_get(p, "object")));
    if (!code && !(code = track_tables_make(&c->tables, c->im->model->n->net, err)))
        code = tracker_open(&c->t, &c->tables, c->objects, c->frames, err);
    for (int k = 0; k < 2 && !code; k++)
        code = run_pass(c, prompts, passes[k], err);
    return code;
}

int align_track(aligner *a, samite_image *im, const json_t *asked, samite_error *err)
{
    const json_t *track = json_object_get(asked, "track");
    json_int_t frames = json_integer_value(json_object_get(track, "frames"));
    if (!track)
        return 0;
    if (frames < 1 || frames > MAX_FRAMES)
        return fail(err, SAMITE_INPUT, "prompts.json: a clip of %lld frames, expected 1 to %d", (long long)frames,
                    MAX_FRAMES);
    clip *c = calloc(1, sizeof *c);
    if (!c)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d frames", (int)frames);
    *c = (clip){.a = a, .im = im, .frames = (int)frames};
    int code = run_clip(c, json_object_get(track, "prompts"), err);
    tracker_close(&c->t);
    track_tables_free(&c->tables);
    for (int f = 0; f < c->frames; f++) {
        free(c->frame[f].image);
        free(c->frame[f].fine0);
        free(c->frame[f].fine1);
    }
    free(c->places);
    free(c->codes);
    free(c);
    return code;
}
