/* video_inside.h - kinds of video sources behind one reader. Not for use outside src/io. */
#ifndef IO_VIDEO_INSIDE_H
#define IO_VIDEO_INSIDE_H

#include "io/video.h"

/* What a kind of source implements. */
typedef struct video_source {
    /* 1: the frame after the last one, with its time; 0: the end; negative: error. */
    int  (*next)(video_reader *v, video_frame *out, samite_error *err);
    /* Makes `next` go on with frame `index`, which was read before. NULL: cannot. */
    int  (*seek)(video_reader *v, int64_t index, samite_error *err);
    void (*close)(video_reader *v);
} video_source;

struct video_reader {
    const video_source  *source;
    char                *path;
    video_facts          facts;
    video_reader_options options;
    void                *inside;       /* of the source */
    int64_t              next;         /* index of the frame that comes next */
    int                  width, height;/* of the first frame; later ones are scaled to it */
    int64_t              last_at;      /* last frame asked for by index, or -1 */
    video_frame         *kept;         /* frames decoded on the way to an earlier one */
    int                  kept_count;
    int                  skipped;      /* pictures left out */
    int64_t              skipped_to;   /* they lie before this one */
    char                 damage[256];
};

/* Notes what is wrong with the data, in words that video_damage gives out. */
void video_note(video_reader *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

int video_open_stream(video_reader *v, const char *url, const char *format, samite_error *err);

#endif
