/* winograd.c - 3x3 convolution by Winograd's method in f32. */
#include <omp.h>

#include "kernels/simd/level.h"
#include "kernels/x86/winograd_tiles.h"

/* v [16][WINOGRAD_TILES][in]; rows without a tile keep what they hold, and so do their products, which nobody reads. */
static void transform(void *v, const tile_run *t)
{
    int64_t in = t->a->in;

    for (int64_t k = 0; k < t->count; k++) {
        const float *p[16];
        bool whole = tile_pixels(p, t, t->first + k);
        float *to = (float *)v + k * in;
        for (int64_t c = 0; c < in; c += VL) {
            vec d[16];
            if (whole)
                tile_transform(d, p, c, true);
            else
                tile_transform(d, p, c, false);
            for (int i = 0; i < 16; i++)
                v_store(to + i * WINOGRAD_TILES * in + c, d[i]);
        }
    }
}

static void multiply(float *m, const void *v, const winograd_args *a, int64_t panel, int i)
{
    int64_t panels = (a->out + WINOGRAD_PANEL - 1) / WINOGRAD_PANEL;
    const float *rows = (const float *)v + i * WINOGRAD_TILES * a->in;
    const float *w = (const float *)a->w + (i * panels + panel) * a->in * WINOGRAD_PANEL;

    for (int64_t c = 0; c < WINOGRAD_PANEL; c += PANEL)
        for (int64_t r = 0; r < WINOGRAD_TILES; r += TILE_ROWS)
            tile(TILE_VECS, m + r * WINOGRAD_PANEL + c, WINOGRAD_PANEL, rows + r * a->in, a->in, w + c, WINOGRAD_PANEL,
                 a->in, NULL, NULL);
}

void LEVEL(winograd)(const winograd_args *a)
{
    int64_t across = (a->width + 1) / 2, tiles = (a->height + 1) / 2 * across;
    int64_t runs = (tiles + WINOGRAD_TILES - 1) / WINOGRAD_TILES;

#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t item = 0; item < a->batch * runs; item++) {
        int64_t first = item % runs * WINOGRAD_TILES;
        int64_t count = tiles - first < WINOGRAD_TILES ? tiles - first : WINOGRAD_TILES;
        tile_run t = {a, item / runs, first, count, across};
        winograd_run(a, WINOGRAD_TILES, winograd_scratch(a->in), transform, multiply, omp_get_thread_num(), &t);
    }
}
