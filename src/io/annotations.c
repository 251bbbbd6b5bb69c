/* annotations.c - lists of pictures, categories and objects; an object as mask, polygons or box. */
#include "io/annotations.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "io/runs.h"

/* ---- lists ---- */

/* Room for one more of `size` bytes; counts stay below INT32_MAX. */
static bool make_room(void **list, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return true;
    size_t wanted = *room ? 2 * *room : 16;
    void *p = wanted < INT32_MAX ? realloc(*list, wanted * size) : NULL;
    if (!p)
        return false;
    *list = p;
    *room = wanted;
    return true;
}

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "out of memory for annotations");
}

void outlines_free(outlines *p)
{
    free(p->ends);
    free(p->xy);
    *p = (outlines){0};
}

void object_free(labelled_object *o)
{
    rle_free(&o->mask);
    outlines_free(&o->drawn);
}

void annotations_free(annotations *a)
{
    for (size_t i = 0; i < a->image_count; i++)
        free(a->images[i].file);
    for (size_t i = 0; i < a->category_count; i++)
        free(a->categories[i]);
    for (size_t i = 0; i < a->count; i++)
        object_free(&a->objects[i]);
    free(a->images);
    free(a->categories);
    free(a->objects);
    *a = (annotations){0};
}

int annotations_add_image(annotations *a, const char *file, int width, int height, samite_error *err)
{
    void *list = a->images;
    char *copy = text_copy(file);
    if (!copy || !make_room(&list, a->image_count, &a->image_room, sizeof *a->images)) {
        free(copy);
        no_memory(err);
        return -1;
    }
    a->images = list;
    a->images[a->image_count] = (labelled_image){copy, width, height, 0, 0};
    return (int)a->image_count++;
}

int annotations_category(annotations *a, const char *name, samite_error *err)
{
    for (size_t i = 0; i < a->category_count; i++)
        if (strcmp(a->categories[i], name) == 0)
            return (int)i;
    void *list = a->categories;
    char *copy = text_copy(name);
    if (!copy || !make_room(&list, a->category_count, &a->category_room, sizeof *a->categories)) {
        free(copy);
        no_memory(err);
        return -1;
    }
    a->categories = list;
    a->categories[a->category_count] = copy;
    return (int)a->category_count++;
}

int annotations_add(annotations *a, labelled_object *o, samite_error *err)
{
    void *list = a->objects;
    if (!make_room(&list, a->count, &a->room, sizeof *a->objects)) {
        object_free(o);
        return no_memory(err);
    }
    a->objects = list;
    a->objects[a->count++] = *o;
    *o = (labelled_object){0};
    return SAMITE_OK;
}

int annotations_sort(annotations *a, samite_error *err)
{
    labelled_object *sorted = malloc((a->count + 1) * sizeof *sorted);
    size_t at = 0;
    if (!sorted)
        return no_memory(err);
    for (size_t i = 0; i < a->image_count; i++)
        a->images[i].first = a->images[i].count = 0;
    for (size_t i = 0; i < a->count; i++)
        a->images[a->objects[i].image].count++;
    for (size_t i = 0; i < a->image_count; i++) {
        a->images[i].first = at;
        at += a->images[i].count;
        a->images[i].count = 0;
    }
    for (size_t i = 0; i < a->count; i++) {
        labelled_image *im = &a->images[a->objects[i].image];
        sorted[im->first + im->count++] = a->objects[i];
    }
    free(a->objects);
    a->objects = sorted;
    a->room = a->count + 1;
    return SAMITE_OK;
}

void annotations_drop(annotations *a, const char *why, const char *format, ...)
{
    size_t i = 0;
    while (i < a->drop_count && strcmp(a->drops[i].why, why) != 0)
        i++;
    if (i == a->drop_count) {
        if (i == DROP_REASONS)
            return;
        va_list args;
        va_start(args, format);
        a->drops[i] = (dropped){.why = why};
        vsnprintf(a->drops[i].first, sizeof a->drops[i].first, format, args);
        va_end(args);
        a->drop_count++;
    }
    a->drops[i].count++;
}

/* ---- shapes ---- */

int outlines_add(outlines *p, const double *xy, size_t points, samite_error *err)
{
    size_t before = p->count ? p->ends[p->count - 1] : 0;
    size_t *ends = realloc(p->ends, (p->count + 1) * sizeof *ends);
    p->ends = ends ? ends : p->ends;
    double *to = ends ? realloc(p->xy, (before + points) * 2 * sizeof *to) : NULL;
    if (!to)
        return no_memory(err);
    p->xy = to;
    memcpy(to + 2 * before, xy, points * 2 * sizeof *xy);
    p->ends[p->count++] = before + points;
    return SAMITE_OK;
}

/* Polygons are filled one by one and joined. */
static int fill_outlines(rle *out, const outlines *p, int width, int height, samite_error *err)
{
    rle *parts = calloc(p->count, sizeof *parts);
    int code = parts ? SAMITE_OK : no_memory(err);
    for (size_t i = 0, at = 0; i < p->count && !code; at = p->ends[i++])
        code = rle_from_polygon(&parts[i], p->xy + 2 * at, p->ends[i] - at, width, height, err);
    if (!code)
        code = rle_merge(out, parts, p->count, false, err);
    for (size_t i = 0; parts && i < p->count; i++)
        rle_free(&parts[i]);
    free(parts);
    return code;
}

int object_mask(rle *out, const labelled_object *o, int width, int height, samite_error *err)
{
    *out = (rle){0};
    if (o->mask.runs)
        return o->mask.width == width && o->mask.height == height ? rle_copy(out, &o->mask, err)
               : fail(err, SAMITE_INPUT, "a mask of %d x %d pixels in a picture of %d x %d", o->mask.width,
                      o->mask.height, width, height);
    return o->drawn.count ? fill_outlines(out, &o->drawn, width, height, err)
                          : rle_from_box(out, o->box, width, height, err);
}

static int copy_outlines(outlines *out, const outlines *p, samite_error *err)
{
    int code = SAMITE_OK;
    for (size_t i = 0, at = 0; i < p->count && !code; at = p->ends[i++])
        code = outlines_add(out, p->xy + 2 * at, p->ends[i] - at, err);
    return code;
}

static int trace_outlines(outlines *out, const rle *mask, samite_error *err)
{
    polygons p;
    int code = mask_to_polygons(&p, mask, 0, err);
    if (code)
        return code;
    size_t points = p.count ? p.ends[p.count - 1] : 0;
    *out = (outlines){p.count, p.ends, malloc((points + 1) * 2 * sizeof *out->xy)};
    p.ends = NULL;
    for (size_t i = 0; out->xy && i < 2 * points; i++)
        out->xy[i] = p.xy[i];
    polygons_free(&p);
    return out->xy ? SAMITE_OK : no_memory(err);
}

int object_outlines(outlines *out, const labelled_object *o, samite_error *err)
{
    int code;
    *out = (outlines){0};
    if (o->drawn.count) {
        code = copy_outlines(out, &o->drawn, err);
    } else if (o->mask.runs) {
        code = trace_outlines(out, &o->mask, err);
    } else {
        double x1 = o->box[0] + o->box[2], y1 = o->box[1] + o->box[3];
        code = outlines_add(out, (double[]){o->box[0], o->box[1], x1, o->box[1], x1, y1, o->box[0], y1}, 4, err);
    }
    if (code)
        outlines_free(out);
    return code;
}

void object_box(double box[4], const labelled_object *o)
{
    if (o->has_box) {
        memcpy(box, o->box, 4 * sizeof *box);
    } else if (o->drawn.count) {
        double x0 = INFINITY, y0 = INFINITY, x1 = -INFINITY, y1 = -INFINITY;
        for (size_t i = 0; i < o->drawn.ends[o->drawn.count - 1]; i++) {
            x0 = fmin(x0, o->drawn.xy[2 * i]);
            x1 = fmax(x1, o->drawn.xy[2 * i]);
            y0 = fmin(y0, o->drawn.xy[2 * i + 1]);
            y1 = fmax(y1, o->drawn.xy[2 * i + 1]);
        }
        memcpy(box, (double[]){x0, y0, x1 - x0, y1 - y0}, 4 * sizeof *box);
    } else {
        rle_bbox(box, &o->mask);
    }
}

/* ---- files ---- */

void text_add_xml(text *t, const char *s)
{
    static const struct { char c; const char *to;
    } special[] = {
        {'&', "&amp;"},   {'<', "&lt;"},   {'>', "&gt;"},  {'"', "&quot;"},
        {'\'', "&apos;"}, {'\n', "&#10;"}, {'\t', "&#9;"}, {'\r', "&#13;"},
    };
    char *clean = utf8_clean(s, NULL);
    if (!clean) {
        t->failed = true;
        return;
    }
    for (const char *c = clean; *c; c++) {
        const char *to = NULL;
        for (size_t i = 0; i < sizeof special / sizeof *special && !to; i++)
            to = special[i].c == *c ? special[i].to : NULL;
        if (to)
            text_add(t, to, strlen(to));
        else
            text_add(t, (unsigned char)*c < 32 ? "?" : c, 1);
    }
    free(clean);
}

int text_write_file(text *t, const char *path, samite_error *err)
{
    file_writer w;
    int code = t->failed ? fail(err, SAMITE_RESOURCE, "%s: out of memory", path) : file_writer_open(&w, path, err);
    if (!code) {
        file_write(&w, t->data, t->size);
        code = file_writer_commit(&w, err);
    }
    text_free(t);
    return code;
}

int json_write_file(json_t *o, const char *path, samite_error *err)
{
    text t = {0};
    char *s = o ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(o);
    if (s) {
        text_add(&t, s, strlen(s));
        text_add(&t, "\n", 1);
    }
    t.failed |= s == NULL;
    free(s);
    return text_write_file(&t, path, err);
}

/* ---- label maps ---- */

/* The runs of one value: its list reaches as far as its last pixel. */
typedef struct value_runs { run_list list; uint32_t end; } value_runs;

static int add_value(annotations *a, int image, int category, value_runs *v, samite_error *err)
{
    const labelled_image *im = &a->images[image];
    labelled_object o = {.image = image, .category = category, .score = (double)NAN};
    runs_add(&v->list, false, (uint32_t)im->width * (uint32_t)im->height - v->end);
    int code = runs_finish(&o.mask, &v->list, im->width, im->height, err);
    v->list = (run_list){0};
    return code ? code : annotations_add(a, &o, err);
}

int label_map_read(annotations *a, int image, int category, const uint16_t *values, samite_error *err)
{
    uint32_t width = (uint32_t)a->images[image].width, height = (uint32_t)a->images[image].height;
    value_runs *all = calloc(65536, sizeof *all);
    int code = runs_check_size((int)width, (int)height, err);
    if (!code && !all)
        code = no_memory(err);
    for (uint32_t i = 0; !code && i < width * height; i++) {
        uint16_t value = values[(size_t)(i % height) * width + i / height];
        value_runs *v = &all[value];
        if (!value)
            continue;
        runs_add(&v->list, false, i - v->end);
        runs_add(&v->list, true, 1);
        v->end = i + 1;
    }
    for (int v = 1; v < 65536 && !code; v++)
        if (all[v].end)
            code = add_value(a, image, category, &all[v], err);
    for (int v = 1; v < 65536 && all; v++)
        free(all[v].list.counts);
    free(all);
    return code;
}
