/* associate.c - overlaps of all pairs, then one rule after another. */
#include "track/associate.h"

#include <stdlib.h>

#include "base/assign.h"

void association_free(association *a)
{
    free(a->iou);
    free(a->covers);
    free(a->fresh);
    free(a->unmatched);
    free(a->empty);
    free(a->renewal);
    free(a->renewed);
    *a = (association){0};
}

static bool make(association *a, int dets, int tracks)
{
    size_t d = (size_t)dets, t = (size_t)tracks;
    *a = (association){.dets = dets, .tracks = tracks};
    a->iou = calloc(d * t + 1, sizeof *a->iou);
    a->covers = calloc(d * t + 1, sizeof *a->covers);
    a->fresh = calloc(d + 1, sizeof *a->fresh);
    a->unmatched = calloc(t + 1, sizeof *a->unmatched);
    a->empty = calloc(t + 1, sizeof *a->empty);
    a->renewal = calloc(t + 1, sizeof *a->renewal);
    a->renewed = calloc(t + 1, sizeof *a->renewed);
    for (int i = 0; a->renewal && i < tracks; i++)
        a->renewal[i] = -1;
    return a->iou && a->covers && a->fresh && a->unmatched && a->empty && a->renewal && a->renewed;
}

/* Tracks that the detector sees, each for itself. */
static void match_each(const association *a, const track_options *o, bool *matched)
{
    for (int d = 0; d < a->dets; d++)
        for (int t = 0; t < a->tracks; t++)
            matched[t] |= a->iou[d * a->tracks + t] >= o->match;
}

/* The same when every detection may stand for one track only. */
static int match_one_to_one(const association *a, const track_options *o, bool *matched, samite_error *err)
{
    size_t n = (size_t)a->dets * (size_t)a->tracks;
    double *cost = malloc(sizeof *cost * (n + 1));
    int32_t *to = malloc(sizeof *to * ((size_t)a->dets + 1));
    int code = cost && to ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to match %d tracks", a->tracks);
    for (size_t i = 0; !code && i < n; i++)
        cost[i] = (double)(1.0f - a->iou[i]);
    if (!code)
        code = assign_least(to, cost, a->dets, a->tracks, err);
    for (int d = 0; !code && d < a->dets; d++)
        if (to[d] >= 0 && a->iou[d * a->tracks + to[d]] >= o->match)
            matched[to[d]] = true;
    free(cost);
    free(to);
    return code;
}

static void find_renewals(association *a, const track_options *o, int d, float score, bool is_fresh)
{
    const float *row = a->iou + d * a->tracks;
    int best = 0;
    for (int t = 1; t < a->tracks; t++)
        if (row[t] > row[best])
            best = t;
    if (is_fresh || score < o->renew_detection || row[best] < o->renew_overlap)
        return;
    if (a->renewal[best] < 0)
        a->renewed[a->renewed_count++] = best;
    a->renewal[best] = d;
}

static void look_at_detection(association *a, const track_options *o, int d, float score)
{
    bool known = false;
    for (int t = 0; t < a->tracks; t++)
        known |= a->covers[d * a->tracks + t] = a->iou[d * a->tracks + t] >= o->overlap;
    bool is_fresh = score >= o->new_score && !known;
    if (is_fresh)
        a->fresh[a->fresh_count++] = d;
    find_renewals(a, o, d, score, is_fresh);
}

static void drop_at_border(association *a, const track_options *o, const float *boxes)
{
    int kept = 0;
    for (int i = 0; i < a->fresh_count; i++) {
        const float *b = boxes + 4 * a->fresh[i];
        float x = (b[0] + b[2]) / 2, y = (b[1] + b[3]) / 2;
        if (x > o->border && x < 1.0f - o->border && y > o->border && y < 1.0f - o->border)
            a->fresh[kept++] = a->fresh[i];
    }
    a->fresh_count = kept;
}

/* Over the limit the best new ones stay, best first. */
static void limit_fresh(association *a, int most, const float *scores)
{
    int room = most - a->tracks > 0 ? most - a->tracks : 0;
    if (a->fresh_count <= room)
        return;
    for (int i = 1; i < a->fresh_count; i++)
        for (int k = i; k > 0 && scores[a->fresh[k]] >= scores[a->fresh[k - 1]]; k--) {
            int swap = a->fresh[k];
            a->fresh[k] = a->fresh[k - 1];
            a->fresh[k - 1] = swap;
        }
    a->dropped = a->fresh_count - room;
    a->fresh_count = room;
}

static int decide(association *a, const track_options *o, const float *scores, const bit_masks *track, bool *matched,
                  samite_error *err)
{
    int code = 0;
    if (a->dets && a->tracks && o->one_to_one)
        code = match_one_to_one(a, o, matched, err);
    else
        match_each(a, o, matched);
    for (int t = 0; t < a->tracks; t++) {
        a->empty[t] = !track->area[t];
        a->unmatched[t] = track->area[t] && !matched[t];
    }
    for (int d = 0; d < a->dets; d++) {
        if (a->tracks)
            look_at_detection(a, o, d, scores[d]);
        else
            a->fresh[a->fresh_count++] = d;        /* a first frame takes all that was detected */
    }
    return code;
}

int associate(association *a, const track_options *o, const bit_masks *det, const float *scores, const float *boxes,
              const bit_masks *track, samite_error *err)
{
    bool *matched = calloc((size_t)track->count + 1, sizeof *matched);
    bool ok = make(a, det->count, track->count) && matched;
    int code = ok ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to compare %d detections with %d tracks",
                             det->count,
                             track->count);
    for (int d = 0; !code && d < a->dets; d++)
        for (int t = 0; t < a->tracks; t++)
            a->iou[d * a->tracks + t] = bits_iou(det, d, track, t);
    if (!code)
        code = decide(a, o, scores, track, matched, err);
    free(matched);
    if (code) {
        association_free(a);
        return code;
    }
    if (o->avoid_border)
        drop_at_border(a, o, boxes);
    limit_fresh(a, o->max_objects, scores);
    return 0;
}
