/* api_click.c - clicks, a box or a rough mask on an encoded picture: which object is meant, and where is it? */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "click.h"
#include "io/mask.h"
#include "track/choose.h"
#include "track/planes.h"

#define MOST_POINTS 1024

int image_clicks(samite_image *im, samite_error *err)
{
    if (im->clicks_ready)
        return 0;
    if (im->model->parts)
        return engine_clicks(im, err);
    int code = image_prepare(im, PARTS_CLICK, err);
    if (code)
        return code;
    image_stage(im, "click", NECK_LEVELS + 2);
    run_point before = run_save(im->r);
    sam3_click_image(im->r, im->model->n->net, &im->encoded, &im->clicks);
    code = run_status(im->r, err);
    if (code)
        run_restore(im->r, before);
    im->clicks_ready = !code;
    return code;
}

/* Box corners first, then points, in pixels of the model's input. xy [2 * n], kind [n]. Returns n. */
static int place_points(const samite_image *im, const question *q, float *xy, int *kind)
{
    float side = (float)im->model->n->net->c.image, w = (float)im->width, h = (float)im->height;
    int n = 0;
    if (q->box) {
        const float corner[4] = {q->box->x0, q->box->y0, q->box->x1, q->box->y1};
        for (; n < 2; n++) {
            xy[2 * n] = corner[2 * n] / w * side;
            xy[2 * n + 1] = corner[2 * n + 1] / h * side;
            kind[n] = n ? POINT_CORNER2 : POINT_CORNER1;
        }
    }
    for (int i = 0; i < q->point_count; i++, n++) {
        xy[2 * n] = q->points[i].x / w * side;
        xy[2 * n + 1] = q->points[i].y / h * side;
        kind[n] = q->points[i].negative ? POINT_NEGATIVE : POINT_POSITIVE;
    }
    return n;
}

int image_ask(samite_image *im, const question *q, guesses *out, samite_error *err)
{
    size_t room = (size_t)q->point_count + 2;
    float *xy = malloc(sizeof *xy * 2 * room);
    int *kind = malloc(sizeof *kind * room);
    int64_t side = im->clicks.fine0->dim[0];
    int code = 0;
    if (xy && kind) {
        int n = place_points(im, q, xy, kind);
        clicks p = {1, n, xy, kind};
        tensor *prior = q->logits ? run_input(im->r, q->logits, 4, (int64_t[]){1, side, side, 1}) : NULL;
        image_stage(im, "click", 8);
        const elsewhere *e = im->model->parts ? &im->outside : NULL;
        if (e && !n)
            code = fail(err, SAMITE_USAGE, "exported parts answer no mask alone: add a point or a box, or use the native "
                        "engine");
        else
            net_click(e, im->r, im->model->n->net, &im->clicks, NULL, n ? &p : NULL, prior, out);
        code = code ? code : run_status(im->r, err);
    } else {
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %d points", q->point_count);
    }
    free(xy);
    free(kind);
    return code;
}

/* ---- checks ---- */

static int check_points(const samite_image *im, const samite_click *c, samite_error *err)
{
    if (c->point_count < 0 || c->point_count > MOST_POINTS || (c->point_count && !c->points))
        return fail(err, SAMITE_USAGE, "%d points: expected 0 to %d", c->point_count, MOST_POINTS);
    for (int i = 0; i < c->point_count; i++) {
        const samite_point *p = &c->points[i];
        if (!(p->x >= 0 && p->x <= (float)im->width && p->y >= 0 && p->y <= (float)im->height))
            return fail(err, SAMITE_USAGE, "point %d (%g,%g) lies outside the picture of %d x %d pixels", i + 1,
                        (double)p->x, (double)p->y, im->width, im->height);
    }
    return 0;
}

/* *out: the box cut at the border of the picture. */
static int check_box(const samite_image *im, const samite_box *b, samite_box *out, samite_error *err)
{
    float w = (float)im->width, h = (float)im->height;
    if (!isfinite(b->x0) || !isfinite(b->y0) || !isfinite(b->x1) || !isfinite(b->y1))
        return fail(err, SAMITE_USAGE, "the box has a coordinate that is no number");
    if (b->negative)
        return fail(err, SAMITE_USAGE, "a box around one object cannot be negative");
    if (b->x1 <= b->x0 || b->y1 <= b->y0)
        return fail(err, SAMITE_USAGE, "the box (%g,%g,%g,%g) is empty: expected X0 < X1 and Y0 < Y1", (double)b->x0,
                    (double)b->y0, (double)b->x1, (double)b->y1);
    if (b->x0 >= w || b->y0 >= h || b->x1 <= 0 || b->y1 <= 0)
        return fail(err, SAMITE_USAGE, "the box (%g,%g,%g,%g) lies outside the picture of %d x %d pixels",
                    (double)b->x0, (double)b->y0, (double)b->x1, (double)b->y1, im->width, im->height);
    *out = (samite_box){fmaxf(b->x0, 0), fmaxf(b->y0, 0), fminf(b->x1, w), fminf(b->y1, h), 0};
    return 0;
}

int image_check_click(const samite_image *im, const samite_click *c, samite_box *box, samite_error *err)
{
    int code = 0;
    if (!im->encoded.begun && !im->features[0].data)
        return fail(err, SAMITE_USAGE, "no picture is encoded");
    if (!c->point_count && !c->box && !c->logits && !c->mask)
        return fail(err, SAMITE_USAGE, "a click needs points, a box or a mask");
    if (c->logits && c->mask)
        return fail(err, SAMITE_USAGE, "a click takes the logits of an earlier answer or a mask, not both");
    if (c->mask && (c->mask->width != im->width || c->mask->height != im->height))
        return fail(err, SAMITE_USAGE, "the mask has %d x %d pixels, the picture %d x %d", c->mask->width,
                    c->mask->height, im->width, im->height);
    int64_t side = 4 * config_tokens(&im->model->n->net->c);
    if (c->logits && c->logits_side && c->logits_side != side)
        return fail(err, SAMITE_USAGE, "logits of %d x %d values do not fit: the model takes %d x %d at this size",
                    c->logits_side, c->logits_side, (int)side, (int)side);
    for (int64_t i = 0; c->logits && i < side * side; i++)
        if (!isfinite(c->logits[i]))
            return fail(err, SAMITE_USAGE, "the logits of the earlier answer have a value that is no number");
    if ((code = check_points(im, c, err)) || !c->box)
        return code;
    return check_box(im, c->box, box, err);
}

/* ---- a rough mask as logits ---- */

/* *out [side, side]: 10 inside, -10 outside, yours to free. */
static int rough_logits(float **out, const samite_mask *m, int side, samite_error *err)
{
    size_t pixels = (size_t)m->width * (size_t)m->height;
    uint8_t *inside = malloc(pixels);
    float *wide = malloc(sizeof *wide * pixels), *small = malloc(sizeof *small * (size_t)side * (size_t)side);
    rle checked = {0};
    int code = inside && wide && small ? 0
             : fail(err, SAMITE_RESOURCE, "not enough memory for a mask of %d x %d", m->width, m->height);
    if (!code)
        code = rle_from_counts(&checked, m->counts, m->runs, m->width, m->height, "the mask", err);
    if (!code) {
        rle_decode(inside, &checked);
        for (size_t i = 0; i < pixels; i++)
            wide[i] = inside[i] ? 10.0f : -10.0f;
        code = plane_shrink(small, side, side, wide, m->width, m->height, err);
    }
    rle_free(&checked);
    free(inside);
    free(wide);
    if (code)
        free(small);
    else
        *out = small;
    return code;
}

/* ---- answers ---- */

/* Numbers of the guesses to hand out, best first. */
static int choose(const guesses *g, int64_t n, const samite_click *c, int *chosen)
{
    const float *overlap = g->overlap->data;
    bool single_point = c->point_count == 1 && !c->box && !c->logits && !c->mask;
    if (!c->several) {
        chosen[0] = choose_guess(g->masks->data, overlap, n, single_point);
        return 1;
    }
    for (int i = 0; i < MASK_GUESSES - 1; i++) {
        int at = i;
        for (; at > 0 && overlap[chosen[at - 1]] < overlap[i + 1]; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = i + 1;
    }
    return MASK_GUESSES - 1;
}

static int set_instance(samite_instance *s, float *plane, int side, const samite_image *im, samite_error *err)
{
    int64_t holes = (int64_t)CLICK_HOLE_AREA * side * side / (CLICK_HOLE_SIDE * CLICK_HOLE_SIDE);
    rle mask;
    double box[4];
    int code = plane_fill_holes(plane, side, side, holes, CLICK_HOLE_LOGIT, err);
    if (code || (code = mask_from_logits(&mask, plane, side, side, im->width, im->height, 0.0f, err)))
        return code;
    s->mask = (samite_mask){mask.width, mask.height, mask.counts, mask.runs};
    s->area = rle_area(&mask);
    rle_bbox(box, &mask);
    for (int k = 0; k < 4; k++)
        s->box[k] = (float)(k < 2 ? box[k] : box[k - 2] + box[k]);
    return 0;
}

static int collect(const samite_image *im, const guesses *g, const samite_click *c, samite_answer *a, samite_error *err)
{
    int chosen[MASK_GUESSES], side = (int)im->clicks.fine0->dim[0], code = 0;
    size_t n = (size_t)side * (size_t)side;
    a->side = side;
    a->presence = 1.0f / (1.0f + expf(-g->object->data[0]));
    a->count = choose(g, (int64_t)n, c, chosen);
    a->instance = calloc((size_t)a->count, sizeof *a->instance);
    a->logits = malloc(sizeof *a->logits * n * (size_t)a->count);
    if (!a->instance || !a->logits)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d answers", a->count);
    for (int i = 0; i < a->count && !code; i++) {
        float *plane = g->masks->data + (size_t)chosen[i] * n, *out = a->logits + (size_t)i * n;
        for (size_t k = 0; k < n; k++)
            out[k] = fminf(fmaxf(plane[k], -CLICK_LIMIT), CLICK_LIMIT);
        a->instance[i].score = g->overlap->data[chosen[i]];
        code = set_instance(&a->instance[i], plane, side, im, err);
    }
    return code;
}

static int answer(samite_image *im, const samite_click *c, const samite_box *box, samite_answer *a, samite_error *err)
{
    int code = image_clicks(im, err);
    float *rough = NULL;
    if (!code && c->mask)
        code = rough_logits(&rough, c->mask, (int)im->clicks.fine0->dim[0], err);
    if (code)
        return code;
    question q = {c->points, c->point_count, c->box ? box : NULL, rough ? rough : c->logits};
    run_point before = run_save(im->r);
    guesses g;
    code = image_ask(im, &q, &g, err);
    if (!code)
        code = collect(im, &g, c, a, err);
    run_restore(im->r, before);
    free(rough);
    return code;
}

int samite_image_click(samite_image *im, const samite_click *click, samite_answer **out, samite_error *err)
{
    if (!im || !click || !out)
        return fail(err, SAMITE_USAGE, "samite_image_click: no picture or no click given");
    *out = NULL;
    samite_click c = SAMITE_CLICK_INIT;
    samite_box box = {0};
    options_copy(&c, sizeof c, click, click->size);
    int code = image_check_click(im, &c, &box, err);
    if (code)
        return code;
    samite_answer *a = calloc(1, sizeof *a);
    if (!a)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the answer");
    code = answer(im, &c, &box, a, err);
    if (code) {
        samite_answer_free(a);
        return code;
    }
    *out = a;
    return 0;
}

void samite_answer_free(samite_answer *a)
{
    if (!a)
        return;
    for (int i = 0; a->instance && i < a->count; i++)
        free((uint32_t *)(uintptr_t)a->instance[i].mask.counts);
    free(a->instance);
    free(a->logits);
    free(a);
}
