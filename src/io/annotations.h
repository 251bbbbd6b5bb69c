/* annotations.h - pictures with labelled objects, and the files of annotation tools that hold them. */
#ifndef IO_ANNOTATIONS_H
#define IO_ANNOTATIONS_H

#include <jansson.h>

#include "base/file.h"
#include "base/text.h"
#include "io/georef.h"
#include "io/mask.h"

typedef struct outlines {
    size_t  count;
    size_t *ends;      /* [count] index of the point after the last of each polygon */
    double *xy;        /* points x, y in pixels */
} outlines;

typedef struct labelled_image {
    char *file;        /* as it stands in files */
    int   width, height;
    size_t first, count;   /* its objects, after annotations_sort */
} labelled_image;

/* At least one of mask, drawn and has_box is there. */
typedef struct labelled_object {
    int      image, category;     /* indices */
    rle      mask;                /* runs == 0: none */
    outlines drawn;               /* polygons as a file had them; count == 0: none. Their union is meant */
    double   box[4];              /* x, y, width, height */
    bool     has_box, crowd, has_track;
    int64_t  track;               /* the same for an object on all frames of a video */
    double   score;               /* NAN: none */
} labelled_object;

/* What was not taken over, by reason. */
typedef struct dropped {
    const char *why;              /* static */
    size_t      count;
    char        first[96];        /* the first case */
} dropped;

#define DROP_REASONS 24
typedef struct annotations {
    labelled_image  *images;
    size_t           image_count, image_room;
    char           **categories;
    size_t           category_count, category_room;
    labelled_object *objects;
    size_t           count, room;
    dropped          drops[DROP_REASONS];
    size_t           drop_count;
} annotations;

/* ---- annotations.c ---- */
void annotations_free(annotations *a);
/* The index of a new image, or -1 when out of memory (*err is set then). `file` is copied. */
int  annotations_add_image(annotations *a, const char *file, int width, int height, samite_error *err);
/* The index of the category of this name, made when new; -1 when out of memory. */
int  annotations_category(annotations *a, const char *name, samite_error *err);
/* Takes *o over, also on failure. */
int  annotations_add(annotations *a, labelled_object *o, samite_error *err);
void annotations_drop(annotations *a, const char *why, const char *format, ...) __attribute__((format(printf, 3, 4)));
void object_free(labelled_object *o);
/* Puts objects in the order of their pictures, as writers need them. */
int  annotations_sort(annotations *a, samite_error *err);

/* What the object covers in a picture of this size; a box without an outline counts as its area. */
int  object_mask(rle *out, const labelled_object *o, int width, int height, samite_error *err);
/* Its polygons: as drawn, or along the pixel edges of its mask with holes cut open, or the corners of its box. */
int  object_outlines(outlines *out, const labelled_object *o, samite_error *err);
/* The box given, or the one around mask or outlines. */
void object_box(double box[4], const labelled_object *o);
int  outlines_add(outlines *p, const double *xy, size_t points, samite_error *err);
void outlines_free(outlines *p);

/* Appends text for an XML attribute or element; what XML cannot hold becomes '?'. */
void text_add_xml(text *t, const char *s);
/* Commits `t` as the file `path`, or fails when memory ran out on the way; frees `t` in any case. */
int  text_write_file(text *t, const char *path, samite_error *err);
/* The JSON document as a file; frees `o`; NULL: out of memory. */
int  json_write_file(json_t *o, const char *path, samite_error *err);

/* ---- writers, for sorted annotations. One picture's objects as one file; `image` is an index: ---- */
int labelme_write(const annotations *a, int image, const char *path, samite_error *err);
int yolo_write(const annotations *a, int image, const char *path, samite_error *err);
int voc_write(const annotations *a, int image, const char *path, samite_error *err);
int geojson_write(const annotations *a, int image, const georef *where, const char *path, samite_error *err);
/* ---- all pictures in one file ---- */
int cvat_write(const annotations *a, const char *path, samite_error *err);
int coco_annotations_write(const annotations *a, const char *path, samite_error *err);
/* The names of the categories as data.yaml of Ultralytics. */
int yolo_write_names(const annotations *a, const char *path, samite_error *err);

/* ---- readers: bytes of one file, not trusted. What cannot be taken over is counted as dropped; a broken file is
 * SAMITE_INPUT and leaves what was added. `name` is for messages. ---- */
int coco_annotations_read(annotations *a, const char *data, size_t size, const char *name, samite_error *err);
int labelme_read(annotations *a, const char *data, size_t size, const char *name, samite_error *err);
int voc_read(annotations *a, const char *data, size_t size, const char *name, samite_error *err);
int cvat_read(annotations *a, const char *data, size_t size, const char *name, samite_error *err);
/* Into image `image`, whose size is known; classes are numbered as the categories are. */
int yolo_read(annotations *a, int image, const char *data, size_t size, const char *name, samite_error *err);
/* The "names" of a data.yaml, or one name a line. */
int yolo_read_names(annotations *a, const char *data, size_t size, const char *name, samite_error *err);
/* Every value but 0 of a gray or palette picture is an object of category `category`, in ascending order. */
int label_map_read(annotations *a, int image, int category, const uint16_t *values, samite_error *err);

#endif
