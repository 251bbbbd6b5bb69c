/* api_features.c - encoded pictures in files: saved once, loaded for later prompts instead of encoding again. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "runtime/fingerprint.h"

#define KIND "samite.features"
#define KIND_VERSION "1"
#define FEATURES 4             /* trunk and three levels */
#define LARGEST_SIDE (1 << 20)

static const char *const names[FEATURES] = {"trunk", "level.0", "level.1", "level.2"};

/* Name and shape of feature i of a model. */
static weight describe(const sam3 *net, int i)
{
    int64_t t = config_tokens(&net->c), side = i ? t << (3 - i) : t;
    weight w = {.name = names[i], .type = DT_F32, .axes = 4, .dim = {1, side, side, i ? net->c.d : net->c.vit_dim}};
    weight_set_strides(&w);
    return w;
}

static tensor **place(encoded_image *e, int i)
{
    return i ? &e->level[i - 1] : &e->trunk;
}

static void model_text(char *out, size_t room, const native *n)
{
    snprintf(out, room, "%016" PRIx64, native_fingerprint(n));
}

/* ---- saving ---- */

static int put_feature(safetensors_writer *w, const weight *as, const tensor *t, samite_error *err)
{
    size_t count = (size_t)tensor_count(t);
    void *stored = as->type == DT_F32 ? NULL : malloc(count * dtype_size(as->type));
    if (as->type != DT_F32 && !stored)
        return fail(err, SAMITE_RESOURCE, "not enough memory to write %s", as->name);
    if (stored)
        dtype_from_f32(stored, as->type, t->data, count);
    safetensors_put(w, stored ? stored : t->data, weight_bytes(as));
    free(stored);
    return SAMITE_OK;
}

/* Features, then the picture if there is one. */
static int put_all(safetensors_writer *w, const samite_image *im, const weight *plan, int features,
                   const samite_pixels *pixels, samite_error *err)
{
    encoded_image e = im->encoded;
    int code = SAMITE_OK;
    for (int i = 0; i < features && !code; i++)
        code = put_feature(w, &plan[i], *place(&e, i + FEATURES - features), err);
    if (!code && pixels)
        safetensors_put(w, pixels->rgb, 3 * (size_t)pixels->width * (size_t)pixels->height);
    if (!code)
        return safetensors_commit(w, err);
    safetensors_abort(w);
    return code;
}

static int save(const samite_image *im, const char *path, dtype type, const samite_pixels *pixels, samite_error *err)
{
    const native *n = im->model->n;
    weight plan[FEATURES + 1];
    int first = im->encoded.trunk ? 0 : 1, count = 0;
    for (int i = first; i < FEATURES; i++, count++) {
        plan[count] = describe(n->net, i);
        plan[count].type = type;
    }
    int features = count;
    if (pixels) {
        plan[count] = (weight){.name = "rgb", .type = DT_U8, .axes = 3, .dim = {pixels->height, pixels->width, 3}};
        weight_set_strides(&plan[count++]);
    }
    char model[32], width[16], height[16], side[16];
    model_text(model, sizeof model, n);
    snprintf(width, sizeof width, "%d", im->width);
    snprintf(height, sizeof height, "%d", im->height);
    snprintf(side, sizeof side, "%d", n->net->c.image);
    const char *const pairs[][2] = {
        {KIND, KIND_VERSION}, {"samite.model", model}, {"samite.width", width}, {"samite.height", height},
        {"samite.side", side}, {"samite.preprocess", "rgb, bilinear with antialias to side x side, mean 0.5, std 0.5"},
    };
    text_pair meta[sizeof pairs / sizeof *pairs];
    for (size_t i = 0; i < sizeof meta / sizeof *meta; i++)
        meta[i] = (text_pair){(char *)(uintptr_t)pairs[i][0], (char *)(uintptr_t)pairs[i][1]};
    safetensors_writer w;
    int code = safetensors_create(&w, path, plan, (size_t)count, meta, sizeof meta / sizeof *meta, err);
    return code ? code : put_all(&w, im, plan, features, pixels, err);
}

int samite_image_save(const samite_image *im, const char *path, const char *type, const samite_pixels *pixels,
                      samite_error *err)
{
    static const dtype types[] = {DT_F16, DT_BF16, DT_F32};
    if (!im || !path)
        return fail(err, SAMITE_USAGE, "samite_image_save: no picture or no path given");
    if (im->model->parts)
        return fail(err, SAMITE_USAGE, "%s: features of another engine cannot be saved; use the native one", path);
    if (!im->encoded.begun)
        return fail(err, SAMITE_USAGE, "%s: no picture is encoded", path);
    if (pixels && (!pixels->rgb || pixels->width != im->width || pixels->height != im->height))
        return fail(err, SAMITE_USAGE, "%s: the picture to keep has %d x %d pixels, the encoded one %d x %d", path,
                    pixels->width, pixels->height, im->width, im->height);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!type || strcmp(type, dtype_name(types[i])) == 0)
            return save(im, path, types[i], pixels, err);
    return fail(err, SAMITE_USAGE, "type '%s' is unknown: f16, bf16 or f32", type);
}

/* ---- loading ---- */

static const char *note_of(const tensor_list *l, const char *key)
{
    for (size_t i = 0; i < l->note_count; i++)
        if (strcmp(l->notes[i].key, key) == 0)
            return l->notes[i].value;
    return "";
}

static const weight *find(const tensor_list *l, const char *name)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->items[i].name, name) == 0)
            return &l->items[i];
    return NULL;
}

static bool read_side(int *out, const char *digits)
{
    char *end;
    long n = strtol(digits, &end, 10);
    *out = (int)n;
    return *digits >= '1' && *digits <= '9' && !*end && n > 0 && n <= LARGEST_SIDE;
}

/* Is this a file of ours, of this model and side? Fills the size of the picture. */
static int check_notes(samite_image *im, const tensor_list *l, const char *path, samite_error *err)
{
    const native *n = im->model->n;
    char model[32];
    int side;
    const char *version = note_of(l, KIND);
    if (!*version)
        return fail(err, SAMITE_INPUT, "%s: holds no encoded picture; samite encode writes such files", path);
    if (strcmp(version, KIND_VERSION) != 0)
        return fail(err, SAMITE_INPUT, "%s: an encoded picture of version %.20s, expected %s; encode the picture again",
                    path, version, KIND_VERSION);
    if (!read_side(&im->width, note_of(l, "samite.width")) || !read_side(&im->height, note_of(l, "samite.height")) ||
        !read_side(&side, note_of(l, "samite.side")))
        return fail(err, SAMITE_INPUT, "%s: the sizes in its metadata are damaged; encode the picture again", path);
    model_text(model, sizeof model, n);
    if (strcmp(model, note_of(l, "samite.model")) != 0)
        return fail(err, SAMITE_INPUT, "%s: was encoded by another model (%.20s) than %s (%s); encode the picture again",
                    path, note_of(l, "samite.model"), n->source, model);
    if (side != n->net->c.image)
        return fail(err, SAMITE_INPUT, "%s: was encoded with an input side of %d, this model runs with %d; use --size %d",
                    path, side, n->net->c.image, side);
    return SAMITE_OK;
}

static int check_feature(const weight *w, const weight *expected, const char *path, samite_error *err)
{
    bool same = w->axes == expected->axes && (w->type == DT_F16 || w->type == DT_BF16 || w->type == DT_F32);
    for (int i = 0; i < expected->axes && same; i++)
        same = w->dim[i] == expected->dim[i];
    char a[96], b[96];
    return same ? SAMITE_OK
                : fail(err, SAMITE_INPUT, "%s: %s is %s %s, expected f16, bf16 or f32 %s; encode the picture again", path,
                       w->name, dtype_name(w->type), weight_shape(w, a, sizeof a), weight_shape(expected, b, sizeof b));
}

static bool all_finite(const tensor *t)
{
    int64_t n = tensor_count(t), wrong = 0;
#pragma omp parallel for schedule(static) reduction(+ : wrong)
    for (int64_t i = 0; i < n; i++)
        wrong += !isfinite(t->data[i]);
    return wrong == 0;
}

static int read_features(samite_image *im, const tensor_list *l, const char *path, samite_error *err)
{
    const native *n = im->model->n;
    encoded_image e = {0};
    int code = SAMITE_OK;
    for (int i = 0; i < FEATURES && !code; i++) {
        const weight *w = find(l, names[i]), expected = describe(n->net, i);
        if (!w && i == 0 && !native_has(n, PARTS_CLICK))
            continue;
        if (!w)
            return fail(err, SAMITE_INPUT, "%s: %s is missing; encode the picture again", path, names[i]);
        if ((code = check_feature(w, &expected, path, err)))
            return code;
        tensor *t = *place(&e, i) = run_constant(im->r, w->axes, w->dim);
        if ((code = run_status(im->r, err)))
            return code;
        weight_to_f32(t->data, w);
        if (!all_finite(t))
            code = fail(err, SAMITE_INPUT, "%s: %s has values that are no numbers; encode the picture again", path,
                        names[i]);
    }
    if (code || (code = image_prepare(im, 1u << PART_FUSION, err)))
        return code;
    size_t mark = run_mark(im->r);
    sam3_encode_levels(im->r, n->net, &e);
    run_keep_all(im->r, mark, (tensor *[]){e.codes, e.begun}, 2);
    im->encoded = e;
    return run_status(im->r, err);
}

/* The picture in the file, if it is there. */
static int read_pixels(samite_pixels *out, const samite_image *im, const tensor_list *l, const char *path,
                       samite_error *err)
{
    const weight *w = find(l, "rgb");
    *out = (samite_pixels){.width = im->width, .height = im->height, .exif_orientation = 1, .exif_applied = 1};
    if (!w)
        return SAMITE_OK;
    if (w->type != DT_U8 || w->axes != 3 || w->dim[0] != im->height || w->dim[1] != im->width || w->dim[2] != 3)
        return fail(err, SAMITE_INPUT, "%s: the picture in it is damaged; encode it again", path);
    out->rgb = malloc(weight_bytes(w));
    if (!out->rgb)
        return fail(err, SAMITE_RESOURCE, "%s: not enough memory for a picture of %d x %d", path, im->width, im->height);
    weight_copy(out->rgb, w);
    return SAMITE_OK;
}

static int load(samite_image *im, const file_map *file, samite_pixels *pixels, samite_error *err)
{
    tensor_list list = {0};
    int code = safetensors_detect(file->data, file->size)
                   ? safetensors_read(&list, file->data, file->size, file->path, err)
                   : fail(err, SAMITE_INPUT, "%s: is no .safetensors file; samite encode writes such files", file->path);
    if (!code)
        code = check_notes(im, &list, file->path, err);
    if (!code)
        code = read_features(im, &list, file->path, err);
    if (!code && pixels)
        code = read_pixels(pixels, im, &list, file->path, err);
    tensor_list_free(&list);
    return code;
}

int samite_image_load(samite_image **out, samite_model *m, const char *path, samite_pixels *pixels, samite_error *err)
{
    if (!out || !m || !path)
        return fail(err, SAMITE_USAGE, "samite_image_load: no model or no path given");
    *out = NULL;
    if (pixels)
        *pixels = (samite_pixels){0};
    if (m->parts)
        return fail(err, SAMITE_USAGE, "%s: encoded pictures can be loaded with the native engine only", path);
    file_map file;
    samite_image *im;
    int code = file_map_open(&file, path, err);
    if (code)
        return code;
    if (!(code = image_new(&im, m, err))) {
        image_stage(im, "load", 1);
        code = load(im, &file, pixels, err);
        if (code)
            samite_image_free(im);
        else
            *out = im;
    }
    file_map_close(&file);
    return code;
}
