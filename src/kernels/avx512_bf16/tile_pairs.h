/* tile_pairs.h - the inner loop of attention and convolution in bf16: as x86/tile.h, two products per lane at a time. */
#ifndef KERNELS_AVX512_BF16_TILE_PAIRS_H
#define KERNELS_AVX512_BF16_TILE_PAIRS_H

#include "kernels/x86/tile.h"

/* As tile_of() of x86/tile.h, with pairs: n of them in a row of a; b has `ldb` pairs per row. */
INLINE void tile_of_pairs(int vecs, float *out, int64_t ldo, const uint32_t *a, int64_t lda, const uint32_t *b,
                          int64_t ldb, int64_t n, const float *scale, float *top)
{
    vec sum[TILE_ROWS][TILE_VECS];

    for (int r = 0; r < TILE_ROWS; r++)
        for (int c = 0; c < vecs; c++)
            sum[r][c] = scale ? v_mul(v_set(scale[r]), v_load(out + r * ldo + c * VL)) : v_zero();
    for (int64_t k = 0; k < n; k++) {
        __m512i column[TILE_VECS];
        for (int c = 0; c < vecs; c++)
            column[c] = _mm512_loadu_si512(b + k * ldb + c * VL);
        for (int r = 0; r < TILE_ROWS; r++) {
            __m512i x = _mm512_set1_epi32((int)a[r * lda + k]);
            for (int c = 0; c < vecs; c++)
                sum[r][c] = _mm512_dpbf16_ps(sum[r][c], (__m512bh)x, (__m512bh)column[c]);
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

INLINE void tile_pairs(int64_t vecs, float *out, int64_t ldo, const uint32_t *a, int64_t lda, const uint32_t *b,
                       int64_t ldb, int64_t n, const float *scale, float *top)
{
    switch (vecs) {
    case 1: tile_of_pairs(1, out, ldo, a, lda, b, ldb, n, scale, top); break;
    case 2: tile_of_pairs(2, out, ldo, a, lda, b, ldb, n, scale, top); break;
    case 3: tile_of_pairs(3, out, ldo, a, lda, b, ldb, n, scale, top); break;
    default: tile_of_pairs(4, out, ldo, a, lda, b, ldb, n, scale, top); break;
    }
}

/* Values of a row as pairs; dim is a multiple of 16. */
INLINE void narrow_row(uint32_t *to, const float *row, int64_t dim)
{
    for (int64_t d = 0; d < dim; d += 16)
        _mm256_storeu_si256((__m256i *)(to + d / 2), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(row + d)));
}

#endif
