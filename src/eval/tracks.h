/* tracks.h - objects through the frames of videos, read from COCO-video JSON. */
#ifndef EVAL_TRACKS_H
#define EVAL_TRACKS_H

#include "eval/ids.h"
#include "io/mask.h"

typedef struct video_size {
    int    width, height;
    size_t frames;
    const char *name;
    int64_t    *numbers;      /* [frames] of its frames in the video, ascending; NULL: 0, 1, 2, ... */
} video_size;

/* One object of one video. */
typedef struct track {
    int32_t  video, category;
    double   score;
    char   **mask;            /* [frames of the video] compressed run lengths; NULL: not there */
} track;

typedef struct track_set {
    const char  *path;
    id_table     video_ids, category_ids;
    video_size  *videos;
    size_t       video_room;
    const char **categories;
    size_t       category_room;
    track       *tracks;      /* by order in the file */
    size_t       count, room;
    size_t       unknown_categories, empty_masks, other_frames;   /* other_frames: masks on frames that truth lacks */
    pool         texts;
} track_set;

/* Ground truth: videos (id, width, height, length), categories, annotations (video_id, category_id, segmentations). */
int  track_set_read(track_set *out, const char *path, samite_error *err);
/* Results for `truth`: a list of objects with video_id, category_id, segmentations; or an object with "annotations"
 * whose own videos and categories are matched by name, and whose frames by number ("frame_indices"); or the JSON lines
 * of samite track, where `truth` has one video and one category. */
int  track_results_read(track_set *out, const track_set *truth, const char *path, samite_error *err);
/* The same from memory; `name` is for messages. */
int  track_set_parse(track_set *out, const char *data, size_t size, const char *name, samite_error *err);
int  track_results_parse(track_set *out, const track_set *truth, const char *data, size_t size, const char *name,
                         samite_error *err);
void track_set_free(track_set *s);
/* The mask of a track in a frame; an empty one when it is not there. */
int  track_mask(rle *out, const track_set *truth, const track *t, size_t frame, samite_error *err);

#endif
