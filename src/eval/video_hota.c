/* video_hota.c - HOTA: detection and association judged together, at nineteen overlap thresholds. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assign.h"
#include "eval/video.h"

const char *const hota_names[HOTA_NUMBERS] = {"HOTA",  "DetA",  "AssA", "DetRe", "DetPr",
                                              "AssRe", "AssPr", "LocA", "OWTA"};

/* Tables over (object, track) of a sequence, and what one frame needs. */
typedef struct tables {
    size_t   rows, columns;
    double  *potential;            /* overlap shared out among candidates, summed over frames */
    double  *score;                /* how well a pair fits over the whole video, 0..1 */
    uint32_t*matches;              /* [ALPHAS, rows, columns] */
    double  *row_count, *column_count;
    double  *frame, *row_sum, *column_sum;
    int32_t *row, *column, *to;    /* who is seen in the frame */
} tables;

static void tables_free(tables *t)
{
    free(t->potential);
    free(t->score);
    free(t->matches);
    free(t->row_count);
    free(t->column_count);
    free(t->frame);
    free(t->row_sum);
    free(t->column_sum);
    free(t->row);
    free(t->column);
    free(t->to);
}

static bool tables_open(tables *t, size_t rows, size_t columns)
{
    size_t all = rows * columns + 1;
    *t = (tables){.rows = rows, .columns = columns};
    t->potential = calloc(all, sizeof(double));
    t->score = calloc(all, sizeof(double));
    t->matches = calloc(all * HOTA_ALPHAS, sizeof(uint32_t));
    t->row_count = calloc(rows + 1, sizeof(double));
    t->column_count = calloc(columns + 1, sizeof(double));
    t->frame = calloc(all, sizeof(double));
    t->row_sum = calloc(rows + 1, sizeof(double));
    t->column_sum = calloc(columns + 1, sizeof(double));
    t->row = calloc(rows + 1, sizeof(int32_t));
    t->column = calloc(columns + 1, sizeof(int32_t));
    t->to = calloc(rows + 1, sizeof(int32_t));
    return t->potential && t->score && t->matches && t->row_count && t->column_count && t->frame && t->row_sum &&
           t->column_sum && t->row && t->column && t->to;
}

/* Lists who is seen in a frame. */
static void look(tables *t, const sequence *s, size_t frame, size_t *rows, size_t *columns)
{
    *rows = *columns = 0;
    for (size_t i = 0; i < t->rows; i++)
        if (sequence_sees(s, true, i, frame))
            t->row[(*rows)++] = (int32_t)i;
    for (size_t j = 0; j < t->columns; j++)
        if (sequence_sees(s, false, j, frame))
            t->column[(*columns)++] = (int32_t)j;
}

/* Each overlap is divided by all overlaps that compete with it. */
static void add_potential(tables *t, const double *iou, size_t rows, size_t columns)
{
    memset(t->row_sum, 0, t->rows * sizeof *t->row_sum);
    memset(t->column_sum, 0, t->columns * sizeof *t->column_sum);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            double v = iou[(size_t)t->row[i] * t->columns + (size_t)t->column[j]];
            t->row_sum[t->row[i]] += v;
            t->column_sum[t->column[j]] += v;
        }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            size_t at = (size_t)t->row[i] * t->columns + (size_t)t->column[j];
            double competing = t->column_sum[t->column[j]] + t->row_sum[t->row[i]] - iou[at];
            if (competing > DBL_EPSILON)
                t->potential[at] += iou[at] / competing;
        }
    for (size_t i = 0; i < rows; i++)
        t->row_count[t->row[i]]++;
    for (size_t j = 0; j < columns; j++)
        t->column_count[t->column[j]]++;
}

static int match_frame(hota *out, tables *t, const double *iou, size_t rows, size_t columns, samite_error *err)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            size_t at = (size_t)t->row[i] * t->columns + (size_t)t->column[j];
            t->frame[i * columns + j] = -(t->score[at] * iou[at]);
        }
    int code = assign_least(t->to, t->frame, (int32_t)rows, (int32_t)columns, err);
    for (int a = 0; a < HOTA_ALPHAS && !code; a++) {
        double alpha = 0.05 + a * 0.05, matched = 0;
        for (size_t i = 0; i < rows; i++) {
            size_t at = (size_t)t->row[i] * t->columns + (t->to[i] < 0 ? 0 : (size_t)t->column[t->to[i]]);
            if (t->to[i] < 0 || !(iou[at] >= alpha - DBL_EPSILON))
                continue;
            matched++;
            out->located[a] += iou[at];
            t->matches[(size_t)a * t->rows * t->columns + at]++;
        }
        out->tp[a] += matched;
        out->fn[a] += (double)rows - matched;
        out->fp[a] += (double)columns - matched;
    }
    return code;
}

static void associate(hota *out, const tables *t)
{
    for (int a = 0; a < HOTA_ALPHAS; a++) {
        double both = 0, recall = 0, precision = 0, tp = fmax(1, out->tp[a]);
        for (size_t i = 0; i < t->rows; i++)
            for (size_t j = 0; j < t->columns; j++) {
                double n = t->matches[((size_t)a * t->rows + i) * t->columns + j];
                both += n * (n / fmax(1, t->row_count[i] + t->column_count[j] - n));
                recall += n * (n / fmax(1, t->row_count[i]));
                precision += n * (n / fmax(1, t->column_count[j]));
            }
        out->ass_a[a] = both / tp;
        out->ass_re[a] = recall / tp;
        out->ass_pr[a] = precision / tp;
    }
}

int hota_sequence(hota *out, const sequence *s, samite_error *err)
{
    size_t frames = s->truth->videos[s->video].frames, rows, columns;
    tables t;
    *out = (hota){0};
    int code = tables_open(&t, s->truths, s->found)
                   ? SAMITE_OK
                   : fail(err, SAMITE_RESOURCE, "not enough memory to compare %zu tracks with %zu objects", s->found,
                          s->truths);
    for (size_t f = 0; f < frames && !code; f++) {
        look(&t, s, f, &rows, &columns);
        add_potential(&t, s->iou[f], rows, columns);
    }
    for (size_t i = 0; i < s->truths && !code; i++)
        for (size_t j = 0; j < s->found; j++) {
            size_t at = i * s->found + j;
            double whole = t.row_count[i] + t.column_count[j] - t.potential[at];
            t.score[at] = whole > 0 ? t.potential[at] / whole : 0;
        }
    for (size_t f = 0; f < frames && !code; f++) {
        look(&t, s, f, &rows, &columns);
        if (rows || columns)
            code = match_frame(out, &t, s->iou[f], rows, columns, err);
    }
    if (!code)
        associate(out, &t);
    tables_free(&t);
    return code;
}

void hota_add(hota *sum, const hota *one)
{
    for (int a = 0; a < HOTA_ALPHAS; a++) {
        sum->tp[a] += one->tp[a];
        sum->fn[a] += one->fn[a];
        sum->fp[a] += one->fp[a];
        sum->located[a] += one->located[a];
        sum->ass_a[a] += one->ass_a[a] * one->tp[a];
        sum->ass_re[a] += one->ass_re[a] * one->tp[a];
        sum->ass_pr[a] += one->ass_pr[a] * one->tp[a];
    }
}

void hota_numbers(double out[HOTA_NUMBERS][HOTA_ALPHAS], const hota *sum)
{
    for (int a = 0; a < HOTA_ALPHAS; a++) {
        double tp = sum->tp[a], fn = sum->fn[a], fp = sum->fp[a], n = fmax(1, tp);
        out[HOTA_ASSA][a] = sum->ass_a[a] / n;
        out[HOTA_ASSRE][a] = sum->ass_re[a] / n;
        out[HOTA_ASSPR][a] = sum->ass_pr[a] / n;
        out[HOTA_DETRE][a] = tp / fmax(1, tp + fn);
        out[HOTA_DETPR][a] = tp / fmax(1, tp + fp);
        out[HOTA_DETA][a] = tp / fmax(1, tp + fn + fp);
        out[HOTA_LOCA][a] = fmax(1e-10, sum->located[a]) / fmax(1e-10, tp);
        out[HOTA_HOTA][a] = sqrt(out[HOTA_DETA][a] * out[HOTA_ASSA][a]);
        out[HOTA_OWTA][a] = sqrt(out[HOTA_DETRE][a] * out[HOTA_ASSA][a]);
    }
}
