/* video.h - frames of a video one at a time: files, folders of pictures, pipes, cameras. */
#ifndef IO_VIDEO_H
#define IO_VIDEO_H

#include "io/image.h"

typedef struct video_reader video_reader;

typedef struct video_facts {
    int64_t frames;            /* 0: not known before the end */
    double  rate;              /* frames per second; 0: not known */
    bool    folder;            /* of pictures; its frames can have different sizes */
    bool    seekable;          /* any frame seen before can be read again */
    const char *codec;         /* "h264", "PNG", ...; borrowed */
} video_facts;

/* Opens
 *   a file that FFmpeg knows (mp4, mov, avi, mkv, webm, y4m, mjpeg, ...),
 *   a folder of pictures, in natural order of their names; other files in it are left out; a picture by itself,
 *   "-": standard input, in any form that can be told from its beginning (MJPEG, Y4M, MPEG-TS, ...),
 *   "raw:WIDTHxHEIGHT[@RATE]:PATH": frames of 8-bit RGB without anything between them,
 *   "device:FORMAT:NAME" such as device:v4l2:/dev/video0.
 * `skip_rotation`: frames as stored, not upright. `skip_bad`: pictures of a folder that cannot be read are left out,
 * the others keep their numbers. */
typedef struct video_reader_options { bool skip_rotation, skip_bad; } video_reader_options;
int  video_open(video_reader **out, const char *path, const video_reader_options *o, samite_error *err);
void video_close(video_reader *v);              /* accepts NULL */
const video_facts *video_facts_of(const video_reader *v);

/* The next frame; *out is yours to free with pixels_free. `index` counts from 0, `time` is in seconds from the first
 * frame. 1: a frame; 0: the end (*out empty); negative: an error, and the frames before it were fine. A stream that
 * breaks in the middle ends there; video_damage tells. */
typedef struct video_frame {
    pixels  picture;
    int64_t index;
    double  time;
} video_frame;
int  video_next(video_reader *v, video_frame *out, samite_error *err);
/* A frame by its index, which must be at most one behind the last one read; video_next goes on from there. With
 * skip_bad it can be a later one: out->index tells. */
int  video_at(video_reader *v, int64_t index, video_frame *out, samite_error *err);
/* What was wrong with the data of a stream that was read to its end, or so far, or NULL. */
const char *video_damage(const video_reader *v);

/* ---- writing ---- */

typedef struct video_writer video_writer;
/* MP4 (or what the name's ending says) with H.264 where FFmpeg can encode it, else MJPEG. Sizes are padded to even
 * numbers. The file appears when it is closed. rate 0: 25. */
int  video_writer_open(video_writer **out, const char *path, int width, int height, double rate, samite_error *err);
/* A frame of that size, [height, width, 3], shown from `time` seconds on (growing from frame to frame); not a
 * number: by the
 * rate. */
int  video_writer_add(video_writer *w, const uint8_t *rgb, double time, samite_error *err);
int  video_writer_close(video_writer *w, samite_error *err);
void video_writer_abort(video_writer *w);       /* accepts NULL */
const char *video_writer_codec(const video_writer *w);

#endif
