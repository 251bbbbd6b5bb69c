/* mask_decoder.h - from a picture and a prompt to four guesses at the meant object, each with an expected overlap. */
#ifndef MODEL_MASK_DECODER_H
#define MODEL_MASK_DECODER_H

#include "model/two_way.h"

#define MASK_GUESSES 4         /* guess 0 is for clear prompts, 1..3 are alternatives for unclear ones */

typedef struct mask_decoder {
    two_way  transformer;
    param   *overlap_token;    /* [1, d] */
    param   *mask_token;       /* [4, d] */
    param   *object_token;     /* [1, d] */
    up_w     up1, up2;         /* d -> d / 4 -> d / 8, each doubles the size */
    norm_w   up_norm;
    linear_w fine0, fine1;     /* 1x1 of the two finest levels: d -> d / 8, d -> d / 4 */
    mlp_w    hyper[MASK_GUESSES];   /* d -> d -> d -> d / 8 */
    mlp_w    overlap;          /* d -> 256 -> 256 -> 4 */
    mlp_w    object;           /* d -> d -> d -> 1 */
} mask_decoder;

void mask_decoder_declare(mask_decoder *w, registry *g, const config *c);

/* The two finest levels [1, 4t, 4t, d], [1, 2t, 2t, d] as the decoder wants them: [4t, 4t, d / 8], [2t, 2t, d / 4]. */
tensor *mask_decoder_fine0(run *r, const mask_decoder *w, tensor *level);
tensor *mask_decoder_fine1(run *r, const mask_decoder *w, tensor *level);

typedef struct guesses {
    tensor *masks;             /* [B, 4, 4t * 4t] logits */
    tensor *overlap;           /* [B, 4] expected IoU, 0..1 */
    tensor *tokens;            /* [B, 4, d] */
    tensor *object;            /* [B, 1] logit: is the object in the picture at all? */
} guesses;

/* image [1 or B, t * t, d] with the mask prompt already added; places [t * t, d]; prompt [B, k, d], or NULL for one
 * prompt without points. fine0, fine1 as above. */
void mask_decoder_forward(run *r, const mask_decoder *w, tensor *image, tensor *places, tensor *prompt, tensor *fine0,
                          tensor *fine1, guesses *out);

#endif
