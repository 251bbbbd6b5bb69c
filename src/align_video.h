/* align_video.h - one variant of a video reference while it is repeated. */
#ifndef ALIGN_VIDEO_H
#define ALIGN_VIDEO_H

#include "align.h"
#include "track/requests.h"

typedef struct video_variant {
    aligner      *a;
    samite_image *im;              /* the frame at hand is encoded in it */
    requests     *q;
    json_t       *about;           /* the variant's json */
    int           call;
    const json_t *trace;           /* of this call */
    int           worked, answered;/* entries of the trace and answers so far */
    const tensor_list *seen;       /* detections of the variant "text", see video_detected */
} video_variant;

/* Compares what a worked frame left behind with its entry of the trace. */
void video_worked(void *user, const requests *q, action_kind kind, const float *logits, int objects);
/* Puts the recorded masks of detections in place of ours where these are the same but for rounding: a pixel that
 * lies on
 * the edge of a mask to the last digit must not decide how the rest of the clip goes. */
void video_detected(void *user, session *s);
/* The same for memories, before objects leave their batches. */
void video_remembered(void *user, const session *s);
int  video_answer(void *user, const track_result *r, samite_error *err);

/* load.safetensors, where it is there. */
int  align_loaders(aligner *a, samite_model *m, samite_error *err);

/* Reports whether two JSON values are equal; takes over `ours`. */
void video_equal(video_variant *v, const char *name, json_t *ours, const json_t *theirs);

#endif
