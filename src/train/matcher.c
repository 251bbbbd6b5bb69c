/* matcher.c - the assignment of queries to objects, one to one and one to many. */
#include "train/matcher.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assign.h"

/* Weights of the one-to-one cost: classification, L1 distance, generalised IoU; focal parameters of the first. */
#define COST_CLASS  2.0f
#define COST_L1     5.0f
#define COST_GIOU   2.0f
#define FOCAL_ALPHA 0.25f

/* One-to-many: score = MIX p + (1 - MIX) IoU, at least LEAST, above the 1 - BEST / queries quantile. */
#define MIX   0.3f
#define LEAST 0.4f
#define BEST  4

void match_list_free(match_list *l)
{
    free(l->item);
    *l = (match_list){0};
}

static bool add_match(match_list *l, match m)
{
    if (l->count == l->room) {
        int room = l->room ? 2 * l->room : 64;
        match *more = realloc(l->item, sizeof *more * (size_t)room);
        if (!more)
            return false;
        l->item = more;
        l->room = room;
    }
    l->item[l->count++] = m;
    return true;
}

/* ---- boxes ---- */

corners box_corners_of(const float *b)
{
    return (corners){b[0] - 0.5f * b[2], b[1] - 0.5f * b[3], b[0] + 0.5f * b[2], b[1] + 0.5f * b[3]};
}

static float area_of(corners c)
{
    return (c.x1 - c.x0) * (c.y1 - c.y0);
}

static float intersection(corners a, corners b)
{
    float w = fminf(a.x1, b.x1) - fmaxf(a.x0, b.x0), h = fminf(a.y1, b.y1) - fmaxf(a.y0, b.y0);
    return fmaxf(w, 0) * fmaxf(h, 0);
}

float corners_iou(corners a, corners b)
{
    float inter = intersection(a, b);
    return inter / (area_of(a) + area_of(b) - inter);
}

float corners_giou(corners a, corners b)
{
    float inter = intersection(a, b), all = area_of(a) + area_of(b) - inter;
    float w = fmaxf(a.x1, b.x1) - fminf(a.x0, b.x0), h = fmaxf(a.y1, b.y1) - fminf(a.y0, b.y0);
    float hull = fmaxf(w, 0) * fmaxf(h, 0);
    return inter / all - (hull - all) / hull;
}

/* ---- one to one ---- */

static float log_sigmoid(float x)
{
    return fminf(x, 0) - log1pf(expf(-fabsf(x)));
}

static float class_cost(float logit)
{
    float p = 1.0f / (1.0f + expf(-logit));
    return -FOCAL_ALPHA * (1 - p) * (1 - p) * log_sigmoid(logit) + (1 - FOCAL_ALPHA) * p * p * log_sigmoid(-logit);
}

static float pair_cost(float logit_cost, const float *box, const float *object)
{
    float l1 = 0;
    for (int i = 0; i < 4; i++)
        l1 += fabsf(box[i] - object[i]);
    return COST_L1 * l1 + COST_CLASS * logit_cost -
           COST_GIOU * corners_giou(box_corners_of(box), box_corners_of(object));
}

/* Costs of prompt p as [few, many], rows the smaller side. false: a cost is not finite. */
static bool fill_costs(double *cost, const answers *a, const targets *t, int p, bool objects_are_rows)
{
    int n = t->count[p];
    bool finite = true;
    for (int q = 0; q < a->queries; q++) {
        int64_t at = (int64_t)p * a->queries + q;
        float c = class_cost(a->logits[at]);
        for (int i = 0; i < n; i++) {
            float value = pair_cost(c, a->boxes + 4 * at, t->boxes + 4 * (int64_t)(t->first[p] + i));
            finite = finite && isfinite(value);
            cost[objects_are_rows ? (int64_t)i * a->queries + q : (int64_t)q * n + i] = (double)value;
        }
    }
    return finite;
}

/* Appends the pairs of prompt p, by object or by query. */
static bool add_pairs(match_list *out, const int32_t *column, int rows, const targets *t, int p, bool objects_are_rows,
                      bool by_query, int queries)
{
    int n = t->count[p];
    int *query_of = malloc(sizeof(int) * (size_t)(n + 1)), *object_of = malloc(sizeof(int) * (size_t)(queries + 1));
    bool ok = query_of && object_of;
    for (int i = 0; ok && i < n; i++)
        query_of[i] = -1;
    for (int q = 0; ok && q < queries; q++)
        object_of[q] = -1;
    for (int i = 0; ok && i < rows; i++) {
        query_of[objects_are_rows ? i : column[i]] = objects_are_rows ? column[i] : i;
        object_of[objects_are_rows ? column[i] : i] = objects_are_rows ? i : column[i];
    }
    for (int i = 0; ok && i < (by_query ? queries : n); i++) {
        int query = by_query ? i : query_of[i], object = by_query ? object_of[i] : i;
        if (query >= 0 && object >= 0)
            ok = add_match(out, (match){p, query, t->first[p] + object});
    }
    free(query_of);
    free(object_of);
    return ok;
}

static int match_prompt(match_list *out, const answers *a, const targets *t, int p, bool by_query, samite_error *err)
{
    int n = t->count[p];
    bool objects_are_rows = n <= a->queries;
    int rows = objects_are_rows ? n : a->queries, columns = objects_are_rows ? a->queries : n;
    double *cost = malloc(sizeof(double) * (size_t)rows * (size_t)columns);
    int32_t *column = malloc(sizeof *column * (size_t)rows);
    int code = 0;
    if (!cost || !column)
        code = fail(err, SAMITE_RESOURCE, "not enough memory to match %d objects", n);
    else if (!fill_costs(cost, a, t, p, objects_are_rows))
        code = fail(err, SAMITE_FAILED, "an answer to prompt %d is not a finite number, or a box is degenerate", p);
    else if (!(code = assign_least(column, cost, rows, columns, err)) &&
             !add_pairs(out, column, rows, t, p, objects_are_rows, by_query, a->queries))
        code = fail(err, SAMITE_RESOURCE, "not enough memory to match %d objects", n);
    free(cost);
    free(column);
    return code;
}

int match_one_to_one(match_list *out, const answers *a, const targets *t, samite_error *err)
{
    bool by_query = false;
    int code = 0;
    *out = (match_list){0};
    for (int p = 0; p < t->prompts; p++)
        by_query |= t->count[p] > a->queries;
    for (int p = 0; p < t->prompts && !code; p++)
        if (t->count[p])
            code = match_prompt(out, a, t, p, by_query, err);
    if (code)
        match_list_free(out);
    return code;
}

/* ---- one to many ---- */

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The value that a share of 1 - BEST / n of the scores lies below, interpolated between neighbours. */
static float quantile(float *sorted, int n)
{
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    double place = (1.0 - (double)BEST / n) * (n - 1);
    int low = (int)floor(fmax(place, 0));
    float weight = (float)(fmax(place, 0) - low);
    return low + 1 < n ? sorted[low] + weight * (sorted[low + 1] - sorted[low]) : sorted[low];
}

int match_one_to_many(match_list *out, const answers *a, const targets *t, samite_error *err)
{
    int most = 0, queries = a->queries;
    *out = (match_list){0};
    for (int p = 0; p < t->prompts; p++)
        most = t->count[p] > most ? t->count[p] : most;
    float *score = malloc(sizeof(float) * (size_t)(most + 1) * (size_t)queries),
          *sorted = malloc(sizeof(float) * (size_t)queries), *limit = malloc(sizeof(float) * (size_t)(most + 1));
    bool ok = score && sorted && limit;
    for (int p = 0; ok && p < t->prompts; p++) {
        int n = t->count[p];
        for (int i = 0; i < n; i++) {
            corners object = box_corners_of(t->boxes + 4 * (int64_t)(t->first[p] + i));
            for (int q = 0; q < queries; q++) {
                int64_t at = (int64_t)p * queries + q;
                float prob = 1.0f / (1.0f + expf(-a->logits[at]));
                score[i * queries + q] =
                    MIX * prob + (1 - MIX) * corners_iou(box_corners_of(a->boxes + 4 * at), object);
            }
            memcpy(sorted, score + i * queries, sizeof(float) * (size_t)queries);
            limit[i] = quantile(sorted, queries);
        }
        for (int q = 0; ok && q < queries; q++)
            for (int i = 0; ok && i < n; i++)
                if (score[i * queries + q] > limit[i] && score[i * queries + q] > LEAST)
                    ok = add_match(out, (match){p, q, t->first[p] + i});
    }
    free(score);
    free(sorted);
    free(limit);
    if (ok)
        return 0;
    match_list_free(out);
    return fail(err, SAMITE_RESOURCE, "not enough memory to match the objects of a batch");
}
