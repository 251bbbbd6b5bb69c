/* draw.h - results drawn over a picture. */
#ifndef IO_DRAW_H
#define IO_DRAW_H

#include "io/mask.h"

typedef struct draw_instance {
    const rle  *mask;       /* of the picture's size, or NULL */
    double      box[4];     /* x, y, width, height; an empty one is not drawn */
    const char *name;       /* UTF-8, or NULL for no label */
    double      score;      /* shown behind the name; negative: not shown */
    int         colour;     /* index of the colour, see draw_colour */
} draw_instance;

typedef struct draw_style {
    bool   masks, outlines, boxes, labels;
    double opacity;         /* of masks, 0..1 */
    double scale;           /* of lines and letters; 1 suits the picture's size */
    bool   plain_font;      /* only the built-in letters: the same picture on every machine */
} draw_style;

#define DRAW_STYLE_INIT { .masks = true, .outlines = true, .boxes = true, .labels = true, .opacity = 0.45, .scale = 1 }

/* Endless row of well distinguishable colours. */
void draw_colour(uint8_t rgb[3], int index);

/* Draws over [height, width, 3] pixels: masks (large ones first), outlines, boxes, then labels, which stay inside the
 * picture and avoid each other where there is room. The first instance is the most important one. `style` may be
 * NULL. */
int draw_overlay(uint8_t *rgb, int width, int height, const draw_instance *instances, size_t count,
                 const draw_style *style, samite_error *err);

#endif
