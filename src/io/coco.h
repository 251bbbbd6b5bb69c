/* coco.h - results as COCO-style JSON. */
#ifndef IO_COCO_H
#define IO_COCO_H

#include "base/text.h"
#include "io/mask.h"

typedef struct coco_image {
    int64_t     id;
    const char *file_name;
    int         width, height;      /* of the picture that boxes and masks refer to */
    int         exif_orientation;   /* 1..8 as found in the file; 0: not known */
    bool        exif_applied;       /* width, height and masks are those of the upright picture */
} coco_image;

typedef struct coco_category {
    int64_t     id;
    const char *name;               /* the prompt */
} coco_category;

typedef struct coco_annotation {
    int64_t    id, image_id, category_id;
    double     box[4];              /* x, y, width, height */
    double     score;
    const int64_t *track;           /* NULL: none */
    const rle *mask;                /* NULL: a box without segmentation, whose area is the box's */
} coco_annotation;

typedef enum coco_segmentation {
    COCO_RLE,         /* "segmentation": {"size": [height, width], "counts": "..."} */
    COCO_POLYGONS,    /* "segmentation": [[x, y, ...], ...], see mask_to_polygons about holes */
    COCO_BOTH,        /* run lengths as "segmentation", outlines as "polygons" */
} coco_segmentation;

/* Everything is borrowed. */
typedef struct coco_data {
    const char            *description;   /* what made this, for "info"; NULL: none */
    const char            *info;          /* a JSON object that becomes "info" instead; NULL: none */
    const coco_image      *images;
    size_t                 image_count;
    const coco_category   *categories;
    size_t                 category_count;
    const coco_annotation *annotations;
    size_t                 annotation_count;
    coco_segmentation      segmentation;
    double                 tolerance;     /* of polygons, in pixels; 0: exact */
} coco_data;

/* Appends the JSON document (one record a line) to `out`. Names need not be valid UTF-8: bad bytes become
 * U+FFFD, in file names \xNN with all bytes in file_name_hex. */
int coco_format(text *out, const coco_data *data, samite_error *err);
/* The same into a file that appears whole or not at all. */
int coco_write(const char *path, const coco_data *data, samite_error *err);

/* `s` as a new string of valid UTF-8, with U+FFFD for what is not; NULL when out of memory. */
char *utf8_repair(const char *s);
/* Next code point of a NUL-terminated string, which it steps over; U+FFFD for a bad byte; 0 at the end. */
uint32_t utf8_next(const char **s);

#endif
