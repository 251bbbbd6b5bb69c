/* trace.c - connected parts of a mask, and their borders as polygons. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/mask.h"

/* ---- components ---- */

static int32_t find_root(int32_t *parent, int32_t i)
{
    while (parent[i] != i)
        i = parent[i] = parent[parent[i]];
    return i;
}

static int32_t join(int32_t *parent, int32_t a, int32_t b)
{
    a = find_root(parent, a);
    b = find_root(parent, b);
    return a < b ? (parent[b] = a) : (parent[a] = b);
}

/* Provisional labels from the left and upper neighbours; returns how many. parent[label] is an equal, smaller one. */
static int32_t label_provisionally(int32_t *labels, int32_t *parent, const uint8_t *mask, int width, int height)
{
    int32_t count = 0;
    for (int y = 0; y < height; y++) {
        size_t row = (size_t)y * (size_t)width;
        for (int x = 0; x < width; x++) {
            int32_t *l = labels + row + x, found = 0;
            if (!mask[row + (size_t)x]) {
                *l = 0;
                continue;
            }
            if (x > 0 && l[-1])
                found = l[-1];
            for (int dx = -1; y > 0 && dx <= 1; dx++) {
                int32_t above = x + dx >= 0 && x + dx < width ? l[dx - width] : 0;
                if (above)
                    found = found && found != above ? join(parent, found, above) : above;
            }
            if (!found) {
                found = ++count;
                parent[found] = found;
            }
            *l = found;
        }
    }
    return count;
}

int mask_components(int32_t *labels, const uint8_t *mask, int width, int height)
{
    size_t pixels = (size_t)width * (size_t)height;
    if (width < 1 || height < 1 || pixels / (size_t)width != (size_t)height || pixels > INT32_MAX - 1)
        return -1;
    size_t most = ((size_t)width + 1) / 2 * (((size_t)height + 1) / 2) + 1;
    int32_t *parent = malloc(most * sizeof *parent), final = 0;
    if (!parent)
        return -1;
    int32_t count = label_provisionally(labels, parent, mask, width, height);
    for (int32_t i = 1; i <= count; i++)
        parent[i] = parent[i] == i ? -++final : parent[i];
    for (int32_t i = 1; i <= count; i++)
        parent[i] = parent[i] < 0 ? parent[i] : parent[parent[i]];
    for (size_t i = 0; i < pixels; i++)
        labels[i] = labels[i] ? -parent[labels[i]] : 0;
    free(parent);
    return final;
}

/* ---- borders ---- */

/* A step along a pixel edge from corner (x, y), with the mask on its right-hand side. */
typedef struct crack {
    int32_t x, y;
    size_t  next;
} crack;

typedef struct border {
    size_t first, count;   /* cracks[first .. first + count - 1], in order */
    size_t left;           /* the leftmost vertical crack, the upper one of several */
    bool   hole;
} border;

typedef struct tracer {
    int      x0, y0, width, height;   /* the part of the picture that holds the mask */
    uint8_t *mask;                    /* [width + 2, height + 2] column by column, with an empty frame */
    size_t  *at;                      /* [width + 1, height] 1 + index of the crack on the left of a pixel */
    crack   *cracks;
    size_t   cracks_used, cracks_room;
    border  *borders;
    size_t   borders_used, borders_room;
    bool     failed;                  /* out of memory */
} tracer;

enum { UP, RIGHT, DOWN, LEFT };
static const int step_x[4] = {0, 1, 0, -1}, step_y[4] = {-1, 0, 1, 0};

/* Makes room for one more element of `size` bytes. */
static void *grow(tracer *t, void *p, size_t used, size_t *room, size_t size)
{
    if (used < *room)
        return p;
    size_t wanted = *room ? *room * 2 : 256;
    void *q = wanted <= SIZE_MAX / size ? realloc(p, wanted * size) : NULL;
    if (!q) {
        t->failed = true;
        return p;
    }
    *room = wanted;
    return q;
}

static bool inside(const tracer *t, int x, int y)
{
    return t->mask[(size_t)(x + 1) * ((size_t)t->height + 2) + (size_t)(y + 1)];
}

/* Is there a border from corner (x, y) in this direction with the mask on its right? */
static bool is_border(const tracer *t, int x, int y, int direction)
{
    int right_x = x - (direction == DOWN || direction == LEFT), right_y = y - (direction == UP || direction == LEFT);
    int left_x = x - (direction == UP || direction == LEFT), left_y = y - (direction == UP || direction == RIGHT);
    return inside(t, right_x, right_y) && !inside(t, left_x, left_y);
}

static size_t *crack_at(const tracer *t, int x, int y)
{
    return &t->at[(size_t)x * (size_t)t->height + (size_t)y];
}

static void add_crack(tracer *t, border *b, int x, int y, int direction)
{
    t->cracks = grow(t, t->cracks, t->cracks_used, &t->cracks_room, sizeof *t->cracks);
    if (t->failed)
        return;
    size_t index = t->cracks_used++;
    t->cracks[index] = (crack){x, y, index + 1};
    b->count++;
    if (direction == RIGHT || direction == LEFT)
        return;
    int top = direction == UP ? y - 1 : y;
    *crack_at(t, x, top) = index + 1;
    const crack *l = &t->cracks[b->left];
    int left_top = b->hole ? l->y : l->y - 1;
    if (b->count == 1 || x < l->x || (x == l->x && top < left_top)) {
        b->left = index;
        b->hole = direction == DOWN;
    }
}

/* Follows a border from the corner (x, y) upwards. Left turns first: parts that touch at a corner belong together. */
static void trace(tracer *t, int x, int y)
{
    border b = {.first = t->cracks_used, .left = t->cracks_used};
    int at_x = x, at_y = y, direction = UP;
    do {
        add_crack(t, &b, at_x, at_y, direction);
        at_x += step_x[direction];
        at_y += step_y[direction];
        int turn = 3;
        while (turn < 6 && !is_border(t, at_x, at_y, (direction + turn) % 4))
            turn++;
        direction = (direction + turn) % 4;
    } while (!t->failed && (at_x != x || at_y != y || direction != UP));
    t->borders = grow(t, t->borders, t->borders_used, &t->borders_room, sizeof *t->borders);
    if (t->failed)
        return;
    t->cracks[t->cracks_used - 1].next = b.first;
    t->borders[t->borders_used++] = b;
}

static void trace_all(tracer *t)
{
    for (int x = 0; x < t->width && !t->failed; x++) {
        for (int y = 0; y < t->height && !t->failed; y++) {
            if (is_border(t, x, y + 1, UP) && !*crack_at(t, x, y))
                trace(t, x, y + 1);
        }
    }
}

/* Joins a hole to the border on the left of its leftmost crack by a cut and its way back. That border reaches further
 * left than the hole, so the joins never form a circle. */
static void join_hole(tracer *t, const border *hole)
{
    size_t before = hole->left > hole->first ? hole->left - 1 : hole->first + hole->count - 1;
    int x = t->cracks[hole->left].x, y = t->cracks[hole->left].y, to = x - 1;
    while (inside(t, to - 1, y))
        to--;
    size_t other = *crack_at(t, to, y) - 1;   /* runs up and ends at corner (to, y) */
    for (int i = 0; i < 2; i++) {
        t->cracks = grow(t, t->cracks, t->cracks_used, &t->cracks_room, sizeof *t->cracks);
        if (t->failed)
            return;
        t->cracks_used++;
    }
    size_t there = t->cracks_used - 2, back = t->cracks_used - 1;
    t->cracks[there] = (crack){to, y, t->cracks[before].next};
    t->cracks[back] = (crack){x, y, t->cracks[other].next};
    t->cracks[before].next = back;
    t->cracks[other].next = there;
}

/* ---- from borders to few points ---- */

typedef struct ring {
    int32_t *xy;
    uint8_t *keep;
    size_t   points;
} ring;

static int sign(int32_t v)
{
    return (v > 0) - (v < 0);
}

/* Drops points at which the border goes straight on. */
static void drop_straight(ring *r)
{
    size_t n = r->points;
    for (size_t i = 0; i < n; i++) {
        const int32_t *p = r->xy + 2 * ((i + n - 1) % n), *q = r->xy + 2 * i, *s = r->xy + 2 * ((i + 1) % n);
        r->keep[i] = sign(q[0] - p[0]) != sign(s[0] - q[0]) || sign(q[1] - p[1]) != sign(s[1] - q[1]);
    }
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        if (r->keep[i])
            memmove(r->xy + 2 * used++, r->xy + 2 * i, 2 * sizeof *r->xy);
    }
    r->points = used;
}

/* Distance of point p from the segment a-b, squared. */
static double distance2(const int32_t *p, const int32_t *a, const int32_t *b)
{
    double dx = b[0] - a[0], dy = b[1] - a[1], px = p[0] - a[0], py = p[1] - a[1], length2 = dx * dx + dy * dy;
    double t = length2 > 0 ? (px * dx + py * dy) / length2 : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return (px - t * dx) * (px - t * dx) + (py - t * dy) * (py - t * dy);
}

/* Marks the points to keep strictly between `from` and `to` (Douglas-Peucker). Depth is bounded by the piece length. */
static void simplify_piece(ring *r, size_t from, size_t to, double tolerance2)
{
    double farthest = 0;
    size_t split = 0;
    const int32_t *a = r->xy + 2 * from, *b = r->xy + 2 * (to % r->points);
    for (size_t i = from + 1; i < to; i++) {
        double d = distance2(r->xy + 2 * i, a, b);
        if (d > farthest)
            farthest = d, split = i;
    }
    if (farthest <= tolerance2)
        return;
    r->keep[split] = 1;
    simplify_piece(r, from, split, tolerance2);
    simplify_piece(r, split, to, tolerance2);
}

/* Pieces are short, which bounds the work on odd borders; their ends stay. */
static void simplify(ring *r, double tolerance)
{
    const size_t piece = r->points / 4 < 512 ? r->points / 4 + 1 : 512;
    if (r->points < 8)
        return;
    memset(r->keep, 0, r->points);
    for (size_t from = 0; from < r->points; from += piece) {
        r->keep[from] = 1;
        simplify_piece(r, from, from + piece < r->points ? from + piece : r->points, tolerance * tolerance);
    }
    size_t used = 0;
    for (size_t i = 0; i < r->points; i++) {
        if (r->keep[i])
            memmove(r->xy + 2 * used++, r->xy + 2 * i, 2 * sizeof *r->xy);
    }
    r->points = used;
}

/* Writes the points of an outer border, holes joined, behind those already in *out. */
static void emit(polygons *out, const tracer *t, const border *b, uint8_t *keep, double tolerance)
{
    size_t start = out->count ? out->ends[out->count - 1] : 0, i = b->first;
    ring r = {out->xy + 2 * start, keep, 0};
    do {
        r.xy[2 * r.points] = t->cracks[i].x + t->x0;
        r.xy[2 * r.points + 1] = t->cracks[i].y + t->y0;
        r.points++;
        i = t->cracks[i].next;
    } while (i != b->first);
    drop_straight(&r);
    if (tolerance > 0)
        simplify(&r, tolerance);
    out->ends[out->count++] = start + r.points;
}

static void emit_all(polygons *out, tracer *t, double tolerance)
{
    size_t outer = 0;
    for (size_t i = 0; i < t->borders_used && !t->failed; i++) {
        if (t->borders[i].hole)
            join_hole(t, &t->borders[i]);
        else
            outer++;
    }
    uint8_t *keep = malloc(t->cracks_used + 1);
    out->xy = malloc((t->cracks_used + 1) * 2 * sizeof *out->xy);
    out->ends = malloc((outer + 1) * sizeof *out->ends);
    t->failed = t->failed || !keep || !out->xy || !out->ends;
    for (size_t i = 0; i < t->borders_used && !t->failed; i++) {
        if (!t->borders[i].hole)
            emit(out, t, &t->borders[i], keep, tolerance);
    }
    size_t points = out->count ? out->ends[out->count - 1] : 0;
    int32_t *fit = t->failed ? NULL : realloc(out->xy, (points + 1) * 2 * sizeof *fit);
    out->xy = fit ? fit : out->xy;
    free(keep);
}

/* Unpacks the part of the mask inside its box, with a frame of background. */
static bool unpack(tracer *t, const rle *r)
{
    double box[4];
    rle_bbox(box, r);
    *t = (tracer){.x0 = (int)box[0], .y0 = (int)box[1], .width = (int)box[2], .height = (int)box[3]};
    size_t stride = (size_t)t->height + 2, height = (size_t)r->height, at = 0;
    t->mask = calloc((size_t)t->width + 2, stride);
    t->at = calloc((size_t)t->width + 1, stride * sizeof *t->at);
    if (!t->mask || !t->at)
        return false;
    for (size_t i = 0; i < r->runs; at += r->counts[i++]) {
        if (i % 2 == 0)
            continue;
        for (size_t from = at, end = at + r->counts[i]; from < end;) {
            size_t x = from / height, y = from % height, n = end - from < height - y ? end - from : height - y;
            memset(t->mask + (x - (size_t)t->x0 + 1) * stride + y - (size_t)t->y0 + 1, 1, n);
            from += n;
        }
    }
    return true;
}

static void tracer_free(tracer *t)
{
    free(t->mask);
    free(t->at);
    free(t->cracks);
    free(t->borders);
}

int mask_to_polygons(polygons *out, const rle *r, double tolerance, samite_error *err)
{
    tracer t;
    *out = (polygons){0};
    t.failed = !unpack(&t, r);
    if (!t.failed) {
        trace_all(&t);
        emit_all(out, &t, tolerance);
    }
    tracer_free(&t);
    if (!t.failed)
        return SAMITE_OK;
    polygons_free(out);
    return fail(err, SAMITE_RESOURCE, "no memory for the outlines of a mask of %d x %d pixels", r->width, r->height);
}

int mask_borders(polygons *out, const rle *r, samite_error *err)
{
    tracer t;
    *out = (polygons){0};
    t.failed = !unpack(&t, r);
    if (!t.failed)
        trace_all(&t);
    uint8_t *keep = t.failed ? NULL : malloc(t.cracks_used + 1);
    out->xy = keep ? malloc((t.cracks_used + 1) * 2 * sizeof *out->xy) : NULL;
    out->ends = keep ? malloc((t.borders_used + 1) * sizeof *out->ends) : NULL;
    t.failed = t.failed || !keep || !out->xy || !out->ends;
    for (size_t i = 0; i < t.borders_used && !t.failed; i++)
        emit(out, &t, &t.borders[i], keep, 0);
    free(keep);
    tracer_free(&t);
    if (!t.failed)
        return SAMITE_OK;
    polygons_free(out);
    return fail(err, SAMITE_RESOURCE, "no memory for the outlines of a mask of %d x %d pixels", r->width, r->height);
}

void polygons_free(polygons *p)
{
    if (!p)
        return;
    free(p->ends);
    free(p->xy);
    *p = (polygons){0};
}
