/* api_video.h - the inside of a public video session. */
#ifndef API_VIDEO_H
#define API_VIDEO_H

#include "api.h"
#include "track/session.h"

struct samite_video {
    samite_model *model;
    samite_image *im;              /* the frame pushed last is encoded in it */
    session      *s;
    record       *waiting;         /* oldest first */
    int           count, room;
    record        shown;           /* of the frame pushed last, when it did not wait; clicks correct it */
    bool          prompted;        /* official: the next frame is stepped twice */
    bool          pushed, broken;
    int64_t       frame;           /* pushed last */
    double        time;
    double        encoding, tracking;  /* seconds */
};

/* The picture in v->im as the session sees it. */
frame_view video_view(const samite_video *v);
/* Adds a record as it is shown now to *r. */
int  video_add_result(samite_video *v, samite_video_results *r, const record *one, const hiding *h, int width,
                      int height,
                      samite_error *err);

#endif
