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
    uint8_t *owner;            /* made-up scenes: [images, side, side] object of each pixel from 1, 0 none; else NULL */
    int     *classes;          /* [images, SCENE_MOST] class of each object, -1 none */
} batch;
void batch_free(batch *b);

/* What losses are divided by. The counts of several parts of a batch are added up. */
typedef struct batch_counts {
    double objects, prompts, present;      /* present: prompts whose objects have a mask that is not empty */
} batch_counts;
batch_counts batch_count(const batch *b);

typedef struct step_losses {
    int        layers;
    loss_terms one[DECODER_MAX_LAYERS], many[DECODER_MAX_LAYERS];   /* many is already multiplied by its weight */
    double     semantic, semantic_dice, semantic_iou;
    double     present;        /* prompts of the whole batch with a mask */
    double     core;           /* what is minimised */
    int bad_image, bad_prompt; /* of the batch, where an answer was not finite (batch_gradients: SAMITE_FAILED); -1 */
} step_losses;

/* The losses by their official names, in the official order; at most LOSS_NAMES of them. Returns how many. */
typedef struct named_loss { char name[40]; double value; } named_loss;
enum { LOSS_NAMES = 8 * 2 * DECODER_MAX_LAYERS + 8 };
int losses_by_name(named_loss *out, const step_losses *l, const loss_weights *w, bool masks);

/* For those who look: called once per picture and chunk of prompts after its backward pass, before the tape is
 * forgotten. */
typedef struct picture_answers {
    int image, first_prompt, prompts, queries;      /* queries of one half */
    const decoder_output *found;
    tensor *words, *memory;                  /* [prompts, n, d], [prompts, t * t, d] */
    tensor *const *masks;                    /* [prompts] [1, n, h, w] for the matches of each prompt, or NULL */
    tensor *semantic;                        /* [prompts, h, w, 1] or NULL */
    const match_list *one, *many;            /* [layers]; prompts are counted within the picture */
    const answer_grads *one_grads, *many_grads;   /* [layers] */
} picture_answers;
typedef void (*picture_fn)(void *user, run *r, const picture_answers *a);
/* The same for the picture itself, after all its prompts. */
typedef void (*encoded_fn)(void *user, int image, const encoded_image *e);

typedef struct forward_options {
    const loss_weights *weights;
    bool       masks;
    int chunk; /* prompts that are on the tape together; 0 = all of a picture. Results do not depend on it */
    const batch_counts *counts;/* of the whole batch, of which this is a part; NULL = this is all of it */
    float drop_rate, path_rate;     /* of numbers, and of branches of the trunk; 0: none */
    const uint64_t *seeds;          /* [images] what is dropped hangs on these and on the prompts' numbers alone */
    bool       frozen_trunk;        /* neither it nor an adapter in it learns; not with look_encoded */
    /* Called with a picture's trunk map [1, t, t, D] asked for: true = it was filled in. NULL, or false: it is computed
     * and then handed to `keep`. Only with a frozen trunk. */
    bool     (*recall)(void *user, int image, float *map, int64_t count);
    void     (*keep)(void *user, int image, const float *map, int64_t count);
    void (*heads_done)(
        void *user); /* the gradients of text encoder, example encoder, decoder, mask head are complete */
    struct aids *aids;              /* losses on patches (aids.h), or NULL */
    picture_fn look;
    encoded_fn look_encoded;        /* with it, inner tensors have their gradients when these are called */
    void      *user;
} forward_options;

/* Where gradients are computed: tapes for the picture, for prompts asked of it, and for the mask of one prompt. */
typedef struct tapes { run *picture, *prompts, *masks; } tapes;
int  tapes_open(tapes *t, const run_options *o, samite_error *err);     /* o->mode is ignored */
void tapes_close(tapes *t);

/* Adds the gradients of the batch to the trainable tensors. */
int batch_gradients(tapes *t, native *n, const batch *b, const forward_options *o, step_losses *out, samite_error *err);

double core_loss(const step_losses *l, const loss_weights *w, double scale);

#endif
