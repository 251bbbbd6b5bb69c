/* text.h - the text encoder: a causal transformer over token ids, then a projection to the detector's width. */
#ifndef MODEL_TEXT_H
#define MODEL_TEXT_H

#include "model/blocks.h"

typedef struct text_block {
    norm_w   norm1, norm2;
    linear_w qkv, out;            /* in_proj [3W, W], out_proj [W, W] */
    linear_w fc1, fc2;            /* [4W, W], [W, 4W] */
    int      heads;
} text_block;

typedef struct text_encoder {
    param      *tokens;           /* [vocabulary, W] */
    param      *positions;        /* [context, W] */
    text_block *block;
    int         layers, heads;
    norm_w      norm;
    linear_w    resizer;          /* [d, W] */
} text_encoder;

bool text_open(text_encoder *t, registry *g, const config *c);     /* false: out of memory */
void text_close(text_encoder *t);

/* ids [B, n], n <= context -> [B, n, d]. Padding may be cut off beforehand: later tokens never change earlier ones.
 * Notes text.memory (before the projection) and text.resized. */
tensor *text_forward(run *r, const text_encoder *t, tensor *ids);

#endif
