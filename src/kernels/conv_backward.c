/* conv_backward.c - gradients of convolutions, tap by tap as matrix products over rows of the image. */
#include <stdlib.h>
#include <string.h>

#include "kernels/onednn.h"

typedef struct layer {
    const conv_shape *s;
    int64_t batch, height, width, oh, ow;
    int64_t in, out;            /* channels of one group */
    const float *x, *dy;
} layer;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* c += op(a) b on one thread: c is m x n, inner side k. */
static bool add_product(char op, int64_t m, int64_t n, int64_t k, const float *a, int64_t lda, const float *b,
                        int64_t ldb, float *c, int64_t ldc)
{
    return onednn_sgemm(op, 'N', m, n, k, 1, a, lda, b, ldb, 1, c, ldc);
}

/* Outputs first..last-1 along one axis whose tap `t` falls inside an input of n, of `outputs` in all. */
static void tap_range(int64_t *first, int64_t *last, const conv_shape *s, int64_t t, int64_t n, int64_t outputs)
{
    int64_t low = s->pad - t, high = n - 1 + s->pad - t;

    *first = low > 0 ? (low + s->stride - 1) / s->stride : 0;
    *last = high < 0 ? 0 : least(high / s->stride + 1, outputs);
    if (*first > *last)
        *first = *last;
}

/* dw of one tap, one group and outputs o..o+n-1: sum over pixels of dy^T x, one image row after the other. */
static bool tap_weights(float *sum, const layer *l, int64_t group, int64_t ky, int64_t kx, int64_t o, int64_t n)
{
    const conv_shape *s = l->s;
    int64_t y0, y1, x0, x1;
    bool ok = true;

    tap_range(&y0, &y1, s, ky, l->height, l->oh);
    tap_range(&x0, &x1, s, kx, l->width, l->ow);
    memset(sum, 0, (size_t)(n * l->in) * sizeof *sum);
    for (int64_t i = 0; i < l->batch * (y1 - y0) && x1 > x0 && ok; i++) {
        int64_t b = i / (y1 - y0), oy = y0 + i % (y1 - y0);
        int64_t iy = oy * s->stride + ky - s->pad, ix = x0 * s->stride + kx - s->pad;
        const float *dy = l->dy + ((b * l->oh + oy) * l->ow + x0) * s->out + group * l->out + o;
        const float *x = l->x + ((b * l->height + iy) * l->width + ix) * s->in + group * l->in;
        ok = add_product('T', n, l->in, x1 - x0, dy, s->out, x, s->stride * s->in, sum, l->in);
    }
    return ok;
}

/* Every item is one tap of one slice of outputs, summed by one thread: the bits do not depend on their number. */
static bool weight_gradient(float *dw, const layer *l)
{
    enum { SLICE = 64 };
    const conv_shape *s = l->s;
    int64_t taps = s->kernel * s->kernel, slices = (l->out + SLICE - 1) / SLICE, items = s->groups * slices * taps;
    bool ok = true;

#pragma omp parallel for schedule(dynamic, 1) reduction(&& : ok)
    for (int64_t item = 0; item < items; item++) {
        int64_t tap = item % taps, slice = item / taps % slices, group = item / taps / slices;
        int64_t o = slice * SLICE, n = least(SLICE, l->out - o);
        float *sum = malloc((size_t)(n * l->in) * sizeof *sum);
        ok = ok && sum && tap_weights(sum, l, group, tap / s->kernel, tap % s->kernel, o, n);
        for (int64_t i = 0; i < n && ok; i++)
            for (int64_t c = 0; c < l->in; c++)
                dw[((group * l->out + o + i) * l->in + c) * taps + tap] += sum[i * l->in + c];
        free(sum);
    }
    return ok;
}

/* One row of dx: every output row whose window covers it sends back dy times the weights of its tap. `turned` is
 * [groups, taps, out, in]. */
static bool input_row(float *dx, const layer *l, const float *turned, int64_t b, int64_t iy)
{
    const conv_shape *s = l->s;
    int64_t taps = s->kernel * s->kernel, x0, x1;
    float *row = dx + (b * l->height + iy) * l->width * s->in;
    bool ok = true;

    memset(row, 0, (size_t)(l->width * s->in) * sizeof *row);
    for (int64_t item = 0; item < s->groups * taps && ok; item++) {
        int64_t group = item / taps, ky = item % taps / s->kernel, kx = item % s->kernel;
        int64_t top = iy + s->pad - ky, oy = top / s->stride;
        if (top < 0 || top % s->stride || oy >= l->oh)
            continue;
        tap_range(&x0, &x1, s, kx, l->width, l->ow);
        if (x1 == x0)
            continue;
        ok = add_product('N', x1 - x0, l->in, l->out, l->dy + ((b * l->oh + oy) * l->ow + x0) * s->out + group * l->out,
                         s->out, turned + item * l->out * l->in, l->in,
                         row + (x0 * s->stride + kx - s->pad) * s->in + group * l->in, s->stride * s->in);
    }
    return ok;
}

static bool input_gradient(float *dx, const layer *l, const float *w)
{
    const conv_shape *s = l->s;
    int64_t taps = s->kernel * s->kernel, block = l->out * l->in;
    float *turned = malloc((size_t)(s->groups * taps * block) * sizeof *turned);
    bool ok = turned != NULL;

    for (int64_t i = 0; i < s->groups * block && ok; i++)
        for (int64_t t = 0; t < taps; t++)
            turned[(i / block * taps + t) * block + i % block] = w[i * taps + t];
#pragma omp parallel for schedule(dynamic, 1) reduction(&& : ok)
    for (int64_t i = 0; i < l->batch * l->height; i++)
        ok = ok && input_row(dx, l, turned, i / l->height, i % l->height);
    free(turned);
    return ok;
}

/* ---- output as large as the input, stride 1, no groups ----
 *
 * dx is a convolution of dy. dw comes band by band: with as many zeros between the image rows of dy as the kernel reaches
 * beyond an image row of x, the pixels of a band are the inner side of one product per tap. */

enum { BAND_PIXELS = 4096 };

static bool same_size(const conv_shape *s)
{
    return s->groups == 1 && s->stride == 1 && s->kernel == 2 * s->pad + 1;
}

/* Weights [in, out, kernel, kernel] of the convolution that takes dy to dx. */
static bool input_by_convolution(float *dx, const layer *l, const float *w, gemm_type type)
{
    const conv_shape *s = l->s;
    conv_shape back = {s->out, s->in, s->kernel, 1, s->pad, 1};
    int64_t taps = s->kernel * s->kernel;
    float *turned = malloc((size_t)(s->in * s->out * taps) * sizeof *turned);

    for (int64_t i = 0; turned && i < s->in * s->out; i++)
        for (int64_t t = 0; t < taps; t++)
            turned[i * taps + taps - 1 - t] = w[(i % s->out * s->in + i / s->out) * taps + t];
    conv_weights *p = turned ? conv_pack(turned, NULL, &back, type) : NULL;
    bool ok = p && conv_run(p, dx, l->dy, l->batch, l->height, l->width, ACT_NONE);
    conv_weights_free(p);
    free(turned);
    return ok;
}

/* Image rows first .. first + rows, `edge` zeros before and after each; those outside the image are zero. */
static void copy_band(void *to, const float *image, const layer *l, int64_t first, int64_t rows, int64_t channels,
                      int64_t edge, bool narrow)
{
    int64_t line = (l->width + 2 * l->s->pad) * channels, inside = l->width * channels, skip = edge * channels;
    size_t size = narrow ? sizeof(uint16_t) : sizeof(float);

    for (int64_t i = 0; i < rows; i++) {
        char *row = (char *)to + (size_t)(i * line) * size;
        const float *from = image + (first + i) * inside;
        memset(row, 0, (size_t)line * size);
        if (first + i < 0 || first + i >= l->height)
            continue;
        if (narrow)
            kernels_get()->to_bf16((uint16_t *)row + skip, from, inside);
        else
            memcpy((float *)row + skip, from, (size_t)inside * size);
    }
}

/* sums [taps, out, in] += what a band gives; dy and x: the band as copy_band made it. */
static bool band_weights(float *sums, const layer *l, const void *dy, const void *x, int64_t rows, bool narrow)
{
    const conv_shape *s = l->s;
    int64_t line = l->width + 2 * s->pad, pixels = rows * line - 2 * s->pad;
    bool ok = true;

    for (int64_t t = 0; t < s->kernel * s->kernel && ok; t++) {
        int64_t shift = (t / s->kernel * line + t % s->kernel) * s->in;
        float *sum = sums + t * s->out * s->in;
        ok = narrow ? gemm_bf16(true, false, s->out, s->in, pixels, dy, s->out, (const uint16_t *)x + shift, s->in, true,
                                sum, s->in)
                    : gemm(true, false, s->out, s->in, pixels, 1, dy, s->out, (const float *)x + shift, s->in, 1, sum,
                           s->in);
    }
    return ok;
}

static bool weights_by_bands(float *dw, const layer *l, gemm_type type)
{
    const conv_shape *s = l->s;
    int64_t taps = s->kernel * s->kernel, block = s->out * s->in, line = l->width + 2 * s->pad;
    int64_t rows = least(l->height, BAND_PIXELS / line + 1);
    bool narrow = type == GEMM_BF16 && gemm_has(GEMM_BF16);
    size_t size = narrow ? sizeof(uint16_t) : sizeof(float);
    float *sums = calloc((size_t)(taps * block), sizeof *sums);
    char *dy = malloc((size_t)(rows * line * s->out) * size);
    char *x = malloc((size_t)((rows + 2 * s->pad) * line * s->in) * size);
    bool ok = sums && dy && x;

    for (int64_t b = 0; b < l->batch; b++)
        for (int64_t y = 0; y < l->height && ok; y += rows) {
            int64_t n = least(rows, l->height - y);
            copy_band(dy, l->dy + b * l->height * l->width * s->out, l, y, n, s->out, 0, narrow);
            copy_band(x, l->x + b * l->height * l->width * s->in, l, y - s->pad, n + 2 * s->pad, s->in, s->pad, narrow);
            ok = band_weights(sums, l, dy, x, n, narrow);
        }
    for (int64_t i = 0; i < block && ok; i++)
        for (int64_t t = 0; t < taps; t++)
            dw[i * taps + t] += sums[t * block + i];
    free(sums), free(dy), free(x);
    return ok;
}

bool conv_backward(float *dx, float *dw, float *dbias, const float *dy, const float *x, const float *w,
                   const conv_shape *s, int64_t batch, int64_t height, int64_t width, gemm_type type)
{
    layer l = {.s = s, .batch = batch, .height = height, .width = width, .x = x, .dy = dy};
    bool ok = onednn_ready(), same = same_size(s);

    l.in = s->in / s->groups;
    l.out = s->out / s->groups;
    l.oh = (height + 2 * s->pad - s->kernel) / s->stride + 1;
    l.ow = (width + 2 * s->pad - s->kernel) / s->stride + 1;
    if (dbias)
        kernels_get()->column_sums(dbias, dy, batch * l.oh * l.ow, s->out, s->out);
    if (dw)
        ok = ok && (same ? weights_by_bands(dw, &l, type) : weight_gradient(dw, &l));
    if (dx)
        ok = ok && (same ? input_by_convolution(dx, &l, w, type) : input_gradient(dx, &l, w));
    return ok;
}
