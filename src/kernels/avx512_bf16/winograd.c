/* winograd.c - 3x3 convolution by Winograd's method, its products in bf16; transformations and sums stay in f32. */
#include <omp.h>

#include "kernels/avx512_bf16/tile_pairs.h"
#include "kernels/levels.h"
#include "kernels/x86/winograd_tiles.h"

enum { TILES = 2 * WINOGRAD_TILES };    /* as many bytes as in f32 */

/* v [16][TILES][in / 2] pairs */
static void transform(void *v, const tile_run *t)
{
    int64_t in = t->a->in;

    for (int64_t k = 0; k < t->count; k++) {
        const float *p[16];
        bool whole = tile_pixels(p, t, t->first + k);
        uint16_t *to = (uint16_t *)v + k * in;
        for (int64_t c = 0; c < in; c += VL) {
            vec d[16];
            if (whole)
                tile_transform(d, p, c, true);
            else
                tile_transform(d, p, c, false);
            for (int i = 0; i < 16; i++)
                _mm256_storeu_si256((__m256i *)(to + i * TILES * in + c), (__m256i)_mm512_cvtneps_pbh(d[i]));
        }
    }
}

static void multiply(float *m, const void *v, const winograd_args *a, int64_t panel, int i)
{
    int64_t panels = (a->out + WINOGRAD_PANEL - 1) / WINOGRAD_PANEL, pairs = a->in / 2;
    const uint32_t *rows = (const uint32_t *)v + i * TILES * pairs;
    const uint32_t *w = (const uint32_t *)a->w + (i * panels + panel) * pairs * WINOGRAD_PANEL;

    for (int64_t r = 0; r < TILES; r += TILE_ROWS)
        tile_pairs(TILE_VECS, m + r * WINOGRAD_PANEL, WINOGRAD_PANEL, rows + r * pairs, pairs, w, WINOGRAD_PANEL, pairs,
                   NULL, NULL);
}

void avx512_bf16_winograd(const winograd_args *a)
{
    int64_t across = (a->width + 1) / 2, tiles = (a->height + 1) / 2 * across;
    int64_t runs = (tiles + TILES - 1) / TILES;

#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t item = 0; item < a->batch * runs; item++) {
        int64_t first = item % runs * TILES;
        tile_run t = {a, item / runs, first, tiles - first < TILES ? tiles - first : TILES, across};
        winograd_run(a, TILES, winograd_scratch(a->in), transform, multiply, omp_get_thread_num(), &t);
    }
}
