/* api_video_click.c - one object of a video: pointed at, removed; and results as the caller gets them. */
#include <stdlib.h>
#include <string.h>

#include "api_video.h"
#include "click.h"
#include "track/planes.h"

/* ---- results ---- */

void samite_video_results_free(samite_video_results *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->count; i++) {
        for (int k = 0; k < r->frame[i].count; k++)
            free((uint32_t *)(uintptr_t)r->frame[i].object[k].mask.counts);
        free(r->frame[i].object);
    }
    free(r->frame);
    free(r);
}

static void set_object(samite_tracked *to, track_instance *from, int width, int height)
{
    float w = (float)width, h = (float)height;
    *to = (samite_tracked){.id = from->id, .score = from->score, .presence = from->presence,
                           .area = rle_area(&from->mask),
                           .mask = {from->mask.width, from->mask.height, from->mask.counts, from->mask.runs}};
    to->box[0] = from->box[0] * w;
    to->box[1] = from->box[1] * h;
    to->box[2] = (from->box[0] + from->box[2]) * w;
    to->box[3] = (from->box[1] + from->box[3]) * h;
    from->mask = (rle){0};
}

int video_add_result(samite_video *v, samite_video_results *r, const record *one, const hiding *h, int width,
                     int height,
                     samite_error *err)
{
    track_result result;
    int code = session_result(v->s, one, width, height, h, &result, err);
    if (code)
        return code;
    samite_frame_result *f = &r->frame[r->count];
    *f = (samite_frame_result){.frame = result.frame, .time = result.time, .width = width, .height = height,
                               .tracked = result.tracked, .dropped = result.dropped,
                               .object = calloc((size_t)result.count + 1, sizeof *f->object)};
    if (f->object) {
        for (int i = 0; i < result.count; i++)
            set_object(&f->object[f->count++], &result.item[i], width, height);
        r->count++;
    } else {
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %d objects", result.count);
    }
    track_result_free(&result);
    return code;
}

/* ---- clicks ---- */

/* Box corners, then points, in pixels of the network's input. Returns how many. */
static int place(const samite_image *im, const samite_click *c, const samite_box *box, float *xy, int *kind)
{
    float side = (float)im->model->n->net->c.image, w = (float)im->width, h = (float)im->height;
    int n = 0;
    for (; c->box && n < 2; n++) {
        xy[2 * n] = (n ? box->x1 : box->x0) / w * side;
        xy[2 * n + 1] = (n ? box->y1 : box->y0) / h * side;
        kind[n] = n ? POINT_CORNER2 : POINT_CORNER1;
    }
    for (int i = 0; i < c->point_count; i++, n++) {
        xy[2 * n] = c->points[i].x / w * side;
        xy[2 * n + 1] = c->points[i].y / h * side;
        kind[n] = c->points[i].negative ? POINT_NEGATIVE : POINT_POSITIVE;
    }
    return n;
}

/* *out [side, side]: 1 where more than half of the mask is inside; yours to free. */
static int scale_mask(uint8_t **out, const samite_mask *m, int side, samite_error *err)
{
    size_t pixels = (size_t)m->width * (size_t)m->height, n = (size_t)side * (size_t)side;
    uint8_t *inside = malloc(pixels), *small = malloc(n);
    float *wide = malloc(sizeof *wide * pixels), *plane = malloc(sizeof *plane * n);
    rle checked = {0};
    int code = inside && small && wide && plane ? 0
             : fail(err, SAMITE_RESOURCE, "not enough memory for a mask of %d x %d", m->width, m->height);
    if (!code)
        code = rle_from_counts(&checked, m->counts, m->runs, m->width, m->height, "the mask", err);
    if (!code) {
        rle_decode(inside, &checked);
        for (size_t i = 0; i < pixels; i++)
            wide[i] = inside[i];
        code = plane_shrink(plane, side, side, wide, m->width, m->height, err);
    }
    for (size_t i = 0; !code && i < n; i++)
        small[i] = plane[i] > 0.5f;
    rle_free(&checked);
    free(inside);
    free(wide);
    free(plane);
    *out = code ? NULL : small;
    if (code)
        free(small);
    return code;
}

/* The record of the frame pushed last: it waits, or was shown already. */
static record *current_record(samite_video *v)
{
    record *last = v->count ? &v->waiting[v->count - 1] : NULL;
    if (last && last->frame == v->frame)
        return last;
    if (!v->shown.width || v->shown.frame != v->frame) {
        record_free(&v->shown);
        v->shown = (record){.frame = v->frame, .time = v->time, .width = v->im->width, .height = v->im->height};
    }
    return &v->shown;
}

static int point_at(samite_video *v, const pointed *p, samite_video_results *r, samite_error *err)
{
    record *at = current_record(v);
    frame_view view = video_view(v);
    int code = session_click(v->s, &view, p, at, NULL, NULL, err);
    if (!code && r)
        code = video_add_result(v, r, at, &(hiding){.gone = v->s->o.delay > 0, .by_rule = true}, at->width,
                                at->height, err);
    return code;
}

static int check(const samite_video *v, const samite_click *c, samite_box *box, samite_error *err)
{
    if (!v->pushed || v->broken)
        return fail(err, SAMITE_USAGE, "no frame was pushed yet: a click is about the frame pushed last");
    if (c->logits || c->several)
        return fail(err, SAMITE_USAGE,
                    "in a video a click gives one answer and refines what the frame has: no logits, no "
                    "alternatives");
    if (c->mask && (c->point_count || c->box))
        return fail(err, SAMITE_USAGE, "in a video a click is points and a box, or a mask alone");
    return image_check_click(v->im, c, box, err);
}

static int click(samite_video *v, pointed *p, const samite_click *c, const samite_box *box, samite_video_results *r,
                 samite_error *err)
{
    uint8_t *mask = NULL;
    float *xy = malloc(sizeof *xy * 2 * ((size_t)c->point_count + 2));
    int *kind = malloc(sizeof *kind * ((size_t)c->point_count + 2));
    int code = xy && kind ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %d points", c->point_count);
    if (!code && c->mask)
        code = scale_mask(&mask, c->mask, 16 * config_tokens(&v->model->n->net->c), err);
    if (!code) {
        p->count = place(v->im, c, box, xy, kind);
        p->xy = xy;
        p->kind = kind;
        p->mask = mask;
        code = point_at(v, p, r, err);
    }
    free(xy);
    free(kind);
    free(mask);
    return code;
}

int samite_video_click(samite_video *v, int64_t *object, const samite_click *question, samite_video_results **out,
                       samite_error *err)
{
    if (!v || !object || !question)
        return fail(err, SAMITE_USAGE, "samite_video_click: no video, object or click given");
    samite_click c = SAMITE_CLICK_INIT;
    samite_box box = {0};
    samite_video_results *r = NULL;
    options_copy(&c, sizeof c, question, question->size);
    int code = check(v, &c, &box, err);
    if (out)
        *out = NULL;
    if (!code && out && (!(r = calloc(1, sizeof *r)) || !(r->frame = calloc(1, sizeof *r->frame))))
        code = fail(err, SAMITE_RESOURCE, "not enough memory for results");
    pointed p = {.id = *object < 0 ? v->s->all.next_id : *object};
    if (!code)
        code = click(v, &p, &c, &box, r, err);
    if (code) {
        samite_video_results_free(r);
        return code;
    }
    *object = p.id;
    if (out)
        *out = r;
    return 0;
}

int samite_video_remove(samite_video *v, int64_t object, samite_error *err)
{
    if (!v)
        return fail(err, SAMITE_USAGE, "samite_video_remove: no video given");
    int code = session_remove(v->s, object, err);
    for (int i = 0; i < v->count && !code; i++)
        record_remove(&v->waiting[i], object);
    if (!code)
        record_remove(&v->shown, object);
    return code;
}
