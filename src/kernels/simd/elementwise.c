/* elementwise.c - sums, activations and number formats, a register at a time. */
#include <math.h>
#include <string.h>

#include "kernels/levels.h"
#include "kernels/simd/level.h"
#include "kernels/simd/vec.h"

enum { CHUNK = 16384 };     /* values one thread takes at a time */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The period restarts inside the chunk: runs up to its next end. */
static void add_chunk(float *y, const float *a, const float *b, int64_t n, int64_t period, int64_t at)
{
    for (int64_t i = 0; i < n;) {
        int64_t run = least(n - i, period - at), j = 0;
        const float *q = b + at;
        for (; j + VL <= run; j += VL)
            v_store(y + i + j, v_add(v_load(a + i + j), v_load(q + j)));
        for (; j < run; j++)
            y[i + j] = a[i + j] + q[j];
        i += run;
        at = 0;
    }
}

void LEVEL(add)(float *y, const float *a, const float *b, int64_t n, int64_t period)
{
#pragma omp parallel for schedule(static) if (n > CHUNK)
    for (int64_t i = 0; i < n; i += CHUNK)
        add_chunk(y + i, a + i, b, least(CHUNK, n - i), period, i % period);
}

/* Defines a slot that maps chunk after chunk; the body sees `i` (start) and `m` (length). */
#define PER_CHUNK(n, statement) \
    _Pragma("omp parallel for schedule(static) if (n > CHUNK)") \
    for (int64_t i = 0; i < n; i += CHUNK) { \
        int64_t m = least(CHUNK, n - i); \
        statement; \
    }

static void axpy_chunk(float *y, const float *x, float s, int64_t n)
{
    vec factor = v_set(s);
    int64_t j = 0;

    for (; j + VL <= n; j += VL)
        v_store(y + j, v_fma(factor, v_load(x + j), v_load(y + j)));
    if (j < n)
        v_store_n(y + j, v_fma(factor, v_load_n(x + j, (int)(n - j)), v_load_n(y + j, (int)(n - j))), (int)(n - j));
}

void LEVEL(axpy)(float *y, const float *x, float s, int64_t n)
{
    PER_CHUNK(n, axpy_chunk(y + i, x + i, s, m))
}

static void softmax_row(float *y, const float *x, int64_t n)
{
    vec tops = v_set(-INFINITY), sums = v_zero();
    float top;
    int64_t j = 0;

    for (; j + VL <= n; j += VL)
        tops = v_max(tops, v_load(x + j));
    for (top = v_top(tops); j < n; j++)
        top = x[j] > top ? x[j] : top;
    if (top == -INFINITY) {
        memset(y, 0, (size_t)n * sizeof *y);
        return;
    }
    for (j = 0; j + VL <= n; j += VL) {
        vec e = v_exp(v_sub(v_load(x + j), v_set(top)));
        sums = v_add(sums, e);
        v_store(y + j, e);
    }
    if (j < n) {
        vec e = v_first(v_exp(v_sub(v_load_n(x + j, (int)(n - j)), v_set(top))), (int)(n - j));
        sums = v_add(sums, e);
        v_store_n(y + j, e, (int)(n - j));
    }
    float share = 1 / v_sum(sums);
    for (j = 0; j < n; j++)
        y[j] *= share;
}

void LEVEL(softmax)(float *y, const float *x, int64_t rows, int64_t cols)
{
#pragma omp parallel for schedule(static) if (rows * cols > CHUNK)
    for (int64_t r = 0; r < rows; r++)
        softmax_row(y + r * cols, x + r * cols, cols);
}

/* act(x), and its slope where wanted. */
INLINE vec activated(vec x, activation act, vec *slope)
{
    vec y, one = v_set(1);

    switch (act) {
    case ACT_RELU:
        if (slope)
            *slope = v_if_negative(v_sub(v_zero(), x), one, v_zero());
        return v_max(v_zero(), x);
    case ACT_GELU:
        return v_gelu(x, slope);
    case ACT_SIGMOID:
        y = v_div(one, v_add(one, v_exp(v_sub(v_zero(), x))));
        if (slope)
            *slope = v_mul(y, v_sub(one, y));
        return y;
    default:
        if (slope)
            *slope = one;
        return x;
    }
}

INLINE void activate_loop(float *y, const float *x, activation act, int64_t n)
{
    int64_t j = 0;

    for (; j + VL <= n; j += VL)
        v_store(y + j, activated(v_load(x + j), act, NULL));
    if (j < n)
        v_store_n(y + j, activated(v_load_n(x + j, (int)(n - j)), act, NULL), (int)(n - j));
}

static void activate_chunk(float *y, const float *x, activation act, int64_t n)
{
    switch (act) {
    case ACT_RELU: activate_loop(y, x, ACT_RELU, n); break;
    case ACT_GELU: activate_loop(y, x, ACT_GELU, n); break;
    case ACT_SIGMOID: activate_loop(y, x, ACT_SIGMOID, n); break;
    default: activate_loop(y, x, ACT_NONE, n); break;
    }
}

void LEVEL(activate)(float *y, const float *x, activation act, int64_t n)
{
    PER_CHUNK(n, activate_chunk(y + i, x + i, act, m))
}

INLINE void backward_loop(float *dx, const float *dy, const float *x, activation act, int64_t n)
{
    int64_t j = 0;
    vec slope;

    for (; j + VL <= n; j += VL) {
        activated(v_load(x + j), act, &slope);
        v_store(dx + j, v_fma(v_load(dy + j), slope, v_load(dx + j)));
    }
    if (j < n) {
        int rest = (int)(n - j);
        activated(v_load_n(x + j, rest), act, &slope);
        v_store_n(dx + j, v_fma(v_load_n(dy + j, rest), slope, v_load_n(dx + j, rest)), rest);
    }
}

static void backward_chunk(float *dx, const float *dy, const float *x, activation act, int64_t n)
{
    switch (act) {
    case ACT_RELU: backward_loop(dx, dy, x, ACT_RELU, n); break;
    case ACT_GELU: backward_loop(dx, dy, x, ACT_GELU, n); break;
    case ACT_SIGMOID: backward_loop(dx, dy, x, ACT_SIGMOID, n); break;
    default: backward_loop(dx, dy, x, ACT_NONE, n); break;
    }
}

void LEVEL(activate_backward)(float *dx, const float *dy, const float *x, activation act, int64_t n)
{
    PER_CHUNK(n, backward_chunk(dx + i, dy + i, x + i, act, m))
}

/* Round to nearest even; a NaN keeps its upper bits and is made quiet. Plain integers: the bf16 instruction would flush
 * subnormals. */
static uint16_t narrow(float x)
{
    union { float f; uint32_t u; } v = {x};
    uint32_t rounded = (v.u + 0x7fff + (v.u >> 16 & 1)) >> 16, quiet = v.u >> 16 | 0x40;

    return (uint16_t)((v.u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

static void to_bf16_chunk(uint16_t *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        y[j] = narrow(x[j]);
}

void LEVEL(to_bf16)(uint16_t *y, const float *x, int64_t n)
{
    PER_CHUNK(n, to_bf16_chunk(y + i, x + i, m))
}

/* In pieces that stay in the first-level cache. */
static void activate_to_bf16_chunk(uint16_t *y, const float *x, activation act, int64_t n)
{
    float piece[512];

    for (int64_t i = 0; i < n; i += 512) {
        int64_t m = least(512, n - i), j = 0;
        for (; act == ACT_GELU && j + VL <= m; j += VL)
            v_store(piece + j, v_gelu_coarse(v_load(x + i + j)));
        if (j < m)
            activate_chunk(piece + j, x + i + j, act, m - j);
        to_bf16_chunk(y + i, piece, m);
    }
}

void LEVEL(activate_to_bf16)(uint16_t *y, const float *x, activation act, int64_t n)
{
    PER_CHUNK(n, activate_to_bf16_chunk(y + i, x + i, act, m))
}

static void from_bf16_chunk(float *restrict y, const uint16_t *restrict x, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        union { uint32_t u; float f; } v = {(uint32_t)x[j] << 16};
        y[j] = v.f;
    }
}

void LEVEL(from_bf16)(float *y, const uint16_t *x, int64_t n)
{
    PER_CHUNK(n, from_bf16_chunk(y + i, x + i, m))
}

static void from_f16_chunk(float *y, const uint16_t *x, int64_t n)
{
    int64_t j = 0;

    for (; j + 8 <= n; j += 8)
        _mm256_storeu_ps(y + j, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(x + j))));
    for (; j < n; j++)
        y[j] = _cvtsh_ss(x[j]);
}

void LEVEL(from_f16)(float *y, const uint16_t *x, int64_t n)
{
    PER_CHUNK(n, from_f16_chunk(y + i, x + i, m))
}

#if defined(__AVX512F__)
void kernels_fill_avx512(kernels *k)
#else
void kernels_fill_avx2(kernels *k)
#endif
{
#if defined(__AVX512F__)
    k->level = "avx512";
#else
    k->level = "avx2";
#endif
    k->add = LEVEL(add);
    k->axpy = LEVEL(axpy);
    k->softmax = LEVEL(softmax);
    k->activate = LEVEL(activate);
    k->activate_backward = LEVEL(activate_backward);
    k->norm = LEVEL(norm);
    k->norm_backward = LEVEL(norm_backward);
    k->group_norm = LEVEL(group_norm);
    k->attention = k->attention_bf16 = k->attention_int8 = LEVEL(attention);
    k->quantize = LEVEL(quantize);
#if !defined(__AVX512F__)
    k->product_int8 = LEVEL(product_int8);
    k->int8_limit = 63;         /* pairs of products are summed in 16 bits */
#endif
    k->winograd = LEVEL(winograd);
    k->attention_backward = LEVEL(attention_backward);
    k->to_bf16 = LEVEL(to_bf16);
    k->activate_to_bf16 = LEVEL(activate_to_bf16);
    k->from_bf16 = LEVEL(from_bf16);
    k->from_f16 = LEVEL(from_f16);
    k->column_sums = LEVEL(column_sums);
}
