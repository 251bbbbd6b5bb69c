/* sam3.h - the whole network. Read this first: a picture is encoded once, then any number of prompts are grounded in it.
 *
 *     picture:  vit -> neck (3 levels) -> fusion_begin                      sam3_encode_image
 *     words:    text encoder                                                sam3_encode_text
 *     prompt:   words + example boxes -> fusion -> decoder                  sam3_ground
 *     masks:    fused tokens + pyramid -> pixels x chosen queries           sam3_masks
 *
 * Beside the detector there is a tracker, with its own pyramid from the same trunk. It is asked about single objects:
 *
 *     picture:  trunk -> tracker neck                                       sam3_click_image
 *     object:   clicks, box, mask -> two-way transformer -> 4 guesses       sam3_click
 *     video:    memories of past frames -> the picture as the object sees it, then a guess; see memory.h and src/track
 *
 * One definition serves inference (RUN), training (TAPE) and export (TRACE).
 */
#ifndef MODEL_SAM3_H
#define MODEL_SAM3_H

#include "model/decoder.h"
#include "model/fusion.h"
#include "model/mask_decoder.h"
#include "model/memory.h"
#include "model/neck.h"
#include "model/prompt.h"
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
    prompt_encoder   prompt;
    mask_decoder     mask_decoder;
    param           *no_memory;        /* [1, 1, d] added to a picture that nothing was seen before */
    memory           memory;
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
/* The same from the trunk's map [1, t, t, D], which is already there. */
void sam3_encode_map(run *r, const sam3 *m, tensor *map, encoded_image *out);
/* What follows from the trunk's map and levels 0 to 2, which are in *out already: codes and begun. */
void sam3_encode_levels(run *r, const sam3 *m, encoded_image *out);
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
/* The same with what the decoder is asked for besides (training, exports); o NULL: nothing. */
void sam3_ground_with(run *r, const sam3 *m, const encoded_image *im, tensor *words, tensor *mask, const examples *x,
                      const decoder_options *o, grounded *out);
/* Mask logits of the chosen queries of a single prompt: [1, n, 4t, 4t]. */
tensor *sam3_masks(run *r, const sam3 *m, const encoded_image *im, const grounded *g, const int32_t *query, int count);

/* What the tracker reads of a picture; made once, then any number of objects are asked for. */
typedef struct click_image {
    tensor *image;                     /* [1, t, t, d] coarse level */
    tensor *fine0, *fine1;             /* [4t, 4t, d / 8], [2t, 2t, d / 4] */
    tensor *codes;                     /* [t * t, d] sine codes, borrowed from the encoded image */
    tensor *places;                    /* [t * t, d] codes of the click decoder */
} click_image;
void sam3_click_image(run *r, const sam3 *m, const encoded_image *im, click_image *out);

/* points: NULL with a mask only. mask: [B, 4t, 4t, 1] logits, or NULL. seen: the picture through an object's memories
 * [B, t * t, d] (memory_attend), [1, t * t, d] without memories but its coarse level, or NULL = sam3_unseen. */
void sam3_click(run *r, const sam3 *m, const click_image *im, tensor *seen, const clicks *points, tensor *mask,
                guesses *out);
/* The coarse level as it is when nothing is remembered: [1, t * t, d]. */
tensor *sam3_unseen(run *r, const sam3 *m, const click_image *im);

#endif
