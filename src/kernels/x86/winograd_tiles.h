/* winograd_tiles.h - what Winograd convolution in f32 and in bf16 share: its two transformations and the loop over tiles.
 *
 * A tile is 2 x 2 outputs and the 4 x 4 pixels they depend on. Tiles are taken in rows of the picture, `count` at a time:
 * their pixels are transformed to 16 matrices [count][in], each is multiplied with a panel of weights, and the products
 * are transformed back.
 */
#ifndef KERNELS_X86_WINOGRAD_TILES_H
#define KERNELS_X86_WINOGRAD_TILES_H

#include "kernels/kernels.h"
#include "kernels/x86/tile.h"

/* The tiles first..first+count of a picture whose rows have `across`; `item` is the batch item. */
typedef struct tile_run {
    const winograd_args *a;
    int64_t item, first, count, across;
} tile_run;

/* Pixels of a tile, NULL outside of the picture. */
INLINE bool tile_pixels(const float **p, const tile_run *t, int64_t tile)
{
    const winograd_args *a = t->a;
    int64_t y = tile / t->across * 2 - 1, x = tile % t->across * 2 - 1;
    bool whole = true;

    for (int i = 0; i < 16; i++) {
        int64_t py = y + i / 4, px = x + i % 4;
        bool inside = py >= 0 && py < a->height && px >= 0 && px < a->width;
        p[i] = inside ? a->x + ((t->item * a->height + py) * a->width + px) * a->in : NULL;
        whole &= inside;
    }
    return whole;
}

/* B^T d of one row or column of four. */
INLINE void to_products(vec *d, int step)
{
    vec a = d[0], b = d[step], c = d[2 * step], e = d[3 * step];

    d[0] = v_sub(a, c);
    d[step] = v_add(b, c);
    d[2 * step] = v_sub(c, b);
    d[3 * step] = v_sub(b, e);
}

/* VL channels of a tile, transformed. */
INLINE void tile_transform(vec *d, const float *const *p, int64_t c, bool whole)
{
    for (int i = 0; i < 16; i++)
        d[i] = whole || p[i] ? v_load(p[i] + c) : v_zero();
    for (int i = 0; i < 4; i++)
        to_products(d + i, 4);
    for (int i = 0; i < 4; i++)
        to_products(d + 4 * i, 1);
}

/* A^T m of one row or column: two outputs from four products, left in the first two. */
INLINE void from_products(vec *m, int step)
{
    vec a = m[0], b = m[step], c = m[2 * step], e = m[3 * step];

    m[0] = v_add(v_add(a, b), c);
    m[step] = v_sub(v_sub(b, c), e);
}

/* Writes the outputs of a panel: products [16][WINOGRAD_PANEL] of a tile, `stride` from one of the 16 to the next. */
INLINE void tile_outputs(const tile_run *t, int64_t tile, const float *products, int64_t stride, int64_t first)
{
    const winograd_args *a = t->a;
    int64_t y = tile / t->across * 2, x = tile % t->across * 2, left = a->out - first;
    float *to = a->y + ((t->item * a->height + y) * a->width + x) * a->out + first;

    for (int64_t c = 0; c < WINOGRAD_PANEL && c < left; c += VL) {
        vec m[16], bias = v_load(a->bias + first + c);
        for (int i = 0; i < 16; i++)
            m[i] = v_load(products + i * stride + c);
        for (int i = 0; i < 4; i++)
            from_products(m + i, 4);
        for (int i = 0; i < 2; i++)
            from_products(m + 4 * i, 1);
        for (int i = 0; i < 4; i++)
            if (y + i / 2 < a->height && x + i % 2 < a->width)
                v_store(to + (i / 2 * a->width + i % 2) * a->out + c, v_add(m[i / 2 * 4 + i % 2], bias));
    }
}

/* transform(v, t): the pixels of a run of tiles; multiply(m, v, a, panel, i): the products of matrix i with a panel of
 * weights, [count][WINOGRAD_PANEL], the rows rounded up to whole TILE_ROWS. */
typedef void transform_tiles(void *v, const tile_run *t);
typedef void multiply_tiles(float *m, const void *v, const winograd_args *a, int64_t panel, int i);

INLINE void winograd_run(const winograd_args *a, int64_t most, size_t each, transform_tiles *transform,
                         multiply_tiles *multiply, int thread, const tile_run *t)
{
    char *v = (char *)a->scratch + (size_t)thread * each;
    float *m = (float *)(v + each) - 16 * most * WINOGRAD_PANEL;
    int64_t panels = (a->out + WINOGRAD_PANEL - 1) / WINOGRAD_PANEL;

    transform(v, t);
    for (int64_t p = 0; p < panels; p++) {
        for (int i = 0; i < 16; i++)
            multiply(m + i * most * WINOGRAD_PANEL, v, a, p, i);
        for (int64_t k = 0; k < t->count; k++)
            tile_outputs(t, t->first + k, m + k * WINOGRAD_PANEL, most * WINOGRAD_PANEL, p * WINOGRAD_PANEL);
    }
}

#endif
