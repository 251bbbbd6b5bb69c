/* attention.c - reference: attention one query at a time, forward and backward. */
#include "kernels/attention_layout.h"
#include "kernels/ref/ref.h"

#include <math.h>

enum { MAX_DIM = 256 };

/* Turns the pairs of x by the angles of `row`; backward turns them back. */
static void rotate(double *x, const attention_args *a, int64_t row, bool back)
{
    const float *t = a->rope + row % a->rope_rows * a->dim;

    for (int64_t i = 0; i < a->dim; i += 2) {
        double c = t[i], s = back ? -t[i + 1] : t[i + 1], even = x[i], odd = x[i + 1];
        x[i] = even * c - odd * s;
        x[i + 1] = even * s + odd * c;
    }
}

static void load_query(double *q, const attention_args *a, int64_t b, int64_t h, int64_t i)
{
    const float *row = a->q + b * a->q_batch + i * a->q_stride + h * a->dim;

    for (int64_t d = 0; d < a->dim; d++)
        q[d] = row[d];
    if (a->rope)
        rotate(q, a, i, false);
}

static void load_key(double *k, const attention_args *a, int64_t b, int64_t h, int64_t j)
{
    const float *row = a->k + b * a->k_batch + j * a->k_stride + h * a->dim;

    for (int64_t d = 0; d < a->dim; d++)
        k[d] = row[d];
    if (a->rope && j < a->rope_keys)
        rotate(k, a, j, false);
}

static bool hidden(const attention_args *a, int64_t b, int64_t i, int64_t j)
{
    return (a->causal && j > i) || (a->key_mask && a->key_mask[b * a->nk + j] != 0);
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;

    for (int64_t d = 0; d < n; d++)
        sum += x[d] * y[d];
    return sum;
}

static double score(const attention_args *a, const double *q, const double *k, int64_t b, int64_t h, int64_t i,
                    int64_t j)
{
    double s = a->scale * dot(q, k, a->dim);

    if (a->bias_x) {
        s += a->bias_x[((b * a->nq + i) * a->grid_w + j % a->grid_w) * a->heads + h];
        s += a->bias_y[((b * a->nq + i) * a->grid_h + j / a->grid_w) * a->heads + h];
    }
    return s;
}

static void attend_row(const attention_args *a, int64_t b, int64_t h, int64_t i)
{
    double q[MAX_DIM], k[MAX_DIM], o[MAX_DIM] = {0}, top = -INFINITY, sum = 0;
    int64_t dim = attention_value_dim(a);
    float *y = a->y + b * a->y_batch + i * a->y_stride + h * dim;

    load_query(q, a, b, h, i);
    for (int64_t j = 0; j < a->nk; j++) {
        const float *v = a->v + b * a->v_batch + j * a->v_stride + h * dim;
        double s, shrink, p;
        if (hidden(a, b, i, j))
            continue;
        load_key(k, a, b, h, j);
        s = score(a, q, k, b, h, i, j);
        if (s == -INFINITY)
            continue;
        shrink = s > top ? exp(top - s) : 1;
        top = s > top ? s : top;
        p = exp(s - top);
        sum = sum * shrink + p;
        for (int64_t d = 0; d < dim; d++)
            o[d] = o[d] * shrink + p * v[d];
    }
    for (int64_t d = 0; d < dim; d++)
        y[d] = sum == 0 ? 0 : (float)(o[d] / sum);
    if (a->lse)
        a->lse[(b * a->heads + h) * a->nq + i] = sum == 0 ? -INFINITY : (float)(top + log(sum));
}

void ref_attention(const attention_args *a)
{
#pragma omp parallel for schedule(dynamic, 16)
    for (int64_t item = 0; item < a->batch * a->heads * a->nq; item++) {
        int64_t i = item % a->nq, bh = item / a->nq;
        attend_row(a, bh / a->heads, bh % a->heads, i);
    }
}

/* What one (query, key) pair needs: p, the softmax weight, and ds, the gradient of the score. */
typedef struct pair { double q[MAX_DIM], k[MAX_DIM], p, ds; } pair;

static void pair_set(pair *w, const attention_args *a, const attention_grads *g, int64_t b, int64_t h, int64_t i,
                     int64_t j)
{
    const float *dy = g->dy + b * a->y_batch + i * a->y_stride + h * a->dim;
    const float *y = g->y + b * a->y_batch + i * a->y_stride + h * a->dim;
    const float *v = a->v + b * a->v_batch + j * a->v_stride + h * a->dim;
    double lse = g->lse[(b * a->heads + h) * a->nq + i], dp = 0;

    w->p = w->ds = 0;
    if (hidden(a, b, i, j) || lse == -INFINITY)
        return;
    load_query(w->q, a, b, h, i);
    load_key(w->k, a, b, h, j);
    w->p = exp(score(a, w->q, w->k, b, h, i, j) - lse);
    for (int64_t d = 0; d < a->dim; d++)
        dp += (double)dy[d] * v[d] - (double)dy[d] * y[d];
    w->ds = w->p * dp;
}

static void query_gradient(const attention_args *a, const attention_grads *g, int64_t b, int64_t h, int64_t i)
{
    double dq[MAX_DIM] = {0};
    pair w;

    for (int64_t j = 0; j < a->nk; j++) {
        pair_set(&w, a, g, b, h, i, j);
        for (int64_t d = 0; d < a->dim && w.ds != 0; d++)
            dq[d] += a->scale * w.ds * w.k[d];
    }
    if (a->rope)
        rotate(dq, a, i, true);
    for (int64_t d = 0; d < a->dim; d++)
        g->dq[b * a->q_batch + i * a->q_stride + h * a->dim + d] += (float)dq[d];
}

/* Sums ds over the keys of one grid column (x) or row (y). */
static void bias_gradient(const attention_args *a, const attention_grads *g, int64_t b, int64_t h, int64_t i)
{
    pair w;

    for (int64_t x = 0; x < (g->dbias_x ? a->grid_w : 0); x++) {
        double sum = 0;
        for (int64_t j = x; j < a->nk; j += a->grid_w) {
            pair_set(&w, a, g, b, h, i, j);
            sum += w.ds;
        }
        g->dbias_x[((b * a->nq + i) * a->grid_w + x) * a->heads + h] += (float)sum;
    }
    for (int64_t y = 0; y < (g->dbias_y ? a->grid_h : 0); y++) {
        double sum = 0;
        for (int64_t j = y * a->grid_w; j < (y + 1) * a->grid_w && j < a->nk; j++) {
            pair_set(&w, a, g, b, h, i, j);
            sum += w.ds;
        }
        g->dbias_y[((b * a->nq + i) * a->grid_h + y) * a->heads + h] += (float)sum;
    }
}

static void key_gradient(const attention_args *a, const attention_grads *g, int64_t b, int64_t h, int64_t j)
{
    double dk[MAX_DIM] = {0}, dv[MAX_DIM] = {0};
    pair w;

    for (int64_t i = 0; i < a->nq; i++) {
        const float *dy = g->dy + b * a->y_batch + i * a->y_stride + h * a->dim;
        pair_set(&w, a, g, b, h, i, j);
        for (int64_t d = 0; d < a->dim && w.p != 0; d++) {
            dk[d] += a->scale * w.ds * w.q[d];
            dv[d] += w.p * dy[d];
        }
    }
    if (a->rope && j < a->rope_keys)
        rotate(dk, a, j, true);
    for (int64_t d = 0; d < a->dim; d++) {
        if (g->dk)
            g->dk[b * a->k_batch + j * a->k_stride + h * a->dim + d] += (float)dk[d];
        if (g->dv)
            g->dv[b * a->v_batch + j * a->v_stride + h * a->dim + d] += (float)dv[d];
    }
}

/* Batch items run one after the other, as they may share q, k or v. */
void ref_attention_backward(const attention_args *a, const attention_grads *g)
{
    for (int64_t b = 0; b < a->batch; b++) {
#pragma omp parallel for schedule(dynamic, 4)
        for (int64_t item = 0; item < a->heads * a->nq; item++) {
            if (g->dq)
                query_gradient(a, g, b, item / a->nq, item % a->nq);
            if (g->dbias_x || g->dbias_y)
                bias_gradient(a, g, b, item / a->nq, item % a->nq);
        }
#pragma omp parallel for schedule(dynamic, 4)
        for (int64_t item = 0; item < (g->dk || g->dv ? a->heads * a->nk : 0); item++)
            key_gradient(a, g, b, item / a->nk, item % a->nk);
    }
}
