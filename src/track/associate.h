/* associate.h - which detection shows which tracked object, and which show something new. Pure decisions. */
#ifndef TRACK_ASSOCIATE_H
#define TRACK_ASSOCIATE_H

#include "base/error.h"
#include "track/bits.h"
#include "track/options.h"

typedef struct association {
    int    dets, tracks;
    float *iou;                /* [dets, tracks] */
    bool  *covers;             /* [dets, tracks] overlap enough to be the same thing */
    int   *fresh;              /* detections that show something new */
    int    fresh_count, dropped;   /* dropped: new, but over the limit of objects */
    bool  *unmatched, *empty;  /* [tracks] */
    int   *renewal;            /* [tracks] sure detection of that track, or -1 */
    int   *renewed;            /* tracks that have one, in the order of their first */
    int    renewed_count;
} association;

/* scores [det.count], boxes [det.count, 4] x0 y0 x1 y1 in 0..1. SAMITE_RESOURCE: *a is empty. */
int  associate(association *a, const track_options *o, const bit_masks *det, const float *scores, const float *boxes,
               const bit_masks *track, samite_error *err);
void association_free(association *a);

#endif
