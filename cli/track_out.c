/* track_out.c - results of `samite track`: JSON lines, label maps, an overlay video, tracks in COCO's video form.
 *
 * Tracks grow in one small file per object and are joined at the end, so that nothing of a long video stays in
 * memory but
 * the numbers of its frames.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "page_files.h"
#include "track.h"

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "out of memory for the results");
}

/* DIR/NAME, or DIR/NAME<number>SUFFIX for number >= 0. NULL: out of memory. */
static char *file_in(const track_output *o, const char *name, int64_t number, const char *suffix)
{
    char *path = NULL;
    int n = number < 0 ? asprintf(&path, "%s/%s", o->s->out, name)
                       : asprintf(&path, "%s/%s%06lld%s", o->s->out, name, (long long)number, suffix);
    return n < 0 ? NULL : path;
}

int output_open(track_output *o, const track_settings *s, const char *source, double rate, samite_error *err)
{
    *o = (track_output){.s = s, .source = source, .rate = rate};
    static const char *const folders[] = {"labels", "parts"};
    o->labels = s->labels || s->formats & FORMAT_PNG;
    int code = SAMITE_OK;
    for (size_t i = 0; s->out && i < 2 && !code; i++) {
        char *path = file_in(o, folders[i], -1, "");
        code = path ? i == 0 && !o->labels ? SAMITE_OK : make_folders(path, err) : no_memory(err);
        free(path);
    }
    return code ? code : frame_formats_open(&o->formats, s->out, s->formats, s->text, err);
}

/* ---- lines ---- */

static json_t *object_json(const samite_tracked *t, int width, int height)
{
    char *counts = NULL;
    if (samite_mask_string(&counts, &t->mask, NULL))
        return NULL;
    json_t *o = json_pack("{s:I, s:o, s:o, s:[o, o, o, o], s:I, s:{s:[i, i], s:s}}", "id", (json_int_t)t->id, "score",
                          json_number((double)t->score), "presence", json_number((double)t->presence), "box",
                          json_number((double)t->box[0]), json_number((double)t->box[1]),
                              json_number((double)t->box[2]),
                          json_number((double)t->box[3]), "area", (json_int_t)t->area, "segmentation", "size",
                              height, width,
                          "counts", counts);
    samite_free(counts);
    return o;
}

static int print_frame(const samite_frame_result *f, samite_error *err)
{
    json_t *list = json_array();
    bool bad = !list;
    for (int i = 0; i < f->count && !bad; i++)
        bad = json_array_append_new(list, object_json(&f->object[i], f->width, f->height)) != 0;
    json_t *line = json_pack("{s:I, s:o, s:i, s:i, s:o}", "frame", (json_int_t)f->frame, "time", json_number(f->time),
                             "width", f->width, "height", f->height, "objects", list);
    char *s = bad || !line ? NULL : json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    if (!s)
        return no_memory(err);
    puts(s);
    free(s);
    return finish_output(EXIT_OK) ? fail(err, SAMITE_RESOURCE, "standard output cannot be written") : SAMITE_OK;
}

/* ---- tracks ---- */

static int note_frame(track_output *o, const samite_frame_result *f, samite_error *err)
{
    if (o->frame_count == o->frame_room) {
        size_t room = o->frame_room ? 2 * o->frame_room : 256;
        int64_t *frames = realloc(o->frames, sizeof *frames * room);
        if (frames)
            o->frames = frames;
        double *times = frames ? realloc(o->times, sizeof *times * room) : NULL;
        if (!times)
            return no_memory(err);
        o->times = times;
        o->frame_room = room;
    }
    o->frames[o->frame_count] = f->frame;
    o->times[o->frame_count++] = f->time;
    return SAMITE_OK;
}

static int note_object(track_output *o, const samite_tracked *t, samite_error *err)
{
    for (size_t i = 0; i < o->id_count; i++)
        if (o->ids[i] == t->id) {
            o->scores[i] = (double)t->score;
            return SAMITE_OK;
        }
    if (o->id_count == o->id_room) {
        size_t room = o->id_room ? 2 * o->id_room : 64;
        int64_t *ids = realloc(o->ids, sizeof *ids * room);
        if (ids)
            o->ids = ids;
        double *scores = ids ? realloc(o->scores, sizeof *scores * room) : NULL;
        if (!scores)
            return no_memory(err);
        o->scores = scores;
        o->id_room = room;
    }
    o->ids[o->id_count] = t->id;
    o->scores[o->id_count++] = (double)t->score;
    return SAMITE_OK;
}

/* One line more in the object's own file: frame, area, box, run lengths. */
static int append_track(const track_output *o, const samite_frame_result *f, const samite_tracked *t, bool fresh,
                        samite_error *err)
{
    char *path = file_in(o, "parts/", t->id, ""), *counts = NULL;
    int code = path ? samite_mask_string(&counts, &t->mask, err) : no_memory(err);
    FILE *file = code ? NULL : fopen(path, fresh ? "w" : "a");
    if (!code && !file)
        code = fail(err, SAMITE_RESOURCE, "cannot write %s: %s", path, strerror(errno));
    if (file) {
        fprintf(file, "%lld %llu %.9g %.9g %.9g %.9g %s\n", (long long)f->frame, (unsigned long long)t->area,
                (double)t->box[0], (double)t->box[1], (double)(t->box[2] - t->box[0]), (double)(t->box[3] - t->box[1]),
                counts);
        bool bad = ferror(file) != 0;
        if (fclose(file) != 0 || bad)
            code = fail(err, SAMITE_RESOURCE, "cannot write %s: the disk may be full", path);
    }
    samite_free(counts);
    free(path);
    return code;
}

static int keep_tracks(track_output *o, const samite_frame_result *f, samite_error *err)
{
    int code = SAMITE_OK;
    for (int i = 0; i < f->count && !code; i++) {
        size_t before = o->id_count;
        code = note_object(o, &f->object[i], err);
        if (!code)
            code = append_track(o, f, &f->object[i], o->id_count > before, err);
    }
    return code;
}

int output_results(track_output *o, const samite_video_results *r, samite_error *err)
{
    int code = SAMITE_OK;
    for (int i = 0; i < r->count && !code; i++) {
        const samite_frame_result *f = &r->frame[i];
        if (!o->s->no_json)
            code = print_frame(f, err);
        if (!code)
            code = note_frame(o, f, err);
        if (!code && o->s->out)
            code = keep_tracks(o, f, err);
        if (!code)
            code = frame_formats_add(&o->formats, f, err);
        if (!code && o->labels) {
            char *path = file_in(o, "labels/", f->frame, ".png");
            code = path ? samite_frame_labels(f, path, err) : no_memory(err);
            free(path);
        }
        if (!code && o->s->overlay)
            code = overlay_add(o, f, err);
    }
    return code;
}

/* ---- joining ---- */

typedef struct line { int64_t frame; unsigned long long area; double box[4]; char *counts; } line;

static int by_frame(const void *a, const void *b)
{
    int64_t x = ((const line *)a)->frame, y = ((const line *)b)->frame;
    return x < y ? -1 : x > y;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void free_lines(line *l, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(l[i].counts);
    free(l);
}

/* The lines of an object's file, by frame. */
static int read_lines(line **out, size_t *count, const char *path, samite_error *err)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0, size = 0;
    *out = NULL;
    *count = 0;
    if (!file)
        return fail(err, SAMITE_RESOURCE, "cannot read %s again: %s", path, strerror(errno));
    while (getline(&text, &size, file) > 0) {
        line l;
        long long frame;
        int used = 0;
        if (sscanf(text, "%lld %llu %lf %lf %lf %lf %n", &frame, &l.area, &l.box[0], &l.box[1], &l.box[2], &l.box[3],
                   &used) != 6 || !used)
            continue;
        if (*count == room) {
            room = room ? 2 * room : 64;
            line *more = realloc(*out, sizeof *more * room);
            if (!more)
                break;
            *out = more;
        }
        l.frame = frame;
        text[used + (int)strcspn(text + used, "\n")] = '\0';
        l.counts = text_copy(text + used);
        if (!l.counts)
            break;
        (*out)[(*count)++] = l;
    }
    bool bad = !feof(file);
    fclose(file);
    free(text);
    if (*count)
        qsort(*out, *count, sizeof **out, by_frame);
    return bad ? no_memory(err) : SAMITE_OK;
}

/* One list of an annotation with an entry for every frame; null where the object is not seen. */
static void write_list(file_writer *w, const track_output *o, const line *l, size_t count, const char *name)
{
    size_t at = 0;
    file_printf(w, ",\"%s\":[", name);
    for (size_t i = 0; i < o->frame_count; i++) {
        while (at < count && l[at].frame < o->frames[i])
            at++;
        if (i)
            file_printf(w, ",");
        if (at == count || l[at].frame != o->frames[i])
            file_printf(w, "null");
        else if (name[0] == 's') {
            json_t *s = json_pack("{s:[i, i], s:s}", "size", o->height, o->width, "counts", l[at].counts);
            json_write(w, s);
            json_decref(s);
        } else if (name[0] == 'b') {
            file_printf(w, "[%.9g,%.9g,%.9g,%.9g]", l[at].box[0], l[at].box[1], l[at].box[2], l[at].box[3]);
        } else {
            file_printf(w, "%llu", l[at].area);
        }
    }
    file_printf(w, "]");
}

static int write_track(file_writer *w, const track_output *o, size_t i, samite_error *err)
{
    line *l;
    size_t count;
    char *path = file_in(o, "parts/", o->ids[i], "");
    int code = path ? read_lines(&l, &count, path, err) : no_memory(err);
    if (!path)
        return code;
    if (!code) {
        file_printf(w, "%s{\"id\":%zu,\"object\":%lld,\"video_id\":1,\"category_id\":1,\"iscrowd\":0,\"score\":%.9g",
                    i ? ",\n" : "\n", i + 1, (long long)o->ids[i], o->scores[i]);
        write_list(w, o, l, count, "segmentations");
        write_list(w, o, l, count, "bboxes");
        write_list(w, o, l, count, "areas");
        file_printf(w, "}");
        unlink(path);
    }
    free_lines(l, count);
    free(path);
    return code;
}

static bool write_head(file_writer *w, const track_output *o)
{
    json_t *numbers = json_array(), *times = json_array(), *video = json_object();
    bool bad = !video || json_set_path(video, "name", o->source) != 0;
    for (size_t i = 0; i < o->frame_count; i++) {
        bad |= json_array_append_new(numbers, json_integer((json_int_t)o->frames[i])) != 0;
        bad |= json_array_append_new(times, json_number(o->times[i])) != 0;
    }
    json_t *facts = json_pack("{s:i, s:i, s:i, s:I, s:o, s:o}", "id", 1, "width", o->width, "height", o->height,
                              "length",
                              (json_int_t)o->frame_count, "frame_indices", numbers, "times", times);
    bad |= json_object_update_new(video, facts) != 0;
    json_t *category = json_pack("[{s:i, s:o}]", "id", 1, "name", json_name(o->s->text ? o->s->text : "object"));
    file_printf(w, "{\"info\":{\"description\":\"samite track\",\"version\":\"%s\"},\n\"videos\":[", SAMITE_VERSION);
    bad |= !json_write(w, video);
    file_printf(w, "],\n\"categories\":");
    bad |= !json_write(w, category);
    json_decref(video);
    json_decref(category);
    return !bad;
}

/* Frames in growing order, times with them. */
static void sort_frames(track_output *o)
{
    bool falling = o->frame_count > 1 && o->frames[0] > o->frames[o->frame_count - 1];
    typedef struct pair { int64_t frame; double time; } pair;
    pair *p = malloc(sizeof *p * (o->frame_count + 1));
    for (size_t i = 0; p && i < o->frame_count; i++)
        p[i] = (pair){o->frames[i], o->times[i]};
    if (p && o->frame_count && (falling || o->s->direction))
        qsort(p, o->frame_count, sizeof *p, by_number);
    for (size_t i = 0; p && i < o->frame_count; i++) {
        o->frames[i] = p[i].frame;
        o->times[i] = p[i].time;
    }
    free(p);
}

static int write_tracks(track_output *o, samite_error *err)
{
    file_writer w;
    char *path = file_in(o, "tracks.json", -1, ""), *parts = file_in(o, "parts", -1, "");
    int code = path && parts ? file_writer_open(&w, path, err) : no_memory(err);
    if (!code) {
        sort_frames(o);
        if (!write_head(&w, o))
            code = no_memory(err);
        file_printf(&w, ",\n\"annotations\":[");
        for (size_t i = 0; i < o->id_count && !code; i++)
            code = write_track(&w, o, i, err);
        file_printf(&w, "\n]}\n");
        if (code)
            file_writer_abort(&w);
        else
            code = file_writer_commit(&w, err);
        rmdir(parts);
    }
    free(path);
    free(parts);
    return code;
}

int output_close(track_output *o, int code, samite_error *err)
{
    samite_error late = {0};
    int bad = SAMITE_OK;
    if (o->s->overlay)
        bad = overlay_close(o, &late);
    int tracks = o->s->out && o->frame_count ? write_tracks(o, bad ? NULL : &late) : SAMITE_OK;
    bad = bad ? bad : tracks;
    int worse = frame_formats_close(&o->formats, o->frame_count > 0, bad ? NULL : &late);
    bad = bad ? bad : worse;
    free(o->frames);
    free(o->times);
    free(o->ids);
    free(o->scores);
    if (!code && bad)
        *err = late;
    return code ? code : bad;
}
