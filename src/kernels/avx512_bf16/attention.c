/* attention.c - attention whose two products take bf16 inputs, two at a time; sums, softmax and bias stay in f32.
 *
 * Like x86/attention.c, but what is packed consists of pairs: keys [panel][dim / 2][PANEL][2], values
 * [key / 2][width][2], queries and weights as rows, so that one instruction adds two products per lane.
 * Keys may lie there a second time, in 8 bits: then it adds four.
 */
#include "kernels/avx512_bf16/tile_pairs.h"
#include "kernels/levels.h"
#include "kernels/x86/attention_task.h"

typedef struct workspace {
    uint32_t q[TASK_ROWS * ATTENTION_MAX_DIM / 2];  /* pairs, turned, times scale and log2 e */
    uint32_t p[TASK_ROWS * ROW / 2];                /* pairs of weights */
    float s[TASK_ROWS * ROW];                       /* scores */
    float o[TASK_ROWS * ATTENTION_MAX_DIM];
    float top[TASK_ROWS], sum[TASK_ROWS];           /* per query: largest score so far, sum of the weights */
    float shrink[TASK_ROWS], part[TASK_ROWS];       /* of one block: what becomes of older sums, and its own sum */
    float tops[TASK_ROWS * VL];                     /* the largest scores of the block lane by lane */
    uint32_t bytes[TASK_ROWS * ATTENTION_MAX_DIM / 4];  /* queries in 8 bits plus 128, four at a time */
    float step[TASK_ROWS];                          /* what 1 is worth there */
} __attribute__((aligned(64))) workspace;

/* Keys of a slice in 8 bits, in memory that pairs leave free: [panel][dim / 4][PANEL][4], per key what 1 is worth and
 * -128 times the sum, per panel the largest of those steps. */
typedef struct key_bytes {
    uint32_t *k;
    float    *step;
    int32_t  *offset;
    float    *coarsest;
} key_bytes;

INLINE key_bytes bytes_of(const void *slice, const attention_layout *l, int64_t dim)
{
    uint32_t *k = (uint32_t *)(uintptr_t)slice + (l->key_floats + l->value_floats) / 2;
    float *step = (float *)(k + l->keys * dim / 4);

    return (key_bytes){k, step, (int32_t *)(step + l->keys), step + 2 * l->keys};
}

/* ---- packing ---- */

/* NaN if either is. */
INLINE float larger(float a, float b)
{
    return b <= a || a != a ? a : b;
}

/* dim is a multiple of 16. */
INLINE float squared_length(const float *row, int64_t dim)
{
    vec sum = v_zero();

    for (int64_t d = 0; d < dim; d += VL)
        sum = v_fma(v_load(row + d), v_load(row + d), sum);
    return v_sum(sum);
}

/* A row as bytes whose largest becomes 127. Returns their sum. */
static int32_t round_row(uint32_t *to, float *step, const float *row, int64_t dim)
{
    vec top = v_zero(), steps;
    __m512i sum = _mm512_setzero_si512();
    float most;

    for (int64_t d = 0; d < dim; d += VL)
        top = v_max(top, v_abs(v_load(row + d)));
    most = v_top(top);
    steps = v_set(most > 0 ? 127 / most : 0);
    *step = most / 127;
    for (int64_t d = 0; d < dim; d += VL) {
        __m512i x = _mm512_cvtps_epi32(v_mul(v_load(row + d), steps));
        sum = _mm512_add_epi32(sum, x);
        _mm_storeu_si128((__m128i *)(void *)(to + d / 4), _mm512_cvtsepi32_epi8(x));
    }
    return _mm512_reduce_add_epi32(sum);
}

/* Eight keys from `at` of a panel on, which begins at key `first`. */
static void place_bytes(const key_bytes *to, const uint32_t *rows, const float *step, const int32_t *sum, int64_t first,
                        int64_t at, int64_t dim)
{
    for (int64_t d = 0; d < dim / 4; d += 8)
        transpose8((float *)to->k + first * dim / 4 + d * PANEL + at, PANEL, (const float *)rows + d, dim / 4);
    for (int64_t i = 0; i < 8; i++) {
        to->step[first + at + i] = step[i];
        to->offset[first + at + i] = -128 * sum[i];
        to->coarsest[first / PANEL] = larger(to->coarsest[first / PANEL], step[i]);
    }
}

/* Returns the largest squared length of the panel's keys; NaN when one of them is. bytes: NULL, or where they
 * go too. */
static float pack_keys(uint32_t *to, const key_bytes *bytes, const attention_args *a, int64_t b, int64_t h,
                       int64_t first)
{
    float longest = 0, step[8];
    int32_t sum[8];
    uint32_t rows[8 * ATTENTION_MAX_DIM / 2] __attribute__((aligned(32)));
    uint32_t narrow[8 * ATTENTION_MAX_DIM / 4] __attribute__((aligned(32)));
    float turned[ATTENTION_MAX_DIM];
    const float *k = a->k + b * a->k_batch + h * a->dim;
    int64_t pairs = a->dim / 2;

    if (bytes)
        bytes->coarsest[first / PANEL] = 0;
    for (int64_t j = first; j < first + PANEL; j += 8) {
        for (int64_t i = 0; i < 8; i++) {
            if (j + i < a->nk) {
                turn(turned, k + (j + i) * a->k_stride, angles(a, j + i, a->rope_keys), 1, a->dim);
                float length = squared_length(turned, a->dim);
                longest = larger(longest, length);
                narrow_row(rows + i * pairs, turned, a->dim);
                if (bytes)
                    sum[i] = round_row(narrow + i * a->dim / 4, step + i, turned, a->dim);
            } else {
                memset(rows + i * pairs, 0, (size_t)pairs * sizeof *rows);
            }
        }
        for (int64_t d = 0; d < pairs; d += 8)
            transpose8((float *)to + d * PANEL + j - first, PANEL, (const float *)rows + d, pairs);
        if (bytes)
            place_bytes(bytes, narrow, step, sum, first, j - first, a->dim);
    }
    return longest;
}

/* Sixteen values of key j as bf16 in the low half of each lane; zero where there is no such key or it is masked. */
INLINE __m512i value_lanes(const attention_args *a, int64_t b, int64_t h, int64_t j, int64_t d)
{
    int64_t dim = attention_value_dim(a);
    const float *v = a->v + b * a->v_batch + j * a->v_stride + h * dim + d;

    if (j >= a->nk || d >= dim || (a->key_mask && a->key_mask[b * a->nk + j] != 0))
        return _mm512_setzero_si512();
    return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(v)));
}

static void pack_values(uint32_t *to, const attention_args *a, const attention_layout *l, int64_t b, int64_t h,
                        int64_t first)
{
    for (int64_t j = first; j < first + PANEL; j += 2)
        for (int64_t d = 0; d < l->width; d += 16) {
            __m512i even = value_lanes(a, b, h, j, d), odd = value_lanes(a, b, h, j + 1, d);
            _mm512_storeu_si512(to + (j - first) / 2 * l->width + d,
                                _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
        }
}

static void round_query(workspace *w, int64_t r, const float *row, int64_t dim)
{
    uint32_t *to = w->bytes + r * dim / 4;

    round_row(to, w->step + r, row, dim);
    for (int64_t d = 0; d < dim / 4; d++)
        to[d] ^= 0x80808080;
}

static void pack_queries(workspace *w, const task *t, bool bytes)
{
    const attention_args *a = t->a;
    const float *q = a->q + t->b * a->q_batch + t->h * a->dim;
    float turned[ATTENTION_MAX_DIM];
    int64_t pairs = a->dim / 2;

    for (int64_t r = 0; r < t->padded; r++) {
        int64_t i = t->first + r;
        if (r < t->rows) {
            turn(turned, q + i * a->q_stride, angles(a, i, a->nq), a->scale * LOG2_E, a->dim);
            narrow_row(w->q + r * pairs, turned, a->dim);
            if (bytes)
                round_query(w, r, turned, a->dim);
        } else {
            memset(w->q + r * pairs, 0, (size_t)pairs * sizeof *w->q);
            if (bytes)
                round_query(w, r, (float[ATTENTION_MAX_DIM]){0}, a->dim);
        }
        w->top[r] = -INFINITY;
        w->sum[r] = 0;
    }
    memset(w->o, 0, (size_t)(t->padded * t->l->width) * sizeof *w->o);
}

/* ---- one block of keys ---- */

static void score_panel(workspace *w, const task *t, const uint32_t *panel, int64_t at, int64_t count)
{
    int64_t pairs = t->a->dim / 2;

    for (int64_t r = 0; r < t->padded; r += TILE_ROWS)
        tile_pairs((count + VL - 1) / VL, w->s + r * ROW + at, ROW, w->q + r * pairs, pairs, panel, PANEL, pairs, NULL,
                   w->tops + r * VL);
}

/* 2^x for x up to 0, to 1e-4 (relative), which bf16 cannot tell from better; 0 far below. */
INLINE vec exp2_coarse(vec x)
{
    vec t = v_max(v_set(-160), x), n = v_round(t), r = v_sub(t, n);
    vec p = v_fma(r, v_set(0.055171664f), v_set(0.24261112f));

    p = v_fma(r, p, v_set(0.69326099f));
    p = v_fma(r, p, v_set(0.99992807f));
    return v_scale2(p, n);
}

/* Turns the scores of one block into weights relative to the largest score so far, narrowed to bf16. */
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
            vec p = exp2_coarse(v_sub(v_load(s + j), shift));
            _mm256_storeu_si256((__m256i *)(w->p + (r * ROW + j) / 2), (__m256i)_mm512_cvtneps_pbh(p));
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

static void gather_values(workspace *w, const task *t, const uint32_t *v, int64_t n)
{
    int64_t width = t->l->width, vecs = (attention_value_dim(t->a) + VL - 1) / VL;

    for (int64_t c = 0; c < vecs; c += TILE_VECS)
        for (int64_t r = 0; r < t->padded; r += TILE_ROWS)
            tile_pairs(least(TILE_VECS, vecs - c), w->o + r * width + c * VL, width, w->p + r * ROW / 2, ROW / 2,
                       v + c * VL, width, (n + 1) / 2, w->shrink + r, NULL);
}

/* ---- without looking for the largest score ----
 *
 * Weights need not be relative to a row's largest score: bf16 has the exponents of f32, so any score near it will do, and
 * sums are never rescaled. A score is at most |q| |k|; where that bound is small it is near enough, else the
 * largest score of the first panel is taken. Scores then become weights while they are still in registers. Where a row's
 * sum shows that some score was too far away the task is done the other way.
 */

enum {
    SHIFT_MOST = 4096,              /* sums that begin with it keep their last bits well enough */
    BOUND_NEAR = 46,                /* scores lie within twice that: 2^-92 is seen below */
    WEIGHT_MOST = 64                /* powers of two */
};
#define SUM_LEAST 1e-28f            /* about 2^-93, above any sum of weights that were raised to 2^-125 */
#define SUM_MOST  9e18f             /* about 2^63, below any sum with a weight that was lowered to 2^64 */

/* 2^x as exp2_coarse, from 2^-125 to 2^WEIGHT_MOST. A sum with 1.5 * 2^23 ends in the whole part of x. */
INLINE vec exp2_bounded(vec x)
{
    const vec magic = v_set(12582912);
    vec t, r, p;

    x = v_min(v_set(WEIGHT_MOST), v_max(v_set(-125), x));
    t = v_add(x, magic);
    r = v_sub(x, v_sub(t, magic));
    p = v_fma(r, v_set(0.055171664f), v_set(0.24261112f));
    p = v_fma(r, p, v_set(0.69326099f));
    p = v_fma(r, p, v_set(0.99992807f));
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

/* Weights of TILE_ROWS queries for one panel of keys as pairs, and their sums lane by lane. low: minus the shifts. */
static __attribute__((noinline)) void weigh_panel(uint32_t *p, float *sums, const float *low, const uint32_t *q, const uint32_t *panel,
                        int64_t pairs)
{
    const __m512i ones = _mm512_set1_epi32(0x3f803f80);
    vec sum[TILE_ROWS][TILE_VECS];

    UNROLL
    for (int r = 0; r < TILE_ROWS; r++)
        UNROLL
        for (int c = 0; c < TILE_VECS; c++)
            sum[r][c] = v_set(low[r]);
    for (int64_t k = 0; k < pairs; k++) {
        __m512i column[TILE_VECS];
        UNROLL
        for (int c = 0; c < TILE_VECS; c++)
            column[c] = _mm512_loadu_si512(panel + k * PANEL + c * VL);
        UNROLL
        for (int r = 0; r < TILE_ROWS; r++) {
            __m512i x = _mm512_set1_epi32((int)q[r * pairs + k]);
            UNROLL
            for (int c = 0; c < TILE_VECS; c++)
                sum[r][c] = _mm512_dpbf16_ps(sum[r][c], (__m512bh)x, (__m512bh)column[c]);
        }
    }
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++) {
        vec all = v_load(sums + r * VL);
        UNROLL
        for (int c = 0; c < TILE_VECS; c += 2) {
            __m512bh two = _mm512_cvtne2ps_pbh(exp2_bounded(sum[r][c + 1]), exp2_bounded(sum[r][c]));
            _mm512_storeu_si512(p + (r * ROW + c * VL) / 2, (__m512i)two);
            all = _mm512_dpbf16_ps(all, two, (__m512bh)ones);
        }
        v_store(sums + r * VL, all);
    }
}

/* Sixteen bf16 numbers as f32. */
INLINE vec widen(const void *from)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));

    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

/* The same for a panel with only `count` keys: others weigh nothing. */
static void weigh_part(uint32_t *p, float *sums, const float *low, const uint32_t *q, const uint32_t *panel,
                       int64_t pairs, int64_t count)
{
    float unused[TILE_ROWS * VL] __attribute__((aligned(64))) = {0};

    weigh_panel(p, unused, low, q, panel, pairs);
    for (int r = 0; r < TILE_ROWS; r++) {
        uint16_t *row = (uint16_t *)(void *)(p + r * ROW / 2);
        vec all = v_load(sums + r * VL);
        memset(row + count, 0, (size_t)(PANEL - count) * sizeof *row);
        for (int64_t j = 0; j < PANEL; j += VL)
            all = v_add(all, widen(row + j));
        v_store(sums + r * VL, all);
    }
}

/* out [TILE_ROWS][PANEL]: sums of products of bytes, which are exact. Left in registers, gcc 12 would spill them. */
static __attribute__((noinline, target("avx512vnni"))) void add_bytes(int32_t *out, const uint32_t *q,
                                                                      const uint32_t *panel, const int32_t *offset,
                                                                      int64_t fours)
{
    vec sum[TILE_ROWS][TILE_VECS];

    UNROLL
    for (int r = 0; r < TILE_ROWS; r++)
        UNROLL
        for (int c = 0; c < TILE_VECS; c++)
            sum[r][c] = v_load((const float *)(const void *)(offset + c * VL));
    for (int64_t k = 0; k < fours; k++) {
        __m512i column[TILE_VECS];
        UNROLL
        for (int c = 0; c < TILE_VECS; c++)
            column[c] = _mm512_loadu_si512(panel + k * PANEL + c * VL);
        UNROLL
        for (int r = 0; r < TILE_ROWS; r++) {
            __m512i x = _mm512_set1_epi32((int)q[r * fours + k]);
            UNROLL
            for (int c = 0; c < TILE_VECS; c++)
                sum[r][c] = (vec)_mm512_dpbusd_epi32((__m512i)sum[r][c], x, column[c]);
        }
    }
    UNROLL
    for (int r = 0; r < TILE_ROWS; r++)
        UNROLL
        for (int c = 0; c < TILE_VECS; c++)
            v_store((float *)(void *)(out + r * PANEL + c * VL), sum[r][c]);
}

/* Weights and their sums from sums of bytes; step: of the panel's keys. */
static void weigh_bytes(uint32_t *p, float *sums, const float *low, const int32_t *sum, const float *q_step,
                        const float *step)
{
    const __m512i ones = _mm512_set1_epi32(0x3f803f80);

    for (int c = 0; c < PANEL; c += 2 * VL) {
        vec first = v_load(step + c), second = v_load(step + c + VL);
        for (int r = 0; r < TILE_ROWS; r++) {
            vec worth = v_set(q_step[r]), start = v_set(low[r]);
            vec a = v_mul(_mm512_cvtepi32_ps(_mm512_load_si512(sum + r * PANEL + c)), first);
            vec b = v_mul(_mm512_cvtepi32_ps(_mm512_load_si512(sum + r * PANEL + c + VL)), second);
            a = exp2_bounded(v_fma(a, worth, start));
            b = exp2_bounded(v_fma(b, worth, start));
            __m512bh two = _mm512_cvtne2ps_pbh(b, a);
            _mm512_storeu_si512(p + (r * ROW + c) / 2, (__m512i)two);
            v_store(sums + r * VL, _mm512_dpbf16_ps(v_load(sums + r * VL), two, (__m512bh)ones));
        }
    }
}

/* Variance of a score (in powers of two) from which 8 bits are too few: weights would be off by 9 %, one with another. */
#define COARSE_MOST (1.0f / 64)

/* Puts |q| |k| of each query and its longest key into w->top. Returns whether all are small. *bytes, if it was set: do they
 * suffice? Rounding to steps of s makes an error with the variance s^2 / 12. */
static bool find_bounds(workspace *w, const task *t, bool *bytes)
{
    const attention_args *a = t->a;
    const float *lengths = (const float *)t->keys + t->l->slice_floats - t->l->length_floats;
    const float *steps = *bytes ? bytes_of(t->keys, t->l, a->dim).coarsest : NULL;
    float key = 0, step = 0, q[ATTENTION_MAX_DIM];
    bool near = true;

    for (int64_t i = 0; i < (a->nk + PANEL - 1) / PANEL; i++)
        key = larger(key, lengths[i]);
    for (int64_t i = 0; steps && i < a->nk / PANEL; i++)
        step = larger(step, steps[i]);
    for (int64_t r = 0; r < t->padded; r++) {
        for (int64_t d = 0; d < a->dim; d += VL)
            v_store(q + d, widen(w->q + (r * a->dim + d) / 2));
        float length = squared_length(q, a->dim);
        w->top[r] = 1.01f * sqrtf(key * length);
        near = near && w->top[r] <= BOUND_NEAR;
        *bytes = *bytes && length * step * step + key * w->step[r] * w->step[r] < 12 * COARSE_MOST;
    }
    return near;
}

/* Puts minus a score that is near the largest one of each query into w->top. false: there is none, or it is too large. */
static bool find_shifts(workspace *w, const task *t, bool *bytes)
{
    const attention_args *a = t->a;
    bool usable = !a->causal && !a->key_mask && !a->bias_x;

    if (usable && !find_bounds(w, t, bytes)) {
        for (int64_t r = 0; r < t->padded; r++)
            v_store(w->tops + r * VL, v_set(-INFINITY));
        score_panel(w, t, t->keys, 0, least(PANEL, a->nk));
        for (int64_t r = 0; r < t->padded; r++)
            w->top[r] = v_top(v_load(w->tops + r * VL));
    }
    for (int64_t r = 0; usable && r < t->padded; r++) {
        w->top[r] = -w->top[r];
        usable = fabsf(w->top[r]) < SHIFT_MOST;
    }
    return usable;
}

/* Weights of all queries of the task for `count` keys of one panel, which stand from column `at` on. */
static void weigh_rows(workspace *w, const task *t, const uint32_t *panel, int64_t at, int64_t count)
{
    int64_t pairs = t->a->dim / 2;

    for (int64_t r = 0; r < t->padded; r += TILE_ROWS) {
        uint32_t *p = w->p + (r * ROW + at) / 2, *q = w->q + r * pairs;
        if (count == PANEL)
            weigh_panel(p, w->tops + r * VL, w->top + r, q, panel, pairs);
        else
            weigh_part(p, w->tops + r * VL, w->top + r, q, panel, pairs, count);
    }
}

/* The same from bytes, for whole panels; the panel begins at key `first`. */
static void weigh_byte_rows(workspace *w, const task *t, int64_t first, int64_t at)
{
    int64_t fours = t->a->dim / 4;
    key_bytes keys = bytes_of(t->keys, t->l, t->a->dim);
    int32_t sum[TILE_ROWS * PANEL] __attribute__((aligned(64)));

    for (int64_t r = 0; r < t->padded; r += TILE_ROWS) {
        add_bytes(sum, w->bytes + r * fours, keys.k + first * fours, keys.offset + first, fours);
        weigh_bytes(w->p + (r * ROW + at) / 2, w->tops + r * VL, w->top + r, sum, w->step + r, keys.step + first);
    }
}

/* false: not done. */
static bool attend_bounded(workspace *w, const task *t, bool bytes)
{
    int64_t pairs = t->a->dim / 2, nk = t->a->nk;
    float once[TASK_ROWS], *sums = w->tops;

    if (!find_shifts(w, t, &bytes))
        return false;
    for (int64_t r = 0; r < t->padded; r++) {
        v_store(sums + r * VL, v_zero());
        once[r] = 1;
    }
    memcpy(w->shrink, once, (size_t)t->padded * sizeof *once);
    for (int64_t first = 0; first < nk; first += KEYS) {
        int64_t n = least(KEYS, nk - first);
        for (int64_t at = 0; at < n; at += PANEL)
            if (bytes)
                weigh_byte_rows(w, t, first + at, at);
            else
                weigh_rows(w, t, (const uint32_t *)t->keys + (first + at) * pairs, at, least(PANEL, n - at));
        gather_values(w, t, (const uint32_t *)t->values + first / 2 * t->l->width, n);
    }
    for (int64_t r = 0; r < t->padded; r++) {
        w->sum[r] = v_sum(v_load(sums + r * VL));
        w->top[r] = -w->top[r];
        if (r < t->rows && !(w->sum[r] > SUM_LEAST && w->sum[r] < SUM_MOST))
            return false;
    }
    store_outputs(w->o, w->top, w->sum, t);
    return true;
}

static void attend(const task *t, bool bytes)
{
    const attention_args *a = t->a;
    int64_t limit = a->causal ? least(a->nk, t->first + t->rows) : a->nk;
    workspace w;

    pack_queries(&w, t, bytes);
    if (attend_bounded(&w, t, bytes))
        return;
    pack_queries(&w, t, false);
    for (int64_t first = 0; first < limit; first += KEYS) {
        int64_t n = least(KEYS, limit - first);
        for (int64_t r = 0; r < t->padded; r++)
            v_store(w.tops + r * VL, v_set(-INFINITY));
        for (int64_t at = 0; at < n; at += PANEL)
            score_panel(&w, t, (const uint32_t *)t->keys + (first + at) * a->dim / 2, at, least(PANEL, n - at));
        if (a->causal || a->key_mask || a->bias_x || n % VL)
            for (int64_t r = 0; r < t->rows; r++)
                adjust_row(w.s + r * ROW, w.tops + r * VL, t, t->first + r, first, n);
        soften(&w, t, n);
        gather_values(&w, t, (const uint32_t *)t->values + first / 2 * t->l->width, n);
    }
    store_outputs(w.o, w.top, w.sum, t);
}

/* ---- waves ---- */

/* A slice takes no more room than in f32: keys and values half of it, bias at the same place. */
static void pack_wave(const attention_args *a, const attention_layout *l, float *scratch, int64_t slice, int64_t count,
                      bool bytes)
{
    int64_t panels = l->keys / PANEL;

#pragma omp parallel for schedule(static)
    for (int64_t item = 0; item < count * panels; item++) {
        int64_t s = item / panels, b = (slice + s) / a->heads, h = (slice + s) % a->heads,
                first = item % panels * PANEL;
        float *to = scratch + s * l->slice_floats;
        uint32_t *keys = (uint32_t *)to, *values = keys + l->key_floats / 2;
        key_bytes narrow = bytes_of(to, l, a->dim);
        to[l->slice_floats - l->length_floats + item % panels] =
            pack_keys(keys + first * a->dim / 2, bytes ? &narrow : NULL, a, b, h, first);
        pack_values(values + first / 2 * l->width, a, l, b, h, first);
        if (a->bias_x) {
            int64_t each = (a->nq + panels - 1) / panels;
            pack_bias(to + l->key_floats + l->value_floats, a, b, h, item % panels * each, each);
        }
    }
}

static void attend_all(const attention_args *a, bool bytes)
{
    attention_layout l = attention_layout_of(a);
    int64_t rows = task_rows(a->nq), tasks = (a->nq + rows - 1) / rows;

    for (int64_t slice = 0; slice < l.slices; slice += l.wave) {
        int64_t count = least(l.wave, l.slices - slice);
        pack_wave(a, &l, a->scratch, slice, count, bytes);
#pragma omp parallel for schedule(dynamic, 1)
        for (int64_t item = 0; item < count * tasks; item++) {
            int64_t s = item / tasks;
            const float *packed = (const float *)a->scratch + s * l.slice_floats;
            task t = {a, &l, (slice + s) / a->heads, (slice + s) % a->heads, item % tasks * rows, 0, 0, packed,
                      (const uint32_t *)packed + l.key_floats / 2,
                      a->bias_x ? packed + l.key_floats + l.value_floats : NULL};
            t.rows = least(rows, a->nq - t.first);
            t.padded = (t.rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
            attend(&t, bytes);
        }
    }
}

/* Heads of whole pairs of registers; narrower ones go to f32. */
static void attention_either(const attention_args *a)
{
    if (a->dim % 16 || a->v_dim % 16)
        avx512_attention(a);
    else
        attend_all(a, false);
}

/* Where nothing would be computed from bytes, none are made. */
static void attention_bytes(const attention_args *a)
{
    if (a->dim % 32 || a->v_dim % 16 || a->causal || a->key_mask || a->bias_x || a->nk % PANEL)
        attention_either(a);
    else
        attend_all(a, true);
}

void kernels_fill_avx512_bf16(kernels *k)
{
    k->attention_bf16 = k->attention_int8 = attention_either;
    if (__builtin_cpu_supports("avx512vnni"))
        k->attention_int8 = attention_bytes;
    k->winograd_bf16 = avx512_bf16_winograd;
}
