/* drop.c - numbers, branches and attention weights left out at random while learning. */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "ops/run_state.h"

/* A new sequence for the op at hand; `first` counts rows of axis 0. */
static drop_attributes draw(run *r, float rate, int64_t first, int64_t group)
{
    return (drop_attributes){random_next(r->drop.seed, r->drops++), rate, first, group};
}

static bool is_dropped(uint64_t bits, float rate)
{
    return (float)(bits >> 40) * 0x1p-24f < rate;
}

/* y = x times what was drawn, added to y when asked. Every `row` numbers are a row, every `group` share a fate. */
static void apply(float *y, const float *x, const drop_attributes *a, int64_t count, int64_t row, bool add)
{
    float keep = 1 / (1 - a->rate);
#pragma omp parallel for schedule(static)
    for (int64_t unit = 0; unit < count / a->group; unit++) {
        int64_t at = unit * a->group;
        uint64_t key = random_next(a->key, (uint64_t)(a->first + at / row));
        float by = is_dropped(random_next(key, (uint64_t)(at % row / a->group)), a->rate) ? 0 : keep;
        for (int64_t i = at; i < at + a->group; i++)
            y[i] = add ? y[i] + by * x[i] : by * x[i];
    }
}

static int64_t row_length(const tensor *x, const drop_attributes *a)
{
    int64_t row = x->dim[0] > 0 ? tensor_count(x) / x->dim[0] : 1;
    return row > a->group ? row : a->group;
}

static void drop_backward(run *r, const op_node *n)
{
    const drop_attributes *a = n->attributes;
    float *dx = op_grad(r, n->in[0]);
    if (dx)
        apply(dx, n->out->grad, a, tensor_count(n->out), row_length(n->out, a), true);
}

static const op_info drop_op = {"drop", drop_backward, false};

static tensor *drop_units(run *r, tensor *x, const drop_attributes *a)
{
    op_call c = {.op = &drop_op, .in = {x}, .inputs = 1, .attributes = a, .attribute_bytes = sizeof *a};
    if (!op_begin(r, &c))
        return run_bad(r);
    if (!is_contiguous(x) || a->group < 1 || tensor_count(x) % a->group)
        return op_mismatch(r, &c, x, NULL, "wants no gaps, and branches of equal size");
    tensor *y = op_output_like(r, &c, x);
    c.flops = (double)tensor_count(x);
    if (op_computes(r, y))
        apply(y->data, x->data, a, tensor_count(x), row_length(x, a), false);
    return op_finish(r, &c, y);
}

tensor *drop(run *r, tensor *x)
{
    if (!(run_drop_rate(r) > 0))
        return x;
    drop_attributes a = draw(r, run_drop_rate(r), r->drop.first, 1);
    return drop_units(r, x, &a);
}

tensor *drop_path(run *r, tensor *x, float rate, int64_t branches)
{
    if (!(rate > 0) || run_mode_of(r) == RUN)
        return x;
    drop_attributes a = draw(r, rate, 0, branches > 0 ? tensor_count(x) / branches : 0);
    return drop_units(r, x, &a);
}

/* ---- attention: one head of one item, some queries at a time ---- */

enum { QUERIES = 256 };

typedef struct piece {
    const tensor *q, *k, *v, *mask, *bx, *by;
    const attention_drop_attributes *a;
    int64_t b, h, dim, nk, first, count;     /* queries first .. first + count */
    float *p, *d;                            /* [count, nk] weights; the same after dropping, later gradients */
} piece;

static const float *rows_at(const tensor *t, int64_t b, int64_t row, int64_t h, int64_t dim)
{
    return t->data + ((t->dim[0] == 1 ? 0 : b) * t->dim[1] + row) * t->stride + h * dim;
}

static int64_t bias_at(const tensor *t, const piece *w, int64_t i, int64_t at)
{
    return ((w->b * t->dim[1] + w->first + i) * t->dim[2] + at) * t->dim[3] + w->h;
}

/* Row i of the scores gains its bias, and loses what is masked. */
static void adjust_row(float *p, const piece *w, int64_t i)
{
    for (int64_t j = 0; w->bx && j < w->nk; j++)
        p[j] += w->bx->data[bias_at(w->bx, w, i, j % w->bx->dim[2])] +
                w->by->data[bias_at(w->by, w, i, j / w->bx->dim[2])];
    for (int64_t j = 0; w->mask && j < w->nk; j++)
        if (w->mask->data[w->b * w->nk + j] != 0)
            p[j] = -INFINITY;
}

enum { FATES = 4, FATE_BITS = 16 };       /* of 16 bits each, from one random number */

/* out = in where a weight stays, enlarged; else 0. The fate hangs on item, head, query and key. */
static void drop_row(float *out, const float *in, const piece *w, int64_t i)
{
    const drop_attributes *a = &w->a->drop;
    uint64_t key = random_next(a->key, (uint64_t)(a->first + w->b));
    key = random_next(key, (uint64_t)(w->h * w->q->dim[1] + w->first + i));
    uint32_t limit = (uint32_t)(a->rate * (1 << FATE_BITS));
    float by[2] = {0, 1 / (1 - (float)limit / (1 << FATE_BITS))};
    for (int64_t j = 0; j < w->nk; j += FATES) {
        uint64_t bits = random_next(key, (uint64_t)(j / FATES));
        int64_t n = w->nk - j < FATES ? w->nk - j : FATES;
        for (int64_t k = 0; k < n; k++, bits >>= FATE_BITS)
            out[j + k] = by[(bits & ((1 << FATE_BITS) - 1)) >= limit] * in[j + k];
    }
}

/* p and, from it, d. */
static bool weights_of(const piece *w)
{
    if (!gemm(false, true, w->count, w->nk, w->dim, w->a->attention.scale, rows_at(w->q, w->b, w->first, w->h, w->dim),
              w->q->stride, rows_at(w->k, w->b, 0, w->h, w->dim), w->k->stride, 0, w->p, w->nk))
        return false;
#pragma omp parallel for schedule(static) if (w->bx || w->mask)
    for (int64_t i = 0; i < w->count; i++)
        adjust_row(w->p + i * w->nk, w, i);
    kernels_get()->softmax(w->p, w->p, w->count, w->nk);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < w->count; i++)
        drop_row(w->d + i * w->nk, w->p + i * w->nk, w, i);
    return true;
}

/* In parts that the compiler adds up side by side. */
static float dot(const float *a, const float *b, int64_t n)
{
    enum { PARTS = 16 };
    float part[PARTS] = {0}, sum = 0;
    int64_t j = 0;
    for (; j + PARTS <= n; j += PARTS)
        for (int k = 0; k < PARTS; k++)
            part[k] += a[j + k] * b[j + k];
    for (; j < n; j++)
        sum += a[j] * b[j];
    for (int k = 0; k < PARTS; k++)
        sum += part[k];
    return sum;
}

/* d holds the gradient of the dropped weights; then that of the scores. */
static void score_gradients(const piece *w, float *dbx, float *dby)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < w->count; i++) {
        float *d = w->d + i * w->nk;
        const float *p = w->p + i * w->nk;
        drop_row(d, d, w, i);
        float sum = dot(p, d, w->nk);
        for (int64_t j = 0; j < w->nk; j++)
            d[j] = p[j] * (d[j] - sum);
        for (int64_t j = 0; dbx && j < w->nk; j++)
            dbx[bias_at(w->bx, w, i, j % w->bx->dim[2])] += d[j];
        for (int64_t j = 0; dby && j < w->nk; j++)
            dby[bias_at(w->by, w, i, j / w->bx->dim[2])] += d[j];
    }
}

static bool piece_backward(run *r, const op_node *n, const piece *w)
{
    const float *dy = rows_at(n->out, w->b, w->first, w->h, w->dim);
    float *grad[3], *dy_data = n->out->grad;
    bool ok = weights_of(w);
    dy = dy_data + (dy - n->out->data);
    for (int i = 0; i < 3; i++) {
        const tensor *t = n->in[i];
        grad[i] = op_grad(r, n->in[i]);
        if (grad[i])
            grad[i] += rows_at(t, w->b, i ? 0 : w->first, w->h, w->dim) - t->data;
    }
    float *dbx = w->bx ? op_grad(r, n->in[4]) : NULL, *dby = w->by ? op_grad(r, n->in[5]) : NULL;
    int64_t ldy = n->out->stride;
    if (ok && grad[2])
        ok = gemm(true, false, w->nk, w->dim, w->count, 1, w->d, w->nk, dy, ldy, 1, grad[2], w->v->stride);
    ok = ok && gemm(false, true, w->count, w->nk, w->dim, 1, dy, ldy, rows_at(w->v, w->b, 0, w->h, w->dim),
                    w->v->stride, 0, w->d, w->nk);
    if (!ok || !run_ok(r))
        return false;
    score_gradients(w, dbx, dby);
    float scale = w->a->attention.scale;
    if (grad[0])
        ok = gemm(false, false, w->count, w->dim, w->nk, scale, w->d, w->nk, rows_at(w->k, w->b, 0, w->h, w->dim),
                  w->k->stride, 1, grad[0], w->q->stride);
    if (ok && grad[1])
        ok = gemm(true, false, w->nk, w->dim, w->count, scale, w->d, w->nk,
                  rows_at(w->q, w->b, w->first, w->h, w->dim), w->q->stride, 1, grad[1], w->k->stride);
    return ok;
}

/* Every piece in turn: forward into y, or backwards when there is a node. */
static bool each_piece(run *r, const op_node *n, tensor *const *in, const attention_drop_attributes *a, tensor *y)
{
    int64_t nq = in[0]->dim[1], nk = in[1]->dim[1], most = nq < QUERIES ? nq : QUERIES;
    piece w = {in[0], in[1], in[2], in[3], in[4], in[5], a, .dim = in[0]->dim[2] / a->attention.heads, .nk = nk,
               .p = op_scratch_floats(r, most * nk), .d = op_scratch_floats(r, most * nk)};
    bool ok = w.p && w.d;
    for (w.b = 0; ok && w.b < in[0]->dim[0]; w.b++)
        for (w.h = 0; ok && w.h < a->attention.heads; w.h++)
            for (w.first = 0; ok && w.first < nq; w.first += most) {
                w.count = nq - w.first < most ? nq - w.first : most;
                ok = n ? piece_backward(r, n, &w)
                       : weights_of(&w) && gemm(false, false, w.count, w.dim, nk, 1, w.d, nk,
                                                rows_at(w.v, w.b, 0, w.h, w.dim), w.v->stride, 0,
                                                (float *)(uintptr_t)rows_at(y, w.b, w.first, w.h, w.dim), y->stride);
            }
    return ok;
}

static void attention_drop_backward(run *r, const op_node *n)
{
    if (!each_piece(r, n, n->in, n->attributes, n->out))
        run_fail(r, SAMITE_RESOURCE, "backward of attention_drop: not enough memory");
}

static const op_info attention_drop_op = {"attention_drop", attention_drop_backward, false};

tensor *attention_drop(run *r, tensor *q, tensor *k, tensor *v, const attend_options *o)
{
    op_call c = {.op = &attention_drop_op, .in = {q, k, v, o->key_mask, o->bias_x, o->bias_y}, .inputs = 6};
    const tensor *with;

    if (!(run_drop_rate(r) > 0))
        return attention(r, q, k, v, o);
    if (!op_begin(r, &c))
        return run_bad(r);
    const char *rule = o->rope || o->causal ? "drops no weights of attention that is rotated or causal"
                                            : attention_rule(r, c.in, o, &with);
    if (rule)
        return op_mismatch(r, &c, q, o->rope || o->causal ? NULL : with, rule);
    attention_drop_attributes a = {attention_attributes_of(q, k, o), draw(r, run_drop_rate(r), r->drop.first, 1)};
    c.attributes = &a;
    c.attribute_bytes = sizeof a;
    tensor *y = op_output(r, &c, 3, (int64_t[]){q->dim[0], q->dim[1], v->dim[2]});
    c.flops = 4.0 * (double)(q->dim[0] * q->dim[1]) * (double)q->dim[2] * (double)k->dim[1];
    if (op_computes(r, y) && !each_piece(r, NULL, c.in, &a, y))
        return op_engine_failed(r, &c);
    return op_finish(r, &c, y);
}
