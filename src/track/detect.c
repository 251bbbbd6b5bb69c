/* detect.c - scores with presence folded in, masks of what is sure enough, and no object twice. */
#include "track/detect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "track/bits.h"

#define LEAST_SHARE  1e-3f     /* a probability is kept this far from 0 and 1 */
#define LARGEST      10.0f
#define DROPPED      1e4f

void detections_free(detections *d)
{
    free(d->logits);
    free(d->corners);
    free(d->query);
    free(d->scores);
    free(d->boxes);
    free(d->masks);
    *d = (detections){0};
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static float with_presence(float logit, float presence)
{
    float p = sigmoid(logit) * sigmoid(presence);
    float x = logf(fmaxf(p, LEAST_SHARE) / fmaxf(1.0f - p, LEAST_SHARE));
    return fminf(fmaxf(x, -LARGEST), LARGEST);
}

static bool make(detections *d, int queries)
{
    size_t n = (size_t)queries + 1;
    *d = (detections){.queries = queries, .logits = calloc(n, sizeof *d->logits),
                      .corners = calloc(n, 4 * sizeof *d->corners), .query = calloc(n, sizeof *d->query),
                      .scores = calloc(n, sizeof *d->scores), .boxes = calloc(n, 4 * sizeof *d->boxes)};
    return d->logits && d->corners && d->query && d->scores && d->boxes;
}

static void read_queries(detections *d, const float *logits, const float *boxes, float presence, float least)
{
    for (int q = 0; q < d->queries; q++) {
        const float *b = boxes + 4 * q;
        float *to = d->corners + 4 * q;
        d->logits[q] = with_presence(logits[q], presence);
        for (int k = 0; k < 2; k++) {
            to[k] = b[k] - 0.5f * b[2 + k];
            to[2 + k] = b[k] + 0.5f * b[2 + k];
        }
        if (sigmoid(d->logits[q]) > least)
            d->query[d->count++] = q;
    }
}

/* keep[i]: no better candidate that is kept itself overlaps candidate i too much. The later query wins ties. */
static void suppress(const detections *d, const bit_masks *m, float limit, bool *keep)
{
    for (int i = 0; i < d->count; i++)
        keep[i] = true;
    bool *done = keep + d->count;
    for (int round = 0; round < d->count; round++) {
        int best = -1;
        for (int i = 0; i < d->count; i++)
            if (keep[i] && !done[i] && (best < 0 || d->logits[d->query[i]] >= d->logits[d->query[best]]))
                best = i;
        if (best < 0)
            return;
        done[best] = true;
        for (int i = 0; i < d->count; i++)
            if (!done[i] && keep[i] && bits_iou(m, best, m, i) > limit)
                keep[i] = false;
    }
}

static int drop_doubles(detections *d, int64_t pixels, float limit, samite_error *err)
{
    bit_masks m;
    bool *keep = calloc(2 * (size_t)d->count + 1, sizeof *keep);
    int kept = 0;
    if (!keep || !bits_of_logits(&m, d->masks, d->count, pixels)) {
        free(keep);
        return fail(err, SAMITE_RESOURCE, "not enough memory to compare %d masks", d->count);
    }
    suppress(d, &m, limit, keep);
    for (int i = 0; i < d->count; i++) {
        if (!keep[i])
            continue;
        if (kept != i)
            memcpy(d->masks + kept * pixels, d->masks + i * pixels, sizeof(float) * (size_t)pixels);
        d->query[kept++] = d->query[i];
    }
    d->count = kept;
    bits_free(&m);
    free(keep);
    return 0;
}

/* Queries that are out are marked in their scores. */
static void mark_dropped(detections *d)
{
    int at = 0;
    for (int q = 0; q < d->queries; q++) {
        if (at < d->count && d->query[at] == q)
            at++;
        else
            d->logits[q] -= DROPPED;
    }
}

static int read_masks(detections *d, run *r, const sam3 *net, const encoded_image *im, const grounded *g,
                      samite_error *err)
{
    int32_t *query = malloc(sizeof *query * ((size_t)d->count + 1));
    int code = query ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %d masks", d->count);
    for (int i = 0; !code && i < d->count; i++)
        query[i] = d->query[i];
    tensor *masks = code ? NULL : sam3_masks(r, net, im, g, query, d->count);
    if (!code && !(code = run_status(r, err))) {
        size_t bytes = sizeof(float) * (size_t)tensor_count(masks);
        if ((d->masks = malloc(bytes)) != NULL)
            memcpy(d->masks, masks->data, bytes);
        else
            code = fail(err, SAMITE_RESOURCE, "not enough memory for %d masks", d->count);
    }
    free(query);
    return code;
}

/* No object twice; then scores and boxes of what is left. */
static int choose(detections *d, int64_t pixels, const track_options *o, samite_error *err)
{
    int code = 0;
    if (d->count && o->nms > 0)
        code = drop_doubles(d, pixels, o->nms, err);
    if (!code && o->nms > 0)
        mark_dropped(d);
    for (int i = 0; i < d->count && !code; i++) {
        d->scores[i] = sigmoid(d->logits[d->query[i]]);
        memcpy(d->boxes + 4 * i, d->corners + 4 * d->query[i], 4 * sizeof(float));
    }
    return code;
}

static int find(detections *d, run *r, const sam3 *net, const encoded_image *im, tensor *words, const examples *x,
                const track_options *o, samite_error *err)
{
    grounded g;
    examples none = {0};
    sam3_ground(r, net, im, words, NULL, x ? x : &none, &g);
    int code = run_status(r, err);
    if (code)
        return code;
    if (!make(d, (int)g.found.logits->dim[1]))
        return fail(err, SAMITE_RESOURCE, "not enough memory for detections");
    read_queries(d, g.found.logits->data, g.found.boxes->data, g.found.presence->data[0], o->score);
    int64_t side = im->level[0]->dim[1];
    if (d->count)
        code = read_masks(d, r, net, im, &g, err);
    return code ? code : choose(d, side * side, o, err);
}

int detect(detections *out, run *r, const sam3 *net, const encoded_image *im, tensor *words, const examples *x,
           const track_options *o, samite_error *err)
{
    *out = (detections){0};
    run_point before = run_save(r);
    int code = find(out, r, net, im, words, x, o, err);
    run_restore(r, before);
    if (code)
        detections_free(out);
    return code;
}

static int find_elsewhere(detections *d, const grounded_elsewhere *g, int64_t pixels, const track_options *o,
                          samite_error *err)
{
    size_t each = sizeof(float) * (size_t)pixels;
    if (!make(d, g->queries))
        return fail(err, SAMITE_RESOURCE, "not enough memory for detections");
    read_queries(d, g->logits, g->boxes, g->presence, o->score);
    if (d->count && !(d->masks = malloc(each * (size_t)d->count)))
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d masks", d->count);
    for (int i = 0; i < d->count; i++)
        memcpy(d->masks + i * pixels, g->masks + d->query[i] * pixels, each);
    return choose(d, pixels, o, err);
}

int detect_elsewhere(detections *out, const elsewhere *e, int64_t pixels, const float *words, int tokens,
                     const examples *x, const track_options *o, samite_error *err)
{
    grounded_elsewhere g;
    *out = (detections){0};
    int code = e->ground(e->user, words, tokens, x, &g, err);
    if (!code)
        code = find_elsewhere(out, &g, pixels, o, err);
    if (code)
        detections_free(out);
    return code;
}
