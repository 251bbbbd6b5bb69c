/* attention.c - attention in one pass over blocks of keys, with a running softmax; scores never leave the cache. */
#include "kernels/x86/attention_task.h"

/* Its own memory, on the stack of its thread. */
typedef struct workspace {
    float q[TASK_ROWS * ATTENTION_MAX_DIM]; /* turned, times scale and log2 e: softmax is computed with powers of two */
    float s[TASK_ROWS * ROW];                 /* scores, then weights */
    float o[TASK_ROWS * ATTENTION_MAX_DIM];
    float top[TASK_ROWS], sum[TASK_ROWS];       /* per query: largest score so far, sum of the weights relative to it */
    float shrink[TASK_ROWS], part[TASK_ROWS];   /* of one block: what becomes of older sums, and its own sum */
    float tops[TASK_ROWS * VL];               /* the largest scores of the block lane by lane */
} __attribute__((aligned(64))) workspace;

/* Packs one panel of keys, eight at a time; missing ones are zero. */
static void pack_keys(float *to, const attention_args *a, int64_t b, int64_t h, int64_t first)
{
    float rows[8 * ATTENTION_MAX_DIM] __attribute__((aligned(32)));
    const float *k = a->k + b * a->k_batch + h * a->dim;

    for (int64_t j = first; j < first + PANEL; j += 8) {
        for (int64_t i = 0; i < 8; i++) {
            if (j + i < a->nk)
                turn(rows + i * a->dim, k + (j + i) * a->k_stride, angles(a, j + i, a->rope_keys), 1, a->dim);
            else
                memset(rows + i * a->dim, 0, (size_t)a->dim * sizeof *rows);
        }
        for (int64_t d = 0; d < a->dim; d += 8)
            transpose8(to + d * PANEL + j - first, PANEL, rows + d, a->dim);
    }
}

/* Packs the values of one panel of keys. Those of masked keys become zero, whatever they are. */
static void pack_values(float *to, const attention_args *a, const attention_layout *l, int64_t b, int64_t h,
                        int64_t first)
{
    int64_t dim = attention_value_dim(a);

    for (int64_t j = first; j < first + PANEL; j++) {
        float *row = to + (j - first) * l->width;
        bool masked = j >= a->nk || (a->key_mask && a->key_mask[b * a->nk + j] != 0);
        if (!masked)
            memcpy(row, a->v + b * a->v_batch + j * a->v_stride + h * dim, (size_t)dim * sizeof *row);
        memset(row + (masked ? 0 : dim), 0, (size_t)(l->width - (masked ? 0 : dim)) * sizeof *row);
    }
}

static void pack_queries(workspace *w, const task *t)
{
    const attention_args *a = t->a;
    const float *q = a->q + t->b * a->q_batch + t->h * a->dim;

    for (int64_t r = 0; r < t->padded; r++) {
        int64_t i = t->first + r;
        if (r < t->rows)
            turn(w->q + r * a->dim, q + i * a->q_stride, angles(a, i, a->nq), a->scale * LOG2_E, a->dim);
        else
            memset(w->q + r * a->dim, 0, (size_t)a->dim * sizeof *w->q);
        w->top[r] = -INFINITY;
        w->sum[r] = 0;
    }
    memset(w->o, 0, (size_t)(t->padded * t->l->width) * sizeof *w->o);
}

/* Scores of all queries with `count` keys of one panel, stored from column `at` on. */
static void score_panel(workspace *w, const task *t, const float *panel, int64_t at, int64_t count)
{
    int64_t dim = t->a->dim;

    for (int64_t r = 0; r < t->padded; r += TILE_ROWS)
        tile((count + VL - 1) / VL, w->s + r * ROW + at, ROW, w->q + r * dim, dim, panel, PANEL, dim, NULL,
             w->tops + r * VL);
}

/* Turns the scores of one block into weights relative to the largest score so far. */
static void soften(workspace *w, const task *t, int64_t n)
{
    for (int64_t r = 0; r < t->padded; r++) {
        float *s = w->s + r * ROW, top = v_top(v_load(w->tops + r * VL)), old = w->top[r];
        vec shift, sum = v_zero();
        top = top > old ? top : old;
        w->top[r] = top;
        shift = v_set(top == -INFINITY ? 0 : top);
        w->shrink[r] = old - (top == -INFINITY ? 0 : top);
        for (int64_t j = 0; j < n; j += VL) {
            vec p = v_exp2_weight(v_sub(v_load(s + j), shift));
            v_store(s + j, p);
            sum = v_add(sum, p);
        }
        w->part[r] = v_sum(sum);
    }
    for (int64_t r = 0; r < t->padded; r += VL) {
        vec shrink = v_exp2_weight(v_load(w->shrink + r));
        v_store(w->shrink + r, shrink);
        v_store(w->sum + r, v_fma(v_load(w->sum + r), shrink, v_load(w->part + r)));
    }
}

/* Adds the weighted values of one block to the outputs. */
static void gather_values(workspace *w, const task *t, const float *v, int64_t n)
{
    int64_t width = t->l->width, vecs = (attention_value_dim(t->a) + VL - 1) / VL;

    for (int64_t c = 0; c < vecs; c += TILE_VECS)
        for (int64_t r = 0; r < t->padded; r += TILE_ROWS)
            tile(least(TILE_VECS, vecs - c), w->o + r * width + c * VL, width, w->s + r * ROW, ROW, v + c * VL, width,
                 n, w->shrink + r, NULL);
}

static void attend(const task *t)
{
    const attention_args *a = t->a;
    int64_t limit = a->causal ? least(a->nk, t->first + t->rows) : a->nk;
    workspace w;

    pack_queries(&w, t);
    for (int64_t first = 0; first < limit; first += KEYS) {
        int64_t n = least(KEYS, limit - first);
        for (int64_t r = 0; r < t->padded; r++)
            v_store(w.tops + r * VL, v_set(-INFINITY));
        for (int64_t at = 0; at < n; at += PANEL)
            score_panel(&w, t, (const float *)t->keys + (first + at) * a->dim, at, least(PANEL, n - at));
        if (a->causal || a->key_mask || a->bias_x || n % VL)
            for (int64_t r = 0; r < t->rows; r++)
                adjust_row(w.s + r * ROW, w.tops + r * VL, t, t->first + r, first, n);
        soften(&w, t, n);
        gather_values(&w, t, (const float *)t->values + first * t->l->width, n);
    }
    store_outputs(w.o, w.top, w.sum, t);
}

static void pack_wave(const attention_args *a, const attention_layout *l, float *scratch, int64_t slice, int64_t count)
{
    int64_t panels = l->keys / PANEL;

#pragma omp parallel for schedule(static)
    for (int64_t item = 0; item < count * panels; item++) {
        int64_t s = item / panels, b = (slice + s) / a->heads, h = (slice + s) % a->heads,
                first = item % panels * PANEL;
        float *to = scratch + s * l->slice_floats;
        pack_keys(to + first * a->dim, a, b, h, first);
        pack_values(to + l->key_floats + first * l->width, a, l, b, h, first);
        if (a->bias_x) {
            int64_t each = (a->nq + panels - 1) / panels;
            pack_bias(to + l->key_floats + l->value_floats, a, b, h, item % panels * each, each);
        }
    }
}

void LEVEL(attention)(const attention_args *a)
{
    attention_layout l = attention_layout_of(a);
    int64_t rows = task_rows(a->nq), tasks = (a->nq + rows - 1) / rows;

    for (int64_t slice = 0; slice < l.slices; slice += l.wave) {
        int64_t count = least(l.wave, l.slices - slice);
        pack_wave(a, &l, a->scratch, slice, count);
#pragma omp parallel for schedule(dynamic, 1)
        for (int64_t item = 0; item < count * tasks; item++) {
            int64_t s = item / tasks;
            const float *packed = (const float *)a->scratch + s * l.slice_floats;
            task t = {a, &l, (slice + s) / a->heads, (slice + s) % a->heads, item % tasks * rows, 0, 0,
                      packed, packed + l.key_floats, a->bias_x ? packed + l.key_floats + l.value_floats : NULL};
            t.rows = least(rows, a->nq - t.first);
            t.padded = (t.rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
            attend(&t);
        }
    }
}
