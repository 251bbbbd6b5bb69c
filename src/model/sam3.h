/* sam3.h - the whole network. Read this first: a picture is encoded once, then any number of prompts are grounded in it.
 *
 *     picture:  vit -> neck (3 levels) -> fusion_begin                      sam3_encode_image
 *     words:    text encoder                                                sam3_encode_text
 *     prompt:   words + example boxes -> fusion -> decoder                  sam3_ground
 *     masks:    fused tokens + pyramid -> pixels x chosen queries           sam3_masks
 *
 * One definition serves inference (RUN), training (TAPE) and export (TRACE).
 */
#ifndef MODEL_SAM3_H
#define MODEL_SAM3_H

#include "model/decoder.h"
#include "model/fusion.h"
#include "model/neck.h"
#include "model/seghead.h"
#include "model/text.h"
#include "model/vit.h"

typedef struct sam3 {
    config           c;
    registry         all;              /* every tensor, in the official order of parts */
    vit              trunk;
    neck             neck, tracker_neck;
    text_encoder     text;
    geometry_encoder geometry;
    fusion           fusion;
    decoder          decoder;
    seghead          seghead;
} sam3;

/* Builds the network of that size with no values bound; c.image is the input side. */
int  sam3_open(sam3 **out, const config *c, samite_error *err);
void sam3_close(sam3 *m);

typedef struct encoded_image {
    tensor *trunk;                     /* [1, t, t, D]; NULL unless asked for */
    tensor *level[NECK_LEVELS];        /* [1, 4t, 4t, d], [1, 2t, 2t, d], [1, t, t, d], (half: listeners only) */
    tensor *codes;                     /* [t, t, d] position codes of level 2 */
    tensor *begun;                     /* [1, t * t, d] fusion's first self-attention */
} encoded_image;

/* pixels [1, S, S, 3] normalised. keep_trunk: also the trunk's map, from which sam3_tracker_levels works. */
void sam3_encode_image(run *r, const sam3 *m, tensor *pixels, bool keep_trunk, encoded_image *out);
/* The tracker's pyramid: level [1, 4t, 4t, d], [1, 2t, 2t, d], [1, t, t, d]. Notes tracker_neck.I. */
void sam3_tracker_levels(run *r, const sam3 *m, const encoded_image *im, tensor **level);

typedef struct grounded {
    tensor *prompt;                    /* [B, n, d] words, then examples */
    tensor *mask;                      /* [B, n] or NULL */
    tensor *memory;                    /* [B, t * t, d] */
    decoder_output found;
} grounded;

/* words [B, n, d] from text_forward; mask [B, n] 1 = padding, or NULL; examples of the prompt or NULL. */
void sam3_ground(run *r, const sam3 *m, const encoded_image *im, tensor *words, tensor *mask, const examples *x,
                 grounded *out);
/* Mask logits of the chosen queries of a single prompt: [1, n, 4t, 4t]. */
tensor *sam3_masks(run *r, const sam3 *m, const encoded_image *im, const grounded *g, const int32_t *query, int count);

#endif
