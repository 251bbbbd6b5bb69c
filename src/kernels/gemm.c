/* gemm.c - matrix products with weights packed once: oneDNN matmul primitives, cached per number of rows. */
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/int8.h"
#include "kernels/kernels.h"
#include "kernels/onednn.h"
#include "kernels/pool.h"

enum {
    PLANS = 16,             /* kept per weights */
    REPRESENTATIVE = 4096   /* rows for which the format of the weights is chosen */
};

typedef enum residual_kind { RESIDUAL_NONE, RESIDUAL_IN_PLACE, RESIDUAL_OTHER } residual_kind;

typedef struct plan_key {
    int64_t rows, ldx, ldy;
    activation act;
    residual_kind residual;
    int threads;            /* oneDNN shares the work out when it builds the primitive */
} plan_key;

/* One block of y: `rows` x `cols`. run is NULL where the plan has no block of this size. */
typedef struct tile {
    int64_t rows, cols;
    dnnl_memory_desc_t x, w, bias, y, scratch;
    dnnl_primitive_t run;
} tile;

/* y is cut into blocks of row_block x column_block; [1][..] and [..][1] are the smaller ones at the end. */
typedef struct plan {
    plan_key key;
    int64_t row_block, column_block;
    tile tiles[2][2];
    int refs;               /* users and the cache; guarded by the lock of the weights */
    uint64_t last_use;
} plan;

struct gemm_weights {
    int64_t out, in;
    int8_weights *eight;    /* GEMM_INT8: then nothing below is used */
    dnnl_data_type_t type;
    bool packed;            /* oneDNN's own blocked format, used whole; else [out, in], used in blocks */
    int64_t ld;             /* not packed: elements from one output to the next */
    dnnl_memory_t memory;
    dnnl_memory_desc_t desc;
    char *data;
    float *bias;
    pthread_mutex_t lock;
    plan *plans[PLANS];
    uint64_t clock;
};

static size_t type_size(dnnl_data_type_t type)
{
    return type == dnnl_bf16 ? 2 : 4;
}

/* Asks oneDNN which format it wants for the weights and whether its blocked matmul will take them. */
static bool choose_format(gemm_weights *w)
{
    dnnl_memory_desc_t x = {0}, any = {0}, y = {0}, bias = {0};
    const int64_t dims[] = {w->in, w->out};
    dnnl_primitive_desc_t pd = NULL;
    const char *name = "";
    bool ok = onednn_matrix(&x, REPRESENTATIVE, w->in, w->type, w->in, 1) &&
              onednn_matrix(&y, REPRESENTATIVE, w->out, dnnl_f32, w->out, 1) &&
              onednn_matrix(&bias, 1, w->out, dnnl_f32, w->out, 1) &&
              onednn_tensor(&any, 2, dims, w->type, dnnl_format_tag_any) &&
              onednn_product(&pd, &x, &any, &bias, &y, NULL) &&
              dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success;

    w->packed = ok && !strncmp(name, "brg", 3);
    /* else as given, but no rows a power of two apart, which would share cache sets */
    w->ld = w->in % 256 ? w->in : w->in + 16;
    if (ok)
        ok = w->packed ? onednn_wanted(&w->desc, pd) : onednn_matrix(&w->desc, w->in, w->out, w->type, 1, w->ld);
    dnnl_primitive_desc_destroy(pd);
    onednn_forget(&x);
    onednn_forget(&any);
    onednn_forget(&y);
    onednn_forget(&bias);
    return ok;
}

/* The reference is slower than anything in f32. */
static bool has_int8(void)
{
    const kernels *lowest;

    return kernels_levels(&lowest, 1) && kernels_get()->product_int8 != lowest->product_int8;
}

bool gemm_has(gemm_type type)
{
    return type == GEMM_F32 || (onednn_ready() && (type == GEMM_BF16 ? onednn_has_bf16() : has_int8()));
}

gemm_type gemm_fastest(bool int8)
{
    bool bf16 = gemm_has(GEMM_BF16);

    if (int8 && gemm_has(GEMM_INT8) && !(bf16 && onednn_has_tiles()))
        return GEMM_INT8;
    return bf16 ? GEMM_BF16 : GEMM_F32;
}

static gemm_weights *weights_new(int64_t out, int64_t in, gemm_type type)
{
    gemm_weights *w = out < 1 || in < 1 || out > INT32_MAX || in > INT32_MAX || !onednn_ready() ? NULL
                                                                                               : calloc(1, sizeof *w);

    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    w->out = out;
    w->in = in;
    w->type = type != GEMM_F32 && onednn_has_bf16() ? dnnl_bf16 : dnnl_f32;
    return w;
}

static bool copy_bias(gemm_weights *w, const float *bias)
{
    w->bias = malloc((size_t)w->out * sizeof *bias);
    if (w->bias)
        memcpy(w->bias, bias, (size_t)w->out * sizeof *bias);
    return w->bias != NULL;
}

static bool pack(gemm_weights *w, const float *src, int64_t ld)
{
    dnnl_memory_desc_t from = {0};
    void *data = NULL;
    bool ok = choose_format(w) && onednn_matrix(&from, w->in, w->out, dnnl_f32, 1, ld) &&
              onednn_reorder(&w->memory, &w->desc, &from, src) &&
              dnnl_memory_get_data_handle(w->memory, &data) == dnnl_success;

    onednn_forget(&from);
    w->data = data;
    return ok;
}

gemm_weights *gemm_pack(const float *src, const float *bias, int64_t out, int64_t in, int64_t ld, gemm_type type)
{
    gemm_weights *w = ld < in || ld > INT64_MAX / 8 / (out > 0 ? out : 1) ? NULL : weights_new(out, in, type);
    bool ok = w != NULL;

    if (ok && type == GEMM_INT8 && has_int8())
        ok = (w->eight = int8_pack(src, bias, out, in, ld)) != NULL;
    else
        ok = ok && (!bias || copy_bias(w, bias)) && pack(w, src, ld);
    if (ok)
        return w;
    gemm_weights_free(w);
    return NULL;
}

gemm_weights *gemm_pack_rows8(const int8_t *q, const float *scale, const float *bias, int64_t out, int64_t in)
{
    gemm_weights *w = gemm_has(GEMM_INT8) ? weights_new(out, in, GEMM_INT8) : NULL;

    if (w && (w->eight = int8_pack_rows(q, scale, bias, out, in)))
        return w;
    gemm_weights_free(w);
    return NULL;
}

int gemm_pieces(const gemm_weights *w, gemm_piece *out)
{
    if (w->eight) {
        out[0] = (gemm_piece){int8_data(w->eight), int8_bytes(w->eight)};
        return 1;
    }
    out[0] = (gemm_piece){w->data, onednn_bytes(&w->desc)};
    out[1] = (gemm_piece){w->bias, (size_t)w->out * sizeof *w->bias};
    return w->bias ? 2 : 1;
}

gemm_weights *gemm_adopt(const void *stored, size_t bytes, bool bias, int64_t out, int64_t in, gemm_type type)
{
    gemm_weights *w = weights_new(out, in, type);
    bool ok = w != NULL;

    if (ok && type == GEMM_INT8 && has_int8()) {
        ok = (w->eight = int8_adopt(stored, bytes, out, in)) != NULL;
    } else if (ok) {
        ok = choose_format(w);
        size_t matrix = ok ? onednn_bytes(&w->desc) : 0;
        ok = ok && bytes == matrix + (bias ? (size_t)out * sizeof(float) : 0) && matrix % sizeof(float) == 0;
        w->data = (char *)(uintptr_t)stored;
        ok = ok && (!bias || copy_bias(w, (const float *)(const void *)(w->data + matrix)));
    }
    if (ok)
        return w;
    gemm_weights_free(w);
    return NULL;
}

static void tile_free(tile *t)
{
    dnnl_memory_desc_t *all[] = {&t->x, &t->w, &t->bias, &t->y, &t->scratch};

    dnnl_primitive_destroy(t->run);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        onednn_forget(all[i]);
}

static void plan_free(plan *p)
{
    for (int i = 0; p && i < 4; i++)
        tile_free(&p->tiles[i / 2][i % 2]);
    free(p);
}

void gemm_weights_free(gemm_weights *w)
{
    if (!w)
        return;
    for (int i = 0; i < PLANS; i++)
        plan_free(w->plans[i]);
    if (w->memory)
        dnnl_memory_destroy(w->memory);
    onednn_forget(&w->desc);
    int8_free(w->eight);
    pthread_mutex_destroy(&w->lock);
    free(w->bias);
    free(w);
}

size_t gemm_weights_bytes(const gemm_weights *w)
{
    if (w->eight)
        return int8_bytes(w->eight);
    return onednn_bytes(&w->desc) + (w->bias ? (size_t)w->out * sizeof *w->bias : 0);
}

gemm_type gemm_type_of(const gemm_weights *w)
{
    return w->eight ? GEMM_INT8 : w->type == dnnl_bf16 ? GEMM_BF16 : GEMM_F32;
}

size_t gemm_scratch(const gemm_weights *w, int64_t rows)
{
    return w->eight || w->type == dnnl_bf16 ? gemm_rows_bytes(w, rows) : 0;
}

/* Builds the primitive of one block. What a failure leaves is freed with the plan. */
static bool tile_build(tile *t, const gemm_weights *w, const plan_key *key, int64_t rows, int64_t cols)
{
    const dnnl_memory_desc_t *weights = w->packed ? &w->desc : &t->w;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    bool ok = onednn_matrix(&t->x, rows, w->in, w->type, key->ldx, 1) &&
              onednn_matrix(&t->y, rows, cols, dnnl_f32, key->ldy, 1) &&
              onednn_matrix(&t->bias, 1, cols, dnnl_f32, cols, 1) &&
              (w->packed || onednn_matrix(&t->w, w->in, cols, w->type, 1, w->ld));

    t->rows = rows;
    t->cols = cols;
    if (ok)
        attr = onednn_epilogue(key->act, key->residual == RESIDUAL_IN_PLACE,
                               key->residual == RESIDUAL_OTHER ? &t->y : NULL);
    ok = attr && onednn_product(&pd, &t->x, weights, w->bias ? &t->bias : NULL, &t->y, attr) &&
         onednn_scratch(&t->scratch, pd);
    if (ok && dnnl_primitive_create(&t->run, pd) != dnnl_success) {
        t->run = NULL;
        ok = false;
    }
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    return ok;
}

/* oneDNN's blocked matmul never splits a sum, so it gets the whole product. Its plain gemm lets the number of threads
 * decide on the blocks and thereby on the rounding: there each of our own blocks, which depend on the shape alone, is
 * computed by one thread. */
static void plan_split(plan *p, const gemm_weights *w)
{
    p->row_block = p->key.rows;
    p->column_block = w->out;
    if (!w->packed)
        onednn_blocks(&p->row_block, &p->column_block, p->key.rows, w->out, w->in);
}

static plan *plan_build(const gemm_weights *w, const plan_key *key)
{
    plan *p = calloc(1, sizeof *p);
    bool ok = p != NULL;

    if (!ok)
        return NULL;
    p->key = *key;
    plan_split(p, w);
    for (int i = 0; i < 4 && ok; i++) {
        int64_t rows = i / 2 ? key->rows % p->row_block : p->row_block;
        int64_t cols = i % 2 ? w->out % p->column_block : p->column_block;
        if (rows && cols)
            ok = tile_build(&p->tiles[i / 2][i % 2], w, key, rows, cols);
    }
    if (!ok) {
        plan_free(p);
        return NULL;
    }
    return p;
}

static bool same_key(const plan_key *a, const plan_key *b)
{
    return a->rows == b->rows && a->ldx == b->ldx && a->ldy == b->ldy && a->act == b->act &&
           a->residual == b->residual && a->threads == b->threads;
}

/* With the lock held: gives up one reference. */
static void plan_drop(plan *p)
{
    if (p && --p->refs == 0)
        plan_free(p);
}

/* With the lock held: the plan of `key` with one more reference, or NULL. */
static plan *plan_find(gemm_weights *w, const plan_key *key)
{
    for (int i = 0; i < PLANS; i++) {
        plan *p = w->plans[i];
        if (p && same_key(&p->key, key)) {
            p->refs++;
            p->last_use = ++w->clock;
            return p;
        }
    }
    return NULL;
}

/* With the lock held: keeps p in place of the plan unused for longest. */
static void plan_keep(gemm_weights *w, plan *p)
{
    int oldest = 0;

    for (int i = 0; i < PLANS; i++) {
        if (!w->plans[i]) {
            oldest = i;
            break;
        }
        if (w->plans[i]->last_use < w->plans[oldest]->last_use)
            oldest = i;
    }
    plan_drop(w->plans[oldest]);
    w->plans[oldest] = p;
    p->last_use = ++w->clock;
    p->refs++;
}

static plan *plan_get(gemm_weights *w, const plan_key *key)
{
    plan *p, *built;

    pthread_mutex_lock(&w->lock);
    p = plan_find(w, key);
    pthread_mutex_unlock(&w->lock);
    if (p)
        return p;
    built = plan_build(w, key);
    if (!built)
        return NULL;
    pthread_mutex_lock(&w->lock);
    p = plan_find(w, key);      /* another thread may have been faster */
    if (p) {
        plan_free(built);
    } else {
        p = built;
        p->refs = 1;
        plan_keep(w, p);
    }
    pthread_mutex_unlock(&w->lock);
    return p;
}

static void plan_put(gemm_weights *w, plan *p)
{
    pthread_mutex_lock(&w->lock);
    plan_drop(p);
    pthread_mutex_unlock(&w->lock);
}

/* Block number `item` of the plan. */
static bool run_block(const gemm_weights *w, const plan *p, int64_t item, float *y, const void *x,
                      const float *residual)
{
    int64_t columns = (w->out + p->column_block - 1) / p->column_block;
    int64_t r = item / columns * p->row_block, c = item % columns * p->column_block;
    const tile *t = &p->tiles[p->key.rows - r < p->row_block][w->out - c < p->column_block];
    size_t size = type_size(w->type);
    int64_t w_offset = w->packed ? 0 : c * w->ld;
    dnnl_exec_arg_t args[6] = {{DNNL_ARG_SRC, NULL}, {DNNL_ARG_WEIGHTS, NULL}, {DNNL_ARG_DST, NULL}};
    int n = 3;
    bool ok = onednn_wrap(&args[0].memory, &t->x, (const char *)x + (size_t)(r * p->key.ldx) * size) &&
              onednn_wrap(&args[1].memory, w->packed ? &w->desc : &t->w, w->data + (size_t)w_offset * size) &&
              onednn_wrap(&args[2].memory, &t->y, y + r * p->key.ldy + c);

    if (ok && w->bias) {
        args[n].arg = DNNL_ARG_BIAS;
        ok = onednn_wrap(&args[n++].memory, &t->bias, w->bias + c);
    }
    if (ok && p->key.residual == RESIDUAL_OTHER) {
        args[n].arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(p->key.act != ACT_NONE) | DNNL_ARG_SRC_1;
        ok = onednn_wrap(&args[n++].memory, &t->y, residual + r * p->key.ldy + c);
    }
    ok = ok && onednn_execute(t->run, &t->scratch, args, n);
    for (int i = 0; i < n; i++)
        dnnl_memory_destroy(args[i].memory);
    return ok;
}

/* x and y are dense where the format of the weights asks for it. */
static bool run_plan(gemm_weights *w, float *y, int64_t ldy, const void *x, int64_t ldx, int64_t rows, activation act,
                     const float *residual)
{
    plan_key key = {rows, ldx, ldy, act, RESIDUAL_NONE, omp_get_max_threads()};
    int64_t blocks;
    plan *p;
    bool ok = true;

    if (residual)
        key.residual = residual == y ? RESIDUAL_IN_PLACE : RESIDUAL_OTHER;
    p = plan_get(w, &key);
    if (!p)
        return false;
    blocks = ((rows + p->row_block - 1) / p->row_block) * ((w->out + p->column_block - 1) / p->column_block);
    if (w->packed) {
        ok = run_block(w, p, 0, y, x, residual);
    } else {
#pragma omp parallel for schedule(dynamic, 1) reduction(&& : ok)
        for (int64_t i = 0; i < blocks; i++)
            ok = run_block(w, p, i, y, x, residual) && ok;
    }
    plan_put(w, p);
    return ok;
}

static void copy_rows(float *to, int64_t ld_to, const float *from, int64_t ld_from, int64_t rows, int64_t cols)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * ld_to, from + r * ld_from, (size_t)cols * sizeof *to);
}

/* The blocked matmul wants rows without gaps: others pass through dense copies, a few hundred rows at a time. */
static bool run_with_gaps(gemm_weights *w, float *y, int64_t ldy, const void *x, int64_t ldx, int64_t rows,
                          activation act, const float *residual)
{
    int64_t step = rows < 512 ? rows : 512;
    float *dense_x = NULL, *dense_y = NULL;
    bool ok = true;

    if (ldx != w->in && w->type == dnnl_f32)
        ok = (dense_x = pool_borrow((size_t)(step * w->in) * sizeof *dense_x)) != NULL;
    if (ldy != w->out)
        ok = ok && (dense_y = pool_borrow((size_t)(step * w->out) * sizeof *y)) != NULL;
    for (int64_t r = 0; r < rows && ok; r += step) {
        int64_t n = rows - r < step ? rows - r : step;
        const void *in = dense_x;
        if (dense_x)
            copy_rows(dense_x, w->in, (const float *)x + r * ldx, ldx, n, w->in);
        else
            in = (const char *)x + (size_t)(r * w->in) * type_size(w->type);
        if (!dense_y) {
            ok = run_plan(w, y + r * ldy, ldy, in, w->in, n, act, residual ? residual + r * ldy : NULL);
            continue;
        }
        if (residual)
            copy_rows(dense_y, w->out, residual + r * ldy, ldy, n, w->out);
        ok = run_plan(w, dense_y, w->out, in, w->in, n, act, residual ? dense_y : NULL);
        if (ok)
            copy_rows(y + r * ldy, ldy, dense_y, w->out, n, w->out);
    }
    pool_return(dense_x);
    pool_return(dense_y);
    return ok;
}

/* Rows first..first+count, from x that begins there. */
static void make_some(const gemm_weights *w, void *made, const float *x, int64_t ldx, int64_t rows, int64_t first,
                      int64_t count, activation act)
{
    const kernels *k = kernels_get();
    uint16_t *narrow = (uint16_t *)made + first * w->in;

    if (w->eight) {
        int8_make(w->eight, made, x, ldx, rows, first, count);
        return;
    }
    for (int64_t r = 0, step = ldx == w->in ? count : 1; r < count; r += step)
        if (w->type != dnnl_bf16)
            k->activate((float *)made + (first + r) * w->in, x + r * ldx, act, step * w->in);
        else if (act == ACT_NONE)
            k->to_bf16(narrow + r * w->in, x + r * ldx, step * w->in);
        else
            k->activate_to_bf16(narrow + r * w->in, x + r * ldx, act, step * w->in);
}

/* Normalised rows pass through the first cache levels, a few at a time. */
static void make_normed(const gemm_weights *w, void *made, const gemm_source *s, int64_t rows)
{
    int64_t step = GEMM_NORM_MOST / w->in;

#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r += step) {
        float few[GEMM_NORM_MOST];
        int64_t n = rows - r < step ? rows - r : step;
        bool wide = !w->eight && w->type == dnnl_f32;
        float *to = wide ? (float *)made + r * w->in : few;
        for (int64_t i = 0, at_once = s->ldx == w->in ? n : 1; i < n; i += at_once)
            kernels_get()->norm(to + i * w->in, NULL, NULL, s->x + (r + i) * s->ldx, s->gain, s->shift, at_once, w->in,
                                s->eps);
        if (!wide)
            make_some(w, made, few, w->in, rows, r, n, ACT_NONE);
    }
}

const void *gemm_rows_make(const gemm_weights *w, void *made, const gemm_source *s, int64_t rows)
{
    if (s->gain) {
        make_normed(w, made, s, rows);
        return made;
    }
    if (!w->eight && w->type == dnnl_f32 && s->act == ACT_NONE && s->ldx == w->in)
        return s->x;
    make_some(w, made, s->x, s->ldx, rows, 0, rows, s->act);
    return made;
}

size_t gemm_rows_bytes(const gemm_weights *w, int64_t rows)
{
    if (w->eight)
        return rows > 0 ? int8_scratch(w->eight, rows) : 0;
    return (size_t)rows * (size_t)w->in * type_size(w->type);
}

bool gemm_act_later(const gemm_weights *next)
{
    return !next->eight && next->type == dnnl_bf16;
}

/* x: rows as gemm_rows_make left them, but in f32 they may have gaps. */
static bool run_made(const gemm_weights *weights, float *y, int64_t ldy, const void *x, int64_t ldx, int64_t rows,
                     activation act, const float *residual)
{
    gemm_weights *w = (gemm_weights *)(uintptr_t)weights;   /* only the cache of plans changes, under its lock */

    if (w->eight) {
        int8_run(w->eight, y, ldy, x, rows, act, residual);
        return true;
    }
    if (w->packed && (ldx != w->in || ldy != w->out))
        return run_with_gaps(w, y, ldy, x, ldx, rows, act, residual);
    return run_plan(w, y, ldy, x, ldx, rows, act, residual);
}

bool gemm_run_rows(const gemm_weights *w, float *y, int64_t ldy, const void *made, int64_t rows, activation act,
                   const float *residual)
{
    return rows < 1 || run_made(w, y, ldy, made, w->in, rows, act, residual);
}

bool gemm_run(const gemm_weights *w, float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, activation act,
              const float *residual, void *scratch)
{
    const void *in = x;

    if (rows < 1)
        return true;
    if (w->eight || w->type == dnnl_bf16) {
        in = gemm_rows_make(w, scratch, &(gemm_source){.x = x, .ldx = ldx}, rows);
        ldx = w->in;
    }
    return run_made(w, y, ldy, in, ldx, rows, act, residual);
}
