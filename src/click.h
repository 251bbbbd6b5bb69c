/* click.h - questions about single objects of an encoded picture, below the public API: for samite_image_click, align. */
#ifndef CLICK_H
#define CLICK_H

#include "api.h"

/* Holes of at most this many pixels of the decoder's mask are filled, with this logit. */
#define CLICK_HOLE_AREA  256
#define CLICK_HOLE_LOGIT 10.0f
#define CLICK_HOLE_SIDE  288       /* of the mask that the area was meant for */
/* Logits handed out are clamped to +- this. */
#define CLICK_LIMIT      32.0f

/* A question in pixels of the picture. */
typedef struct question {
    const samite_point *points;
    int                 point_count;
    const samite_box   *box;
    const float        *logits;    /* [side, side] or NULL */
} question;

/* Guesses as values of im->r, which the caller brackets with run_save and run_restore. Needs image_clicks before. */
int image_ask(samite_image *im, const question *q, guesses *out, samite_error *err);

/* Are the points inside the picture, does the mask fit, is the box one? *box: the box, cut at the border. */
int image_check_click(const samite_image *im, const samite_click *c, samite_box *box, samite_error *err);

#endif
