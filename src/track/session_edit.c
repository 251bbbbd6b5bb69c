/* session_edit.c - a person points at one object; batches followed without the detector. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "track/planes.h"
#include "track/session.h"
#include "track/tracker_inside.h"

#define SCORE_ASKED 1.0f

/* ---- what a click shows ---- */

/* A draft, or what the frame has of the object, as video-size logits. */
static int wide_logits(const session *s, const tracker *t, const frame_view *v, int object, float *out,
                       samite_error *err)
{
    int64_t area = (int64_t)v->width * v->height;
    int side = 4 * config_tokens(&s->net->c);
    const float *mask = NULL;
    for (int i = 0; i < t->draft_count; i++) {
        const draft *d = &t->drafts[i];
        if (d->frame != v->at.frame || d->object != object)
            continue;
        for (int64_t k = 0; d->given && k < area; k++)
            out[k] = d->given[k] ? -LOGIT_ABSENT : LOGIT_ABSENT;
        if (d->given)
            return 0;
        mask = d->mask;
    }
    const moment *m = mask ? NULL : tracker_known(t, v->at.frame);
    if (m)
        mask = m->mask + object * t->bank.pixels;
    if (mask)
        return mask_resize_bilinear(out, v->width, v->height, mask, side, side, err);
    for (int64_t k = 0; k < area; k++)
        out[k] = LOGIT_ABSENT;
    return 0;
}

static int batch_logits(const session *s, const tracker *t, const frame_view *v, float **out, samite_error *err)
{
    int64_t area = (int64_t)v->width * v->height;
    int code = 0;
    *out = malloc(sizeof **out * (size_t)(t->bank.objects * area));
    if (!*out)
        return fail(err, SAMITE_RESOURCE, "not enough memory for masks of %d x %d pixels", v->width, v->height);
    for (int i = 0; i < t->bank.objects && !code; i++)
        code = wide_logits(s, t, v, i, *out + i * area, err);
    return code;
}

/* Puts the mask where video-size logits, tidied, are positive into the record. */
static int show_wide(record *r, int64_t id, const float *logits, int width, int height, int hole_area,
                     samite_error *err)
{
    size_t area = (size_t)width * (size_t)height;
    float *plane = malloc(sizeof *plane * area);
    uint8_t *inside = malloc(area);
    shown *x = record_item(r, id);
    int code = plane && inside && x ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a mask");
    if (!code) {
        memcpy(plane, logits, sizeof *plane * area);
        code = plane_tidy(plane, width, height, hole_area, err);
    }
    for (size_t i = 0; !code && i < area; i++)
        inside[i] = plane[i] > 0;
    if (!code) {
        rle_free(&x->mask);
        code = rle_encode(&x->mask, inside, width, height, err);
        x->has_mask = !code;
        x->score = x->presence = SCORE_ASKED;
        x->hidden = false;
    }
    free(plane);
    free(inside);
    return code;
}

/* ---- a click ---- */

/* The batch and place of the object that a person means; a new one gets a batch of its own. */
static int find_object(session *s, const frame_view *v, const pointed *p, tracker **t, int *place, bool *fresh,
                       samite_error *err)
{
    int object = lifecycle_find(&s->all, p->id), first, code;
    *fresh = object < 0;
    if (!*fresh) {
        *t = s->batch[session_batch_of(s, object, &first)];
        *place = object - first;
        return 0;
    }
    if (s->all.count >= s->o.max_objects)
        return fail(err, SAMITE_USAGE, "no room for another object: %d are followed, which is the limit", s->all.count);
    if ((code = session_new_batch(s, 1, t, err)))
        return code;
    *place = 0;
    if (lifecycle_add(&s->all, p->id, &s->o, SCORE_ASKED, v->at.frame))
        return 0;
    s->batches--;
    tracker_close(*t);
    free(*t);
    return fail(err, SAMITE_RESOURCE, "not enough memory for another object");
}

static void mark_asked(session *s, int64_t id)
{
    masklet *m = &s->all.object[lifecycle_find(&s->all, id)];
    m->score = SCORE_ASKED;
    m->asked = !s->o.official;
    m->hidden = false;
    m->confirmed = true;
    m->seen_in_row = s->o.confirm;
    for (int i = s->gone_count - 1; i >= 0; i--)
        if (s->gone[i].id == id)
            s->gone[i] = s->gone[--s->gone_count];
}

static int ask(session *s, const frame_view *v, const pointed *p, tracker *t, int place, float **logits,
               samite_error *err)
{
    int code = p->mask ? tracker_mask(t, &v->at, place, p->mask, v->width, v->height, true, err)
                       : tracker_click(t, &v->at, place, p->xy, p->kind, p->count, NULL, err);
    if (!code)
        code = batch_logits(s, t, v, logits, err);
    if (!code)
        code = tracker_settle(t, &v->at, true, err);
    return code;
}

int session_click(session *s, const frame_view *v, const pointed *p, record *shown_frame, float **logits, int *objects,
                  samite_error *err)
{
    tracker *t;
    int place;
    bool fresh;
    float *wide = NULL;
    int code = find_object(s, v, p, &t, &place, &fresh, err);
    if (code)
        return code;
    session_lend(s, v->at.frame);
    code = ask(s, v, p, t, place, &wide, err);
    if (!code)
        code = show_wide(shown_frame, p->id, wide + (int64_t)place * v->width * v->height, v->width, v->height,
                         s->o.hole_area, err);
    if (!code) {
        mark_asked(s, p->id);
        tracker_clear_detected(t, place, v->at.frame, s->o.click_window);
    } else {
        tracker_undo(t);
        if (fresh)
            session_drop(s, lifecycle_find(&s->all, p->id), NULL);
    }
    if (!code && logits) {
        *logits = wide;
        *objects = t->bank.objects;
        wide = NULL;
    }
    free(wide);
    return code;
}

/* ---- following ---- */

static int follow_batch(session *s, const frame_view *v, tracker *t, int first, const int64_t *ids, int count,
                        record *r,
                        samite_error *err)
{
    const moment *m;
    int side = 4 * config_tokens(&s->net->c);
    t->backward = s->backward;
    int code = tracker_step(t, &v->at, &m, err);
    float *plane = malloc(sizeof *plane * (size_t)t->bank.pixels);
    if (!code && !plane)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for a mask");
    for (int i = 0; i < t->bank.objects && !code; i++) {
        int64_t id = s->all.object[first + i].id;
        bool wanted = false;
        for (int k = 0; k < count; k++)
            wanted |= ids[k] == id;
        shown *x = wanted ? record_item(r, id) : NULL;
        if (!x)
            continue;
        memcpy(plane, m->mask + i * t->bank.pixels, sizeof *plane * (size_t)t->bank.pixels);
        code = plane_tidy(plane, side, side, s->o.hole_area, err);
        rle_free(&x->mask);
        if (!code)
            code = mask_from_logits(&x->mask, plane, side, side, v->width, v->height, 0.0f, err);
        x->has_mask = !code;
        x->score = s->all.object[first + i].score;
        x->presence = s->o.official ? m->score[i] : 1.0f / (1.0f + expf(-m->score[i]));   /* a logit, by mistake */
    }
    free(plane);
    return code;
}

int session_follow(session *s, const frame_view *v, const int64_t *ids, int count, record *shown_frame,
                   samite_error *err)
{
    int first = 0, code = 0;
    session_lend(s, v->at.frame);
    for (int i = 0; i < s->batches && !code; i++) {
        tracker *t = s->batch[i];
        bool wanted = false;
        for (int k = 0; k < count; k++) {
            int object = lifecycle_find(&s->all, ids[k]);
            wanted |= object >= first && object < first + t->bank.objects;
        }
        if (wanted)
            code = follow_batch(s, v, t, first, ids, count, shown_frame, err);
        first += t->bank.objects;
    }
    return code;
}
