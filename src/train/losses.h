/* losses.h - what training minimises, and its gradient at the network's answers. Formulas and weights of the official
 * fine-tuning: L1 and generalised IoU of boxes, IoU-aware classification, presence, focal and dice of masks.
 *
 * Gradients are added to, already weighted: they are those of the sum  scale x weight x term. Terms themselves are
 * returned unweighted, as the official logs show them.
 */
#ifndef TRAIN_LOSSES_H
#define TRAIN_LOSSES_H

#include "train/matcher.h"

typedef struct loss_weights {
    float bbox, giou, ce, presence, mask, dice, semantic, semantic_dice;
    float positive;          /* weight of a matched query in the classification loss */
    float one_to_many;       /* everything of the one-to-many half counts this many times */
} loss_weights;
extern const loss_weights official_weights;      /* 5, 2, 20, 20, 200, 10, 20, 30; 10; 2 */

typedef struct loss_terms {
    double bbox, giou, ce, presence, presence_accuracy, mask, dice;
    double hits, answered, meant;      /* queries: answered and meant, answered (p > 0.5), meant (matched) */
} loss_terms;
double terms_f1(const loss_terms *t);

typedef struct answer_grads {
    float *logits;           /* [prompts, queries] */
    float *boxes;            /* [prompts, queries, 4] from the L1 term, cx cy w h */
    float *corners;          /* [prompts, queries, 4] from the IoU term, x0 y0 x1 y1 */
    float *presence;         /* [prompts]; NULL for the one-to-many half */
} answer_grads;

/* One layer, one half. presence [prompts] logits or NULL; boxes_total: N, what box and mask terms are divided by;
 * prompts_total: prompts of the whole batch, of which `a` may be a part. */
typedef struct loss_norms { double boxes_total, scale; int prompts_total; } loss_norms;
void loss_answers(loss_terms *out, answer_grads *g, const answers *a, const float *presence, const targets *t,
                  const match_list *m, const loss_norms *n, const loss_weights *w);

/* Adds the gradient at corners to that at cx cy w h, n boxes. */
void corners_to_boxes(float *dboxes, const float *dcorners, int64_t n);

/* Mask of one match: logits [side, side] enlarged to the target's size, focal (alpha 0.25, gamma 2) and dice. dlogits
 * is added to. `room`: 2 * target_side^2 floats. Returns the terms already divided by N in *mask and *dice (added to).
 */
void loss_mask(double *mask, double *dice, float *dlogits, const float *logits, int side, const uint8_t *target,
               int target_side, const loss_norms *n, const loss_weights *w, float *room);

/* Map of one prompt against the union of its masks (alpha 0.6): as above; `present`: prompts with a non-empty union. *iou gets
 * this prompt's share of their mean intersection over union. */
void loss_semantic(double *seg, double *dice, double *iou, float *dlogits, const float *logits, int side,
                   const uint8_t *target, int target_side, double present, double scale, const loss_weights *w, float *room);

/* Bilinear enlargement of [side, side] to [to, to] (corners not aligned), and its transpose, which adds. */
void enlarge(float *out, int to, const float *in, int side);
void enlarge_backward(float *din, int side, const float *dout, int to);

#endif
