/* api_clip.c - video in and out for callers: clips, movies, pictures of results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/draw.h"
#include "io/video.h"
#include "output.h"
#include "samite.h"

struct samite_clip { video_reader *v; };
struct samite_movie { video_writer *w; int width, height; };

#define MOST_LABEL 65535

/* ---- clips ---- */

int samite_clip_open(samite_clip **out, const char *path, unsigned flags, samite_error *err)
{
    if (!out || !path || !*path)
        return fail(err, SAMITE_USAGE, "samite_clip_open: no path given");
    samite_clip *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", path);
    video_reader_options o = {.skip_rotation = flags & SAMITE_NO_EXIF, .skip_bad = flags & SAMITE_SKIP_BAD};
    int code = video_open(&c->v, path, &o, err);
    if (code)
        free(c);
    else
        *out = c;
    return code;
}

void samite_clip_describe(const samite_clip *c, samite_clip_info *out)
{
    const video_facts *f = video_facts_of(c->v);
    samite_clip_info info = {out->size, f->frames, f->rate, f->seekable, f->codec, video_damage(c->v)};
    memcpy(out, &info, out->size < sizeof info ? out->size : sizeof info);
}

int samite_clip_read(samite_clip *c, int64_t index, samite_pixels *out, int64_t *found, double *time, samite_error *err)
{
    video_frame f;
    if (!c || !out)
        return fail(err, SAMITE_USAGE, "samite_clip_read: no clip given");
    *out = (samite_pixels){0};
    int code = index < 0 ? video_next(c->v, &f, err) : video_at(c->v, index, &f, err);
    if (code != 1)
        return code;
    *out = (samite_pixels){f.picture.width, f.picture.height, f.picture.rgb, f.picture.exif_orientation,
                           f.picture.exif_applied};
    if (found)
        *found = f.index;
    if (time)
        *time = f.time;
    return 1;
}

void samite_clip_free(samite_clip *c)
{
    if (!c)
        return;
    video_close(c->v);
    free(c);
}

/* ---- movies ---- */

int samite_movie_open(samite_movie **out, const char *path, int width, int height, double rate, samite_error *err)
{
    if (!out || !path || width < 1 || height < 1 || width > 32768 || height > 32768)
        return fail(err, SAMITE_USAGE, "samite_movie_open: no path, or a size of %d x %d", width, height);
    samite_movie *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    *m = (samite_movie){.width = width, .height = height};
    int code = video_writer_open(&m->w, path, width, height, rate, err);
    if (code)
        free(m);
    else
        *out = m;
    return code;
}

int samite_movie_add(samite_movie *m, const samite_pixels *px, double time, samite_error *err)
{
    if (!m || !px || !px->rgb || px->width != m->width || px->height != m->height)
        return fail(err, SAMITE_USAGE, "samite_movie_add: expected a picture of the movie's size");
    return video_writer_add(m->w, px->rgb, time, err);
}

const char *samite_movie_codec(const samite_movie *m)
{
    return video_writer_codec(m->w);
}

int samite_movie_finish(samite_movie *m, samite_error *err)
{
    int code = video_writer_close(m->w, err);
    free(m);
    return code;
}

void samite_movie_free(samite_movie *m)
{
    if (!m)
        return;
    video_writer_abort(m->w);
    free(m);
}

/* ---- pictures of results ---- */

int samite_frame_draw(samite_pixels *px, const samite_frame_result *f, const char *name, samite_error *err)
{
    if (!px || !px->rgb || !f || px->width != f->width || px->height != f->height)
        return fail(err, SAMITE_USAGE, "samite_frame_draw: the picture does not have the size of the result");
    size_t n = (size_t)f->count + 1;
    draw_instance *instances = calloc(n, sizeof *instances);
    rle *masks = calloc(n, sizeof *masks);
    char (*label)[96] = calloc(n, sizeof *label);
    int code = instances && masks && label ? 0 : fail(err, SAMITE_RESOURCE, "out of memory for %d objects", f->count);
    for (int i = 0; i < f->count && !code; i++) {
        const samite_tracked *o = &f->object[i];
        code = mask_view(&masks[i], &o->mask, "frame", err);
        snprintf(label[i], sizeof *label, "%.70s%s%lld", name ? name : "", name && *name ? " " : "", (long long)o->id);
        instances[i] = (draw_instance){
            .mask = &masks[i], .name = label[i], .score = (double)o->score, .colour = (int)(o->id % 1000000),
            .box = {(double)o->box[0], (double)o->box[1], (double)(o->box[2] - o->box[0]),
                    (double)(o->box[3] - o->box[1])},
        };
    }
    if (!code)
        code = draw_overlay(px->rgb, px->width, px->height, instances, (size_t)f->count, NULL, err);
    free(instances);
    free(masks);
    free(label);
    return code;
}

int samite_frame_labels(const samite_frame_result *f, const char *path, samite_error *err)
{
    if (!f || !path || f->width < 1 || f->height < 1)
        return fail(err, SAMITE_USAGE, "samite_frame_labels: no result or no path given");
    size_t pixels = (size_t)f->width * (size_t)f->height;
    uint16_t *map = calloc(pixels, sizeof *map);
    uint8_t *inside = malloc(pixels);
    int code = map && inside ? 0 : fail(err, SAMITE_RESOURCE, "%s: out of memory for %zu pixels", path, pixels);
    for (int i = 0; i < f->count && !code; i++) {
        rle m;
        if (f->object[i].id >= MOST_LABEL)
            code = fail(err, SAMITE_USAGE, "%s: object %lld does not fit a 16-bit label map", path,
                        (long long)f->object[i].id);
        if (code || (code = mask_view(&m, &f->object[i].mask, path, err)))
            break;
        rle_decode(inside, &m);
        for (size_t k = 0; k < pixels; k++)
            if (inside[k])
                map[k] = (uint16_t)(f->object[i].id + 1);
    }
    png_image_data png = {.width = f->width, .height = f->height, .kind = PNG_GRAY16, .data = map};
    if (!code)
        code = image_write_png(path, &png, err);
    free(map);
    free(inside);
    return code;
}
