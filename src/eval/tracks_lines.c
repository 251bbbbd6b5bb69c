/* tracks_lines.c - reads what samite track prints: a line of JSON for every frame. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/tracks_read.h"

#define MOST_MASKS ((size_t)1 << 28)      /* objects times frames */

typedef struct line_reader {
    track_set       *s;
    const track_set *truth;
    id_table         ids;                  /* of objects */
    track           *tracks;
    size_t           room;
} line_reader;

bool tracks_are_lines(const char *data, size_t size)
{
    json_t *o = json_loadb(data ? data : "", size, JSON_DISABLE_EOF_CHECK, NULL);
    bool lines = json_is_integer(json_object_get(o, "frame")) && json_is_array(json_object_get(o, "objects"));
    json_decref(o);
    return lines;
}

/* The track of an object, begun when it is new; NULL after a failure. */
static track *track_of(line_reader *r, const id_value *id, samite_error *err)
{
    bool known;
    const video_size *video = &r->truth->videos[0];
    int32_t index = ids_put(&r->ids, id, &known);
    if (index >= 0 && known)
        return &r->tracks[index];
    if (index < 0 || (size_t)index >= MOST_MASKS / video->frames ||
        grow(&r->tracks, (size_t)index, &r->room, sizeof *r->tracks)) {
        tracks_no_memory(r->s, err);
        return NULL;
    }
    r->tracks[index] = (track){.score = 1};
    return tracks_open(r->s, video, &r->tracks[index], err) ? NULL : &r->tracks[index];
}

static int read_object(line_reader *r, const json_t *o, int64_t frame, size_t line, samite_error *err)
{
    char room[64], name[64], what[200];
    id_value id = tracks_id(json_object_get(o, "id"), room);
    const json_t *score = json_object_get(o, "score");
    if (!id.kind)
        return fail(err, SAMITE_INPUT, "%s, line %zu: an object without id", r->s->path, line);
    track *t = track_of(r, &id, err);
    if (!t)
        return SAMITE_RESOURCE;
    int64_t to = tracks_position(&r->truth->videos[0], frame);
    if (to < 0) {
        r->s->other_frames++;
        return SAMITE_OK;
    }
    if (t->mask[to])
        return fail(err, SAMITE_INPUT, "%s, line %zu: object %s has a mask on frame %lld already", r->s->path, line,
                    id_print(name, sizeof name, &id), (long long)frame);
    if (json_is_number(score))
        t->score = json_number_value(score);
    snprintf(what, sizeof what, "%.100s, line %zu, object %.60s", r->s->path, line, id_print(name, sizeof name, &id));
    return tracks_put_mask(r->s, &r->truth->videos[0], t, (size_t)to, json_object_get(o, "segmentation"), what, err);
}

static int read_line(line_reader *r, const char *data, size_t size, size_t line, samite_error *err)
{
    json_error_t e;
    json_t *o = json_loadb(data, size, 0, &e), *v;
    const json_t *frame = json_object_get(o, "frame"), *list = json_object_get(o, "objects");
    size_t i;
    int code = SAMITE_OK;
    if (!o)
        code = fail(err, SAMITE_INPUT, "%s, line %zu, column %d: broken JSON (%s)", r->s->path, line, e.column,
                    e.text);
    else if (!json_is_integer(frame) || !json_is_array(list))
        code = fail(err, SAMITE_INPUT, "%s, line %zu: expected an object with \"frame\" and \"objects\"", r->s->path,
                    line);
    json_array_foreach(list, i, v)
        code = code ? code : read_object(r, v, (int64_t)json_integer_value(frame), line, err);
    json_decref(o);
    return code;
}

int tracks_read_lines(track_set *s, const track_set *truth, const char *data, size_t size, samite_error *err)
{
    line_reader r = {.s = s, .truth = truth};
    size_t videos = truth->video_ids.count, categories = truth->category_ids.count, line = 0;
    int code = SAMITE_OK;
    if (videos != 1 || categories != 1)
        return fail(err, SAMITE_INPUT, "%s: JSON lines do not say which of the %zu videos and %zu categories of %s "
                    "they are about; give tracks.json, which samite track --out DIR writes", s->path, videos, categories,
                    truth->path);
    for (const char *at = data, *end = data + size; at < end && !code;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at), blank = 0;
        line++;
        while (blank < n && strchr(" \t\r", at[blank]) && at[blank])
            blank++;
        if (blank < n)
            code = read_line(&r, at, n, line, err);
        at += n + 1;
    }
    for (size_t i = 0; i < r.ids.count && !code; i++)
        code = tracks_keep(s, truth, &r.tracks[i], err);
    ids_free(&r.ids);
    free(r.tracks);
    return code;
}
