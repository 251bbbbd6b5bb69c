/* dataset_rows.c - what a record has to hold, and what happens when it does not. */
#include "train/dataset_rows.h"

#include <math.h>
#include <string.h>

#include "train/records.h"

#define LARGEST_SIDE 1000000

static bool out_of_memory(set_reader *r)
{
    fail(r->err, SAMITE_RESOURCE, "not enough memory for the annotations of %s", r->s->path);
    return false;
}

/* ---- values ---- */

static id_value id_of(const json_t *v)
{
    char digits[40];
    if (json_is_integer(v))
        return (id_value){.kind = ID_INTEGER, .number = json_integer_value(v)};
    if (json_is_string(v))
        return id_from_string(json_string_value(v), json_string_length(v));
    if (!json_is_real(v))
        return (id_value){0};
    double x = json_real_value(v);
    if (x == floor(x) && fabs(x) < 9e15)
        return (id_value){.kind = ID_INTEGER, .number = (int64_t)x};
    size_t n = (size_t)snprintf(digits, sizeof digits, "%.17g", x);
    id_value id = id_from_number(digits, n);
    id.text = NULL;          /* its characters are gone; a fraction is no id that anything refers to */
    id.kind = ID_NONE;
    return id;
}

static int size_of(const json_t *v)
{
    double x = json_number_value(v);
    return x >= 1 && x <= LARGEST_SIDE ? (int)x : 0;
}

static const char *keep_string(train_set *s, const json_t *v)
{
    return pool_string(&s->memory, json_string_value(v), json_string_length(v));
}

/* ---- images and categories ---- */

static int32_t image_at(set_reader *r, const id_value *id)
{
    train_set *s = r->s;
    bool known;
    int32_t at = ids_put(&s->image_ids, id, &known);
    if (at < 0 || known)
        return at;
    if (grow(&s->images, (size_t)at, &s->image_room, sizeof *s->images))
        return -1;
    s->images[at] = (train_image){0};
    return at;
}

static bool take_image(set_reader *r, const json_t *o)
{
    train_set *s = r->s;
    id_value id = id_of(json_object_get(o, "id"));
    const json_t *file = json_object_get(o, "file_name");
    if (id.kind == ID_NONE)
        return train_set_row(s, true, NULL, NULL, "an image without id") || out_of_memory(r);
    int32_t at = image_at(r, &id);
    if (at < 0)
        return out_of_memory(r);
    if (!json_is_string(file) || !json_string_length(file))
        return train_set_row(s, true, &id, NULL, "the image has no file_name") || out_of_memory(r);
    bool again = s->images[at].file_name != NULL;
    s->images[at] = (train_image){.file_name = keep_string(s, file), .width = size_of(json_object_get(o, "width")),
                                  .height = size_of(json_object_get(o, "height"))};
    if (!s->images[at].file_name)
        return out_of_memory(r);
    if (again && !train_set_row(s, false, &id, NULL, "two images have this id; the later one counts"))
        return out_of_memory(r);
    if (!s->images[at].width || !s->images[at].height)
        return train_set_row(s, false, &id, NULL, "width or height is missing; the picture's own size is used") ||
               out_of_memory(r);
    return true;
}

static int32_t category_at(set_reader *r, const id_value *id)
{
    train_set *s = r->s;
    bool known;
    int32_t at = ids_put(&s->category_ids, id, &known);
    if (at < 0 || known)
        return at;
    if (grow(&s->names, (size_t)at, &s->name_room, sizeof *s->names) ||
        grow(&s->groups, (size_t)at, &s->group_room, sizeof *s->groups))
        return -1;
    s->names[at] = s->groups[at] = NULL;
    return at;
}

static bool take_category(set_reader *r, const json_t *o)
{
    train_set *s = r->s;
    id_value id = id_of(json_object_get(o, "id"));
    const json_t *name = json_object_get(o, "name"), *group = json_object_get(o, "supercategory");
    char text[64];
    if (id.kind == ID_NONE)
        return train_set_row(s, true, NULL, NULL, "a category without id") || out_of_memory(r);
    int32_t at = category_at(r, &id);
    if (at < 0)
        return out_of_memory(r);
    if (!json_is_string(name) || json_string_value(name)[strspn(json_string_value(name), " \t")] == '\0')
        return train_set_row(s, true, NULL, NULL, "category %s has no name, so nothing can be asked for",
                             id_print(text, sizeof text, &id)) || out_of_memory(r);
    if (s->names[at] && !train_set_row(s, false, NULL, NULL, "two categories have id %s; the later one counts",
                                       id_print(text, sizeof text, &id)))
        return out_of_memory(r);
    s->names[at] = keep_string(s, name);
    s->groups[at] = json_is_string(group) ? keep_string(s, group) : NULL;
    return s->names[at] != NULL || out_of_memory(r);
}

/* ---- shapes ---- */

/* Why the shape is of no use, or NULL; *out may be left SEGMENT_NONE when there is none at all. */
static const char *read_polygons(train_set *s, segment *out, const json_t *list)
{
    size_t polygons = json_array_size(list), numbers = 0, at = 0, i, k;
    json_t *one, *v;
    json_array_foreach(list, i, one) {
        if (!json_is_array(one))
            return "the segmentation is a plain list of numbers; expected a list of polygons";
        if (json_array_size(one) < 6 || json_array_size(one) % 2)
            return "a polygon needs at least three points, each with x and y";
        numbers += json_array_size(one);
    }
    out->ends = pool_take(&s->memory, polygons * sizeof *out->ends);
    out->xy = pool_take(&s->memory, numbers * sizeof *out->xy);
    if (!out->ends || !out->xy)
        return "out of memory";
    json_array_foreach(list, i, one) {
        json_array_foreach(one, k, v) {
            if (!json_is_number(v) || fabs(json_number_value(v)) > LARGEST_SIDE)
                return "a polygon holds something that is no coordinate";
            out->xy[at++] = json_number_value(v);
        }
        out->ends[i] = at;
    }
    out->kind = SEGMENT_POLYGONS;
    out->count = polygons;
    return NULL;
}

/* Do they add up to their size? */
static const char *check_runs(const segment *s)
{
    rle r;
    int code = s->kind == SEGMENT_TEXT
                   ? rle_from_string(&r, s->text, s->count, s->width, s->height, "segmentation", NULL)
                   : rle_from_counts(&r, s->counts, s->count, s->width, s->height, "segmentation", NULL);
    rle_free(&r);
    return !code                      ? NULL
           : code == SAMITE_RESOURCE ? "out of memory"
                                      : "the run lengths are damaged, or are not those of their size [height, width]";
}

static const char *read_runs(train_set *s, segment *out, const json_t *o)
{
    const json_t *counts = json_object_get(o, "counts"), *size = json_object_get(o, "size"), *v;
    size_t i;
    out->height = size_of(json_array_get(size, 0));
    out->width = size_of(json_array_get(size, 1));
    if (!out->height || !out->width)
        return "run lengths without a size [height, width]";
    if (json_is_string(counts)) {
        out->kind = SEGMENT_TEXT;
        out->count = json_string_length(counts);
        out->text = pool_string(&s->memory, json_string_value(counts), out->count);
        return out->text ? check_runs(out) : "out of memory";
    }
    if (!json_is_array(counts))
        return "run lengths without counts";
    out->count = json_array_size(counts);
    out->counts = pool_take(&s->memory, (out->count + 1) * sizeof *out->counts);
    if (!out->counts)
        return "out of memory";
    json_array_foreach(counts, i, v) {
        double x = json_number_value(v);
        if (!json_is_number(v) || x < 0 || x > UINT32_MAX || x != floor(x))
            return "run lengths hold something that is no count";
        out->counts[i] = (uint32_t)x;
    }
    out->kind = SEGMENT_COUNTS;
    return check_runs(out);
}

static const char *read_shape(train_set *s, const segment **out, const json_t *v)
{
    bool none = !v || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0) ||
                (json_is_object(v) && json_object_size(v) == 0);
    *out = NULL;
    if (none || !s->masks)
        return NULL;
    segment *own = pool_take(&s->memory, sizeof *own);
    if (!own)
        return "out of memory";
    *own = (segment){0};
    const char *why = json_is_array(v)    ? read_polygons(s, own, v)
                      : json_is_object(v) ? read_runs(s, own, v)
                                          : "the segmentation is neither polygons nor run lengths";
    *out = why ? NULL : own;
    return why;
}

/* ---- annotations ---- */

static const char *read_box(double *box, const json_t *v)
{
    if (!json_is_array(v) || json_array_size(v) != 4)
        return "bbox is missing or has not four numbers x, y, width, height";
    for (size_t i = 0; i < 4; i++) {
        const json_t *x = json_array_get(v, i);
        if (record_is_odd(x))
            return "bbox holds a value that is not finite";
        if (!json_is_number(x))
            return "bbox holds something that is no number";
        box[i] = json_number_value(x);
    }
    if (box[2] <= 0 || box[3] <= 0)
        return "the box has no area (width or height is not above 0); expected x, y, width, height";
    return NULL;
}

static bool is_crowd(const json_t *v)
{
    return json_is_true(v) || (json_is_number(v) && json_number_value(v) != 0);
}

static bool take_annotation(set_reader *r, const json_t *o)
{
    train_set *s = r->s;
    id_value image = id_of(json_object_get(o, "image_id")), category = id_of(json_object_get(o, "category_id")),
             id = id_of(json_object_get(o, "id"));
    const id_value *known = id.kind == ID_NONE ? NULL : &id;
    train_object x = {.prompt = -1, .id = -1, .crowd = is_crowd(json_object_get(o, "iscrowd"))};
    if (image.kind == ID_NONE || category.kind == ID_NONE)
        return train_set_row(s, true, image.kind == ID_NONE ? NULL : &image, known, "%s is missing",
                             image.kind == ID_NONE ? "image_id" : "category_id") || out_of_memory(r);
    const char *why = read_box(x.box, json_object_get(o, "bbox"));
    if (why)
        return train_set_row(s, true, &image, known, "%s", why) || out_of_memory(r);
    why = read_shape(s, &x.shape, json_object_get(o, "segmentation"));
    if (why && !train_set_row(s, false, &image, known, "%s; learnt without a mask", why))
        return out_of_memory(r);
    if (known) {
        bool again;
        if ((x.id = ids_put(&s->annotation_ids, known, &again)) < 0)
            return out_of_memory(r);
        if (again && !train_set_row(s, false, &image, known, "two annotations have this id; both count"))
            return out_of_memory(r);
    }
    x.image = image_at(r, &image);
    x.category = category_at(r, &category);
    if (x.image < 0 || x.category < 0 || grow(&s->objects, s->count, &s->room, sizeof *s->objects))
        return out_of_memory(r);
    s->objects[s->count++] = x;
    return true;
}

bool dataset_record(void *to, const char *section, const json_t *record)
{
    static const char *const names[] = {"images", "annotations", "categories"};
    static bool (*const take[])(set_reader *, const json_t *) = {take_image, take_annotation, take_category};
    set_reader *r = to;
    for (int i = 0; i < 3; i++) {
        if (strcmp(section, names[i]) != 0)
            continue;
        r->lists[i] = true;
        return take[i](r, record);
    }
    return true;
}
