/* tracks_read.h - between the files that read tracks. */
#ifndef EVAL_TRACKS_READ_H
#define EVAL_TRACKS_READ_H

#include <jansson.h>

#include "eval/tracks.h"

/* Which videos and categories of the truth a results file speaks of, by what it calls them. */
typedef struct track_match {
    id_table  videos, categories;
    int32_t  *video, *category;     /* index in the truth of each; -1: not there */
    size_t   *frames;               /* of each video, and their numbers; NULL: the same as the truth's */
    int64_t **numbers;
} track_match;

/* Reads "videos" and "categories" of `o` into `m`; memory of numbers is the set's. Freed by track_match_free always. */
int     track_match_open(track_match *m, track_set *s, const track_set *truth, const json_t *o, samite_error *err);
void    track_match_free(track_match *m);
/* Index in the truth, or -1. *numbers: see above. */
int32_t track_match_video(const track_match *m, const track_set *truth, const id_value *id, const int64_t **numbers,
                          size_t *frames);
int32_t track_match_category(const track_match *m, const track_set *truth, const id_value *id);

/* Are these the JSON lines of samite track? */
bool tracks_are_lines(const char *data, size_t size);
int  tracks_read_lines(track_set *s, const track_set *truth, const char *data, size_t size, samite_error *err);

/* Id of a JSON value; the characters are in `room` or belong to the value. */
id_value tracks_id(const json_t *v, char room[64]);
/* "frame_indices" of a video, in *out; NULL when there are none. SAMITE_INPUT unless they are `n` ascending numbers. */
int tracks_numbers(int64_t **out, track_set *s, const json_t *list, size_t n, size_t at, samite_error *err);
/* Where in the lists of a video the frame of this number is; -1: not there. */
int64_t tracks_position(const video_size *v, int64_t number);
/* A track without masks; then one mask of it, which may be null; then it goes into the set, unless it has none. */
int tracks_open(track_set *s, const video_size *video, track *t, samite_error *err);
int tracks_put_mask(track_set *s, const video_size *video, track *t, size_t frame, const json_t *v, const char *what,
                    samite_error *err);
int tracks_keep(track_set *s, const track_set *truth, const track *t, samite_error *err);
int tracks_no_memory(const track_set *s, samite_error *err);

#endif
