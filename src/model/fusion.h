/* fusion.h - the fusion encoder: picture tokens attend to each other and to the prompt. */
#ifndef MODEL_FUSION_H
#define MODEL_FUSION_H

#include "model/geometry.h"

typedef struct fusion {
    encoder_layer *layer;
    int            layers;
} fusion;

bool fusion_open(fusion *f, registry *g, const config *c);
void fusion_close(fusion *f);

/* The first self-attention, which no prompt takes part in: done once per picture. image [1, t, t, d] -> [1, t * t, d]. */
tensor *fusion_begin(run *r, const fusion *f, tensor *image, tensor *codes);

/* begun: from fusion_begin; codes [t, t, d]; prompt [B, n, d]; mask [B, n] 1 = padding, or NULL -> [B, t * t, d].
 * Notes memory. */
tensor *fusion_forward(run *r, const fusion *f, tensor *begun, tensor *codes, tensor *prompt, tensor *mask);
/* The same; each[layers] (TAPE only; may be NULL) gets what every layer made. */
tensor *fusion_forward_each(run *r, const fusion *f, tensor *begun, tensor *codes, tensor *prompt, tensor *mask,
                            tensor **each);

#endif
