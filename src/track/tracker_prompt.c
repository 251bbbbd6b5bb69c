/* tracker_prompt.c - answers to clicks, boxes and given masks, as drafts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "track/choose.h"
#include "track/planes.h"
#include "track/tracker_inside.h"

#define PRIOR_LIMIT 32.0f      /* an earlier mask is clamped before it prompts the decoder */
#define MASK_SCORE  10.0f      /* logit of an object whose mask was given */

/* ---- what the decoder says ---- */

int tracker_take(const track_tables *t, run *r, const guesses *g, bool several, const answer *out, samite_error *err)
{
    int code = run_status(r, err);
    if (code)
        return code;
    int64_t batch = g->masks->dim[0], n = g->masks->dim[2], d = g->tokens->dim[2];
    int32_t *token = calloc((size_t)batch + 1, sizeof *token);
    bool *hidden = calloc((size_t)batch + 1, sizeof *hidden);
    for (int64_t b = 0; token && hidden && b < batch; b++) {
        const float *masks = g->masks->data + b * MASK_GUESSES * n, *overlap = g->overlap->data + b * MASK_GUESSES;
        int chosen = choose_guess(masks, overlap, n, several);
        token[b] = (int32_t)(b * MASK_GUESSES + (several ? chosen : 0));    /* a clear prompt keeps its pointer */
        hidden[b] = !(g->object->data[b] > 0);
        if (out[b].mask && !hidden[b])
            memcpy(out[b].mask, masks + chosen * n, sizeof(float) * (size_t)n);
        for (int64_t i = 0; out[b].mask && hidden[b] && i < n; i++)
            out[b].mask[i] = LOGIT_ABSENT;
        *out[b].score = g->object->data[b];
        *out[b].overlap = overlap[chosen];
    }
    if (token && hidden) {
        tensor *p = net_pointers(t->e, r, t->net, g, token, hidden);
        code = run_status(r, err);
        for (int64_t b = 0; b < batch && !code; b++)
            memcpy(out[b].pointer, p->data + b * d, sizeof(float) * (size_t)d);
    } else {
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %d objects", (int)batch);
    }
    free(token);
    free(hidden);
    return code;
}

/* ---- prompts ---- */

/* The mask this frame has for the object, clamped, as a prompt [1, 4t, 4t, 1]; NULL when it has none. */
static tensor *prior_mask(const tracker *t, const tracked_frame *f, int object)
{
    const draft *d = tracker_draft(t, f->frame, object);
    const moment *m = d ? NULL : tracker_known(t, f->frame);
    if (d ? d->given != NULL : !m)
        return NULL;
    const float *from = d ? d->mask : m->mask + object * t->bank.pixels;
    int64_t side = f->image->fine0->dim[0];
    tensor *x = run_constant(f->r, 4, (int64_t[]){1, side, side, 1});
    for (int64_t i = 0; x->data && run_ok(f->r) && i < t->bank.pixels; i++)
        x->data[i] = fminf(fmaxf(from[i], -PRIOR_LIMIT), PRIOR_LIMIT);
    return x;
}

/* At most TRACKER_POINTS of the points: the first and the last half. Returns how many. */
static int limit_points(float *xy, int *kind, const float *xy_in, const int *kind_in, int count)
{
    int n = count < TRACKER_POINTS ? count : TRACKER_POINTS;
    for (int i = 0; i < n; i++) {
        int from = count > n && i >= n / 2 ? count - n + i : i;
        xy[2 * i] = xy_in[2 * from];
        xy[2 * i + 1] = xy_in[2 * from + 1];
        kind[i] = kind_in[from];
    }
    return n;
}

/* The draft is no longer a given mask. */
static void give_up_mask(draft *d)
{
    free(d->given);
    d->given = NULL;
}

static int click(tracker *t, const tracked_frame *f, int object, const clicks *p, samite_error *err)
{
    guesses g;
    net_click(t->tables->e, f->r, t->tables->net, f->image, NULL, p, prior_mask(t, f, object), &g);
    draft *d = tracker_draft(t, f->frame, object);
    bool fresh = !d;
    if (fresh && !(d = tracker_new_draft(t, f->frame, object)))
        return fail(err, SAMITE_RESOURCE, "not enough memory for a prompt on frame %lld", (long long)f->frame);
    int code = tracker_take(t->tables, f->r, &g, p->count <= 1, &(answer){d->mask, d->pointer, &d->score, &d->overlap},
                            err);
    if (code && fresh)
        free(t->drafts[--t->draft_count].mask);
    else if (!code)
        give_up_mask(d);
    return code;
}

int tracker_click(tracker *t, const tracked_frame *f, int object, const float *xy, const int *kind, int count,
                  const draft **out, samite_error *err)
{
    float place[2 * TRACKER_POINTS];
    int what[TRACKER_POINTS];
    if (object < 0 || object >= t->bank.objects || count < 1)
        return fail(err, SAMITE_USAGE, "%d points for object %d of %d", count, object + 1, t->bank.objects);
    int n = limit_points(place, what, xy, kind, count);
    run_point before = run_save(f->r);
    int code = click(t, f, object, &(clicks){1, n, place, what}, err);
    run_restore(f->r, before);
    if (!code && !tracker_note_input(t, f->frame, object, true))
        code = fail(err, SAMITE_RESOURCE, "not enough memory for a prompt on frame %lld", (long long)f->frame);
    if (!code && out)
        *out = tracker_draft(t, f->frame, object);
    return code;
}

/* ---- given masks ---- */

/* The mask [side, side] at the video's size: 1 where more than half is inside. NULL: out of memory. */
static uint8_t *at_video_size(const uint8_t *mask, int side, int width, int height)
{
    size_t n = (size_t)side * (size_t)side, area = (size_t)width * (size_t)height;
    float *from = malloc(sizeof *from * n), *to = malloc(sizeof *to * area);
    uint8_t *out = malloc(area);
    for (size_t i = 0; from && i < n; i++)
        from[i] = mask[i] != 0;
    bool ok = from && to && out && plane_shrink(to, width, height, from, side, side, NULL) == 0;
    for (size_t i = 0; ok && i < area; i++)
        out[i] = to[i] > 0.5f;
    free(from);
    free(to);
    if (ok)
        return out;
    free(out);
    return NULL;
}

/* The decoder's pointer to what the mask shows; the mask itself needs no decoder. */
static int point_at_mask(const tracker *t, const tracked_frame *f, const uint8_t *mask, draft *d, samite_error *err)
{
    int64_t side = 4 * f->image->fine0->dim[0];
    tensor *x = run_constant(f->r, 4, (int64_t[]){1, side, side, 1});
    bool any = false;
    for (int64_t i = 0; x->data && run_ok(f->r) && i < side * side; i++) {
        x->data[i] = mask[i] != 0;
        any |= mask[i] != 0;
    }
    guesses g;
    float xy[2] = {0, 0};
    int kind = POINT_NONE;
    const sam3 *net = t->tables->net;
    tensor *image = reshape(f->r, f->image->image, 3, (int64_t[]){1, side * side / 256, net->c.d});
    const elsewhere *e = t->tables->e;
    net_click(e, f->r, net, f->image, image, &(clicks){1, 1, xy, &kind}, net_mask_prompt(e, f->r, net, x), &g);
    int code = tracker_take(t->tables, f->r, &g, false, &(answer){NULL, d->pointer, &d->score, &d->overlap}, err);
    if (!any && !code)
        memcpy(d->pointer, net_no_pointer(e, net), sizeof(float) * (size_t)t->bank.d);
    d->score = any ? MASK_SCORE : -MASK_SCORE;
    d->overlap = 1;
    return code;
}

/* Of masks given on one frame the last one wins where they overlap. */
static void yield_to(tracker *t, const draft *d)
{
    size_t area = (size_t)d->width * (size_t)d->height;
    for (int i = 0; i < t->draft_count; i++) {
        draft *o = &t->drafts[i];
        if (o->frame != d->frame || o->object == d->object || !o->given)
            continue;
        for (size_t k = 0; k < area; k++)
            o->given[k] &= !d->given[k];
    }
}

int tracker_mask(tracker *t, const tracked_frame *f, int object, const uint8_t *mask, int width, int height,
                 bool by_person, samite_error *err)
{
    int side = 4 * (int)f->image->fine0->dim[0];
    draft *d = tracker_draft(t, f->frame, object);
    bool fresh = !d;
    uint8_t *given = at_video_size(mask, side, width, height);
    if (!given || !tracker_note_input(t, f->frame, object, by_person) ||
        (fresh && !(d = tracker_new_draft(t, f->frame, object)))) {
        free(given);
        return fail(err, SAMITE_RESOURCE, "not enough memory for a mask of %d x %d pixels", width, height);
    }
    give_up_mask(d);
    d->given = given;
    d->width = width;
    d->height = height;
    run_point before = run_save(f->r);
    int code = point_at_mask(t, f, mask, d, err);
    run_restore(f->r, before);
    yield_to(t, d);
    return code;
}

