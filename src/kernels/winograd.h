/* winograd.h - inside src/kernels: 3x3 convolutions by Winograd's method, for conv.c. */
#ifndef KERNELS_WINOGRAD_H
#define KERNELS_WINOGRAD_H

#include "kernels/gemm.h"

typedef struct winograd_weights winograd_weights;

/* Is a convolution of that shape faster this way than through oneDNN here? */
bool winograd_pays(const conv_shape *s, bool bf16);
/* As conv_pack and what belongs to it. */
winograd_weights *winograd_pack(const float *w, const float *bias, const conv_shape *s, bool bf16);
void   winograd_free(winograd_weights *w);
size_t winograd_bytes(const winograd_weights *w);
bool   winograd_conv(const winograd_weights *w, float *y, const float *x, int64_t batch, int64_t height, int64_t width);

#endif
