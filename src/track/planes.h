/* planes.h - maps of mask logits outside the network: shrinking, overlap, holes, what is written to memory. */
#ifndef TRACK_PLANES_H
#define TRACK_PLANES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define LOGIT_ABSENT  -1024.0f  /* everywhere in the mask of an object that cannot be seen */
#define LOGIT_YIELD   -10.0f    /* at most this where another object wins a pixel */

/* Bilinear with antialias, corners not aligned, as F.interpolate(.., antialias=True): [h, w] to [height, width]. */
int  plane_shrink(float *out, int width, int height, const float *in, int w, int h, samite_error *err);

/* Each pixel of `count` planes goes to the highest of them (the first on ties); others fall to LOGIT_YIELD or lower. */
void planes_settle_overlap(float *planes, int count, int64_t pixels);

/* 8-connected holes (logit <= 0) of at most `area` pixels are set to `value`. */
int  plane_fill_holes(float *plane, int width, int height, int64_t area, float value, samite_error *err);

/* Holes of at most `area` pixels become 0.1; then 8-connected specks (logit > 0) of at most `area` pixels, and of at
 * most
 * half of what is inside, -0.1. area 0: nothing to do. */
int  plane_tidy(float *plane, int width, int height, int64_t area, samite_error *err);

/* What is written to memory: logits become -10..10, by their sign or by their sigmoid. */
void plane_as_memory(float *plane, int64_t pixels, bool by_sign);

#endif
