/* tracker_memory.c - drafts become what is remembered; masks become memories. */
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "io/mask.h"
#include "track/planes.h"
#include "track/tracker_inside.h"

#define SCORE_ASKED 10.0f      /* of an object without an answer on a prompted frame */

/* ---- writing ---- */

/* Objects of all batches in a row: where their memories go. */
typedef struct page { uint16_t *to; } page;

static int write_some(const track_tables *t, const tracked_frame *f, const page *pages, const bool *hidden, int first,
                      int count, memory_plane plane, void *user, samite_error *err)
{
    int64_t side = 4 * f->image->fine0->dim[0];
    tensor *masks = run_constant(f->r, 4, (int64_t[]){count, side, side, 1});
    int code = run_status(f->r, err);
    for (int i = 0; i < count && !code; i++)
        code = plane(user, first + i, masks->data + i * side * side, err);
    if (code)
        return code;
    tensor *y = net_encode(t->e, f->r, t->net, f->image->image, masks, hidden + first);
    code = run_status(f->r, err);
    int64_t each = code ? 0 : y->dim[1] * y->dim[2];
    for (int i = 0; i < count && !code; i++)
        dtype_from_f32(pages[first + i].to, DT_BF16, y->data + i * each, (size_t)each);
    return code;
}

int trackers_write(tracker *const *t, moment *const *m, int count, const tracked_frame *f, const bool *hidden,
                   memory_plane plane, void *user, samite_error *err)
{
    int n = 0, code = 0, at = 0;
    for (int i = 0; i < count; i++)
        n += t[i]->bank.objects;
    page *pages = malloc(sizeof *pages * ((size_t)n + 1));
    if (!pages)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d objects", n);
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < t[i]->bank.objects; k++)
            pages[at++].to = m[i]->memory + k * t[i]->bank.tokens * t[i]->bank.width;
        m[i]->veiled = false;
    }
    for (int first = 0, each = n ? t[0]->tables->batch : 1; first < n && !code; first += each) {
        run_point before = run_save(f->r);
        code = write_some(t[0]->tables, f, pages, hidden, first, n - first < each ? n - first : each, plane, user, err);
        run_restore(f->r, before);
    }
    free(pages);
    return code;
}

/* ---- settling ---- */

/* Masks of a batch at the input's size, cut where another object is stronger. */
typedef struct settled {
    float *planes;             /* [objects, side, side] */
    int    side, big;
} settled;

static int settled_plane(void *user, int object, float *out, samite_error *err)
{
    const settled *s = user;
    int64_t n = (int64_t)s->side * s->side;
    float *plane = s->planes + object * n;
    plane_as_memory(plane, n, true);
    return mask_resize_bilinear(out, s->big, s->big, plane, s->side, s->side, err);
}

static int write_settled(tracker *t, const tracked_frame *f, moment *m, samite_error *err)
{
    int batch = t->bank.objects, small = (int)f->image->fine0->dim[0], side = t->tables->net->c.image, code = 0;
    int64_t n = (int64_t)side * side;
    settled s = {malloc(sizeof *s.planes * (size_t)(batch * n)), side, 4 * small};
    bool *hidden = malloc(sizeof *hidden * (size_t)batch);
    if (!s.planes || !hidden)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for the masks of %d objects", batch);
    for (int b = 0; b < batch && !code; b++) {
        hidden[b] = !(m->score[b] > 0);
        code = mask_resize_bilinear(s.planes + b * n, side, side, m->mask + b * t->bank.pixels, small, small, err);
    }
    if (!code && batch > 1)
        planes_settle_overlap(s.planes, batch, n);
    if (!code)
        code = trackers_write(&t, &m, 1, f, hidden, settled_plane, &s, err);
    free(s.planes);
    free(hidden);
    return code;
}

/* A given mask at the decoder's size. */
static int shrink_given(float *out, const draft *d, int side, samite_error *err)
{
    size_t area = (size_t)d->width * (size_t)d->height;
    float *wide = malloc(sizeof *wide * area);
    if (!wide)
        return fail(err, SAMITE_RESOURCE, "not enough memory for a mask of %d x %d pixels", d->width, d->height);
    for (size_t i = 0; i < area; i++)
        wide[i] = d->given[i] ? -LOGIT_ABSENT : LOGIT_ABSENT;
    int code = plane_shrink(out, side, side, wide, d->width, d->height, err);
    free(wide);
    return code;
}

/* What a frame has for one object: its draft, else what is remembered, else only the pointer of an absent one. */
static int settle_object(const tracker *t, moment *m, int object, int side, samite_error *err)
{
    const bank *b = &t->bank;
    const draft *d = tracker_draft(t, m->frame, object);
    const moment *old = tracker_known(t, m->frame);
    float *mask = m->mask + object * b->pixels, *pointer = m->pointer + object * b->d;
    if (d || old) {
        memcpy(pointer, d ? d->pointer : old->pointer + object * b->d, sizeof(float) * (size_t)b->d);
        m->score[object] = d ? d->score : old->score[object];
        m->overlap[object] = d ? d->overlap : old->overlap[object];
        if (d && d->given)
            return shrink_given(mask, d, side, err);
        memcpy(mask, d ? d->mask : old->mask + object * b->pixels, sizeof(float) * (size_t)b->pixels);
        return 0;
    }
    for (int64_t i = 0; i < b->pixels; i++)
        mask[i] = LOGIT_ABSENT;
    memcpy(pointer, net_no_pointer(t->tables->e, t->tables->net), sizeof(float) * (size_t)b->d);
    m->score[object] = SCORE_ASKED;
    return 0;
}

int tracker_settle(tracker *t, const tracked_frame *f, bool write, samite_error *err)
{
    if (!tracker_has_drafts(t, f->frame))
        return 0;
    moment *m = moment_new(&t->bank, f->frame);
    if (!m)
        return fail(err, SAMITE_RESOURCE, "not enough memory to remember frame %lld", (long long)f->frame);
    int code = 0;
    for (int i = 0; i < t->bank.objects && !code; i++)
        code = settle_object(t, m, i, (int)f->image->fine0->dim[0], err);
    if (!code && write)
        code = write_settled(t, f, m, err);
    if (!code)
        code = bank_put(&t->bank, m, true, err);
    if (code) {
        moment_free(m);
        return code;
    }
    tracker_drop_drafts(t, f->frame);
    tracker_veil(t, f->frame);
    return 0;
}
