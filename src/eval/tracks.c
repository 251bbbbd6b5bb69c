/* tracks.c - reads COCO-video JSON; every mask is checked and kept as compressed run lengths. */
#include "eval/tracks.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "eval/segmentation.h"
#include "eval/tracks_read.h"

#define MOST_FRAMES  10000000

int tracks_no_memory(const track_set *s, samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "not enough memory to read %s", s->path);
}

/* ---- values ---- */

id_value tracks_id(const json_t *v, char room[64])
{
    if (json_is_string(v))
        return id_from_string(json_string_value(v), json_string_length(v));
    if (!json_is_number(v))
        return (id_value){0};
    if (json_is_integer(v))
        snprintf(room, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else
        snprintf(room, 64, "%.17g", json_real_value(v));
    return id_from_number(room, strlen(room));
}

static bool add_numbers(shape_batch *b, const json_t *list)
{
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        if (grow(&b->numbers, b->count, &b->room, sizeof *b->numbers))
            return false;
        b->numbers[b->count++] = json_is_number(v) ? json_number_value(v) : NAN;
    }
    return true;
}

/* Polygons, or run lengths as a list. */
static int list_mask(rle *out, const json_t *list, bool polygons, const video_size *video, const char *what,
                     samite_error *err)
{
    shape_batch b = {0};
    shape s = {.parts = polygons ? json_array_size(list) : 0};
    size_t i;
    json_t *one;
    bool fine = polygons || add_numbers(&b, list);
    json_array_foreach(list, i, one) {
        if (!polygons)
            break;
        fine = fine && add_numbers(&b, one) && !grow(&b.ends, b.end_count, &b.end_room, sizeof *b.ends);
        if (fine)
            b.ends[b.end_count++] = b.count;
    }
    s.count = b.count;
    int code = !fine      ? fail(err, SAMITE_RESOURCE, "%s: not enough memory", what)
               : polygons ? shape_polygons(out, &b, &s, video->width, video->height, what, err)
                          : shape_counts(out, &b, &s, video->width, video->height, what, err);
    shapes_free(&b);
    return code;
}

static int mask_of(rle *out, const json_t *v, const video_size *video, const char *what, samite_error *err)
{
    const json_t *size = json_object_get(v, "size"), *counts = json_object_get(v, "counts");
    if (json_is_array(v))
        return list_mask(out, v, true, video, what, err);
    if (json_array_size(size) != 2 || !(json_is_string(counts) || json_is_array(counts)))
        return fail(err, SAMITE_INPUT, "%s: expected polygons, or run lengths with size and counts", what);
    json_int_t h = json_integer_value(json_array_get(size, 0)), w = json_integer_value(json_array_get(size, 1));
    if (h != video->height || w != video->width)
        return fail(err, SAMITE_INPUT, "%s: its mask has %lld x %lld pixels (width x height), the video %d x %d", what,
                    (long long)w, (long long)h, video->width, video->height);
    if (json_is_array(counts))
        return list_mask(out, counts, false, video, what, err);
    return rle_from_string(out, json_string_value(counts), json_string_length(counts), video->width, video->height,
                           what, err);
}

/* ---- records ---- */

int tracks_numbers(int64_t **out, track_set *s, const json_t *list, size_t n, size_t at, samite_error *err)
{
    *out = NULL;
    if (!list || json_is_null(list))
        return SAMITE_OK;
    int64_t *v = json_array_size(list) == n ? pool_take(&s->texts, n * sizeof *v) : NULL;
    if (json_array_size(list) == n && !v)
        return tracks_no_memory(s, err);
    for (size_t i = 0; v && i < n; i++) {
        const json_t *one = json_array_get(list, i);
        v[i] = (int64_t)json_integer_value(one);
        if (!json_is_integer(one) || v[i] < 0 || (i && v[i] <= v[i - 1]))
            v = NULL;
    }
    *out = v;
    return v ? SAMITE_OK
             : fail(err, SAMITE_INPUT, "%s: frame_indices of video number %zu are not %zu ascending numbers", s->path,
                    at + 1, n);
}

static int add_video(track_set *s, const json_t *v, size_t at, samite_error *err)
{
    char room[64];
    bool known;
    id_value id = tracks_id(json_object_get(v, "id"), room);
    json_int_t w = json_integer_value(json_object_get(v, "width")),
               h = json_integer_value(json_object_get(v, "height"));
    const json_t *files = json_object_get(v, "file_names");
    json_int_t n = json_is_integer(json_object_get(v, "length")) ? json_integer_value(json_object_get(v, "length"))
                                                                  : (json_int_t)json_array_size(files);
    if (id.kind == ID_NONE)
        return fail(err, SAMITE_INPUT, "%s: video number %zu has no id", s->path, at + 1);
    if (w < 1 || h < 1 || w > 1 << 15 || h > 1 << 15 || n < 1 || n > MOST_FRAMES)
        return fail(err, SAMITE_INPUT, "%s: video number %zu needs width, height and length (frames)", s->path, at + 1);
    int32_t index = ids_put(&s->video_ids, &id, &known);
    if (index < 0 || grow(&s->videos, (size_t)index, &s->video_room, sizeof *s->videos))
        return tracks_no_memory(s, err);
    if (known)
        return fail(err, SAMITE_INPUT, "%s: video number %zu repeats an id", s->path, at + 1);
    const char *name = json_string_value(json_object_get(v, "name"));
    s->videos[index] =
        (video_size){(int)w, (int)h, (size_t)n, name ? pool_string(&s->texts, name, strlen(name)) : NULL, NULL};
    return tracks_numbers(&s->videos[index].numbers, s, json_object_get(v, "frame_indices"), (size_t)n, at, err);
}

static int add_category(track_set *s, const json_t *v, size_t at, samite_error *err)
{
    char room[64];
    bool known;
    id_value id = tracks_id(json_object_get(v, "id"), room);
    const char *name = json_string_value(json_object_get(v, "name"));
    if (id.kind == ID_NONE)
        return fail(err, SAMITE_INPUT, "%s: category number %zu has no id", s->path, at + 1);
    int32_t index = ids_put(&s->category_ids, &id, &known);
    if (index < 0 || grow(&s->categories, (size_t)index, &s->category_room, sizeof *s->categories))
        return tracks_no_memory(s, err);
    s->categories[index] = name ? pool_string(&s->texts, name, strlen(name)) : "";
    return s->categories[index] ? SAMITE_OK : tracks_no_memory(s, err);
}

int64_t tracks_position(const video_size *v, int64_t number)
{
    size_t low = 0, high = v->frames;
    if (!v->numbers)
        return number >= 0 && (uint64_t)number < v->frames ? number : -1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (v->numbers[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < v->frames && v->numbers[low] == number ? (int64_t)low : -1;
}

int tracks_put_mask(track_set *s, const video_size *video, track *t, size_t frame, const json_t *v, const char *what,
                    samite_error *err)
{
    char *text = NULL;
    rle r = {0};
    if (!v || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0) ||
        (json_is_object(v) && json_object_size(v) == 0))
        return SAMITE_OK;
    int code = mask_of(&r, v, video, what, err);
    if (!code && rle_area(&r) == 0) {
        s->empty_masks++;
    } else if (!code) {
        code = rle_to_string(&text, &r, err);
        if (!code && !(t->mask[frame] = pool_string(&s->texts, text, strlen(text))))
            code = tracks_no_memory(s, err);
    }
    free(text);
    rle_free(&r);
    return code;
}

int tracks_open(track_set *s, const video_size *video, track *t, samite_error *err)
{
    t->mask = pool_take(&s->texts, video->frames * sizeof *t->mask);
    if (!t->mask)
        return tracks_no_memory(s, err);
    for (size_t f = 0; f < video->frames; f++)
        t->mask[f] = NULL;
    return SAMITE_OK;
}

/* `numbers`: the frame of each entry of the list; NULL: they are those of the truth. */
static int add_masks(track_set *s, const track_set *truth, track *t, const json_t *list, const int64_t *numbers,
                     size_t at, samite_error *err)
{
    const video_size *video = &truth->videos[t->video];
    int code = tracks_open(s, video, t, err);
    for (size_t f = 0; f < json_array_size(list) && !code; f++) {
        char what[200];
        int64_t to = numbers ? tracks_position(video, numbers[f]) : (int64_t)f;
        snprintf(what, sizeof what, "%.100s: track number %zu, frame %zu", s->path, at + 1, f);
        if (to >= 0)
            code = tracks_put_mask(s, video, t, (size_t)to, json_array_get(list, f), what, err);
        else if (json_is_object(json_array_get(list, f)))
            s->other_frames++;
    }
    return code;
}

int tracks_keep(track_set *s, const track_set *truth, const track *t, samite_error *err)
{
    bool seen = false;
    for (size_t f = 0; f < truth->videos[t->video].frames; f++)
        seen |= t->mask[f] != NULL;
    if (!seen)
        return SAMITE_OK;
    if (grow(&s->tracks, s->count, &s->room, sizeof *s->tracks))
        return tracks_no_memory(s, err);
    s->tracks[s->count++] = *t;
    return SAMITE_OK;
}

/* `m`: what results call videos and categories; NULL: the same as truth. */
static int add_track(track_set *s, const track_set *truth, const track_match *m, const json_t *v, size_t at,
                     samite_error *err)
{
    char room[64], name[64];
    const json_t *list = json_object_get(v, "segmentations");
    id_value video = tracks_id(json_object_get(v, "video_id"), room);
    const int64_t *numbers = NULL;
    size_t frames = 0;
    track t = {.video = video.kind ? track_match_video(m, truth, &video, &numbers, &frames) : -1, .score = 1};
    if (t.video < 0)
        return fail(err, SAMITE_INPUT, "%s: track number %zu is on video id %s, which %s does not have", s->path,
                    at + 1, id_print(name, sizeof name, &video), truth->path);
    id_value category = tracks_id(json_object_get(v, "category_id"), room);
    t.category = category.kind ? track_match_category(m, truth, &category) : -1;
    if (t.category < 0) {
        s->unknown_categories++;
        return SAMITE_OK;
    }
    if (!json_is_array(list) || json_array_size(list) != frames)
        return fail(err, SAMITE_INPUT,
                    "%s: track number %zu has %zu segmentations; expected a list with one for each of the %zu "
                    "frames, null where the object is not seen",
                    s->path, at + 1, json_array_size(list), frames);
    if (json_is_number(json_object_get(v, "score")))
        t.score = json_number_value(json_object_get(v, "score"));
    int code = add_masks(s, truth, &t, list, numbers, at, err);
    return code ? code : tracks_keep(s, truth, &t, err);
}

/* ---- files ---- */

static int load(json_t **out, track_set *s, const char *data, size_t size, const char *name, samite_error *err)
{
    json_error_t e;
    *s = (track_set){0};
    *out = NULL;
    s->path = pool_string(&s->texts, name, strlen(name));
    if (!s->path)
        return fail(err, SAMITE_RESOURCE, "not enough memory to read %s", name);
    if (!(*out = json_loadb(data ? data : "", size, 0, &e)))
        return fail(err, SAMITE_INPUT, "%s, line %d, column %d: broken JSON (%s)", name, e.line, e.column, e.text);
    return SAMITE_OK;
}

int track_set_parse(track_set *out, const char *data, size_t size, const char *name, samite_error *err)
{
    static const char *const needed[] = {"videos", "categories", "annotations"};
    json_t *o, *v;
    size_t i;
    int code = load(&o, out, data, size, name, err);
    for (int k = 0; k < 3 && !code; k++)
        if (!json_is_array(json_object_get(o, needed[k])))
            code = fail(err, SAMITE_INPUT, "%s has no \"%s\"; expected videos, categories and annotations", name,
                        needed[k]);
    json_array_foreach(json_object_get(o, "videos"), i, v)
        code = code ? code : add_video(out, v, i, err);
    json_array_foreach(json_object_get(o, "categories"), i, v)
        code = code ? code : add_category(out, v, i, err);
    json_array_foreach(json_object_get(o, "annotations"), i, v)
        code = code ? code : add_track(out, out, NULL, v, i, err);
    json_decref(o);
    if (code)
        track_set_free(out);
    return code;
}

static int read_results(track_set *out, const track_set *truth, const json_t *o, const char *name, samite_error *err)
{
    const json_t *list = json_is_array(o) ? o : json_object_get(o, "annotations");
    track_match m;
    json_t *v;
    size_t i;
    if (!json_is_array(list))
        return fail(err, SAMITE_INPUT,
                    "%s has no tracks: expected a list of objects, an object with \"annotations\", or JSON lines of "
                    "samite track", name);
    int code = track_match_open(&m, out, truth, o, err);
    json_array_foreach(list, i, v)
        code = code ? code : add_track(out, truth, &m, v, i, err);
    track_match_free(&m);
    return code;
}

int track_results_parse(track_set *out, const track_set *truth, const char *data, size_t size, const char *name,
                        samite_error *err)
{
    json_t *o = NULL;
    int code;
    if (tracks_are_lines(data, size)) {
        *out = (track_set){0};
        out->path = pool_string(&out->texts, name, strlen(name));
        code = out->path ? tracks_read_lines(out, truth, data, size, err)
                         : fail(err, SAMITE_RESOURCE, "not enough memory to read %s", name);
    } else if (!(code = load(&o, out, data, size, name, err))) {
        code = read_results(out, truth, o, name, err);
    }
    json_decref(o);
    if (code)
        track_set_free(out);
    return code;
}

int track_set_read(track_set *out, const char *path, samite_error *err)
{
    file_map m;
    *out = (track_set){0};
    int code = file_map_open(&m, path, err);
    if (code)
        return code;
    code = track_set_parse(out, (const char *)m.data, m.size, path, err);
    file_map_close(&m);
    return code;
}

int track_results_read(track_set *out, const track_set *truth, const char *path, samite_error *err)
{
    file_map m;
    *out = (track_set){0};
    int code = file_map_open(&m, path, err);
    if (code)
        return code;
    code = track_results_parse(out, truth, (const char *)m.data, m.size, path, err);
    file_map_close(&m);
    return code;
}

void track_set_free(track_set *s)
{
    ids_free(&s->video_ids);
    ids_free(&s->category_ids);
    free(s->videos);
    free(s->categories);
    free(s->tracks);
    pool_free(&s->texts);
    *s = (track_set){0};
}

int track_mask(rle *out, const track_set *truth, const track *t, size_t frame, samite_error *err)
{
    const video_size *v = &truth->videos[t->video];
    const char *m = t->mask[frame];
    if (m)
        return rle_from_string(out, m, strlen(m), v->width, v->height, "mask", err);
    uint32_t all = (uint32_t)v->width * (uint32_t)v->height;
    return rle_from_counts(out, &all, 1, v->width, v->height, "mask", err);
}
