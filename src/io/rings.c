/* rings.c - borders of a mask as simple rings: outer ones, and holes with the outer ring they lie in. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/mask.h"

/* Twice the area, positive in the direction in which mask_borders walks around the mask. */
static int64_t ring_area(const int32_t *xy, size_t points)
{
    int64_t sum = 0;
    for (size_t i = 0; i < points; i++) {
        const int32_t *p = xy + 2 * i, *q = xy + 2 * ((i + 1) % points);
        sum += (int64_t)p[0] * q[1] - (int64_t)q[0] * p[1];
    }
    return sum;
}

/* Corners in use on the way, as an open hash table of 1 + place on the way; 0 is free. */
typedef struct splitter {
    int32_t *way;            /* points x, y since the start of the ring, without the loops cut off */
    size_t   used, slots;    /* slots: a power of two */
    uint32_t *slot;
} splitter;

static size_t slot_of(const splitter *s, const int32_t *p)
{
    uint64_t h = ((uint64_t)(uint32_t)p[0] << 32 | (uint32_t)p[1]) * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 20) & (s->slots - 1);
    while (s->slot[i] && memcmp(s->way + 2 * (s->slot[i] - 1), p, 2 * sizeof *p) != 0)
        i = (i + 1) & (s->slots - 1);
    return i;
}

static void push(splitter *s, const int32_t *p)
{
    memcpy(s->way + 2 * s->used, p, 2 * sizeof *p);
    s->slot[slot_of(s, p)] = (uint32_t)++s->used;
}

/* Removes the last point of the way; what was stored behind its slot moves up. */
static void pop(splitter *s)
{
    size_t hole = slot_of(s, s->way + 2 * (s->used - 1)), mask = s->slots - 1;
    s->used--;
    s->slot[hole] = 0;
    for (size_t i = (hole + 1) & mask; s->slot[i]; i = (i + 1) & mask) {
        uint32_t moved = s->slot[i];
        s->slot[i] = 0;
        s->slot[slot_of(s, s->way + 2 * (moved - 1))] = moved;
    }
}

static void emit(polygons *out, const int32_t *xy, size_t points)
{
    size_t before = out->count ? out->ends[out->count - 1] : 0;
    memcpy(out->xy + 2 * before, xy, points * 2 * sizeof *xy);
    out->ends[out->count++] = before + points;
}

/* Every return to a corner closes a loop, which becomes a ring of its own. */
static void split(polygons *out, splitter *s, const int32_t *xy, size_t points)
{
    for (size_t i = 0; i < points; i++) {
        uint32_t seen = s->slot[slot_of(s, xy + 2 * i)];
        if (!seen) {
            push(s, xy + 2 * i);
            continue;
        }
        emit(out, s->way + 2 * (seen - 1), s->used - (seen - 1));
        while (s->used > seen)
            pop(s);
    }
    if (s->used)
        emit(out, s->way, s->used);
    while (s->used)
        pop(s);
}

/* Corners where another border passes may lie on straight pieces, which mask_borders leaves out; they are no corners of
 * this ring and do no harm. */
static int split_all(ring_list *out, const polygons *borders, const rle *r, samite_error *err)
{
    size_t points = borders->count ? borders->ends[borders->count - 1] : 0, slots = 16;
    while (slots < 2 * points + 2)
        slots *= 2;
    splitter s = {
        .slots = slots, .way = malloc((points + 1) * 2 * sizeof *s.way), .slot = calloc(slots, sizeof *s.slot)};
    out->rings.xy = malloc((points + 1) * 2 * sizeof *out->rings.xy);
    out->rings.ends = malloc((points + 1) * sizeof *out->rings.ends);
    out->owner = malloc((points + 1) * sizeof *out->owner);
    bool fine = s.way && s.slot && out->rings.xy && out->rings.ends && out->owner && points < UINT32_MAX;
    for (size_t i = 0, at = 0; fine && i < borders->count; at = borders->ends[i++])
        split(&out->rings, &s, borders->xy + 2 * at, borders->ends[i] - at);
    free(s.way);
    free(s.slot);
    return fine ? SAMITE_OK
                : fail(err, SAMITE_RESOURCE, "no memory for the outlines of a mask of %d x %d pixels", r->width,
                       r->height);
}

/* Is the middle of the pixel (x, y) inside? */
static bool contains(const int32_t *xy, size_t points, double x, double y)
{
    bool in = false;
    for (size_t i = 0; i < points; i++) {
        const int32_t *p = xy + 2 * i, *q = xy + 2 * ((i + 1) % points);
        if (p[0] == q[0] && (p[1] > y) != (q[1] > y) && x < p[0])
            in = !in;
    }
    return in;
}

typedef struct bounds { int32_t x0, y0, x1, y1; int64_t area; } bounds;

static bounds bounds_of(const int32_t *xy, size_t points)
{
    bounds b = {xy[0], xy[1], xy[0], xy[1], ring_area(xy, points)};
    for (size_t i = 1; i < points; i++) {
        b.x0 = xy[2 * i] < b.x0 ? xy[2 * i] : b.x0;
        b.x1 = xy[2 * i] > b.x1 ? xy[2 * i] : b.x1;
        b.y0 = xy[2 * i + 1] < b.y0 ? xy[2 * i + 1] : b.y0;
        b.y1 = xy[2 * i + 1] > b.y1 ? xy[2 * i + 1] : b.y1;
    }
    return b;
}

/* A pixel inside the ring, next to its leftmost uppermost corner. */
static void pixel_inside(double at[2], const int32_t *xy, size_t points)
{
    const int32_t *best = xy;
    for (size_t i = 1; i < points; i++) {
        const int32_t *p = xy + 2 * i;
        if (p[0] < best[0] || (p[0] == best[0] && p[1] < best[1]))
            best = p;
    }
    at[0] = best[0] + 0.5;
    at[1] = best[1] + 0.5;
}

/* A hole belongs to the smallest outer ring around it. */
static int find_owners(ring_list *l, samite_error *err)
{
    const polygons *p = &l->rings;
    bounds *b = malloc((p->count + 1) * sizeof *b);
    if (!b)
        return fail(err, SAMITE_RESOURCE, "no memory for %zu outlines", p->count);
    for (size_t i = 0, at = 0; i < p->count; at = p->ends[i++])
        b[i] = bounds_of(p->xy + 2 * at, p->ends[i] - at);
    for (size_t i = 0, at = 0; i < p->count; at = p->ends[i++]) {
        double middle[2];
        l->owner[i] = i;
        if (b[i].area > 0)
            continue;
        pixel_inside(middle, p->xy + 2 * at, p->ends[i] - at);
        for (size_t k = 0, from = 0; k < p->count; from = p->ends[k++]) {
            bool around = b[k].area > 0 && b[k].x0 <= b[i].x0 && b[k].y0 <= b[i].y0 && b[k].x1 >= b[i].x1 &&
                          b[k].y1 >= b[i].y1 && (l->owner[i] == i || b[k].area < b[l->owner[i]].area);
            if (around && contains(p->xy + 2 * from, p->ends[k] - from, middle[0], middle[1]))
                l->owner[i] = k;
        }
    }
    free(b);
    return SAMITE_OK;
}

int mask_to_rings(ring_list *out, const rle *r, samite_error *err)
{
    polygons borders;
    *out = (ring_list){0};
    int code = mask_borders(&borders, r, err);
    if (!code)
        code = split_all(out, &borders, r, err);
    if (!code)
        code = find_owners(out, err);
    polygons_free(&borders);
    if (code)
        ring_list_free(out);
    return code;
}

void ring_list_free(ring_list *l)
{
    polygons_free(&l->rings);
    free(l->owner);
    *l = (ring_list){0};
}
