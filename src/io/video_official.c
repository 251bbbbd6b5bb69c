/* video_official.c - the arithmetic of the official loaders of pictures and of video files. */
#include "io/video_official.h"

#include <math.h>
#include <stdlib.h>

#include "base/dtype.h"

#define PRECISION  22          /* bits of whole-number weights of pictures */
#define CUBIC      -0.75f      /* shape of the bicubic curve */
#define UNIT       2048        /* of fixed-point weights */
#define TAPS       4

static float as_half(float x)
{
    uint16_t h;
    dtype_from_f32(&h, DT_F16, &x, 1);
    dtype_to_f32(&x, &h, DT_F16, 1);
    return x;
}

/* ---- bilinear with antialias ---- */

/* Whole-number weights of the inputs of every output along one axis. */
typedef struct taps {
    int *first, *count, *weight;   /* [out], [out], [out, most] */
    int  most;
} taps;

static void taps_free(taps *t)
{
    free(t->first);
    free(t->weight);
}

static bool taps_make(taps *t, int in, int out)
{
    double scale = (double)in / out, reach = scale > 1 ? scale : 1;
    t->most = 2 * (int)ceil(reach) + 1;
    t->first = malloc(2 * sizeof *t->first * (size_t)out);
    t->weight = calloc((size_t)out * (size_t)t->most, sizeof *t->weight);
    double *w = malloc(sizeof *w * (size_t)t->most);
    bool ok = t->first && t->weight && w;
    t->count = ok ? t->first + out : NULL;
    for (int i = 0; ok && i < out; i++) {
        double centre = (i + 0.5) * scale, sum = 0;
        int first = (int)fmax(centre - reach + 0.5, 0), end = (int)fmin(centre + reach + 0.5, in);
        for (int k = 0; k < end - first; k++) {
            w[k] = fmax(1 - fabs((k + first - centre + 0.5) / reach), 0);
            sum += w[k];
        }
        for (int k = 0; k < end - first; k++)
            t->weight[(size_t)i * (size_t)t->most + (size_t)k] = (int)(w[k] / sum * (1 << PRECISION) + 0.5);
        t->first[i] = first;
        t->count[i] = end - first;
    }
    free(w);
    return ok;
}

/* Output `i` of a line whose samples are `step` bytes apart. */
static uint8_t weighted(const uint8_t *from, size_t step, const taps *t, int i)
{
    const int *w = t->weight + (size_t)i * (size_t)t->most;
    int sum = 1 << (PRECISION - 1);
    for (int k = 0; k < t->count[i]; k++)
        sum += from[(size_t)(t->first[i] + k) * step] * w[k];
    sum >>= PRECISION;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* Rows first, each pass rounded to 8 bits. */
static int shrink(uint8_t *out, const pixels *in, int side, samite_error *err)
{
    taps across = {0}, down = {0};
    size_t row = 3 * (size_t)side;
    uint8_t *half = malloc(row * (size_t)in->height);
    bool ok = half && taps_make(&across, in->width, side) && taps_make(&down, in->height, side);
    #pragma omp parallel for schedule(static)
    for (int y = 0; y < (ok ? in->height : 0); y++)
        for (int x = 0; x < side; x++)
            for (int c = 0; c < 3; c++)
                half[(size_t)y * row + 3 * (size_t)x + (size_t)c] =
                    weighted(in->rgb + 3 * (size_t)y * (size_t)in->width + c, 3, &across, x);
    #pragma omp parallel for schedule(static)
    for (int y = 0; y < (ok ? side : 0); y++)
        for (size_t x = 0; x < row; x++)
            out[(size_t)y * row + x] = weighted(half + x, row, &down, y);
    taps_free(&across);
    taps_free(&down);
    free(half);
    return ok ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a picture of %d x %d", in->width, in->height);
}

int official_picture(float *out, const pixels *in, int side, samite_error *err)
{
    size_t n = 3 * (size_t)side * (size_t)side;
    float value[256];
    uint8_t *small = malloc(n);
    if (!small)
        return fail(err, SAMITE_RESOURCE, "not enough memory for a picture of %d x %d", side, side);
    int code = shrink(small, in, side, err);
    for (int i = 0; i < 256; i++)
        value[i] = as_half(as_half(as_half((float)i / 255.0f) - 0.5f) / 0.5f);
    for (size_t i = 0; !code && i < n; i++)
        out[i] = value[small[i]];
    free(small);
    return code;
}

/* ---- bicubic ---- */

typedef struct cubic { int at[TAPS]; int weight[TAPS]; } cubic;

/* Source places, clamped to the picture, and weights of output `i`. */
static cubic make_cubic(int i, int in, int out)
{
    cubic c;
    float x = (float)(((double)i + 0.5) * ((double)in / (double)out) - 0.5), w[TAPS];
    int first = (int)floorf(x);
    x -= (float)first;
    w[0] = ((CUBIC * (x + 1) - 5 * CUBIC) * (x + 1) + 8 * CUBIC) * (x + 1) - 4 * CUBIC;
    w[1] = ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1;
    w[2] = ((CUBIC + 2) * (1 - x) - (CUBIC + 3)) * (1 - x) * (1 - x) + 1;
    w[3] = 1 - w[0] - w[1] - w[2];
    for (int k = 0; k < TAPS; k++) {
        int at = first - 1 + k;
        c.at[k] = at < 0 ? 0 : at >= in ? in - 1 : at;
        c.weight[k] = (int)lrintf(w[k] * UNIT);
    }
    return c;
}

static void widen(int *out, const pixels *in, int side, const cubic *across)
{
    #pragma omp parallel for schedule(static)
    for (int y = 0; y < in->height; y++) {
        const uint8_t *row = in->rgb + 3 * (size_t)y * (size_t)in->width;
        for (int x = 0; x < side; x++)
            for (int c = 0; c < 3; c++) {
                int sum = 0;
                for (int k = 0; k < TAPS; k++)
                    sum += row[3 * across[x].at[k] + c] * across[x].weight[k];
                out[((size_t)y * (size_t)side + (size_t)x) * 3 + (size_t)c] = sum;
            }
    }
}

static void lengthen(float *out, const int *wide, int side, const cubic *down)
{
    const float unit = 1.0f / ((float)UNIT * (float)UNIT);
    #pragma omp parallel for schedule(static)
    for (int y = 0; y < side; y++)
        for (size_t x = 0; x < 3 * (size_t)side; x++) {
            float sum = 0;
            for (int k = 0; k < TAPS; k++)
                sum += (float)wide[(size_t)down[y].at[k] * 3 * (size_t)side + x] * ((float)down[y].weight[k] * unit);
            float v = rintf(sum);
            out[(size_t)y * 3 * (size_t)side + x] = ((v < 0 ? 0 : v > 255 ? 255 : v) - 0.5f) / 0.5f;
        }
}

int official_video_frame(float *out, const pixels *in, int side, samite_error *err)
{
    cubic *across = malloc(sizeof *across * 2 * (size_t)side), *down = across + side;
    int *wide = malloc(sizeof *wide * 3 * (size_t)side * (size_t)in->height);
    bool ok = across && wide;
    for (int i = 0; ok && i < side; i++) {
        across[i] = make_cubic(i, in->width, side);
        down[i] = make_cubic(i, in->height, side);
    }
    if (ok) {
        widen(wide, in, side, across);
        lengthen(out, wide, side, down);
    }
    free(across);
    free(wide);
    return ok ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a frame of %d x %d", in->width, in->height);
}
