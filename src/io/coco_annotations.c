/* coco_annotations.c - COCO instance files: read with polygons as they are, and written from annotations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/annotations.h"
#include "io/image.h"

/* ---- writing ---- */

static json_t *numbers_json(const double *v, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count && list; i++)
        if (json_array_append_new(list, json_number(v[i]))) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static json_t *segmentation_json(const labelled_object *o, samite_error *err)
{
    char *counts;
    if (!o->drawn.count) {
        if (rle_to_string(&counts, &o->mask, err))
            return NULL;
        json_t *j = json_pack("{s:[i,i], s:s}", "size", o->mask.height, o->mask.width, "counts", counts);
        free(counts);
        return j;
    }
    json_t *list = json_array();
    for (size_t i = 0, at = 0; list && i < o->drawn.count; at = o->drawn.ends[i++])
        if (json_array_append_new(list, numbers_json(o->drawn.xy + 2 * at, 2 * (o->drawn.ends[i] - at)))) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static json_t *annotation_json(const annotations *a, size_t i, samite_error *err)
{
    const labelled_object *o = &a->objects[i];
    const labelled_image *im = &a->images[o->image];
    double box[4], area;
    object_box(box, o);
    area = box[2] * box[3];
    if (o->drawn.count || o->mask.runs) {
        rle r;
        if (object_mask(&r, o, im->width, im->height, err))
            return NULL;
        area = (double)rle_area(&r);
        rle_free(&r);
    }
    json_t *j = json_pack("{s:I, s:I, s:I, s:o, s:o, s:i}", "id", (json_int_t)i + 1, "image_id",
                          (json_int_t)o->image + 1, "category_id", (json_int_t)o->category + 1, "bbox",
                          numbers_json(box, 4), "area", json_number(area), "iscrowd", (int)o->crowd);
    int bad = !j;
    if (j && isfinite(o->score))
        bad |= json_object_set_new(j, "score", json_real(o->score));
    if (j && o->has_track)
        bad |= json_object_set_new(j, "track_id", json_integer((json_int_t)o->track));
    if (j && (o->drawn.count || o->mask.runs))
        bad |= json_object_set_new(j, "segmentation", segmentation_json(o, err));
    if (!bad)
        return j;
    json_decref(j);
    fail(err, SAMITE_RESOURCE, "out of memory for annotation %zu", i + 1);
    return NULL;
}

/* Appends `record` on a line of its own and frees it. */
static void add_line(text *t, json_t *record, bool first)
{
    char *s = record ? json_dumps(record, JSON_REAL_PRECISION(12)) : NULL;
    json_decref(record);
    text_printf(t, "%s\n", first ? "" : ",");
    if (s)
        text_add(t, s, strlen(s));
    t->failed |= s == NULL;
    free(s);
}

int coco_annotations_write(const annotations *a, const char *path, samite_error *err)
{
    text t = {0};
    text_printf(&t, "{\n\"images\": [");
    for (size_t i = 0; i < a->image_count; i++) {
        json_t *o = json_pack("{s:I, s:i, s:i}", "id", (json_int_t)i + 1, "width", a->images[i].width, "height",
                              a->images[i].height);
        t.failed |= !o || json_set_path(o, "file_name", a->images[i].file);
        add_line(&t, o, i == 0);
    }
    text_printf(&t, "\n],\n\"categories\": [");
    for (size_t i = 0; i < a->category_count; i++)
        add_line(&t, json_pack("{s:I, s:o}", "id", (json_int_t)i + 1, "name", json_name(a->categories[i])), i == 0);
    text_printf(&t, "\n],\n\"annotations\": [");
    int code = SAMITE_OK;
    for (size_t i = 0; i < a->count && !code; i++) {
        json_t *o = annotation_json(a, i, err);
        code = o ? SAMITE_OK : SAMITE_INPUT;
        if (o)
            add_line(&t, o, i == 0);
    }
    text_printf(&t, "\n]\n}\n");
    if (code) {
        text_free(&t);
        return code;
    }
    return text_write_file(&t, path, err);
}

/* ---- reading ---- */

typedef struct coco_reader {
    annotations *a;
    const char  *name;
    json_t      *images, *categories;     /* id as text -> index; both owned */
} coco_reader;

/* An id as text: whole numbers and strings are told apart. */
static const char *id_text(char out[80], const json_t *id)
{
    if (json_is_integer(id))
        snprintf(out, 80, "%lld", (long long)json_integer_value(id));
    else if (json_is_real(id) && json_real_value(id) == floor(json_real_value(id)) && fabs(json_real_value(id)) < 1e15)
        snprintf(out, 80, "%lld", (long long)json_real_value(id));
    else if (json_is_string(id) && json_string_length(id) < 70)
        snprintf(out, 80, "'%s", json_string_value(id));
    else
        return NULL;
    return out;
}

static int index_of(const json_t *map, const json_t *id)
{
    char key[80];
    const json_t *at = id_text(key, id) ? json_object_get(map, key) : NULL;
    return at ? (int)json_integer_value(at) : -1;
}

static int remember(json_t *map, const json_t *id, int index, const char *name, const char *what, samite_error *err)
{
    char key[80];
    if (!id_text(key, id))
        return fail(err, SAMITE_INPUT, "%s: %s without a usable \"id\"", name, what);
    if (json_object_get(map, key))
        return fail(err, SAMITE_INPUT, "%s: %s %s stands there twice", name, what, key);
    return json_object_set_new(map, key, json_integer(index)) ? fail(err, SAMITE_RESOURCE, "out of memory") : SAMITE_OK;
}

static int read_image(coco_reader *r, const json_t *o, samite_error *err)
{
    const char *file = json_string_value(json_object_get(o, "file_name"));
    json_int_t width = json_integer_value(json_object_get(o, "width"));
    json_int_t height = json_integer_value(json_object_get(o, "height"));
    char id[80];
    if (!file || !*file || width < 1 || height < 1 || width > 1 << 24 || height > 1 << 24 ||
        width * height > UINT32_MAX)
        return fail(err, SAMITE_INPUT, "%s: image %s has no file_name, width or height", r->name,
                    id_text(id, json_object_get(o, "id")) ? id : "?");
    int index = annotations_add_image(r->a, file, (int)width, (int)height, err);
    return index < 0 ? SAMITE_RESOURCE : remember(r->images, json_object_get(o, "id"), index, r->name, "image", err);
}

static int read_category(coco_reader *r, const json_t *o, samite_error *err)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    char id[80], stand_in[100];
    if (!id_text(id, json_object_get(o, "id")))
        return fail(err, SAMITE_INPUT, "%s: a category without a usable \"id\"", r->name);
    snprintf(stand_in, sizeof stand_in, "category %s", id);
    int index = annotations_category(r->a, name ? name : stand_in, err);
    return index < 0 ? SAMITE_RESOURCE
                     : remember(r->categories, json_object_get(o, "id"), index, r->name, "category", err);
}

/* Numbers that are coordinates, in a new list; NULL when one is none. */
static double *read_numbers(const json_t *list, size_t *count)
{
    size_t n = json_array_size(list);
    double *v = n ? malloc(n * sizeof *v) : NULL;
    for (size_t i = 0; v && i < n; i++) {
        const json_t *one = json_array_get(list, i);
        v[i] = json_number_value(one);
        if (!json_is_number(one) || !(fabs(v[i]) < 1e7)) {
            free(v);
            v = NULL;
        }
    }
    *count = n;
    return v;
}

static const char *read_polygons(labelled_object *out, const json_t *list)
{
    size_t i, n;
    json_t *one;
    json_array_foreach(list, i, one) {
        double *xy = read_numbers(one, &n);
        int code = xy && n >= 6 && n % 2 == 0 ? outlines_add(&out->drawn, xy, n / 2, NULL) : SAMITE_INPUT;
        free(xy);
        if (code)
            return "segmentations with a polygon of fewer than 3 points, an odd count or no numbers";
    }
    return out->drawn.count ? NULL : "empty segmentations";
}

static const char *read_runs(labelled_object *out, const json_t *o, const labelled_image *im)
{
    static const char bad[] = "run lengths that do not fill their picture";
    const json_t *counts = json_object_get(o, "counts"), *size = json_object_get(o, "size");
    int code = SAMITE_INPUT;
    if (json_integer_value(json_array_get(size, 0)) != im->height ||
        json_integer_value(json_array_get(size, 1)) != im->width)
        return bad;
    if (json_is_string(counts)) {
        code = rle_from_string(&out->mask, json_string_value(counts), json_string_length(counts), im->width, im->height,
                               "mask", NULL);
    } else if (json_is_array(counts)) {
        size_t n = json_array_size(counts);
        uint32_t *v = malloc((n + 1) * sizeof *v);
        bool fine = v != NULL;
        for (size_t i = 0; fine && i < n; i++) {
            const json_t *one = json_array_get(counts, i);
            fine = json_is_integer(one) && json_integer_value(one) >= 0 && json_integer_value(one) <= UINT32_MAX;
            v[i] = (uint32_t)json_integer_value(one);
        }
        if (fine)
            code = rle_from_counts(&out->mask, v, n, im->width, im->height, "mask", NULL);
        free(v);
    }
    return code ? bad : NULL;
}

static bool read_box(labelled_object *out, const json_t *list)
{
    size_t n;
    double *v = read_numbers(list, &n);
    out->has_box = v && n == 4 && v[2] >= 0 && v[3] >= 0;
    if (out->has_box)
        memcpy(out->box, v, sizeof out->box);
    free(v);
    return out->has_box;
}

static int read_annotation(coco_reader *r, const json_t *o, size_t number, samite_error *err)
{
    const json_t *shape = json_object_get(o, "segmentation"), *score = json_object_get(o, "score");
    const json_t *track = json_object_get(o, "track_id");
    labelled_object out = {.image = index_of(r->images, json_object_get(o, "image_id")),
                           .category = index_of(r->categories, json_object_get(o, "category_id")),
                           .score = json_is_number(score) ? json_number_value(score) : (double)NAN,
                           .has_track = json_is_integer(track), .track = (int64_t)json_integer_value(track)};
    const char *why = out.image < 0 ? "objects of images that the file does not list"
                      : out.category < 0 ? "objects of categories that the file does not list" : NULL;
    out.crowd = json_integer_value(json_object_get(o, "iscrowd")) != 0;
    bool box = read_box(&out, json_object_get(o, "bbox"));
    if (!why && json_is_array(shape) && json_array_size(shape))
        why = read_polygons(&out, shape);
    else if (!why && json_is_object(shape))
        why = read_runs(&out, shape, &r->a->images[out.image]);
    else if (!why && !box)
        why = "objects with neither a segmentation nor a box";
    if (!why)
        return annotations_add(r->a, &out, err);
    object_free(&out);
    annotations_drop(r->a, why, "%.60s, annotation number %zu", r->name, number);
    return SAMITE_OK;
}

static int read_all(coco_reader *r, const json_t *root, samite_error *err)
{
    const json_t *images = json_object_get(root, "images"), *list = json_object_get(root, "annotations");
    const json_t *categories = json_object_get(root, "categories");
    size_t i;
    json_t *one;
    int code = SAMITE_OK;
    if (!json_is_array(images) || !json_is_array(list))
        return fail(err, SAMITE_INPUT, "%s: no \"images\" and \"annotations\"; is this a COCO file? (A list of results "
                    "alone does not name its pictures.)", r->name);
    json_array_foreach(images, i, one)
        if (!code)
            code = read_image(r, one, err);
    json_array_foreach(categories, i, one)
        if (!code)
            code = read_category(r, one, err);
    json_array_foreach(list, i, one)
        if (!code)
            code = read_annotation(r, one, i + 1, err);
    return code;
}

int coco_annotations_read(annotations *a, const char *data, size_t size, const char *name, samite_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(data, size, 0, &where);
    if (!root)
        return fail(err, SAMITE_INPUT, "%s: broken JSON, line %d column %d: %s", name, where.line, where.column,
                    where.text);
    coco_reader r = {.a = a, .name = name, .images = json_object(), .categories = json_object()};
    int code =
        r.images && r.categories ? read_all(&r, root, err) : fail(err, SAMITE_RESOURCE, "%s: out of memory", name);
    json_decref(r.images);
    json_decref(r.categories);
    json_decref(root);
    return code;
}
