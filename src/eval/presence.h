/* presence.h - is the thing there at all: answers for pairs of image and category against the ground truth; doubles. */
#ifndef EVAL_PRESENCE_H
#define EVAL_PRESENCE_H

#include "eval/evaluation.h"

/* Share of pairs in the JSON file `path`, a list of {"image_id", "category_id", "presence"}, whose presence is above
 * `threshold` exactly when the image has an object of the category. Pairs that were not asked for, that images or
 * categories (NULL: all) leave out, or that have crowds only do not count. */
int evaluate_presence(findings *f, const eval_set *truth, const uint8_t *images, const uint8_t *categories,
                      const char *path, double threshold, samite_error *err);

/* *out: `results` without those whose box overlaps a better one of the same image and category by more than `iou`. Items
 * are out's own, to be freed; everything else belongs to `results`. */
int drop_doubles(eval_set *out, const eval_set *results, double iou, samite_error *err);

#endif
