/* bits.c - packs positive logits and counts common bits. */
#include "track/bits.h"

#include <stdlib.h>

void bits_free(bit_masks *m)
{
    free(m->bits);
    free(m->area);
    *m = (bit_masks){0};
}

bool bits_of_logits(bit_masks *m, const float *planes, int count, int64_t pixels)
{
    int64_t words = (pixels + 63) / 64;
    *m = (bit_masks){count, pixels, words, calloc((size_t)(count * words) + 1, sizeof *m->bits),
                     calloc((size_t)count + 1, sizeof *m->area)};
    if (!m->bits || !m->area) {
        bits_free(m);
        return false;
    }
    #pragma omp parallel for schedule(static)
    for (int k = 0; k < count; k++) {
        const float *p = planes + k * pixels;
        uint64_t *to = m->bits + k * words;
        for (int64_t i = 0; i < pixels; i++)
            to[i / 64] |= (uint64_t)(p[i] > 0) << (i % 64);
        for (int64_t w = 0; w < words; w++)
            m->area[k] += __builtin_popcountll(to[w]);
    }
    return true;
}

float bits_iou(const bit_masks *a, int i, const bit_masks *b, int j)
{
    const uint64_t *x = a->bits + i * a->words, *y = b->bits + j * b->words;
    int64_t common = 0;
    for (int64_t w = 0; w < a->words; w++)
        common += __builtin_popcountll(x[w] & y[w]);
    int64_t all = a->area[i] + b->area[j] - common;
    return (float)common / (float)(all > 1 ? all : 1);
}
