/* options.h - every threshold of tracking by words, with the numbers of the official model. */
#ifndef TRACK_OPTIONS_H
#define TRACK_OPTIONS_H

#include <stdbool.h>

typedef struct track_options {
    /* detections */
    float score;               /* least score */
    float nms;                 /* masks that overlap a better one more than this are dropped; 0 = none are */
    int   detect_every;        /* look for new objects on every N-th frame */
    /* detections and tracks */
    float overlap;             /* least mask IoU at which a detection belongs to a track and is not a new object */
    float match;               /* least mask IoU at which a track counts as seen by the detector */
    bool  one_to_one;          /* match by best assignment instead of each for itself */
    float new_score;           /* least score of a new object, once there are tracks */
    bool  avoid_border;        /* no new objects whose centre is within `border` of the edge */
    float border;              /* share of the side */
    int   max_objects;         /* at once */
    /* the first frames of an object: what the detector does not see again, or sees as another object, was an error */
    int   delay;               /* frames a result waits, and age up to which objects are removed */
    int   unmatched_limit;     /* removed when unseen on so many frames */
    int   duplicate_limit;     /* removed when it shared a detection with an older object so often */
    /* objects the detector has not seen for long */
    bool  hide_unmatched;      /* hide them while `alive` is used up */
    int   alive_start, alive_most, alive_least;
    bool  empty_counts;        /* an empty mask uses it up too */
    int   confirm;             /* hide an object until seen on so many frames in a row; 0 = show at once */
    /* masks */
    int   hole_area;           /* pixels of the decoder's mask: smaller holes and specks are filled */
    /* of two masks that overlap so much, the one hidden more recently is dropped; 0 = none */
    float occlusion;
    float keep_share;          /* a mask that others leave less of is not remembered on this frame */
    /* sure detections renew what is remembered of a track */
    int   renew_every;         /* on every N-th frame; 0 = never */
    float renew_detection;     /* least score of such a detection */
    float renew_overlap;       /* least mask IoU with the track */
    float renew_logit;         /* least object logit of the track */
    float renew_box_overlap;   /* renew at once when boxes overlap less than this; 0 = never */
    float renew_box_detection; /* least score of a detection for that */
    /* memory */
    bool  select_memories;     /* only frames of some quality are remembered */
    int   click_window;        /* detections within so many frames of a click no longer count as prompts */
    /* behaviour */
    bool  official;            /* repeat what the official program does, errors included; see docs/video.md */
} track_options;

#define TRACK_OPTIONS_INIT { \
    .score = 0.5f, .nms = 0.1f, .detect_every = 1, .overlap = 0.1f, .match = 0.5f, .new_score = 0.7f, \
    .border = 0.025f, \
    .max_objects = 10000, .delay = 15, .unmatched_limit = 8, .duplicate_limit = 8, .alive_start = 30, \
    .alive_most = 30, \
    .alive_least = -1, .hole_area = 16, .occlusion = 0.7f, .keep_share = 0.3f, .renew_every = 16, \
    .renew_detection = 0.8f, .renew_overlap = 0.8f, .renew_logit = 0.8f, .select_memories = true, .click_window = 16 }

#endif
