/* coco_accumulate.c - precision over recall for each category, area range and number of detections. */
#include <float.h>
#include <stdlib.h>

#include "eval/coco_match.h"

/* numpy's distance from 1 to the next double, added to every denominator. */
#define SPACING DBL_EPSILON

/* A detection of the category in the order of scores. */
typedef struct ranked {
    double   score;
    uint32_t at;             /* index into outcomes */
} ranked;

typedef struct curve {
    ranked *all;
    double *precision;       /* at each true positive; then the largest from there on */
    double *score;           /* of the true positives */
} curve;

static int better_first(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static size_t place(const coco_result *r, bool recall, size_t t, size_t q, size_t k, size_t area, size_t limit)
{
    size_t outer = recall ? t : t * COCO_RECALLS + q;
    return ((outer * r->categories + k) * COCO_AREAS + area) * COCO_LIMITS + limit;
}

static double recall_threshold(size_t q)
{
    return q == COCO_RECALLS - 1 ? 1.0 : (double)q * (1.0 / (COCO_RECALLS - 1));
}

/* Samples the curve at 101 recalls. `first` is the score of the best detection, found or not. */
static void sample(coco_result *r, const curve *c, size_t found, size_t objects, size_t any, double first,
                   const size_t at[4])
{
    size_t j = 0;
    for (size_t i = found; i-- > 1;)
        if (c->precision[i] > c->precision[i - 1])
            c->precision[i - 1] = c->precision[i];
    r->recall[place(r, true, at[0], 0, at[1], at[2], at[3])] = (double)found / (double)objects;
    for (size_t q = 0; q < COCO_RECALLS; q++) {
        double threshold = recall_threshold(q), precision = 0, score = 0;
        while (j < found && (double)(j + 1) / (double)objects < threshold)
            j++;
        if (q == 0 && any) {
            precision = found ? c->precision[0] : 0;
            score = first;
        } else if (q > 0 && j < found) {
            precision = c->precision[j];
            score = c->score[j];
        }
        size_t to = place(r, false, at[0], q, at[1], at[2], at[3]);
        r->precision[to] = precision;
        r->scores[to] = score;
    }
}

static void accumulate_one(matcher *m, curve *c, size_t count, size_t objects, size_t k, size_t area, size_t limit)
{
    for (size_t t = 0; t < COCO_IOUS; t++) {
        double right = 0, wrong = 0;
        size_t found = 0, any = 0;
        double first = 0;
        for (size_t i = 0; i < count; i++) {
            const outcome *o = &m->outcomes[c->all[i].at];
            if (o->rank >= coco_limits[limit])
                continue;
            if (any++ == 0)
                first = o->score;
            if (o->ignored[area] >> t & 1)
                continue;
            if (o->matched[area] >> t & 1) {
                right++;
                c->precision[found] = right / (wrong + right + SPACING);
                c->score[found++] = o->score;
            } else {
                wrong++;
            }
        }
        sample(m->out, c, found, objects, any, first, (size_t[4]){t, k, area, limit});
    }
}

/* Groups from *at on that belong to category k; *at moves behind them. */
static int accumulate_category(matcher *m, size_t k, size_t from, size_t to, samite_error *err)
{
    size_t room = 1, count = 0, objects[COCO_AREAS] = {0};
    for (size_t i = from; i < to; i++) {
        const group *g = &m->groups[i];
        room += g->results;
        for (size_t j = 0; j < g->truths; j++) {
            const eval_item *t = &m->truth->items[m->shown[m->truth_list[g->truth + j]]];
            for (int a = 0; a < COCO_AREAS; a++)
                objects[a] += !(t->crowd || t->area < coco_areas[a][0] || t->area > coco_areas[a][1]);
        }
    }
    if (objects[0] == 0 && objects[1] == 0 && objects[2] == 0 && objects[3] == 0)
        return SAMITE_OK;
    curve c = {malloc(room * sizeof *c.all), malloc(room * sizeof *c.precision), malloc(room * sizeof *c.score)};
    int code = SAMITE_OK;
    if (c.all && c.precision && c.score) {
        for (size_t i = from; i < to; i++)
            for (uint32_t j = m->groups[i].result; j < m->groups[i].result + m->groups[i].results; j++)
                if (m->outcomes[j].rank < COCO_MOST)
                    c.all[count++] = (ranked){m->outcomes[j].score, j};
        if (count > 1)
            qsort(c.all, count, sizeof *c.all, better_first);
        for (size_t a = 0; a < COCO_AREAS; a++)
            for (size_t l = 0; l < COCO_LIMITS && objects[a]; l++)
                accumulate_one(m, &c, count, objects[a], k, a, l);
    } else {
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %zu results of one category", room);
    }
    free(c.all);
    free(c.precision);
    free(c.score);
    return code;
}

int accumulate(matcher *m, samite_error *err)
{
    size_t n = m->out->categories, at = 0;
    size_t *start = malloc((n + 1) * sizeof *start);
    int failed = SAMITE_OK;
    if (!start)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %zu categories", n);
    for (size_t k = 0; k < n; k++) {
        start[k] = at;
        while (at < m->group_count && (size_t)m->groups[at].category == k)
            at++;
    }
    start[n] = at;
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t k = 0; k < n; k++) {
        samite_error own = {0};
        int code = accumulate_category(m, k, start[k], start[k + 1], &own);
        if (code) {
#pragma omp critical(samite_accumulate_failed)
            failed = failed ? failed : fail(err, code, "%s", own.text);
        }
    }
    free(start);
    return failed;
}
