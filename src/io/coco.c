/* coco.c - results as COCO-style JSON, one record at a time. */
#include "io/coco.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "base/json.h"

#define BAD_CHARACTER 0xfffdu

uint32_t utf8_next(const char **s)
{
    static const uint32_t least[4] = {0, 0x80, 0x800, 0x10000};
    const uint8_t *p = (const uint8_t *)*s;
    int more = p[0] < 0x80 ? 0 : p[0] < 0xc0 ? -1 : p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : p[0] < 0xf8 ? 3 : -1;
    if (p[0] == 0)
        return 0;
    (*s)++;
    if (more < 0)
        return BAD_CHARACTER;
    uint32_t c = more ? p[0] & (0x3fu >> more) : p[0];
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return BAD_CHARACTER;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return BAD_CHARACTER;
    *s += more;
    return c;
}

char *utf8_repair(const char *s)
{
    char *out = malloc(strlen(s) * 3 + 1), *to = out;
    while (out && *s) {
        const char *start = s;
        if (utf8_next(&s) == BAD_CHARACTER) {
            memcpy(to, "\xef\xbf\xbd", 3);
            to += 3;
        } else {
            memcpy(to, start, (size_t)(s - start));
            to += s - start;
        }
    }
    if (out)
        *to = '\0';
    return out;
}

static json_t *string_of(const char *s)
{
    char *clean = utf8_repair(s ? s : "");
    json_t *j = clean ? json_string(clean) : NULL;
    free(clean);
    return j;
}

/* Rounded to thousandths (scores: millionths), because pixels know no more. */
static json_t *real_of(double v, double steps)
{
    return json_real(isfinite(v) ? round(v * steps) / steps : 0);
}

/* Appends `record` on a line of its own and frees it. false: out of memory. */
static bool add_record(text *out, json_t *record, bool first)
{
    char *s = record ? json_dumps(record, JSON_REAL_PRECISION(12)) : NULL;
    json_decref(record);
    if (s) {
        text_printf(out, "%s\n", first ? "" : ",");
        text_add(out, s, strlen(s));
    }
    free(s);
    return s != NULL;
}

static json_t *image_record(const coco_image *im)
{
    json_t *j = json_pack("{s:I, s:i, s:i}", "id", (json_int_t)im->id, "width", im->width, "height", im->height);
    if (j && json_set_path(j, "file_name", im->file_name)) {
        json_decref(j);
        return NULL;
    }
    if (j && im->exif_orientation > 0) {
        json_object_set_new(j, "exif_orientation", json_integer(im->exif_orientation));
        json_object_set_new(j, "exif_applied", json_boolean(im->exif_applied));
    }
    return j;
}

static json_t *polygons_of(const rle *mask, double tolerance, samite_error *err)
{
    polygons p;
    if (mask_to_polygons(&p, mask, tolerance, err) != SAMITE_OK)
        return NULL;
    json_t *all = json_array();
    for (size_t i = 0, at = 0; i < p.count; i++) {
        json_t *one = json_array();
        for (; at < p.ends[i]; at++) {
            json_array_append_new(one, json_integer(p.xy[2 * at]));
            json_array_append_new(one, json_integer(p.xy[2 * at + 1]));
        }
        json_array_append_new(all, one);
    }
    polygons_free(&p);
    return all;
}

static json_t *runs_of(const rle *mask, samite_error *err)
{
    char *counts;
    if (rle_to_string(&counts, mask, err) != SAMITE_OK)
        return NULL;
    json_t *j = json_pack("{s:[i,i], s:s}", "size", mask->height, mask->width, "counts", counts);
    free(counts);
    return j;
}

static json_t *annotation_record(const coco_annotation *a, const coco_data *d, samite_error *err)
{
    double area = a->mask ? (double)rle_area(a->mask) : a->box[2] * a->box[3];
    json_t *j = json_pack(
        "{s:I, s:I, s:I, s:[o,o,o,o], s:o, s:i, s:o}", "id", (json_int_t)a->id, "image_id", (json_int_t)a->image_id,
        "category_id", (json_int_t)a->category_id, "bbox", real_of(a->box[0], 1e3), real_of(a->box[1], 1e3),
        real_of(a->box[2], 1e3), real_of(a->box[3], 1e3), "area",
        a->mask ? json_integer((json_int_t)area) : real_of(area, 1e3), "iscrowd", 0, "score", real_of(a->score, 1e6));
    if (!j || !a->mask)
        return j;
    bool outlines = d->segmentation != COCO_RLE, runs = d->segmentation != COCO_POLYGONS;
    bool ok = true;
    if (runs)
        ok = json_object_set_new(j, "segmentation", runs_of(a->mask, err)) == 0;
    if (outlines)
        ok = ok &&
             json_object_set_new(j, runs ? "polygons" : "segmentation", polygons_of(a->mask, d->tolerance, err)) == 0;
    if (!ok)
        json_decref(j);
    return ok ? j : NULL;
}

int coco_format(text *out, const coco_data *d, samite_error *err)
{
    bool ok = true;
    text_printf(out, "{\n\"info\": ");
    json_t *info = d->info ? json_loads(d->info, JSON_REJECT_DUPLICATES, NULL)
                           : json_pack("{s:o}", "description", string_of(d->description));
    if (d->info && !json_is_object(info)) {
        json_decref(info);
        return fail(err, SAMITE_USAGE, "info for a COCO file is not a JSON object: %.100s", d->info);
    }
    char *s = info ? json_dumps(info, 0) : NULL;
    text_printf(out, "%s,\n\"images\": [", s ? s : "{}");
    json_decref(info);
    free(s);
    for (size_t i = 0; ok && i < d->image_count; i++)
        ok = add_record(out, image_record(&d->images[i]), i == 0);
    text_printf(out, "\n],\n\"categories\": [");
    for (size_t i = 0; ok && i < d->category_count; i++) {
        json_t *j =
            json_pack("{s:I, s:o}", "id", (json_int_t)d->categories[i].id, "name", string_of(d->categories[i].name));
        ok = add_record(out, j, i == 0);
    }
    text_printf(out, "\n],\n\"annotations\": [");
    for (size_t i = 0; ok && i < d->annotation_count; i++)
        ok = add_record(out, annotation_record(&d->annotations[i], d, err), i == 0);
    text_printf(out, "\n]\n}\n");
    return ok && !out->failed ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "no memory for results as JSON");
}

int coco_write(const char *path, const coco_data *data, samite_error *err)
{
    text t = {0};
    file_writer w;
    int code = coco_format(&t, data, err);
    if (code == SAMITE_OK && (code = file_writer_open(&w, path, err)) == SAMITE_OK) {
        file_write(&w, t.data, t.size);
        code = file_writer_commit(&w, err);
    }
    text_free(&t);
    return code;
}
