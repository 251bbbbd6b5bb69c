/* prompt.h - clicks, boxes and a rough mask as tokens and a map that the mask decoder understands. */
#ifndef MODEL_PROMPT_H
#define MODEL_PROMPT_H

#include "model/blocks.h"

/* What a point says. A box is its first and its second corner, in front of any other points. */
enum { POINT_NONE = -1, POINT_NEGATIVE = 0, POINT_POSITIVE = 1, POINT_CORNER1 = 2, POINT_CORNER2 = 3, POINT_KINDS = 4 };

typedef struct prompt_encoder {
    int64_t  side;                 /* of the input picture, in pixels */
    param   *frequencies;          /* [2, d / 2] fixed, random */
    param   *kind[POINT_KINDS];    /* [1, d] */
    param   *none;                 /* [1, d] in place of a missing point */
    param   *no_mask;              /* [1, d] everywhere when there is no mask */
    conv_w   halve[2];             /* 1 -> 4 -> 16 channels */
    norm_w   halve_norm[2];
    linear_w widen;                /* 16 -> d */
} prompt_encoder;

void prompt_declare(prompt_encoder *e, registry *g, const config *c);

/* The points of `batch` prompts about one picture, `count` each. */
typedef struct clicks {
    int64_t      batch;
    int          count;
    const float *xy;               /* [batch, count, 2] pixels of the input picture (side x side) */
    const int   *kind;             /* [batch, count] POINT_.. */
} clicks;

/* [batch, count + 1, d]: a missing point follows the given ones. */
tensor *prompt_points(run *r, const prompt_encoder *e, const clicks *p);
/* The same from values of the run: places [n, 2] as fractions of the picture, there [n, d] 1 where there is a point and 0
 * elsewhere, says [n, d] the rows of kinds; n = batch * (count + 1). -> [batch, count + 1, d] */
tensor *prompt_tokens(run *r, const prompt_encoder *e, tensor *places, tensor *there, tensor *says, int64_t batch);
/* mask [B, 4t, 4t, 1] logits -> [B, t * t, d] */
tensor *prompt_mask(run *r, const prompt_encoder *e, tensor *mask);
/* What stands for a missing mask: [d]. */
tensor *prompt_no_mask(run *r, const prompt_encoder *e);
/* Position codes of the whole picture: [t * t, d]. */
tensor *prompt_grid(run *r, const prompt_encoder *e, int64_t tokens);

#endif
