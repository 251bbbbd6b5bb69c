/* aids.h - what helps a network that knows nothing to begin: losses on patches, with a few weights of their own that are
 * thrown away when training is over. */
#ifndef TRAIN_AIDS_H
#define TRAIN_AIDS_H

#include <jansson.h>

#include "runtime/native.h"
#include "train/forward.h"
#include "train/optimizer.h"
#include "train/patch_loss.h"
#include "train/scene.h"

#define MAX_FUSION_LAYERS 64

typedef struct aids_state {            /* of one step, this process */
    double patches, accuracy;          /* loss of patches; share of object patches that are named right */
    double match;                      /* loss of patches against prompts */
    double image_spread, word_spread;  /* standard deviations: level 2 of the neck; word tokens over names */
} aids_state;

typedef struct aids {
    const native *n;
    const scene_world *world;
    bool          only;                /* nothing but the patch loss is learnt */
    double        patch_weight, match_weight;
    int           pictures, prompts;   /* of the whole step, all processes */
    run          *text;                /* words of all classes, once per step */
    tensor       *words;
    int32_t      *ids;                 /* [classes, context] */
    int          *tokens, longest;
    class_vectors vectors;
    entry         background;          /* [d + 2]: vector, offset, logarithm of the scale */
    entry         match[MAX_FUSION_LAYERS];           /* [d + 1] for each fusion layer */
    int           layers, seen;        /* seen: pictures of this step */
    double        hits, objects;
    float        *share, *room;        /* [patches, classes]; [patches, 2] and what the losses need */
    aids_state    now;
} aids;

/* Adds what is learnt besides to `o`. */
int  aids_open(aids *a, native *n, const scene_world *w, optimizer *o, samite_error *err);
void aids_close(aids *a);       /* after optimizer_close */

/* Before the first picture of a step. */
int  aids_begin(aids *a, samite_error *err);
/* The picture's level 2 on its tape: its gradient is seeded. */
void aids_picture(aids *a, run *r, tensor *level, const batch *b, int image);
/* What fusion layer `layer` made of these prompts of a picture, [prompts, patches, d] on their tape. */
void aids_match(aids *a, run *r, int layer, tensor *x, const batch *b, int image, int first);
/* After the last: the gradients of the text encoder are complete. */
int  aids_end(aids *a, samite_error *err);
/* weight x loss of all, for the sum that is minimised. */
double aids_loss(const aids *a);

/* Adds the state to a step's record; the losses of all processes are taken to be like those of this one. */
void aids_log(const aids *a, int processes, json_t *o);

#endif
