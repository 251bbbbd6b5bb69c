/* coco.c - groups objects and detections, matches, accumulates, sums up. */
#include "eval/coco.h"

#include <stdlib.h>
#include <string.h>

#include "eval/coco_match.h"

const double coco_areas[COCO_AREAS][2] = {{0, 1e10}, {0, 1024}, {1024, 9216}, {9216, 1e10}};
const int    coco_limits[COCO_LIMITS] = {1, 10, 100};
const char *const coco_stat_names[COCO_STATS] = {"AP",   "AP50",  "AP75",   "AP_small", "AP_medium", "AP_large",
                                                 "AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large"};

void coco_thresholds(double ious[COCO_IOUS])
{
    double step = (0.95 - 0.5) / (COCO_IOUS - 1);
    for (int i = 0; i < COCO_IOUS; i++)
        ious[i] = i * step + 0.5;
    ious[COCO_IOUS - 1] = 0.95;
}

/* Up to 128 numbers in eight partial sums, more by halves. */
static double sum_as_numpy(const double *v, size_t n)
{
    if (n < 8) {
        double s = 0;
        for (size_t i = 0; i < n; i++)
            s += v[i];
        return s;
    }
    if (n > 128) {
        size_t half = n / 2 / 8 * 8;
        return sum_as_numpy(v, half) + sum_as_numpy(v + half, n - half);
    }
    double r[8];
    size_t i = 8;
    memcpy(r, v, sizeof r);
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            r[k] += v[i + (size_t)k];
    double s = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (; i < n; i++)
        s += v[i];
    return s;
}

double mean_as_numpy(const double *v, size_t count)
{
    return sum_as_numpy(v, count) / (double)count;
}

/* ---- groups ---- */

typedef struct sort_key {
    uint64_t where;     /* category rank, image rank */
    uint32_t own_image; /* rank of the image under which the file lists the item */
    uint32_t item;
} sort_key;

static int compare_keys(const void *a, const void *b)
{
    const sort_key *x = a, *y = b;
    if (x->where != y->where)
        return x->where < y->where ? -1 : 1;
    if (x->own_image != y->own_image)
        return x->own_image < y->own_image ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

/* rank[index] = place in ascending order of ids, or UINT32_MAX when left out. */
static uint32_t *make_ranks(const int32_t *order, size_t n, const uint8_t *keep, int32_t *kept, size_t *kept_count)
{
    uint32_t *rank = malloc((n + 1) * sizeof *rank), at = 0;
    for (size_t i = 0; rank && i < n; i++) {
        bool in = !keep || keep[order[i]];
        if (in && kept)
            kept[at] = order[i];
        rank[order[i]] = in ? at++ : UINT32_MAX;
    }
    *kept_count = at;
    return rank;
}

/* shown[i]: item whose content item i stands for; NULL: its own. */
static sort_key *sort_items(const eval_set *s, const uint32_t *shown, const uint32_t *image_rank,
                            const uint32_t *category_rank, size_t *count)
{
    sort_key *k = malloc((s->count + 1) * sizeof *k);
    *count = 0;
    for (size_t i = 0; k && i < s->count; i++) {
        const eval_item *item = &s->items[i], *as = shown ? &s->items[shown[i]] : item;
        if (item->category < 0 || image_rank[item->image] == UINT32_MAX || category_rank[item->category] == UINT32_MAX)
            continue;
        if (as->category < 0 || image_rank[as->image] == UINT32_MAX || category_rank[as->category] == UINT32_MAX)
            continue;
        k[(*count)++] = (sort_key){(uint64_t)category_rank[as->category] << 32 | image_rank[as->image],
                                   image_rank[item->image], (uint32_t)i};
    }
    if (k && *count > 1)
        qsort(k, *count, sizeof *k, compare_keys);
    return k;
}

/* Walks both sorted lists at once. */
static bool make_groups(matcher *m, const sort_key *g, const sort_key *d)
{
    size_t i = 0, j = 0;
    m->groups = malloc((m->truths + m->result_count + 1) * sizeof *m->groups);
    m->truth_list = malloc((m->truths + 1) * sizeof *m->truth_list);
    m->result_list = malloc((m->result_count + 1) * sizeof *m->result_list);
    if (!m->groups || !m->truth_list || !m->result_list)
        return false;
    while (i < m->truths || j < m->result_count) {
        uint64_t where = i < m->truths ? g[i].where : UINT64_MAX;
        if (j < m->result_count && d[j].where < where)
            where = d[j].where;
        group *n = &m->groups[m->group_count++];
        *n = (group){.category = (int32_t)(where >> 32), .truth = (uint32_t)i, .result = (uint32_t)j};
        for (; i < m->truths && g[i].where == where; i++, n->truths++)
            m->truth_list[i] = g[i].item;
        for (; j < m->result_count && d[j].where == where; j++, n->results++)
            m->result_list[j] = d[j].item;
    }
    return true;
}

/* shown[i] = item whose content item i stands for. */
static bool choose_content(matcher *m)
{
    const eval_set *s = m->truth;
    m->shown = malloc((s->count + 1) * sizeof *m->shown);
    uint32_t *last = m->o->compat && s->repeated_ids ? malloc((s->ids.count + 1) * sizeof *last) : NULL;
    if (!m->shown || (m->o->compat && s->repeated_ids && !last))
        return false;
    for (size_t i = 0; last && i < s->count; i++)
        if (s->items[i].id >= 0)
            last[s->items[i].id] = (uint32_t)i;
    for (size_t i = 0; i < s->count; i++)
        m->shown[i] = last && s->items[i].id >= 0 ? last[s->items[i].id] : (uint32_t)i;
    free(last);
    return true;
}

static bool sort_all(matcher *m)
{
    const eval_set *t = m->truth;
    coco_result *out = m->out;
    size_t categories = 0;
    out->category = malloc((t->category_ids.count + 1) * sizeof *out->category);
    uint32_t *images = make_ranks(t->image_order, t->image_ids.count, m->o->images, NULL, &out->images);
    uint32_t *ranks = out->category ? make_ranks(t->category_order, t->category_ids.count, m->o->categories,
                                                 out->category, &categories)
                                    : NULL;
    out->categories = categories;
    sort_key *g = NULL, *d = NULL;
    if (images && ranks) {
        g = sort_items(t, m->shown, images, ranks, &m->truths);
        d = sort_items(m->results, NULL, images, ranks, &m->result_count);
    }
    bool fine = g && d && make_groups(m, g, d);
    free(images);
    free(ranks);
    free(g);
    free(d);
    return fine;
}

/* ---- the twelve numbers ---- */

/* Mean of all values over -1 for one area and limit, at IoU index `iou` or all (-1). */
static double mean_of(const coco_result *r, bool recall, int iou, int area, int limit, double *room)
{
    size_t n = 0, inner = recall ? 1 : COCO_RECALLS;
    const double *v = recall ? r->recall : r->precision;
    for (size_t t = 0; t < COCO_IOUS; t++) {
        if (iou >= 0 && t != (size_t)iou)
            continue;
        for (size_t q = 0; q < inner; q++)
            for (size_t k = 0; k < r->categories; k++) {
                double x = v[(((t * inner + q) * r->categories + k) * COCO_AREAS + (size_t)area) * COCO_LIMITS +
                             (size_t)limit];
                if (x > -1)
                    room[n++] = x;
            }
    }
    return n ? mean_as_numpy(room, n) : -1;
}

/* Over the first `ious` thresholds, all areas, the highest limit. */
static double mean_of_category(const coco_result *r, size_t k, int ious, double *room)
{
    size_t n = 0;
    for (size_t i = 0; i < (size_t)ious * COCO_RECALLS; i++) {
        double x = r->precision[(i * r->categories + k) * COCO_AREAS * COCO_LIMITS + COCO_LIMITS - 1];
        if (x > -1)
            room[n++] = x;
    }
    return n ? mean_as_numpy(room, n) : -1;
}

static bool sum_up(coco_result *r)
{
    static const struct { bool recall; int iou, area, limit; } what[COCO_STATS] = {
        {false, -1, 0, 2}, {false, 0, 0, 2}, {false, 5, 0, 2}, {false, -1, 1, 2}, {false, -1, 2, 2}, {false, -1, 3, 2},
        {true, -1, 0, 0}, {true, -1, 0, 1}, {true, -1, 0, 2}, {true, -1, 1, 2}, {true, -1, 2, 2}, {true, -1, 3, 2},
    };
    double *room = malloc((COCO_IOUS * COCO_RECALLS * (r->categories + 1)) * sizeof *room);
    r->category_ap = malloc((r->categories + 1) * sizeof *r->category_ap);
    r->category_ap50 = malloc((r->categories + 1) * sizeof *r->category_ap50);
    bool fine = room && r->category_ap && r->category_ap50;
    for (int i = 0; i < COCO_STATS && fine; i++)
        r->stats[i] = mean_of(r, what[i].recall, what[i].iou, what[i].area, what[i].limit, room);
    for (size_t k = 0; k < r->categories && fine; k++) {
        r->category_ap[k] = mean_of_category(r, k, COCO_IOUS, room);
        r->category_ap50[k] = mean_of_category(r, k, 1, room);
    }
    free(room);
    return fine;
}

/* Precision, recall and scores of r->categories, nothing measured yet. */
static bool take_curves(coco_result *r)
{
    size_t each = r->categories * COCO_AREAS * COCO_LIMITS * COCO_IOUS;
    r->recall = malloc((each + 1) * sizeof *r->recall);
    r->precision = malloc((each * COCO_RECALLS + 1) * sizeof *r->precision);
    r->scores = malloc((each * COCO_RECALLS + 1) * sizeof *r->scores);
    if (!r->recall || !r->precision || !r->scores)
        return false;
    for (size_t i = 0; i < each; i++)
        r->recall[i] = -1;
    for (size_t i = 0; i < each * COCO_RECALLS; i++)
        r->precision[i] = r->scores[i] = -1;
    return true;
}

static bool take_memory(matcher *m)
{
    coco_result *r = m->out;
    m->outcomes = calloc(m->result_count + 1, sizeof *m->outcomes);
    if (!m->outcomes || !take_curves(r))
        return false;
    if (!m->o->keep_matches)
        return true;
    r->truth_match = malloc((m->truth->count + 1) * sizeof *r->truth_match);
    r->result_match = malloc((m->results->count + 1) * sizeof *r->result_match);
    r->result_iou = calloc(m->results->count + 1, sizeof *r->result_iou);
    if (!r->truth_match || !r->result_match || !r->result_iou)
        return false;
    for (size_t i = 0; i < m->truth->count; i++)
        r->truth_match[i] = MATCH_OUT;
    for (size_t i = 0; i < m->results->count; i++)
        r->result_match[i] = MATCH_OUT;
    return true;
}

/* The matches stand; only the ranking is over all categories at once. */
static int pool_categories(matcher *m, samite_error *err)
{
    coco_result all = {.categories = 1}, *each = m->out;
    for (size_t i = 0; i < m->group_count; i++)
        m->groups[i].category = 0;
    m->out = &all;
    int code = take_curves(&all) ? accumulate(m, err) : SAMITE_RESOURCE;
    if (code || !sum_up(&all))
        code = fail(err, SAMITE_RESOURCE, "not enough memory to rank %zu results", m->result_count);
    memcpy(each->pooled, all.stats, sizeof each->pooled);
    m->out = each;
    coco_result_free(&all);
    return code;
}

int coco_evaluate(coco_result *out, const eval_set *truth, const eval_set *results, const coco_options *o,
                  samite_error *err)
{
    *out = (coco_result){0};
    matcher m = {.truth = truth, .results = results, .o = o, .out = out};
    bool fine = truth->category_ids.count < (size_t)1 << 24 && truth->count < UINT32_MAX && results->count < UINT32_MAX;
    fine = fine && choose_content(&m) && sort_all(&m) && take_memory(&m);
    int code = fine ? match_groups(&m, err)
                    : fail(err, SAMITE_RESOURCE, "not enough memory to evaluate %zu results over %zu categories",
                           results->count, truth->category_ids.count);
    if (!code)
        code = accumulate(&m, err);
    if (!code && !sum_up(out))
        code = fail(err, SAMITE_RESOURCE, "not enough memory to sum up %zu categories", out->categories);
    if (!code && o->pool)
        code = pool_categories(&m, err);
    out->objects = m.truths;
    out->detections = m.result_count;
    free(m.truth_list);
    free(m.result_list);
    free(m.groups);
    free(m.outcomes);
    free(m.shown);
    if (code)
        coco_result_free(out);
    return code;
}

void coco_result_free(coco_result *r)
{
    free(r->category);
    free(r->precision);
    free(r->scores);
    free(r->recall);
    free(r->category_ap);
    free(r->category_ap50);
    free(r->truth_match);
    free(r->result_match);
    free(r->result_iou);
    *r = (coco_result){0};
}
