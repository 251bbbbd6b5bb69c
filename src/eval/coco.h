/* coco.h - average precision and recall as pycocotools computes them, to the last bit. */
#ifndef EVAL_COCO_H
#define EVAL_COCO_H

#include "eval/dataset.h"

#define COCO_IOUS    10     /* 0.5, 0.55 .. 0.95 */
#define COCO_RECALLS 101
#define COCO_AREAS   4      /* all, small, medium, large */
#define COCO_LIMITS  3      /* 1, 10, 100 detections per image and category */
#define COCO_MOST    100
#define COCO_STATS   12

typedef struct coco_options {
    bool           masks;        /* IoU of masks instead of boxes */
    bool           compat;       /* as pycocotools: id 0 never counts as found, a repeated id means its last object */
    const uint8_t *images;       /* [images] 0: left out; NULL: all */
    const uint8_t *categories;   /* [categories] likewise */
    bool           positive_only;   /* results of categories that the image does not have are left out */
    bool           keep_matches;
    bool           pool;         /* pooled[] too */
} coco_options;

/* Indices run from the last: precision[((iou * RECALLS + recall) * K + category) * AREAS + area) * LIMITS + limit],
 * where categories are numbered in ascending order of ids. -1 where there is no ground truth. */
typedef struct coco_result {
    size_t   categories;         /* K */
    int32_t *category;           /* [K] index into the set's categories */
    double  *precision, *scores; /* [IOUS, RECALLS, K, AREAS, LIMITS] */
    double  *recall;             /* [IOUS, K, AREAS, LIMITS] */
    double   stats[COCO_STATS];
    double   pooled[COCO_STATS]; /* all pairs of image and category as images of one category; with `pool` */
    double  *category_ap;        /* [K] over all areas and IoUs, 100 detections */
    double  *category_ap50;      /* [K] */
    size_t   images, objects, detections;   /* that took part */
    /* with keep_matches, at IoU 0.5 over all areas: index of the partner in the other set, MATCH_NONE, or MATCH_OUT:
     * took no part (crowd, beyond 100, left out). */
    int32_t *truth_match, *result_match;
    double  *result_iou;         /* [results] best IoU with an object of the same category; 0: none */
} coco_result;
enum { MATCH_NONE = -1, MATCH_OUT = -2 };

int coco_evaluate(coco_result *out, const eval_set *truth, const eval_set *results, const coco_options *o,
                  samite_error *err);
void coco_result_free(coco_result *r);

/* Mean in the order of additions of numpy. */
double mean_as_numpy(const double *v, size_t count);
void   coco_thresholds(double ious[COCO_IOUS]);
double coco_box_iou(const double a[4], const double b[4], bool crowd);
extern const char *const coco_stat_names[COCO_STATS];

#endif
