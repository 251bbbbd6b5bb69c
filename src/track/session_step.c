/* session_step.c - one frame: detect, track, compare, renew, remember, begin, remove, show. Read session_step first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "track/planes.h"
#include "track/session.h"

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static int side_of(const session *s)
{
    return 4 * config_tokens(&s->net->c);
}

static int64_t pixels_of(const session *s)
{
    return (int64_t)side_of(s) * side_of(s);
}

/* ---- detecting ---- */

/* Are detections compared with tracks on this frame? The original always does, with none where nothing is looked
 * for. */
static bool looks(const session *s, int64_t frame)
{
    if (s->o.official)
        return true;
    if (frame == s->box_frame && s->box_count)
        return true;
    return s->by_text && s->looks % s->o.detect_every == 0;
}

static bool may_find(const session *s, int64_t frame)
{
    return s->words && (s->by_text || (s->box_count && frame == s->box_frame));
}

static int detect_frame(session *s, const frame_view *v, samite_error *err)
{
    run *r = v->at.r;
    int64_t frame = v->at.frame;
    bool found = may_find(s, frame);
    examples x = {.boxes = s->boxes, .box_positive = s->positive, .box_count = s->box_count};
    double start = seconds_now();
    s->last.looked = looks(s, frame);
    int code = 0;
    if (s->last.looked && found && s->tables.e) {
        code = detect_elsewhere(&s->last.det, s->tables.e, pixels_of(s), s->words, s->tokens,
                                session_has_boxes(s, frame) ? &x : NULL, &s->o, err);
    } else if (s->last.looked && found) {
        run_point before = run_save(r);
        tensor *words = run_input(r, s->words, 3, (int64_t[]){1, s->tokens, s->net->c.d});
        code = detect(&s->last.det, r, s->net, v->encoded, words, session_has_boxes(s, frame) ? &x : NULL, &s->o, err);
        run_restore(r, before);
    }
    session_lend(s, frame);
    s->looks++;
    s->detecting += seconds_now() - start;
    if (!code && s->detected)
        s->detected(s->user, s);
    return code;
}

/* ---- tracking ---- */

static bool make_step(step *p, int tracks, int64_t pixels)
{
    size_t n = (size_t)tracks + 1;
    p->tracks = tracks;
    p->id = calloc(n, sizeof *p->id);
    p->planes = malloc(sizeof *p->planes * (n * (size_t)pixels));
    p->logit = calloc(n, sizeof *p->logit);
    p->suppressed = calloc(n, sizeof *p->suppressed);
    p->removed = calloc(n, sizeof *p->removed);
    p->hidden = calloc(n, sizeof *p->hidden);
    p->occluded_before = calloc(n, sizeof *p->occluded_before);
    p->renewals = calloc(n, sizeof *p->renewals);
    p->shows_detection = calloc(n, sizeof *p->shows_detection);
    return p->id && p->planes && p->logit && p->suppressed && p->removed && p->hidden && p->occluded_before &&
           p->renewals && p->shows_detection;
}

/* Follows every batch into the frame; s->last gets masks and logits of all objects in order. */
static int track_frame(session *s, const frame_view *v, samite_error *err)
{
    step *p = &s->last;
    int side = side_of(s), at = 0, code = 0;
    int64_t pixels = pixels_of(s);
    if (!make_step(p, s->all.count, pixels))
        return fail(err, SAMITE_RESOURCE, "not enough memory for the masks of %d objects", s->all.count);
    moment **m = calloc((size_t)s->batches + 1, sizeof *m);
    if (!m)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d batches of objects", s->batches);
    for (int i = 0; i < s->batches; i++)
        s->batch[i]->backward = s->backward;
    code = trackers_look(s->batch, s->batches, &v->at, m, err);
    for (int i = 0; i < s->batches && !code; i++) {
        int n = s->batch[i]->bank.objects;
        memcpy(p->planes + at * pixels, m[i]->mask, sizeof(float) * (size_t)(n * pixels));
        memcpy(p->logit + at, m[i]->score, sizeof(float) * (size_t)n);
        at += n;
    }
    free(m);
    for (int i = 0; i < p->tracks && !code; i++) {
        p->id[i] = s->all.object[i].id;
        code = plane_tidy(p->planes + i * pixels, side, side, s->o.hole_area, err);
    }
    if (!code && !bits_of_logits(&p->bits, p->planes, p->tracks, pixels))
        code = fail(err, SAMITE_RESOURCE, "not enough memory to compare %d masks", p->tracks);
    return code;
}

/* ---- comparing ---- */

static int note_gone(session *s, int64_t id, int64_t frame)
{
    if (s->gone_count == s->gone_room) {
        int room = s->gone_room ? 2 * s->gone_room : 16;
        gone *more = realloc(s->gone, sizeof *more * (size_t)room);
        if (!more)
            return -1;
        s->gone = more;
        s->gone_room = room;
    }
    s->gone[s->gone_count++] = (gone){id, frame};
    return 0;
}

/* Records older than the delay were shown: who left before them need not be known any more. */
static void forget_gone(session *s, int64_t frame)
{
    int kept = 0;
    for (int i = 0; i < s->gone_count; i++)
        if (s->o.official || llabs(frame - s->gone[i].frame) <= s->o.delay + 1)
            s->gone[kept++] = s->gone[i];
    s->gone_count = kept;
}

static int compare_frame(session *s, const frame_view *v, samite_error *err)
{
    step *p = &s->last;
    bit_masks det;
    if (!p->looked) {
        for (int i = 0; i < p->tracks; i++)
            s->all.object[i].removed = s->all.object[i].hidden = false;
        return 0;
    }
    if (!bits_of_logits(&det, p->det.masks, p->det.count, pixels_of(s)))
        return fail(err, SAMITE_RESOURCE, "not enough memory to compare %d masks", p->det.count);
    int code = associate(&p->a, &s->o, &det, p->det.scores, p->det.boxes, &p->bits, err);
    bits_free(&det);
    if (!code)
        code = lifecycle_judge(&s->all, &s->o, &p->a, v->at.frame, s->backward, err);
    forget_gone(s, v->at.frame);
    for (int i = 0; i < p->tracks && !code; i++) {
        p->removed[i] = s->all.object[i].removed;
        p->hidden[i] = s->all.object[i].hidden;
        if (p->removed[i] && note_gone(s, p->id[i], v->at.frame))
            code = fail(err, SAMITE_RESOURCE, "not enough memory to remove an object");
    }
    return code;
}

/* ---- masks of detections as prompts ---- */

/* mask [16t, 16t]: where the enlarged logits are positive. */
static int enlarge_mask(const session *s, uint8_t *mask, const float *logits, float *wide, samite_error *err)
{
    int side = side_of(s), big = 4 * side;
    int code = mask_resize_bilinear(wide, big, big, logits, side, side, err);
    for (int64_t i = 0; !code && i < (int64_t)big * big; i++)
        mask[i] = wide[i] > 0;
    return code;
}

/* Gives detection `det` to an object of a batch as its mask. */
static int give_mask(session *s, const frame_view *v, tracker *t, int object, int det, samite_error *err)
{
    int64_t big = 16 * pixels_of(s);
    uint8_t *mask = malloc((size_t)big);
    float *wide = malloc(sizeof *wide * (size_t)big);
    int code = mask && wide ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a mask");
    if (!code)
        code = enlarge_mask(s, mask, s->last.det.masks + det * pixels_of(s), wide, err);
    if (!code)
        code = tracker_mask(t, &v->at, object, mask, v->width, v->height, false, err);
    free(mask);
    free(wide);
    return code;
}

/* ---- renewing ---- */

/* Overlap of the boxes of a track's mask (last pixel not counted) and of a detection. */
static float box_overlap(const session *s, int track, const float *b)
{
    int side = side_of(s), x0 = side, y0 = side, x1 = -1, y1 = -1;
    const float *plane = s->last.planes + track * pixels_of(s);
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++) {
            if (!(plane[y * side + x] > 0))
                continue;
            x0 = x < x0 ? x : x0;
            x1 = x > x1 ? x : x1;
            y0 = y < y0 ? y : y0;
            y1 = y > y1 ? y : y1;
        }
    float n = (float)side, t[4] = {(float)x0 / n, (float)y0 / n, (float)x1 / n, (float)y1 / n};
    float w = fmaxf(fminf(t[2], b[2]) - fmaxf(t[0], b[0]), 0), h = fmaxf(fminf(t[3], b[3]) - fmaxf(t[1], b[1]), 0);
    float common = w * h, all = (t[2] - t[0]) * (t[3] - t[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common;
    return common / all;
}

/* Tracks whose box left that of a sure detection are renewed at once and show the detection. */
static bool boxes_disagree(session *s)
{
    step *p = &s->last;
    bool any = false;
    for (int k = 0; s->o.renew_box_overlap > 0 && k < p->a.renewed_count; k++) {
        int track = p->a.renewed[k], det = p->a.renewal[track];
        if (!p->bits.area[track] || p->det.scores[det] < s->o.renew_box_detection ||
            !(box_overlap(s, track, p->det.boxes + 4 * det) < s->o.renew_box_overlap))
            continue;
        p->shows_detection[track] = any = true;
    }
    return any;
}

static int renew_frame(session *s, const frame_view *v, samite_error *err)
{
    step *p = &s->last;
    int code = 0;
    bool periodic = p->looked && s->o.renew_every > 0 && v->at.frame % s->o.renew_every == 0;
    if (!p->looked || (!boxes_disagree(s) && !periodic))
        return 0;
    for (int k = 0; k < p->a.renewed_count && !code; k++) {
        int track = p->a.renewed[k], first, i = session_batch_of(s, track, &first);
        renewal r = {p->id[track], p->a.renewal[track], p->logit[track], p->logit[track] > s->o.renew_logit};
        p->renewals[p->renewal_count++] = r;
        if (!r.done)
            continue;
        code = give_mask(s, v, s->batch[i], track - first, r.det, err);
        if (!code)
            code = tracker_settle(s->batch[i], &v->at, false, err);     /* session_remember writes */
    }
    return code;
}

/* ---- hiding ---- */

static void occlude_frame(session *s, int64_t frame)
{
    step *p = &s->last;
    for (int i = 0; i < p->tracks; i++) {
        const masklet *m = &s->all.object[i];
        p->occluded_before[i] = m->has_occluded ? m->occluded : m->removed ? OCCLUDED_ALWAYS : OCCLUDED_NEVER;
    }
    if (s->o.occlusion > 0)
        lifecycle_occlude(&s->all, &s->o, &p->bits, frame, s->backward, p->suppressed);
}

/* ---- beginning and removing ---- */

static int begin_objects(session *s, const frame_view *v, samite_error *err)
{
    step *p = &s->last;
    tracker *t;
    int n = p->a.fresh_count, code = 0;
    p->born = s->all.next_id;
    if (!p->looked || !n)
        return 0;
    if ((code = session_new_batch(s, n, &t, err)))
        return code;
    for (int i = 0; i < n && !code; i++) {
        if (!lifecycle_add(&s->all, p->born + i, &s->o, p->det.scores[p->a.fresh[i]], v->at.frame))
            code = fail(err, SAMITE_RESOURCE, "not enough memory for %d objects", n);
        else
            code = give_mask(s, v, t, i, p->a.fresh[i], err);
    }
    p->born_count = n;
    return code ? code : tracker_settle(t, &v->at, true, err);
}

static int remove_objects(session *s, samite_error *err)
{
    int code = 0;
    for (int i = s->last.tracks - 1; i >= 0 && !code; i--)
        if (s->last.removed[i])
            code = session_drop(s, i, err);
    if (!code && s->o.confirm > 0 && s->last.looked)
        lifecycle_confirm(&s->all, &s->o, &s->last.a, s->last.removed);
    return code;
}

/* ---- showing ---- */

static int show_plane(record *r, int64_t id, const float *plane, const session *s, const frame_view *v, float score,
                      float presence, bool hidden, samite_error *err)
{
    int side = side_of(s);
    shown *x = record_item(r, id);
    if (!x)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the results of a frame");
    *x = (shown){.id = id, .score = score, .presence = presence, .has_mask = true, .hidden = hidden};
    return mask_from_logits(&x->mask, plane, side, side, v->width, v->height, 0.0f, err);
}

static int show_tracks(session *s, const frame_view *v, record *r, float *spare, samite_error *err)
{
    const step *p = &s->last;
    int64_t pixels = pixels_of(s);
    int code = 0;
    for (int i = 0; i < p->tracks && !code; i++) {
        const float *plane = p->planes + i * pixels;
        if (p->shows_detection[i])
            plane = p->det.masks + p->a.renewal[i] * pixels;
        else if (p->suppressed[i])
            plane = spare;
        code = show_plane(r, p->id[i], plane, s, v, s->all.object[i].score, sigmoid(p->logit[i]), p->hidden[i], err);
    }
    return code;
}

/* spare [pixels] holds -10 for show_tracks and is overwritten afterwards. */
static int show_born(session *s, const frame_view *v, record *r, float *spare, samite_error *err)
{
    const step *p = &s->last;
    int side = side_of(s), code = 0;
    for (int i = 0; i < p->born_count && !code; i++) {
        int det = p->a.fresh[i];
        memcpy(spare, p->det.masks + det * pixels_of(s), sizeof(float) * (size_t)pixels_of(s));
        code = plane_tidy(spare, side, side, s->o.hole_area, err);
        if (!code)
            code = show_plane(r, p->born + i, spare, s, v, p->det.scores[det], p->det.scores[det], false, err);
    }
    return code;
}

static int list_unconfirmed(const session *s, record *r, samite_error *err)
{
    if (s->o.confirm <= 0)
        return 0;
    r->unconfirmed = malloc(sizeof *r->unconfirmed * ((size_t)s->all.count + 1));
    if (!r->unconfirmed)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the results of a frame");
    for (int i = 0; i < s->all.count; i++)
        if (!s->all.object[i].confirmed)
            r->unconfirmed[r->unconfirmed_count++] = s->all.object[i].id;
    return 0;
}

static int show_frame(session *s, const frame_view *v, record *r, samite_error *err)
{
    float *spare = malloc(sizeof *spare * (size_t)pixels_of(s));
    if (!spare)
        return fail(err, SAMITE_RESOURCE, "not enough memory for a mask");
    for (int64_t i = 0; i < pixels_of(s); i++)
        spare[i] = LOGIT_YIELD;
    int code = show_tracks(s, v, r, spare, err);
    if (!code)
        code = show_born(s, v, r, spare, err);
    free(spare);
    return code;
}

/* ---- the whole ---- */

static void trim(session *s, int64_t frame)
{
    for (int i = 0; !s->o.official && i < s->batches; i++)
        tracker_trim(s->batch[i], frame, s->may_turn);
    if (!s->keep_last)
        step_free(&s->last);
}

int session_step(session *s, const frame_view *v, record *out, samite_error *err)
{
    *out = (record){.frame = v->at.frame, .width = v->width, .height = v->height};
    step_free(&s->last);
    s->last.frame = v->at.frame;
    int code = detect_frame(s, v, err);
    if (!code)
        code = track_frame(s, v, err);
    if (!code)
        code = compare_frame(s, v, err);
    if (!code)
        code = renew_frame(s, v, err);
    if (!code && s->last.tracks) {
        occlude_frame(s, v->at.frame);
        code = session_remember(s, v, err);
    }
    if (!code)
        code = begin_objects(s, v, err);
    if (!code)
        code = show_frame(s, v, out, err);
    if (!code)
        code = remove_objects(s, err);
    if (!code)
        code = list_unconfirmed(s, out, err);
    out->tracked = s->all.count;
    out->dropped = s->last.a.dropped;
    out->has_counts = true;
    if (code)
        record_free(out);
    trim(s, v->at.frame);
    return code;
}
