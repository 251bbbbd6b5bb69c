/* labelme.c - labelme's JSON: polygons, rectangles, circles and masks of one picture. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/annotations.h"
#include "io/image.h"

#define CIRCLE_POINTS 64
#define MOST_POINTS   10000000

/* ---- writing ---- */

/* The part of a path behind its last '/'. */
static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static json_t *points_json(const double *xy, size_t points)
{
    json_t *list = json_array();
    for (size_t i = 0; i < points && list; i++)
        if (json_array_append_new(list, json_pack("[f, f]", xy[2 * i], xy[2 * i + 1]))) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

/* One shape. Several of one object, and an object on several frames, share a group_id (-1: none). */
static int add_shape(json_t *shapes, const char *label, const char *type, json_t *points, json_int_t group,
                     double score)
{
    json_t *o = json_pack("{s:o, s:o, s:s, s:{}, s:s}", "label", json_name(label), "points", points, "shape_type", type,
                          "flags", "description", "");
    if (!o)
        return -1;
    int bad = json_object_set_new(o, "group_id", group < 0 ? json_null() : json_integer(group));
    if (isfinite(score))
        bad |= json_object_set_new(o, "score", json_real(score));
    return bad | json_array_append_new(shapes, o);
}

static int add_object(json_t *shapes, const annotations *a, const labelled_object *o, json_int_t number,
                      samite_error *err)
{
    const char *label = a->categories[o->category];
    json_int_t group = o->has_track ? (json_int_t)o->track : -1;
    if (!o->mask.runs && !o->drawn.count) {
        const double corners[4] = {o->box[0], o->box[1], o->box[0] + o->box[2], o->box[1] + o->box[3]};
        int bad = add_shape(shapes, label, "rectangle", points_json(corners, 2), group, o->score);
        return bad ? fail(err, SAMITE_RESOURCE, "out of memory for labelme shapes") : SAMITE_OK;
    }
    outlines p;
    int code = object_outlines(&p, o, err);
    if (group < 0 && p.count > 1)
        group = number;
    for (size_t i = 0, at = 0; !code && i < p.count; at = p.ends[i++])
        if (add_shape(shapes, label, "polygon", points_json(p.xy + 2 * at, p.ends[i] - at), group, o->score))
            code = fail(err, SAMITE_RESOURCE, "out of memory for labelme shapes");
    outlines_free(&p);
    return code;
}

int labelme_write(const annotations *a, int image, const char *path, samite_error *err)
{
    const labelled_image *im = &a->images[image];
    json_t *shapes = json_array();
    json_int_t number = 0;
    int code = shapes ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    for (size_t i = im->first; i < im->first + im->count && !code; i++)
        code = add_object(shapes, a, &a->objects[i], ++number, err);
    if (code) {
        json_decref(shapes);
        return code;
    }
    json_t *o = json_pack("{s:s, s:{}, s:o, s:n, s:i, s:i}", "version", "5.4.1", "flags", "shapes", shapes, "imageData",
                          "imageHeight", im->height, "imageWidth", im->width);
    if (o && json_set_path(o, "imagePath", base_of(im->file))) {
        json_decref(o);
        o = NULL;
    }
    return json_write_file(o, path, err);
}

/* ---- reading ---- */

/* Points as x, y pairs in a new list, or NULL when they are not what `points` should be. */
static double *read_points(const json_t *list, size_t *points)
{
    size_t n = json_array_size(list);
    double *xy = n && n <= MOST_POINTS ? malloc(n * 2 * sizeof *xy) : NULL;
    for (size_t i = 0; i < n && xy; i++) {
        const json_t *p = json_array_get(list, i), *x = json_array_get(p, 0), *y = json_array_get(p, 1);
        xy[2 * i] = json_number_value(x);
        xy[2 * i + 1] = json_number_value(y);
        if (!json_is_number(x) || !json_is_number(y) || !(fabs(xy[2 * i]) < 1e7) || !(fabs(xy[2 * i + 1]) < 1e7)) {
            free(xy);
            xy = NULL;
        }
    }
    *points = n;
    return xy;
}

static int base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* What is no digit is passed over; '=' ends. */
static uint8_t *decode_base64(const char *s, size_t *size)
{
    uint8_t *out = malloc(strlen(s) / 4 * 3 + 4);
    unsigned bits = 0, held = 0;
    *size = 0;
    for (; out && *s && *s != '='; s++) {
        int digit = base64_digit(*s);
        if (digit < 0)
            continue;
        held = (held << 6 | (unsigned)digit) & 0xFFFFu;
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            out[(*size)++] = (uint8_t)(held >> bits);
        }
    }
    return out;
}

/* A mask is a PNG whose upper left pixel lies at the first point. false: not usable. */
static bool read_mask(rle *out, const json_t *shape, const double *xy, const labelled_image *im)
{
    const char *text = json_string_value(json_object_get(shape, "mask"));
    size_t size = 0;
    uint8_t *data = text ? decode_base64(text, &size) : NULL;
    image_options how = {.max_pixels = (uint64_t)im->width * (uint64_t)im->height};
    pixels p = {0};
    bool fine = data && image_decode(&p, data, size, "mask", &how, NULL) == SAMITE_OK;
    uint8_t *all = fine ? calloc((size_t)im->width, (size_t)im->height) : NULL;
    for (int y = 0; all && y < p.height; y++)
        for (int x = 0; x < p.width; x++) {
            double to_x = floor(xy[0]) + x, to_y = floor(xy[1]) + y;
            if (to_x >= 0 && to_y >= 0 && to_x < im->width && to_y < im->height)
                all[(size_t)to_y * (size_t)im->width + (size_t)to_x] = p.rgb[3 * ((size_t)y * (size_t)p.width +
                                                                               (size_t)x)] != 0;
        }
    fine = all && rle_encode(out, all, im->width, im->height, NULL) == SAMITE_OK;
    free(all);
    free(data);
    pixels_free(&p);
    return fine;
}

static int add_circle(outlines *p, const double *xy, samite_error *err)
{
    double circle[2 * CIRCLE_POINTS], r = hypot(xy[2] - xy[0], xy[3] - xy[1]);
    for (int i = 0; i < CIRCLE_POINTS; i++) {
        double angle = 2 * M_PI * i / CIRCLE_POINTS;
        circle[2 * i] = xy[0] + r * cos(angle);
        circle[2 * i + 1] = xy[1] + r * sin(angle);
    }
    return outlines_add(p, circle, CIRCLE_POINTS, err);
}

/* The geometry of a shape; *why is set when it cannot be taken over. */
static int read_shape(labelled_object *o, const json_t *shape, const labelled_image *im, const char **why,
                      samite_error *err)
{
    size_t n;
    const char *type = json_string_value(json_object_get(shape, "shape_type"));
    double *xy = read_points(json_object_get(shape, "points"), &n);
    type = type ? type : "polygon";
    int code = SAMITE_OK;
    if (!xy) {
        *why = "shapes without usable points";
    } else if (strcmp(type, "polygon") == 0 && n >= 3) {
        code = outlines_add(&o->drawn, xy, n, err);
    } else if (strcmp(type, "rectangle") == 0 && n == 2) {
        o->has_box = true;
        memcpy(o->box, (double[]){fmin(xy[0], xy[2]), fmin(xy[1], xy[3]), fabs(xy[2] - xy[0]), fabs(xy[3] - xy[1])},
               sizeof o->box);
    } else if (strcmp(type, "circle") == 0 && n == 2) {
        code = add_circle(&o->drawn, xy, err);
    } else if (strcmp(type, "mask") == 0) {
        *why = read_mask(&o->mask, shape, xy, im) ? NULL : "masks that cannot be decoded";
    } else {
        *why = strcmp(type, "polygon") == 0 ? "polygons with fewer than 3 points"
                                            : "points, lines and other shapes without an area";
    }
    free(xy);
    return code;
}

/* The polygon object of this group that came earlier in this file, or NULL. */
static labelled_object *find_group(annotations *a, const json_t *groups, size_t first, const json_t *group,
                                   int category)
{
    for (size_t i = first; json_is_integer(group) && i < a->count; i++)
        if (json_equal(json_array_get(groups, i - first), group) && a->objects[i].category == category &&
            a->objects[i].drawn.count)
            return &a->objects[i];
    return NULL;
}

/* Adds a shape, or joins it to the object of its group. */
static int add_read(annotations *a, labelled_object *o, json_t *groups, size_t first, json_t *group, samite_error *err)
{
    labelled_object *same = o->drawn.count ? find_group(a, groups, first, group, o->category) : NULL;
    if (same) {
        int code = outlines_add(&same->drawn, o->drawn.xy, o->drawn.ends[0], err);
        object_free(o);
        return code;
    }
    if (json_array_append(groups, group ? group : json_null())) {
        object_free(o);
        return fail(err, SAMITE_RESOURCE, "out of memory for shapes");
    }
    return annotations_add(a, o, err);
}

static int read_shapes(annotations *a, int image, const json_t *shapes, const char *name, samite_error *err)
{
    size_t i, first = a->count;
    json_t *shape, *groups = json_array();
    int code = groups ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "%s: out of memory", name);
    json_array_foreach(shapes, i, shape) {
        const char *label = json_string_value(json_object_get(shape, "label")), *why = NULL;
        const json_t *score = json_object_get(shape, "score");
        labelled_object o = {.image = image, .score = json_is_number(score) ? json_number_value(score) : (double)NAN};
        if (code)
            break;
        o.category = annotations_category(a, label ? label : "object", err);
        code = o.category < 0 ? SAMITE_RESOURCE : read_shape(&o, shape, &a->images[image], &why, err);
        if (code || why)
            object_free(&o);
        if (!code && why)
            annotations_drop(a, why, "%.60s, shape %zu", name, i + 1);
        else if (!code)
            code = add_read(a, &o, groups, first, json_object_get(shape, "group_id"), err);
    }
    json_decref(groups);
    return code;
}

static bool is_side(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) <= 1 << 24;
}

int labelme_read(annotations *a, const char *data, size_t size, const char *name, samite_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(data, size, 0, &where);
    if (!root)
        return fail(err, SAMITE_INPUT, "%s: broken JSON, line %d column %d: %s", name, where.line, where.column,
                    where.text);
    const json_t *shapes = json_object_get(root, "shapes"), *width = json_object_get(root, "imageWidth");
    const json_t *height = json_object_get(root, "imageHeight");
    const char *file = json_string_value(json_object_get(root, "imagePath"));
    int code = SAMITE_OK;
    if (!json_is_array(shapes))
        code = fail(err, SAMITE_INPUT, "%s: no \"shapes\"; is this a labelme file?", name);
    else if (!is_side(width) || !is_side(height) ||
             json_integer_value(width) * json_integer_value(height) > (json_int_t)IMAGE_MAX_PIXELS)
        code = fail(err, SAMITE_INPUT, "%s: imageWidth and imageHeight are missing or no sizes of a picture", name);
    if (!code) {
        int image = annotations_add_image(a, file && *file ? file : name, (int)json_integer_value(width),
                                          (int)json_integer_value(height), err);
        code = image < 0 ? SAMITE_RESOURCE : read_shapes(a, image, shapes, name, err);
    }
    json_decref(root);
    return code;
}
