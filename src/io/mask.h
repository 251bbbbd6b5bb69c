/* mask.h - masks: enlarging logits, run lengths, polygons, components, overlap. */
#ifndef IO_MASK_H
#define IO_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Run lengths in COCO's order: down the columns from the top left, background first (maybe 0), then alternating. The
 * counts add up to width * height. Masks as bytes are row-major [height, width], 0 or not. */
typedef struct rle {
    int       width, height;
    uint32_t *counts;
    size_t    runs;
} rle;

/* ---- rle.c. `int` functions return 0 or a negative code with *out empty; rle_free accepts an empty one. ---- */
void     rle_free(rle *r);
int      rle_encode(rle *out, const uint8_t *mask, int width, int height, samite_error *err);
void     rle_decode(uint8_t *mask, const rle *r);              /* writes 0 and 1 */
int      rle_copy(rle *out, const rle *in, samite_error *err);
/* Takes counts as found in files; checks them against the size. `what` names the item in messages. */
int      rle_from_counts(rle *out, const uint32_t *counts, size_t runs, int width, int height, const char *what,
                         samite_error *err);
/* COCO's compressed text, `size` characters, not trusted; and back, as a new NUL-terminated string. */
int      rle_from_string(rle *out, const char *s, size_t size, int width, int height, const char *what,
                         samite_error *err);
int      rle_to_string(char **out, const rle *r, samite_error *err);
uint64_t rle_area(const rle *r);
/* x, y, width, height of the smallest box around the mask; zeros when it is empty. */
void     rle_bbox(double box[4], const rle *r);
/* Union, or with `intersect` the common part, of `count` masks of one size (at least one). */
int      rle_merge(rle *out, const rle *masks, size_t count, bool intersect, samite_error *err);
/* What polygon `xy` (points x, y; at least 3) covers, in COCO's arithmetic (a grid five times finer). */
int      rle_from_polygon(rle *out, const double *xy, size_t points, int width, int height, samite_error *err);
int      rle_from_box(rle *out, const double box[4], int width, int height, samite_error *err);

/* ---- overlap.c ---- */
uint64_t rle_intersection(const rle *a, const rle *b);         /* pixels in common; 0 when sizes differ */
/* Intersection over union; with `crowd`, over the area of `a` (b is a crowd region). Boxes are x, y, width, height. */
double   rle_iou(const rle *a, const rle *b, bool crowd);
double   box_iou(const double a[4], const double b[4], bool crowd);
/* Greedy suppression in the given order (best first): keep[j] = 0 where an earlier kept one overlaps more than
 * `threshold`. */
void     rle_nms(uint8_t *keep, const rle *masks, size_t count, double threshold);
void     box_nms(uint8_t *keep, const double (*boxes)[4], size_t count, double threshold);

/* ---- trace.c ---- */
/* 8-connected parts: labels [height, width] get 0 for background and 1.. in the order of their first pixel, row by row.
 * Returns their number, or -1 when out of memory or over 2^31-2 pixels. */
int      mask_components(int32_t *labels, const uint8_t *mask, int width, int height);

typedef struct polygons {
    size_t   count;
    size_t  *ends;   /* [count] index of the point after the last of each polygon */
    int32_t *xy;     /* points x, y on pixel corners, 0..width and 0..height */
} polygons;

/* One polygon for each 8-connected part, along pixel edges. COCO's lists have no notion of holes, so the border of a
 * hole is joined to the border around it by a cut that runs there and back: filled by any rule the hole stays open, and
 * with tolerance 0 rle_from_polygon gives the same mask again. With tolerance > 0, points nearer than that (in pixels)
 * to the simplified line are left out. */
int      mask_to_polygons(polygons *out, const rle *r, double tolerance, samite_error *err);
/* All borders as closed rings, holes apart: outer ones run one way round, those of holes the other. Rings may touch
 * themselves in corners. */
int      mask_borders(polygons *out, const rle *r, samite_error *err);
void     polygons_free(polygons *p);

/* ---- rings.c ---- */
typedef struct ring_list {
    polygons rings;      /* none touches itself; the first point is not repeated */
    size_t  *owner;      /* [rings.count] its own index for an outer ring, the outer ring around it for a hole */
} ring_list;
/* Outer rings and holes in the sense of simple features (GeoJSON, shapely). */
int      mask_to_rings(ring_list *out, const rle *r, samite_error *err);
void     ring_list_free(ring_list *l);

/* ---- mask.c ---- */
/* Bilinear from [h, w] to [height, width], corners not aligned, no antialias: F.interpolate in f32. */
int      mask_resize_bilinear(float *out, int width, int height, const float *in, int w, int h, samite_error *err);
/* The mask "enlarged logit > threshold" at width x height without ever holding the enlarged logits. */
int      mask_from_logits(rle *out, const float *in, int w, int h, int width, int height, float threshold,
                          samite_error *err);

#endif
