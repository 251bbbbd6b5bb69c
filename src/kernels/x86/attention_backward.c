/* attention_backward.c - gradients of attention; the weights are computed anew, block by block, from the stored lse.
 *
 * Queries and keys are treated alike: a task takes some rows of one side against all rows of the other. With queries as
 * rows it sums their gradient, with keys as rows those of keys and values, so that no sum is shared by two threads.
 */
#include "kernels/x86/attention_tools.h"

enum {
    BLOCK = 256,            /* columns at a time */
    ROW = BLOCK + 16        /* not a power of two: rows would share cache sets */
};

/* One side of a slice, packed: rows[0] is q or k, turned; rows[1] is dy or v. What is masked or missing is zero. */
typedef struct side {
    int64_t n;
    float *rows[2];         /* [padded n, width] */
    float *panels[2];       /* the same as [panel][dim][PANEL] */
    float *exponent;        /* to be added to the scores: -lse, or -infinity for what is masked or missing */
    float *slope;           /* to be taken from dy v: the sum of dy y of a query, 0 for keys */
} side;

typedef struct slice {
    const attention_args *a;
    const attention_grads *g;
    const backward_layout *l;
    int64_t b, h;
    side queries, keys;
    float *bias, *turned, *dbias;   /* [nq, grid], [grid, queries], [nq, grid] */
} slice;

typedef struct workspace {
    float p[TASK_ROWS * ROW];       /* scores, then weights */
    float ds[TASK_ROWS * ROW];      /* dy v, then the gradient of the scores */
    float out[2][TASK_ROWS * ATTENTION_MAX_DIM];
} __attribute__((aligned(64))) workspace;

static float *side_at(side *s, float *p, int64_t n, int64_t padded, const backward_layout *l, int64_t dim)
{
    s->n = n;
    for (int i = 0; i < 2; i++, p += padded * l->width)
        s->rows[i] = p;
    for (int i = 0; i < 2; i++, p += padded * dim)
        s->panels[i] = p;
    s->exponent = p;
    s->slope = p + padded;
    return p + 2 * padded;
}

static slice slice_at(const attention_args *a, const attention_grads *g, const backward_layout *l, int64_t b, int64_t h,
                      float *p)
{
    slice s = {.a = a, .g = g, .l = l, .b = b, .h = h};

    p = side_at(&s.queries, p, a->nq, l->queries, l, a->dim);
    p = side_at(&s.keys, p, a->nk, l->keys, l, a->dim);
    if (l->grid) {
        s.bias = p;
        s.turned = p + l->bias_floats;
        s.dbias = p + 2 * l->bias_floats;
    }
    return s;
}

static void pack_query(const slice *s, int64_t i)
{
    const attention_args *a = s->a;
    int64_t at = s->b * a->y_batch + i * a->y_stride + s->h * a->dim;
    float lse = s->g->lse[(s->b * a->heads + s->h) * a->nq + i], sum = 0;
    const float *dy = s->g->dy + at, *y = s->g->y + at;

    turn(s->queries.rows[0] + i * s->l->width, a->q + s->b * a->q_batch + i * a->q_stride + s->h * a->dim,
         angles(a, i, a->nq), a->scale * LOG2_E, a->dim);
    memcpy(s->queries.rows[1] + i * s->l->width, dy, (size_t)a->dim * sizeof *dy);
    for (int64_t d = 0; d < a->dim; d++)
        sum += dy[d] * y[d];
    s->queries.exponent[i] = lse == -INFINITY ? -INFINITY : -lse * LOG2_E;
    s->queries.slope[i] = sum;
    for (int64_t x = 0; x < s->l->grid; x++) {
        bool across = x < a->grid_w;
        const float *bias = across ? a->bias_x : a->bias_y;
        int64_t each = across ? a->grid_w : a->grid_h, column = across ? x : x - a->grid_w;
        float value = bias[((s->b * a->nq + i) * each + column) * a->heads + s->h] * LOG2_E;
        s->bias[i * s->l->grid + x] = value;
        s->turned[x * s->l->queries + i] = value;
        s->dbias[i * s->l->grid + x] = 0;
    }
}

static void pack_key(const slice *s, int64_t j)
{
    const attention_args *a = s->a;
    const float *k = a->k + s->b * a->k_batch + j * a->k_stride + s->h * a->dim;
    const float *v = a->v + s->b * a->v_batch + j * a->v_stride + s->h * a->dim;

    turn(s->keys.rows[0] + j * s->l->width, k, angles(a, j, a->rope_keys), 1, a->dim);
    memcpy(s->keys.rows[1] + j * s->l->width, v, (size_t)a->dim * sizeof *v);
    s->keys.exponent[j] = s->keys.slope[j] = 0;
}

/* Makes one panel of a side: rows first, then the same turned. */
static void pack_panel(const slice *s, const side *t, int64_t first)
{
    int64_t width = s->l->width, dim = s->a->dim;
    bool query = t == &s->queries;
    const float *mask = query || !s->a->key_mask ? NULL : s->a->key_mask + s->b * s->a->nk;

    for (int64_t r = first; r < first + PANEL; r++) {
        for (int i = 0; i < 2; i++)
            memset(t->rows[i] + r * width, 0, (size_t)width * sizeof(float));
        t->exponent[r] = -INFINITY;
        t->slope[r] = 0;
        if (r < t->n && query)
            pack_query(s, r);
        else if (r < t->n && !(mask && mask[r] != 0))
            pack_key(s, r);
        for (int64_t x = 0; query && r >= t->n && x < s->l->grid; x++)
            s->turned[x * s->l->queries + r] = 0;
    }
    for (int i = 0; i < 2; i++)
        for (int64_t r = 0; r < PANEL; r += 8)
            for (int64_t d = 0; d < dim; d += 8)
                transpose8(t->panels[i] + first * dim + d * PANEL + r, PANEL, t->rows[i] + (first + r) * width + d,
                           width);
}

/* Adds the bias to the scores of one key with queries first..first+n-1. */
static void add_turned_bias(float *p, const slice *s, int64_t key, int64_t first, int64_t n)
{
    const float *x = s->turned + key % s->a->grid_w * s->l->queries + first;
    const float *y = s->turned + (s->a->grid_w + key / s->a->grid_w) * s->l->queries + first;

    for (int64_t i = 0; i < n; i += VL)
        v_store(p + i, v_add(v_load(p + i), v_add(v_load(x + i), v_load(y + i))));
}

/* Adds the gradients of one query's scores with keys first..first+n-1 to those of its bias. */
static void add_bias_gradient(const slice *s, int64_t query, const float *ds, int64_t first, int64_t n)
{
    int64_t width = s->a->grid_w;
    float *x = s->dbias + query * s->l->grid, *y = x + width;

    for (int64_t j = 0; j < n;) {
        int64_t column = (first + j) % width, run = least(width - column, n - j);
        float sum = 0;
        for (int64_t i = 0; i < run; i++) {
            x[column + i] += ds[j + i];
            sum += ds[j + i];
        }
        y[(first + j) / width] += sum;
        j += run;
    }
}

/* Scores and dy v of one block become weights and gradients of the scores. */
static void block_weights(workspace *w, const slice *s, const side *rows, const side *cols, int64_t first,
                          int64_t count, int64_t at, int64_t n)
{
    bool query = rows == &s->queries;
    int64_t end = (n + VL - 1) / VL * VL;

    for (int64_t r = 0; r < count; r++) {
        float *p = w->p + r * ROW, *ds = w->ds + r * ROW;
        vec exponent = v_set(rows->exponent[first + r]), slope = v_set(rows->slope[first + r]);
        if (s->bias && query)
            add_bias(p, s->bias + (first + r) * s->l->grid, s->a, at, n);
        else if (s->bias)
            add_turned_bias(p, s, first + r, at, end);
        for (int64_t c = 0; c < n; c += VL) {
            vec e = v_add(v_load(p + c), v_add(exponent, v_load(cols->exponent + at + c))), weight = v_exp2_weight(e);
            vec change = v_sub(v_load(ds + c), v_add(slope, v_load(cols->slope + at + c)));
            v_store(p + c, weight);
            v_store(ds + c, v_mul(weight, change));
        }
        for (int64_t c = 0; s->a->causal && c < end; c++)
            if (query ? at + c > first + r : at + c < first + r)
                p[c] = ds[c] = 0;
        if (s->bias && query)
            add_bias_gradient(s, first + r, ds, at, n);
    }
}

/* out += weights x rows of the other side */
static void add_product(float *out, const float *weights, const float *rows, const slice *s, int64_t padded, int64_t n)
{
    static const float keep[TILE_ROWS] = {1, 1, 1, 1, 1, 1};
    int64_t width = s->l->width, vecs = (s->a->dim + VL - 1) / VL;

    for (int64_t c = 0; c < vecs; c += TILE_VECS)
        for (int64_t r = 0; r < padded; r += TILE_ROWS)
            tile(least(TILE_VECS, vecs - c), out + r * width + c * VL, width, weights + r * ROW, ROW, rows + c * VL,
                 width, n, keep, NULL);
}

/* Adds the sums of some queries to dq, dbias_x and dbias_y. */
static void store_queries(const workspace *w, const slice *s, int64_t first, int64_t count)
{
    const attention_args *a = s->a;
    const attention_grads *g = s->g;

    for (int64_t i = first; i < first + count; i++) {
        const float *dbias = s->dbias + i * s->l->grid;
        if (g->dq)
            turn_back(g->dq + s->b * a->q_batch + i * a->q_stride + s->h * a->dim,
                      w->out[0] + (i - first) * s->l->width, angles(a, i, a->nq), a->scale, a->dim);
        for (int64_t x = 0; g->dbias_x && s->bias && x < a->grid_w; x++)
            g->dbias_x[((s->b * a->nq + i) * a->grid_w + x) * a->heads + s->h] += dbias[x];
        for (int64_t y = 0; g->dbias_y && s->bias && y < a->grid_h; y++)
            g->dbias_y[((s->b * a->nq + i) * a->grid_h + y) * a->heads + s->h] += dbias[a->grid_w + y];
    }
}

/* Adds the sums of some keys to dk and dv. The packed queries contain scale and log2 e: only the latter must go. */
static void store_keys(const workspace *w, const slice *s, int64_t first, int64_t count)
{
    const attention_args *a = s->a;
    const attention_grads *g = s->g;

    for (int64_t j = first; j < first + count; j++) {
        int64_t from = (j - first) * s->l->width;
        if (g->dk)
            turn_back(g->dk + s->b * a->k_batch + j * a->k_stride + s->h * a->dim, w->out[0] + from,
                      angles(a, j, a->rope_keys), LN_2, a->dim);
        if (g->dv)
            turn_back(g->dv + s->b * a->v_batch + j * a->v_stride + s->h * a->dim, w->out[1] + from, NULL, 1, a->dim);
    }
}

/* One task: rows first..first+count-1 of one side against the other side. */
static void propagate(const slice *s, const side *rows, const side *cols, int64_t first, int64_t count)
{
    int64_t padded = (count + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS, dim = s->a->dim, width = s->l->width;
    bool query = rows == &s->queries;
    workspace w;

    for (int i = 0; i < 2; i++)
        memset(w.out[i], 0, (size_t)(padded * width) * sizeof(float));
    for (int64_t at = 0; at < cols->n; at += BLOCK) {
        int64_t n = least(BLOCK, cols->n - at);
        if (s->a->causal && (query ? at >= first + count : at + n <= first))
            continue;
        for (int64_t c = 0; c < n; c += PANEL)
            for (int64_t r = 0; r < padded; r += TILE_ROWS) {
                int64_t vecs = (least(PANEL, n - c) + VL - 1) / VL;
                tile(vecs, w.p + r * ROW + c, ROW, rows->rows[0] + (first + r) * width, width,
                     cols->panels[0] + (at + c) * dim, PANEL, dim, NULL, NULL);
                tile(vecs, w.ds + r * ROW + c, ROW, rows->rows[1] + (first + r) * width, width,
                     cols->panels[1] + (at + c) * dim, PANEL, dim, NULL, NULL);
            }
        block_weights(&w, s, rows, cols, first, count, at, n);
        add_product(w.out[0], w.ds, cols->rows[0] + at * width, s, padded, n);
        if (!query)
            add_product(w.out[1], w.p, cols->rows[1] + at * width, s, padded, n);
    }
    if (query)
        store_queries(&w, s, first, count);
    else
        store_keys(&w, s, first, count);
}

/* Some heads of one batch item. */
static void wave_backward(const attention_args *a, const attention_grads *g, const backward_layout *l, int64_t b,
                          int64_t h, int64_t heads)
{
    float *scratch = g->scratch;
    int64_t panels = (l->queries + l->keys) / PANEL, query_panels = l->queries / PANEL;
    int64_t q_rows = task_rows(a->nq), q_tasks = (a->nq + q_rows - 1) / q_rows;
    int64_t k_rows = task_rows(a->nk), k_tasks = (a->nk + k_rows - 1) / k_rows;

#pragma omp parallel for schedule(static)
    for (int64_t item = 0; item < heads * panels; item++) {
        slice s = slice_at(a, g, l, b, h + item / panels, scratch + item / panels * l->slice_floats);
        int64_t panel = item % panels;
        if (panel < query_panels)
            pack_panel(&s, &s.queries, panel * PANEL);
        else
            pack_panel(&s, &s.keys, (panel - query_panels) * PANEL);
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t item = 0; item < (g->dq || g->dbias_x || g->dbias_y ? heads * q_tasks : 0); item++) {
        slice s = slice_at(a, g, l, b, h + item / q_tasks, scratch + item / q_tasks * l->slice_floats);
        int64_t first = item % q_tasks * q_rows;
        propagate(&s, &s.queries, &s.keys, first, least(q_rows, a->nq - first));
    }
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t item = 0; item < (g->dk || g->dv ? heads * k_tasks : 0); item++) {
        slice s = slice_at(a, g, l, b, h + item / k_tasks, scratch + item / k_tasks * l->slice_floats);
        int64_t first = item % k_tasks * k_rows;
        propagate(&s, &s.keys, &s.queries, first, least(k_rows, a->nk - first));
    }
}

/* Batch items run one after the other, as they may share q, k or v. */
void LEVEL(attention_backward)(const attention_args *a, const attention_grads *g)
{
    backward_layout l = backward_layout_of(a);

    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h += l.wave)
            wave_backward(a, g, &l, b, h, least(l.wave, a->heads - h));
}
