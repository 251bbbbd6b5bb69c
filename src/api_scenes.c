/* api_scenes.c - made-up scenes as a COCO data set: pictures, boxes, masks, and which prompts to ask of each. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "io/image.h"
#include "io/mask.h"
#include "train/random.h"
#include "train/scene_batch.h"

#define MOST_ASKED 48

typedef struct writing {
    const samite_scenes_options *o;
    scene_world world;
    char       *pictures;          /* folder */
    json_t     *images, *annotations, *categories;
    uint8_t    *mask;              /* of one object */
    int64_t     objects;
} writing;

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "not enough memory for scenes");
}

/* What is true of the scene, and as many prompts that are not. */
static json_t *asked(const writing *w, const scene *s, uint64_t seed)
{
    int prompt[MOST_ASKED], known = 0;
    dice d = {random_mix(seed + 1), 0};
    json_t *list = json_array();
    for (int i = 0; i < w->world.prompts; i++) {
        bool there = false;
        for (int k = 0; k < s->objects; k++)
            there |= scene_true(&w->world, s->class[k], i);
        if (there && known < MOST_ASKED / 2)
            prompt[known++] = i;
    }
    int n = scene_false_prompts(&w->world, s, &d, prompt, known, 2 * known);
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(prompt[i] + 1));
    return list;
}

/* One object under one name. */
static int add_annotation(writing *w, const scene *s, int image, int prompt, samite_error *err)
{
    rle r = {0};
    char *counts = NULL;
    double box[4];
    int code = rle_encode(&r, w->mask, s->side, s->side, err);
    if (!code)
        code = rle_to_string(&counts, &r, err);
    if (!code) {
        rle_bbox(box, &r);
        json_t *j = json_pack("{s:I, s:i, s:i, s:[f,f,f,f], s:I, s:i, s:{s:[i,i], s:s}, s:s}", "id",
                              (json_int_t)++w->objects, "image_id", image + 1, "category_id", prompt + 1, "bbox", box[0],
                              box[1], box[2], box[3], "area", (json_int_t)rle_area(&r), "iscrowd", 0, "segmentation",
                              "size", s->side, s->side, "counts", counts, "noun_phrase", w->world.prompt[prompt]);
        code = json_array_append_new(w->annotations, j) ? no_memory(err) : 0;
    }
    free(counts);
    rle_free(&r);
    return code;
}

static int add_objects(writing *w, const scene *s, int image, samite_error *err)
{
    int area = s->side * s->side, code = 0;
    for (int k = 0; k < s->objects && !code; k++) {
        for (int i = 0; i < area; i++)
            w->mask[i] = s->owner[i] == k + 1;
        for (int i = 0; i < w->world.prompts && !code; i++)
            if (scene_true(&w->world, s->class[k], i))
                code = add_annotation(w, s, image, i, err);
    }
    return code;
}

static int write_scene(writing *w, int image, samite_error *err)
{
    scene s;
    char name[32];
    uint64_t seed = random_at(w->o->seed, RANDOM_SHOWN, 0, (uint64_t)image);
    scene_options o = {.side = w->o->side, .least = w->o->crowded ? 5 : 1, .most = w->o->crowded ? SCENE_MOST : 6,
                       .all_differ = w->o->crowded, .held = w->o->held};
    int code = scene_make(&s, &w->world, &o, seed, err);
    if (code)
        return code;
    snprintf(name, sizeof name, "%06d.png", image + 1);
    char *path = path_join(w->pictures, name);
    json_t *j = json_pack("{s:i, s:s, s:i, s:i, s:o}", "id", image + 1, "file_name", name, "width", s.side, "height",
                          s.side, "prompts", asked(w, &s, seed));
    if (!path || !j || json_array_append_new(w->images, j))
        code = no_memory(err);
    if (!code)
        code = image_write_png(path, &(png_image_data){s.side, s.side, PNG_RGB8, s.rgb, NULL, 0}, err);
    if (!code)
        code = add_objects(w, &s, image, err);
    free(path);
    scene_free(&s);
    return code;
}

static int write_json(const writing *w, const char *folder, samite_error *err)
{
    char *path = path_join(folder, "instances.json");
    json_t *o = json_pack("{s:O, s:O, s:O}", "images", w->images, "annotations", w->annotations, "categories",
                          w->categories);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    file_writer f;
    int code = path && text ? file_writer_open(&f, path, err) : no_memory(err);
    if (!code) {
        file_write(&f, text, strlen(text));
        code = file_writer_commit(&f, err);
    }
    free(text);
    free(path);
    json_decref(o);
    return code;
}

static int open_writing(writing *w, const char *folder, samite_error *err)
{
    int code = scene_world_open(&w->world, w->o->sprites, err);
    if (code)
        return code;
    w->images = json_array();
    w->annotations = json_array();
    w->categories = json_array();
    w->pictures = path_join(folder, "pictures");
    w->mask = malloc((size_t)w->o->side * (size_t)w->o->side);
    for (int i = 0; i < w->world.prompts; i++)
        json_array_append_new(w->categories, json_pack("{s:i, s:s}", "id", i + 1, "name", w->world.prompt[i]));
    return w->pictures && w->mask ? make_folders(w->pictures, err) : no_memory(err);
}

int samite_scenes(const samite_scenes_options *o, const char *folder, samite_error *err)
{
    samite_scenes_options own = SAMITE_SCENES_OPTIONS_INIT;
    if (!o || !o->sprites || !folder)
        return fail(err, SAMITE_USAGE, "samite_scenes: a sprite file and a folder are needed");
    memcpy(&own, o, o->size < sizeof own ? o->size : sizeof own);
    if (own.side < 32 || own.side > 4096 || own.count < 1 || own.count > 1000000)
        return fail(err, SAMITE_USAGE, "scenes of %d pixels, %d of them: sides are 32 to 4096, and at most 1000000 are made",
                    own.side, own.count);
    writing w = {.o = &own};
    int code = open_writing(&w, folder, err);
    for (int i = 0; i < own.count && !code; i++)
        code = write_scene(&w, i, err);
    if (!code)
        code = write_json(&w, folder, err);
    json_decref(w.images);
    json_decref(w.annotations);
    json_decref(w.categories);
    free(w.pictures), free(w.mask);
    scene_world_close(&w.world);
    return code;
}
