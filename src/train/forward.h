/* forward.h - one batch through the network on a tape: answers, matches, losses, gradients. */
#ifndef TRAIN_FORWARD_H
#define TRAIN_FORWARD_H

#include "runtime/native.h"
#include "train/losses.h"

typedef struct batch {
    int      images, side;
    float   *pixels;           /* [images, side, side, 3] normalised */
    int     *image_prompts;    /* [images] prompts of each picture; prompts stand in the order of pictures */
    int     *text_of;          /* [prompts] index into the texts */
    int      texts;
    int32_t *ids;              /* [texts, context] */
    int     *tokens;           /* [texts] real ones */
    targets  t;
} batch;
void batch_free(batch *b);

typedef struct step_losses {
    int        layers;
    loss_terms one[DECODER_MAX_LAYERS], many[DECODER_MAX_LAYERS];   /* many is already multiplied by its weight */
    double     semantic, semantic_dice;
    double     core;           /* what is minimised */
} step_losses;

/* For those who look: called once per picture after its backward pass, before the tape is forgotten. */
typedef struct picture_answers {
    int first_prompt, prompts, queries;      /* queries of one half */
    const decoder_output *found;
    tensor *const *masks;                    /* [prompts] [1, n, h, w] for the matches of each prompt, or NULL */
    tensor *semantic;                        /* [prompts, h, w, 1] or NULL */
    const match_list *one, *many;            /* [layers]; prompts are counted within the picture */
    const answer_grads *one_grads, *many_grads;   /* [layers] */
} picture_answers;
typedef void (*picture_fn)(void *user, run *r, const picture_answers *a);

typedef struct forward_options {
    const loss_weights *weights;
    bool       masks;
    double     boxes_total;    /* N of the whole batch, over all processes; 0 = of this batch */
    picture_fn look;
    void      *user;
} forward_options;

/* Adds the gradients of the batch to the trainable tensors. The run must be a TAPE; it is reset for every picture. */
int batch_gradients(run *r, native *n, const batch *b, const forward_options *o, step_losses *out, samite_error *err);

double core_loss(const step_losses *l, const loss_weights *w, double scale);

#endif
