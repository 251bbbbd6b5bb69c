/* neck.h - from one map of tokens to a pyramid of four; the detector and the tracker have one each. */
#ifndef MODEL_NECK_H
#define MODEL_NECK_H

#include "model/blocks.h"

#define NECK_LEVELS 4     /* 4x, 2x, 1x, 0.5x tokens per side; the last is computed only for listeners */

typedef struct neck {
    up_w     up0, up1;                 /* level 0: D -> D/2 (GELU) -> D/4 */
    up_w     up;                       /* level 1: D -> D/2 */
    linear_w reduce[NECK_LEVELS];      /* 1x1 to d */
    conv_w   smooth[NECK_LEVELS];      /* 3x3 */
} neck;

void neck_declare(neck *n, registry *g, const char *name, model_part part, const config *c);

/* One level of the pyramid below. */
tensor *neck_level(run *r, const neck *n, tensor *x, int level, const char *prefix);

/* x [B, t, t, D] -> level[i] [B, t * 4 / 2^i, .., d], the finest `levels` of them (3 or 4). Notes PREFIX.I. */
void neck_forward(run *r, const neck *n, tensor *x, tensor **level, int levels, const char *prefix);

#endif
