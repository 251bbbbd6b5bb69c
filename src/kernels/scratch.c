/* scratch.c - how much room kernels need beside their arguments. */
#include "kernels/attention_layout.h"

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

attention_layout attention_layout_of(const attention_args *a)
{
    attention_layout l = {.keys = round_up(a->nk, ATTENTION_PAD),
                          .width = round_up(attention_value_dim(a), ATTENTION_PAD / 4)};
    int64_t waves;

    l.key_floats = l.keys * a->dim;
    l.value_floats = l.keys * l.width;
    l.bias_floats = a->bias_x ? round_up(a->nq * (a->grid_w + a->grid_h), 16) : 0;
    l.length_floats = round_up(l.keys / ATTENTION_PAD, 16);
    l.slice_floats = l.key_floats + l.value_floats + l.bias_floats + l.length_floats;
    l.slices = a->batch * a->heads;
    l.wave = l.slice_floats > 0 ? ATTENTION_WAVE_BYTES / (l.slice_floats * (int64_t)sizeof(float)) : l.slices;
    l.wave = l.wave < 1 ? 1 : l.wave > l.slices ? l.slices : l.wave;
    if (l.wave > 0) {                   /* waves of about the same size */
        waves = (l.slices + l.wave - 1) / l.wave;
        l.wave = (l.slices + waves - 1) / waves;
    }
    return l;
}

size_t attention_scratch(const attention_args *a)
{
    attention_layout l = attention_layout_of(a);

    return (size_t)(l.wave * l.slice_floats) * sizeof(float) + 64;
}

backward_layout backward_layout_of(const attention_args *a)
{
    backward_layout l = {.queries = round_up(a->nq, ATTENTION_PAD), .keys = round_up(a->nk, ATTENTION_PAD),
                         .width = round_up(a->dim, ATTENTION_PAD / 4), .grid = a->bias_x ? a->grid_w + a->grid_h : 0};
    int64_t each = 2 * l.width + 2 * a->dim + 2;

    l.query_floats = l.queries * each;
    l.key_floats = l.keys * each;
    l.bias_floats = l.queries * l.grid;
    l.slice_floats = l.query_floats + l.key_floats + 3 * l.bias_floats;
    l.wave = 2 * ATTENTION_WAVE_BYTES / (l.slice_floats * (int64_t)sizeof(float) + 1);
    l.wave = l.wave < 1 ? 1 : l.wave > a->heads ? a->heads : l.wave;
    return l;
}

size_t attention_backward_scratch(const attention_args *a)
{
    backward_layout l = backward_layout_of(a);

    return (size_t)(l.wave * l.slice_floats) * sizeof(float) + 64;
}

/* Transformed pixels of twice WINOGRAD_TILES tiles in bf16 or of WINOGRAD_TILES in f32, and products with one panel. */
size_t winograd_scratch(int64_t in)
{
    return sizeof(float) * 16 * WINOGRAD_TILES * (size_t)(in + 2 * WINOGRAD_PANEL);
}
