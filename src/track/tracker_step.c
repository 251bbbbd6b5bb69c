/* tracker_step.c - a frame as the objects' memories see it. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "io/mask.h"
#include "track/planes.h"
#include "track/tracker_inside.h"

/* Objects first..first+count of a batch. */
typedef struct part { int first, count; } part;

/* Maps and pointers of the recalled moments as tokens: [count, k, width]. */
static tensor *recalled_tokens(const bank *b, run *r, const recall *past, part p)
{
    int64_t map = b->tokens * b->width, k = past->maps * b->tokens + past->pointers * (b->d / b->width);
    tensor *x = run_constant(r, 3, (int64_t[]){p.count, k, b->width});
    for (int64_t o = 0; x->data && run_ok(r) && o < p.count; o++) {
        float *to = x->data + o * k * b->width;
        for (int i = 0; i < past->maps; i++, to += map)
            dtype_to_f32(to, past->map[i]->memory + (p.first + o) * map, DT_BF16, (size_t)map);
        for (int i = 0; i < past->pointers; i++, to += b->d)
            memcpy(to, past->pointer[i]->pointer + (p.first + o) * b->d, sizeof(float) * (size_t)b->d);
    }
    return x;
}

/* The picture of f as the objects' memories see it. */
static tensor *look(const tracker *t, const tracked_frame *f, const recall *past, part p)
{
    const bank *b = &t->bank;
    const memory *m = &t->tables->net->memory;
    tensor *grid = run_input(f->r, t->tables->grid, 2, (int64_t[]){b->tokens, b->width});
    memories all = {.tokens = recalled_tokens(b, f->r, past, p),
                    .places = memory_places(f->r, m, grid, past->age, past->maps, past->distance, past->pointers),
                    .pointer_rows = past->pointers * (b->d / b->width), .rotations = t->tables->rotations};
    return memory_attend(f->r, m, f->image->image, f->image->codes, &all);
}

static int track_part(const tracker *t, const tracked_frame *f, const recall *past, part p, moment *m,
                      samite_error *err)
{
    const bank *b = &t->bank;
    float xy[2 * TRACKER_BATCH] = {0};
    int kind[TRACKER_BATCH];
    for (int i = 0; i < p.count; i++)
        kind[i] = POINT_NONE;
    guesses g;
    sam3_click(f->r, t->tables->net, f->image, look(t, f, past, p), &(clicks){p.count, 1, xy, kind}, NULL, &g);
    answers to = {m->mask + p.first * b->pixels, m->pointer + p.first * b->d, m->score + p.first, m->overlap + p.first};
    return tracker_take(t, f->r, &g, true, &to, err);
}

static int track(const tracker *t, const tracked_frame *f, moment *m, samite_error *err)
{
    recall past;
    int code = 0, n = t->bank.objects;
    if (!bank_recall(&t->bank, f->frame, t->backward, t->frames, &past))
        return fail(err, SAMITE_RESOURCE, "not enough memory to look back from frame %lld", (long long)f->frame);
    for (int first = 0; first < n && !code; first += TRACKER_BATCH) {
        part p = {first, n - first < TRACKER_BATCH ? n - first : TRACKER_BATCH};
        run_point before = run_save(f->r);
        code = track_part(t, f, &past, p, m, err);
        run_restore(f->r, before);
    }
    m->quality = moment_quality(m, n);
    return code;
}

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

static int write_plain(const tracker *t, const tracked_frame *f, moment *m, samite_error *err)
{
    size_t side = (size_t)t->tables->net->c.image;
    plain p = {t, m, malloc(sizeof *p.wide * side * side)};
    bool *hidden = malloc(sizeof *hidden * (size_t)t->bank.objects);
    int code = p.wide && hidden ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a mask");
    for (int i = 0; !code && i < t->bank.objects; i++)
        hidden[i] = !(m->score[i] > 0);
    if (!code)
        code = tracker_write(t, f, m, hidden, plain_plane, &p, err);
    free(p.wide);
    free(hidden);
    return code;
}

static int step(tracker *t, const tracked_frame *f, bool write, moment **out, samite_error *err)
{
    if ((*out = bank_prompted(&t->bank, f->frame)) && (*out)->mask) {
        tracker_veil(t, f->frame);
        return 0;
    }
    if (!t->bank.prompted_count)
        return fail(err, SAMITE_USAGE, "nothing to track: no frame was prompted");
    moment *m = moment_new(&t->bank, f->frame);
    if (!m)
        return fail(err, SAMITE_RESOURCE, "not enough memory to remember frame %lld", (long long)f->frame);
    int code = track(t, f, m, err);
    if (!code && write)
        code = write_plain(t, f, m, err);
    if (!code)
        code = bank_put(&t->bank, m, false, err);
    if (code)
        moment_free(m);
    else
        *out = m;
    return code;
}

int tracker_step(tracker *t, const tracked_frame *f, const moment **out, samite_error *err)
{
    moment *m;
    int code = step(t, f, true, &m, err);
    *out = m;
    return code;
}

int tracker_look(tracker *t, const tracked_frame *f, moment **out, samite_error *err)
{
    return step(t, f, false, out, err);
}
