/* segmentation.c - checks shapes from files and packs them as compressed run lengths. */
#include "eval/segmentation.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct converted {
    char        *text;      /* compressed; owned */
    double       area, box[4];
    int          code;
    samite_error err;
} converted;

int shape_polygons(rle *out, const shape_batch *b, const shape *s, int width, int height, const char *what,
                   samite_error *err)
{
    rle *parts = calloc(s->parts + 1, sizeof *parts);
    int code = parts ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "no memory for %s", what);
    if (!code && s->parts == 0)
        code = fail(err, SAMITE_INPUT,
                    "%s has an empty segmentation; expected polygons or run lengths (evaluate boxes only "
                    "with --iou bbox)",
                    what);
    for (size_t i = 0; i < s->parts && !code; i++) {
        size_t from = i ? b->ends[s->ends + i - 1] : s->first, n = b->ends[s->ends + i] - from;
        samite_error why = {0};
        if (n % 2)
            code = fail(err, SAMITE_INPUT, "%s: polygon %zu has %zu numbers; expected pairs x, y", what, i + 1, n);
        else if (n < 6)
            code = fail(err, SAMITE_INPUT, "%s: polygon %zu has %zu points; expected at least 3", what, i + 1, n / 2);
        else if ((code = rle_from_polygon(&parts[i], b->numbers + from, n / 2, width, height, &why)) != SAMITE_OK)
            fail(err, code, "%s: %s", what, why.text);
    }
    if (!code)
        code = rle_merge(out, parts, s->parts, false, err);
    for (size_t i = 0; parts && i < s->parts; i++)
        rle_free(&parts[i]);
    free(parts);
    return code;
}

int shape_counts(rle *out, const shape_batch *b, const shape *s, int width, int height, const char *what,
                 samite_error *err)
{
    uint32_t *counts = malloc((s->count + 1) * sizeof *counts);
    int code = counts ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "no memory for %s", what);
    for (size_t i = 0; i < s->count && !code; i++) {
        double v = b->numbers[s->first + i];
        if (!(v >= 0 && v <= UINT32_MAX && v == floor(v)))
            code =
                fail(err, SAMITE_INPUT, "%s: run length %zu is %g; expected a whole number of pixels", what, i + 1, v);
        else
            counts[i] = (uint32_t)v;
    }
    if (!code)
        code = rle_from_counts(out, counts, s->count, width, height, what, err);
    free(counts);
    return code;
}

static int check_size(const shape *s, int *width, int *height, const char *what, samite_error *err)
{
    if (s->kind == SHAPE_POLYGONS || s->kind == SHAPE_BOX)
        return *width > 0 && *height > 0 ? SAMITE_OK
               : fail(err, SAMITE_INPUT, "%s is drawn as polygons, but its image has no width and height", what);
    if (!(s->width >= 1 && s->height >= 1 && s->width <= INT32_MAX && s->height <= INT32_MAX) ||
        s->width != floor(s->width) || s->height != floor(s->height))
        return fail(err, SAMITE_INPUT, "%s: run lengths without a usable \"size\": [height, width]", what);
    if (*width > 0 && *height > 0 && (s->width != *width || s->height != *height))
        return fail(err, SAMITE_INPUT,
                    "%s: its mask has %g x %g pixels (width x height), its image %d x %d; is this another "
                    "data set, or was the image scaled?",
                    what, s->width, s->height, *width, *height);
    *width = (int)s->width;
    *height = (int)s->height;
    return SAMITE_OK;
}

static void convert(converted *to, const shape_batch *b, const shape *s, const eval_set *set, const eval_set *images,
                    bool keep)
{
    const eval_item *item = &set->items[s->item];
    char what[160], name[120];
    int width = item->image < 0 ? 0 : images->images[item->image].width;
    int height = item->image < 0 ? 0 : images->images[item->image].height;
    rle r = {0};
    snprintf(what, sizeof what, "%s", eval_item_print(name, sizeof name, set, images, item));
    to->code = check_size(s, &width, &height, what, &to->err);
    if (!to->code && s->kind == SHAPE_POLYGONS)
        to->code = shape_polygons(&r, b, s, width, height, what, &to->err);
    else if (!to->code && s->kind == SHAPE_BOX)
        to->code = rle_from_box(&r, item->box, width, height, &to->err);
    else if (!to->code && s->kind == SHAPE_COUNTS)
        to->code = shape_counts(&r, b, s, width, height, what, &to->err);
    else if (!to->code)
        to->code = rle_from_string(&r, s->count ? b->bytes + s->first : "", s->count, width, height, what, &to->err);
    if (!to->code) {
        to->area = (double)rle_area(&r);
        rle_bbox(to->box, &r);
        if (keep && s->kind != SHAPE_TEXT)
            to->code = rle_to_string(&to->text, &r, &to->err);
    }
    rle_free(&r);
}

static int store(eval_set *set, const shape_batch *b, const shape *s, const converted *c, bool keep, samite_error *err)
{
    eval_item *item = &set->items[s->item];
    if (!item->has_box) {
        memcpy(item->box, c->box, sizeof item->box);
        item->has_box = true;
    }
    if (!item->has_area) {
        item->area = c->area;
        item->has_area = true;
    }
    if (!keep)
        return SAMITE_OK;
    size_t size = s->kind == SHAPE_TEXT ? s->count : strlen(c->text);
    item->mask = size <= UINT32_MAX
                     ? pool_string(&set->texts, s->kind == SHAPE_TEXT ? b->bytes + s->first : c->text, size)
                     : NULL;
    item->mask_size = (uint32_t)size;
    return item->mask ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "no memory for the masks of %s", set->path);
}

int shapes_convert(shape_batch *b, eval_set *set, const eval_set *images, bool keep, samite_error *err)
{
    converted *c = calloc(b->shape_count + 1, sizeof *c);
    int code = c ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "no memory for the masks of %s", set->path);
    if (c) {
#pragma omp parallel for schedule(dynamic, 64)
        for (size_t i = 0; i < b->shape_count; i++)
            convert(&c[i], b, &b->shapes[i], set, images, keep);
    }
    for (size_t i = 0; c && i < b->shape_count; i++) {
        if (!code && c[i].code)
            code = fail(err, c[i].code, "%s: %s", set->path, c[i].err.text);
        if (!code)
            code = store(set, b, &b->shapes[i], &c[i], keep, err);
        free(c[i].text);
    }
    free(c);
    b->count = b->end_count = b->byte_count = b->shape_count = 0;
    return code;
}

void shapes_free(shape_batch *b)
{
    free(b->numbers);
    free(b->ends);
    free(b->bytes);
    free(b->shapes);
    *b = (shape_batch){0};
}
