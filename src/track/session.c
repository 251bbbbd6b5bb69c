/* session.c - what is looked for, who is followed, and how much is held for it. */
#include "track/session.h"

#include <stdlib.h>
#include <string.h>

#define NO_FRAME -1

/* ---- records ---- */

void record_free(record *r)
{
    for (int i = 0; i < r->count; i++)
        rle_free(&r->item[i].mask);
    free(r->item);
    free(r->unconfirmed);
    *r = (record){0};
}

shown *record_item(record *r, int64_t id)
{
    for (int i = 0; i < r->count; i++)
        if (r->item[i].id == id)
            return &r->item[i];
    if (r->count == r->room) {
        int room = r->room ? 2 * r->room : 8;
        shown *more = realloc(r->item, sizeof *more * (size_t)room);
        if (!more)
            return NULL;
        r->item = more;
        r->room = room;
    }
    r->item[r->count] = (shown){.id = id};
    return &r->item[r->count++];
}

void record_remove(record *r, int64_t id)
{
    for (int i = 0; i < r->count; i++) {
        if (r->item[i].id != id)
            continue;
        rle_free(&r->item[i].mask);
        r->count--;
        memmove(r->item + i, r->item + i + 1, sizeof *r->item * (size_t)(r->count - i));
        return;
    }
}

size_t record_bytes(const record *r)
{
    size_t bytes = sizeof *r + sizeof *r->item * (size_t)r->room + sizeof(int64_t) * (size_t)r->unconfirmed_count;
    for (int i = 0; i < r->count; i++)
        bytes += r->item[i].mask.runs * sizeof(uint32_t);
    return bytes;
}

/* ---- life ---- */

int session_open(session **out, const sam3 *net, const track_options *o, int64_t frames, samite_error *err)
{
    session *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return fail(err, SAMITE_RESOURCE, "not enough memory for a video session");
    s->net = net;
    s->o = *o;
    s->frames = frames;
    s->box_frame = s->lent_frame = NO_FRAME;
    int code = track_tables_make(&s->tables, net, err);
    if (code) {
        free(s);
        return code;
    }
    *out = s;
    return 0;
}

void step_free(step *p)
{
    detections_free(&p->det);
    association_free(&p->a);
    bits_free(&p->bits);
    free(p->id);
    free(p->planes);
    free(p->logit);
    free(p->suppressed);
    free(p->removed);
    free(p->hidden);
    free(p->occluded_before);
    free(p->renewals);
    free(p->shows_detection);
    *p = (step){0};
}

void session_reset(session *s)
{
    for (int i = 0; i < s->batches; i++) {
        tracker_close(s->batch[i]);
        free(s->batch[i]);
    }
    s->batches = 0;
    lifecycle_free(&s->all);
    step_free(&s->last);
    free(s->words);
    free(s->boxes);
    free(s->positive);
    s->words = s->boxes = NULL;
    s->positive = NULL;
    s->box_count = 0;
    s->box_frame = s->lent_frame = NO_FRAME;
    s->by_text = false;
    s->gone_count = 0;
    s->looks = 0;
}

void session_close(session *s)
{
    if (!s)
        return;
    session_reset(s);
    track_tables_free(&s->tables);
    free(s->batch);
    free(s->gone);
    free(s);
}

static void *copy_of(const void *from, size_t bytes)
{
    void *to = malloc(bytes ? bytes : 1);
    return to && bytes ? memcpy(to, from, bytes) : to;
}

int session_seek(session *s, const sought *what, samite_error *err)
{
    size_t n = (size_t)what->box_count;
    float *words = copy_of(what->words, sizeof *words * (size_t)(what->tokens * s->net->c.d));
    float *boxes = copy_of(what->boxes, sizeof *boxes * 4 * n);
    int *positive = copy_of(what->positive, sizeof *positive * n);
    if (!words || !boxes || !positive) {
        free(words);
        free(boxes);
        free(positive);
        return fail(err, SAMITE_RESOURCE, "not enough memory for a prompt");
    }
    session_reset(s);
    s->words = words;
    s->tokens = what->tokens;
    s->by_text = what->by_text;
    s->boxes = boxes;
    s->positive = positive;
    s->box_count = what->box_count;
    s->box_frame = n ? what->box_frame : NO_FRAME;
    return 0;
}

/* ---- boxes ---- */

void session_lend(session *s, int64_t frame)
{
    int64_t next = s->backward ? frame - 1 : frame + 1;
    if (s->lent_frame == (s->backward ? frame + 1 : frame - 1))
        s->lent_frame = NO_FRAME;
    if (s->box_count && frame == s->box_frame && next >= 0 && (!s->frames || next < s->frames))
        s->lent_frame = next;
}

bool session_has_boxes(const session *s, int64_t frame)
{
    return s->box_count && (frame == s->box_frame || (s->o.official && frame == s->lent_frame));
}

/* ---- batches ---- */

int session_new_batch(session *s, int objects, tracker **out, samite_error *err)
{
    if (s->batches == s->batch_room) {
        int room = s->batch_room ? 2 * s->batch_room : 16;
        tracker **more = realloc(s->batch, sizeof *more * (size_t)room);
        if (!more)
            return fail(err, SAMITE_RESOURCE, "not enough memory for %d batches of objects", room);
        s->batch = more;
        s->batch_room = room;
    }
    tracker *t = calloc(1, sizeof *t);
    if (!t)
        return fail(err, SAMITE_RESOURCE, "not enough memory for a batch of objects");
    int code = tracker_open(t, &s->tables, objects, s->frames, err);
    if (code) {
        free(t);
        return code;
    }
    t->bank.select = s->o.select_memories;
    t->backward = s->backward;
    s->batch[s->batches++] = t;
    *out = t;
    return 0;
}

int session_batch_of(const session *s, int object, int *first)
{
    int i = 0;
    *first = 0;
    while (object >= *first + s->batch[i]->bank.objects)
        *first += s->batch[i++]->bank.objects;
    return i;
}

/* Object `object` leaves: its batch first, then the list. */
int session_drop(session *s, int object, samite_error *err)
{
    int first, i = session_batch_of(s, object, &first), code = 0;
    if (s->batch[i]->bank.objects > 1) {
        code = tracker_remove(s->batch[i], object - first, err);
    } else {
        tracker_close(s->batch[i]);
        free(s->batch[i]);
        s->batches--;
        memmove(s->batch + i, s->batch + i + 1, sizeof *s->batch * (size_t)(s->batches - i));
    }
    if (!code)
        lifecycle_drop(&s->all, object, s->o.official);
    return code;
}

bool session_is_gone(const session *s, int64_t id)
{
    for (int i = 0; i < s->gone_count; i++)
        if (s->gone[i].id == id)
            return true;
    return false;
}

int session_remove(session *s, int64_t id, samite_error *err)
{
    int object = lifecycle_find(&s->all, id);
    if (object < 0)
        return fail(err, SAMITE_USAGE, "object %lld cannot be removed: there is no such object", (long long)id);
    return session_drop(s, object, err);
}

/* ---- sizes ---- */

size_t session_bytes(const session *s)
{
    size_t bytes = sizeof *s + sizeof *s->batch * (size_t)s->batch_room + sizeof *s->gone * (size_t)s->gone_room;
    for (int i = 0; i < s->batches; i++)
        bytes += sizeof *s->batch[i] + tracker_bytes(s->batch[i]);
    return bytes + sizeof *s->all.object * (size_t)s->all.room + sizeof *s->all.pair * (size_t)s->all.pair_room;
}

size_t session_bytes_per_object(const session *s)
{
    const config *c = &s->net->c;
    size_t tokens = (size_t)config_tokens(c), map = 2 * tokens * tokens * (size_t)c->mem_dim;
    size_t side = s->may_turn ? 2 : 1, maps = (BANK_MAPS + 1 + BANK_PROMPTED) * side + 1;
    size_t pointers = (BANK_POINTERS + BANK_PROMPTED) * side * sizeof(float) * (size_t)(c->d + 2);
    return maps * map + pointers + 4 * sizeof(float) * 16 * tokens * tokens;
}
