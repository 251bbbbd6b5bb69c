/* tracker.c - prompts and frames in, masks and memories out. */
#include "track/tracker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "io/mask.h"
#include "track/choose.h"
#include "track/planes.h"

#define PRIOR_LIMIT 32.0f      /* an earlier mask is clamped before it prompts the decoder */
#define SCORE_ASKED 10.0f      /* of an object without an answer on a prompted frame */

int track_tables_make(track_tables *t, const sam3 *net, samite_error *err)
{
    int64_t tokens = config_tokens(&net->c), n = tokens * tokens;
    *t = (track_tables){.net = net, .rotations = malloc(sizeof(float) * (size_t)(n * net->c.d)),
                        .grid = malloc(sizeof(float) * (size_t)(n * net->c.mem_dim))};
    if (!t->rotations || !t->grid) {
        track_tables_free(t);
        return fail(err, SAMITE_RESOURCE, "not enough memory for the tables of the tracker");
    }
    memory_rotations(t->rotations, tokens, net->c.d);
    grid_codes(t->grid, tokens, tokens, net->c.mem_dim);
    return 0;
}

void track_tables_free(track_tables *t)
{
    free(t->rotations);
    free(t->grid);
    *t = (track_tables){0};
}

int tracker_open(tracker *t, const track_tables *tables, int objects, int64_t frames, samite_error *err)
{
    const config *c = &tables->net->c;
    int64_t tokens = config_tokens(c);
    *t = (tracker){.tables = tables, .frames = frames};
    if (objects < 1)
        return fail(err, SAMITE_USAGE, "%d objects to track: expected at least 1", objects);
    bank_init(&t->bank, objects, tokens * tokens, c->mem_dim, c->d, 4 * tokens);
    return 0;
}

void tracker_close(tracker *t)
{
    bank_free(&t->bank);
    for (int i = 0; i < t->draft_count; i++)
        free(t->drafts[i].mask);
    free(t->drafts);
    *t = (tracker){0};
}

/* ---- drafts ---- */

static draft *find_draft(const tracker *t, int64_t frame, int object)
{
    for (int i = 0; i < t->draft_count; i++)
        if (t->drafts[i].frame == frame && t->drafts[i].object == object)
            return &t->drafts[i];
    return NULL;
}

static draft *new_draft(tracker *t, int64_t frame, int object)
{
    if (t->draft_count == t->draft_room) {
        int room = t->draft_room ? 2 * t->draft_room : 8;
        draft *more = realloc(t->drafts, sizeof *more * (size_t)room);
        if (!more)
            return NULL;
        t->drafts = more;
        t->draft_room = room;
    }
    float *values = malloc(sizeof *values * (size_t)(t->bank.pixels + t->bank.d));
    if (!values)
        return NULL;
    draft *d = &t->drafts[t->draft_count++];
    *d = (draft){.frame = frame, .object = object, .mask = values, .pointer = values + t->bank.pixels};
    return d;
}

static bool has_drafts(const tracker *t, int64_t frame)
{
    for (int i = 0; i < t->draft_count; i++)
        if (t->drafts[i].frame == frame)
            return true;
    return false;
}

static void drop_drafts(tracker *t, int64_t frame)
{
    int kept = 0;
    for (int i = 0; i < t->draft_count; i++) {
        if (t->drafts[i].frame == frame)
            free(t->drafts[i].mask);
        else
            t->drafts[kept++] = t->drafts[i];
    }
    t->draft_count = kept;
}

/* ---- what the decoder says ---- */

/* Where the chosen answers of a batch go: mask [B, pixels], pointer [B, d], score [B], overlap [B] (may be NULL). */
typedef struct answers { float *mask, *pointer, *score, *overlap; } answers;

/* Chooses a guess for each object; absent ones get an absent mask and no pointer. Numbers are copied out of the run. */
static int take_answers(const tracker *t, run *r, const guesses *g, bool several, answers *out, samite_error *err)
{
    int64_t batch = g->masks->dim[0], n = t->bank.pixels, d = t->bank.d;
    int code = run_status(r, err);
    if (code)
        return code;
    int32_t *token = malloc(sizeof *token * (size_t)batch);
    bool *hidden = malloc(sizeof *hidden * (size_t)batch);
    for (int64_t b = 0; token && hidden && b < batch; b++) {
        const float *masks = g->masks->data + b * MASK_GUESSES * n, *overlap = g->overlap->data + b * MASK_GUESSES;
        int chosen = choose_guess(masks, overlap, n, several);
        token[b] = (int32_t)(b * MASK_GUESSES + (several ? chosen : 0));    /* a clear prompt keeps its pointer */
        hidden[b] = !(g->object->data[b] > 0);
        memcpy(out->mask + b * n, masks + chosen * n, sizeof(float) * (size_t)n);
        for (int64_t i = 0; hidden[b] && i < n; i++)
            out->mask[b * n + i] = LOGIT_ABSENT;
        out->score[b] = g->object->data[b];
        if (out->overlap)
            out->overlap[b] = overlap[chosen];
    }
    if (token && hidden) {
        tensor *flat = reshape(r, g->tokens, 2, (int64_t[]){batch * MASK_GUESSES, d});
        tensor *p = memory_pointers(r, &t->tables->net->memory, gather_rows(r, flat, token, batch), hidden);
        if (!(code = run_status(r, err)))
            memcpy(out->pointer, p->data, sizeof(float) * (size_t)(batch * d));
    } else {
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %d objects", (int)batch);
    }
    free(token);
    free(hidden);
    return code;
}

/* ---- prompts ---- */

/* The mask this frame has for the object, clamped, as a prompt [1, 4t, 4t, 1]; NULL when it has none. */
static tensor *prior_mask(const tracker *t, const tracked_frame *f, int object)
{
    const draft *d = find_draft(t, f->frame, object);
    const moment *m = d ? NULL : bank_prompted(&t->bank, f->frame);
    if (!d && !m)
        m = bank_tracked(&t->bank, f->frame);
    if (!d && !m)
        return NULL;
    const float *from = d ? d->mask : m->mask + object * t->bank.pixels;
    int64_t side = f->image->fine0->dim[0];
    tensor *x = run_constant(f->r, 4, (int64_t[]){1, side, side, 1});
    for (int64_t i = 0; x->data && run_ok(f->r) && i < t->bank.pixels; i++)
        x->data[i] = fminf(fmaxf(from[i], -PRIOR_LIMIT), PRIOR_LIMIT);
    return x;
}

/* At most TRACKER_POINTS of the points: the first and the last half. Returns how many. */
static int limit_points(float *xy, int *kind, const float *xy_in, const int *kind_in, int count)
{
    int n = count < TRACKER_POINTS ? count : TRACKER_POINTS;
    for (int i = 0; i < n; i++) {
        int from = count > n && i >= n / 2 ? count - n + i : i;
        xy[2 * i] = xy_in[2 * from];
        xy[2 * i + 1] = xy_in[2 * from + 1];
        kind[i] = kind_in[from];
    }
    return n;
}

static int click(tracker *t, const tracked_frame *f, int object, const clicks *p, samite_error *err)
{
    guesses g;
    sam3_click(f->r, t->tables->net, f->image, NULL, p, prior_mask(t, f, object), &g);
    draft *d = find_draft(t, f->frame, object);
    bool fresh = !d;
    if (fresh && !(d = new_draft(t, f->frame, object)))
        return fail(err, SAMITE_RESOURCE, "not enough memory for a prompt on frame %lld", (long long)f->frame);
    int code = take_answers(t, f->r, &g, p->count <= 1, &(answers){d->mask, d->pointer, &d->score, NULL}, err);
    if (code && fresh)
        free(t->drafts[--t->draft_count].mask);
    return code;
}

int tracker_click(tracker *t, const tracked_frame *f, int object, const float *xy, const int *kind, int count,
                  const draft **out, samite_error *err)
{
    float place[2 * TRACKER_POINTS];
    int what[TRACKER_POINTS];
    if (object < 0 || object >= t->bank.objects || count < 1)
        return fail(err, SAMITE_USAGE, "%d points for object %d of %d", count, object + 1, t->bank.objects);
    int n = limit_points(place, what, xy, kind, count);
    run_point before = run_save(f->r);
    int code = click(t, f, object, &(clicks){1, n, place, what}, err);
    run_restore(f->r, before);
    if (!code && out)
        *out = find_draft(t, f->frame, object);
    return code;
}

/* ---- writing memories ---- */

/* Masks [B, pixels] enlarged to the input's size, and with `by_sign` cut where another object is stronger; then scaled to
 * -10..10 and to the memory encoder's size: [B, 16t, 16t, 1]. */
static tensor *masks_to_write(const tracker *t, run *r, const float *masks, bool by_sign, samite_error *err, int *code)
{
    int side = t->tables->net->c.image, small = 4 * config_tokens(&t->tables->net->c), big = 4 * small;
    int64_t batch = t->bank.objects, n = (int64_t)side * side, wide = (int64_t)big * big;
    tensor *all = run_constant(r, 4, (int64_t[]){batch, side, side, 1});
    tensor *y = run_constant(r, 4, (int64_t[]){batch, big, big, 1});
    if ((*code = run_status(r, err)))
        return y;
    for (int64_t b = 0; b < batch && !*code; b++)
        *code = mask_resize_bilinear(all->data + b * n, side, side, masks + b * t->bank.pixels, small, small, err);
    if (!*code && by_sign && batch > 1)
        planes_settle_overlap(all->data, (int)batch, n);
    if (!*code)
        plane_as_memory(all->data, batch * n, by_sign);
    for (int64_t b = 0; b < batch && !*code; b++)
        *code = mask_resize_bilinear(y->data + b * wide, big, big, all->data + b * n, side, side, err);
    return y;
}

/* Fills m->memory from m->mask and m->score. by_sign: the masks were prompted for. */
static int write_memory(const tracker *t, const tracked_frame *f, moment *m, bool by_sign, samite_error *err)
{
    int code, batch = t->bank.objects;
    bool *hidden = malloc(sizeof *hidden * (size_t)batch);
    if (!hidden)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d objects", batch);
    for (int b = 0; b < batch; b++)
        hidden[b] = !(m->score[b] > 0);
    tensor *masks = masks_to_write(t, f->r, m->mask, by_sign, err, &code);
    if (!code) {
        tensor *y = memory_encode(f->r, &t->tables->net->memory, f->image->image, masks, hidden);
        if (!(code = run_status(f->r, err)))
            dtype_from_f32(m->memory, DT_BF16, y->data, (size_t)tensor_count(y));
    }
    free(hidden);
    return code;
}

/* ---- settling ---- */

/* What a frame has for one object: its draft, else what is remembered, else only the pointer of an absent one. */
static void settle_object(const tracker *t, moment *m, int object)
{
    const bank *b = &t->bank;
    const draft *d = find_draft(t, m->frame, object);
    const moment *old = bank_prompted(b, m->frame);
    if (!old)
        old = bank_tracked(b, m->frame);
    float *mask = m->mask + object * b->pixels, *pointer = m->pointer + object * b->d;
    if (d || old) {
        memcpy(mask, d ? d->mask : old->mask + object * b->pixels, sizeof(float) * (size_t)b->pixels);
        memcpy(pointer, d ? d->pointer : old->pointer + object * b->d, sizeof(float) * (size_t)b->d);
        m->score[object] = d ? d->score : old->score[object];
        return;
    }
    for (int64_t i = 0; i < b->pixels; i++)
        mask[i] = LOGIT_ABSENT;
    memcpy(pointer, t->tables->net->memory.no_pointer->t.data, sizeof(float) * (size_t)b->d);
    m->score[object] = SCORE_ASKED;
}

int tracker_settle(tracker *t, const tracked_frame *f, samite_error *err)
{
    if (!has_drafts(t, f->frame))
        return 0;
    moment *m = moment_new(&t->bank, f->frame);
    if (!m)
        return fail(err, SAMITE_RESOURCE, "not enough memory to remember frame %lld", (long long)f->frame);
    for (int i = 0; i < t->bank.objects; i++)
        settle_object(t, m, i);
    run_point before = run_save(f->r);
    int code = write_memory(t, f, m, true, err);
    run_restore(f->r, before);
    if (!code)
        code = bank_put(&t->bank, m, true, err);
    if (code)
        moment_free(m);
    else
        drop_drafts(t, f->frame);
    return code;
}

/* ---- tracking ---- */

/* Maps and pointers of the recalled moments as tokens: [B, k, width]. */
static tensor *recalled_tokens(const bank *b, run *r, const recall *past)
{
    int64_t map = b->tokens * b->width, k = past->maps * b->tokens + past->pointers * (b->d / b->width);
    tensor *x = run_constant(r, 3, (int64_t[]){b->objects, k, b->width});
    for (int64_t o = 0; x->data && run_ok(r) && o < b->objects; o++) {
        float *to = x->data + o * k * b->width;
        for (int i = 0; i < past->maps; i++, to += map)
            dtype_to_f32(to, past->map[i]->memory + o * map, DT_BF16, (size_t)map);
        for (int i = 0; i < past->pointers; i++, to += b->d)
            memcpy(to, past->pointer[i]->pointer + o * b->d, sizeof(float) * (size_t)b->d);
    }
    return x;
}

/* The picture of f as the objects' memories see it. */
static tensor *look(const tracker *t, const tracked_frame *f, const recall *past)
{
    const bank *b = &t->bank;
    const memory *m = &t->tables->net->memory;
    tensor *grid = run_input(f->r, t->tables->grid, 2, (int64_t[]){b->tokens, b->width});
    memories all = {.tokens = recalled_tokens(b, f->r, past),
                    .places = memory_places(f->r, m, grid, past->age, past->maps, past->distance, past->pointers),
                    .pointer_rows = past->pointers * (b->d / b->width), .rotations = t->tables->rotations};
    return memory_attend(f->r, m, f->image->image, f->image->codes, &all);
}

static int track(const tracker *t, const tracked_frame *f, moment *m, samite_error *err)
{
    recall past;
    if (!bank_recall(&t->bank, f->frame, t->backward, t->frames, &past))
        return fail(err, SAMITE_RESOURCE, "not enough memory to look back from frame %lld", (long long)f->frame);
    int batch = t->bank.objects;
    int *kind = malloc(sizeof *kind * (size_t)batch);
    float *xy = calloc((size_t)batch * 2, sizeof *xy);
    int code = kind && xy ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %d objects", batch);
    for (int i = 0; !code && i < batch; i++)
        kind[i] = POINT_NONE;
    if (!code) {
        guesses g;
        sam3_click(f->r, t->tables->net, f->image, look(t, f, &past), &(clicks){batch, 1, xy, kind}, NULL, &g);
        code = take_answers(t, f->r, &g, true, &(answers){m->mask, m->pointer, m->score, m->overlap}, err);
    }
    free(kind);
    free(xy);
    if (code)
        return code;
    m->quality = moment_quality(m, batch);
    return write_memory(t, f, m, false, err);
}

int tracker_step(tracker *t, const tracked_frame *f, const moment **out, samite_error *err)
{
    if ((*out = bank_prompted(&t->bank, f->frame)))
        return 0;
    if (!t->bank.prompted_count)
        return fail(err, SAMITE_USAGE, "nothing to track: no frame was prompted");
    moment *m = moment_new(&t->bank, f->frame);
    if (!m)
        return fail(err, SAMITE_RESOURCE, "not enough memory to remember frame %lld", (long long)f->frame);
    run_point before = run_save(f->r);
    int code = track(t, f, m, err);
    run_restore(f->r, before);
    if (!code)
        code = bank_put(&t->bank, m, false, err);
    if (code)
        moment_free(m);
    else
        *out = m;
    return code;
}
