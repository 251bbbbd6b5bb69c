/* video_official.h - frames as the official video loaders hand them to the network, odd ones included. */
#ifndef IO_VIDEO_OFFICIAL_H
#define IO_VIDEO_OFFICIAL_H

#include "io/image.h"

/* A picture of a folder: bilinear with antialias in 8 bits, rows before columns, then scaled to -1..1 in half
 * precision.
 * out [side, side, 3]. */
int official_picture(float *out, const pixels *in, int side, samite_error *err);
/* A frame of a video file: bicubic without antialias in 8 bits, and not divided by 255: -1 to 509. */
int official_video_frame(float *out, const pixels *in, int side, samite_error *err);

#endif
