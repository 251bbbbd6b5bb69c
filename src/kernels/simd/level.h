/* level.h - names of this level's slots: the files of simd/ and x86/ are compiled once per instruction set. */
#ifndef KERNELS_SIMD_LEVEL_H
#define KERNELS_SIMD_LEVEL_H

#include "kernels/kernels.h"

#if defined(__AVX512F__)
#define LEVEL(name) avx512_##name
#else
#define LEVEL(name) avx2_##name
#endif

void LEVEL(add)(float *y, const float *a, const float *b, int64_t n, int64_t period);
void LEVEL(axpy)(float *y, const float *x, float s, int64_t n);
void LEVEL(activate)(float *y, const float *x, activation act, int64_t n);
void LEVEL(activate_backward)(float *dx, const float *dy, const float *x, activation act, int64_t n);
void LEVEL(to_bf16)(uint16_t *y, const float *x, int64_t n);
void LEVEL(activate_to_bf16)(uint16_t *y, const float *x, activation act, int64_t n);
void LEVEL(from_bf16)(float *y, const uint16_t *x, int64_t n);
void LEVEL(from_f16)(float *y, const uint16_t *x, int64_t n);
void LEVEL(quantize)(uint8_t *y, int64_t ldy, float *scale, int32_t *zero, const float *x, int64_t ldx, int64_t rows,
                     int64_t cols);
void LEVEL(product_int8)(const int8_product *p);
void LEVEL(column_sums)(float *y, const float *x, int64_t rows, int64_t cols, int64_t stride);
void LEVEL(norm)(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift,
                 int64_t rows, int64_t cols, float eps);
void LEVEL(norm_backward)(float *dx, float *dgain, float *dshift, const float *dy, const float *x, const float *mean,
                          const float *rstd, const float *gain, int64_t rows, int64_t cols);
void LEVEL(group_norm)(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift,
                       int64_t batch, int64_t pixels, int64_t channels, int64_t groups, float eps, bool relu);
void LEVEL(attention)(const attention_args *a);
void LEVEL(winograd)(const winograd_args *a);
void LEVEL(attention_backward)(const attention_args *a, const attention_grads *g);

#endif
