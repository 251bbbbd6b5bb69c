/* planes.c - arithmetic on whole masks, pixel by pixel. */
#include "track/planes.h"

#include <math.h>
#include <stdlib.h>

#include "io/mask.h"

/* ---- shrinking ---- */

/* The inputs of one output along one axis: weights of `count` inputs from `first` on. */
typedef struct taps {
    int    *first, *count;
    float  *weight;     /* [outputs, most] */
    int     most;
} taps;

static void taps_free(taps *t)
{
    free(t->first);
    free(t->count);
    free(t->weight);
}

static bool taps_make(taps *t, int in, int out)
{
    float scale = (float)in / (float)out, reach = scale > 1 ? scale : 1, shrink = 1 / reach;
    t->most = 2 * (int)ceilf(reach) + 1;
    t->first = malloc(sizeof *t->first * (size_t)out);
    t->count = malloc(sizeof *t->count * (size_t)out);
    t->weight = calloc((size_t)out * (size_t)t->most, sizeof *t->weight);
    if (!t->first || !t->count || !t->weight)
        return false;
    for (int i = 0; i < out; i++) {
        float centre = scale * ((float)i + 0.5f), sum = 0, *w = t->weight + (size_t)i * (size_t)t->most;
        int first = (int)fmaxf(centre - reach + 0.5f, 0), end = (int)fminf(centre + reach + 0.5f, (float)in);
        for (int k = 0; k < end - first && k < t->most; k++) {
            w[k] = fmaxf(1 - fabsf(((float)(k + first) - centre + 0.5f) * shrink), 0);
            sum += w[k];
        }
        for (int k = 0; k < t->most; k++)
            w[k] = sum != 0 ? w[k] / sum : 0;
        t->first[i] = first;
        t->count[i] = end - first < t->most ? end - first : t->most;
    }
    return true;
}

static void shrink_rows(float *out, const float *in, int w, int h, int width, const taps *t)
{
    #pragma omp parallel for schedule(static)
    for (int y = 0; y < h; y++) {
        const float *row = in + (size_t)y * (size_t)w;
        for (int x = 0; x < width; x++) {
            const float *weight = t->weight + (size_t)x * (size_t)t->most;
            float sum = 0;
            for (int k = 0; k < t->count[x]; k++)
                sum += weight[k] * row[t->first[x] + k];
            out[(size_t)y * (size_t)width + (size_t)x] = sum;
        }
    }
}

static void shrink_columns(float *out, const float *in, int width, int height, const taps *t)
{
    #pragma omp parallel for schedule(static)
    for (int y = 0; y < height; y++) {
        const float *weight = t->weight + (size_t)y * (size_t)t->most;
        float *row = out + (size_t)y * (size_t)width;
        for (int x = 0; x < width; x++)
            row[x] = 0;
        for (int k = 0; k < t->count[y]; k++) {
            const float *from = in + (size_t)(t->first[y] + k) * (size_t)width;
            for (int x = 0; x < width; x++)
                row[x] += weight[k] * from[x];
        }
    }
}

int plane_shrink(float *out, int width, int height, const float *in, int w, int h, samite_error *err)
{
    taps across = {0}, down = {0};
    if (width < 1 || height < 1 || w < 1 || h < 1)
        return fail(err, SAMITE_USAGE, "cannot scale a mask of %d x %d to %d x %d", w, h, width, height);
    float *half = malloc(sizeof *half * (size_t)h * (size_t)width);
    bool ok = half && taps_make(&across, w, width) && taps_make(&down, h, height);
    if (ok) {
        shrink_rows(half, in, w, h, width, &across);
        shrink_columns(out, half, width, height, &down);
    }
    taps_free(&across);
    taps_free(&down);
    free(half);
    return ok ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a mask of %d x %d pixels", w, h);
}

/* ---- pixel by pixel ---- */

void planes_settle_overlap(float *planes, int count, int64_t pixels)
{
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < pixels; i++) {
        int winner = 0;
        for (int k = 1; k < count; k++)
            if (planes[k * pixels + i] > planes[winner * pixels + i])
                winner = k;
        for (int k = 0; k < count; k++)
            if (k != winner && planes[k * pixels + i] > LOGIT_YIELD)
                planes[k * pixels + i] = LOGIT_YIELD;
    }
}

void plane_as_memory(float *plane, int64_t pixels, bool by_sign)
{
    #pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < pixels; i++) {
        float p = by_sign ? (float)(plane[i] > 0) : 1.0f / (1.0f + expf(-plane[i]));
        plane[i] = p * 20.0f - 10.0f;
    }
}

/* ---- holes ---- */

/* 8-connected parts of at most `area` pixels where the logit is positive (`inside`) or not are set to `value`. */
static int replace_parts(float *plane, int width, int height, bool inside, int64_t area, float value, samite_error *err)
{
    size_t pixels = (size_t)width * (size_t)height;
    uint8_t *part = calloc(pixels ? pixels : 1, 1);
    int32_t *label = malloc(sizeof *label * (pixels ? pixels : 1));
    int64_t *size = NULL;
    int parts = -1;
    if (part && label) {
        for (size_t i = 0; i < pixels; i++)
            part[i] = (plane[i] > 0) == inside;
        parts = mask_components(label, part, width, height);
    }
    if (parts >= 0)
        size = calloc((size_t)parts + 1, sizeof *size);
    for (size_t i = 0; size && i < pixels; i++)
        size[label[i]]++;
    for (size_t i = 0; size && i < pixels; i++)
        if (label[i] && size[label[i]] <= area)
            plane[i] = value;
    free(part);
    free(label);
    bool ok = size != NULL;
    free(size);
    return ok ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to fill holes of a mask of %d x %d", width, height);
}

int plane_fill_holes(float *plane, int width, int height, int64_t area, float value, samite_error *err)
{
    return replace_parts(plane, width, height, false, area, value, err);
}

int plane_tidy(float *plane, int width, int height, int64_t area, samite_error *err)
{
    int64_t inside = 0, pixels = (int64_t)width * height;
    int code = area > 0 ? plane_fill_holes(plane, width, height, area, 0.1f, err) : 0;
    if (code || area <= 0)
        return code;
    for (int64_t i = 0; i < pixels; i++)
        inside += plane[i] > 0;
    return replace_parts(plane, width, height, true, inside / 2 < area ? inside / 2 : area, -0.1f, err);
}
