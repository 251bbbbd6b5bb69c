/* cgf1.h - the SA-Co metric: F1 of what was found where the phrase applies, times how well its presence was told. */
#ifndef EVAL_CGF1_H
#define EVAL_CGF1_H

#include "eval/coco.h"

#define CGF1_NUMBERS 26

/* Names in the order of the official evaluator; "cgF1", ..., "IL_MCC", "cgF1@0.5", ... */
extern const char *const cgf1_names[CGF1_NUMBERS];

typedef struct cgf1_result {
    double numbers[CGF1_NUMBERS];
    size_t points, left_out;      /* (image, phrase) pairs evaluated; not exhaustively annotated in some file */
} cgf1_result;

/* `truths` are alternative annotations of the same pairs: each pair counts as in the one that suits the results best.
 * results[i] are the same results, read for truths[i]. Results below `threshold` do not count. */
int cgf1_evaluate(cgf1_result *out, const eval_set *truths, const eval_set *results, size_t count, bool masks,
                  double threshold, samite_error *err);

#endif
