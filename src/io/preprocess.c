/* preprocess.c - antialiased 8-bit resize in fixed point, and scaling to -1..1. */
#include "io/preprocess.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK          32   /* output rows that one thread makes at a time */
#define MAX_PRECISION  22

/* Which input samples make an output sample, and with what weights. */
typedef struct axis {
    int      in, out;
    double   scale, support;
    size_t   taps;          /* room for weights per output */
    int     *first, *count; /* [out] */
    int16_t *weight;        /* [out, taps] */
    int      precision;     /* weights are multiples of 2^-precision */
} axis;

/* Weights of output `i` in floating point, summing to 1; returns the largest. Sets first and count of the output. */
static double find_weights(axis *a, int i, double *weight)
{
    double center = a->scale * (i + 0.5), inverse = a->scale >= 1.0 ? 1.0 / a->scale : 1.0;
    int64_t first = (int64_t)(center - a->support + 0.5), end = (int64_t)(center + a->support + 0.5);
    first = first < 0 ? 0 : first;
    end = end > a->in ? a->in : end;
    int64_t count = end - first;
    count = count < 0 ? 0 : (size_t)count > a->taps ? (int64_t)a->taps : count;
    double total = 0, largest = 0;
    for (int64_t k = 0; k < count; k++) {
        double d = fabs(((double)(k + first) - center + 0.5) * inverse);
        weight[k] = d < 1.0 ? 1.0 - d : 0.0;
        total += weight[k];
    }
    for (int64_t k = 0; k < count && total != 0; k++) {
        weight[k] /= total;
        largest = weight[k] > largest ? weight[k] : largest;
    }
    a->first[i] = (int)first;
    a->count[i] = (int)count;
    return largest;
}

static void axis_free(axis *a)
{
    free(a->first);
    free(a->count);
    free(a->weight);
}

/* As many fraction bits as let the largest weight fit 16 bits. */
static int choose_precision(double largest)
{
    int p = 0;
    while (p < MAX_PRECISION && (int)(0.5 + largest * (1 << (p + 1))) < 1 << 15)
        p++;
    return p;
}

/* false: out of memory. */
static bool axis_make(axis *a, int in, int out)
{
    *a = (axis){.in = in, .out = out, .scale = (double)in / out};
    a->support = a->scale >= 1.0 ? a->scale : 1.0;
    a->taps = (size_t)ceil(a->support) * 2 + 1;
    a->first = malloc((size_t)out * sizeof *a->first);
    a->count = malloc((size_t)out * sizeof *a->count);
    a->weight = calloc((size_t)out, a->taps * sizeof *a->weight);
    double *exact = malloc(a->taps * sizeof *exact), largest = 0;
    bool ok = a->first && a->count && a->weight && exact;
    for (int i = 0; ok && i < out; i++)
        largest = fmax(largest, find_weights(a, i, exact));
    a->precision = choose_precision(largest);
    for (int i = 0; ok && i < out; i++) {
        find_weights(a, i, exact);
        for (int k = 0; k < a->count[i]; k++)
            a->weight[(size_t)i * a->taps + (size_t)k] = (int16_t)(0.5 + exact[k] * (1 << a->precision));
    }
    free(exact);
    return ok;
}

static uint8_t to_byte(uint32_t sum, int precision)
{
    uint32_t v = sum >> precision;
    return (uint8_t)(v > 255 ? 255 : v);
}

/* One input row to `a->out` pixels, rounded to 8 bits but stored wide for the multiplication that follows. */
static void resize_row(int16_t *restrict out, const axis *a, const uint8_t *restrict row)
{
    uint32_t half = a->precision ? 1u << (a->precision - 1) : 0;
    for (int x = 0; x < a->out; x++) {
        const uint8_t *p = row + (size_t)a->first[x] * 3;
        const int16_t *w = a->weight + (size_t)x * a->taps;
        uint32_t r = half, g = half, b = half;
        for (int k = 0; k < a->count[x]; k++, p += 3) {
            uint32_t wk = (uint32_t)w[k];
            r += wk * p[0];
            g += wk * p[1];
            b += wk * p[2];
        }
        out[3 * x] = to_byte(r, a->precision);
        out[3 * x + 1] = to_byte(g, a->precision);
        out[3 * x + 2] = to_byte(b, a->precision);
    }
}

static void add_weighted(uint32_t *restrict sum, const int16_t *restrict row, int16_t w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += (uint32_t)((int32_t)row[i] * w);
}

/* Output rows y0..y1-1 as sums over the input rows, each of which is resized once. `line` holds one row. */
static void resize_block(uint32_t *sums, int16_t *line, const axis *across, const axis *down, const pixels *in, int y0,
                         int y1)
{
    size_t n = (size_t)across->out * 3;
    for (size_t i = 0; i < n * (size_t)(y1 - y0); i++)
        sums[i] = down->precision ? 1u << (down->precision - 1) : 0;
    int low = y0;      /* outputs before this one are complete */
    for (int y = down->first[y0]; y < down->first[y1 - 1] + down->count[y1 - 1]; y++) {
        resize_row(line, across, in->rgb + (size_t)y * (size_t)in->width * 3);
        while (low < y1 && down->first[low] + down->count[low] <= y)
            low++;
        for (int o = low; o < y1 && down->first[o] <= y; o++) {
            if (y - down->first[o] < down->count[o])
                add_weighted(sums + (size_t)(o - y0) * n, line,
                             down->weight[(size_t)o * down->taps + (size_t)(y - down->first[o])], n);
        }
    }
}

/* Resizes into `bytes`, or through `table` into `floats`, whichever is not NULL. false: out of memory. */
static bool resize(uint8_t *bytes, float *floats, const float *table, const axis *across, const axis *down,
                   const pixels *in)
{
    size_t n = (size_t)across->out * 3;
    int blocks = (down->out + BLOCK - 1) / BLOCK;
    bool ok = true;
#pragma omp parallel
    {
        uint32_t *sums = malloc(n * BLOCK * sizeof *sums);
        int16_t *line = malloc(n * sizeof *line);
        if (!sums || !line) {
#pragma omp atomic write
            ok = false;
        }
#pragma omp for schedule(dynamic)
        for (int b = 0; b < blocks; b++) {
            int y0 = b * BLOCK, y1 = down->out - y0 < BLOCK ? down->out : y0 + BLOCK;
            if (!sums || !line)
                continue;
            resize_block(sums, line, across, down, in, y0, y1);
            for (size_t i = 0; i < n * (size_t)(y1 - y0); i++) {
                uint8_t v = to_byte(sums[i], down->precision);
                if (floats)
                    floats[n * (size_t)y0 + i] = table[v];
                else
                    bytes[n * (size_t)y0 + i] = v;
            }
        }
        free(sums);
        free(line);
    }
    return ok;
}

static int run(uint8_t *bytes, float *floats, int width, int height, const pixels *in, samite_error *err)
{
    if (width < 1 || height < 1 || in->width < 1 || in->height < 1)
        return fail(err, SAMITE_USAGE, "cannot resize %d x %d pixels to %d x %d", in->width, in->height, width, height);
    float table[256];
    for (int v = 0; v < 256; v++)
        table[v] = ((float)v * (1.0f / 255.0f) - 0.5f) / 0.5f;
    axis across, down;
    bool ok = axis_make(&across, in->width, width);
    ok = axis_make(&down, in->height, height) && ok;
    ok = ok && resize(bytes, floats, table, &across, &down, in);
    axis_free(&across);
    axis_free(&down);
    return ok ? SAMITE_OK
              : fail(err, SAMITE_RESOURCE, "no memory for resizing %d x %d pixels to %d x %d", in->width, in->height,
                     width, height);
}

int preprocess(float *out, const pixels *in, int side, samite_error *err)
{
    return run(NULL, out, side, side, in, err);
}

int resize_rgb(uint8_t *out, int width, int height, const pixels *in, samite_error *err)
{
    return run(out, NULL, width, height, in, err);
}
