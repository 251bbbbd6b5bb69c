/* matcher.h - which query answers for which object. */
#ifndef TRAIN_MATCHER_H
#define TRAIN_MATCHER_H

#include "base/error.h"
#include "train/targets.h"

/* Exact assignment of least cost, one query per object (all objects where there are enough queries). Pairs ordered by
 * prompt and object; if any prompt of the batch has more objects than queries, those of all prompts by query, as the
 * original does. SAMITE_FAILED names the prompt whose answers are not finite. */
int match_one_to_one(match_list *out, const answers *a, const targets *t, samite_error *err);

/* Every query that is among the best four of an object and good enough; a query may stand for several objects. Pairs
 * ordered by prompt, query, object. */
int match_one_to_many(match_list *out, const answers *a, const targets *t, samite_error *err);

void match_list_free(match_list *l);

/* Box arithmetic shared with the losses, in f32 as the original: corners of cx cy w h; IoU and generalised IoU. */
typedef struct corners { float x0, y0, x1, y1; } corners;
corners box_corners_of(const float *cxcywh);
float   corners_iou(corners a, corners b);
float   corners_giou(corners a, corners b);

#endif
