/* track_overlay.c - `samite track --overlay`: the video with objects drawn in, in its own order and at its own rate. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "track.h"

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "out of memory for the overlay");
}

/* ---- pixels that wait for results ---- */

int overlay_hold(track_output *o, samite_pixels *px, int64_t frame, double time, samite_error *err)
{
    overlay *v = &o->over;
    o->width = px->width;
    o->height = px->height;
    if (!o->s->overlay || track_turns(o->s)) {
        samite_pixels_free(px);
        return SAMITE_OK;
    }
    if (v->held_count == v->held_room) {
        int room = v->held_room ? 2 * v->held_room : 32;
        held *more = realloc(v->held, sizeof *more * (size_t)room);
        if (!more) {
            samite_pixels_free(px);
            return no_memory(err);
        }
        v->held = more;
        v->held_room = room;
    }
    v->held[v->held_count++] = (held){frame, time, *px};
    *px = (samite_pixels){0};
    return SAMITE_OK;
}

/* Draws into the pixels of a frame and adds them to the video. */
static int add_frame(track_output *o, samite_pixels *px, double time, const samite_frame_result *f, samite_error *err)
{
    overlay *v = &o->over;
    int code = SAMITE_OK;
    if (!v->movie) {
        code = samite_movie_open(&v->movie, o->s->overlay, px->width, px->height, o->rate / o->s->stride, err);
        v->first = time;
    }
    if (!code)
        code = samite_frame_draw(px, f, o->s->text, err);
    return code ? code : samite_movie_add(v->movie, px, o->rate > 0 ? time - v->first : NAN, err);
}

static int draw_held(track_output *o, const samite_frame_result *f, samite_error *err)
{
    overlay *v = &o->over;
    if (!v->held_count || v->held[0].frame != f->frame)
        return fail(err, SAMITE_FAILED, "frame %lld came out of order", (long long)f->frame);
    held h = v->held[0];
    memmove(v->held, v->held + 1, sizeof h * (size_t)--v->held_count);
    int code = add_frame(o, &h.px, h.time, f, err);
    samite_pixels_free(&h.px);
    return code;
}

/* ---- results that wait for pixels ---- */

static int spool_failed(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "the results for the overlay cannot be kept in a temporary file: %s",
                strerror(errno));
}

static int note_spooled(overlay *v, int64_t frame, long at, samite_error *err)
{
    if (v->spooled_count == v->spooled_room) {
        int room = v->spooled_room ? 2 * v->spooled_room : 256;
        spooled *more = realloc(v->spooled, sizeof *more * (size_t)room);
        if (!more)
            return no_memory(err);
        v->spooled = more;
        v->spooled_room = room;
    }
    v->spooled[v->spooled_count++] = (spooled){frame, at};
    return SAMITE_OK;
}

static int spool(track_output *o, const samite_frame_result *f, samite_error *err)
{
    overlay *v = &o->over;
    if (!v->spool && !(v->spool = tmpfile()))
        return spool_failed(err);
    long at = ftell(v->spool);
    fwrite(f, sizeof *f, 1, v->spool);
    for (int i = 0; i < f->count; i++) {
        const samite_tracked *t = &f->object[i];
        fwrite(t, sizeof *t, 1, v->spool);
        fwrite(t->mask.counts, sizeof *t->mask.counts, t->mask.runs, v->spool);
    }
    if (at < 0 || ferror(v->spool))
        return spool_failed(err);
    return note_spooled(v, f->frame, at, err);
}

static void free_frame(samite_frame_result *f)
{
    for (int i = 0; i < f->count && f->object; i++)
        free((uint32_t *)(uintptr_t)f->object[i].mask.counts);
    free(f->object);
}

static bool read_object(samite_tracked *t, FILE *file)
{
    samite_tracked from;
    if (fread(&from, sizeof from, 1, file) != 1)
        return false;
    uint32_t *counts = malloc(sizeof *counts * (from.mask.runs + 1));
    from.mask.counts = counts;
    *t = from;
    return counts && fread(counts, sizeof *counts, from.mask.runs, file) == from.mask.runs;
}

/* *f: free_frame when done, whatever comes out. */
static int read_frame(samite_frame_result *f, FILE *file, long at, samite_error *err)
{
    samite_frame_result from;
    *f = (samite_frame_result){0};
    if (fseek(file, at, SEEK_SET) != 0 || fread(&from, sizeof from, 1, file) != 1)
        return spool_failed(err);
    from.object = calloc((size_t)from.count + 1, sizeof *from.object);
    *f = from;
    bool ok = f->object != NULL;
    for (int i = 0; ok && i < f->count; i++)
        ok = read_object(&f->object[i], file);
    return ok ? SAMITE_OK : spool_failed(err);
}

static int by_frame(const void *a, const void *b)
{
    int64_t x = ((const spooled *)a)->frame, y = ((const spooled *)b)->frame;
    return x < y ? -1 : x > y;
}

static int draw_spooled(track_output *o, samite_clip *clip, samite_error *err)
{
    overlay *v = &o->over;
    int code = SAMITE_OK;
    for (int next = 0; next < v->spooled_count && !code;) {
        samite_pixels px;
        samite_frame_result f = {0};
        int64_t frame;
        double time;
        int got = samite_clip_read(clip, -1, &px, &frame, &time, err);
        if (got != 1)
            return got ? got : fail(err, SAMITE_INPUT, "%s: frame %lld cannot be read again", o->source,
                                    (long long)v->spooled[next].frame);
        if (frame == v->spooled[next].frame) {
            code = read_frame(&f, v->spool, v->spooled[next++].at, err);
            if (!code)
                code = add_frame(o, &px, time, &f, err);
            free_frame(&f);
        }
        samite_pixels_free(&px);
    }
    return code;
}

static int write_late(track_output *o, samite_error *err)
{
    overlay *v = &o->over;
    samite_clip *clip = NULL;
    qsort(v->spooled, (size_t)v->spooled_count, sizeof *v->spooled, by_frame);
    int code = samite_clip_open(&clip, o->source, track_clip_flags(o->s), err);
    if (!code)
        code = draw_spooled(o, clip, err);
    samite_clip_free(clip);
    return code;
}

/* ---- both ---- */

int overlay_add(track_output *o, const samite_frame_result *f, samite_error *err)
{
    return track_turns(o->s) ? spool(o, f, err) : draw_held(o, f, err);
}

int overlay_close(track_output *o, samite_error *err)
{
    overlay *v = &o->over;
    int code = v->spooled_count ? write_late(o, err) : SAMITE_OK, end = SAMITE_OK;
    if (v->movie)
        end = samite_movie_finish(v->movie, code ? NULL : err);
    for (int i = 0; i < v->held_count; i++)
        samite_pixels_free(&v->held[i].px);
    free(v->held);
    free(v->spooled);
    if (v->spool)
        fclose(v->spool);
    *v = (overlay){0};
    return code ? code : end;
}
