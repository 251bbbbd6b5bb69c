/* segmentation.h - polygons and both kinds of run lengths, as files have them, to compressed text, in batches. */
#ifndef EVAL_SEGMENTATION_H
#define EVAL_SEGMENTATION_H

#include "eval/dataset.h"

typedef enum shape_kind { SHAPE_POLYGONS, SHAPE_COUNTS, SHAPE_TEXT, SHAPE_BOX } shape_kind;

typedef struct shape {
    size_t     item;            /* index of the item it belongs to */
    shape_kind kind;
    size_t     first, count;    /* numbers, or characters of the text */
    size_t     ends, parts;     /* polygons: indices behind each, in `ends` */
    double     height, width;   /* "size" of run lengths; -1: not given */
} shape;

/* Shapes waiting to be converted together. */
typedef struct shape_batch {
    double *numbers;
    size_t  count, room;
    size_t *ends;
    size_t  end_count, end_room;
    char   *bytes;
    size_t  byte_count, byte_room;
    shape  *shapes;
    size_t  shape_count, shape_room;
} shape_batch;

/* Converts on all threads and empties the batch. Area and box of an item are taken from its mask where they are not
 * known. The first bad shape is named. */
int  shapes_convert(shape_batch *b, eval_set *set, const eval_set *images, bool keep, samite_error *err);
void shapes_free(shape_batch *b);

/* The union of the polygons of a shape, and run lengths as a list of numbers. `what` is for messages. */
int shape_polygons(rle *out, const shape_batch *b, const shape *s, int width, int height, const char *what,
                   samite_error *err);
int shape_counts(rle *out, const shape_batch *b, const shape *s, int width, int height, const char *what,
                 samite_error *err);

#endif
