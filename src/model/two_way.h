/* two_way.h - a few tokens and a picture look at each other in turn. */
#ifndef MODEL_TWO_WAY_H
#define MODEL_TWO_WAY_H

#include "model/blocks.h"

#define TWO_WAY_LAYERS 2

typedef struct two_way_layer {
    attend_w self, to_image, to_token;     /* the last two work at half width */
    norm_w   norm1, norm2, norm3, norm4;
    linear_w fc1, fc2;
} two_way_layer;

typedef struct two_way {
    two_way_layer layer[TWO_WAY_LAYERS];
    attend_w      last;
    norm_w        norm;
} two_way;

/* Attention whose projections are tensors of their own: q_proj, k_proj, v_proj, out_proj; d wide outside, `inner`
 * inside, keys and values come `from` wide. */
void declare_attend_projected(registry *g, const char *name, attend_w *w, int64_t d, int64_t from, int64_t inner,
                              int heads);

void two_way_declare(two_way *w, registry *g, int64_t d, int heads, int64_t hidden);

/* tokens [B, k, d], image [1 or B, n, d] (1: all look at the same), places [n, d]: codes of the picture's tokens.
 * Both come out changed, the image as [B, n, d]. */
void two_way_forward(run *r, const two_way *w, tensor **tokens, tensor **image, tensor *places);

#endif
