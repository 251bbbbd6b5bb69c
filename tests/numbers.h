/* numbers.h - for tests of arithmetic: reproducible numbers, guarded outputs, comparison with a reference. */
#ifndef TESTS_NUMBERS_H
#define TESTS_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 32 };                    /* floats before and after an output that must stay as they were */
#define GUARD_VALUE (-12345.5f)

/* About normal, mean 0.1; the same for the same seed. */
static inline void fill_random(float *p, int64_t n, uint64_t seed)
{
    uint64_t s = seed * 0x9e3779b97f4a7c15u + 1;

    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 3; k++) {
            s = s * 6364136223846793005u + 1442695040888963407u;
            sum += (float)(s >> 40) / (1 << 24) - 0.5f;
        }
        p[i] = 2 * sum + 0.1f;
    }
}

/* n values that start `offset` floats after an aligned address. Free with drop(p, offset). */
static inline float *random_floats(int64_t n, int offset, uint64_t seed)
{
    float *p = aligned_alloc(64, ((size_t)(n + offset) * sizeof *p + 63) / 64 * 64);

    if (!p)
        abort();
    fill_random(p + offset, n, seed);
    return p + offset;
}

static inline void drop(float *p, int offset)
{
    if (p)
        free(p - offset);
}

/* As random_floats, with guards on both sides. */
static inline float *guarded_floats(int64_t n, int offset, uint64_t seed)
{
    float *p = random_floats(n + 2 * GUARD, offset, 0);

    for (int i = 0; i < GUARD; i++)
        p[i] = p[GUARD + n + i] = GUARD_VALUE;
    fill_random(p + GUARD, n, seed);
    return p + GUARD;
}

static inline void guarded_drop(float *p, int offset)
{
    if (p)
        free(p - GUARD - offset);
}

static inline int guards_hold(const float *p, int64_t n)
{
    for (int i = 1; i <= GUARD; i++)
        if (p[-i] != GUARD_VALUE || p[n + i - 1] != GUARD_VALUE)
            return 0;
    return 1;
}

/* Largest |y - r| over the largest finite |r| (at least 1e-30); infinite where NaN or infinity do not match. */
static inline double relative_error(const float *y, const float *r, int64_t n)
{
    double worst = 0, scale = 1e-30;

    for (int64_t i = 0; i < n; i++) {
        if (isnan(y[i]) != isnan(r[i]) || ((isinf(y[i]) || isinf(r[i])) && y[i] != r[i]))
            return INFINITY;
        if (!isfinite(r[i]))
            continue;
        scale = fmax(scale, fabs(r[i]));
        worst = fmax(worst, fabs((double)y[i] - r[i]));
    }
    return worst / scale;
}

#endif
