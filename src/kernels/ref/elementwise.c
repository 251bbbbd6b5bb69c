/* elementwise.c - reference: sums, activations, number formats. */
#include "kernels/ref/ref.h"

#include <math.h>
#include <string.h>

#include "kernels/levels.h"

void ref_add(float *y, const float *a, const float *b, int64_t n, int64_t period)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i % period];
}

void ref_softmax(float *y, const float *x, int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++, x += cols, y += cols) {
        double top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < cols; i++)
            top = x[i] > top ? x[i] : top;
        for (int64_t i = 0; i < cols; i++)
            sum += x[i] == -INFINITY ? 0 : exp(x[i] - top);
        for (int64_t i = 0; i < cols; i++)
            y[i] = x[i] == -INFINITY ? 0 : (float)(exp(x[i] - top) / sum);
    }
}

void ref_axpy(float *y, const float *x, float s, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(y[i] + (double)s * x[i]);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double activation_value(double x, activation act)
{
    switch (act) {
    case ACT_RELU: return x > 0 || isnan(x) ? x : 0;
    case ACT_GELU: return isinf(x) ? (x > 0 ? x : 0) : 0.5 * x * (1 + erf(x * sqrt(0.5)));
    case ACT_SIGMOID: return sigmoid(x);
    default: return x;
    }
}

static double activation_slope(double x, activation act)
{
    double s;

    switch (act) {
    case ACT_RELU: return x > 0 ? 1 : 0;
    case ACT_GELU:
        return isinf(x) ? x > 0 : 0.5 * (1 + erf(x * sqrt(0.5))) + x * exp(-0.5 * x * x) * 0.3989422804014327;
    case ACT_SIGMOID: s = sigmoid(x); return s * (1 - s);
    default: return 1;
    }
}

void ref_activate(float *y, const float *x, activation act, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)activation_value(x[i], act);
}

void ref_activate_backward(float *dx, const float *dy, const float *x, activation act, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        dx[i] = (float)(dx[i] + dy[i] * activation_slope(x[i], act));
}

/* Round to nearest even; a NaN keeps its upper bits and is made quiet. */
static uint16_t bf16_of(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

void ref_to_bf16(uint16_t *y, const float *x, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = bf16_of(x[i]);
}

void ref_activate_to_bf16(uint16_t *y, const float *x, activation act, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float t;
        ref_activate(&t, x + i, act, 1);
        ref_to_bf16(y + i, &t, 1);
    }
}

void ref_from_bf16(float *y, const uint16_t *x, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)x[i] << 16;
        memcpy(&y[i], &u, sizeof u);
    }
}

static float float_of_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023, u;
    float f;

    if (exponent == 0) {    /* zero or subnormal */
        f = (float)mantissa * 0x1p-24f;
        return sign ? -f : f;
    }
    u = sign | (exponent == 31 ? 0x7f800000 : (exponent + 112) << 23) | mantissa << 13;
    if (exponent == 31 && mantissa)
        u |= 0x400000;      /* quiet, as the instruction does */
    memcpy(&f, &u, sizeof f);
    return f;
}

void ref_from_f16(float *y, const uint16_t *x, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        y[i] = float_of_f16(x[i]);
}

void ref_column_sums(float *y, const float *x, int64_t rows, int64_t cols, int64_t stride)
{
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++)
            sum += x[r * stride + c];
        y[c] = (float)(y[c] + sum);
    }
}

void kernels_fill_ref(kernels *k)
{
    *k = (kernels){
        .level = "ref",
        .add = ref_add,
        .axpy = ref_axpy,
        .softmax = ref_softmax,
        .activate = ref_activate,
        .activate_backward = ref_activate_backward,
        .norm = ref_norm,
        .norm_backward = ref_norm_backward,
        .group_norm = ref_group_norm,
        .attention = ref_attention,
        .attention_bf16 = ref_attention,
        .attention_int8 = ref_attention,
        .quantize = ref_quantize,
        .product_int8 = ref_product_int8,
        .winograd = ref_winograd,
        .int8_limit = 127,
        .attention_backward = ref_attention_backward,
        .to_bf16 = ref_to_bf16,
        .activate_to_bf16 = ref_activate_to_bf16,
        .from_bf16 = ref_from_bf16,
        .from_f16 = ref_from_f16,
        .column_sums = ref_column_sums,
    };
}
