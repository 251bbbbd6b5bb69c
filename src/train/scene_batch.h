/* scene_batch.h - made-up scenes as batches for training. */
#ifndef TRAIN_SCENE_BATCH_H
#define TRAIN_SCENE_BATCH_H

#include "train/sample.h"
#include "train/scene.h"

typedef struct scene_source {
    scene_world   world;
    scene_options options;
    int           prompts;       /* asked of each picture; 0: none, for losses on patches only */
    uint64_t      seed;
} scene_source;

/* Prompts of a scene: what is true of it, and what is not (about a third; half of those nearly true). Each once; at most
 * `room`. Returns how many. */
int scene_prompts(const scene_world *w, const scene *s, dice *d, int *prompt, int room);

/* Adds what is not true of it to the n prompts that are there, up to `room`; returns how many there are now. */
int scene_false_prompts(const scene_world *w, const scene *s, dice *d, int *prompt, int n, int room);

/* The pictures `image` of an epoch. batch_free it. */
int scene_batch(batch *out, const sampler *s, uint64_t epoch, const int32_t *image, int count, samite_error *err);

/* The scene's name in a data set: its prompts as categories, `chosen` pictures an epoch. */
int scene_set(train_set *out, const scene_source *from, int chosen, bool masks, samite_error *err);

#endif
