/* tile.h - the inner loop of attention: a small matrix product whose sums stay in registers.
 *
 * out[r, c] = scale[r] out[r, c] + sum_k a[r, k] b[k, c] for TILE_ROWS rows and `vecs` registers of columns; without
 * scale the old values are not read. a is read one value at a time, b a register at a time. top, unless NULL, holds VL
 * values per row that are raised to the largest sums, lane by lane.
 */
#ifndef KERNELS_X86_TILE_H
#define KERNELS_X86_TILE_H

#include "kernels/simd/vec.h"

#if defined(__AVX512F__)
enum { TILE_ROWS = 6, TILE_VECS = 4 };      /* 24 of 32 registers hold sums */
#else
enum { TILE_ROWS = 6, TILE_VECS = 2 };      /* 12 of 16 */
#endif

enum { PANEL = TILE_VECS * VL };            /* columns side by side in a packed panel */

INLINE void tile_of(int vecs, float *out, int64_t ldo, const float *a, int64_t lda, const float *b, int64_t ldb,
                    int64_t n, const float *scale, float *top)
{
    vec sum[TILE_ROWS][TILE_VECS];

    for (int r = 0; r < TILE_ROWS; r++)
        for (int c = 0; c < vecs; c++)
            sum[r][c] = scale ? v_mul(v_set(scale[r]), v_load(out + r * ldo + c * VL)) : v_zero();
    for (int64_t k = 0; k < n; k++) {
        vec column[TILE_VECS];
        for (int c = 0; c < vecs; c++)
            column[c] = v_load(b + k * ldb + c * VL);
        for (int r = 0; r < TILE_ROWS; r++) {
            vec x = v_set(a[r * lda + k]);
            for (int c = 0; c < vecs; c++)
                sum[r][c] = v_fma(x, column[c], sum[r][c]);
        }
    }
    for (int r = 0; r < TILE_ROWS; r++) {
        vec m = top ? v_load(top + r * VL) : v_zero();
        for (int c = 0; c < vecs; c++) {
            v_store(out + r * ldo + c * VL, sum[r][c]);
            m = v_max(m, sum[r][c]);
        }
        if (top)
            v_store(top + r * VL, m);
    }
}

/* 1 <= vecs <= TILE_VECS */
INLINE void tile(int64_t vecs, float *out, int64_t ldo, const float *a, int64_t lda, const float *b, int64_t ldb,
                 int64_t n, const float *scale, float *top)
{
    switch (vecs) {
    case 1: tile_of(1, out, ldo, a, lda, b, ldb, n, scale, top); break;
    case 2: tile_of(2, out, ldo, a, lda, b, ldb, n, scale, top); break;
#if defined(__AVX512F__)
    case 3: tile_of(3, out, ldo, a, lda, b, ldb, n, scale, top); break;
    default: tile_of(4, out, ldo, a, lda, b, ldb, n, scale, top); break;
#else
    default: break;
#endif
    }
}

#endif
