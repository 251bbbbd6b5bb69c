/* tracker_step.c - a frame as the objects' memories see it. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "io/mask.h"
#include "track/planes.h"
#include "track/tracker_inside.h"

/* One object that is tracked into the frame. */
typedef struct lane {
    const tracker *t;
    const recall  *past;
    moment        *m;          /* what comes out */
    int            object;     /* index in its batch */
    bool           done;
} lane;

/* ---- looking back ---- */

/* Maps and pointers of the recalled moments as tokens: [count, k, width]. */
static tensor *recalled_tokens(run *r, lane *const *all, int count)
{
    const bank *b = &all[0]->t->bank;
    const recall *first = all[0]->past;
    int64_t map = b->tokens * b->width, k = first->maps * b->tokens + first->pointers * (b->d / b->width);
    tensor *x = run_constant(r, 3, (int64_t[]){count, k, b->width});
    for (int64_t o = 0; x->data && run_ok(r) && o < count; o++) {
        const recall *past = all[o]->past;
        float *to = x->data + o * k * b->width;
        for (int i = 0; i < past->maps; i++, to += map)
            dtype_to_f32(to, past->map[i]->memory + all[o]->object * map, DT_BF16, (size_t)map);
        for (int i = 0; i < past->pointers; i++, to += b->d)
            memcpy(to, past->pointer[i]->pointer + all[o]->object * b->d, sizeof(float) * (size_t)b->d);
    }
    return x;
}

static bool same_shape(const recall *a, const recall *b)
{
    return a->maps == b->maps && a->pointers == b->pointers;
}

static bool same_times(const recall *a, const recall *b)
{
    bool same = same_shape(a, b);
    for (int i = 0; same && i < a->maps; i++)
        same = a->age[i] == b->age[i];
    for (int i = 0; same && i < a->pointers; i++)
        same = a->distance[i] == b->distance[i];
    return same;
}

/* Places of the recalled tokens, once if all look back at the same times. */
static tensor *recalled_places(run *r, tensor *grid, lane *const *all, int count)
{
    const memory *m = &all[0]->t->tables->net->memory;
    const recall *first = all[0]->past;
    int age[TRACKER_BATCH * (BANK_PROMPTED + BANK_MAPS)];
    float distance[TRACKER_BATCH * (BANK_PROMPTED + BANK_POINTERS)];
    bool alike = true;
    for (int i = 0; i < count; i++) {
        const recall *p = all[i]->past;
        alike &= same_times(p, first);
        memcpy(age + i * p->maps, p->age, sizeof *age * (size_t)p->maps);
        memcpy(distance + i * p->pointers, p->distance, sizeof *distance * (size_t)p->pointers);
    }
    return alike ? memory_places(r, m, grid, age, first->maps, distance, first->pointers)
                 : memory_places_each(r, m, grid, count, age, first->maps, distance, first->pointers);
}

/* The same, each object by itself. */
static tensor *look_elsewhere(const elsewhere *e, run *r, lane *const *all, int count)
{
    const bank *b = &all[0]->t->bank;
    const recall *first = all[0]->past;
    int64_t maps = first->maps * b->tokens * b->width, each = maps + first->pointers * b->d;
    tensor *tokens = recalled_tokens(r, all, count), *y = run_constant(r, 3, (int64_t[]){count, b->tokens, b->d});
    samite_error err = {0};
    for (int i = 0; i < count && run_ok(r); i++) {
        const recall *p = all[i]->past;
        const float *own = tokens->data + i * each;
        int code = e->look(e->user, own, p->age, p->maps, own + maps, p->distance, p->pointers,
                           y->data + i * b->tokens * b->d, &err);
        if (code)
            run_fail(r, code, "%s", err.text);
    }
    return y;
}

/* The picture of f as the objects' memories see it. */
static tensor *look(const tracked_frame *f, tensor *begun, lane *const *all, int count)
{
    const tracker *t = all[0]->t;
    if (t->tables->e)
        return look_elsewhere(t->tables->e, f->r, all, count);
    tensor *grid = run_input(f->r, t->tables->grid, 2, (int64_t[]){t->bank.tokens, t->bank.width});
    memories past = {.tokens = recalled_tokens(f->r, all, count), .places = recalled_places(f->r, grid, all, count),
                     .pointer_rows = all[0]->past->pointers * (t->bank.d / t->bank.width),
                     .rotations = t->tables->rotations};
    return memory_look(f->r, &t->tables->net->memory, begun, &past);
}

static int track_some(const tracked_frame *f, tensor *begun, lane *const *all, int count, samite_error *err)
{
    const track_tables *tables = all[0]->t->tables;
    float xy[2 * TRACKER_BATCH] = {0};
    int kind[TRACKER_BATCH];
    answer to[TRACKER_BATCH];
    guesses g;
    for (int i = 0; i < count; i++) {
        const lane *l = all[i];
        const bank *b = &l->t->bank;
        kind[i] = POINT_NONE;
        to[i] = (answer){l->m->mask + l->object * b->pixels, l->m->pointer + l->object * b->d, l->m->score + l->object,
                         l->m->overlap + l->object};
    }
    tensor *seen = look(f, begun, all, count);
    net_click(tables->e, f->r, tables->net, f->image, seen, &(clicks){count, 1, xy, kind}, NULL, &g);
    return tracker_take(tables, f->r, &g, true, to, err);
}

/* Takes up to `most` objects that look back at as much as the first one left; returns how many. */
static int next_group(lane *all, int count, int most, lane **out)
{
    int n = 0;
    for (int i = 0; i < count && n < most; i++) {
        if (all[i].done || (n && !same_shape(out[0]->past, all[i].past)))
            continue;
        all[i].done = true;
        out[n++] = &all[i];
    }
    return n;
}

static int track_lanes(const tracked_frame *f, lane *all, int count, samite_error *err)
{
    const track_tables *tables = all[0].t->tables;
    lane *group[TRACKER_BATCH];
    int code = 0;
    run_point start = run_save(f->r);
    tensor *begun = tables->e ? NULL : memory_begin(f->r, &tables->net->memory, f->image->image, f->image->codes,
                                                    tables->rotations);
    for (int n; !code && (n = next_group(all, count, tables->batch, group)) > 0;) {
        run_point before = run_save(f->r);
        code = track_some(f, begun, group, n, err);
        run_restore(f->r, before);
    }
    run_restore(f->r, start);
    return code;
}

/* ---- all batches ---- */

/* Those of `t` that are tracked: moments to be filled, what they look back at, and their objects in a row. */
typedef struct crowd {
    recall *past;
    lane   *lanes;
    int     count;
} crowd;

static int join(crowd *c, const tracker *t, const tracked_frame *f, recall *past, moment *m, samite_error *err)
{
    if (!bank_recall(&t->bank, f->frame, t->backward, t->frames, past))
        return fail(err, SAMITE_RESOURCE, "not enough memory to look back from frame %lld", (long long)f->frame);
    lane *more = realloc(c->lanes, sizeof *more * (size_t)(c->count + t->bank.objects));
    if (!more)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d objects", t->bank.objects);
    c->lanes = more;
    for (int i = 0; i < t->bank.objects; i++)
        c->lanes[c->count++] = (lane){.t = t, .past = past, .m = m, .object = i};
    return 0;
}

/* *out: what the prompted frame has, or an empty moment. *fresh: the latter, which is the caller's. */
static int begin(tracker *t, const tracked_frame *f, moment **out, bool *fresh, samite_error *err)
{
    *fresh = false;
    if ((*out = bank_prompted(&t->bank, f->frame)) && (*out)->mask) {
        tracker_veil(t, f->frame);
        return 0;
    }
    if (!t->bank.prompted_count)
        return fail(err, SAMITE_USAGE, "nothing to track: no frame was prompted");
    *fresh = (*out = moment_new(&t->bank, f->frame)) != NULL;
    return *fresh ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to remember frame %lld", (long long)f->frame);
}

/* Puts fresh moments into their banks, or frees them after a failure. */
static int finish(tracker *const *t, int count, moment **out, bool *fresh, int code, samite_error *err)
{
    for (int i = 0; i < count; i++) {
        if (!fresh[i])
            continue;
        out[i]->quality = moment_quality(out[i], t[i]->bank.objects);
        if (!code)
            code = bank_put(&t[i]->bank, out[i], false, err);
        if (code)
            moment_free(out[i]);
    }
    return code;
}

int trackers_look(tracker *const *t, int count, const tracked_frame *f, moment **out, samite_error *err)
{
    crowd c = {.past = malloc(sizeof *c.past * ((size_t)count + 1))};
    bool *fresh = calloc((size_t)count + 1, sizeof *fresh);
    int code = c.past && fresh ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %d batches of objects", count);
    for (int i = 0; i < count && !code; i++) {
        code = begin(t[i], f, &out[i], &fresh[i], err);
        if (!code && fresh[i])
            code = join(&c, t[i], f, &c.past[i], out[i], err);
    }
    if (!code && c.count)
        code = track_lanes(f, c.lanes, c.count, err);
    if (fresh)
        code = finish(t, count, out, fresh, code, err);
    free(c.past);
    free(c.lanes);
    free(fresh);
    return code;
}

/* ---- one batch with its memory ---- */

/* A moment's masks at the input's size; `out` gets them at the memory encoder's. */
typedef struct plain { const tracker *t; const moment *m; float *wide; } plain;

static int plain_plane(void *user, int object, float *out, samite_error *err)
{
    const plain *p = user;
    int side = p->t->tables->net->c.image, small = 4 * config_tokens(&p->t->tables->net->c), big = 4 * small;
    int code = mask_resize_bilinear(p->wide, side, side, p->m->mask + object * p->t->bank.pixels, small, small, err);
    plane_as_memory(p->wide, (int64_t)side * side, false);
    return code ? code : mask_resize_bilinear(out, big, big, p->wide, side, side, err);
}

static int write_plain(tracker *t, const tracked_frame *f, moment *m, samite_error *err)
{
    size_t side = (size_t)t->tables->net->c.image;
    plain p = {t, m, malloc(sizeof *p.wide * side * side)};
    bool *hidden = malloc(sizeof *hidden * (size_t)t->bank.objects);
    int code = p.wide && hidden ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a mask");
    for (int i = 0; !code && i < t->bank.objects; i++)
        hidden[i] = !(m->score[i] > 0);
    if (!code)
        code = trackers_write(&t, &m, 1, f, hidden, plain_plane, &p, err);
    free(p.wide);
    free(hidden);
    return code;
}

int tracker_step(tracker *t, const tracked_frame *f, const moment **out, samite_error *err)
{
    moment *m = NULL;
    int code = trackers_look(&t, 1, f, &m, err);
    if (!code && m != bank_prompted(&t->bank, f->frame))
        code = write_plain(t, f, m, err);
    *out = m;
    return code;
}
