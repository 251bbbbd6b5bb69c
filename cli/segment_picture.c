/* segment_picture.c - one picture: read, encode once, ask every prompt, order what was found. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "segment.h"

#define READ_IN_PARTS ((uint64_t)64 << 20)     /* pixels from which a TIFF is not held in memory */

int prompts_make(prompts *p, const segment_settings *s, samite_error *err)
{
    *p = (prompts){0};
    bool click = click_wanted(&s->click), words = s->texts.count || s->boxes.count || s->everything.on;
    if (!words && !click)
        return fail(err, SAMITE_USAGE,
                    "nothing to look for: give --text \"a word\" (repeatable), --like X0,Y0,X1,Y1 or --point X,Y");
    if (s->texts.count > 1 && s->boxes.count > 0)
        return fail(err, SAMITE_USAGE, "--like and --unlike go with one --text at most, and there are %d; run once per "
                    "text or leave the boxes out", s->texts.count);
    int count = s->texts.count ? s->texts.count : words;
    p->prompt = calloc((size_t)count + 1, sizeof *p->prompt);
    p->names = calloc((size_t)count + 1, sizeof *p->names);
    if (!p->prompt || !p->names)
        return fail(err, SAMITE_RESOURCE, "out of memory for %d prompts", count);
    p->count = count;
    for (int i = 0; i < count; i++) {
        samite_prompt one = SAMITE_PROMPT_INIT;
        one.text = s->texts.count ? s->texts.item[i] : NULL;
        one.boxes = s->boxes.item;
        one.box_count = s->boxes.count;
        one.score = (float)s->score;
        one.max_results = s->most;
        one.nms = (float)s->nms;
        p->prompt[i] = one;
        p->names[i] = s->everything.on ? "object" : one.text ? one.text : "visual";
    }
    p->everything = s->everything.on ? &s->everything : NULL;
    p->tile = s->tile;
    p->overlap = s->overlap >= 0 ? s->overlap : s->tile / 8;
    p->click = click ? &s->click : NULL;
    p->names[count] = "object";
    p->name_count = count + (click && !click_refines(&s->click));
    return SAMITE_OK;
}

void prompts_free(prompts *p)
{
    free(p->prompt);
    free(p->names);
    *p = (prompts){0};
}

/* With windows, a TIFF that takes much memory is read in parts, if it is of a kind that can be. */
static bool open_raster(picture *p, const segment_settings *s)
{
    int width, height;
    if (!s->tile || strcmp(p->in->path, "-") == 0 || samite_raster_open(&p->raster, p->in->path, NULL))
        return false;
    samite_raster_size(p->raster, &width, &height);
    if ((uint64_t)width * (uint64_t)height < READ_IN_PARTS) {
        samite_raster_free(p->raster);
        p->raster = NULL;
        return false;
    }
    p->pixels = (samite_pixels){.width = width, .height = height, .exif_orientation = 1, .exif_applied = 1};
    return true;
}

/* Does every example box end inside the picture? */
static int check_boxes(const picture *p, const segment_settings *s, samite_error *err)
{
    for (int i = 0; i < s->boxes.count; i++) {
        const samite_box *b = &s->boxes.item[i];
        if (b->x1 > (float)p->pixels.width || b->y1 > (float)p->pixels.height)
            return fail(err, SAMITE_USAGE, "%s: %s %g,%g,%g,%g reaches outside the picture, which has %d x %d pixels",
                        p->in->path, b->negative ? "--unlike" : "--like", b->x0, b->y0, b->x1, b->y1, p->pixels.width,
                        p->pixels.height);
    }
    return SAMITE_OK;
}

int picture_read(picture *p, const segment_settings *s, samite_error *err)
{
    p->encoded = ends_with(p->in->path, ".safetensors");
    if (p->encoded && (s->tile || (s->everything.on && s->everything.crops)))
        return fail(err, SAMITE_USAGE, "%s holds a picture that is encoded as a whole: %s needs the picture itself",
                    p->in->path, s->tile ? "--tile" : "--crops");
    if (p->encoded || open_raster(p, s))
        return SAMITE_OK;
    int code = samite_pixels_read(&p->pixels, p->in->path, s->no_exif ? SAMITE_NO_EXIF : 0, err);
    if (code) {
        p->pixels = (samite_pixels){0};
        return code;
    }
    return check_boxes(p, s, err);
}

int picture_load(picture *p, samite_image **image, samite_model *model, const segment_settings *s, samite_error *err)
{
    samite_image_free(*image);
    *image = NULL;
    int code = samite_image_load(image, model, p->in->path, &p->pixels, err);
    return code ? code : check_boxes(p, s, err);
}

static int by_score(const void *a, const void *b)
{
    const samite_object *x = a, *y = b;
    if (x->instance->score != y->instance->score)
        return x->instance->score > y->instance->score ? -1 : 1;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return x->instance < y->instance ? -1 : x->instance > y->instance;
}

static int order_objects(picture *p, const prompts *ask, samite_error *err)
{
    size_t total = 0;
    for (int i = 0; i < ask->count; i++)
        total += (size_t)p->result[i]->count;
    p->object = calloc(total + 1, sizeof *p->object);
    if (!p->object)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory for %zu objects", p->in->path, total);
    for (int i = 0; i < ask->count; i++)
        for (int k = 0; k < p->result[i]->count; k++)
            p->object[p->objects++] = (samite_object){&p->result[i]->instance[k], i};
    qsort(p->object, (size_t)p->objects, sizeof *p->object, by_score);
    return SAMITE_OK;
}

static int find_everything(picture *p, samite_image *image, const everything_settings *e, int most, samite_error *err)
{
    samite_everything o = SAMITE_EVERYTHING_INIT;
    o.points = e->points;
    o.crops = e->crops;
    o.overlap = (float)e->overlap;
    o.stability = (float)e->stability;
    o.duplicate = (float)e->duplicate;
    o.max_results = most;
    return samite_image_everything(image, e->crops ? &p->pixels : NULL, &o, &p->result[0], err);
}

/* Through windows; all prompts at once. */
static int segment_tiled(picture *p, samite_model *model, const prompts *ask, samite_error *err)
{
    samite_tiles o = SAMITE_TILES_INIT;
    o.pixels = p->raster ? NULL : &p->pixels;
    o.raster = p->raster;
    o.tile = ask->tile;
    o.overlap = ask->overlap;
    int code = samite_segment_tiled(model, &o, ask->prompt, ask->count, p->result, err);
    return code ? code : order_objects(p, ask, err);
}

int picture_segment(picture *p, samite_image **image, samite_model *model, const prompts *ask, samite_error *err)
{
    p->result = calloc((size_t)ask->count + 1, sizeof *p->result);
    if (!p->result)
        return fail(err, SAMITE_RESOURCE, "out of memory for %d results", ask->count);
    if (ask->tile)
        return segment_tiled(p, model, ask, err);
    progress_prompt(0, ask->count);
    int code = SAMITE_OK;
    if (!p->encoded)
        code = *image ? samite_image_replace(*image, &p->pixels, err)
                      : samite_image_open(image, model, &p->pixels, err);
    for (int i = 0; i < ask->count && !code; i++) {
        progress_prompt(i, ask->count);
        code = ask->everything
                   ? find_everything(p, *image, ask->everything, ask->prompt[i].max_results, err)
                   : samite_image_segment(*image, &ask->prompt[i], &p->result[i], err);
        if (!code)
            code = check_interrupt(err);
    }
    if (!code)
        code = order_objects(p, ask, err);
    if (!code && ask->click)
        code = picture_click(p, *image, ask->click, ask->count, err);
    if (code) {                     /* the next picture starts afresh */
        samite_image_free(*image);
        *image = NULL;
    }
    return code;
}

samite_page picture_page(const picture *p, const prompts *ask)
{
    samite_page page = SAMITE_PAGE_INIT;
    page.file = p->in->path;
    page.pixels = &p->pixels;
    page.names = ask->names;
    page.name_count = ask->name_count;
    page.object = p->object;
    page.object_count = p->objects;
    return page;
}

void picture_free(picture *p, const prompts *ask)
{
    for (int i = 0; p->result && i < ask->count; i++)
        samite_result_free(p->result[i]);
    free(p->result);
    samite_answer_free(p->answer);
    free(p->object);
    samite_pixels_free(&p->pixels);
    samite_raster_free(p->raster);
    *p = (picture){0};
}
