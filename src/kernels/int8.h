/* int8.h - inside src/kernels: matrices of 8-bit weights, for gemm.c. */
#ifndef KERNELS_INT8_H
#define KERNELS_INT8_H

#include "kernels/kernels.h"

typedef struct int8_weights int8_weights;

/* As gemm_pack and what belongs to it. */
int8_weights *int8_pack(const float *w, const float *bias, int64_t out, int64_t in, int64_t ld);
/* The same from gemm_pack_rows8's arguments. */
int8_weights *int8_pack_rows(const int8_t *q, const float *scale, const float *bias, int64_t out, int64_t in);
int8_weights *int8_adopt(const void *stored, size_t bytes, int64_t out, int64_t in);
const void   *int8_data(const int8_weights *w);
void          int8_free(int8_weights *w);
size_t        int8_bytes(const int8_weights *w);
size_t        int8_scratch(const int8_weights *w, int64_t rows);
/* Quantises rows first..first+count of `rows` to `scratch`; then all of them are multiplied. */
void          int8_make(const int8_weights *w, void *scratch, const float *x, int64_t ldx, int64_t rows, int64_t first,
                        int64_t count);
void          int8_run(const int8_weights *w, float *y, int64_t ldy, const void *scratch, int64_t rows, activation act,
                       const float *residual);

#endif
