/* conv.c - convolutions over channels-last images with weights packed once: oneDNN, plans cached per image size. */
#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/onednn.h"
#include "kernels/pool.h"
#include "kernels/winograd.h"

enum { PLANS = 12, PACKS = 4, REPRESENTATIVE = 144 };

typedef struct conv_key { int64_t batch, height, width; activation act; int threads; } conv_key;

typedef struct conv_plan {
    conv_key key;
    dnnl_memory_desc_t x, y, scratch;
    dnnl_primitive_t run;
    int pack;               /* which of the packs it reads */
    int refs;               /* users and the cache; guarded by the lock */
    uint64_t last_use;
} conv_plan;

struct conv_weights {
    conv_shape shape;
    winograd_weights *tiles;    /* where that pays: then nothing below is used */
    dnnl_data_type_t type;
    float *bias;
    dnnl_memory_desc_t bias_desc;
    pthread_mutex_t lock;
    /* oneDNN may want another format for another image size: the first pack holds the weights, the others are copies */
    dnnl_memory_t packs[PACKS];
    dnnl_memory_desc_t pack_desc[PACKS];
    int pack_count;
    conv_plan *plans[PLANS];
    uint64_t clock;
};

static bool shape_valid(const conv_shape *s)
{
    return s->in > 0 && s->out > 0 && s->kernel > 0 && s->stride > 0 && s->pad >= 0 && s->groups > 0 &&
           s->in <= 1 << 20 && s->out <= 1 << 20 && s->kernel <= 1024 && s->stride <= 1024 && s->pad <= 1024 &&
           s->in % s->groups == 0 && s->out % s->groups == 0;
}

/* The weights as PyTorch stores them, or, with tag any, as oneDNN likes them. */
static bool weights_desc(dnnl_memory_desc_t *d, const conv_shape *s, dnnl_data_type_t type, bool any)
{
    const int64_t grouped[] = {s->groups, s->out / s->groups, s->in / s->groups, s->kernel, s->kernel};

    if (s->groups > 1)
        return onednn_tensor(d, 5, grouped, type, any ? dnnl_format_tag_any : dnnl_abcde);
    return onednn_tensor(d, 4, (const int64_t[]){s->out, s->in, s->kernel, s->kernel}, type,
                         any ? dnnl_format_tag_any : dnnl_abcd);
}

static void plan_forget(conv_plan *p)
{
    onednn_forget(&p->x);
    onednn_forget(&p->y);
    onednn_forget(&p->scratch);
}

/* Describes the convolution for one image size. `weights` is a fixed format or NULL for the best. */
static bool describe(dnnl_primitive_desc_t *pd, conv_plan *p, const conv_weights *w, const dnnl_memory_desc_t *weights)
{
    const conv_shape *s = &w->shape;
    const conv_key *key = &p->key;
    const int64_t x[] = {key->batch, s->in, key->height, key->width};
    const int64_t y[] = {key->batch, s->out, (key->height + 2 * s->pad - s->kernel) / s->stride + 1,
                         (key->width + 2 * s->pad - s->kernel) / s->stride + 1};
    dnnl_memory_desc_t any = {0};
    dnnl_primitive_attr_t attr = onednn_epilogue(key->act, false, NULL);
    bool ok;

    *pd = NULL;
    plan_forget(p);
    ok = attr && onednn_tensor(&p->x, 4, x, w->type, dnnl_acdb) && onednn_tensor(&p->y, 4, y, dnnl_f32, dnnl_acdb) &&
         weights_desc(&any, s, w->type, true) &&
         onednn_convolution(pd, &p->x, weights ? weights : &any, w->bias ? &w->bias_desc : NULL, &p->y, s->stride, s->pad,
                            attr);
    onednn_forget(&any);
    dnnl_primitive_attr_destroy(attr);
    return ok;
}

/* With the lock held: the number of a pack in the wanted format, which this takes over, made from the first when new.
 * -1: cannot be had. */
static int pack_for(conv_weights *w, dnnl_memory_desc_t *wanted)
{
    void *data;

    for (int i = 0; i < w->pack_count; i++)
        if (onednn_same(&w->pack_desc[i], wanted)) {
            onednn_forget(wanted);
            return i;
        }
    if (w->pack_count == PACKS || dnnl_memory_get_data_handle(w->packs[0], &data) != dnnl_success ||
        !onednn_reorder(&w->packs[w->pack_count], wanted, &w->pack_desc[0], data)) {
        onednn_forget(wanted);
        return -1;
    }
    w->pack_desc[w->pack_count] = *wanted;
    return w->pack_count++;
}

/* With the lock held. Falls back on the first pack's format where the best one cannot be had. */
static conv_plan *plan_build(conv_weights *w, const conv_key *key)
{
    conv_plan *p = calloc(1, sizeof *p);
    dnnl_primitive_desc_t pd = NULL;
    dnnl_memory_desc_t wanted = {0};
    bool ok;

    if (!p)
        return NULL;
    p->key = *key;
    ok = describe(&pd, p, w, NULL) && onednn_wanted(&wanted, pd);
    p->pack = ok ? pack_for(w, &wanted) : -1;
    if (p->pack < 0) {
        dnnl_primitive_desc_destroy(pd);
        p->pack = 0;
        ok = describe(&pd, p, w, &w->pack_desc[0]);
    }
    ok = ok && onednn_scratch(&p->scratch, pd) && dnnl_primitive_create(&p->run, pd) == dnnl_success;
    dnnl_primitive_desc_destroy(pd);
    if (!ok) {
        plan_forget(p);
        free(p);
        return NULL;
    }
    return p;
}

static void plan_drop(conv_plan *p)
{
    if (!p || --p->refs > 0)
        return;
    dnnl_primitive_destroy(p->run);
    plan_forget(p);
    free(p);
}

static bool same_key(const conv_key *a, const conv_key *b)
{
    return a->batch == b->batch && a->height == b->height && a->width == b->width && a->act == b->act &&
           a->threads == b->threads;
}

/* With the lock held: the plan of `key` with one more reference; the one unused for longest makes room. */
static conv_plan *plan_get(conv_weights *w, const conv_key *key)
{
    int slot = 0;

    for (int i = 0; i < PLANS; i++) {
        conv_plan *p = w->plans[i];
        if (p && same_key(&p->key, key)) {
            p->refs++;
            p->last_use = ++w->clock;
            return p;
        }
        if (w->plans[slot] && (!p || p->last_use < w->plans[slot]->last_use))
            slot = i;
    }
    conv_plan *p = plan_build(w, key);
    if (p) {
        plan_drop(w->plans[slot]);
        w->plans[slot] = p;
        p->refs = 2;
        p->last_use = ++w->clock;
    }
    return p;
}

conv_weights *conv_pack(const float *src, const float *bias, const conv_shape *s, gemm_type type)
{
    conv_weights *w;
    conv_plan p = {.key = {1, REPRESENTATIVE, REPRESENTATIVE, ACT_NONE, 0}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_memory_desc_t from = {0};
    bool ok;

    if (!shape_valid(s) || !onednn_ready())
        return NULL;
    w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    w->shape = *s;
    w->type = type != GEMM_F32 && onednn_has_bf16() ? dnnl_bf16 : dnnl_f32;
    if (winograd_pays(s, w->type == dnnl_bf16)) {
        w->tiles = winograd_pack(src, bias, s, w->type == dnnl_bf16);
        if (w->tiles)
            return w;
        conv_weights_free(w);
        return NULL;
    }
    if (s->kernel > REPRESENTATIVE)
        p.key.height = p.key.width = s->kernel;
    if (bias && (w->bias = malloc((size_t)s->out * sizeof *bias)))
        memcpy(w->bias, bias, (size_t)s->out * sizeof *bias);
    ok = (!bias || w->bias) &&
         onednn_tensor(&w->bias_desc, 1, &s->out, dnnl_f32, dnnl_a) && weights_desc(&from, s, dnnl_f32, false) &&
         describe(&pd, &p, w, NULL) && onednn_wanted(&w->pack_desc[0], pd) &&
         onednn_reorder(&w->packs[0], &w->pack_desc[0], &from, src);
    w->pack_count = ok;
    dnnl_primitive_desc_destroy(pd);
    plan_forget(&p);
    onednn_forget(&from);
    if (!ok) {
        conv_weights_free(w);
        return NULL;
    }
    return w;
}

void conv_weights_free(conv_weights *w)
{
    if (!w)
        return;
    for (int i = 0; i < PLANS; i++)
        plan_drop(w->plans[i]);
    for (int i = 0; i < w->pack_count; i++)
        dnnl_memory_destroy(w->packs[i]);
    for (int i = 0; i < PACKS; i++)
        onednn_forget(&w->pack_desc[i]);
    onednn_forget(&w->bias_desc);
    winograd_free(w->tiles);
    pthread_mutex_destroy(&w->lock);
    free(w->bias);
    free(w);
}

size_t conv_weights_bytes(const conv_weights *w)
{
    size_t bytes = w->bias ? (size_t)w->shape.out * sizeof *w->bias : 0;

    if (w->tiles)
        return winograd_bytes(w->tiles);
    for (int i = 0; i < w->pack_count; i++)
        bytes += onednn_bytes(&w->pack_desc[i]);
    return bytes;
}

static bool execute(const conv_weights *w, const conv_plan *p, float *y, const void *x)
{
    dnnl_memory_t mx, my = NULL, mb = NULL;
    bool ok = onednn_wrap(&mx, &p->x, x) && onednn_wrap(&my, &p->y, y) &&
              (!w->bias || onednn_wrap(&mb, &w->bias_desc, w->bias));

    if (ok) {
        dnnl_exec_arg_t args[5] = {
            {DNNL_ARG_SRC, mx}, {DNNL_ARG_WEIGHTS, w->packs[p->pack]}, {DNNL_ARG_DST, my}, {DNNL_ARG_BIAS, mb}};
        ok = onednn_execute(p->run, &p->scratch, args, mb ? 4 : 3);
    }
    dnnl_memory_destroy(mx);
    dnnl_memory_destroy(my);
    dnnl_memory_destroy(mb);
    return ok;
}

/* oneDNN makes an inner product of a kernel as large as the picture, and lets the number of threads decide how its sums
 * are split: there one thread computes, which is enough for a single pixel. */
static int threads_for(const conv_shape *s, int64_t height, int64_t width)
{
    return height == s->kernel && width == s->kernel && s->pad == 0 ? 1 : omp_get_max_threads();
}

bool conv_run(const conv_weights *weights, float *y, const float *x, int64_t batch, int64_t height, int64_t width,
              activation act)
{
    conv_weights *w = (conv_weights *)(uintptr_t)weights;   /* only the caches change, under the lock */
    int threads = omp_get_max_threads();
    conv_key key = {batch, height, width, act, threads_for(&w->shape, height, width)};
    int64_t count = batch * height * width * w->shape.in;
    const void *in = x;
    uint16_t *narrow = NULL;
    conv_plan *p;
    bool ok;

    if (batch < 1 || height + 2 * w->shape.pad < w->shape.kernel || width + 2 * w->shape.pad < w->shape.kernel)
        return batch == 0;
    if (w->tiles) {
        if (!winograd_conv(w->tiles, y, x, batch, height, width))
            return false;
        if (act != ACT_NONE)
            kernels_get()->activate(y, y, act, batch * height * width * w->shape.out);
        return true;
    }
    if (w->type == dnnl_bf16) {
        narrow = pool_borrow((size_t)count * sizeof *narrow);
        if (!narrow)
            return false;
        kernels_get()->to_bf16(narrow, x, count);
        in = narrow;
    }
    omp_set_num_threads(key.threads);
    pthread_mutex_lock(&w->lock);
    p = plan_get(w, &key);
    pthread_mutex_unlock(&w->lock);
    ok = p && execute(w, p, y, in);
    omp_set_num_threads(threads);
    pthread_mutex_lock(&w->lock);
    plan_drop(p);
    pthread_mutex_unlock(&w->lock);
    pool_return(narrow);
    return ok;
}
