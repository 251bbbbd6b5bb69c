/* norm.c - LayerNorm with its backward, GroupNorm and column sums. */
#include <math.h>

#include "kernels/simd/level.h"
#include "kernels/simd/vec.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

INLINE vec load_upto(const float *p, int64_t n)
{
    return n >= VL ? v_load(p) : v_load_n(p, (int)n);
}

INLINE void store_upto(float *p, vec x, int64_t n)
{
    if (n >= VL)
        v_store(p, x);
    else
        v_store_n(p, x, (int)n);
}

static float row_sum(const float *x, int64_t n)
{
    vec s0 = v_zero(), s1 = v_zero();
    int64_t c = 0;

    for (; c + 2 * VL <= n; c += 2 * VL) {
        s0 = v_add(s0, v_load(x + c));
        s1 = v_add(s1, v_load(x + c + VL));
    }
    for (; c < n; c += VL)
        s0 = v_add(s0, load_upto(x + c, n - c));
    return v_sum(v_add(s0, s1));
}

/* sum of (x - m)^2 */
static float row_spread(const float *x, float m, int64_t n)
{
    vec s0 = v_zero(), s1 = v_zero(), mean = v_set(m), d0, d1;
    int64_t c = 0;

    for (; c + 2 * VL <= n; c += 2 * VL) {
        d0 = v_sub(v_load(x + c), mean);
        d1 = v_sub(v_load(x + c + VL), mean);
        s0 = v_fma(d0, d0, s0);
        s1 = v_fma(d1, d1, s1);
    }
    for (; c + VL <= n; c += VL) {
        d0 = v_sub(v_load(x + c), mean);
        s0 = v_fma(d0, d0, s0);
    }
    float sum = v_sum(v_add(s0, s1));
    for (; c < n; c++)
        sum += (x[c] - m) * (x[c] - m);
    return sum;
}

void LEVEL(norm)(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift,
                 int64_t rows, int64_t cols, float eps)
{
#pragma omp parallel for schedule(static) if (rows * cols > 16384)
    for (int64_t r = 0; r < rows; r++) {
        const float *xr = x + r * cols;
        float m = row_sum(xr, cols) / (float)cols;
        float s = 1 / sqrtf(row_spread(xr, m, cols) / (float)cols + eps);
        for (int64_t c = 0; c < cols; c += VL) {
            vec h = v_mul(v_sub(load_upto(xr + c, cols - c), v_set(m)), v_set(s));
            h = v_fma(h, load_upto(gain + c, cols - c), load_upto(shift + c, cols - c));
            store_upto(y + r * cols + c, h, cols - c);
        }
        if (mean)
            mean[r] = m;
        if (rstd)
            rstd[r] = s;
    }
}

/* dx += rstd (g - mean(g) - h mean(g h)) with g = dy gain and h = (x - mean) rstd */
static void backward_row(float *dx, const float *dy, const float *x, float m, float s, const float *gain, int64_t cols)
{
    vec sum_g = v_zero(), sum_gh = v_zero(), mean_g, mean_gh;

    for (int64_t c = 0; c < cols; c += VL) {
        vec g = v_mul(load_upto(dy + c, cols - c), load_upto(gain + c, cols - c));
        sum_g = v_add(sum_g, g);
        sum_gh = v_fma(g, v_mul(v_sub(load_upto(x + c, cols - c), v_set(m)), v_set(s)), sum_gh);
    }
    mean_g = v_set(v_sum(sum_g) / (float)cols);
    mean_gh = v_set(v_sum(sum_gh) / (float)cols);
    for (int64_t c = 0; c < cols; c += VL) {
        vec g = v_mul(load_upto(dy + c, cols - c), load_upto(gain + c, cols - c));
        vec h = v_mul(v_sub(load_upto(x + c, cols - c), v_set(m)), v_set(s));
        g = v_fnma(h, mean_gh, v_sub(g, mean_g));
        store_upto(dx + c, v_fma(v_set(s), g, load_upto(dx + c, cols - c)), cols - c);
    }
}

/* Column sums: a thread takes STRIP columns, ROWS rows at a time. */
enum { STRIP = 64, ROWS = 64, VECTORS = STRIP / VL };

/* Adds up a strip of at most STRIP columns over all rows: f32 within ROWS rows, double beyond. With mean and rstd the
 * values are x (what - mean) rstd, otherwise x alone. */
static void strip_sums(double *total, const float *x, const float *what, const float *mean, const float *rstd,
                       int64_t rows, int64_t width, int64_t stride)
{
    float part[STRIP];

    for (int64_t c = 0; c < STRIP; c++)
        total[c] = 0;
    for (int64_t r0 = 0; r0 < rows; r0 += ROWS) {
        vec sum[VECTORS];
        for (int i = 0; i < VECTORS; i++)
            sum[i] = v_zero();
        for (int64_t r = r0; r < least(r0 + ROWS, rows); r++)
            for (int i = 0; i < VECTORS && i * VL < width; i++) {
                vec v = load_upto(x + r * stride + i * VL, width - i * VL);
                if (what) {
                    vec h = v_sub(load_upto(what + r * stride + i * VL, width - i * VL), v_set(mean[r]));
                    v = v_mul(v, v_mul(h, v_set(rstd[r])));
                }
                sum[i] = v_add(sum[i], v);
            }
        for (int i = 0; i < VECTORS; i++)
            v_store(part + i * VL, sum[i]);
        for (int64_t c = 0; c < width; c++)
            total[c] += part[c];
    }
}

void LEVEL(column_sums)(float *y, const float *x, int64_t rows, int64_t cols, int64_t stride)
{
#pragma omp parallel for schedule(static) if (rows * cols > 16384)
    for (int64_t c = 0; c < cols; c += STRIP) {
        double total[STRIP];
        strip_sums(total, x + c, NULL, NULL, NULL, rows, least(STRIP, cols - c), stride);
        for (int64_t i = 0; i < least(STRIP, cols - c); i++)
            y[c + i] = (float)(y[c + i] + total[i]);
    }
}

void LEVEL(norm_backward)(float *dx, float *dgain, float *dshift, const float *dy, const float *x, const float *mean,
                          const float *rstd, const float *gain, int64_t rows, int64_t cols)
{
    if (dx) {
#pragma omp parallel for schedule(static) if (rows * cols > 16384)
        for (int64_t r = 0; r < rows; r++)
            backward_row(dx + r * cols, dy + r * cols, x + r * cols, mean[r], rstd[r], gain, cols);
    }
    if (dshift)
        LEVEL(column_sums)(dshift, dy, rows, cols, cols);
    if (!dgain)
        return;
#pragma omp parallel for schedule(static) if (rows * cols > 16384)
    for (int64_t c = 0; c < cols; c += STRIP) {
        double total[STRIP];
        strip_sums(total, dy + c, x + c, mean, rstd, rows, least(STRIP, cols - c), cols);
        for (int64_t i = 0; i < least(STRIP, cols - c); i++)
            dgain[c + i] = (float)(dgain[c + i] + total[i]);
    }
}

/* Count, mean and summed squared distance from it of some values. */
typedef struct moments { double n, mean, spread; } moments;

static void moments_merge(moments *a, double n, double mean, double spread)
{
    double all = a->n + n, d = mean - a->mean;

    if (n == 0)
        return;
    a->mean += d * n / all;
    a->spread += spread + d * d * a->n * n / all;
    a->n = all;
}

enum { SLICES = 64, GROUPS = 32, BLOCK = 32 };

/* Some pixels of up to GROUPS groups of channels, in the order of memory. */
typedef struct patch {
    const float *x;
    int64_t pixels, groups, width, stride;      /* channels per group; values from pixel to pixel */
} patch;

/* sums[g] = sum of x - shift[g], or of its square */
INLINE void patch_sums(float *sums, const patch *t, const float *shift, bool square)
{
    vec sum[GROUPS];

    for (int64_t g = 0; g < t->groups; g++)
        sum[g] = v_zero();
    for (int64_t p = 0; p < t->pixels; p++)
        for (int64_t g = 0; g < t->groups; g++) {
            const float *x = t->x + p * t->stride + g * t->width;
            vec s = sum[g], m = v_set(shift[g]);
            int64_t c = 0;
            for (; c + VL <= t->width; c += VL) {
                vec d = v_sub(v_load(x + c), m);
                s = square ? v_fma(d, d, s) : v_add(s, d);
            }
            if (c < t->width) {
                int rest = (int)(t->width - c);
                vec d = v_first(v_sub(v_load_n(x + c, rest), m), rest);
                s = square ? v_fma(d, d, s) : v_add(s, d);
            }
            sum[g] = s;
        }
    for (int64_t g = 0; g < t->groups; g++)
        sums[g] = v_sum(sum[g]);
}

/* Adds a patch to the moments of its groups, a cache-sized block of pixels at a time. */
static void patch_moments(moments *all, patch t)
{
    int64_t pixels = t.pixels;

    for (int64_t g = 0; g < t.groups; g++)
        all[g] = (moments){0, 0, 0};
    for (int64_t p = 0; p < pixels; p += BLOCK, t.x += BLOCK * t.stride) {
        float shift[GROUPS] = {0}, sum[GROUPS];
        t.pixels = least(BLOCK, pixels - p);
        patch_sums(sum, &t, shift, false);
        for (int64_t g = 0; g < t.groups; g++)
            shift[g] = sum[g] / (float)(t.pixels * t.width);
        patch_sums(sum, &t, shift, true);
        for (int64_t g = 0; g < t.groups; g++)
            moments_merge(&all[g], (double)(t.pixels * t.width), shift[g], sum[g]);
    }
}

/* y = (x - m) s gain + shift for one group of channels of one pixel */
INLINE void scale_group(float *y, const float *x, const float *gain, const float *shift, float m, float s,
                        int64_t width, bool relu)
{
    for (int64_t c = 0; c < width; c += VL) {
        vec a = v_mul(load_upto(gain + c, width - c), v_set(s));
        vec t = v_fma(v_sub(load_upto(x + c, width - c), v_set(m)), a, load_upto(shift + c, width - c));
        store_upto(y + c, relu ? v_max(v_zero(), t) : t, width - c);
    }
}

/* Up to GROUPS groups of one batch item. The slices of pixels do not depend on the number of threads. */
static void groups_norm(float *y, float *mean, float *rstd, const patch *t, const float *gain, const float *shift,
                        float eps, bool relu)
{
    moments part[SLICES][GROUPS];
    float m[GROUPS], s[GROUPS];
    int64_t step = (t->pixels + SLICES - 1) / SLICES;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < SLICES; i++) {
        int64_t first = least(i * step, t->pixels);
        patch_moments(
            part[i], (patch){t->x + first * t->stride, least(step, t->pixels - first), t->groups, t->width, t->stride});
    }
    for (int64_t g = 0; g < t->groups; g++) {
        moments all = part[0][g];
        for (int64_t i = 1; i < SLICES; i++)
            moments_merge(&all, part[i][g].n, part[i][g].mean, part[i][g].spread);
        m[g] = (float)all.mean;
        s[g] = (float)(1 / sqrt(all.spread / all.n + eps));
        if (mean)
            mean[g] = m[g];
        if (rstd)
            rstd[g] = s[g];
    }
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < t->pixels; p++)
        for (int64_t g = 0; g < t->groups; g++) {
            int64_t at = p * t->stride + g * t->width;
            scale_group(y + at, t->x + at, gain + g * t->width, shift + g * t->width, m[g], s[g], t->width, relu);
        }
}

void LEVEL(group_norm)(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift,
                       int64_t batch, int64_t pixels, int64_t channels, int64_t groups, float eps, bool relu)
{
    int64_t width = channels / groups;

    for (int64_t b = 0; b < batch; b++)
        for (int64_t g = 0; g < groups; g += GROUPS) {
            int64_t at = b * pixels * channels + g * width, stat = b * groups + g;
            patch t = {x + at, pixels, least(GROUPS, groups - g), width, channels};
            groups_norm(y + at, mean ? mean + stat : NULL, rstd ? rstd + stat : NULL, &t, gain + g * width,
                        shift + g * width, eps, relu);
        }
}
