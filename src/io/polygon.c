/* polygon.c - polygons and boxes to run-length masks, in COCO's arithmetic. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/runs.h"

#define FINER     5            /* the grid on which edges are drawn is this much finer than pixels */
#define FAR       1e7          /* coordinates beyond this are refused */
#define MOST_STEPS (1 << 28)   /* of drawing; more is no polygon of a picture */

/* Edges are walked point by point on the fine grid. Where the walk passes the middle of a pixel column, the mask in
 * that column toggles; the sorted places of toggling are the run lengths. */
typedef struct walker {
    int       width, height;
    int       u, v;            /* last point */
    bool      started, failed;
    uint32_t *toggles;
    size_t    count, room;
} walker;

static void add_toggle(walker *w, int column, int v)
{
    if (w->count == w->room) {
        size_t room = w->room ? w->room * 2 : 256;
        uint32_t *p = realloc(w->toggles, room * sizeof *p);
        if (!p) {
            w->failed = true;
            return;
        }
        w->toggles = p;
        w->room = room;
    }
    int y = v + FINER / 2 < 0 ? 0 : (v + FINER / 2) / FINER;
    y = y > w->height ? w->height : y;
    w->toggles[w->count++] = (uint32_t)column * (uint32_t)w->height + (uint32_t)y;
}

static void step(walker *w, int u, int v)
{
    if (w->started && u != w->u) {
        int left = (u < w->u ? u : u - 1) - FINER / 2;
        if (left >= 0 && left % FINER == 0 && left / FINER < w->width)
            add_toggle(w, left / FINER, v < w->v ? v : w->v);
    }
    w->started = true;
    w->u = u;
    w->v = v;
}

/* An edge is drawn from its lower end along its longer direction, whichever way it is walked, so that two polygons that
 * share an edge meet without gap. */
static void walk_edge(walker *w, const int from[2], const int to[2])
{
    int dx = abs(to[0] - from[0]), dy = abs(to[1] - from[1]);
    bool flat = dx >= dy, backward = flat ? from[0] > to[0] : from[1] > to[1];
    const int *start = backward ? to : from, *end = backward ? from : to;
    int length = flat ? dx : dy, along = flat ? 0 : 1;
    double slope = length ? (double)(end[!along] - start[!along]) / length : 0;
    for (int d = 0; d <= length && !w->failed; d++) {
        int t = backward ? length - d : d;
        int other = (int)(start[!along] + slope * t + .5);
        step(w, flat ? start[0] + t : other, flat ? other : start[1] + t);
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int toggles_to_runs(rle *out, walker *w, samite_error *err)
{
    run_list l = {.failed = w->failed};
    uint32_t at = 0;
    bool on = false;
    if (w->count > 1)
        qsort(w->toggles, w->count, sizeof *w->toggles, compare);
    for (size_t i = 0; i < w->count && !l.failed; i++) {
        runs_add(&l, on, w->toggles[i] - at);
        at = w->toggles[i];
        on = !on;
    }
    if (!l.failed)
        runs_add(&l, on, (uint32_t)w->width * (uint32_t)w->height - at);
    free(w->toggles);
    return runs_finish(out, &l, w->width, w->height, err);
}

static void fine_point(int out[2], const double *xy)
{
    out[0] = (int)(FINER * xy[0] + .5);
    out[1] = (int)(FINER * xy[1] + .5);
}

static int check_points(const double *xy, size_t points, samite_error *err)
{
    int64_t steps = 0;
    if (points < 3)
        return fail(err, SAMITE_INPUT, "polygon of %zu points: expected at least 3", points);
    for (size_t i = 0; i < points; i++) {
        const double *p = xy + 2 * i, *q = xy + 2 * ((i + 1) % points);
        if (!(fabs(p[0]) <= FAR) || !(fabs(p[1]) <= FAR))
            return fail(err, SAMITE_INPUT, "polygon point %zu is (%g, %g): far outside of any picture", i, p[0], p[1]);
        if (fabs(q[0]) <= FAR && fabs(q[1]) <= FAR)
            steps += (int64_t)(FINER * fmax(fabs(p[0] - q[0]), fabs(p[1] - q[1]))) + 1;
        if (steps > MOST_STEPS)
            return fail(err, SAMITE_INPUT, "polygon of %zu points is longer than any border in a picture", points);
    }
    return SAMITE_OK;
}

int rle_from_polygon(rle *out, const double *xy, size_t points, int width, int height, samite_error *err)
{
    *out = (rle){0};
    int code = runs_check_size(width, height, err);
    if (code != SAMITE_OK || (code = check_points(xy, points, err)) != SAMITE_OK)
        return code;
    walker w = {.width = width, .height = height};
    for (size_t i = 0; i < points; i++) {
        int from[2], to[2];
        fine_point(from, xy + 2 * i);
        fine_point(to, xy + 2 * ((i + 1) % points));
        walk_edge(&w, from, to);
    }
    return toggles_to_runs(out, &w, err);
}

int rle_from_box(rle *out, const double box[4], int width, int height, samite_error *err)
{
    double x1 = box[0] + box[2], y1 = box[1] + box[3];
    double xy[8] = {box[0], box[1], box[0], y1, x1, y1, x1, box[1]};
    return rle_from_polygon(out, xy, 4, width, height, err);
}
