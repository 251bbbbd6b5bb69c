/* align_click.c - asks an encoded picture about single objects as the reference did, and compares masks and scores. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "click.h"
#include "io/mask.h"
#include "track/choose.h"
#include "track/planes.h"

#define MAX_POINTS 16

typedef struct clicker {
    aligner      *a;
    samite_image *im;
    int64_t       side;          /* of the decoder's masks */
    float        *first;         /* [side, side] clamped logits of the first mask of the first click */
} clicker;

/* The reference's answers: all alternatives in the decoder's order, or the one it chooses. */
static int chosen_guesses(const guesses *g, int64_t n, bool several, int *chosen)
{
    for (int i = 0; several && i < MASK_GUESSES - 1; i++)
        chosen[i] = i + 1;
    if (!several)
        chosen[0] = choose_guess(g->masks->data, g->overlap->data, n, false);
    return several ? MASK_GUESSES - 1 : 1;
}

static void compare_iou(aligner *a, const char *title, const guesses *g, const int *chosen, int count)
{
    float iou[MASK_GUESSES];
    char name[160];
    for (int i = 0; i < count; i++)
        iou[i] = g->overlap->data[chosen[i]];
    snprintf(name, sizeof name, "click.%.80s.iou", title);
    align_tensor(a, name, iou, 1, (int64_t[]){count}, AS_IS);
}

static int compare_masks(clicker *c, const char *title, const guesses *g, const int *chosen, int count,
                         samite_error *err)
{
    int64_t n = c->side * c->side, area = (int64_t)c->im->width * c->im->height;
    int code = 0, side = (int)c->side;
    float *low = malloc(sizeof *low * (size_t)(count * n)), *wide = malloc(sizeof *wide * (size_t)(count * area));
    if (!low || !wide)
        code = fail(err, SAMITE_RESOURCE, "not enough memory to compare %d masks", count);
    for (int i = 0; i < count && !code; i++) {
        float *plane = g->masks->data + chosen[i] * n;
        for (int64_t k = 0; k < n; k++)
            low[i * n + k] = fminf(fmaxf(plane[k], -CLICK_LIMIT), CLICK_LIMIT);
        code = plane_fill_holes(plane, side, side, CLICK_HOLE_AREA, CLICK_HOLE_LOGIT, err);
        if (!code)
            code = mask_resize_bilinear(wide + i * area, c->im->width, c->im->height, plane, side, side, err);
    }
    if (!code) {
        char name[160];
        snprintf(name, sizeof name, "click.%.80s.low_res", title);
        align_tensor(c->a, name, low, 3, (int64_t[]){count, side, side}, AS_IS);
        snprintf(name, sizeof name, "click.%.80s.masks", title);
        align_decided(c->a, name, wide, 3, (int64_t[]){count, c->im->height, c->im->width});
    }
    if (!code && !c->first) {
        c->first = low;
        low = NULL;
    }
    free(low);
    free(wide);
    return code;
}

static float number(const json_t *list, size_t i)
{
    return (float)json_number_value(json_array_get(list, i));
}

/* {"point_coords": [[x, y], ..], "point_labels": [..], "box": [x0, y0, x1, y1], "multimask_output": ..,
 *  "mask_input": ..} */
static int run_click(clicker *c, const char *title, const json_t *o, samite_error *err)
{
    const json_t *at = json_object_get(o, "point_coords"), *label = json_object_get(o, "point_labels");
    const json_t *corners = json_object_get(o, "box");
    samite_point point[MAX_POINTS];
    size_t n = json_array_size(at);
    if (n > MAX_POINTS)
        return fail(err, SAMITE_INPUT, "click %s has %zu points, at most %d work", title, n, MAX_POINTS);
    for (size_t i = 0; i < n; i++) {
        const json_t *p = json_array_get(at, i);
        point[i] = (samite_point){number(p, 0), number(p, 1), number(label, i) == 0};
    }
    samite_box box = {number(corners, 0), number(corners, 1), number(corners, 2), number(corners, 3), 0};
    question q = {point, (int)n, corners ? &box : NULL, json_object_get(o, "mask_input") ? c->first : NULL};
    run_point before = run_save(c->im->r);
    guesses g;
    int chosen[MASK_GUESSES], code = image_ask(c->im, &q, &g, err);
    if (!code) {
        int count = chosen_guesses(&g, c->side * c->side, json_is_true(json_object_get(o, "multimask_output")), chosen);
        compare_iou(c->a, title, &g, chosen, count);
        code = compare_masks(c, title, &g, chosen, count, err);
    }
    run_restore(c->im->r, before);
    return code;
}

int align_clicks(aligner *a, samite_image *im, const json_t *asked, samite_error *err)
{
    json_t *all = json_object_get(asked, "clicks");
    const json_t *o;
    const char *title;
    int code = image_clicks(im, err);
    if (code)
        return code;
    clicker c = {.a = a, .im = im, .side = im->clicks.fine0->dim[0]};
    json_object_foreach(all, title, o)
        if (!code)
            code = run_click(&c, title, o, err);
    free(c.first);
    return code;
}
