/* attention_task.h - what the forward of attention in f32 and in bf16 share: a task, bias, masks, results. */
#ifndef KERNELS_X86_ATTENTION_TASK_H
#define KERNELS_X86_ATTENTION_TASK_H

#include "kernels/x86/attention_tools.h"

enum {
    KEYS = 256,                     /* scores held at a time, per query */
    ROW = KEYS + 16                 /* not a power of two: rows would share cache sets */
};

/* What a task works on: its slice and its first query. */
typedef struct task {
    const attention_args *a;
    const attention_layout *l;
    int64_t b, h, first, rows, padded;
    const void *keys, *values;              /* packed, of this slice */
    const float *bias;
} task;

/* Packs the bias of some queries: [grid_w] then [grid_h], in units of the scores. */
INLINE void pack_bias(float *to, const attention_args *a, int64_t b, int64_t h, int64_t first, int64_t count)
{
    for (int64_t i = first; i < least(first + count, a->nq); i++) {
        const float *x = a->bias_x + (b * a->nq + i) * a->grid_w * a->heads + h;
        const float *y = a->bias_y + (b * a->nq + i) * a->grid_h * a->heads + h;
        float *row = to + i * (a->grid_w + a->grid_h);
        for (int64_t g = 0; g < a->grid_w; g++)
            row[g] = x[g * a->heads] * LOG2_E;
        for (int64_t g = 0; g < a->grid_h; g++)
            row[a->grid_w + g] = y[g * a->heads] * LOG2_E;
    }
}

/* Bias, masks and missing keys of one query's scores: what is not attended becomes -infinity. tops is found anew. */
INLINE void adjust_row(float *s, float *tops, const task *t, int64_t i, int64_t first, int64_t n)
{
    const attention_args *a = t->a;
    const float *mask = a->key_mask ? a->key_mask + t->b * a->nk + first : NULL;
    int64_t valid = a->causal ? least(i + 1 - first, n) : n, end = (n + VL - 1) / VL * VL;
    vec top = v_set(-INFINITY);

    if (t->bias)
        add_bias(s, t->bias + i * (a->grid_w + a->grid_h), a, first, n);
    for (int64_t j = 0; mask && j < n; j += VL) {
        int lanes = (int)least(VL, n - j);
        v_store_n(s + j, v_if(v_load_n(mask + j, lanes), v_set(-INFINITY), v_load_n(s + j, lanes)), lanes);
    }
    for (int64_t j = valid < 0 ? 0 : valid; j < end; j++)
        s[j] = -INFINITY;
    for (int64_t j = 0; j < n; j += VL)
        top = v_max(top, v_load(s + j));
    v_store(tops, top);
}

/* sums: of weighted values [rows, width]; top and weights (their sum) as the running softmax left them. */
INLINE void store_outputs(const float *sums, const float *top, const float *weights, const task *t)
{
    const attention_args *a = t->a;
    int64_t dim = attention_value_dim(a);

    for (int64_t r = 0; r < t->rows; r++) {
        int64_t i = t->first + r;
        float *y = a->y + t->b * a->y_batch + i * a->y_stride + t->h * dim;
        const float *o = sums + r * t->l->width;
        float sum = weights[r], factor = sum == 0 ? 0 : 1 / sum;
        for (int64_t d = 0; d < dim; d += 8)
            _mm256_storeu_ps(y + d, _mm256_mul_ps(_mm256_loadu_ps(o + d), _mm256_set1_ps(factor)));
        if (a->lse)
            a->lse[(t->b * a->heads + t->h) * a->nq + i] = sum == 0 ? -INFINITY : (top[r] + log2f(sum)) * LN_2;
    }
}

#endif
