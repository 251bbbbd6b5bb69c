/* decoder.h - object queries look at each other, at the prompt and at the picture; scores, boxes and presence come out. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H

#include "model/blocks.h"

#define DECODER_MAX_LAYERS 16

typedef struct decoder_layer {
    const struct decoder *all;        /* the decoder it belongs to */
    attend_w self, text, image;
    norm_w   norm_self, norm_text, norm_image, norm_mlp;
    linear_w fc1, fc2;
} decoder_layer;

typedef struct decoder {
    decoder_layer layer[DECODER_MAX_LAYERS];
    int     layers, queries;
    norm_w  norm, presence_norm;
    mlp_w   box;                      /* d -> d -> d -> 4 */
    mlp_w   presence;                 /* d -> d -> d -> 1 */
    mlp_w   place;                    /* 2d -> d -> d: query position from the sine code of its box */
    mlp_w   bias_x, bias_y;           /* 2 -> d -> heads: attention bias from box distances */
    param  *query;                    /* [Q, d] */
    param  *reference;                /* [Q, 4], before the sigmoid */
    param  *presence_token;           /* [1, d] */
    mlp_w   prompt_mlp;               /* d -> ffn -> d, residual */
    norm_w  prompt_norm;
    linear_w prompt_proj, query_proj; /* [d, d] */
} decoder;

bool decoder_open(decoder *w, registry *g, const config *c);      /* false: more layers than DECODER_MAX_LAYERS */

/* In training every layer answers, and a second set of the same queries (one-to-many) comes along: it skips self-attention
 * and is matched with several queries per object. Then Q below is twice the number of queries: one-to-one first. */
typedef struct decoder_options {
    bool one_to_many;
    bool every_layer;                 /* logits and presence of all layers, not only of the last */
    tensor **fused;                   /* gets what every fusion layer made (TAPE only); or NULL */
} decoder_options;

typedef struct decoder_layer_output {
    tensor *queries;                  /* [B, Q, d] normalised */
    tensor *logits;                   /* [B, Q, 1] */
    tensor *boxes;                    /* [B, Q, 4] cx cy w h in 0..1 */
    tensor *presence;                 /* [B, 1] logit */
    tensor *reference;                /* [B, Q, 4] boxes that the layer started from */
} decoder_layer_output;

typedef struct decoder_output {
    tensor *queries, *logits, *boxes, *presence;       /* of the last layer */
    decoder_layer_output layer[DECODER_MAX_LAYERS];    /* logits and presence NULL where not asked for */
} decoder_output;

/* memory [B, t * t, d] from the fusion encoder, codes [t, t, d], prompt and mask as there. o NULL: inference.
 * Notes hs.L, refs.L per layer and logits, boxes, presence of the last. */
void decoder_forward(run *r, const decoder *w, tensor *memory, tensor *codes, tensor *prompt, tensor *mask,
                     const decoder_options *o, decoder_output *out);

#endif
