/* requests.c - decides what a request means and keeps every frame's record. */
#include "track/requests.h"

#include <stdlib.h>
#include <string.h>

#define SCORE_GONE -1e4f

int requests_open(requests **out, session *s, int64_t frames, int width, int height, const request_calls *calls,
                  samite_error *err)
{
    requests *q = calloc(1, sizeof *q);
    *out = NULL;
    if (q) {
        *q = (requests){.s = s, .frames = frames, .width = width, .height = height, .calls = *calls};
        q->cache = calloc((size_t)frames + 1, sizeof *q->cache);
        q->cached = calloc((size_t)frames + 1, sizeof *q->cached);
        q->known = calloc((size_t)frames + 1, sizeof *q->known);
    }
    if (!q || !q->cache || !q->cached || !q->known) {
        if (q)
            requests_close(q);
        else
            session_close(s);
        return fail(err, SAMITE_RESOURCE, "not enough memory for a clip of %lld frames", (long long)frames);
    }
    s->keep_last = true;
    *out = q;
    return 0;
}

static void clear_history(requests *q)
{
    for (int i = 0; i < q->count; i++)
        free(q->history[i].ids);
    q->count = 0;
}

static void clear_frames(requests *q)
{
    for (int64_t f = 0; f < q->frames && q->cache; f++) {
        record_free(&q->cache[f]);
        if (q->cached)
            q->cached[f] = false;
        if (q->known)
            q->known[f] = false;
    }
    clear_history(q);
}

void requests_close(requests *q)
{
    if (!q)
        return;
    clear_frames(q);
    session_close(q->s);
    free(q->cache);
    free(q->cached);
    free(q->known);
    free(q->history);
    free(q);
}

void requests_reset(requests *q)
{
    clear_frames(q);
    session_reset(q->s);
}

/* ---- history ---- */

static int note_action(requests *q, action_kind kind, int64_t frame, const int64_t *ids, int count, samite_error *err)
{
    if (q->count == q->room) {
        int room = q->room ? 2 * q->room : 16;
        action *more = realloc(q->history, sizeof *more * (size_t)room);
        if (!more)
            return fail(err, SAMITE_RESOURCE, "not enough memory for %d requests", room);
        q->history = more;
        q->room = room;
    }
    int64_t *copy = malloc(sizeof *copy * ((size_t)count + 1));
    if (!copy)
        return fail(err, SAMITE_RESOURCE, "not enough memory for a request");
    if (count)
        memcpy(copy, ids, sizeof *copy * (size_t)count);
    q->history[q->count++] = (action){kind, frame, copy, count};
    return 0;
}

static bool is_pass(action_kind kind)
{
    return kind == WENT_FULL || kind == WENT_PARTIAL;
}

/* Ids pointed at since the last propagation; *ids is yours to free. */
static action_kind collect_ids(const requests *q, int64_t **ids, int *count)
{
    *ids = malloc(sizeof **ids * ((size_t)q->count + 1));
    *count = 0;
    for (int i = q->count - 1; *ids && i >= 0 && q->history[i].kind < WENT_FULL; i--) {
        bool there = q->history[i].kind == REMOVED;
        for (int k = 0; k < *count; k++)
            there |= (*ids)[k] == q->history[i].ids[0];
        if (!there)
            (*ids)[(*count)++] = q->history[i].ids[0];
    }
    return *count ? WENT_PARTIAL : FETCHED;
}

/* What the next propagation does. *ids is yours to free. */
static action_kind next_pass(const requests *q, int64_t **ids, int *count)
{
    *ids = NULL;
    *count = 0;
    if (!q->count)
        return WENT_FULL;
    const action *last = &q->history[q->count - 1];
    if (last->kind == FETCHED)
        return FETCHED;
    if (!is_pass(last->kind))
        return collect_ids(q, ids, count);
    if ((q->count > 1 && is_pass(last[-1].kind)) || last->frame == 0 || last->frame == q->frames - 1)
        return FETCHED;
    if ((*ids = malloc(sizeof **ids * ((size_t)last->count + 1))) != NULL && last->count)
        memcpy(*ids, last->ids, sizeof **ids * (size_t)last->count);
    *count = *ids ? last->count : 0;
    return last->kind;
}

/* ---- answers ---- */

/* Scores as they are now, not as they were on that frame. */
static void refresh_scores(requests *q, record *r)
{
    for (int i = 0; i < r->count; i++) {
        int object = lifecycle_find(&q->s->all, r->item[i].id);
        if (object >= 0)
            r->item[i].score = q->s->all.object[object].score;
        else if (session_is_gone(q->s, r->item[i].id))
            r->item[i].score = SCORE_GONE;
    }
}

static int answer(requests *q, int64_t frame, const hiding *h, answer_fn each, void *user, samite_error *err)
{
    track_result result;
    int code = session_result(q->s, &q->cache[frame], q->width, q->height, h, &result, err);
    if (code)
        return code;
    code = each(user, &result, err);
    track_result_free(&result);
    return code;
}

/* The same for what is known already. */
static int answer_again(requests *q, int64_t frame, answer_fn each, void *user, samite_error *err)
{
    refresh_scores(q, &q->cache[frame]);
    q->cache[frame].has_counts = false;
    return answer(q, frame, &(hiding){.by_rule = true}, each, user, err);
}

/* Takes the masks of hidden objects out of a frame's record. */
static void filter(requests *q, int64_t frame, const hiding *h)
{
    record *r = &q->cache[frame];
    for (int i = 0; i < r->count; i++) {
        shown *x = &r->item[i];
        bool out = (h->by_rule && x->hidden) || (h->gone && session_is_gone(q->s, x->id));
        for (int k = 0; k < h->unconfirmed_count; k++)
            out |= h->unconfirmed[k] == x->id;
        if (!out)
            continue;
        rle_free(&x->mask);
        x->has_mask = false;
    }
}

/* ---- one frame ---- */

static int full_step(requests *q, int64_t frame, samite_error *err)
{
    frame_view v;
    record r;
    int code = q->calls.view(q->calls.user, frame, &v, err);
    if (!code)
        code = session_step(q->s, &v, &r, err);
    if (code)
        return code;
    record_free(&q->cache[frame]);
    q->cache[frame] = r;
    q->cached[frame] = q->known[frame] = true;
    q->worked++;
    if (q->calls.worked)
        q->calls.worked(q->calls.user, q, WENT_FULL, NULL, 0);
    return 0;
}

int requests_prompt(requests *q, const sought *what, int64_t frame, answer_fn each, void *user, samite_error *err)
{
    if (frame < 0 || frame >= q->frames)
        return fail(err, SAMITE_USAGE, "there is no frame %lld: the clip has %lld", (long long)frame,
                    (long long)q->frames);
    if (!what->by_text && what->box_count != 1)
        return fail(err, SAMITE_USAGE, "%d boxes without words: exactly one is understood", what->box_count);
    clear_frames(q);
    q->worked = 0;
    q->s->backward = false;
    int code = session_seek(q->s, what, err);
    if (!code)
        code = full_step(q, frame, err);
    return code ? code : answer(q, frame, &(hiding){0}, each, user, err);
}

int requests_point(requests *q, int64_t frame, const pointed *p, answer_fn each, void *user, samite_error *err)
{
    frame_view v;
    float *logits = NULL;
    int objects = 0;
    bool refines = lifecycle_find(&q->s->all, p->id) >= 0;
    if (frame < 0 || frame >= q->frames || !q->cached[frame])
        return fail(err, SAMITE_USAGE, "frame %lld was not worked on yet: propagate first", (long long)frame);
    q->worked = 0;
    int code = q->calls.view(q->calls.user, frame, &v, err);
    if (!code)
        code = session_click(q->s, &v, p, &q->cache[frame], &logits, &objects, err);
    if (!code)
        code = note_action(q, refines ? REFINED : ADDED, frame, &p->id, 1, err);
    for (int64_t f = 0; f < q->frames && !code; f++)
        for (int i = 0; i < q->cache[f].count; i++)
            q->cache[f].item[i].hidden &= q->cache[f].item[i].id != p->id;
    q->worked++;
    if (!code && q->calls.worked)
        q->calls.worked(q->calls.user, q, REFINED, logits, objects);
    free(logits);
    return code ? code : answer_again(q, frame, each, user, err);
}

/* ---- propagation ---- */

typedef struct range { int64_t first, last, step; bool empty; } range;

static int plan(const requests *q, bool backward, int64_t start, int64_t most, range *out, samite_error *err)
{
    for (int64_t f = 0; start < 0 && f < q->frames; f++)
        if (q->known[f])
            start = f;
    if (start < 0 || start >= q->frames)
        return fail(err, SAMITE_USAGE, "nothing was prompted on any frame yet");
    most = most < 0 || most > q->frames ? q->frames : most;
    if (backward)
        *out = (range){start - 1, start - most > 0 ? start - most : 0, -1, false};
    else
        *out = (range){start, start + most < q->frames ? start + most : q->frames - 1, 1, false};
    out->empty = backward ? out->first < out->last : out->first > out->last;
    return 0;
}

/* Gives out the oldest frame that waits: who is known to be wrong by now is hidden. `newest` was worked on last. */
static int give_out(requests *q, int64_t frame, int64_t newest, const range *g, answer_fn each, void *user,
                    samite_error *err)
{
    const track_options *o = &q->s->o;
    int64_t ahead = frame + g->step * (o->confirm > 0 ? o->confirm - 1 : 0);
    ahead = ahead < 0 ? 0 : ahead >= q->frames ? q->frames - 1 : ahead;
    hiding h = {.gone = o->delay > 0, .by_rule = true};
    if (o->confirm > 0 && o->delay > 0 && (newest - ahead) * g->step >= 0) {
        h.unconfirmed = q->cache[ahead].unconfirmed;
        h.unconfirmed_count = q->cache[ahead].unconfirmed_count;
    }
    int code = answer(q, frame, &h, each, user, err);
    if (!code)
        filter(q, frame, &h);
    return code;
}

static int go_full(requests *q, const range *g, answer_fn each, void *user, samite_error *err)
{
    int64_t waiting = g->first;
    int code = 0;
    for (int64_t f = g->first; !g->empty && !code; f += g->step) {
        if ((code = full_step(q, f, err)))
            return code;
        bool end = f == g->last, ready = (f - waiting) * g->step + 1 >= q->s->o.delay;
        while (!code && (waiting - f) * g->step <= 0 && (end || ready)) {
            code = give_out(q, waiting, f, g, each, user, err);
            waiting += g->step;
            ready = false;
        }
        if (end)
            break;
    }
    return code;
}

static int go_partial(requests *q, const range *g, const int64_t *ids, int count, answer_fn each, void *user,
                      samite_error *err)
{
    int code = 0;
    for (int64_t f = g->first; !g->empty && !code; f += g->step) {
        frame_view v;
        record unseen = {.frame = f}, *r = q->cached[f] ? &q->cache[f] : &unseen;
        code = q->calls.view(q->calls.user, f, &v, err);
        if (!code)
            code = session_follow(q->s, &v, ids, count, r, err);
        q->worked++;
        if (!code && q->calls.worked)
            q->calls.worked(q->calls.user, q, WENT_PARTIAL, NULL, 0);
        if (!code && r == &unseen)
            code = fail(err, SAMITE_USAGE, "frame %lld was not worked on yet: propagate first", (long long)f);
        record_free(&unseen);
        if (!code)
            code = answer_again(q, f, each, user, err);
        if (f == g->last)
            break;
    }
    return code;
}

static int fetch(requests *q, const range *g, answer_fn each, void *user, samite_error *err)
{
    int code = 0;
    for (int64_t f = g->first; !g->empty && !code; f += g->step) {
        q->cache[f].frame = f;
        code = answer_again(q, f, each, user, err);
        if (f == g->last)
            break;
    }
    return code;
}

int requests_propagate(requests *q, bool backward, int64_t start, int64_t most, answer_fn each, void *user,
                       samite_error *err)
{
    int64_t *ids;
    int count;
    range g = {.empty = true};
    action_kind kind = next_pass(q, &ids, &count);
    q->worked = 0;
    q->s->backward = backward;
    int code = note_action(q, kind, start, ids, count, err);
    if (!code)
        code = plan(q, backward, start, most, &g, err);
    if (!code && kind == WENT_FULL)
        code = go_full(q, &g, each, user, err);
    else if (!code && kind == WENT_PARTIAL)
        code = go_partial(q, &g, ids, count, each, user, err);
    else if (!code)
        code = fetch(q, &g, each, user, err);
    free(ids);
    return code;
}

int requests_remove(requests *q, int64_t id, samite_error *err)
{
    int code = session_remove(q->s, id, err);
    if (!code)
        code = note_action(q, REMOVED, -1, &id, 1, err);
    for (int64_t f = 0; f < q->frames && !code; f++)
        record_remove(&q->cache[f], id);
    return code;
}
