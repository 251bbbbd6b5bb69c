/* coco_match.h - between coco.c, coco_match.c and coco_accumulate.c. Not for use elsewhere. */
#ifndef EVAL_COCO_MATCH_H
#define EVAL_COCO_MATCH_H

#include "eval/coco.h"

/* What became of one kept detection: bit t of matched[a] and ignored[a] is for IoU threshold t in area range a. */
typedef struct outcome {
    double   score;
    uint16_t matched[COCO_AREAS], ignored[COCO_AREAS];
    uint8_t  rank;               /* among those of its image and category, from 0; COCO_MOST: beyond the limit */
} outcome;

/* Objects and detections of one category in one image; ranges of the sorted lists below. */
typedef struct group {
    int32_t  category;           /* rank in ascending order of ids */
    uint32_t truth, truths, result, results;
} group;

typedef struct matcher {
    const eval_set     *truth, *results;
    const coco_options *o;
    uint32_t           *truth_list, *result_list;   /* item numbers by category, image, order in the file */
    size_t              truths, result_count;
    group              *groups;
    size_t              group_count;
    outcome            *outcomes;                   /* [result_count], in each group best first */
    uint32_t           *shown;                      /* [truths] item whose content counts (compat: repeated ids) */
    coco_result        *out;
} matcher;

extern const double coco_areas[COCO_AREAS][2];
extern const int    coco_limits[COCO_LIMITS];

/* Matches every group. */
int match_groups(matcher *m, samite_error *err);
/* Precision and recall of all categories from the outcomes. */
int accumulate(matcher *m, samite_error *err);

#endif
