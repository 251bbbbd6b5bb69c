/* track_formats.h - frames of `samite track` in the formats of annotation tools. */
#ifndef CLI_TRACK_FORMATS_H
#define CLI_TRACK_FORMATS_H

#include <stdbool.h>

#include "base/file.h"
#include "samite.h"

/* Frames become the pictures 000000.jpg, 000001.jpg, ... of a data set in `folder`; nothing of them stays in memory but
 * numbers. result.json is written as frames come, when a format needs it. */
typedef struct frame_formats {
    const char *folder, *name;     /* name: what the objects are */
    unsigned    formats;           /* FORMAT_...; 0: nothing is written */
    file_writer coco;
    char       *coco_path;         /* NULL: not open */
    int64_t    *frames;            /* number, width, height of each */
    size_t      count, room;
    int64_t     annotations;
} frame_formats;

int frame_formats_open(frame_formats *f, const char *folder, unsigned formats, const char *name, samite_error *err);
int frame_formats_add(frame_formats *f, const samite_frame_result *r, samite_error *err);
/* Finishes the files with the frames so far; keep: false leaves result.json away. Frees in any case. */
int frame_formats_close(frame_formats *f, bool keep, samite_error *err);

#endif
