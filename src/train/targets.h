/* targets.h - what a batch should have been answered with: boxes and masks of every prompt, one after the other. */
#ifndef TRAIN_TARGETS_H
#define TRAIN_TARGETS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct targets {
    int      prompts;
    int     *count;        /* [prompts] objects of each prompt */
    int     *first;        /* [prompts + 1] index of a prompt's first object */
    float   *boxes;        /* [objects, 4] cx cy w h, fractions of the input's side */
    uint8_t *masks;        /* [objects, side, side] 0 or 1; NULL without masks */
    uint8_t *mask_valid;   /* [objects] 0 = the object has no mask in the data */
    int      side;         /* of the masks */
} targets;

static inline int targets_objects(const targets *t)
{
    return t->first[t->prompts];
}

/* Answers of one decoder layer for all prompts, one half of the queries (one-to-one or one-to-many). */
typedef struct answers {
    int          queries;
    const float *logits;   /* [prompts, queries] */
    const float *boxes;    /* [prompts, queries, 4] cx cy w h */
} answers;

/* One pair: query `query` of prompt `prompt` stands for object `object` (index into targets.boxes). */
typedef struct match {
    int prompt, query, object;
} match;

typedef struct match_list {
    match *item;
    int    count, room;
} match_list;

#endif
