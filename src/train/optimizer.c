/* optimizer.c - AdamW over the registry, with the parameter groups of the official fine-tuning. */
#include "train/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

const learn_rates official_rates = {8e-5, 2.5e-5, 5e-6, 0.1, 0.9, 20, 20, 20, 0.9, 0.999, 1e-8, 0.1, 0};

#define VISION   "detector.backbone.vision_backbone."
#define TRUNK    VISION "trunk."
#define LANGUAGE "detector.backbone.language_backbone."

double schedule_factor(const learn_rates *r, int64_t step, double where)
{
    double s = (double)step, total = where > 0 ? s / where : 1, factor = 1;
    if (r->warmup < s)
        factor /= sqrt((s + r->timescale - r->warmup) / r->timescale);
    if (r->warmup > 0)
        factor *= fmin(1, s / r->warmup);
    if (r->cooldown > 0)
        factor *= fmin(1, (total - s) / r->cooldown);
    return factor;
}

/* Layers of the trunk learn slower the nearer they are to its input; the position table does not. */
static double layer_factor(const char *name, double decay, int depth)
{
    const char *inner = name + strlen(TRUNK);
    if (!starts_with(name, TRUNK) || strstr(inner, "pos_embed"))
        return 1;
    int id = starts_with(inner, "blocks.") ? atoi(inner + strlen("blocks.")) + 1 : 0;
    return pow(decay, depth + 1 - id);
}

static double base_rate(const char *name, const learn_rates *r, int depth)
{
    double rate = starts_with(name, VISION) ? r->vision : starts_with(name, LANGUAGE) ? r->language : r->rest;
    return rate * layer_factor(name, r->layer_decay, depth);
}

/* Biases and LayerNorm do not decay; the GroupNorm of the pixel decoder does. */
static bool decays(const entry *e)
{
    const char *name = e->p.name;
    bool gain = e->p.t.axes == 1 && ends_with(name, ".weight");
    return !strstr(name, "bias") && (!gain || strstr(name, "pixel_decoder.norms"));
}

/* Tensors that no loss reaches: levels of the neck and layers that are not used, and without masks what only they need.
 */
static bool reached(const entry *e, bool masks)
{
    const char *name = e->p.name;
    if (e->unused)
        return e->part == PART_GEOMETRY;
    return masks || (e->part != PART_MASK_HEAD && !strstr(name, "convs.0.") && !strstr(name, "convs.1."));
}

/* `values` are taken over; NULL: the tensor has its own already. */
static int make_learner(learner *l, const native *n, entry *e, const optimizer *o, bool masks, float *values,
                        samite_error *err)
{
    size_t bytes = sizeof(float) * (size_t)tensor_count(&e->p.t);
    *l = (learner){.e = e,
                   .touched = reached(e, masks),
                   .base_rate = base_rate(e->p.name, &o->rates, n->net->c.vit_depth),
                   .decay = decays(e) ? o->rates.weight_decay : 0};
    l->m = calloc(1, bytes + 1);
    l->v = calloc(1, bytes + 1);
    bool average = o->rates.average > 0 && l->touched;
    l->mean = average ? calloc(1, bytes + 1) : NULL;
    float *grad = calloc(1, bytes + 1);
    if (!l->m || !l->v || (average && !l->mean) || !grad) {
        free(values);
        free(grad);
        return fail(err, SAMITE_RESOURCE, "not enough memory to train %s", e->p.name);
    }
    if (values) {
        if (e->p.owned)
            free(e->p.t.data);
        e->p.t.data = values;
    }
    free(e->p.t.grad);
    e->p.t.grad = grad;
    e->p.owned = e->p.trainable = true;
    return 0;
}

int optimizer_add(optimizer *o, native *n, entry *e, samite_error *err)
{
    if (o->count == o->room) {
        int room = 2 * o->room + 64;
        learner *more = realloc(o->item, sizeof *more * (size_t)room);
        if (!more)
            return fail(err, SAMITE_RESOURCE, "not enough memory to train %s", e->p.name);
        o->item = more;
        o->room = room;
    }
    return make_learner(&o->item[o->count++], n, e, o, true, NULL, err);
}

int optimizer_add_aside(optimizer *o, native *n, entry *e, samite_error *err)
{
    int code = optimizer_add(o, n, e, err);
    if (!code) {
        learner *l = &o->item[o->count - 1];
        l->aside = true;
        free(l->mean);
        l->mean = NULL;
    }
    return code;
}

int optimizer_open(optimizer *o, native *n, unsigned parts, bool masks, const learn_rates *rates, samite_error *err)
{
    registry *g = &n->net->all;
    *o = (optimizer){.rates = *rates, .item = calloc(g->count + 1, sizeof *o->item), .room = (int)g->count + 1};
    if (!o->item)
        return fail(err, SAMITE_RESOURCE, "not enough memory to train %zu tensors", g->count);
    for (size_t i = 0; i < g->count; i++) {
        entry *e = g->entries[i];
        if (!(parts >> e->part & 1) || e->missing)
            continue;
        float *values = native_values(n, e);
        int code = values ? make_learner(&o->item[o->count++], n, e, o, masks, values, err)
                          : fail(err, SAMITE_RESOURCE, "not enough memory to train %s", e->p.name);
        if (code) {
            optimizer_close(o);
            return code;
        }
    }
    return 0;
}

void optimizer_close(optimizer *o)
{
    for (int i = 0; i < o->count; i++) {
        param *p = &o->item[i].e->p;
        free(p->t.grad);
        p->t.grad = NULL;
        p->trainable = false;
        free(o->item[i].m);
        free(o->item[i].v);
        free(o->item[i].mean);
    }
    free(o->item);
    *o = (optimizer){0};
}

/* Tensors are walked in pieces. Most rows of the token table never get a gradient: what holds only zeros is read but not
 * written, so that it needs no memory. */
enum { PIECE = 4096 };

static int64_t piece_at(int64_t i, int64_t n)
{
    return n - i < PIECE ? n - i : PIECE;
}

static bool all_zero(const float *x, int64_t n)
{
    const uint32_t *bits = (const uint32_t *)(const void *)x;
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++)
        any |= bits[i];
    return !any;
}

static void clear(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += PIECE)
        if (!all_zero(x + i, piece_at(i, n)))
            memset(x + i, 0, sizeof *x * (size_t)piece_at(i, n));
}

void optimizer_zero(optimizer *o)
{
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < o->count; i++)
        clear(o->item[i].e->p.t.grad, tensor_count(&o->item[i].e->p.t));
}

/* What a tensor's rate is called: the part, and in the trunk the block. */
static const char *group_name(const char *name)
{
    return starts_with(name, TRUNK)      ? "trunk"
           : starts_with(name, VISION)   ? "neck"
           : starts_with(name, LANGUAGE) ? "text"
                                         : "rest";
}

int optimizer_groups(const optimizer *o, rate_group *out, int room)
{
    int n = 0;
    for (int i = 0; i < o->count; i++) {
        rate_group g = {group_name(o->item[i].e->p.name), o->item[i].base_rate};
        int k = 0;
        while (k < n && (out[k].rate != g.rate || strcmp(out[k].name, g.name) != 0))
            k++;
        if (k == n && n < room)
            out[n++] = g;
    }
    return n;
}

static double squares(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

double optimizer_norm(const optimizer *o)
{
    double *part = malloc(sizeof *part * (size_t)(o->count + 1)), sum = 0;
    if (!part)
        return NAN;
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < o->count; i++)
        part[i] = o->item[i].touched ? squares(o->item[i].e->p.t.grad, tensor_count(&o->item[i].e->p.t)) : 0;
    for (int i = 0; i < o->count; i++)
        sum += part[i];
    free(part);
    return sqrt(sum);
}

/* What a step of one tensor multiplies by. */
typedef struct step_by { float keep, b1, b2, fresh, step, root, eps, clip; } step_by;

static void step_piece(float *p, const float *g, float *m, float *v, const step_by *by, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float d = g[i] * by->clip;
        m[i] += by->b1 * (d - m[i]);
        v[i] = by->b2 * v[i] + by->fresh * d * d;
        p[i] = p[i] * by->keep - by->step * (m[i] / (sqrtf(v[i]) / by->root + by->eps));
    }
}

static void step_one(learner *l, const learn_rates *r, float clip, double factor)
{
    l->steps++;
    double rate = l->base_rate * factor, first = 1 - pow(r->beta1, (double)l->steps),
           second = 1 - pow(r->beta2, (double)l->steps);
    step_by by = {(float)(1 - rate * l->decay), (float)(1 - r->beta1), (float)r->beta2, (float)(1 - r->beta2),
                  (float)(rate / first), (float)sqrt(second), (float)r->eps, clip};
    float *p = l->e->p.t.data, *g = l->e->p.t.grad, *m = l->m, *v = l->v;
    int64_t n = tensor_count(&l->e->p.t);
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t count = piece_at(i, n);
        if (!all_zero(g + i, count) || !all_zero(m + i, count) || !all_zero(v + i, count))
            step_piece(p + i, g + i, m + i, v + i, &by, count);
        else
            for (int64_t k = i; k < i + count; k++)
                p[k] *= by.keep;
    }
}

/* Early on the mean forgets fast, so that it does not hang on where training began. */
static void follow(learner *l, double decay)
{
    const float *p = l->e->p.t.data;
    double n = (double)l->steps - 1;
    float part = (float)(n > 0 ? 1 - fmin(decay, (1 + n) / (10 + n)) : 1);
    for (int64_t i = 0, count = tensor_count(&l->e->p.t); i < count; i++)
        l->mean[i] += part * (p[i] - l->mean[i]);
}

void optimizer_exchange_means(optimizer *o)
{
    for (int i = 0; i < o->count; i++) {
        learner *l = &o->item[i];
        float *values = l->e->p.t.data;
        if (!l->mean || !l->steps)
            continue;
        l->e->p.t.data = l->mean;
        l->mean = values;
    }
}

void optimizer_step(optimizer *o, double norm, double factor)
{
    float clip = o->rates.clip > 0 ? (float)fmin(1, o->rates.clip / (norm + 1e-6)) : 1;
    #pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < o->count; i++)
        if (o->item[i].touched) {
            step_one(&o->item[i], &o->rates, clip, factor);
            if (o->item[i].mean)
                follow(&o->item[i], o->rates.average);
        }
}
