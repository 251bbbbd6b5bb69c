/* lifecycle.h - which objects are kept, removed, hidden: rules over what was seen of them so far. Pure decisions. */
#ifndef TRACK_LIFECYCLE_H
#define TRACK_LIFECYCLE_H

#include "track/associate.h"

#define OCCLUDED_NEVER  -1
#define OCCLUDED_ALWAYS 100000 /* of an object that is being removed */

typedef struct masklet {
    int64_t id;
    float   score;             /* of the detection it began with; 1 after a click */
    int64_t first_frame;
    int     unmatched;         /* frames on which the detector did not see it, ever */
    int     alive;             /* counts down while the detector does not see it */
    bool    has_occluded;
    int64_t occluded;          /* last frame on which it was empty or suppressed, or OCCLUDED_.. */
    bool    asked;             /* a person pointed at it: never removed by rule */
    bool    removed, hidden;   /* on this frame */
    bool    confirmed;
    int     seen_in_row;
} masklet;

/* How often `other` shared a detection with an object that is older than it. */
typedef struct rivalry {
    int64_t keeper, other;
    int     count;
} rivalry;

typedef struct lifecycle {
    masklet *object;           /* in the order of their batches */
    int      count, room;
    rivalry *pair;
    int      pairs, pair_room;
    int64_t  next_id;
} lifecycle;

void lifecycle_free(lifecycle *l);
/* Index of the object, or -1. */
int  lifecycle_find(const lifecycle *l, int64_t id);
/* Appends an object; NULL: out of memory. Ids below next_id are fine. */
masklet *lifecycle_add(lifecycle *l, int64_t id, const track_options *o, float score, int64_t frame);
/* Takes object `i` out; its rivalries go unless `keep_pairs`. */
void lifecycle_drop(lifecycle *l, int i, bool keep_pairs);

/* Counts what association `a` says about the a->tracks first objects, and sets `removed` and `hidden`. Objects born on
 * this frame stand behind them. */
int  lifecycle_judge(lifecycle *l, const track_options *o, const association *a, int64_t frame, bool backward,
                     samite_error *err);
/* Sets suppressed[tracks->count] where a mask yields to another one, and remembers who was hidden. */
void lifecycle_occlude(lifecycle *l, const track_options *o, const bit_masks *tracks, int64_t frame, bool backward,
                       bool *suppressed);
/* Counts frames in a row on which objects were seen, after those removed are gone. a->tracks objects were there before,
 * of which gone[i] says that they went. */
void lifecycle_confirm(lifecycle *l, const track_options *o, const association *a, const bool *gone);

#endif
