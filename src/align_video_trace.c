/* align_video_trace.c - decisions, masks and memories of a frame beside what the original recorded. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align_video.h"
#include "base/dtype.h"
#include "formats/tensor_list.h"

#define DROPPED   -5000.0f     /* logits below were taken out by a better mask */
#define BF16_STEP 0x1p-7
#define SCORE_BAR 2e-4
#define ROUNDING  1e-3         /* of mask logits */
#define PIXEL_BAR 3e-4         /* share of an answer's pixels that lie on an edge to the last digit */

void video_equal(video_variant *v, const char *name, json_t *ours, const json_t *theirs)
{
    char note[400] = "";
    bool same = ours && theirs && json_equal(ours, theirs);
    if (!same) {
        char *x = ours ? json_dumps(ours, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        char *y = theirs ? json_dumps(theirs, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        snprintf(note, sizeof note, "%.180s, expected %.180s", x ? x : "nothing", y ? y : "nothing");
        free(x);
        free(y);
    }
    align_row(v->a, &(samite_compared){.name = name, .max_difference = !same, .relative = !same, .cosine = 1,
                                       .within = same, .note = note});
    json_decref(ours);
}

/* ---- values as JSON ---- */

static json_t *ids_where(const session *s, const int64_t *id, const bool *flag, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        if (!flag || flag[i])
            json_array_append_new(list, json_integer(id[i]));
    (void)s;
    return list;
}

static json_t *numbers(const int *value, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(list, json_integer(value[i]));
    return list;
}

static void set(json_t *o, int64_t key, json_t *value)
{
    char name[32];
    snprintf(name, sizeof name, "%lld", (long long)key);
    json_object_set_new(o, name, value);
}

static json_t *matched_json(const step *p)
{
    json_t *o = json_object();
    for (int d = 0; p->tracks && d < p->a.dets; d++) {
        json_t *list = json_array();
        for (int t = 0; t < p->tracks; t++)
            if (p->a.covers[d * p->tracks + t])
                json_array_append_new(list, json_integer(p->id[t]));
        set(o, d, list);
    }
    return o;
}

static json_t *renewal_json(const step *p)
{
    json_t *o = json_object();
    for (int k = 0; k < p->a.renewed_count; k++)
        set(o, p->id[p->a.renewed[k]], json_integer(p->a.renewal[p->a.renewed[k]]));
    return o;
}

static json_t *batches_json(const session *s)
{
    json_t *list = json_array();
    for (int i = 0, at = 0; i < s->batches; i++) {
        json_t *ids = json_array();
        for (int k = 0; k < s->batch[i]->bank.objects; k++)
            json_array_append_new(ids, json_integer(s->all.object[at++].id));
        json_array_append_new(list, ids);
    }
    return list;
}

/* ---- rows ---- */

static void equal(video_variant *v, const char *what, json_t *ours, const json_t *theirs)
{
    char name[128];
    snprintf(name, sizeof name, "c%d.s%d.%s", v->call, v->worked, what);
    video_equal(v, name, ours, theirs);
}

/* ours: object of integers by id. theirs: the same, or lists that are counted; only ids that we have are looked at. */
static void equal_by_id(video_variant *v, const char *what, json_t *ours, const json_t *theirs)
{
    json_t *chosen = json_object(), *value;
    const char *key;
    json_object_foreach(ours, key, value) {
        json_t *other = json_object_get(theirs, key);
        if (json_is_array(other))
            json_object_set_new(chosen, key, json_integer((json_int_t)json_array_size(other)));
        else
            json_object_set(chosen, key, other ? other : json_null());
    }
    equal(v, what, ours, chosen);
    json_decref(chosen);
}

static void compare(video_variant *v, const char *what, const float *ours, int axes, const int64_t *dim)
{
    char name[128];
    snprintf(name, sizeof name, "c%d.s%d.%s", v->call, v->worked, what);
    align_tensor(v->a, name, ours, axes, dim, AS_IS);
}

static void skip(video_variant *v, const char *what)
{
    char name[128];
    snprintf(name, sizeof name, "c%d.s%d.%s", v->call, v->worked, what);
    align_skip(v->a, name);
}

/* Logits around zero: the difference counts as it is, not as a share of a small number. */
static void compare_floor(video_variant *v, const char *what, const float *ours, int64_t n)
{
    char name[128];
    snprintf(name, sizeof name, "c%d.s%d.%s", v->call, v->worked, what);
    int64_t at = align_find(v->a, name);
    const weight *w = at >= 0 ? &v->a->reference.items[at] : NULL;
    if (!w)
        return;
    v->a->used[at] = true;
    float *theirs = malloc(sizeof *theirs * (size_t)(weight_count(w) + 1));
    double most = 1, difference = 0;
    if (theirs && weight_count(w) == n) {
        weight_to_f32(theirs, w);
        for (int64_t i = 0; i < n; i++) {
            most = fmax(most, fabs((double)theirs[i]));
            difference = fmax(difference, fabs((double)ours[i] - (double)theirs[i]));
        }
    } else {
        difference = INFINITY;
    }
    align_row(v->a, &(samite_compared){.name = name, .max_difference = difference, .relative = difference / most,
                                       .cosine = 1,
                                       .within = difference / most <= v->a->max_relative, .note = ""});
    free(theirs);
}

/* ---- steps ---- */

/* The recorded masks of a frame of the variant "text": its first call stepped frame 0, its second all frames in
 * turn. */
static const weight *seen_masks(const video_variant *v, int64_t frame)
{
    char name[64];
    snprintf(name, sizeof name, "c1.s%lld.det.mask", (long long)frame);
    for (size_t i = 0; v->seen && i < v->seen->count; i++)
        if (strcmp(v->seen->items[i].name, name) == 0)
            return &v->seen->items[i];
    return NULL;
}

void video_detected(void *user, session *s)
{
    video_variant *v = user;
    const weight *w = seen_masks(v, s->last.frame);
    detections *d = &s->last.det;
    int64_t side = 4 * config_tokens(&s->net->c), n = d->count * side * side;
    if (!w || !n || weight_count(w) != n)
        return;
    float *theirs = malloc(sizeof *theirs * (size_t)n);
    double difference = 0;
    if (!theirs)
        return;
    weight_to_f32(theirs, w);
    for (int64_t i = 0; i < n; i++)
        difference = fmax(difference, fabs((double)theirs[i] - (double)d->masks[i]));
    if (difference < ROUNDING)
        memcpy(d->masks, theirs, sizeof *theirs * (size_t)n);
    free(theirs);
}

/* Scores of all queries; where theirs was taken out ours must be too. */
static void compare_logits(video_variant *v, const detections *d)
{
    char name[128];
    snprintf(name, sizeof name, "c%d.s%d.det.logits", v->call, v->worked);
    int64_t at = align_find(v->a, name);
    float *theirs = at >= 0 ? malloc(sizeof *theirs * ((size_t)d->queries + 1)) : NULL;
    float *ours = theirs ? malloc(sizeof *ours * ((size_t)d->queries + 1)) : NULL;
    if (ours && weight_count(&v->a->reference.items[at]) == d->queries) {
        weight_to_f32(theirs, &v->a->reference.items[at]);
        for (int i = 0; i < d->queries; i++) {
            bool out = theirs[i] < DROPPED && d->logits[i] < DROPPED;
            ours[i] = out ? 0 : d->logits[i];
            theirs[i] = out ? 0 : theirs[i];
        }
        align_values(v->a, name, ours, theirs, d->queries);
        v->a->used[at] = true;
    }
    free(ours);
    free(theirs);
}

static void compare_detections(video_variant *v, const session *s)
{
    const step *p = &s->last;
    int64_t side = 4 * config_tokens(&s->net->c);
    if (!p->det.queries) {         /* nothing is looked for, so nothing was computed */
        skip(v, "det.");
        return;
    }
    compare_logits(v, &p->det);
    compare(v, "det.boxes", p->det.corners, 2, (int64_t[]){p->det.queries, 4});
    compare(v, "det.scores", p->det.scores, 1, (int64_t[]){p->det.count});
    compare(v, "det.bbox", p->det.boxes, 2, (int64_t[]){p->det.count, 4});
    float none = 0;
    compare(v, "det.mask", p->det.masks ? p->det.masks : &none, 3, (int64_t[]){p->det.count, side, side});
}

static void compare_tracks(video_variant *v, const session *s, const json_t *e)
{
    const step *p = &s->last;
    int64_t side = 4 * config_tokens(&s->net->c), n = side * side;
    compare(v, "trk.mask", p->planes, 3, (int64_t[]){p->tracks, side, side});
    compare_floor(v, "trk.score", p->logit, p->tracks);
    float *final = malloc(sizeof *final * (size_t)(p->tracks * n + 1));
    for (int64_t i = 0; final && i < p->tracks * n; i++)
        final[i] = p->suppressed[i / n] ? -10.0f : p->planes[i];
    compare(v, "trk.mask_final", final, 3, (int64_t[]){p->tracks, side, side});
    free(final);
    if (p->a.dets && p->tracks)
        compare(v, "iou", p->a.iou, 2, (int64_t[]){p->a.dets, p->tracks});
    equal(v, "tracked", ids_where(s, p->id, NULL, p->tracks), json_object_get(e, "tracked"));
}

static void compare_association(video_variant *v, const session *s, const json_t *e)
{
    const step *p = &s->last;
    const json_t *o = json_object_get(e, "association");
    if (p->a.dropped == 0 && !s->o.avoid_border)       /* recorded before the border and the limit are looked at */
        equal(v, "new_det", numbers(p->a.fresh, p->a.fresh_count), json_object_get(o, "new_det"));
    equal(v, "unmatched", ids_where(s, p->id, p->a.unmatched, p->tracks), json_object_get(o, "unmatched"));
    equal(v, "empty", ids_where(s, p->id, p->a.empty, p->tracks), json_object_get(o, "empty"));
    equal(v, "matched", matched_json(p), json_object_get(o, "det_to_matched"));
    equal(v, "sure", renewal_json(p), json_object_get(o, "trk_to_high_conf_det"));
}

static void compare_lives(video_variant *v, const session *s, const json_t *e)
{
    const json_t *o = json_object_get(e, "hotstart");
    json_t *alive = json_object(), *first = json_object(), *unmatched = json_object(), *rivals = json_object();
    for (int i = 0; i < s->all.count; i++) {
        const masklet *m = &s->all.object[i];
        set(alive, m->id, json_integer(m->alive));
        set(first, m->id, json_integer(m->first_frame));
        if (m->unmatched)
            set(unmatched, m->id, json_integer(m->unmatched));
    }
    for (int k = 0; k < s->all.pairs; k++) {
        char key[64];
        snprintf(key, sizeof key, "%lld,%lld", (long long)s->all.pair[k].keeper, (long long)s->all.pair[k].other);
        json_object_set_new(rivals, key, json_integer(s->all.pair[k].count));
    }
    equal_by_id(v, "keep_alive", alive, json_object_get(o, "keep_alive"));
    equal_by_id(v, "first_frame", first, json_object_get(o, "first_frame"));
    equal_by_id(v, "unmatched_frames", unmatched, json_object_get(o, "unmatched_frames"));
    equal_by_id(v, "overlap_frames", rivals, json_object_get(o, "overlap_frames"));
    const step *p = &s->last;
    equal(v, "removed", ids_where(s, p->id, p->removed, p->tracks), json_object_get(o, "removed"));
    equal(v, "hidden", ids_where(s, p->id, p->hidden, p->tracks), json_object_get(o, "suppressed"));
}

static void compare_renewals(video_variant *v, const session *s, const json_t *e)
{
    const step *p = &s->last;
    json_t *ours = json_array(), *theirs = json_array();
    size_t i;
    const json_t *one;
    for (int k = 0; k < p->renewal_count; k++)
        json_array_append_new(ours, json_pack("[I, i, b]", (json_int_t)p->renewals[k].id, p->renewals[k].det,
                                              p->renewals[k].done));
    json_array_foreach(json_object_get(e, "recondition"), i, one)
        json_array_append_new(theirs, json_pack("[O, O, O]", json_object_get(one, "obj_id"),
                                                json_object_get(one, "det"),
                                                json_object_get(one, "done")));
    equal(v, "recondition", ours, theirs);
    json_decref(theirs);
}

static void compare_occlusion(video_variant *v, const session *s, const json_t *e)
{
    const step *p = &s->last;
    const json_t *o = json_object_get(e, "occlusion");
    json_t *before = json_array(), *after = json_object();
    for (int i = 0; i < p->tracks; i++)
        json_array_append_new(before, json_integer(p->occluded_before[i]));
    for (int i = 0; i < s->all.count; i++)
        if (s->all.object[i].has_occluded)
            set(after, s->all.object[i].id, json_integer(s->all.object[i].occluded));
    if (o) {
        equal(v, "occluded_before", before, json_object_get(o, "last_occluded_before"));
        equal(v, "suppressed", ids_where(s, p->id, p->suppressed, p->tracks), json_object_get(o, "suppressed"));
    } else {
        json_decref(before);
    }
    equal(v, "last_occluded", after, json_object_get(e, "last_occluded"));
}

static void compare_scores(video_variant *v, const session *s, const json_t *e)
{
    double worst = 0;
    char name[128];
    for (int i = 0; i < s->all.count; i++) {
        char id[32];
        snprintf(id, sizeof id, "%lld", (long long)s->all.object[i].id);
        const json_t *o = json_object_get(json_object_get(e, "obj_id_to_score"), id);
        worst = fmax(worst, o ? fabs(json_number_value(o) - (double)s->all.object[i].score) : INFINITY);
    }
    snprintf(name, sizeof name, "c%d.s%d.scores", v->call, v->worked);
    align_row(v->a, &(samite_compared){.name = name, .max_difference = worst, .relative = worst, .cosine = 1,
                                       .within = worst <= SCORE_BAR, .note = ""});
}

/* ---- memories ---- */

/* [objects, tokens, width] as bf16 to [objects, width, tokens] in f32. NULL: out of memory. */
static float *memory_values(const bank *b, const uint16_t *memory)
{
    int64_t n = b->objects * b->tokens * b->width;
    float *values = malloc(sizeof *values * (size_t)n), *turned = malloc(sizeof *turned * (size_t)n);
    if (values && turned) {
        dtype_to_f32(values, memory, DT_BF16, (size_t)n);
        for (int64_t i = 0; i < n; i++) {
            int64_t object = i / (b->tokens * b->width), place = i / b->width % b->tokens, channel = i % b->width;
            turned[(object * b->width + channel) * b->tokens + place] = values[i];
        }
    }
    free(values);
    return turned;
}

static void compare_moment(video_variant *v, const char *prefix, const bank *b, const moment *m, int64_t side)
{
    char what[64];
    int64_t t = side / 4;
    float *values = memory_values(b, m->memory);
    double limit = v->a->max_relative;
    v->a->max_relative = fmax(limit, BF16_STEP);
    snprintf(what, sizeof what, "%s.features", prefix);
    compare(v, what, values, 4, (int64_t[]){b->objects, b->width, t, t});
    v->a->max_relative = limit;
    free(values);
    snprintf(what, sizeof what, "%s.ptr", prefix);
    compare(v, what, m->pointer, 2, (int64_t[]){b->objects, b->d});
    snprintf(what, sizeof what, "%s.score", prefix);
    compare_floor(v, what, m->score, b->objects);
    snprintf(what, sizeof what, "%s.iou_score", prefix);
    compare(v, what, m->overlap, 1, (int64_t[]){b->objects});
    snprintf(what, sizeof what, "%s.eff", prefix);
    if (m->quality >= 0)
        compare_floor(v, what, &m->quality, 1);
}

static json_t *prompted_frames(const bank *b)
{
    json_t *list = json_array();
    for (int i = 0; i < b->prompted_count; i++)
        json_array_append_new(list, json_integer(b->prompted[i]->frame));
    return list;
}

static void compare_memories(video_variant *v, const session *s, int64_t frame, const int64_t *ids, int count)
{
    const json_t *e = json_array_get(v->trace, (size_t)v->worked), *list = json_object_get(e, "memory");
    int64_t side = 4 * config_tokens(&s->net->c);
    int first = 0, at = 0;
    for (int i = 0; i < s->batches; i++) {
        const bank *b = &s->batch[i]->bank;
        const json_t *one = json_array_get(list, (size_t)at);
        bool wanted = !ids;
        for (int k = 0; k < count; k++)
            for (int n = 0; n < b->objects; n++)
                wanted |= s->all.object[first + n].id == ids[k];
        json_t *own = json_array();
        for (int n = 0; n < b->objects; n++)
            json_array_append_new(own, json_integer(s->all.object[first + n].id));
        first += b->objects;
        if (!wanted) {
            json_decref(own);
            continue;
        }
        char what[64];
        const moment *m = bank_prompted(b, frame);
        snprintf(what, sizeof what, "mem.%d.ids", at);
        equal(v, what, own, json_object_get(one, "obj_ids"));
        snprintf(what, sizeof what, "mem.%d.kind", at);
        equal(v, what, json_string(m ? "cond" : "non_cond"), json_object_get(one, "stored_as"));
        snprintf(what, sizeof what, "mem.%d.cond_frames", at);
        equal(v, what, prompted_frames(b), json_object_get(one, "cond_frames"));
        snprintf(what, sizeof what, "mem.%d", at++);
        if (!m)
            m = bank_tracked(b, frame);
        if (m)
            compare_moment(v, what, b, m, side);
    }
}

void video_remembered(void *user, const session *s)
{
    video_variant *v = user;
    compare_memories(v, s, s->last.frame, NULL, 0);
}

/* ---- callbacks ---- */

static void compare_born(video_variant *v, const session *s)
{
    const step *p = &s->last;
    if (!p->born_count)
        return;
    const bank *b = &s->batch[s->batches - 1]->bank;
    int64_t side = 4 * config_tokens(&s->net->c);
    const moment *m = bank_prompted(b, p->frame);
    if (!m)
        return;
    compare_moment(v, "born", b, m, side);
    compare(v, "born.mask", m->mask, 4, (int64_t[]){b->objects, 1, side, side});
}

static void compare_full(video_variant *v, const session *s, const json_t *e)
{
    compare_detections(v, s);
    compare_tracks(v, s, e);
    compare_association(v, s, e);
    compare_lives(v, s, e);
    compare_renewals(v, s, e);
    compare_occlusion(v, s, e);
    compare_scores(v, s, e);
    compare_born(v, s);
    equal(v, "buckets", batches_json(s), json_object_get(e, "buckets"));
    equal(v, "next_id", json_integer(s->all.next_id - 1), json_object_get(e, "max_obj_id"));
    const json_t *stats = json_object_get(e, "stats");
    equal(v, "dropped", json_integer(s->last.a.dropped), json_object_get(stats, "num_obj_dropped"));
}

static void compare_partial(video_variant *v, const requests *q)
{
    const action *now = &q->history[q->count - 1];
    const json_t *e = json_array_get(v->trace, (size_t)v->worked);
    int64_t frame = json_integer_value(json_object_get(e, "frame"));
    compare_memories(v, q->s, frame, now->ids, now->count);
    skip(v, "trk.");               /* seen in the memory of the frame and in the answer */
}

void video_worked(void *user, const requests *q, action_kind kind, const float *logits, int objects)
{
    video_variant *v = user;
    const json_t *e = json_array_get(v->trace, (size_t)v->worked);
    if (kind == WENT_FULL)
        compare_full(v, q->s, e);
    else if (kind == WENT_PARTIAL)
        compare_partial(v, q);
    else
        compare(v, "refine.masks", logits, 4, (int64_t[]){objects, 1, q->height, q->width});
    v->worked++;
}

/* Share of pixels that differ, of all masks of an answer. */
static void compare_answer_masks(video_variant *v, const char *name, const track_result *r)
{
    int64_t at = align_find(v->a, name), area = (int64_t)r->width * r->height, wrong = 0;
    const weight *w = at >= 0 ? &v->a->reference.items[at] : NULL;
    if (!w || weight_count(w) != r->count * area)
        return;
    v->a->used[at] = true;
    uint8_t *theirs = malloc((size_t)(r->count * area) + 1), *ours = malloc((size_t)area);
    if (theirs && ours) {
        weight_copy(theirs, w);
        for (int i = 0; i < r->count; i++) {
            rle_decode(ours, &r->item[i].mask);
            for (int64_t k = 0; k < area; k++)
                wrong += ours[k] != (theirs[i * area + k] != 0);
        }
        char note[64] = "";
        if (wrong)
            snprintf(note, sizeof note, "%lld pixels differ", (long long)wrong);
        align_row(v->a, &(samite_compared){.name = name, .max_difference = wrong != 0, .cosine = 1, .note = note,
                                           .relative = r->count ? (double)wrong / (double)(r->count * area) : 0,
                                           .within = (double)wrong <= PIXEL_BAR * (double)(r->count * area)});
    }
    v->a->out_of_memory |= !theirs || !ours;
    free(theirs);
    free(ours);
}

int video_answer(void *user, const track_result *r, samite_error *err)
{
    video_variant *v = user;
    char name[128];
    const json_t *answers = json_object_get(json_array_get(json_object_get(v->about, "calls"), (size_t)v->call),
                                            "responses");
    const json_t *e = json_array_get(answers, (size_t)v->answered);
    json_t *ids = json_array();
    float *box = malloc(sizeof *box * 5 * ((size_t)r->count + 1)), *score = box + 4 * r->count;
    if (!box)
        return fail(err, SAMITE_RESOURCE, "not enough memory to compare %d objects", r->count);
    for (int i = 0; i < r->count; i++) {
        json_array_append_new(ids, json_integer(r->item[i].id));
        memcpy(box + 4 * i, r->item[i].box, 4 * sizeof *box);
        score[i] = r->item[i].score;
    }
    snprintf(name, sizeof name, "c%d.r%d.frame", v->call, v->answered);
    json_t *ours = json_pack("[I, i]", (json_int_t)r->frame, v->worked);
    json_t *theirs = json_pack("[O, O]", json_object_get(e, "frame"), json_object_get(e, "worked_frames"));
    video_equal(v, name, ours, theirs);
    json_decref(theirs);
    snprintf(name, sizeof name, "c%d.r%d.ids", v->call, v->answered);
    video_equal(v, name, ids, json_object_get(e, "ids"));
    snprintf(name, sizeof name, "c%d.r%d.out.ids", v->call, v->answered);
    align_skip(v->a, name);
    v->a->summary->skipped--;      /* compared as JSON */
    snprintf(name, sizeof name, "c%d.r%d.out.boxes", v->call, v->answered);
    align_tensor(v->a, name, box, 2, (int64_t[]){r->count, 4}, AS_IS);
    snprintf(name, sizeof name, "c%d.r%d.out.probs", v->call, v->answered);
    align_tensor(v->a, name, score, 1, (int64_t[]){r->count}, AS_IS);
    snprintf(name, sizeof name, "c%d.r%d.out.masks", v->call, v->answered);
    compare_answer_masks(v, name, r);
    v->answered++;
    free(box);
    return 0;
}
