/* tracker_inside.h - what the files of the tracker share. */
#ifndef TRACK_TRACKER_INSIDE_H
#define TRACK_TRACKER_INSIDE_H

#include "track/tracker.h"

draft *tracker_draft(const tracker *t, int64_t frame, int object);              /* NULL: none */
draft *tracker_new_draft(tracker *t, int64_t frame, int object);                /* NULL: out of memory */
bool   tracker_has_drafts(const tracker *t, int64_t frame);
void   tracker_drop_drafts(tracker *t, int64_t frame);
/* What the frame already has for clicks: prompted or tracked, and not behind a veil. */
const moment *tracker_known(const tracker *t, int64_t frame);
/* A single object's tracked moments close to a prompted frame are of no use to clicks. */
void   tracker_veil(tracker *t, int64_t frame);
/* Notes a prompt; false: out of memory. */
bool   tracker_note_input(tracker *t, int64_t frame, int object, bool by_person);

/* Where the chosen answer for one object goes: mask [pixels] or NULL, pointer [d]. */
typedef struct answer { float *mask, *pointer, *score, *overlap; } answer;
/* Chooses a guess for each object; absent ones get an absent mask and no pointer. Numbers are copied out of the run.
 * out [B]. */
int    tracker_take(const track_tables *t, run *r, const guesses *g, bool several, const answer *out,
                    samite_error *err);

#endif
