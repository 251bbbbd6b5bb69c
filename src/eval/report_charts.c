/* report_charts.c - bars per category, precision over recall, sizes, and what was taken for what. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/report.h"

#define MOST_CURVES    100      /* categories with a curve of their own */
#define MOST_CONFUSED  40
#define SURE           0.5      /* score from which a result counts in the confusion table */
#define WIDTH          420
#define HEIGHT         260

/* ---- bars ---- */

typedef struct bar {
    size_t k;
    double ap;
} bar;

static int higher_first(const void *a, const void *b)
{
    const bar *x = a, *y = b;
    return x->ap != y->ap ? (x->ap < y->ap ? 1 : -1) : (x->k > y->k) - (x->k < y->k);
}

void report_bars(text *t, const report_data *d)
{
    const coco_result *r = d->result;
    bar *b = malloc((r->categories + 1) * sizeof *b);
    text_printf(t, "<h3>Categories</h3>\n<div class=\"wide long\"><table><tr><th>category</th><th class=\"n\">AP</th>"
                   "<th class=\"n\">AP50</th><th></th></tr>\n");
    for (size_t k = 0; b && k < r->categories; k++)
        b[k] = (bar){k, r->category_ap[k]};
    if (b && r->categories > 1)
        qsort(b, r->categories, sizeof *b, higher_first);
    for (size_t i = 0; b && i < r->categories; i++) {
        text_printf(t, "<tr><td>");
        html_category(t, d->truth, r->category[b[i].k]);
        if (b[i].ap < 0)
            text_printf(t, "</td><td class=\"n\">no objects</td><td></td><td></td>");
        else
            text_printf(t, "</td><td class=\"n\">%.4f</td><td class=\"n\">%.4f</td>", b[i].ap,
                        r->category_ap50[b[i].k]);
        if (b[i].ap >= 0)
            html_bar(t, b[i].ap);
        text_printf(t, "</tr>\n");
    }
    t->failed |= !b;
    text_printf(t, "</table></div>\n");
    free(b);
}

/* ---- curves ---- */

/* Precision at a recall and IoU: of a category, or the mean over those with objects (-1). */
static double precision_at(const coco_result *r, int iou, size_t q, int64_t category)
{
    double sum = 0;
    size_t n = 0;
    for (size_t k = 0; k < r->categories; k++) {
        double v = r->precision[((((size_t)iou * COCO_RECALLS + q) * r->categories + k) * COCO_AREAS) * COCO_LIMITS +
                                COCO_LIMITS - 1];
        if (v > -1 && (category < 0 || (size_t)category == k)) {
            sum += v;
            n++;
        }
    }
    return n ? sum / (double)n : 0;
}

static void add_frame(text *t, int width, int height)
{
    text_printf(t, "<svg width=\"%d\" height=\"%d\" viewBox=\"-34 -8 %d %d\" font-size=\"10\">\n", width + 50,
                height + 38, width + 50, height + 38);
    for (int i = 0; i <= 4; i++) {
        double x = width * i / 4.0, y = height * (4 - i) / 4.0;
        text_printf(
            t,
            "<path d=\"M%.1f 0V%dM0 %.1fH%d\" stroke=\"#8886\" fill=\"none\"/><text x=\"%.1f\" y=\"%d\" fill=\"#888\" "
            "text-anchor=\"middle\">%.2f</text><text x=\"-5\" y=\"%.1f\" fill=\"#888\" "
            "text-anchor=\"end\">%.2f</text>\n",
            x, height, y, width, x, height + 14, i / 4.0, y + 3, i / 4.0);
    }
    text_printf(t, "<text x=\"%d\" y=\"%d\" fill=\"#888\" text-anchor=\"middle\">recall</text>\n", width / 2,
                height + 27);
}

static void add_curve(text *t, const coco_result *r, int iou, int64_t category, const char *colour, int width,
                      int height)
{
    text_printf(t, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", colour);
    for (size_t q = 0; q < COCO_RECALLS; q++)
        text_printf(t, "%.1f,%.1f ", width * (double)q / (COCO_RECALLS - 1),
                    height * (1 - precision_at(r, iou, q, category)));
    text_printf(t, "\"/>\n");
}

void report_curves(text *t, const report_data *d)
{
    static const struct { int iou; const char *name, *colour; } lines[] = {
        {0, "IoU 0.50", "#2a78b5"}, {5, "IoU 0.75", "#d9822b"}, {8, "IoU 0.90", "#5a9e3f"}};
    text_printf(t, "<h3>Precision over recall</h3>\n<p>Mean over categories:");
    for (int i = 0; i < 3; i++)
        text_printf(t, " <span style=\"color:%s\">&#9644; %s</span>", lines[i].colour, lines[i].name);
    text_printf(t, "</p>\n");
    add_frame(t, WIDTH, HEIGHT);
    for (int i = 0; i < 3; i++)
        add_curve(t, d->result, lines[i].iou, -1, lines[i].colour, WIDTH, HEIGHT);
    text_printf(t, "</svg>\n<details><summary>by category</summary>\n<div class=\"gallery\">\n");
    size_t shown = 0;
    for (size_t k = 0; k < d->result->categories && shown < MOST_CURVES; k++) {
        if (d->result->category_ap[k] < 0)
            continue;
        shown++;
        text_printf(t, "<figure>");
        add_frame(t, 190, 110);
        for (int i = 0; i < 2; i++)
            add_curve(t, d->result, lines[i].iou, (int64_t)k, lines[i].colour, 190, 110);
        text_printf(t, "</svg><figcaption>");
        html_category(t, d->truth, d->result->category[k]);
        text_printf(t, "</figcaption></figure>\n");
    }
    text_printf(t, "</div>%s</details>\n", shown == MOST_CURVES ? "<p>The first 100.</p>" : "");
}

/* ---- sizes ---- */

static void add_rate(text *t, double v)
{
    if (v < 0)
        text_printf(t, "<td class=\"n\">&ndash;</td>");
    else
        text_printf(t, "<td class=\"n\">%.4f</td>", v);
}

void report_sizes(text *t, const report_data *d)
{
    static const char *const names[] = {"all", "small (area up to 32\xc2\xb2)", "medium (to 96\xc2\xb2)", "large"};
    static const double least[] = {0, 0, 1024, 9216}, most[] = {1e10, 1024, 9216, 1e10};
    static const int ap[] = {0, 3, 4, 5}, ar[] = {8, 9, 10, 11};
    text_printf(
        t, "<h3>Sizes</h3>\n<div class=\"wide\"><table><tr><th>objects</th><th class=\"n\">count</th>"
           "<th class=\"n\">found at IoU 0.5</th><th class=\"n\">AP</th><th class=\"n\">AR</th></tr>\n");
    for (int a = 0; a < 4; a++) {
        size_t count = 0, found = 0;
        for (size_t i = 0; i < d->truth->count; i++) {
            const eval_item *item = &d->truth->items[i];
            if (d->result->truth_match[i] == MATCH_OUT || item->area < least[a] || item->area > most[a])
                continue;
            count++;
            found += d->result->truth_match[i] >= 0;
        }
        text_printf(t, "<tr><td>%s</td><td class=\"n\">%zu</td><td class=\"n\">%zu</td>", names[a], count, found);
        add_rate(t, d->result->stats[ap[a]]);
        add_rate(t, d->result->stats[ar[a]]);
        text_printf(t, "</tr>\n");
    }
    text_printf(t, "</table></div>\n");
}

/* ---- confusion ---- */

/* How often a result of category `as` lay on an object of category `is` (-1: on nothing). */
typedef struct confused {
    int32_t as, is;
    size_t  count;
} confused;

typedef struct by_image {
    size_t  *start;      /* [images + 1] */
    int32_t *list;
} by_image;

static bool list_truth(by_image *out, const eval_set *truth, const coco_result *r)
{
    size_t n = truth->image_ids.count;
    *out = (by_image){calloc(n + 2, sizeof *out->start), malloc((truth->count + 1) * sizeof *out->list)};
    if (!out->start || !out->list)
        return false;
    for (size_t i = 0; i < truth->count; i++)
        if (r->truth_match[i] != MATCH_OUT)
            out->start[truth->items[i].image + 2]++;
    for (size_t i = 2; i < n + 2; i++)
        out->start[i] += out->start[i - 1];
    for (size_t i = 0; i < truth->count; i++)
        if (r->truth_match[i] != MATCH_OUT)
            out->list[out->start[truth->items[i].image + 1]++] = (int32_t)i;
    return true;
}

static double item_overlap(const report_data *d, const eval_item *a, const eval_item *b)
{
    double v = coco_box_iou(a->box, b->box, false);
    rle x = {0}, y = {0};
    if (!d->masks || v <= 0)
        return v;
    bool fine =
        eval_item_mask(&x, d->truth, a, NULL) == SAMITE_OK && eval_item_mask(&y, d->truth, b, NULL) == SAMITE_OK;
    v = fine ? rle_iou(&x, &y, false) : 0;
    rle_free(&x);
    rle_free(&y);
    return v;
}

static int32_t category_under(const report_data *d, const by_image *g, const eval_item *item)
{
    double best = 0;
    int32_t is = -1;
    for (size_t i = g->start[item->image]; i < g->start[item->image + 1]; i++) {
        const eval_item *t = &d->truth->items[g->list[i]];
        double v = item_overlap(d, item, t);
        if (v >= 0.5 && (v > best || (v == best && t->category == item->category))) {
            best = v;
            is = t->category;
        }
    }
    return is;
}

static int more_first(const void *a, const void *b)
{
    const confused *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->as != y->as ? (x->as > y->as) - (x->as < y->as) : (x->is > y->is) - (x->is < y->is);
}

static int by_pair(const void *a, const void *b)
{
    const confused *x = a, *y = b;
    return x->as != y->as ? (x->as > y->as) - (x->as < y->as) : (x->is > y->is) - (x->is < y->is);
}

/* Counts equal pairs together; returns how many different ones there are. */
static size_t merge_pairs(confused *c, size_t n)
{
    size_t kept = 0;
    if (n > 1)
        qsort(c, n, sizeof *c, by_pair);
    for (size_t i = 0; i < n; i++) {
        if (kept && by_pair(&c[kept - 1], &c[i]) == 0)
            c[kept - 1].count++;
        else
            c[kept++] = c[i];
    }
    if (kept > 1)
        qsort(c, kept, sizeof *c, more_first);
    return kept;
}

int report_confusion(text *t, const report_data *d, samite_error *err)
{
    const eval_set *s = d->results;
    by_image g;
    confused *c = malloc((s->count + 1) * sizeof *c);
    size_t n = 0;
    bool fine = list_truth(&g, d->truth, d->result) && c;
    for (size_t i = 0; fine && i < s->count; i++) {
        const eval_item *item = &s->items[i];
        if (item->score >= SURE && d->result->result_match[i] != MATCH_OUT)
            c[n++] = (confused){item->category, category_under(d, &g, item), 1};
    }
    text_printf(
        t,
        "<h3>Prompt and what lay there</h3>\n<p>Results with a score of %.1f or more: the category that was asked for, "
        "and "
        "that of the object they cover best (IoU 0.5 or more).</p>\n",
        SURE);
    n = fine ? merge_pairs(c, n) : 0;
    text_printf(t, n ? "<div class=\"wide\"><table><tr><th>asked for</th><th>lay there</th><th class=\"n\">results</th>"
                       "</tr>\n" : "<div><table><tr><td>none</td></tr>\n");
    for (size_t i = 0; i < n && i < MOST_CONFUSED; i++) {
        text_printf(t, "<tr%s><td>", c[i].as == c[i].is ? "" : " class=\"hot\"");
        html_category(t, d->truth, c[i].as);
        text_printf(t, "</td><td>");
        if (c[i].is < 0)
            text_printf(t, "<i>nothing</i>");
        else
            html_category(t, d->truth, c[i].is);
        text_printf(t, "</td><td class=\"n\">%zu</td></tr>\n", c[i].count);
    }
    text_printf(t, "</table></div>\n");
    if (n > MOST_CONFUSED)
        text_printf(t, "<p>... and %zu pairs more</p>\n", n - MOST_CONFUSED);
    free(c);
    free(g.start);
    free(g.list);
    return fine ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for the report");
}
