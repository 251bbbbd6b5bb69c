/* formula.c - weights from names. Compiled without contraction of a * b + c: both operations round. */
#include "formats/formula.h"

#include <math.h>

#include "base/text.h"

#define GOLDEN 0x9E3779B97F4A7C15u

static uint64_t key_of(const char *name, uint64_t seed)
{
    uint64_t key = 14695981039346656037u;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        key = (key ^ *c) * 1099511628211u;
    return key ^ seed * GOLDEN;
}

/* Element i of the sequence: 24 random bits as a number in [-1, 1), exact in f32. */
static inline float draw(uint64_t key, uint64_t i)
{
    uint64_t z = key + (i + 1) * GOLDEN;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)(int32_t)(z >> 40) * 0x1p-23f - 1.0f;
}

void formula_fill(float *out, const char *name, int axes, const int64_t *dim, uint64_t seed)
{
    uint64_t key = key_of(name, seed);
    int64_t count = axes > 0 ? dim[0] : 1, inner = 1;
    for (int a = 1; a < axes; a++)
        inner *= dim[a];
    count *= inner;
    float scale = 0.1f, centre = 0.0f;
    if (ends_with(name, "gaussian_matrix"))
        scale = 1.5f;
    else if (axes >= 2)
        scale = (float)sqrt(3.0 / (double)inner);
    else if (ends_with(name, "weight") || ends_with(name, "gamma") ||
             ends_with(name, "pred_obj_score_head.layers.2.bias"))
        centre = 1.0f;
#pragma omp parallel for schedule(static) if (count > 1 << 15)
    for (int64_t i = 0; i < count; i++)
        out[i] = centre + scale * draw(key, (uint64_t)i);
}
