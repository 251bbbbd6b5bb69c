/* int8.c - rows as 8-bit numbers, and (AVX2) their product with 8-bit weights. */
#include "kernels/simd/level.h"
#include "kernels/simd/vec.h"
#if !defined(__AVX512F__)
#include "kernels/x86/int8_tile.h"
#endif

/* Least, largest, and a sum that is NaN when one of the values is not finite. */
typedef struct range { float low, high, trouble; } range;

static range range_of(const float *x, int64_t n)
{
    vec low = v_zero(), high = v_zero(), trouble = v_zero(), v;
    int64_t i = 0;

    for (; i + VL <= n; i += VL) {
        v = v_load(x + i);
        low = v_min(low, v);
        high = v_max(high, v);
        trouble = v_fma(v, v_zero(), trouble);
    }
    if (i < n) {
        v = v_load_n(x + i, (int)(n - i));
        low = v_min(low, v);
        high = v_max(high, v);
        trouble = v_fma(v, v_zero(), trouble);
    }
    return (range){-v_top(v_sub(v_zero(), low)), v_top(high), v_sum(trouble)};
}

/* VL values as bytes: x steps rounded, plus zero, within 0..255. */
INLINE void store_bytes(uint8_t *y, vec x, vec steps, int32_t zero)
{
#if defined(__AVX512F__)
    __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_mul_ps(x, steps)), _mm512_set1_epi32(zero));
    _mm_storeu_si128((__m128i *)y, _mm512_cvtusepi32_epi8(_mm512_max_epi32(q, _mm512_setzero_si512())));
#else
    __m256i q = _mm256_add_epi32(_mm256_cvtps_epi32(_mm256_mul_ps(x, steps)), _mm256_set1_epi32(zero));
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(q), _mm256_extracti128_si256(q, 1));
    _mm_storel_epi64((__m128i *)y, _mm_packus_epi16(words, words));
#endif
}

static void quantize_row(uint8_t *y, int64_t ldy, float *scale, int32_t *zero, const float *x, int64_t cols)
{
    range all = range_of(x, cols);
    float steps = all.high > all.low ? 255 / (all.high - all.low) : 0;
    int64_t c = 0;

    *scale = (all.high - all.low) / 255 + all.trouble;
    *zero = all.trouble == 0 ? _mm_cvtss_si32(_mm_set_ss(-all.low * steps)) : 0;
    for (; c + VL <= cols; c += VL)
        store_bytes(y + c, v_load(x + c), v_set(steps), *zero);
    if (c < cols) {
        uint8_t rest[VL];
        store_bytes(rest, v_load_n(x + c, (int)(cols - c)), v_set(steps), *zero);
        __builtin_memcpy(y + c, rest, (size_t)(cols - c));
        c = cols;
    }
    for (; c < ldy; c++)
        y[c] = 0;
}

void LEVEL(quantize)(uint8_t *y, int64_t ldy, float *scale, int32_t *zero, const float *x, int64_t ldx, int64_t rows,
                     int64_t cols)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        quantize_row(y + r * ldy, ldy, scale + r, zero + r, x + r * ldx, cols);
}

#if !defined(__AVX512F__)
void LEVEL(product_int8)(const int8_product *p)
{
    int8_blocks(p);
}
#endif
