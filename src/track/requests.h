/* requests.h - the official requests on a clip whose frames can be fetched in any order.
 *
 * What a propagation does is derived from what was asked before, as the original derives it: a full pass, a pass of the
 * objects that were pointed at, or what is known already. Every frame's record is kept.
 */
#ifndef TRACK_REQUESTS_H
#define TRACK_REQUESTS_H

#include "track/session.h"

typedef enum action_kind { ADDED, REFINED, REMOVED, WENT_FULL, WENT_PARTIAL, FETCHED } action_kind;

typedef struct action {
    action_kind kind;
    int64_t     frame;         /* -1: none */
    int64_t    *ids;           /* of WENT_PARTIAL a copy, else one */
    int         count;
} action;

typedef struct requests requests;

typedef struct request_calls {
    /* The values of a frame; borrowed until the next call. */
    int  (*view)(void *user, int64_t frame, frame_view *out, samite_error *err);
    /* After every frame that was worked on (may be NULL). logits of the clicked batch, [objects, height, width], or
     * NULL. */
    void (*worked)(void *user, const requests *q, action_kind kind, const float *logits, int objects);
    void  *user;
} request_calls;

struct requests {
    session       *s;
    int64_t        frames;
    int            width, height;
    request_calls  calls;
    record        *cache;      /* [frames] */
    bool          *cached, *known;     /* [frames] known: a full step was made */
    action        *history;
    int            count, room;
    int            worked;     /* frames worked on in this request */
};

/* Takes over `s`, which must be official. On failure the session is closed. */
int  requests_open(requests **out, session *s, int64_t frames, int width, int height, const request_calls *calls,
                   samite_error *err);
void requests_close(requests *q);               /* accepts NULL */

/* What every answer is handed to; nonzero ends the request with that code. */
typedef int (*answer_fn)(void *user, const track_result *r, samite_error *err);

int  requests_prompt(requests *q, const sought *what, int64_t frame, answer_fn each, void *user, samite_error *err);
int  requests_point(requests *q, int64_t frame, const pointed *p, answer_fn each, void *user, samite_error *err);
/* start, most: -1 = not given. */
int  requests_propagate(requests *q, bool backward, int64_t start, int64_t most, answer_fn each, void *user,
                        samite_error *err);
int  requests_remove(requests *q, int64_t id, samite_error *err);
void requests_reset(requests *q);

#endif
