/* scene_world.c - sprites from their file in smaller and smaller sizes, drawn shapes, and all names. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/safetensors.h"
#include "train/scene.h"

#define SHAPE_SIDE 96
#define LARGEST_SPRITE 1024

static const char *const colour_names[SCENE_COLOURS] = {"red", "green", "blue", "yellow", "purple", "white", "black"};
static const char *const shape_names[SCENE_SHAPES] = {"circle", "square", "triangle", "star", "heart"};

/* ---- sizes ---- */

static void sprite_free(sprite *s)
{
    for (int i = 0; i < SPRITE_LEVELS; i++)
        free(s->rgba[i]);
}

/* Levels 1 .. from level 0: means of four pixels. */
static bool make_levels(sprite *s)
{
    for (int l = 1; l < SPRITE_LEVELS; l++) {
        int w = s->width[l - 1], to_w = (w + 1) / 2, h = s->height[l - 1], to_h = (h + 1) / 2;
        s->width[l] = to_w;
        s->height[l] = to_h;
        s->rgba[l] = malloc(4 * (size_t)to_w * (size_t)to_h);
        for (int i = 0; s->rgba[l] && i < to_w * to_h * 4; i++) {
            int x = i / 4 % to_w * 2, y = i / 4 / to_w * 2, sum = 2;
            for (int k = 0; k < 4; k++) {
                int px = x + (k & 1), py = y + (k >> 1);
                if (px < w && py < h)
                    sum += s->rgba[l - 1][4 * (py * w + px) + i % 4];
            }
            s->rgba[l][i] = (uint8_t)(sum / 4);
        }
        if (!s->rgba[l])
            return false;
    }
    return true;
}

static bool take_pixels(sprite *s, const weight *t)
{
    const uint8_t *in = t->data;
    int n = (int)(t->dim[0] * t->dim[1]);
    s->height[0] = (int)t->dim[0];
    s->width[0] = (int)t->dim[1];
    s->rgba[0] = malloc(4 * (size_t)n);
    for (int i = 0; s->rgba[0] && i < 4 * n; i++)
        s->rgba[0][i] = (uint8_t)(i % 4 == 3 ? in[i] : (in[i] * in[i / 4 * 4 + 3] + 127) / 255);
    return s->rgba[0] && make_levels(s);
}

/* ---- shapes ---- */

/* In a square from -1 to 1, y downwards. */
static bool inside_star(float x, float y)
{
    const float slice = 6.2831853f / 5;
    float r = sqrtf(x * x + y * y), a = fabsf(fmodf(atan2f(x, -y) + 5.5f * slice, slice) - slice / 2);
    /* between a tip (radius 1, angle 0) and a notch (radius 0.42, half a slice) */
    float px = r * cosf(a), py = r * sinf(a), nx = 0.42f * cosf(slice / 2), ny = 0.42f * sinf(slice / 2);
    return (px - 1) * ny - py * (nx - 1) <= 0;
}

static bool inside(int shape, float x, float y)
{
    float v = 0.15f - 1.15f * y, u = 1.15f * x, a;
    switch (shape) {
    case 0: return x * x + y * y <= 1;
    case 1: return true;
    case 2: return fabsf(x) <= (y + 1) / 2;
    case 3: return inside_star(x, y);
    default: a = u * u + v * v - 1; return a * a * a - u * u * v * v * v <= 0;
    }
}

static bool make_shape(sprite *s, int shape)
{
    s->width[0] = s->height[0] = SHAPE_SIDE;
    s->rgba[0] = calloc(4, (size_t)SHAPE_SIDE * SHAPE_SIDE);
    for (int i = 0; s->rgba[0] && i < SHAPE_SIDE * SHAPE_SIDE; i++) {
        int hits = 0;
        for (int k = 0; k < 16; k++) {
            float x = ((float)(i % SHAPE_SIDE) + (float)(k % 4) / 4 + 0.125f) * 2 / SHAPE_SIDE - 1;
            float y = ((float)(i / SHAPE_SIDE) + (float)(k / 4) / 4 + 0.125f) * 2 / SHAPE_SIDE - 1;
            hits += inside(shape, x, y);
        }
        s->rgba[0][4 * i + 3] = (uint8_t)(hits * 255 / 16);
    }
    return s->rgba[0] && make_levels(s);
}

/* ---- the file ---- */

/* "held/NAME/I" or "NAME/I": where the name begins and how long it is; 0: neither. */
static size_t name_of(const char *tensor, const char **name, bool *held)
{
    *held = starts_with(tensor, "held/");
    *name = tensor + (*held ? strlen("held/") : 0);
    const char *slash = strrchr(*name, '/');
    return slash ? (size_t)(slash - *name) : 0;
}

static int find_name(const scene_world *w, const char *name, size_t length)
{
    for (int i = 0; i < w->name_count; i++)
        if (strlen(w->names[i].name) == length && memcmp(w->names[i].name, name, length) == 0)
            return i;
    return -1;
}

static int count_names(scene_world *w, const tensor_list *l, samite_error *err)
{
    for (size_t i = 0; i < l->count; i++) {
        const weight *t = &l->items[i];
        const char *name;
        bool held;
        size_t length = name_of(t->name, &name, &held);
        if (!length || t->type != DT_U8 || t->axes != 3 || t->dim[2] != 4 || t->dim[0] < 1 || t->dim[1] < 1 ||
            t->dim[0] > LARGEST_SPRITE || t->dim[1] > LARGEST_SPRITE || !weight_contiguous(t))
            return fail(err, SAMITE_INPUT, "%s: tensor %s is no sprite: expected NAME/I, u8 [height, width, 4]; write the "
                        "file with tools/make_sprites.py", w->path, t->name);
        int at = find_name(w, name, length);
        if (at < 0) {
            at = w->name_count;
            if (!(w->names[at].name = strndup(name, length)))
                return fail(err, SAMITE_RESOURCE, "out of memory");
            w->name_count++;
        }
        w->names[at].count++;
        w->names[at].held += held;
    }
    return w->name_count ? 0 : fail(err, SAMITE_INPUT, "%s holds no sprite", w->path);
}

static int take_sprites(scene_world *w, const tensor_list *l, samite_error *err)
{
    int *shown = calloc((size_t)w->name_count * 2, sizeof *shown), first = 0;
    for (int i = 0; i < w->name_count; first += w->names[i++].count)
        w->names[i].first = first;
    for (size_t i = 0; shown && i < l->count; i++) {
        const char *name;
        bool held;
        size_t length = name_of(l->items[i].name, &name, &held);
        int at = find_name(w, name, length), *next = &shown[2 * at + held];
        const sprite_name *n = &w->names[at];
        sprite *s = &w->sprites[n->first + (held ? n->count - n->held : 0) + (*next)++];
        s->held = held;
        if (!take_pixels(s, &l->items[i])) {
            free(shown);
            shown = NULL;
        }
    }
    bool ok = shown != NULL;
    free(shown);
    return ok ? 0 : fail(err, SAMITE_RESOURCE, "%s: not enough memory for %d sprites", w->path, w->sprite_count);
}

static int name_prompts(scene_world *w, samite_error *err)
{
    w->classes = w->name_count + SCENE_COLOURS * SCENE_SHAPES;
    w->prompts = w->classes + SCENE_SHAPES;
    w->prompt = calloc((size_t)w->prompts, sizeof *w->prompt);
    bool ok = w->prompt != NULL;
    for (int i = 0; ok && i < w->prompts; i++) {
        int k = i - w->name_count;
        if (k < 0)
            w->prompt[i] = text_copy(w->names[i].name);
        else if (i >= w->classes)
            w->prompt[i] = text_copy(shape_names[i - w->classes]);
        else if (asprintf(&w->prompt[i], "%s %s", colour_names[k / SCENE_SHAPES], shape_names[k % SCENE_SHAPES]) < 0)
            w->prompt[i] = NULL;
        ok = w->prompt[i] != NULL;
    }
    for (int i = 0; ok && i < SCENE_SHAPES; i++)
        ok = make_shape(&w->shape[i], i);
    return ok ? 0 : fail(err, SAMITE_RESOURCE, "%s: not enough memory for its names", w->path);
}

static int read_list(scene_world *w, const tensor_list *l, samite_error *err)
{
    w->sprites = calloc(l->count + 1, sizeof *w->sprites);
    w->names = calloc(l->count + 1, sizeof *w->names);
    w->sprite_count = (int)l->count;
    int code = w->sprites && w->names ? count_names(w, l, err)
                                      : fail(err, SAMITE_RESOURCE, "%s: not enough memory for its sprites", w->path);
    if (!code)
        code = take_sprites(w, l, err);
    return code ? code : name_prompts(w, err);
}

int scene_world_open(scene_world *w, const char *path, samite_error *err)
{
    file_map map;
    tensor_list list = {0};
    *w = (scene_world){.path = text_copy(path)};
    int code = w->path ? file_map_open(&map, path, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    if (!code) {
        code = safetensors_read(&list, map.data, map.size, path, err);
        if (!code)
            code = read_list(w, &list, err);
        tensor_list_free(&list);
        file_map_close(&map);
    }
    if (code)
        scene_world_close(w);
    return code;
}

void scene_world_close(scene_world *w)
{
    for (int i = 0; i < w->sprite_count && w->sprites; i++)
        sprite_free(&w->sprites[i]);
    for (int i = 0; i < w->name_count; i++)
        free(w->names[i].name);
    for (int i = 0; i < w->prompts && w->prompt; i++)
        free(w->prompt[i]);
    for (int i = 0; i < SCENE_SHAPES; i++)
        sprite_free(&w->shape[i]);
    free(w->sprites), free(w->names), free(w->prompt), free(w->path);
    *w = (scene_world){0};
}
