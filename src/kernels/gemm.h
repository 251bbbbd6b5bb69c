/* gemm.h - matrix products and convolutions, through oneDNN with weights packed once.
 *
 * A `gemm_weights` is immutable after packing and may be used by several threads at once. Results do not depend on the
 * number of threads (one exception: with AMX and 16 threads or more oneDNN splits long bf16 sums). `rows` may differ
 * from call to call (plans are cached inside, under a lock).
 */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

#include "kernels/kernels.h"

/* Arithmetic of the inputs. Sums are f32, in int8 exact. INT8: weights get a scale per output, rows of x are quantised
 * as they come; convolutions of that type are computed in bf16. */
typedef enum gemm_type { GEMM_F32, GEMM_BF16, GEMM_INT8 } gemm_type;

typedef struct gemm_weights gemm_weights;

/* y[r, o] = act(sum_i x[r, i] w[o, i] + bias[o]) + residual[r, o].
 * Packs w [out, in] with row stride ld (f32); bias [out] or NULL is copied. NULL: out of memory or oneDNN refused. */
gemm_weights *gemm_pack(const float *w, const float *bias, int64_t out, int64_t in, int64_t ld, gemm_type type);
/* Rows in 8 bits, for files: w[r, i] = q[r, i] scale[r] within half a step, the largest of each row 127 or -127 and every
 * scale above 0. gemm_pack_rows8 packs them for GEMM_INT8, as they are where the CPU multiplies all 8 bits: to the same bits
 * as gemm_pack makes of w there. NULL also where gemm_has(GEMM_INT8) is false. */
void          gemm_quantize_rows(int8_t *q, float *scale, const float *w, int64_t rows, int64_t cols);
gemm_weights *gemm_pack_rows8(const int8_t *q, const float *scale, const float *bias, int64_t out, int64_t in);
void          gemm_weights_free(gemm_weights *w);
size_t        gemm_weights_bytes(const gemm_weights *w);
gemm_type     gemm_type_of(const gemm_weights *w);       /* as computed here */
/* Packed weights in a file, for this library version, processor and type only: the pieces of one matrix, and the same from
 * their bytes one after the other, 64-byte aligned, which must stay and are not copied. NULL also when the size is not
 * what packing makes here. `bias`: the matrix has one. */
#define GEMM_PIECES 2
typedef struct gemm_piece { const void *data; size_t bytes; } gemm_piece;
int           gemm_pieces(const gemm_weights *w, gemm_piece *out);
gemm_weights *gemm_adopt(const void *stored, size_t bytes, bool bias, int64_t out, int64_t in, gemm_type type);
/* x: row stride ldx >= in. y and residual: row stride ldy >= out; y may be `residual`, never x. residual may be NULL.
 * Rows without gaps are faster: with AVX-512 others are copied. GEMM_BF16 is computed in f32 where the CPU has no bf16, GEMM_INT8
 * where it has no AVX2.
 * `scratch`: gemm_scratch(w, rows) bytes (0 for f32). false: oneDNN failed (out of memory). */
bool   gemm_run(const gemm_weights *w, float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, activation act,
                const float *residual, void *scratch);
size_t gemm_scratch(const gemm_weights *w, int64_t rows);

/* The same in two steps, the first of which puts the rows of x into the form that `w` multiplies: f32, bf16 or 8 bits. On
 * the way there may be a LayerNorm (gain not NULL; then `in` is at most GEMM_NORM_MOST) or an activation. `made` has room
 * for gemm_rows_bytes(w, rows). Returns `made`, or x where nothing has to be done. */
enum { GEMM_NORM_MOST = 16384 };
typedef struct gemm_source {
    const float *x;
    int64_t      ldx;
    const float *gain, *shift;  /* [in], or NULL */
    float        eps;
    activation   act;           /* not with gain; GELU within 1e-4 in bf16 */
} gemm_source;
size_t      gemm_rows_bytes(const gemm_weights *w, int64_t rows);
const void *gemm_rows_make(const gemm_weights *w, void *made, const gemm_source *s, int64_t rows);
bool        gemm_run_rows(const gemm_weights *w, float *y, int64_t ldy, const void *made, int64_t rows, activation act,
                          const float *residual);
/* Is an activation cheaper on the way to the next product than in this one? */
bool        gemm_act_later(const gemm_weights *next);

/* Plain product without packing: c = alpha op(a) op(b) + beta c; op transposes when asked. c is m x n, inner side k. */
bool gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
          const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* The same of bf16 numbers with f32 sums: c = op(a) op(b) + (add ? c : 0). Only where gemm_has(GEMM_BF16). */
bool gemm_bf16(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
               const uint16_t *b, int64_t ldb, bool add, float *c, int64_t ldc);

/* Convolution, channels last: x [batch, h, w, in] -> y [batch, oh, ow, out]; w [out, in / groups, kernel, kernel] as
 * PyTorch stores it. Square kernel, zero padding on all sides, oh = (h + 2 pad - kernel) / stride + 1. */
typedef struct conv_shape { int64_t in, out, kernel, stride, pad, groups; } conv_shape;
typedef struct conv_weights conv_weights;

conv_weights *conv_pack(const float *w, const float *bias, const conv_shape *s, gemm_type type);
void          conv_weights_free(conv_weights *w);
size_t        conv_weights_bytes(const conv_weights *w);
bool conv_run(const conv_weights *w, float *y, const float *x, int64_t batch, int64_t height, int64_t width,
              activation act);
/* dx (may be NULL) is overwritten; dw and dbias (may be NULL) are added to. Unpacked weights as above. GEMM_BF16 is for
 * convolutions without groups and with stride 1 whose output is as large as the input; others are computed in f32. */
bool conv_backward(float *dx, float *dw, float *dbias, const float *dy, const float *x, const float *w,
                   const conv_shape *s, int64_t batch, int64_t height, int64_t width, gemm_type type);

/* Does this CPU compute that type faster than f32? Others work, in f32. */
bool gemm_has(gemm_type type);
/* The fastest type here; int8 only if it may be, and not where bf16 is computed in tiles (AMX), which is faster. */
gemm_type gemm_fastest(bool int8);

/* "oneDNN 2.6.3" */
const char *gemm_library(void);

/* GFLOP/s that this machine reaches on a 4096 x 4096 x 1024 product (best of a few runs): the roofline of `bench`. */
double gemm_rate(gemm_type type);

#endif
