/* seams.h - masks found in overlapping windows of a picture, put together to whole objects. */
#ifndef IO_SEAMS_H
#define IO_SEAMS_H

#include "io/mask.h"

/* Pixels x0 <= x < x1, y0 <= y < y1 of the picture. */
typedef struct window { int x0, y0, x1, y1; } window;

/* What was found in a window, in pixels of the picture. */
typedef struct piece {
    rle   mask;              /* of the picture's size, not empty; owned */
    float box[4];            /* x0 y0 x1 y1 */
    float score;
    int   window;            /* index; -1: found in the picture as a whole */
} piece;

typedef struct piece_list {
    piece *item;
    size_t count, room;
} piece_list;

/* Takes *p over, also on failure. */
int  pieces_add(piece_list *l, piece *p, samite_error *err);
void pieces_free(piece_list *l);

/* Start of window `i` along an axis of `length` pixels, and how many windows there are. */
int  window_count(int length, int tile, int overlap);
int  window_start(int i, int length, int tile, int overlap);

/* Joins pieces of one prompt, which then are whole objects, best score first. Two pieces are one object when their
 * masks agree in the strip that both windows see: IoU of at least `agree` there, or one lies within the other there and
 * is cut off by an edge of its window. Of an object that was found in the whole picture too, the masks of the windows
 * are kept, which are sharper; cut-off pieces within it are joined to it. The score of an object is that of its best
 * piece. */
int  seams_join(piece_list *l, const window *windows, double agree, samite_error *err);

/* The mask of a part at (x, y) as one of a picture. It must fit. */
int  rle_place(rle *out, const rle *part, int x, int y, int width, int height, samite_error *err);
/* What the window shows of the mask. */
int  rle_crop(rle *out, const rle *r, const window *w, samite_error *err);

#endif
