/* session_memory.c - writes what all objects look like into their memories, where they compete for pixels. */
#include <stdlib.h>

#include "io/mask.h"
#include "track/planes.h"
#include "track/session.h"

/* The masks of a frame, which yield to each other. */
typedef struct contest {
    const session *s;
    int    side, big;
    bool  *shrunk;             /* [tracks] others leave too little of it */
} contest;

/* The mask of object `i` enlarged to the memory encoder's size; one that is suppressed is nowhere. */
static int enlarge(const contest *c, int i, float *out, samite_error *err)
{
    const step *p = &c->s->last;
    if (!p->suppressed[i])
        return mask_resize_bilinear(out, c->big, c->big, p->planes + (int64_t)i * c->side * c->side, c->side,
                                    c->side, err);
    for (int64_t k = 0; k < (int64_t)c->big * c->big; k++)
        out[k] = LOGIT_YIELD;
    return 0;
}

/* Who is highest where. area [tracks] of each alone, left [tracks] of what it wins. */
static int compete(const contest *c, float *plane, float *best, int32_t *winner, int64_t *area, int64_t *left,
                   samite_error *err)
{
    int64_t n = (int64_t)c->big * c->big;
    int code = 0;
    for (int i = 0; i < c->s->last.tracks && !code; i++) {
        int64_t inside = 0;
        code = enlarge(c, i, plane, err);
        #pragma omp parallel for schedule(static) reduction(+ : inside)
        for (int64_t k = 0; k < n; k++) {
            inside += plane[k] > 0;
            if (i && plane[k] <= best[k])
                continue;
            best[k] = plane[k];
            winner[k] = i;
        }
        area[i] = inside;
    }
    for (int64_t k = 0; k < n && !code; k++)
        left[winner[k]] += best[k] > 0;
    return code;
}

static int find_shrunk(contest *c, bool *hidden, samite_error *err)
{
    int tracks = c->s->last.tracks;
    size_t n = (size_t)c->big * (size_t)c->big;
    float *plane = malloc(sizeof *plane * 2 * n), *best = plane + n;
    int32_t *winner = malloc(sizeof *winner * n);
    int64_t *area = calloc(2 * (size_t)tracks, sizeof *area), *left = area + tracks;
    int code = plane && winner && area ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to compare %d masks",
                                                  tracks);
    if (!code)
        code = compete(c, plane, best, winner, area, left, err);
    for (int i = 0; i < tracks && !code; i++) {
        float before = (float)(area[i] > 1 ? area[i] : 1), share = (float)(tracks > 1 ? left[i] : area[i]) / before;
        c->shrunk[i] = share < c->s->o.keep_share;
        hidden[i] = c->shrunk[i] || !area[i];
    }
    free(plane);
    free(winner);
    free(area);
    return code;
}

static int contest_plane(void *user, int object, float *out, samite_error *err)
{
    const contest *c = user;
    int code = enlarge(c, object, out, err);
    int64_t n = (int64_t)c->big * c->big;
    for (int64_t k = 0; c->shrunk[object] && k < n; k++)
        out[k] = out[k] > LOGIT_YIELD ? LOGIT_YIELD : out[k];
    plane_as_memory(out, n, false);
    return code;
}

static int write_batches(contest *c, const frame_view *v, const bool *hidden, samite_error *err)
{
    const session *s = c->s;
    moment **m = calloc((size_t)s->batches + 1, sizeof *m);
    int code = m ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %d batches of objects", s->batches);
    for (int i = 0; i < s->batches && !code; i++) {
        const bank *b = &s->batch[i]->bank;
        if (!(m[i] = bank_prompted(b, v->at.frame)) && !(m[i] = bank_tracked(b, v->at.frame)))
            code = fail(err, SAMITE_FAILED, "a batch of objects has nothing for frame %lld", (long long)v->at.frame);
    }
    if (!code)
        code = trackers_write(s->batch, m, s->batches, &v->at, hidden, contest_plane, c, err);
    free(m);
    return code;
}

int session_remember(session *s, const frame_view *v, samite_error *err)
{
    int side = 4 * config_tokens(&s->net->c);
    contest c = {.s = s, .side = side, .big = 4 * side, .shrunk = calloc((size_t)s->last.tracks + 1, sizeof(bool))};
    bool *hidden = calloc((size_t)s->last.tracks + 1, sizeof *hidden);
    int code = c.shrunk && hidden ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %d objects", s->last.tracks);
    if (!code)
        code = find_shrunk(&c, hidden, err);
    if (!code)
        code = write_batches(&c, v, hidden, err);
    if (!code && s->remembered)
        s->remembered(s->user, s);
    free(c.shrunk);
    free(hidden);
    return code;
}
