/* int8.c - weights as 8-bit numbers with a scale per output; the rows they meet are quantised one by one. */
#include "kernels/int8.h"
#include "kernels/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

struct int8_weights {
    int64_t out, in, padded_in, padded_out;
    int8_t  *w;             /* panels, see int8_product */
    float   *scale, *bias;  /* [padded_out] */
    int32_t *sum;
    size_t   bytes;         /* of all four, one block that begins at w */
    bool     borrowed;      /* the block belongs to somebody else */
};

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int8_weights *describe(int64_t out, int64_t in)
{
    int8_weights *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    *w = (int8_weights){.out = out, .in = in, .padded_in = round_up(in, 4), .padded_out = round_up(out, INT8_PANEL)};
    w->bytes = (size_t)round_up(w->padded_out * w->padded_in + 3 * w->padded_out * (int64_t)sizeof(float), ALIGNMENT);
    return w;
}

/* The block becomes the matrix and its vectors. */
static void divide(int8_weights *w, void *block)
{
    w->w = block;
    w->scale = (float *)(w->w + (size_t)(w->padded_out * w->padded_in));
    w->bias = w->scale + w->padded_out;
    w->sum = (int32_t *)(w->bias + w->padded_out);
}

/* Rounds a row so that its largest value becomes `limit`; returns the scale. */
static float narrow_row(int8_t *q, const float *row, int64_t n, int limit)
{
    float most = 0, steps;

    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(row[i]));
    steps = most > 0 ? (float)limit / most : 0;
    for (int64_t i = 0; i < n; i++)
        q[i] = (int8_t)lrintf(row[i] * steps);
    return most / (float)limit;
}

/* The same for a row that is narrow already: unchanged where it fits. */
static float fit_row(int8_t *q, const int8_t *row, float scale, int64_t n, int limit)
{
    int most = 0;

    for (int64_t i = 0; i < n; i++)
        most = abs(row[i]) > most ? abs(row[i]) : most;
    memcpy(q, row, (size_t)n);
    if (most <= limit)
        return scale;
    for (int64_t i = 0; i < n; i++)
        q[i] = (int8_t)lrintf((float)(row[i] * limit) / (float)most);
    return scale * (float)most / (float)limit;
}

/* One output takes its place in the panels. */
static void place_row(int8_weights *w, int64_t o, const int8_t *q, float scale)
{
    int8_t *to = w->w + o / INT8_PANEL * INT8_PANEL * w->padded_in + o % INT8_PANEL * 4;
    int32_t sum = 0;

    for (int64_t i = 0; i < w->in; i += 4) {
        int8_t four[4] = {0};
        for (int64_t k = 0; k < 4 && i + k < w->in; k++) {
            four[k] = q[i + k];
            sum += four[k];
        }
        memcpy(to + i * INT8_PANEL, four, sizeof four);
    }
    w->scale[o] = scale;
    w->sum[o] = sum;
}

void gemm_quantize_rows(int8_t *q, float *scale, const float *w, int64_t rows, int64_t cols)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        scale[r] = narrow_row(q + r * cols, w + r * cols, cols, INT8_MAX);
        if (scale[r] == 0) {
            memset(q + r * cols, 0, (size_t)cols);
            scale[r] = 1;
        }
    }
}

/* Where the rows come from: f32, `ld` apart, or narrow ones with their scales. */
typedef struct row_source { const float *wide; int64_t ld; const int8_t *narrow; const float *scale; } row_source;

static int8_weights *pack(const row_source *from, const float *bias, int64_t out, int64_t in)
{
    int limit = kernels_get()->int8_limit;
    int8_weights *w = describe(out, in);
    void *block = w ? aligned_alloc(ALIGNMENT, w->bytes) : NULL;
    bool ok = true;

    if (!block) {
        free(w);
        return NULL;
    }
    divide(w, block);
    if (out % INT8_PANEL)
        memset(w->w + (w->padded_out - INT8_PANEL) * w->padded_in, 0, (size_t)(INT8_PANEL * w->padded_in));
    memset(w->scale, 0, 3 * (size_t)w->padded_out * sizeof *w->scale);
#pragma omp parallel reduction(&& : ok)
    {
        int8_t *q = malloc((size_t)in);
        ok = q != NULL;
#pragma omp for schedule(static)
        for (int64_t o = 0; o < out; o++)
            if (q)
                place_row(w, o, q, from->wide ? narrow_row(q, from->wide + o * from->ld, in, limit)
                                              : fit_row(q, from->narrow + o * in, from->scale[o], in, limit));
        free(q);
    }
    if (bias)
        memcpy(w->bias, bias, (size_t)out * sizeof *bias);
    if (ok)
        return w;
    int8_free(w);
    return NULL;
}

int8_weights *int8_pack(const float *src, const float *bias, int64_t out, int64_t in, int64_t ld)
{
    return pack(&(row_source){.wide = src, .ld = ld}, bias, out, in);
}

int8_weights *int8_pack_rows(const int8_t *q, const float *scale, const float *bias, int64_t out, int64_t in)
{
    return pack(&(row_source){.narrow = q, .scale = scale}, bias, out, in);
}

int8_weights *int8_adopt(const void *stored, size_t bytes, int64_t out, int64_t in)
{
    int8_weights *w = describe(out, in);

    if (!w || w->bytes != bytes) {
        free(w);
        return NULL;
    }
    divide(w, (void *)(uintptr_t)stored);
    w->borrowed = true;
    return w;
}

const void *int8_data(const int8_weights *w)
{
    return w->w;
}

void int8_free(int8_weights *w)
{
    if (w && !w->borrowed)
        free(w->w);
    free(w);
}

size_t int8_bytes(const int8_weights *w)
{
    return w->bytes;
}

/* Quantised rows, their scales and zeros. */
size_t int8_scratch(const int8_weights *w, int64_t rows)
{
    return (size_t)rows * ((size_t)w->padded_in + sizeof(float) + sizeof(int32_t)) + ALIGNMENT;
}

/* Where they lie in the scratch memory. */
typedef struct narrow_rows { float *scale; int32_t *zero; uint8_t *x; } narrow_rows;

static narrow_rows rows_of(const void *scratch, int64_t rows)
{
    float *scale = (float *)(uintptr_t)scratch;

    return (narrow_rows){scale, (int32_t *)(scale + rows), (uint8_t *)(scale + 2 * rows)};
}

void int8_make(const int8_weights *w, void *scratch, const float *x, int64_t ldx, int64_t rows, int64_t first,
               int64_t count)
{
    narrow_rows to = rows_of(scratch, rows);

    kernels_get()->quantize(to.x + first * w->padded_in, w->padded_in, to.scale + first, to.zero + first, x, ldx, count,
                            w->in);
}

void int8_run(const int8_weights *w, float *y, int64_t ldy, const void *scratch, int64_t rows, activation act,
              const float *residual)
{
    narrow_rows in = rows_of(scratch, rows);

    kernels_get()->product_int8(&(int8_product){.y = y, .residual = residual, .ldy = ldy, .x = in.x,
                                                .x_scale = in.scale, .x_zero = in.zero, .w = w->w, .w_scale = w->scale,
                                                .bias = w->bias, .w_sum = w->sum, .rows = rows, .in = w->padded_in,
                                                .out = w->out, .act = act});
}
