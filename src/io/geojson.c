/* geojson.c - the objects of a picture as GeoJSON features, in map coordinates when the picture has them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "io/annotations.h"

#define WGS84 4326

/* One ring: closed, and turned the way RFC 7946 wants it. */
static json_t *ring_json(const double *xy, size_t points, bool hole, const georef *where)
{
    double *map = malloc((points + 1) * 2 * sizeof *map), area = 0;
    json_t *list = map ? json_array() : NULL;
    for (size_t i = 0; map && i < points; i++) {
        const double *m = where->m, x = xy[2 * i], y = xy[2 * i + 1];
        map[2 * i] = where->found ? m[0] + m[1] * x + m[2] * y : x;
        map[2 * i + 1] = where->found ? m[3] + m[4] * x + m[5] * y : y;
    }
    for (size_t i = 0; map && i < points; i++) {
        size_t k = (i + 1) % points;
        area += (map[2 * i] - map[0]) * (map[2 * k + 1] - map[1]) - (map[2 * k] - map[0]) * (map[2 * i + 1] - map[1]);
    }
    for (size_t i = 0; list && i <= points; i++) {
        size_t at = (area < 0) != hole ? (points - i) % points : i % points;
        if (json_array_append_new(list, json_pack("[f, f]", map[2 * at], map[2 * at + 1]))) {
            json_decref(list);
            list = NULL;
        }
    }
    free(map);
    return list;
}

/* Rings of a mask: an outer one, then its holes, for each part. */
static json_t *mask_parts(const rle *mask, const georef *where, samite_error *err)
{
    ring_list l;
    if (mask_to_rings(&l, mask, err))
        return NULL;
    size_t points = l.rings.count ? l.rings.ends[l.rings.count - 1] : 0;
    double *xy = malloc((points + 1) * 2 * sizeof *xy);
    json_t **part = calloc(l.rings.count + 1, sizeof *part), *all = json_array();
    bool fine = xy && part && all;
    for (size_t i = 0; fine && i < 2 * points; i++)
        xy[i] = l.rings.xy[i];
    for (int hole = 0; hole < 2; hole++)
        for (size_t i = 0, at = 0; fine && i < l.rings.count; at = l.rings.ends[i++]) {
            size_t owner = l.owner[i];
            if ((owner != i) != hole)
                continue;
            if (!hole) {
                part[i] = json_array();
                fine = json_array_append_new(all, part[i]) == 0;
            }
            fine = fine && json_array_append_new(part[owner], ring_json(xy + 2 * at, l.rings.ends[i] - at, hole,
                                                                       where)) == 0;
        }
    free(xy);
    free(part);
    ring_list_free(&l);
    if (fine)
        return all;
    json_decref(all);
    fail(err, SAMITE_RESOURCE, "out of memory for outlines");
    return NULL;
}

static json_t *outline_parts(const labelled_object *o, const georef *where, samite_error *err)
{
    outlines p;
    json_t *all = object_outlines(&p, o, err) ? NULL : json_array();
    for (size_t i = 0, at = 0; all && i < p.count; at = p.ends[i++])
        if (json_array_append_new(all, json_pack("[o]", ring_json(p.xy + 2 * at, p.ends[i] - at, false, where)))) {
            json_decref(all);
            all = NULL;
            fail(err, SAMITE_RESOURCE, "out of memory for outlines");
        }
    outlines_free(&p);
    return all;
}

static json_t *feature(const annotations *a, const labelled_object *o, json_int_t number, const georef *where,
                       samite_error *err)
{
    json_t *parts = o->mask.runs && !o->drawn.count ? mask_parts(&o->mask, where, err) : outline_parts(o, where, err);
    if (!parts)
        return NULL;
    json_t *shape = json_array_size(parts) == 1
                        ? json_pack("{s:s, s:O}", "type", "Polygon", "coordinates", json_array_get(parts, 0))
                        : json_pack("{s:s, s:O}", "type", "MultiPolygon", "coordinates", parts);
    json_decref(parts);
    json_t *f = json_pack("{s:s, s:I, s:o, s:{s:o, s:I}}", "type", "Feature", "id", number, "geometry", shape,
                          "properties", "name", json_name(a->categories[o->category]), "object", number);
    json_t *properties = json_object_get(f, "properties");
    if (f && isfinite(o->score))
        json_object_set_new(properties, "score", json_real(o->score));
    if (f && o->has_track)
        json_object_set_new(properties, "track_id", json_integer((json_int_t)o->track));
    if (f && o->mask.runs)
        json_object_set_new(properties, "area_pixels", json_integer((json_int_t)rle_area(&o->mask)));
    if (!f)
        fail(err, SAMITE_RESOURCE, "out of memory for a feature");
    return f;
}

/* The older "crs" member is what GIS programs read; RFC 7946 knows WGS 84 only. */
static json_t *crs_json(int epsg)
{
    char name[48];
    snprintf(name, sizeof name, "urn:ogc:def:crs:EPSG::%d", epsg);
    return json_pack("{s:s, s:{s:s}}", "type", "name", "properties", "name", name);
}

static json_t *collection(const labelled_image *im, const georef *where)
{
    json_t *o = json_pack("{s:s, s:i, s:i}", "type", "FeatureCollection", "width", im->width, "height", im->height);
    if (!o)
        return NULL;
    int bad = json_set_path(o, "picture", im->file);
    bad |= json_object_set_new(o, "coordinates", json_string(where->found ? where->source : "pixels"));
    if (!where->found)
        bad |= json_object_set_new(o, "note",
                                   json_string("no world file and no GeoTIFF tags: coordinates are pixels from "
                                               "the upper left corner, y downwards"));
    else if (where->epsg && where->epsg != WGS84)
        bad |= json_object_set_new(o, "crs", crs_json(where->epsg));
    else if (!where->epsg)
        bad |= json_object_set_new(o, "note", json_string("the coordinate system is that of the world file"));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

int geojson_write(const annotations *a, int image, const georef *where, const char *path, samite_error *err)
{
    static const georef nowhere = {0};
    const georef *g = where ? where : &nowhere;
    json_t *list = json_array(), *o = collection(&a->images[image], g);
    json_int_t number = 0;
    int code = list && o ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    const labelled_image *im = &a->images[image];
    for (size_t i = im->first; i < im->first + im->count && !code; i++) {
        json_t *f = feature(a, &a->objects[i], ++number, g, err);
        code = f && json_array_append_new(list, f) == 0 ? SAMITE_OK : SAMITE_RESOURCE;
    }
    if (code) {
        json_decref(list);
        json_decref(o);
        return code;
    }
    if (json_object_set_new(o, "features", list)) {
        json_decref(o);
        o = NULL;
    }
    return json_write_file(o, path, err);
}
