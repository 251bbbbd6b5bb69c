/* attention_layout.h - inside src/kernels: how attention's scratch is laid out, the same for every level.
 *
 * Heads of batch items ("slices") are worked on in waves: the keys and values of one wave are packed, then all its
 * queries attend. A wave is as many slices as fit in WAVE_BYTES, so that a large map with many heads needs little
 * memory and its packed keys stay in cache. Per slice: keys turned to [panel][dim][lanes], values [nk][dim], bias
 * [nq][grid_w + grid_h], the largest squared length of each panel's keys.
 */
#ifndef KERNELS_ATTENTION_LAYOUT_H
#define KERNELS_ATTENTION_LAYOUT_H

#include "kernels/kernels.h"

enum {
    ATTENTION_MAX_DIM = 256,
    ATTENTION_PAD = 64,                 /* keys are padded to this, dims to a quarter of it */
    ATTENTION_WAVE_BYTES = 16 << 20
};

typedef struct attention_layout {
    int64_t keys, width;                /* padded nk and v_dim */
    int64_t key_floats, value_floats, bias_floats, length_floats, slice_floats;
    int64_t slices, wave;               /* all, and at most per wave */
} attention_layout;

attention_layout attention_layout_of(const attention_args *a);

/* Values per head of v and y. */
static inline int64_t attention_value_dim(const attention_args *a)
{
    return a->v_dim ? a->v_dim : a->dim;
}

/* Backward keeps queries and keys alike, each as rows and turned; waves stay within a batch item. */
typedef struct backward_layout {
    int64_t queries, keys, width, grid; /* padded nq, nk, dim; grid_w + grid_h, 0 without bias */
    int64_t query_floats, key_floats, bias_floats, slice_floats;
    int64_t wave;                       /* heads at a time */
} backward_layout;

backward_layout backward_layout_of(const attention_args *a);

#endif
