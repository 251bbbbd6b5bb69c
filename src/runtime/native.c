/* native.c - opens a checkpoint, checks that everything needed is there, and packs parts on first use. */
#include "runtime/native.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "formats/formula.h"
#include "runtime/config_file.h"
#include "runtime/fingerprint.h"

/* "formula:NAME[,seed=N]" */
static int open_formula(native *n, config *c, const char *path, samite_error *err)
{
    char name[32] = "";
    const char *rest = path + strlen("formula:"), *comma = strchr(rest, ',');
    size_t size = comma ? (size_t)(comma - rest) : strlen(rest);
    if (size < sizeof name)
        memcpy(name, rest, size);
    if (!config_preset(c, name))
        return fail(err, SAMITE_USAGE, "%s: a formula model is one of tiny, small, full", path);
    if (!comma)
        return 0;
    char *end;
    const char *digits = comma + strlen(",seed=");
    errno = 0;
    n->seed = starts_with(comma, ",seed=") ? strtoull(digits, &end, 10) : 0;
    if (!starts_with(comma, ",seed=") || end == digits || *end || *digits < '0' || *digits > '9' || errno)
        return fail(err, SAMITE_USAGE, "%s: after the size only ,seed=N is understood, N from 0 to 2^64 - 1", path);
    return 0;
}

static bool same_shape(const entry *e, const weight *w)
{
    if (e->p.t.axes != w->axes)
        return false;
    for (int i = 0; i < w->axes; i++)
        if (e->p.t.dim[i] != w->dim[i])
            return false;
    return true;
}

static void describe_misfit(char *out, size_t room, const entry *e, const weight *w)
{
    weight expected = {.axes = e->p.t.axes};
    memcpy(expected.dim, e->p.t.dim, sizeof e->p.t.dim);
    char a[96], b[96];
    snprintf(out, room, "%.110s has shape %.50s, expected %.50s", e->p.name, weight_shape(w, a, sizeof a),
             weight_shape(&expected, b, sizeof b));
}

/* Without these nothing works. */
static bool needed(model_part p)
{
    return p <= PART_DECODER;
}

static int refuse_missing(const native *n, const entry *const *first, int shown, uint64_t count, samite_error *err)
{
    const char *why = weights_refusal(n->file, first[0]->p.name);
    if (why)
        return fail(err, SAMITE_INPUT, "%s: tensor %s %s", n->source, first[0]->p.name, why);
    text names = {0};
    for (int i = 0; i < shown; i++)
        text_printf(&names, "%s%s", i ? ", " : "", first[i]->p.name);
    int code = fail(err, SAMITE_INPUT, "%s: %llu tensors that SAM 3 needs are missing (%s%s); the file looks like %s. "
                    "Give the official sam3.pt or a complete fine-tuned file", n->source, (unsigned long long)count,
                    names.data ? names.data : "", count > (uint64_t)shown ? ", ..." : "", weights_guess(n->file));
    text_free(&names);
    return code;
}

/* Computed tables (rotary codes) are nothing to mention, and scales belong to their tensors. */
static uint64_t plain_tensors(const weights *w)
{
    uint64_t n = 0;
    for (size_t i = 0; i < weights_count(w); i++)
        n += weights_at(w, i)->type != DT_C64 && !weights_is_scale(w, weights_at(w, i));
    return n;
}

/* A tensor of the network in 8 bits must have its scales. */
static int take_narrow(native *n, entry *e, const weight *w, samite_error *err)
{
    e->eight = w->type == DT_I8;
    n->calibrated |= e->eight;
    if (!e->eight || w->scale)
        return 0;
    return fail(err, SAMITE_INPUT, "%s: tensor %s is in 8 bits, but its scales are missing: expected a tensor "
                "%s_scale; make the file again with samite convert --dtype int8", n->source, e->p.name, e->p.name);
}

/* Looks every tensor of the network up in the file. */
static int bind(native *n, samite_error *err)
{
    registry *g = &n->net->all;
    const entry *first[3];
    uint64_t lacking = 0;
    int shown = 0;
    for (int p = 0; p < PART_COUNT; p++)
        n->available[p] = true;
    for (size_t i = 0; i < g->count; i++) {
        entry *e = g->entries[i];
        const weight *w = weights_find(n->file, e->p.name);
        if (w && !same_shape(e, w)) {
            describe_misfit(n->misfit, sizeof n->misfit, e, w);
            if (needed(e->part))
                return fail(err, SAMITE_INPUT, "%s: tensor %s", n->source, n->misfit);
            w = NULL;
        }
        if (w && take_narrow(n, e, w, err))
            return SAMITE_INPUT;
        n->loaded += w != NULL;
        e->missing = !w;
        if (w || e->unused)
            continue;
        n->missing++;
        n->available[e->part] = false;
        if (!needed(e->part))
            continue;
        if (shown < 3)
            first[shown++] = e;
        lacking++;
    }
    n->ignored = plain_tensors(n->file) - n->loaded;
    return lacking ? refuse_missing(n, first, shown, lacking, err) : 0;
}

static int choose_side(config *c, int side, samite_error *err)
{
    if (!side)
        return 0;
    if (!config_side_valid(c, side)) {
        int step = c->patch * c->vit_window;
        return fail(err, SAMITE_USAGE, "an input side of %d pixels does not work: it must be a multiple of %d (patch %d x "
                    "window %d), for example %d, %d or %d", side, step, c->patch, c->vit_window, step, 2 * step, 3 * step);
    }
    c->image = side;
    return 0;
}

static const char *const precisions[] = {[GEMM_F32] = "f32", [GEMM_BF16] = "bf16", [GEMM_INT8] = "int8"};

const char *native_precision(const native *n)
{
    return precisions[n->type];
}

static int choose_precision(native *n, const char *name, samite_error *err)
{
    n->type = GEMM_F32;
    if (name ? strcmp(name, "auto") == 0 : n->calibrated) {
        n->type = gemm_fastest(n->calibrated);
        return 0;
    }
    for (int t = GEMM_F32; name && t <= GEMM_INT8; t++)
        if (strcmp(name, precisions[t]) == 0) {
            n->type = (gemm_type)t;
            return 0;
        }
    return name ? fail(err, SAMITE_USAGE, "precision '%s' is unknown: f32, bf16, int8 or auto", name) : 0;
}

static int open_into(native *n, const char *path, const native_options *o, samite_error *err)
{
    config c;
    int code;
    if (!(n->source = text_copy(path)))
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", path);
    bool formula = starts_with(path, "formula:");
    if (formula) {
        if ((code = open_formula(n, &c, path, err)))
            return code;
    } else if ((code = weights_open(&n->file, path, err)) || (code = config_from_weights(&c, n->file, err))) {
        return code;
    }
    if ((code = choose_side(&c, o->side, err)) || (code = sam3_open(&n->net, &c, err)))
        return code;
    if (!formula && (code = bind(n, err)))
        return code;
    if ((code = choose_precision(n, o->precision, err)) || !formula)
        return code;
    for (int p = 0; p < PART_COUNT; p++)
        n->available[p] = true;
    n->loaded = n->net->all.count;
    return 0;
}

/* Packed weights are worth keeping for files only: a formula is made, not read. Failing to is harmless. */
static void open_cache(native *n, const native_options *o)
{
    char key[128];
    if (!o->cache || !*o->cache || !n->file)
        return;
    snprintf(key, sizeof key, "type %d; weights %016" PRIx64 " %016" PRIx64, (int)n->type, native_fingerprint(n),
             weights_stamp(n->file));
    n->cache = pack_cache_open(o->cache, key, o->cache_least ? o->cache_least : (size_t)16 << 20);
}

int native_open(native **out, const char *path, const native_options *o, samite_error *err)
{
    *out = NULL;
    native *n = calloc(1, sizeof *n);
    if (!n)
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", path);
    pthread_mutex_init(&n->lock, NULL);
    int code = open_into(n, path, o, err);
    if (code) {
        native_close(n);
        return code;
    }
    open_cache(n, o);
    if (n->file)
        weights_rest(n->file);
    *out = n;
    return 0;
}

int native_open_empty(native **out, const char *source, const config *c, samite_error *err)
{
    native *n = calloc(1, sizeof *n);
    *out = NULL;
    if (!n)
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", source);
    pthread_mutex_init(&n->lock, NULL);
    n->source = text_copy(source);
    int code = n->source ? sam3_open(&n->net, c, err) : fail(err, SAMITE_RESOURCE, "not enough memory to open %s", source);
    for (size_t i = 0; !code && i < n->net->all.count; i++)
        n->net->all.entries[i]->missing = true;
    if (code) {
        native_close(n);
        return code;
    }
    *out = n;
    return 0;
}

void native_close(native *n)
{
    if (!n)
        return;
    if (n->cache)
        pack_cache_finish(n->cache, NULL);
    sam3_close(n->net);
    pack_cache_close(n->cache);
    weights_close(n->file);
    free(n->source);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

float *native_values(const native *n, const entry *e)
{
    const tensor *t = &e->p.t;
    float *values = malloc(sizeof(float) * (size_t)(tensor_count(t) ? tensor_count(t) : 1));
    if (!values)
        return NULL;
    if (n->file)
        weight_to_f32(values, weights_find(n->file, e->p.name));
    else
        formula_fill(values, e->p.name, t->axes, t->dim, n->seed);
    return values;
}

/* A param is the first member of its registry entry, hence the casts below.
 * Gives the tensor its values: straight from the mapped file where that holds aligned f32, else converted. */
static bool materialise(const native *n, param *p)
{
    entry *e = (entry *)p;
    if (p->t.data || p->narrow || e->missing)
        return true;
    const weight *w = n->file ? weights_find(n->file, p->name) : NULL;
    if (w && w->type == DT_F32 && weight_contiguous(w) && (uintptr_t)w->data % sizeof(float) == 0) {
        p->t.data = (float *)(uintptr_t)w->data;
        return true;
    }
    if (w && p == n->net->text.tokens && n->type != GEMM_F32 && w->type == DT_BF16 && weight_contiguous(w) &&
        (uintptr_t)w->data % sizeof *p->narrow == 0) {
        p->narrow = w->data;     /* few of many rows are read: not worth a copy */
        return true;
    }
    p->t.data = native_values(n, e);
    p->owned = p->t.data != NULL;
    if (p->owned && w && weight_contiguous(w))
        file_map_drop(w->data, weight_bytes(w));
    return p->owned;
}

/* A layer has packed the tensor: when it was the last one, its values are no longer needed. */
static void release(param *p)
{
    entry *e = (entry *)p;
    if (--e->packers > 0 || e->raw)
        return;
    if (p->owned)
        free(p->t.data);
    else
        file_map_drop(p->t.data, sizeof(float) * (size_t)tensor_count(&p->t));
    p->t.data = NULL;
    p->owned = false;
}

/* Keys and values that the examples and the queries find in the picture: as many rows as it has tokens. */
static bool reads_picture(const native *n, const linear_w *w)
{
    for (int i = 0; i < n->net->decoder.layers; i++)
        if (w == &n->net->decoder.layer[i].image.k || w == &n->net->decoder.layer[i].image.v)
            return true;
    for (int i = 0; i < n->net->geometry.layers; i++)
        if (w == &n->net->geometry.layer[i].cross.k || w == &n->net->geometry.layer[i].cross.v)
            return true;
    return false;
}

/* Small heads stay in f32: they cost nothing and decide scores and boxes. In int8 are the big products of the two towers
 * and of the fusion encoder, which are nearly all the work. */
gemm_type native_layer_type(const native *n, const layer *l, gemm_type type)
{
    if (l->part == PART_DECODER || l->part == PART_GEOMETRY || l->part == PART_CLICK)
        return type != GEMM_F32 && l->kind == LAYER_LINEAR && reads_picture(n, l->linear) ? GEMM_BF16 : GEMM_F32;
    bool big = l->kind == LAYER_LINEAR && (l->part == PART_TRUNK || l->part == PART_TEXT || l->part == PART_FUSION);
    bool fit = big && l->linear != &n->net->trunk.patch_embed && (!n->calibrated || ((entry *)l->linear->w)->eight);
    return type == GEMM_INT8 && !fit ? GEMM_BF16 : type;
}

static gemm_type type_of(const native *n, const layer *l)
{
    return native_layer_type(n, l, n->type);
}

static bool layer_ready(const layer *l)
{
    return l->kind == LAYER_LINEAR ? l->linear->packed != NULL
         : l->kind == LAYER_CONV ? l->conv->packed != NULL : l->up->packed != NULL;
}

/* The tensor of an 8-bit layer that the file holds in 8 bits, or NULL. */
static const weight *narrow_tensor(const native *n, const layer *l)
{
    const entry *e = l->kind == LAYER_LINEAR ? (const entry *)l->linear->w : NULL;
    if (!n->file || !e || !e->eight || e->missing || type_of(n, l) != GEMM_INT8 || !gemm_has(GEMM_INT8))
        return NULL;
    const weight *w = weights_find(n->file, e->p.name);
    return weight_contiguous(w) ? w : NULL;
}

/* Packs rows of `w` without making f32 of them. */
static bool pack_narrow(linear_w *l, const weight *w)
{
    float *scale = malloc((size_t)l->out * sizeof *scale);
    if (!scale)
        return false;
    memcpy(scale, (const char *)w->scale + (size_t)l->first * sizeof *scale, (size_t)l->out * sizeof *scale);
    l->packed = gemm_pack_rows8((const int8_t *)w->data + l->first * l->in, scale,
                                l->b ? l->b->t.data + l->first : NULL, l->out, l->in);
    free(scale);
    return l->packed != NULL;
}

static bool prepare_layer(native *n, layer *l)
{
    param *w = l->kind == LAYER_LINEAR ? l->linear->w : l->kind == LAYER_CONV ? l->conv->w : l->up->w;
    param *b = l->kind == LAYER_LINEAR ? l->linear->b : l->kind == LAYER_CONV ? l->conv->b : l->up->b;
    if (layer_ready(l) || ((entry *)w)->missing)
        return true;
    gemm_type type = type_of(n, l);
    const linear_w *then = l->kind == LAYER_UP ? l->up->then : NULL;
    const weight *narrow = narrow_tensor(n, l);
    if ((!narrow && !materialise(n, w)) || (b && !materialise(n, b)) || (then && !then->packed &&
        (!materialise(n, then->w) || (then->b && !materialise(n, then->b)))))
        return false;
    bool ok = narrow ? pack_narrow(l->linear, narrow) : l->kind == LAYER_LINEAR ? linear_pack(l->linear, type)
            : l->kind == LAYER_CONV ? conv_w_pack(l->conv, type) : up_w_pack(l->up, type);
    if (!ok)
        return false;
    release(w);
    if (narrow && ((entry *)w)->packers == 0)
        file_map_drop(narrow->data, weight_bytes(narrow));
    if (b)
        release(b);
    return true;
}

static uint64_t layers_in(const registry *g, unsigned parts)
{
    uint64_t n = 0;
    for (size_t i = 0; i < g->layer_count; i++)
        n += parts >> g->layers[i].part & 1;
    return n;
}

/* The packed products of a part, in the order of the registry; yours to free. NULL: out of memory, or the part has an
 * enlargement, which folds another layer into itself and wants the values of both. */
static pack_item *products_of(const native *n, int part, size_t *count)
{
    const registry *g = &n->net->all;
    pack_item *list = malloc(sizeof *list * (g->layer_count + 1));
    *count = 0;
    for (size_t i = 0; list && i < g->layer_count; i++) {
        layer *l = &g->layers[i];
        if ((int)l->part != part || l->kind == LAYER_CONV)
            continue;
        if (l->kind == LAYER_UP) {
            free(list);
            return NULL;
        }
        list[(*count)++] = (pack_item){&l->linear->packed, l->linear->out, l->linear->in, l->linear->b != NULL,
                                       type_of(n, l)};
    }
    return list;
}

/* Takes the part's products from the cache. What is missing in the file of the model is in none of the cache's either. */
static void take_from_cache(native *n, int part)
{
    size_t count;
    pack_item *list = n->cache ? products_of(n, part, &count) : NULL;
    bool fresh = list != NULL;
    for (size_t i = 0; fresh && i < count; i++)
        fresh = !*list[i].packed;
    if (fresh && pack_cache_take(n->cache, part, list, count))
        n->mapped |= 1u << part;
    free(list);
}

static void put_into_cache(native *n, int part)
{
    size_t count;
    pack_item *list = n->cache && !(n->mapped >> part & 1) ? products_of(n, part, &count) : NULL;
    bool whole = list != NULL;
    for (size_t i = 0; whole && i < count; i++)
        whole = *list[i].packed != NULL;
    if (whole)
        pack_cache_put(n->cache, part, list, count);
    free(list);
}

static int prepare_locked(native *n, unsigned parts, native_progress progress, void *user, samite_error *err)
{
    registry *g = &n->net->all;
    uint64_t total = layers_in(g, parts), done = 0;
    for (size_t i = 0; i < g->count; i++)
        if (parts >> g->entries[i]->part & 1 && g->entries[i]->raw && !materialise(n, &g->entries[i]->p))
            return fail(err, SAMITE_RESOURCE, "not enough memory for the weights of %s", n->source);
    for (size_t i = 0; i < g->layer_count; i++) {
        layer *l = &g->layers[i];
        if (!(parts >> l->part & 1))
            continue;
        if (progress && progress(user, done, total))
            return fail(err, SAMITE_CANCELLED, "stopped");
        if (!prepare_layer(n, l))
            return fail(err, SAMITE_RESOURCE, "not enough memory for the weights of the %s of %s",
                        model_part_name(l->part), n->source);
        done++;
    }
    return 0;
}

static int prepare_part(native *n, int part, native_progress progress, void *user, samite_error *err)
{
    take_from_cache(n, part);
    int code = prepare_locked(n, 1u << part, progress, user, err);
    if (!code)
        put_into_cache(n, part);
    return code;
}

/* Counts of packers begin anew: the values are read again. */
static void release_layer(layer *l)
{
    param *w = l->kind == LAYER_CONV ? l->conv->w : l->kind == LAYER_LINEAR ? l->linear->w : l->up->w;
    param *b = l->kind == LAYER_CONV ? l->conv->b : l->kind == LAYER_LINEAR ? l->linear->b : l->up->b;
    if (!layer_ready(l) || l->kind == LAYER_UP)
        return;
    if (l->kind == LAYER_CONV) {
        conv_weights_free(l->conv->packed);
        l->conv->packed = NULL;
    } else {
        gemm_weights_free(l->linear->packed);
        l->linear->packed = NULL;
    }
    ((entry *)w)->packers++;
    if (b)
        ((entry *)b)->packers++;
}

void native_release(native *n, unsigned parts)
{
    registry *g = &n->net->all;
    pthread_mutex_lock(&n->lock);
    for (int p = 0; p < PART_COUNT; p++) {
        if (!(parts >> p & 1) || !n->ready[p])
            continue;
        if (n->mapped >> p & 1) {
            pack_cache_drop(n->cache, p);
            continue;
        }
        if (n->cache)
            pack_cache_settle(n->cache, p);
        for (size_t i = 0; i < g->layer_count; i++)
            if ((int)g->layers[i].part == p)
                release_layer(&g->layers[i]);
        n->ready[p] = false;
    }
    pthread_mutex_unlock(&n->lock);
}

int native_keep(native *n, samite_error *err)
{
    return n->cache ? pack_cache_finish(n->cache, err) : SAMITE_OK;
}

bool native_has(const native *n, unsigned parts)
{
    for (int p = 0; p < PART_COUNT; p++)
        if (parts >> p & 1 && !n->available[p])
            return false;
    return true;
}

int native_prepare(native *n, unsigned parts, native_progress progress, void *user, samite_error *err)
{
    int code = 0;
    pthread_mutex_lock(&n->lock);
    for (int p = 0; p < PART_COUNT && !code; p++) {
        if (!(parts >> p & 1) || n->ready[p])
            continue;
        if (!n->available[p])
            code = fail(err, SAMITE_INPUT, "%s has no %s, which this needs", n->source, model_part_name((model_part)p));
        else
            code = prepare_part(n, p, progress, user, err);
        n->ready[p] = !code;
    }
    pthread_mutex_unlock(&n->lock);
    return code;
}
