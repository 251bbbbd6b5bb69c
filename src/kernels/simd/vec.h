/* vec.h - one register of f32 of the instruction set compiled for, and the functions that kernels are written in.
 *
 * VL lanes. `n` in v_load_n, v_store_n, v_first is 1..VL; lanes beyond are zero and memory beyond is neither read nor
 * written.
 * A NaN comes through v_max and v_min when it is the second argument.
 */
#ifndef KERNELS_SIMD_VEC_H
#define KERNELS_SIMD_VEC_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline, unused))

/* In front of a loop over an array of registers that must not end up in memory. */
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

#if defined(__AVX512F__)

typedef __m512 vec;
enum { VL = 16 };

INLINE vec v_set(float x) { return _mm512_set1_ps(x); }
INLINE vec v_zero(void) { return _mm512_setzero_ps(); }
INLINE vec v_load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void v_store(float *p, vec x) { _mm512_storeu_ps(p, x); }
INLINE vec v_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps((__mmask16)(0xffffu >> (16 - n)), p); }
INLINE void v_store_n(float *p, vec x, int n) { _mm512_mask_storeu_ps(p, (__mmask16)(0xffffu >> (16 - n)), x); }
INLINE vec v_first(vec x, int n) { return _mm512_maskz_mov_ps((__mmask16)(0xffffu >> (16 - n)), x); }
INLINE vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
INLINE vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
INLINE vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
INLINE vec v_div(vec a, vec b) { return _mm512_div_ps(a, b); }
INLINE vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vec v_fnma(vec a, vec b, vec c) { return _mm512_fnmadd_ps(a, b, c); }      /* c - a b */
INLINE vec v_max(vec a, vec b) { return _mm512_max_ps(a, b); }
INLINE vec v_min(vec a, vec b) { return _mm512_min_ps(a, b); }
INLINE vec v_abs(vec a) { return _mm512_abs_ps(a); }
INLINE vec v_round(vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE float v_sum(vec a) { return _mm512_reduce_add_ps(a); }
INLINE float v_top(vec a) { return _mm512_reduce_max_ps(a); }
/* a where x is below zero or NaN, else b */
INLINE vec v_if_negative(vec x, vec a, vec b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NGE_UQ), b, a);
}
/* a where x is not zero (NaN too), else b */
INLINE vec v_if(vec x, vec a, vec b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ), b, a);
}
/* p 2^n for integral n; exact underflow to zero and overflow to infinity */
INLINE vec v_scale2(vec p, vec n) { return _mm512_scalef_ps(p, n); }

#else

typedef __m256 vec;
enum { VL = 8 };

INLINE __m256i v_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vec v_set(float x) { return _mm256_set1_ps(x); }
INLINE vec v_zero(void) { return _mm256_setzero_ps(); }
INLINE vec v_load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void v_store(float *p, vec x) { _mm256_storeu_ps(p, x); }
INLINE vec v_load_n(const float *p, int n) { return _mm256_maskload_ps(p, v_lanes(n)); }
INLINE void v_store_n(float *p, vec x, int n) { _mm256_maskstore_ps(p, v_lanes(n), x); }
INLINE vec v_first(vec x, int n) { return _mm256_and_ps(x, _mm256_castsi256_ps(v_lanes(n))); }
INLINE vec v_add(vec a, vec b) { return _mm256_add_ps(a, b); }
INLINE vec v_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
INLINE vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
INLINE vec v_div(vec a, vec b) { return _mm256_div_ps(a, b); }
INLINE vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vec v_fnma(vec a, vec b, vec c) { return _mm256_fnmadd_ps(a, b, c); }
INLINE vec v_max(vec a, vec b) { return _mm256_max_ps(a, b); }
INLINE vec v_min(vec a, vec b) { return _mm256_min_ps(a, b); }
INLINE vec v_abs(vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE vec v_round(vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE float v_sum(vec a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
INLINE float v_top(vec a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}
INLINE vec v_if_negative(vec x, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NGE_UQ));
}
INLINE vec v_if(vec x, vec a, vec b)
{
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NEQ_UQ));
}
/* |n| <= 252: in two halves, so that neither factor leaves the range of exponents. */
INLINE vec v_scale2(vec p, vec n)
{
    __m256i i = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(i, 1), one = _mm256_set1_epi32(127);
    vec a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23));
    vec b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(i, half), one), 23));

    return _mm256_mul_ps(_mm256_mul_ps(p, a), b);
}

#endif

/* 2^x for x up to 1, to 1.5e-7 (relative); 0 below -126; NaN stays NaN. The cheap one, for softmax. */
INLINE vec v_exp2_weight(vec x)
{
    vec t = v_max(v_set(-160), x), n = v_round(t), r = v_sub(t, n);
    vec p = v_fma(r, v_set(1.32647273e-3f), v_set(9.67151289e-3f));

    p = v_fma(r, p, v_set(5.55073374e-2f));
    p = v_fma(r, p, v_set(0.240222424f));
    p = v_fma(r, p, v_set(0.693147005f));
    p = v_fma(r, p, v_set(1));
#if defined(__AVX512F__)
    return v_scale2(p, n);
#else
    __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    vec y = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));

    return _mm256_and_ps(y, _mm256_cmp_ps(t, v_set(-126), _CMP_NLT_UQ));
#endif
}

/* e^x to 1e-7 (relative): the fraction of x / ln 2 is taken in two steps to keep its last bits. */
INLINE vec v_exp(vec x)
{
    vec t = v_min(v_set(90), v_max(v_set(-110), x)), n = v_round(v_mul(t, v_set(1.44269504f)));
    vec r = v_fnma(n, v_set(1.4286068e-6f), v_fnma(n, v_set(0.693145752f), t));
    vec p = v_fma(r, v_set(1.3863727e-3f), v_set(8.367543e-3f));

    p = v_fma(r, p, v_set(4.166724e-2f));
    p = v_fma(r, p, v_set(0.16666533f));
    p = v_fma(r, p, v_set(0.5f));
    p = v_fma(r, p, v_set(1));
    return v_scale2(v_fma(r, p, v_set(1)), n);
}

/* x Phi(x) of the normal distribution, and its slope. Phi comes from the complementary error function as e^(-u^2) times
 * a polynomial in 1 / (1 + 0.47 u), u = |x| / sqrt(2), which keeps the tail accurate. 1e-7 (absolute for |x| < 1). */
INLINE vec v_gelu(vec x, vec *slope)
{
    vec a = v_abs(x), t = v_div(v_set(1), v_fma(a, v_set(0.47f * 0.70710678f), v_set(1)));
    vec bell = v_exp(v_mul(v_mul(x, x), v_set(-0.5f)));
    vec p = v_fma(t, v_set(0.08842687f), v_set(-0.42045674f)), half, phi;

    p = v_fma(t, p, v_set(0.6076523f));
    p = v_fma(t, p, v_set(-0.1262011f));
    p = v_fma(t, p, v_set(0.33625534f));
    p = v_fma(t, p, v_set(0.24801442f));
    p = v_fma(t, p, v_set(0.26630887f));
    half = v_mul(v_mul(v_mul(t, p), bell), v_set(0.5f));
    phi = v_if_negative(x, half, v_sub(v_set(1), half));
    if (slope)
        *slope = v_fma(v_mul(x, bell), v_set(0.39894228f), phi);
    return v_mul(x, phi);
}

/* The same to 5e-5 of max(1, |x|), for what is rounded to 8 bits anyway: Phi is 1/2 plus an odd polynomial up to 4. */
INLINE vec v_gelu_coarse(vec x)
{
    vec a = v_max(v_set(-4), v_min(v_set(4), x)), u = v_mul(a, a);
    vec p = v_fma(u, v_set(-1.3012912e-9f), v_set(1.0419584e-7f));

    p = v_fma(u, p, v_set(-3.6571279e-6f));
    p = v_fma(u, p, v_set(7.4854983e-5f));
    p = v_fma(u, p, v_set(-1.006489959e-3f));
    p = v_fma(u, p, v_set(9.505396656e-3f));
    p = v_fma(u, p, v_set(-6.588784004e-2f));
    p = v_fma(u, p, v_set(0.3986733922f));
    return v_mul(x, v_fma(a, p, v_set(0.5f)));
}

#endif
