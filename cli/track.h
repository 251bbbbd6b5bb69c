/* track.h - inside `samite track`: settings, prompts on frames, and where results go. */
#ifndef CLI_TRACK_H
#define CLI_TRACK_H

#include <stdio.h>

#include <jansson.h>

#include "base/file.h"
#include "report.h"
#include "session.h"
#include "track_formats.h"

/* Something a person says about one object on one frame. */
typedef enum ask_kind { ASK_POINT, ASK_BOX, ASK_MASK, ASK_REMOVE, ASK_LIKE } ask_kind;
typedef struct ask {
    ask_kind     kind;
    int64_t      frame, object;    /* object -1: the unnamed one */
    samite_point point;
    samite_box   box;
    const char  *mask;             /* path */
    bool         done;
} ask;

typedef struct asks {
    ask    *item;
    int     count, room;
    int64_t object;                /* the next ones speak of; --object */
    int     named;                 /* how many there were when it came; -1: it did not */
} asks;

typedef struct track_settings {
    engine_settings engine;
    const char *text, *out, *overlay, *direction;
    asks        asks;
    double      score, new_score, seconds;
    int         from, to, stride, start, max_objects, detect_every, delay;
    uint64_t    object_memory;
    unsigned    formats;           /* FORMAT_...; 0: none */
    bool        labels, official, no_rotation, no_json, skip_bad;
} track_settings;

/* Do frames come in another order than that of the video? */
bool track_turns(const track_settings *s);
/* How its video is opened. */
unsigned track_clip_flags(const track_settings *s);

int parse_ask_point(void *to, const char *name, const char *value, samite_error *err);
int parse_ask_box(void *to, const char *name, const char *value, samite_error *err);
int parse_ask_mask(void *to, const char *name, const char *value, samite_error *err);
int parse_ask_remove(void *to, const char *name, const char *value, samite_error *err);
int parse_ask_like(void *to, const char *name, const char *value, samite_error *err);
int parse_ask_object(void *to, const char *name, const char *value, samite_error *err);

/* Everything that was asked about a frame, after it was pushed. *shown: the frame with the answers, yours to free, or
 * NULL when nothing was pointed at. */
int  asks_apply(asks *a, samite_video *v, int64_t frame, const samite_pixels *px, samite_video_results **shown,
                samite_error *err);
/* Says which ones no frame was there for. */
int  asks_check(const asks *a, samite_error *err);

/* ---- results ---- */

/* A frame whose pixels wait for its result. */
typedef struct held { int64_t frame; double time; samite_pixels px; } held;
/* A result that waits for the pixels of its frame. */
typedef struct spooled { int64_t frame; long at; } spooled;

/* The video with objects drawn in. Frames that come in their own order are drawn as they come; else results go to a
 * nameless file, and the video is read once more at the end. */
typedef struct overlay {
    samite_movie *movie;
    held         *held;
    spooled      *spooled;
    int           held_count, held_room, spooled_count, spooled_room;
    FILE         *spool;
    double        first;           /* time of its first frame */
} overlay;

typedef struct track_output {
    const track_settings *s;
    const char   *source;
    overlay       over;
    frame_formats formats;
    int           width, height;
    bool          labels;
    double        rate;
    int64_t      *frames;          /* that were given out */
    double       *times;
    size_t        frame_count, frame_room;
    int64_t      *ids;             /* seen so far */
    double       *scores;
    size_t        id_count, id_room;
} track_output;

int  output_open(track_output *o, const track_settings *s, const char *source, double rate, samite_error *err);
/* Keeps the pixels for the overlay; takes them over. */
int  overlay_hold(track_output *o, samite_pixels *px, int64_t frame, double time, samite_error *err);
int  output_results(track_output *o, const samite_video_results *r, samite_error *err);
int  overlay_add(track_output *o, const samite_frame_result *f, samite_error *err);
/* Finishes the video with the results that were added, and frees everything. */
int  overlay_close(track_output *o, samite_error *err);
/* Finishes the files; `code`: what happened before, in which case the overlay is finished with what there is. */
int  output_close(track_output *o, int code, samite_error *err);

#endif
