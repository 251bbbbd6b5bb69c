/* int8_tile.h - products of 8-bit rows with panels of 8-bit weights; sums stay in registers and end in f32.
 *
 * Written once over dot4(), which adds four products per lane: one instruction with VNNI, three without. Sums are
 * integers in registers typed as f32, and loops are unrolled by order: otherwise gcc 12 keeps them in memory.
 */
#ifndef KERNELS_X86_INT8_TILE_H
#define KERNELS_X86_INT8_TILE_H

#include "kernels/kernels.h"
#include "kernels/simd/vec.h"

#if defined(__AVX512VNNI__)
typedef __m512i veci;
enum { INT8_ROWS = 6, INT8_VECS = 4 };      /* 24 of 32 registers hold sums */
INLINE veci i_set(int32_t x) { return _mm512_set1_epi32(x); }
INLINE veci i_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE veci i_sub(veci a, veci b) { return _mm512_sub_epi32(a, b); }
INLINE veci i_mul(veci a, veci b) { return _mm512_mullo_epi32(a, b); }
INLINE vec i_float(veci a) { return _mm512_cvtepi32_ps(a); }
INLINE vec dot4(vec sum, veci x, veci w) { return (vec)_mm512_dpbusd_epi32((veci)sum, x, w); }
#else
typedef __m256i veci;
enum { INT8_ROWS = 4, INT8_VECS = 2 };      /* 8 of 16 */
INLINE veci i_set(int32_t x) { return _mm256_set1_epi32(x); }
INLINE veci i_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE veci i_sub(veci a, veci b) { return _mm256_sub_epi32(a, b); }
INLINE veci i_mul(veci a, veci b) { return _mm256_mullo_epi32(a, b); }
INLINE vec i_float(veci a) { return _mm256_cvtepi32_ps(a); }
/* |w| <= 63 keeps the 16-bit sums of two products in range. */
INLINE vec dot4(vec sum, veci x, veci w)
{
    return (vec)_mm256_add_epi32((veci)sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), _mm256_set1_epi16(1)));
}
#endif

enum { INT8_COLUMNS = INT8_VECS * VL, INT8_BLOCK_BYTES = 384 << 10, INT8_BLOCK_ROWS = 288 };

INLINE int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* VL outputs of row r from column c on, of which n exist. */
INLINE void finish(const int8_product *p, int64_t r, int64_t c, veci sum, int n)
{
    float *out = p->y + r * p->ldy + c;
    vec y;

    sum = i_sub(sum, i_mul(i_set(p->x_zero[r]), i_load(p->w_sum + c)));
    y = v_mul(i_float(sum), v_mul(v_set(p->x_scale[r]), v_load(p->w_scale + c)));
    y = v_add(y, v_load(p->bias + c));
    if (p->act == ACT_RELU)
        y = v_max(v_zero(), y);
    else if (p->act == ACT_GELU)
        y = v_gelu_coarse(y);
    else if (p->act == ACT_SIGMOID)
        y = v_div(v_set(1), v_add(v_set(1), v_exp(v_sub(v_zero(), y))));
    if (n == VL) {
        v_store(out, p->residual ? v_add(y, v_load(p->residual + r * p->ldy + c)) : y);
    } else {
        if (p->residual)
            y = v_add(y, v_load_n(p->residual + r * p->ldy + c, n));
        v_store_n(out, y, n);
    }
}

/* out[INT8_ROWS][INT8_COLUMNS] = the sums of INT8_ROWS rows of x with a panel. */
static __attribute__((noinline)) void int8_sums(int32_t *out, const uint8_t *const *x, const int8_t *w, int64_t in)
{
    vec sum[INT8_ROWS][INT8_VECS];

    UNROLL
    for (int i = 0; i < INT8_ROWS; i++)
        UNROLL
        for (int v = 0; v < INT8_VECS; v++)
            sum[i][v] = v_zero();
    for (int64_t k = 0; k < in; k += 4) {
        veci column[INT8_VECS];
        UNROLL
        for (int v = 0; v < INT8_VECS; v++)
            column[v] = i_load(w + k * INT8_PANEL + v * VL * 4);
        UNROLL
        for (int i = 0; i < INT8_ROWS; i++) {
            int32_t four;
            __builtin_memcpy(&four, x[i] + k, sizeof four);
            UNROLL
            for (int v = 0; v < INT8_VECS; v++)
                sum[i][v] = dot4(sum[i][v], i_set(four), column[v]);
        }
    }
    UNROLL
    for (int i = 0; i < INT8_ROWS; i++)
        UNROLL
        for (int v = 0; v < INT8_VECS; v++)
            v_store((float *)out + i * INT8_COLUMNS + v * VL, sum[i][v]);
}

/* Up to INT8_ROWS rows from r on with the INT8_COLUMNS outputs from c on. Missing rows repeat the last one. */
INLINE void int8_tile(const int8_product *p, int64_t r, int64_t rows, int64_t c)
{
    const uint8_t *x[INT8_ROWS];
    int32_t sum[INT8_ROWS * INT8_COLUMNS] __attribute__((aligned(64)));

    for (int i = 0; i < INT8_ROWS; i++)
        x[i] = p->x + (r + smaller(i, rows - 1)) * p->in;
    int8_sums(sum, x, p->w + c / INT8_PANEL * INT8_PANEL * p->in + c % INT8_PANEL * 4, p->in);
    for (int i = 0; i < INT8_ROWS && i < rows; i++)
        for (int v = 0; v < INT8_VECS && c + v * VL < p->out; v++)
            finish(p, r + i, c + v * VL, i_load(sum + i * INT8_COLUMNS + v * VL),
                   (int)smaller(VL, p->out - c - v * VL));
}

/* Blocks of rows that stay in the second-level cache, each with one panel of weights. */
INLINE void int8_blocks(const int8_product *p)
{
    int64_t panels = (p->out + INT8_PANEL - 1) / INT8_PANEL, block = INT8_BLOCK_BYTES / p->in;

    block = smaller(block < INT8_ROWS ? INT8_ROWS : block, INT8_BLOCK_ROWS) / INT8_ROWS * INT8_ROWS;
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t item = 0; item < (p->rows + block - 1) / block * panels; item++) {
        int64_t first = item / panels * block, end = smaller(first + block, p->rows);
        int64_t left = item % panels * INT8_PANEL, right = smaller(left + INT8_PANEL, p->out);
        for (int64_t c = left; c < right; c += INT8_COLUMNS)
            for (int64_t r = first; r < end; r += INT8_ROWS)
                int8_tile(p, r, smaller(INT8_ROWS, end - r), c);
    }
}

#endif
