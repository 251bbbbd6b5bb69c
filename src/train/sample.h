/* sample.h - pictures of a data set as one batch for training. */
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include "train/augment.h"
#include "train/forward.h"

/* What every batch needs besides the pictures. */
typedef struct sampler {
    const train_set *set;
    int      side, context;
    int32_t *ids;            /* [prompts, context] tokens of every prompt */
    int     *tokens;         /* [prompts] */
    int      cut, unknown;   /* prompts that were longer than the context; with words that the model does not know */
    int      most_objects;   /* a prompt with more in a picture is not asked for there; 200 as officially */
} sampler;

int  sampler_open(sampler *s, const train_set *set, const config *c, samite_error *err);
void sampler_close(sampler *s);

/* Reads the picture as the official loader does (no EXIF rotation), unless only upright it has the size of its record.
 * *stretched tells when it has another size altogether. SAMITE_INPUT names the file. */
int read_training_picture(pixels *out, bool *stretched, const train_set *set, int32_t image, samite_error *err);

/* The batch of `count` images of the set (indices) at these placements; all prompts are asked of each. batch_free it.
 */
int sample_batch(batch *out, const sampler *s, const int32_t *image, const placement *at, int count, samite_error *err);

#endif
