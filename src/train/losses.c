/* losses.c - box, classification and presence losses of one decoder layer. */
#include "train/losses.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SOFT_ALPHA 0.25f      /* soft target of a matched query: p^0.25 IoU^0.75, at least 0.01 */
#define SOFT_LEAST 0.01f
#define PAD_QUERIES 200       /* fewer queries are counted as if there were this many */

const loss_weights official_weights = {5, 2, 20, 20, 200, 10, 20, 30, 10, 2};

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* log(1 + e^x) */
static float softplus(float x)
{
    return fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
}

static bool has_visible(const targets *t, int p)
{
    for (int i = t->first[p]; i < t->first[p + 1]; i++)
        if (t->boxes[4 * i + 2] > 0 && t->boxes[4 * i + 3] > 0)
            return true;
    return false;
}

/* ---- boxes ---- */

static double l1(float *d, const float *box, const float *object, float weight)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        float x = box[i] - object[i];
        sum += fabsf(x);
        d[i] += weight * (float)((x > 0) - (x < 0));
    }
    return sum;
}

/* Derivative of max(0, min(a1, b1) - max(a0, b0)) by a0 and a1. */
static void overlap_slopes(float a0, float a1, float b0, float b1, float *by0, float *by1)
{
    bool any = fminf(a1, b1) - fmaxf(a0, b0) >= 0;
    *by0 = any && a0 > b0 ? -1 : 0;
    *by1 = any && a1 < b1 ? 1 : 0;
}

/* 1 - GIoU, and its gradient times `weight` at the corners of the answer. */
static double giou_loss(float *d, corners a, corners b, float weight)
{
    float iw = fmaxf(fminf(a.x1, b.x1) - fmaxf(a.x0, b.x0), 0), ih = fmaxf(fminf(a.y1, b.y1) - fmaxf(a.y0, b.y0), 0);
    float hw = fmaxf(a.x1, b.x1) - fminf(a.x0, b.x0), hh = fmaxf(a.y1, b.y1) - fminf(a.y0, b.y0);
    float aw = a.x1 - a.x0, ah = a.y1 - a.y0, inter = iw * ih;
    float all = aw * ah + (b.x1 - b.x0) * (b.y1 - b.y0) - inter, hull = hw * hh;
    float ix0, ix1, iy0, iy1;
    overlap_slopes(a.x0, a.x1, b.x0, b.x1, &ix0, &ix1);
    overlap_slopes(a.y0, a.y1, b.y0, b.y1, &iy0, &iy1);
    float inter_by[4] = {ix0 * ih, iy0 * iw, ix1 * ih, iy1 * iw};
    float area_by[4] = {-ah, -aw, ah, aw};
    float hull_by[4] = {a.x0 < b.x0 ? -hh : 0, a.y0 < b.y0 ? -hw : 0, a.x1 > b.x1 ? hh : 0, a.y1 > b.y1 ? hw : 0};
    for (int i = 0; i < 4; i++) {
        float all_by = area_by[i] - inter_by[i];
        float by =
            (inter_by[i] * all - inter * all_by) / (all * all) + (all_by * hull - all * hull_by[i]) / (hull * hull);
        d[i] -= weight * by;
    }
    return 1 - ((double)inter / all - (double)(hull - all) / hull);
}

static void box_terms(loss_terms *out, answer_grads *g, const answers *a, const targets *t, const match_list *m,
                      const loss_norms *n, const loss_weights *w, float half)
{
    float share = (float)(n->scale / n->boxes_total) * half;
    for (int i = 0; i < m->count; i++) {
        int64_t at = (int64_t)m->item[i].prompt * a->queries + m->item[i].query;
        const float *box = a->boxes + 4 * at, *object = t->boxes + 4 * (int64_t)m->item[i].object;
        out->bbox += l1(g->boxes + 4 * at, box, object, share * w->bbox) / n->boxes_total;
        out->giou += giou_loss(g->corners + 4 * at, box_corners_of(box), box_corners_of(object), share * w->giou) /
                     n->boxes_total;
    }
}

void corners_to_boxes(float *dboxes, const float *dcorners, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float *c = dcorners + 4 * i;
        float *b = dboxes + 4 * i;
        b[0] += c[0] + c[2];
        b[1] += c[1] + c[3];
        b[2] += 0.5f * (c[2] - c[0]);
        b[3] += 0.5f * (c[3] - c[1]);
    }
}

/* ---- classification ---- */

double terms_f1(const loss_terms *t)
{
    return t->answered + t->meant > 0 ? 2 * t->hits / (t->answered + t->meant) : 0;
}

/* soft [prompts, queries]: the soft target of matched queries, -1 elsewhere. Of several objects the last counts. */
static void soft_targets(float *soft, const answers *a, const targets *t, const match_list *m)
{
    for (int64_t i = 0; i < (int64_t)t->prompts * a->queries; i++)
        soft[i] = -1;
    for (int i = 0; i < m->count; i++) {
        int64_t at = (int64_t)m->item[i].prompt * a->queries + m->item[i].query;
        float iou =
            corners_iou(box_corners_of(a->boxes + 4 * at), box_corners_of(t->boxes + 4 * (int64_t)m->item[i].object));
        soft[at] = fmaxf(powf(sigmoid(a->logits[at]), SOFT_ALPHA) * powf(iou, 1 - SOFT_ALPHA), SOFT_LEAST);
    }
}

/* One query; returns its loss and adds the gradient times weight. */
static double query_loss(float *d, float x, float soft, float positive, float weight)
{
    float p = sigmoid(x), s = softplus(x);
    if (soft >= 0) {
        *d += weight * positive * (p - soft);
        return positive * (s - soft * x);
    }
    *d += weight * (2 * p * p * (1 - p) * s + p * p * p);
    return (double)p * p * s;
}

static void class_terms(loss_terms *out, answer_grads *g, const answers *a, const targets *t, const float *soft,
                        const loss_norms *n, const loss_weights *w, float half)
{
    double parts = (double)n->prompts_total * (a->queries < PAD_QUERIES ? PAD_QUERIES : a->queries);
    for (int p = 0; p < t->prompts; p++) {
        bool visible = has_visible(t, p);
        for (int q = 0; q < a->queries; q++) {
            int64_t at = (int64_t)p * a->queries + q;
            bool answered = sigmoid(a->logits[at]) > 0.5f, meant = soft[at] >= 0;
            out->hits += answered && meant;
            out->answered += answered;
            out->meant += meant;
            if (visible)
                out->ce += query_loss(&g->logits[at], a->logits[at], soft[at], w->positive,
                                      (float)(n->scale * half * w->ce / parts)) / parts;
        }
    }
}

/* 0.5 x cross-entropy of "is there anything of that kind", mean over prompts. */
static void presence_terms(loss_terms *out, answer_grads *g, const float *presence, const targets *t,
                           const loss_norms *n, const loss_weights *w)
{
    for (int p = 0; p < t->prompts; p++) {
        float x = presence[p], there = has_visible(t, p);
        out->presence += 0.5 * (softplus(x) - there * x) / n->prompts_total;
        out->presence_accuracy += (double)((sigmoid(x) > 0.5f) == (there > 0)) / n->prompts_total;
        g->presence[p] += (float)(n->scale * w->presence * 0.5 / n->prompts_total) * (sigmoid(x) - there);
    }
}

void loss_answers(loss_terms *out, answer_grads *g, const answers *a, const float *presence, const targets *t,
                  const match_list *m, const loss_norms *n, const loss_weights *w)
{
    float half = presence ? 1 : w->one_to_many;
    float *soft = malloc(sizeof(float) * ((size_t)t->prompts * (size_t)a->queries + 1));
    *out = (loss_terms){0};
    if (!soft) {
        out->ce = NAN;       /* told by the caller as a loss that is no number */
        return;
    }
    soft_targets(soft, a, t, m);
    box_terms(out, g, a, t, m, n, w, half);
    class_terms(out, g, a, t, soft, n, w, half);
    if (presence)
        presence_terms(out, g, presence, t, n, w);
    free(soft);
}
