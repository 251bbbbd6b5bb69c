/* mask.c - enlarging mask logits, and straight to run lengths. */
#include <stdlib.h>

#include "io/runs.h"

/* Two neighbours and their weights for each output along one axis. */
typedef struct lerp {
    int   first, second;
    float weight0, weight1;
} lerp;

static lerp *make_lerps(int in, int out)
{
    lerp *l = malloc((size_t)out * sizeof *l);
    float scale = (float)in / (float)out;
    for (int i = 0; l && i < out; i++) {
        if (in == out) {
            l[i] = (lerp){i, i + (i < in - 1), 1.0f, 0.0f};
            continue;
        }
        float at = scale * ((float)i + 0.5f) - 0.5f;
        at = at < 0 ? 0 : at;
        int first = at < (float)(in - 1) ? (int)at : in - 1;
        float w = at - (float)first;
        w = w < 0 ? 0 : w > 1 ? 1 : w;
        l[i] = (lerp){first, first + (first < in - 1), 1.0f - w, w};
    }
    return l;
}

int mask_resize_bilinear(float *out, int width, int height, const float *in, int w, int h, samite_error *err)
{
    if (width < 1 || height < 1 || w < 1 || h < 1)
        return fail(err, SAMITE_USAGE, "cannot enlarge a mask of %d x %d to %d x %d", w, h, width, height);
    lerp *across = make_lerps(w, width), *down = make_lerps(h, height);
    if (!across || !down) {
        free(across);
        free(down);
        return fail(err, SAMITE_RESOURCE, "no memory for a mask of %d x %d pixels", width, height);
    }
#pragma omp parallel for schedule(static)
    for (int y = 0; y < height; y++) {
        const lerp *d = &down[y];
        const float *top = in + (size_t)d->first * (size_t)w, *bottom = in + (size_t)d->second * (size_t)w;
        float *row = out + (size_t)y * (size_t)width;
        for (int x = 0; x < width; x++) {
            const lerp *a = &across[x];
            float upper = a->weight0 * top[a->first] + a->weight1 * top[a->second];
            float lower = a->weight0 * bottom[a->first] + a->weight1 * bottom[a->second];
            row[x] = d->weight0 * upper + d->weight1 * lower;
        }
    }
    free(across);
    free(down);
    return SAMITE_OK;
}

/* What a column of the enlarged mask is made of. */
typedef struct enlarger {
    lerp  *across, *down;
    int   *start;       /* [h + 1] first output row between input rows j and j + 1 */
    float *turned;      /* [w, h] the logits, column by column */
    float *column;      /* [h] one output column at input height */
    int    w, h, width, height;
} enlarger;

static void enlarger_free(enlarger *e)
{
    free(e->across);
    free(e->down);
    free(e->start);
    free(e->turned);
    free(e->column);
}

static bool enlarger_make(enlarger *e, const float *in, int w, int h, int width, int height)
{
    *e = (enlarger){.w = w, .h = h, .width = width, .height = height};
    e->across = make_lerps(w, width);
    e->down = make_lerps(h, height);
    e->start = malloc(((size_t)h + 1) * sizeof *e->start);
    e->turned = malloc((size_t)w * (size_t)h * sizeof *e->turned);
    e->column = malloc((size_t)h * sizeof *e->column);
    if (!e->across || !e->down || !e->start || !e->turned || !e->column)
        return false;
    for (int j = 0, y = 0; j <= h; j++) {
        while (y < height && e->down[y].first < j)
            y++;
        e->start[j] = y;
    }
    for (int y = 0; y < h; y++) {
        for (int x = 0; x < w; x++)
            e->turned[(size_t)x * (size_t)h + (size_t)y] = in[(size_t)y * (size_t)w + (size_t)x];
    }
    return true;
}

/* Between two input rows on one side of the threshold every output is on that side; only crossings are computed. */
static void add_column(run_list *l, enlarger *e, int x, float threshold)
{
    const lerp *a = &e->across[x];
    const float *left = e->turned + (size_t)a->first * (size_t)e->h,
                *right = e->turned + (size_t)a->second * (size_t)e->h;
    for (int j = 0; j < e->h; j++)
        e->column[j] = a->weight0 * left[j] + a->weight1 * right[j];
    for (int j = 0; j < e->h; j++) {
        float here = e->column[j], next = e->column[j + (j < e->h - 1)];
        bool on = here > threshold;
        if (threshold == 0 && on == (next > threshold)) {
            runs_add(l, on, (uint32_t)(e->start[j + 1] - e->start[j]));
            continue;
        }
        for (int y = e->start[j]; y < e->start[j + 1]; y++)
            runs_add(l, e->down[y].weight0 * here + e->down[y].weight1 * next > threshold, 1);
    }
}

int mask_from_logits(rle *out, const float *in, int w, int h, int width, int height, float threshold, samite_error *err)
{
    *out = (rle){0};
    int code = runs_check_size(width, height, err);
    if (code != SAMITE_OK || (code = runs_check_size(w, h, err)) != SAMITE_OK)
        return code;
    enlarger e;
    run_list l = {0};
    l.failed = !enlarger_make(&e, in, w, h, width, height);
    for (int x = 0; x < width && !l.failed; x++)
        add_column(&l, &e, x, threshold);
    enlarger_free(&e);
    return runs_finish(out, &l, width, height, err);
}
