/* seams.c - an object that windows cut comes out once and whole. */
#include "io/seams.h"

#include <stdlib.h>
#include <string.h>

#include "io/runs.h"

#define NEAR_EDGE   2         /* pixels: a mask that near to an edge made by a window is cut off */
#define CONTAINED   0.9       /* share of a cut-off piece that lies within another, in their strip */
#define WITHIN      0.8       /* share of a cut-off piece that lies within an object of the whole picture */

/* ---- windows ---- */

int window_count(int length, int tile, int overlap)
{
    return length <= tile ? 1 : 1 + (length - tile + (tile - overlap) - 1) / (tile - overlap);
}

int window_start(int i, int length, int tile, int overlap)
{
    int64_t at = (int64_t)i * (tile - overlap);
    int last = length > tile ? length - tile : 0;
    return at < last ? (int)at : last;
}

/* ---- masks ---- */

int rle_place(rle *out, const rle *part, int x, int y, int width, int height, samite_error *err)
{
    *out = (rle){0};
    int code = runs_check_size(width, height, err);
    if (!code && (x < 0 || y < 0 || part->width > width - x || part->height > height - y))
        code = fail(err, SAMITE_USAGE, "a mask of %d x %d at %d,%d does not fit into %d x %d", part->width,
                    part->height, x, y, width, height);
    if (code)
        return code;
    run_list l = {0};
    uint32_t done = 0, at = 0, rows = (uint32_t)part->height;
    for (size_t i = 0; i < part->runs; at += part->counts[i++])
        for (uint32_t from = at, end = at + part->counts[i]; i % 2 && from < end;) {
            uint32_t row = from % rows, n = end - from < rows - row ? end - from : rows - row;
            uint32_t to = ((uint32_t)x + from / rows) * (uint32_t)height + (uint32_t)y + row;
            runs_add(&l, false, to - done);
            runs_add(&l, true, n);
            done = to + n;
            from += n;
        }
    runs_add(&l, false, (uint32_t)width * (uint32_t)height - done);
    return runs_finish(out, &l, width, height, err);
}

int rle_crop(rle *out, const rle *r, const window *w, samite_error *err)
{
    uint32_t height = (uint32_t)r->height, rows = (uint32_t)(w->y1 - w->y0), at = 0, done = 0;
    uint32_t first = (uint32_t)w->x0 * height, last = (uint32_t)w->x1 * height;
    run_list l = {0};
    for (size_t i = 0; i < r->runs && at < last; at += r->counts[i++]) {
        uint32_t from = at < first ? first : at, end = at + r->counts[i] < last ? at + r->counts[i] : last;
        while (i % 2 && from < end) {
            uint32_t row = from % height, n = end - from < height - row ? end - from : height - row;
            uint32_t top = row > (uint32_t)w->y0 ? row : (uint32_t)w->y0;
            uint32_t bottom = row + n < (uint32_t)w->y1 ? row + n : (uint32_t)w->y1;
            if (bottom > top) {
                uint32_t to = (from / height - (uint32_t)w->x0) * rows + top - (uint32_t)w->y0;
                runs_add(&l, false, to - done);
                runs_add(&l, true, bottom - top);
                done = to + bottom - top;
            }
            from += n;
        }
    }
    runs_add(&l, false, (uint32_t)(w->x1 - w->x0) * rows - done);
    return runs_finish(out, &l, w->x1 - w->x0, (int)rows, err);
}

/* ---- lists ---- */

int pieces_add(piece_list *l, piece *p, samite_error *err)
{
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        piece *more = realloc(l->item, room * sizeof *more);
        if (!more) {
            rle_free(&p->mask);
            return fail(err, SAMITE_RESOURCE, "not enough memory for %zu masks", l->count);
        }
        l->item = more;
        l->room = room;
    }
    l->item[l->count++] = *p;
    *p = (piece){0};
    return SAMITE_OK;
}

void pieces_free(piece_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        rle_free(&l->item[i].mask);
    free(l->item);
    *l = (piece_list){0};
}

/* ---- agreement ---- */

typedef struct joiner {
    piece        *item;
    size_t        count;
    const window *windows;
    window       *bounds;      /* [count] around the masks */
    uint8_t      *cut;         /* [count] cut off by an edge of its window */
    size_t       *parent;      /* [count] of the group; a root is its own */
    double        agree;
} joiner;

static size_t find_root(joiner *j, size_t i)
{
    while (j->parent[i] != i)
        i = j->parent[i] = j->parent[j->parent[i]];
    return i;
}

static void join(joiner *j, size_t a, size_t b)
{
    a = find_root(j, a);
    b = find_root(j, b);
    j->parent[a > b ? a : b] = a < b ? a : b;
}

static bool common(window *out, const window *a, const window *b)
{
    *out = (window){a->x0 > b->x0 ? a->x0 : b->x0, a->y0 > b->y0 ? a->y0 : b->y0, a->x1 < b->x1 ? a->x1 : b->x1,
                    a->y1 < b->y1 ? a->y1 : b->y1};
    return out->x0 < out->x1 && out->y0 < out->y1;
}

/* Does the mask end at an edge of the window that is no border of the picture? */
static bool cut_off(const window *mask, const window *w, const rle *picture)
{
    return (w->x0 > 0 && mask->x0 - w->x0 < NEAR_EDGE) || (w->y0 > 0 && mask->y0 - w->y0 < NEAR_EDGE) ||
           (w->x1 < picture->width && w->x1 - mask->x1 < NEAR_EDGE) ||
           (w->y1 < picture->height && w->y1 - mask->y1 < NEAR_EDGE);
}

static window bounds_of(const rle *r)
{
    double b[4];
    rle_bbox(b, r);
    return (window){(int)b[0], (int)b[1], (int)(b[0] + b[2]), (int)(b[1] + b[3])};
}

/* Compares two pieces in the strip that both windows see. */
static int compare_in_strip(joiner *j, size_t a, size_t b, samite_error *err)
{
    window strip, seen;
    const piece *p = &j->item[a], *q = &j->item[b];
    rle x = {0}, y = {0};
    if (!common(&strip, &j->windows[p->window], &j->windows[q->window]) || !common(&seen, &strip, &j->bounds[a]) ||
        !common(&seen, &seen, &j->bounds[b]))
        return SAMITE_OK;
    int code = rle_crop(&x, &p->mask, &strip, err);
    if (!code)
        code = rle_crop(&y, &q->mask, &strip, err);
    if (!code) {
        double both = (double)rle_intersection(&x, &y), in_a = (double)rle_area(&x), in_b = (double)rle_area(&y);
        if (both > 0 && (both >= j->agree * (in_a + in_b - both) || (j->cut[a] && both >= CONTAINED * in_a) ||
                         (j->cut[b] && both >= CONTAINED * in_b)))
            join(j, a, b);
    }
    rle_free(&x);
    rle_free(&y);
    return code;
}

static int join_neighbours(joiner *j, samite_error *err)
{
    int code = SAMITE_OK;
    for (size_t a = 0; a < j->count && !code; a++)
        for (size_t b = a + 1; b < j->count && !code; b++)
            if (j->item[a].window >= 0 && j->item[b].window >= 0 && j->item[a].window != j->item[b].window)
                code = compare_in_strip(j, a, b, err);
    return code;
}

/* ---- groups ---- */

/* Adds the second object to the first, with its mask unless `sharper`: then the first one's mask stands for both. */
static int absorb(piece *to, piece *from, bool sharper, samite_error *err)
{
    int code = SAMITE_OK;
    to->score = from->score > to->score ? from->score : to->score;
    if (!sharper) {
        rle both[2] = {to->mask, from->mask}, out;
        if (!(code = rle_merge(&out, both, 2, false, err))) {
            rle_free(&to->mask);
            to->mask = out;
        }
        for (int k = 0; k < 4; k++)
            to->box[k] = (k < 2) == (from->box[k] < to->box[k]) ? from->box[k] : to->box[k];
    }
    rle_free(&from->mask);
    return code;
}

/* Every group becomes its first piece; the others are left without a mask. */
static int unite_groups(joiner *j, samite_error *err)
{
    int code = SAMITE_OK;
    for (size_t i = 0; i < j->count && !code; i++) {
        size_t root = find_root(j, i);
        if (root == i)
            continue;
        code = absorb(&j->item[root], &j->item[i], false, err);
        j->cut[root] |= j->cut[i];
    }
    for (size_t i = 0; i < j->count && !code; i++)
        if (j->item[i].mask.runs)
            j->bounds[i] = bounds_of(&j->item[i].mask);
    return code;
}

/* An object of the whole picture against those of the windows. */
static int settle_whole(joiner *j, size_t w, samite_error *err)
{
    size_t target = w;
    int code = SAMITE_OK;
    double best = 0, area = (double)rle_area(&j->item[w].mask);
    uint8_t *within = calloc(j->count, 1);
    if (!within)
        return fail(err, SAMITE_RESOURCE, "not enough memory to compare %zu masks", j->count);
    for (size_t i = 0; i < j->count; i++) {
        const piece *p = &j->item[i];
        window seen;
        if (p->window < 0 || !p->mask.runs || !common(&seen, &j->bounds[i], &j->bounds[w]))
            continue;
        double both = (double)rle_intersection(&p->mask, &j->item[w].mask), own = (double)rle_area(&p->mask);
        double iou = both / (own + area - both);
        within[i] = j->cut[i] && both >= WITHIN * own;
        if (iou >= j->agree && iou > best) {
            best = iou;
            target = i;
        }
    }
    if (target != w)
        code = absorb(&j->item[target], &j->item[w], true, err);
    for (size_t i = 0; i < j->count && !code; i++)
        if (within[i] && i != target)
            code = absorb(&j->item[target], &j->item[i], false, err);
    if (!code)
        j->bounds[target] = bounds_of(&j->item[target].mask);
    free(within);
    return code;
}

static int best_first(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    for (int k = 0; k < 4; k++)
        if (x->box[k] != y->box[k])
            return x->box[k] < y->box[k] ? -1 : 1;
    return 0;
}

static void keep_whole_objects(piece_list *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++)
        if (l->item[i].mask.runs)
            l->item[kept++] = l->item[i];
    l->count = kept;
    if (kept)
        qsort(l->item, kept, sizeof *l->item, best_first);
}

int seams_join(piece_list *l, const window *windows, double agree, samite_error *err)
{
    size_t n = l->count;
    joiner j = {l->item, n, windows, malloc((n + 1) * sizeof *j.bounds), calloc(n + 1, 1),
                malloc((n + 1) * sizeof *j.parent), agree};
    int code = j.bounds && j.cut && j.parent ? SAMITE_OK
                                             : fail(err, SAMITE_RESOURCE, "not enough memory to compare %zu masks", n);
    for (size_t i = 0; i < n && !code; i++) {
        const piece *p = &j.item[i];
        j.parent[i] = i;
        j.bounds[i] = bounds_of(&p->mask);
        j.cut[i] = p->window >= 0 && cut_off(&j.bounds[i], &windows[p->window], &p->mask);
    }
    if (!code)
        code = join_neighbours(&j, err);
    if (!code)
        code = unite_groups(&j, err);
    for (size_t i = 0; i < n && !code; i++)
        if (j.item[i].window < 0)
            code = settle_whole(&j, i, err);
    keep_whole_objects(l);
    free(j.bounds);
    free(j.cut);
    free(j.parent);
    return code;
}
