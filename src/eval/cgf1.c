/* cgf1.c - counts per (image, phrase) pair with one-to-one matching, then precision, recall and presence over all. */
#include "eval/cgf1.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assign.h"

const char *const cgf1_names[CGF1_NUMBERS] = {
    "cgF1", "precision", "recall", "F1", "positive_macro_F1", "positive_micro_F1", "positive_micro_precision",
    "IL_precision", "IL_recall", "IL_F1", "IL_FPR", "IL_MCC",
    "cgF1@0.5", "precision@0.5", "recall@0.5", "F1@0.5", "positive_macro_F1@0.5", "positive_micro_F1@0.5",
    "positive_micro_precision@0.5",
    "cgF1@0.75", "precision@0.75", "recall@0.75", "F1@0.75", "positive_macro_F1@0.75", "positive_micro_F1@0.75",
    "positive_micro_precision@0.75",
};

#define IN_F1  1e-4       /* added to denominators of counts */
#define IN_IL  1e-6       /* and of image-level numbers */

/* Items of one set by image, then category, then order in the file. */
typedef struct by_image {
    uint32_t *list;
    size_t   *start;      /* [images + 1] */
} by_image;

/* What became of one pair. */
typedef struct scoring {
    bool    counted;      /* there was an object or a result */
    bool    both;         /* there were objects and results */
    int64_t tp[COCO_IOUS], fp[COCO_IOUS], fn[COCO_IOUS];
    double  f1[COCO_IOUS];
    size_t  objects, found;
} scoring;

typedef struct sort_key {
    uint64_t where;
    uint32_t item;
} sort_key;

static int compare_keys(const void *a, const void *b)
{
    const sort_key *x = a, *y = b;
    if (x->where != y->where)
        return x->where < y->where ? -1 : 1;
    return (x->item > y->item) - (x->item < y->item);
}

/* Crowds and results below the threshold are left out here. */
static bool sort_by_image(by_image *out, const eval_set *s, const eval_set *truth, double threshold)
{
    size_t images = truth->image_ids.count, n = 0;
    uint32_t *rank = malloc((truth->category_ids.count + 1) * sizeof *rank);
    sort_key *k = malloc((s->count + 1) * sizeof *k);
    *out = (by_image){malloc((s->count + 1) * sizeof *out->list), calloc(images + 2, sizeof *out->start)};
    bool fine = rank && k && out->list && out->start;
    for (size_t i = 0; fine && i < truth->category_ids.count; i++)
        rank[truth->category_order[i]] = (uint32_t)i;
    for (size_t i = 0; fine && i < s->count; i++) {
        const eval_item *item = &s->items[i];
        if (item->category >= 0 && !item->crowd && (s == truth || item->score >= threshold))
            k[n++] = (sort_key){(uint64_t)item->image << 32 | rank[item->category], (uint32_t)i};
    }
    if (fine && n > 1)
        qsort(k, n, sizeof *k, compare_keys);
    for (size_t i = 0; fine && i < n; i++) {
        out->list[i] = k[i].item;
        out->start[(k[i].where >> 32) + 1] = i + 1;
    }
    for (size_t i = 1; fine && i <= images; i++)
        if (out->start[i] < out->start[i - 1])
            out->start[i] = out->start[i - 1];
    free(rank);
    free(k);
    return fine;
}

static int overlaps(double *iou, const eval_set *truth, const uint32_t *g, size_t objects, const eval_set *results,
                    const uint32_t *d, size_t found, bool masks, samite_error *err)
{
    int code = SAMITE_OK;
    rle *m = masks ? calloc(objects + found + 1, sizeof *m) : NULL;
    double (*box)[4] = malloc((objects + found + 1) * sizeof *box);
    if (!box || (masks && !m))
        code = fail(err, SAMITE_RESOURCE, "not enough memory to compare %zu results with %zu objects", found, objects);
    for (size_t i = 0; i < objects + found && !code; i++) {
        const eval_item *item = i < objects ? &truth->items[g[i]] : &results->items[d[i - objects]];
        memcpy(box[i], item->box, sizeof box[i]);
        if (masks && !(code = eval_item_mask(&m[i], truth, item, err)))
            rle_bbox(box[i], &m[i]);
    }
    for (size_t i = 0; i < found && !code; i++)
        for (size_t j = 0; j < objects; j++) {
            double v = coco_box_iou(box[objects + i], box[j], false);
            iou[i * objects + j] = masks && v > 0 ? rle_iou(&m[objects + i], &m[j], false) : v;
        }
    for (size_t i = 0; m && i < objects + found; i++)
        rle_free(&m[i]);
    free(m);
    free(box);
    return code;
}

/* IoUs of the pairs of the best one-to-one assignment into best[]. */
static int assign(double *best, size_t *pairs, double *iou, size_t found, size_t objects, samite_error *err)
{
    int32_t *to = malloc((found + 1) * sizeof *to);
    double *cost = malloc((found * objects + 1) * sizeof *cost);
    int code =
        to && cost ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for %zu x %zu overlaps", found, objects);
    for (size_t i = 0; i < found * objects && !code; i++)
        cost[i] = -iou[i];
    if (!code)
        code = assign_least(to, cost, (int32_t)found, (int32_t)objects, err);
    *pairs = 0;
    for (size_t i = 0; i < found && !code; i++)
        if (to[i] >= 0)
            best[(*pairs)++] = iou[i * objects + (size_t)to[i]];
    free(to);
    free(cost);
    return code;
}

static void count_at_thresholds(scoring *s, const double *best, size_t pairs)
{
    double ious[COCO_IOUS];
    coco_thresholds(ious);
    for (int t = 0; t < COCO_IOUS; t++) {
        int64_t tp = 0;
        for (size_t i = 0; i < pairs; i++)
            tp += best[i] >= ious[t];
        s->tp[t] = tp;
        s->fp[t] = (int64_t)s->found - tp;
        s->fn[t] = (int64_t)s->objects - tp;
        double precision = (double)tp / ((double)(tp + s->fp[t]) + IN_F1),
               recall = (double)tp / ((double)(tp + s->fn[t]) + IN_F1);
        s->f1[t] = 2 * precision * recall / (precision + recall + IN_F1);
    }
}

static int score_point(scoring *s, const eval_set *truth, const by_image *g, const eval_set *results, const by_image *d,
                       size_t image, bool masks, samite_error *err)
{
    size_t from = g->start[image], with = d->start[image];
    *s = (scoring){.objects = g->start[image + 1] - from, .found = d->start[image + 1] - with};
    s->counted = s->objects || s->found;
    s->both = s->objects && s->found;
    double *iou = malloc((s->objects * s->found + 1) * sizeof *iou), *best = malloc((s->found + 1) * sizeof *best);
    size_t pairs = 0;
    int code = iou && best
                   ? SAMITE_OK
                   : fail(err, SAMITE_RESOURCE, "not enough memory for %zu x %zu overlaps", s->found, s->objects);
    if (!code && s->both) {
        code = overlaps(iou, truth, g->list + from, s->objects, results, d->list + with, s->found, masks, err);
        if (!code)
            code = assign(best, &pairs, iou, s->found, s->objects, err);
    }
    if (!code)
        count_at_thresholds(s, best, pairs);
    free(iou);
    free(best);
    return code;
}

/* Sums over all pairs. */
typedef struct totals {
    int64_t tp[COCO_IOUS], fp[COCO_IOUS], positive_fp[COCO_IOUS], fn[COCO_IOUS];
    double  f1[COCO_IOUS];
    int64_t f1_count, il_tp, il_fp, il_tn, il_fn;
} totals;

static void add_scoring(totals *a, const scoring *s)
{
    bool real = s->objects > 0, said = s->found > 0;
    a->il_tp += real && said;
    a->il_fp += !real && said;
    a->il_tn += !real && !said;
    a->il_fn += real && !said;
    for (int t = 0; t < COCO_IOUS && s->counted; t++) {
        a->tp[t] += s->tp[t];
        a->fp[t] += s->fp[t];
        a->fn[t] += s->fn[t];
        if (real) {
            a->f1[t] += s->f1[t];
            a->positive_fp[t] += s->fp[t];
        }
    }
    a->f1_count += s->both;
}

static double mean_above(const double *v)
{
    double kept[COCO_IOUS];
    size_t n = 0;
    for (int t = 0; t < COCO_IOUS; t++)
        if (v[t] > -1)
            kept[n++] = v[t];
    return n ? mean_as_numpy(kept, n) : -1;
}

static double harmonic(double a, double b, double extra)
{
    return 2 * a * b / (a + b + extra);
}

/* Presence over pairs: precision, recall, F1, false positive rate, Matthews correlation. */
static void image_level(double out[5], const totals *a)
{
    double tp = (double)a->il_tp, fp = (double)a->il_fp, tn = (double)a->il_tn, fn = (double)a->il_fn;
    out[0] = tp / (tp + fp + IN_IL);
    out[1] = tp / (tp + fn + IN_IL);
    out[2] = harmonic(out[0], out[1], IN_IL);
    out[3] = fp / (fp + tn + IN_IL);
    out[4] = (double)(a->il_tp * a->il_tn - a->il_fp * a->il_fn) /
             (pow((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn), 0.5) + IN_IL);
}

static void final_numbers(double out[CGF1_NUMBERS], const totals *a)
{
    double v[7][COCO_IOUS], il[5];
    image_level(il, a);
    for (int t = 0; t < COCO_IOUS; t++) {
        double tp = (double)a->tp[t];
        double precision = tp / ((double)(a->tp[t] + a->fp[t]) + IN_F1),
               recall = tp / ((double)(a->tp[t] + a->fn[t]) + IN_F1);
        double positive = tp / ((double)(a->tp[t] + a->positive_fp[t]) + IN_F1);
        v[1][t] = precision;
        v[2][t] = recall;
        v[3][t] = harmonic(precision, recall, IN_F1);
        v[4][t] = a->f1[t] / (double)a->f1_count;
        v[5][t] = harmonic(positive, recall, IN_F1);
        v[6][t] = positive;
        v[0][t] = v[5][t] * il[4];
    }
    for (int i = 0; i < 7; i++) {
        out[i] = mean_above(v[i]);
        out[12 + i] = v[i][0] > -1 ? v[i][0] : -1;
        out[19 + i] = v[i][5] > -1 ? v[i][5] : -1;
    }
    memcpy(out + 7, il, sizeof il);
}

/* Is the pair annotated in full everywhere? Only then can it be evaluated. */
static bool exhaustive(const eval_set *truths, size_t count, size_t image)
{
    const id_value *id = &truths[0].image_ids.item[image];
    bool all = truths[0].images[image].exhaustive;
    for (size_t i = 1; i < count && all; i++) {
        int32_t at = ids_find(&truths[i].image_ids, id);
        all = at < 0 || truths[i].images[at].exhaustive;
    }
    return all;
}

/* Of two scorings of one pair the later wins when it is better, or when nothing was there and nothing was found. */
static bool later_is_better(const scoring *best, const scoring *now)
{
    if (best->counted && now->counted)
        return mean_as_numpy(now->f1, COCO_IOUS) > mean_as_numpy(best->f1, COCO_IOUS);
    return !now->counted;
}

typedef struct evaluation {
    const eval_set *truths, *results;
    by_image       *g, *d;
    size_t          count;
    bool            masks;
} evaluation;

static int best_scoring(scoring *best, const evaluation *e, size_t image, samite_error *err)
{
    int code = SAMITE_OK;
    for (size_t i = 0; i < e->count && !code; i++) {
        scoring now;
        int32_t at = ids_find(&e->truths[i].image_ids, &e->truths[0].image_ids.item[image]);
        char id[40];
        if (at < 0)
            return fail(err, SAMITE_INPUT, "%s has no image id %s, which %s has; both must annotate the same pairs",
                        e->truths[i].path, id_print(id, sizeof id, &e->truths[0].image_ids.item[image]),
                        e->truths[0].path);
        code = score_point(&now, &e->truths[i], &e->g[i], &e->results[i], &e->d[i], (size_t)at, e->masks, err);
        if (!code && (i == 0 || later_is_better(best, &now)))
            *best = now;
    }
    return code;
}

static int score_all(cgf1_result *out, const evaluation *e, samite_error *err)
{
    size_t images = e->truths[0].image_ids.count;
    scoring *s = malloc((images + 1) * sizeof *s);
    uint8_t *use = malloc(images + 1);
    totals a = {0};
    int failed = s && use ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for %zu images", images);
    if (!failed) {
#pragma omp parallel for schedule(dynamic, 32)
        for (size_t i = 0; i < images; i++) {
            samite_error own = {0};
            use[i] = exhaustive(e->truths, e->count, i);
            int code = use[i] ? best_scoring(&s[i], e, i, &own) : SAMITE_OK;
            if (code) {
#pragma omp critical(samite_cgf1_failed)
                failed = failed ? failed : fail(err, code, "%s", own.text);
            }
        }
    }
    for (size_t i = 0; i < images && !failed; i++) {
        out->points += use[i];
        if (use[i])
            add_scoring(&a, &s[i]);
    }
    out->left_out = images - out->points;
    if (!failed)
        final_numbers(out->numbers, &a);
    free(s);
    free(use);
    return failed;
}

int cgf1_evaluate(cgf1_result *out, const eval_set *truths, const eval_set *results, size_t count, bool masks,
                  double threshold, samite_error *err)
{
    *out = (cgf1_result){0};
    evaluation e = {truths, results, calloc(count, sizeof *e.g), calloc(count, sizeof *e.d), count, masks};
    bool fine = e.g && e.d;
    for (size_t i = 0; i < count && fine; i++)
        fine = sort_by_image(&e.g[i], &truths[i], &truths[i], 0) &&
               sort_by_image(&e.d[i], &results[i], &truths[i], threshold);
    int code = fine ? score_all(out, &e, err)
                    : fail(err, SAMITE_RESOURCE, "not enough memory to sort %zu results", results[0].count);
    for (size_t i = 0; i < count; i++) {
        if (e.g) {
            free(e.g[i].list);
            free(e.g[i].start);
        }
        if (e.d) {
            free(e.d[i].list);
            free(e.d[i].start);
        }
    }
    free(e.g);
    free(e.d);
    return code;
}
