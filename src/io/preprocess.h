/* preprocess.h - from a picture to what the network reads. */
#ifndef IO_PREPROCESS_H
#define IO_PREPROCESS_H

#include "io/image.h"

/* Resizes to side x side (bilinear with antialias, aspect not kept, in 8 bits with fixed-point weights, columns before
 * rows: the arithmetic of the official processor on a CPU) and scales to -1..1. `out` is [side, side, 3]. */
int preprocess(float *out, const pixels *in, int side, samite_error *err);

/* The same without the scaling. `out` is [height, width, 3] and must not overlap `in`. */
int resize_rgb(uint8_t *out, int width, int height, const pixels *in, samite_error *err);

#endif
