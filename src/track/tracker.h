/* tracker.h - a batch of objects through a video: prompts on some frames, then one frame after another.
 *
 *     tracker_click(t, f, 0, ..)      any number of prompts on frame f; each gives a draft
 *     tracker_settle(t, f, true)      the drafts of f become what is remembered of f
 *     tracker_step(t, g)              frame g as the objects' memories see it
 *
 * A frame that is prompted again starts from the mask it has. Every call works inside the caller's run and leaves
 * nothing in it; `tracked_frame` is made by sam3_click_image from that frame's picture.
 */
#ifndef TRACK_TRACKER_H
#define TRACK_TRACKER_H

#include "model/sam3.h"
#include "track/bank.h"
#include "track/net.h"

#define TRACKER_POINTS 16      /* more on one frame: the first and the last 8 are used */
#define TRACKER_BATCH  32      /* most objects computed together; the rest goes in turns, so that memory is bounded */

/* Tables shared by all batches of a session. */
typedef struct track_tables {
    const sam3 *net;
    float      *rotations;     /* [t * t, d] */
    float      *grid;          /* [t * t, mem_dim] position codes of a memory */
    int         batch;         /* objects computed together at this size */
    const elsewhere *e;        /* who computes instead of `net`, or NULL; set after track_tables_make */
} track_tables;

int  track_tables_make(track_tables *t, const sam3 *net, samite_error *err);
void track_tables_free(track_tables *t);

/* An answer to a prompt that is not remembered yet. */
typedef struct draft {
    int64_t  frame;
    int      object;           /* index in the batch */
    float    score, overlap;
    float   *mask;             /* [4t * 4t] logits; not filled for a given mask */
    float   *pointer;          /* [d] */
    uint8_t *given;            /* [height, width] 1 inside: a given mask at the video's size, or NULL */
    int      width, height;
} draft;

/* Who was prompted where. */
typedef struct prompted_at {
    int64_t frame;
    int     object;
    bool    by_person;         /* clicks or a box; else a mask of the detector */
} prompted_at;

typedef struct tracker {
    const track_tables *tables;
    bank    bank;
    int64_t frames;            /* of the whole video, 0 = not known */
    bool    backward;
    draft  *drafts;
    int     draft_count, draft_room;
    prompted_at *inputs;
    int     input_count, input_room;
} tracker;

/* A picture to track in. `r` is the run its values live in. */
typedef struct tracked_frame {
    run               *r;
    const click_image *image;
    int64_t            frame;
} tracked_frame;

int  tracker_open(tracker *t, const track_tables *tables, int objects, int64_t frames, samite_error *err);
void tracker_close(tracker *t);

/* One prompt for one object. xy [count, 2] in pixels of the model's input picture, kind [count] POINT_..; a box is two
 * corners in front. *out: the draft, borrowed until the next call. */
int  tracker_click(tracker *t, const tracked_frame *f, int object, const float *xy, const int *kind, int count,
                   const draft **out, samite_error *err);
/* The object as a given mask [16t, 16t] of 0 and 1; width, height: of the video. Drafts of one frame do not overlap:
 * the last one wins. by_person: as above. */
int  tracker_mask(tracker *t, const tracked_frame *f, int object, const uint8_t *mask, int width, int height,
                  bool by_person, samite_error *err);
/* Drops what was drafted and not settled. */
void tracker_undo(tracker *t);
/* Nothing to do when the frame has no drafts. write: memories too; else trackers_write must follow before the next
 * frame. */
int  tracker_settle(tracker *t, const tracked_frame *f, bool write, samite_error *err);
/* *out: the moment of that frame, borrowed from the bank. A prompted frame gives what it has; SAMITE_USAGE when nothing
 * was prompted yet. */
int  tracker_step(tracker *t, const tracked_frame *f, const moment **out, samite_error *err);

/* The same for all batches of a frame, without writing memories: trackers_write must follow before the next frame.
 * Objects that look back at as much are computed together, whatever their batch. out [count]. */
int  trackers_look(tracker *const *t, int count, const tracked_frame *f, moment **out, samite_error *err);

/* Fills `out` [16t * 16t] with the mask of an object as memory knows it, -10..10. */
typedef int (*memory_plane)(void *user, int object, float *out, samite_error *err);
/* Writes m[i]->memory from those planes. Objects count over all batches; hidden [objects]: cannot be seen. */
int  trackers_write(tracker *const *t, moment *const *m, int count, const tracked_frame *f, const bool *hidden,
                    memory_plane plane, void *user, samite_error *err);

/* Takes an object out of a batch of several; frames on which only it was prompted are no longer prompted ones. */
int  tracker_remove(tracker *t, int object, samite_error *err);
/* Frames within `window` of `frame` on which the object was only prompted by the detector lose all their prompts. */
void tracker_clear_detected(tracker *t, int object, int64_t frame, int window);
/* See bank_trim. */
void tracker_trim(tracker *t, int64_t frame, bool turn);
size_t tracker_bytes(const tracker *t);

#endif
