/* coco_match.c - who found whom, in each image and category, at ten IoU thresholds and four area ranges. */
#include "eval/coco_match.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct scored {
    double   score;
    uint32_t at;                   /* place in the group */
} scored;

/* Memory of one thread, kept from group to group. */
typedef struct scratch {
    size_t    results, truths;     /* that there is room for */
    scored   *order;               /* results of the group, best first */
    double   *iou;                 /* [kept results, truths] */
    uint32_t *sorted;              /* objects with the ignored ones last, as place in the group */
    uint8_t  *ignored, *taken;     /* by place in the group */
    rle      *masks;               /* [truths + COCO_MOST] */
    double  (*boxes)[4];
} scratch;

static void scratch_free(scratch *s)
{
    free(s->iou);
    free(s->order);
    free(s->sorted);
    free(s->ignored);
    free(s->taken);
    free(s->masks);
    free(s->boxes);
    *s = (scratch){0};
}

static bool scratch_fit(scratch *s, const group *g)
{
    if (g->results <= s->results && g->truths <= s->truths)
        return true;
    size_t d = g->results > s->results ? g->results : s->results, t = g->truths > s->truths ? g->truths : s->truths;
    scratch_free(s);
    s->order = malloc((d + 1) * sizeof *s->order);
    s->iou = malloc((COCO_MOST * t + 1) * sizeof *s->iou);
    s->sorted = malloc((t + 1) * sizeof *s->sorted);
    s->ignored = malloc(t + 1);
    s->taken = malloc(t + 1);
    s->masks = malloc((t + COCO_MOST) * sizeof *s->masks);
    s->boxes = malloc((t + COCO_MOST) * sizeof *s->boxes);
    if (!s->order || !s->iou || !s->sorted || !s->ignored || !s->taken || !s->masks || !s->boxes)
        return false;
    s->results = d;
    s->truths = t;
    return true;
}

double coco_box_iou(const double a[4], const double b[4], bool crowd)
{
    double w = fmin(a[2] + a[0], b[2] + b[0]) - fmax(a[0], b[0]);
    double h = w > 0 ? fmin(a[3] + a[1], b[3] + b[1]) - fmax(a[1], b[1]) : 0;
    if (!(w > 0 && h > 0))
        return 0;
    double common = w * h, whole = crowd ? a[2] * a[3] : a[2] * a[3] + b[2] * b[3] - common;
    return common / whole;
}

static const eval_item *truth_at(const matcher *m, const group *g, size_t i)
{
    return &m->truth->items[m->shown[m->truth_list[g->truth + i]]];
}

static const eval_item *result_at(const matcher *m, const group *g, const scratch *s, size_t i)
{
    return &m->results->items[m->result_list[g->result + s->order[i].at]];
}

static void box_overlaps(const matcher *m, const group *g, scratch *s, size_t kept)
{
    for (size_t i = 0; i < kept; i++) {
        const eval_item *d = result_at(m, g, s, i);
        for (size_t j = 0; j < g->truths; j++) {
            const eval_item *t = truth_at(m, g, j);
            s->iou[i * g->truths + j] = coco_box_iou(d->box, t->box, t->crowd);
        }
    }
}

/* Decodes the masks of a group; those of objects first. */
static int decode_masks(const matcher *m, const group *g, scratch *s, size_t kept, samite_error *err)
{
    int code = SAMITE_OK;
    memset(s->masks, 0, (g->truths + kept) * sizeof *s->masks);
    for (size_t i = 0; i < g->truths + kept && !code; i++) {
        const eval_item *item = i < g->truths ? truth_at(m, g, i) : result_at(m, g, s, i - g->truths);
        code = eval_item_mask(&s->masks[i], m->truth, item, err);
        if (!code)
            rle_bbox(s->boxes[i], &s->masks[i]);
    }
    return code;
}

static int mask_overlaps(const matcher *m, const group *g, scratch *s, size_t kept, samite_error *err)
{
    int code = decode_masks(m, g, s, kept, err);
    for (size_t i = 0; i < kept && !code; i++) {
        for (size_t j = 0; j < g->truths; j++) {
            bool crowd = truth_at(m, g, j)->crowd;
            size_t d = g->truths + i;
            bool near = coco_box_iou(s->boxes[d], s->boxes[j], crowd) > 0;
            s->iou[i * g->truths + j] = near ? rle_iou(&s->masks[d], &s->masks[j], crowd) : 0;
        }
    }
    for (size_t i = 0; i < g->truths + kept; i++)
        rle_free(&s->masks[i]);
    return code;
}

static int better_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Best first; equal scores stay in the order of the file. */
static void sort_results(const matcher *m, const group *g, scratch *s)
{
    const uint32_t *list = m->result_list + g->result;
    bool sorted = true;
    for (uint32_t i = 0; i < g->results; i++) {
        s->order[i] = (scored){m->results->items[list[i]].score, i};
        sorted = sorted && (i == 0 || s->order[i - 1].score >= s->order[i].score);
    }
    if (!sorted)
        qsort(s->order, g->results, sizeof *s->order, better_first);
}

/* Objects out of the area range and crowds are ignored and come last. */
static void sort_truths(const matcher *m, const group *g, scratch *s, int area)
{
    uint32_t at = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t j = 0; j < g->truths; j++) {
            const eval_item *t = truth_at(m, g, j);
            bool out = t->crowd || t->area < coco_areas[area][0] || t->area > coco_areas[area][1];
            s->ignored[j] = out;
            if (out == (pass == 1))
                s->sorted[at++] = j;
        }
    }
}

/* The object that a detection takes at a threshold, as place in the group, or -1. */
static int64_t best_object(const matcher *m, const group *g, const scratch *s, const double *iou, double least)
{
    int64_t best = -1;
    for (size_t k = 0; k < g->truths; k++) {
        uint32_t j = s->sorted[k];
        if (s->taken[j] && !truth_at(m, g, j)->crowd)
            continue;
        if (best >= 0 && !s->ignored[best] && s->ignored[j])
            break;
        if (iou[j] < least)
            continue;
        least = iou[j];
        best = j;
    }
    return best;
}

static bool never_counts(const matcher *m, const eval_item *t)
{
    const id_value *id = t->id >= 0 && m->o->compat ? &m->truth->ids.item[t->id] : NULL;
    return id && id->kind == ID_INTEGER && id->number == 0;
}

static void keep_match(const matcher *m, const group *g, const scratch *s, size_t i, int64_t j)
{
    coco_result *out = m->out;
    size_t result = m->result_list[g->result + s->order[i].at];
    bool ignored = j >= 0 && s->ignored[j];
    out->result_match[result] = ignored ? MATCH_OUT : j < 0 ? MATCH_NONE : (int32_t)m->truth_list[g->truth + (size_t)j];
    if (j >= 0 && !ignored)
        out->truth_match[m->truth_list[g->truth + (size_t)j]] = (int32_t)result;
    for (size_t k = 0; k < g->truths; k++)
        if (!s->ignored[k])
            out->result_iou[result] = fmax(out->result_iou[result], s->iou[i * g->truths + k]);
}

static void match_area(const matcher *m, const group *g, scratch *s, size_t kept, int area, const double *ious)
{
    outcome *o = m->outcomes + g->result;
    bool keep = m->o->keep_matches && area == 0;
    sort_truths(m, g, s, area);
    for (size_t j = 0; keep && j < g->truths; j++)
        if (!s->ignored[j])
            m->out->truth_match[m->truth_list[g->truth + j]] = MATCH_NONE;
    for (int t = 0; t < COCO_IOUS; t++) {
        uint16_t bit = (uint16_t)(1u << t);
        double least = fmin(ious[t], 1 - 1e-10);
        memset(s->taken, 0, g->truths);
        for (size_t i = 0; i < kept; i++) {
            int64_t j = best_object(m, g, s, s->iou + i * g->truths, least);
            if (keep && t == 0)
                keep_match(m, g, s, i, j);
            if (j < 0)
                continue;
            s->taken[j] = 1;
            o[i].ignored[area] |= s->ignored[j] ? bit : 0;
            o[i].matched[area] |= never_counts(m, truth_at(m, g, (size_t)j)) ? 0 : bit;
        }
    }
    for (size_t i = 0; i < kept; i++) {
        double size = result_at(m, g, s, i)->area;
        if (size < coco_areas[area][0] || size > coco_areas[area][1])
            o[i].ignored[area] |= (uint16_t)~o[i].matched[area];
    }
}

static int match_group(const matcher *m, const group *g, scratch *s, const double *ious, samite_error *err)
{
    if (!scratch_fit(s, g))
        return fail(err, SAMITE_RESOURCE, "not enough memory to match %u results with %u objects", g->results,
                    g->truths);
    sort_results(m, g, s);
    size_t kept = m->o->positive_only && g->truths == 0 ? 0 : g->results < COCO_MOST ? g->results : COCO_MOST;
    for (size_t i = 0; i < g->results; i++) {
        m->outcomes[g->result + i].score = result_at(m, g, s, i)->score;
        m->outcomes[g->result + i].rank = (uint8_t)(i < kept ? i : COCO_MOST);
    }
    int code = SAMITE_OK;
    if (g->truths && kept && m->o->masks)
        code = mask_overlaps(m, g, s, kept, err);
    else if (g->truths && kept)
        box_overlaps(m, g, s, kept);
    for (int area = 0; area < COCO_AREAS && !code; area++)
        match_area(m, g, s, kept, area, ious);
    return code;
}

int match_groups(matcher *m, samite_error *err)
{
    double ious[COCO_IOUS];
    int failed = SAMITE_OK;
    coco_thresholds(ious);
#pragma omp parallel
    {
        scratch s = {0};
        samite_error own = {0};
#pragma omp for schedule(dynamic, 64)
        for (size_t i = 0; i < m->group_count; i++) {
            int code = own.code ? own.code : match_group(m, &m->groups[i], &s, ious, &own);
            if (code) {
#pragma omp critical(samite_match_failed)
                failed = failed ? failed : fail(err, code, "%s", own.text);
            }
        }
        scratch_free(&s);
    }
    return failed;
}
