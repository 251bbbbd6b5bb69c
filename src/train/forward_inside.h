/* forward_inside.h - what forward.c and forward_masks.c share: some prompts of one picture on their way. */
#ifndef TRAIN_FORWARD_INSIDE_H
#define TRAIN_FORWARD_INSIDE_H

#include "train/forward.h"

/* Prompts of one picture that are on the tape together. Arrays over layers; [0] the one-to-one half, [1] the other. */
typedef struct picture {
    run            *r, *masks;      /* tapes of the prompts, of the mask head */
    native         *n;
    const batch    *b;
    const forward_options *o;
    step_losses    *losses;
    loss_norms      norms;
    double          present;        /* prompts of the batch whose objects have a mask at all */
    int             image, first, prompts, queries;
    targets         t;              /* of these prompts */
    encoded_image   seen;           /* as the prompts see it: values of r */
    tensor         *words, *memory, *prompt, *mask;
    decoder_output  found;
    tensor        **fused;          /* [fusion layers] what each made; NULL where nobody asks */
    tensor        **shown;          /* [prompts] copies of the masks, for those who look; else NULL */
    tensor         *semantic;       /* the same of the maps */
    match_list      match[2][DECODER_MAX_LAYERS];
    answer_grads    grads[2][DECODER_MAX_LAYERS];
    int32_t        *ids;            /* [prompts, longest] token ids; live until the tape is walked */
    float          *logits, *boxes; /* the half being looked at: [prompts, queries], [prompts, queries, 4] */
} picture;

/* Losses of masks and maps of these prompts, whose matches are known; their gradients go to the tape of the prompts. */
int mask_losses(picture *p, samite_error *err);

/* x, or the part of it from element `at` on, as an input of another tape; its gradient is added to x's where `from`
 * wants one. */
tensor *show_value(run *to, run *from, tensor *x, int64_t at, int axes, const int64_t *dim);

#endif
