/* ref.h - the slots of the reference level. */
#ifndef KERNELS_REF_H
#define KERNELS_REF_H

#include "kernels/kernels.h"

void ref_add(float *y, const float *a, const float *b, int64_t n, int64_t period);
void ref_softmax(float *y, const float *x, int64_t rows, int64_t cols);
void ref_axpy(float *y, const float *x, float s, int64_t n);
void ref_activate(float *y, const float *x, activation act, int64_t n);
void ref_activate_backward(float *dx, const float *dy, const float *x, activation act, int64_t n);
void ref_to_bf16(uint16_t *y, const float *x, int64_t n);
void ref_activate_to_bf16(uint16_t *y, const float *x, activation act, int64_t n);
void ref_from_bf16(float *y, const uint16_t *x, int64_t n);
void ref_from_f16(float *y, const uint16_t *x, int64_t n);
void ref_column_sums(float *y, const float *x, int64_t rows, int64_t cols, int64_t stride);
void ref_norm(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift, int64_t rows,
              int64_t cols, float eps);
void ref_norm_backward(float *dx, float *dgain, float *dshift, const float *dy, const float *x, const float *mean,
                       const float *rstd, const float *gain, int64_t rows, int64_t cols);
void ref_group_norm(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift,
                    int64_t batch, int64_t pixels, int64_t channels, int64_t groups, float eps, bool relu);
void ref_attention(const attention_args *a);
void ref_attention_backward(const attention_args *a, const attention_grads *g);
void ref_quantize(uint8_t *y, int64_t ldy, float *scale, int32_t *zero, const float *x, int64_t ldx, int64_t rows,
                  int64_t cols);
void ref_winograd(const winograd_args *a);
void ref_product_int8(const int8_product *p);

#endif
