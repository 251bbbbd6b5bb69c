/* int8.c - reference: rows as 8-bit numbers, and their product with 8-bit weights. */
#include "kernels/ref/ref.h"

#include <math.h>

static void quantize_row(uint8_t *y, int64_t ldy, float *scale, int32_t *zero, const float *x, int64_t cols)
{
    float low = 0, high = 0, trouble = 0, steps;

    for (int64_t c = 0; c < cols; c++) {
        low = x[c] < low ? x[c] : low;
        high = x[c] > high ? x[c] : high;
        trouble += x[c] * 0;
    }
    steps = high > low ? 255 / (high - low) : 0;
    *scale = (high - low) / 255 + trouble;
    *zero = trouble == 0 ? (int32_t)nearbyintf(-low * steps) : 0;
    for (int64_t c = 0; c < cols; c++) {
        float q = nearbyintf(x[c] * steps) + (float)*zero;
        y[c] = (uint8_t)(q > 0 ? q < 255 ? q : 255 : 0);
    }
    for (int64_t c = cols; c < ldy; c++)
        y[c] = 0;
}

void ref_quantize(uint8_t *y, int64_t ldy, float *scale, int32_t *zero, const float *x, int64_t ldx, int64_t rows,
                  int64_t cols)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        quantize_row(y + r * ldy, ldy, scale + r, zero + r, x + r * ldx, cols);
}

static double act_of(double x, activation act)
{
    switch (act) {
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_GELU: return 0.5 * x * (1 + erf(x * sqrt(0.5)));
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    default: return x;
    }
}

void ref_product_int8(const int8_product *p)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t o = 0; o < p->out; o++) {
            const int8_t *w = p->w + o / INT8_PANEL * INT8_PANEL * p->in + o % INT8_PANEL * 4;
            int64_t sum = -(int64_t)p->x_zero[r] * p->w_sum[o];
            for (int64_t i = 0; i < p->in; i++)
                sum += p->x[r * p->in + i] * w[i / 4 * 4 * INT8_PANEL + i % 4];
            double y = act_of((double)sum * p->x_scale[r] * p->w_scale[o] + p->bias[o], p->act);
            p->y[r * p->ldy + o] = (float)(y + (p->residual ? p->residual[r * p->ldy + o] : 0));
        }
}
