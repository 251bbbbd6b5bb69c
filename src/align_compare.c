/* align_compare.c - a tensor of ours beside its reference: largest difference, cosine, verdict. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "base/text.h"

void align_row(aligner *a, const samite_compared *one)
{
    samite_align_summary *s = a->summary;
    char name[256];
    samite_compared titled = *one;
    const samite_compared *row = &titled;
    if (a->title) {
        snprintf(name, sizeof name, "%s.%s", a->title, one->name);
        titled.name = name;
    }
    s->compared++;
    s->outside += !row->within;
    if (!(row->relative <= s->worst_relative)) {
        s->worst_relative = row->relative;
        snprintf(s->worst, sizeof s->worst, "%.*s", (int)sizeof s->worst - 1, row->name);
    }
    if (row->cosine < s->least_cosine)
        s->least_cosine = row->cosine;
    if (a->o->each)
        a->o->each(a->o->user, row);
}

/* Index of the reference called `name`, or of one called NAME#everyK with *step = K; -1 if there is none. */
static int64_t find_reference(const aligner *a, const char *name, int64_t *step)
{
    size_t n = strlen(name);
    *step = 1;
    for (size_t i = 0; i < a->reference.count; i++) {
        const char *other = a->reference.items[i].name;
        if (strncmp(other, name, n) != 0)
            continue;
        if (!other[n])
            return (int64_t)i;
        if (strncmp(other + n, "#every", 6) == 0 && (*step = strtoll(other + n + 6, NULL, 10)) > 0)
            return (int64_t)i;
    }
    return -1;
}

static int64_t find_stats(const aligner *a, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < a->reference.count; i++) {
        const char *other = a->reference.items[i].name;
        if (strncmp(other, name, n) == 0 && strcmp(other + n, "#stats") == 0)
            return (int64_t)i;
    }
    return -1;
}

/* Shapes without their axes of length 1, so that sequence-first and batch-first agree where the batch is 1. */
static bool same_but_for_ones(int axes, const int64_t *dim, const weight *w)
{
    int i = 0, j = 0;
    for (;;) {
        while (i < axes && dim[i] == 1)
            i++;
        while (j < w->axes && w->dim[j] == 1)
            j++;
        if (i == axes || j == w->axes)
            return i == axes && j == w->axes;
        if (dim[i++] != w->dim[j++])
            return false;
    }
}

static int64_t count_of(int axes, const int64_t *dim)
{
    int64_t n = 1;
    for (int i = 0; i < axes; i++)
        n *= dim[i];
    return n;
}

/* [1, h, w, c] to [1, c, h, w] in a new buffer. NULL: out of memory. */
static float *channels_first(const float *x, const int64_t *dim)
{
    int64_t places = dim[1] * dim[2], channels = dim[3];
    float *y = malloc(sizeof(float) * (size_t)(places * channels));
    for (int64_t p = 0; y && p < places; p++)
        for (int64_t c = 0; c < channels; c++)
            y[c * places + p] = x[p * channels + c];
    return y;
}

static void compare_values(aligner *a, const char *name, const float *ours, const float *theirs, int64_t n, int64_t step)
{
    double most = 0, difference = 0, ab = 0, aa = 0, bb = 0;
    int64_t same_side = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        double x = ours[i * step], y = theirs[i], d = fabs(x - y);
        same_side += (x > 0) == (y > 0);
        finite = finite && isfinite(x);
        difference = d > difference ? d : difference;
        most = fabs(y) > most ? fabs(y) : most;
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    samite_compared row = {.name = name, .max_difference = difference, .note = finite ? "" : "not finite"};
    row.relative = most > 0 ? difference / most : difference;
    row.cosine = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : aa == bb;
    double most_difference = align_most_difference(a, name);
    int64_t near = 0;
    for (int64_t i = 0; most_difference > 0 && i < n; i++)
        near += fabs((double)ours[i * step] - theirs[i]) <= most_difference;
    row.within = finite && row.relative <= a->max_relative && row.cosine >= align_least_cosine(a, name) &&
                 (most_difference == 0 || difference <= most_difference);
    char note[64];
    if (most_difference > 0 && finite && near < n) {
        snprintf(note, sizeof note, "%.2f %% of the values within 1 %% of the side", 100.0 * (double)near / (double)n);
        row.note = note;
    }
    if (a->decided && finite && n > 0) {
        double share = (double)same_side / (double)n;
        snprintf(note, sizeof note, "%.3f %% on the same side of 0", 100 * share);
        row.note = note;
        row.within = row.within || share >= a->min_side;
    }
    align_row(a, &row);
}

void align_values(aligner *a, const char *name, const float *ours, const float *theirs, int64_t n)
{
    compare_values(a, name, ours, theirs, n, 1);
}

int64_t align_find(const aligner *a, const char *name)
{
    int64_t step;
    return find_reference(a, name, &step);
}

/* Mean, deviation, least, largest, sum of magnitudes of the whole tensor, relative to its largest magnitude. */
static void compare_stats(aligner *a, const char *name, const float *ours, int64_t n, const float *theirs)
{
    double sum = 0, squares = 0, least = INFINITY, most = -INFINITY, magnitude = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = ours[i];
        sum += x;
        magnitude += fabs(x);
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (ours[i] - mean) * (ours[i] - mean);
    double largest = fmax(fabs((double)theirs[2]), fabs((double)theirs[3]));
    double d[5] = {mean - theirs[0], sqrt(squares / (double)n) - theirs[1], least - theirs[2], most - theirs[3],
                   (magnitude - theirs[4]) / (double)n};
    char title[160];
    snprintf(title, sizeof title, "%s#stats", name);
    samite_compared row = {.name = title, .cosine = 1, .note = ""};
    for (int i = 0; i < 5; i++)
        row.max_difference = fmax(row.max_difference, isfinite(d[i]) ? fabs(d[i]) : INFINITY);
    row.relative = largest > 0 ? row.max_difference / largest : row.max_difference;
    row.within = row.relative <= a->max_relative;
    align_row(a, &row);
}

static void compare_one(aligner *a, const char *name, const float *ours, int axes, const int64_t *dim, size_t index,
                        int64_t step)
{
    const weight *w = &a->reference.items[index];
    int64_t n = weight_count(w), mine = count_of(axes, dim);
    a->used[index] = true;
    if (step == 1 ? !same_but_for_ones(axes, dim, w) : n != (mine + step - 1) / step) {
        char shape[96], note[200];
        weight here = {.axes = axes};
        memcpy(here.dim, dim, sizeof *dim * (size_t)axes);
        int used = snprintf(note, sizeof note, "shape %s", weight_shape(&here, shape, sizeof shape));
        snprintf(note + used, sizeof note - (size_t)used, ", expected %s", weight_shape(w, shape, sizeof shape));
        align_row(a, &(samite_compared){.name = name, .relative = INFINITY, .note = note});
        return;
    }
    float *theirs = malloc(sizeof(float) * (size_t)(n + 1));
    if (!theirs) {
        a->out_of_memory = true;
        return;
    }
    weight_to_f32(theirs, w);
    compare_values(a, name, ours, theirs, n, step);
    free(theirs);
}

void align_tensor(aligner *a, const char *name, const float *ours, int axes, const int64_t *dim, layout how)
{
    int64_t step, index = find_reference(a, name, &step), stats = find_stats(a, name);
    if ((index < 0 && stats < 0) || !ours)
        return;
    int64_t shape[MAX_AXES] = {0};
    memcpy(shape, dim, sizeof *dim * (size_t)axes);
    float *turned = NULL;
    if (how == CHANNELS_FIRST && axes == 4) {
        turned = channels_first(ours, dim);
        a->out_of_memory |= !turned;
        if (!turned)
            return;
        shape[1] = dim[3], shape[2] = dim[1], shape[3] = dim[2];
    }
    const float *values = turned ? turned : ours;
    if (index >= 0)
        compare_one(a, name, values, axes, shape, (size_t)index, step);
    if (stats >= 0 && weight_count(&a->reference.items[stats]) == 5) {
        float theirs[5];
        weight_to_f32(theirs, &a->reference.items[stats]);
        a->used[stats] = true;
        compare_stats(a, name, values, count_of(axes, dim), theirs);
    }
    free(turned);
}

void align_decided(aligner *a, const char *name, const float *ours, int axes, const int64_t *dim)
{
    a->decided = a->min_side > 0;
    align_tensor(a, name, ours, axes, dim, AS_IS);
    a->decided = false;
}

void align_skip(aligner *a, const char *prefix)
{
    for (size_t i = 0; i < a->reference.count; i++) {
        if (a->used[i] || !starts_with(a->reference.items[i].name, prefix))
            continue;
        a->used[i] = true;
        a->summary->skipped++;
    }
}
