/* seghead.h - the mask head: pixel features for one prompt, then one mask per chosen query. */
#ifndef MODEL_SEGHEAD_H
#define MODEL_SEGHEAD_H

#include "model/blocks.h"

typedef struct seghead {
    attend_w prompt;               /* picture tokens look at the prompt once more */
    norm_w   prompt_norm;
    conv_w   conv[3];              /* 3x3; the third is in the checkpoint but never used */
    norm_w   group[3];
    mlp_w    mask_embed;           /* d -> d -> d -> d */
    linear_w instance, semantic;   /* 1x1: d -> d, d -> 1 */
} seghead;

void seghead_declare(seghead *s, registry *g, const config *c);

/* level: the neck's two finest maps [1, 4t, 4t, d], [1, 2t, 2t, d]; memory [B, t * t, d] -> pixels [B, 4t, 4t, d]. */
tensor *seghead_pixels(run *r, const seghead *s, tensor *const *level, tensor *memory, tensor *prompt, tensor *mask);
/* Mask logits of `queries` [B, n, d]: [B, n, 4t, 4t]. Notes masks. */
tensor *seghead_masks(run *r, const seghead *s, tensor *pixels, tensor *queries);
/* One map for everything the prompt names: [B, 4t, 4t, 1]. Notes semantic. */
tensor *seghead_semantic(run *r, const seghead *s, tensor *pixels);

#endif
