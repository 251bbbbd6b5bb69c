/* session.h - everything a word names, followed through the frames of a video.
 *
 *     session_seek(s, words, ..)         what is looked for; starts over
 *     session_step(s, view, &record)     one frame: detect, track, compare, remember
 *     session_click(s, view, ..)         a person points at an object of the frame that was stepped last
 *     session_result(..)                 what is shown of a record, when it is time to show it
 *
 * Objects that appear on one frame form a batch with a memory of its own. A record holds masks as run lengths and is
 * what waits until young objects have proven themselves.
 */
#ifndef TRACK_SESSION_H
#define TRACK_SESSION_H

#include "io/mask.h"
#include "track/detect.h"
#include "track/lifecycle.h"
#include "track/tracker.h"

/* A frame as the network sees it; all borrowed, values of at.r. */
typedef struct frame_view {
    tracked_frame        at;
    const encoded_image *encoded;
    int                  width, height;     /* of the video */
} frame_view;

typedef struct shown {
    int64_t id;
    float   score;             /* of the detection it began with, 1 after a click */
    float   presence;          /* of this frame: is it there? */
    bool    has_mask;
    bool    hidden;            /* by rule, on this frame */
    rle     mask;
} shown;

typedef struct record {
    int64_t  frame;
    double   time;
    int      width, height;    /* of the frame */
    shown   *item;
    int      count, room;
    int64_t *unconfirmed;      /* ids */
    int      unconfirmed_count;
    int      tracked, dropped; /* objects followed after this frame; detections without room */
    bool     has_counts;
} record;
void   record_free(record *r);
/* The entry of an object, made when missing; NULL: out of memory. */
shown *record_item(record *r, int64_t id);
void   record_remove(record *r, int64_t id);
size_t record_bytes(const record *r);

/* What happened in a step, for those who want to look. */
typedef struct renewal { int64_t id; int det; float logit; bool done; } renewal;
typedef struct step {
    int64_t     frame;
    bool        looked;        /* detections were compared with tracks */
    detections  det;
    int         tracks;        /* objects that were there before; the arrays below have as many */
    int64_t    *id;
    float      *planes;        /* [tracks, pixels] logits after tidying */
    float      *logit;         /* is it there? */
    bool       *suppressed, *removed, *hidden;
    int64_t    *occluded_before;
    bit_masks   bits;
    association a;
    renewal    *renewals;
    int         renewal_count;
    bool       *shows_detection;   /* its mask is the detector's on this frame */
    int64_t     born;          /* first of the new ids */
    int         born_count;
} step;

typedef struct gone { int64_t id, frame; } gone;

typedef struct session {
    const sam3   *net;
    track_tables  tables;
    track_options o;
    int64_t       frames;      /* of the whole video, 0 = not known */
    bool          backward, may_turn;
    /* what is looked for */
    float        *words;       /* [tokens, d]; NULL: nothing yet */
    int           tokens;
    bool          by_text;
    float        *boxes;       /* [box_count, 4] cx cy w h in 0..1 */
    int          *positive;
    int           box_count;
    int64_t       box_frame;
    int64_t       lent_frame;  /* official: its detections were made with the boxes of another frame; -1: none */
    int64_t       looks;       /* frames seen since the start, for detect_every */
    double        detecting;   /* seconds */
    /* who is followed */
    tracker     **batch;       /* objects stand in `all` in this order */
    int           batches, batch_room;
    lifecycle     all;
    gone         *gone;        /* removed by rule: hidden in records that wait */
    int           gone_count, gone_room;
    step          last;        /* emptied at the end of a step unless keep_last */
    bool          keep_last;
    /* For those who watch a step, both may be NULL: after detecting, when `last.det` may be edited; after memories are
     * written, when nobody has left yet. */
    void        (*detected)(void *user, struct session *s);
    void        (*remembered)(void *user, const struct session *s);
    void         *user;
} session;

int  session_open(session **out, const sam3 *net, const track_options *o, int64_t frames, samite_error *err);
void session_close(session *s);                 /* accepts NULL */
/* Forgets objects and what is looked for. */
void session_reset(session *s);

typedef struct sought {
    const float *words;        /* [tokens, d] */
    int          tokens;
    bool         by_text;      /* words were given: new objects on every frame. Else only on the frame of the boxes */
    const float *boxes;
    const int   *positive;
    int          box_count;
    int64_t      box_frame;
} sought;
/* Starts over with something else to look for. */
int  session_seek(session *s, const sought *what, samite_error *err);

/* After a failure the session is good for session_reset only. */
int  session_step(session *s, const frame_view *v, record *out, samite_error *err);

/* Was the object removed by rule? */
bool session_is_gone(const session *s, int64_t id);
int  session_remove(session *s, int64_t id, samite_error *err);

/* One object on the frame that was stepped last. Exactly one of points and mask; a box is two corners in front. */
typedef struct pointed {
    int64_t        id;         /* a new one starts an object */
    const float   *xy;         /* [count, 2] pixels of the network's input */
    const int     *kind;       /* POINT_.. */
    int            count;
    const uint8_t *mask;       /* [16t, 16t] 0 or 1 */
} pointed;
/* Corrects the object's entry in `shown_frame`, the record of that frame. *logits (may be NULL): video-size values
 * of the
 * whole batch before tidying is left out, [*objects, height, width], yours to free. A failure leaves no trace. */
int  session_click(session *s, const frame_view *v, const pointed *p, record *shown_frame, float **logits, int *objects,
                   samite_error *err);
/* Follows whole batches that hold any of `ids` through one more frame without the detector, and corrects those ids. */
int  session_follow(session *s, const frame_view *v, const int64_t *ids, int count, record *shown_frame,
                    samite_error *err);

/* Bytes held between frames, records not counted. */
size_t session_bytes(const session *s);
/* The same for one object at most. */
size_t session_bytes_per_object(const session *s);

/* ---- result.c ---- */
typedef struct track_instance {
    int64_t id;
    float   score, presence;
    float   box[4];            /* x y w h as shares of the picture */
    rle     mask;
} track_instance;
typedef struct track_result {
    int64_t         frame;
    double          time;
    track_instance *item;
    int             count, width, height;
    int             tracked, dropped;
    bool            has_counts;
} track_result;
typedef struct hiding {
    bool           gone, by_rule;      /* leave out removed and hidden objects */
    const int64_t *unconfirmed;
    int            unconfirmed_count;
} hiding;
/* Objects with a mask in order of their ids, no two of them on one pixel. */
int  session_result(const session *s, const record *r, int width, int height, const hiding *h, track_result *out,
                    samite_error *err);
void track_result_free(track_result *r);

/* ---- inside ---- */
void step_free(step *s);
int  session_new_batch(session *s, int objects, tracker **out, samite_error *err);
int  session_batch_of(const session *s, int object, int *first);     /* index of the batch that holds an object */
int  session_remember(session *s, const frame_view *v, samite_error *err);
int  session_drop(session *s, int object, samite_error *err);
void session_lend(session *s, int64_t frame);
bool session_has_boxes(const session *s, int64_t frame);

#endif
