/* attention_tools.h - what attention's forward and backward share: packing, rotation, bias. */
#ifndef KERNELS_X86_ATTENTION_TOOLS_H
#define KERNELS_X86_ATTENTION_TOOLS_H

#include <math.h>
#include <string.h>

#include "kernels/attention_layout.h"
#include "kernels/simd/level.h"
#include "kernels/x86/tile.h"

#define LOG2_E 1.44269504f
#define LN_2 0.69314718f

enum { TASK_ROWS = 48 };        /* a thread works on at most so many queries (or, in backward, keys) of one slice */

INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Rows per task: tasks of about the same size, whole tiles. */
INLINE int64_t task_rows(int64_t n)
{
    int64_t tasks = (n + TASK_ROWS - 1) / TASK_ROWS;

    return n < 1 ? 1 : ((n + tasks - 1) / tasks + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
}

/* y = factor x, the pairs turned by the angles of `t` unless NULL. dim is a multiple of 8. */
INLINE void turn(float *y, const float *x, const float *t, float factor, int64_t dim)
{
    __m256 f = _mm256_set1_ps(factor);

    for (int64_t d = 0; d < dim; d += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + d), f);
        if (t) {
            __m256 angle = _mm256_loadu_ps(t + d), swapped = _mm256_permute_ps(v, 0xb1);
            v = _mm256_fmaddsub_ps(v, _mm256_moveldup_ps(angle), _mm256_mul_ps(swapped, _mm256_movehdup_ps(angle)));
        }
        _mm256_storeu_ps(y + d, v);
    }
}

/* y += factor x, the pairs turned back. */
INLINE void turn_back(float *y, const float *x, const float *t, float factor, int64_t dim)
{
    __m256 f = _mm256_set1_ps(factor);

    for (int64_t d = 0; d < dim; d += 8) {
        __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + d), f);
        if (t) {
            __m256 angle = _mm256_loadu_ps(t + d), swapped = _mm256_permute_ps(v, 0xb1);
            v = _mm256_fmsubadd_ps(v, _mm256_moveldup_ps(angle), _mm256_mul_ps(swapped, _mm256_movehdup_ps(angle)));
        }
        _mm256_storeu_ps(y + d, _mm256_add_ps(_mm256_loadu_ps(y + d), v));
    }
}

INLINE const float *angles(const attention_args *a, int64_t row, int64_t limit)
{
    return a->rope && row < limit ? a->rope + row % a->rope_rows * a->dim : NULL;
}

/* to[c * ldt + r] = from[r * ldf + c] for r, c = 0..7 */
INLINE void transpose8(float *to, int64_t ldt, const float *from, int64_t ldf)
{
    __m256 r[8], t[8];

    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps(from + i * ldf);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(to + i * ldt, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(to + (i + 4) * ldt, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

/* Adds the bias of one query to its scores with keys first..first+n-1. */
INLINE void add_bias(float *s, const float *bias, const attention_args *a, int64_t first, int64_t n)
{
    for (int64_t j = 0; j < n;) {
        int64_t x = (first + j) % a->grid_w, run = least(a->grid_w - x, n - j), i = 0;
        vec y = v_set(bias[a->grid_w + (first + j) / a->grid_w]);
        for (; i + VL <= run; i += VL)
            v_store(s + j + i, v_add(v_load(s + j + i), v_add(v_load(bias + x + i), y)));
        if (i < run) {
            int rest = (int)(run - i);
            v_store_n(s + j + i, v_add(v_load_n(s + j + i, rest), v_add(v_load_n(bias + x + i, rest), y)), rest);
        }
        j += run;
    }
}

#endif
