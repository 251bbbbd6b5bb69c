/* loader.h - the next batch is read while this one is learnt from. */
#ifndef TRAIN_LOADER_H
#define TRAIN_LOADER_H

#include <pthread.h>

#include "train/sample.h"

typedef struct loader {
    const sampler *s;
    bool           skip_bad;       /* take the next picture for one that cannot be read */
    /* the request */
    int32_t       *image;          /* [count] of the set; replaced ones are put in */
    placement     *at;
    int            count, room;
    uint64_t       epoch;          /* for made-up pictures */
    /* the answer */
    pthread_t      thread;
    bool           running;
    batch          b;
    int            code;
    samite_error   err;
    char           note[512];      /* pictures that were replaced, or "" */
} loader;

int  loader_open(loader *l, const sampler *s, bool skip_bad, int count, samite_error *err);
void loader_close(loader *l);
/* Begins with l->image[0..count) at l->at. */
int  loader_begin(loader *l, samite_error *err);
/* Waits; the batch is then yours to free (and to be overwritten by no one). */
int  loader_finish(loader *l, batch *out, samite_error *err);

#endif
