/* lora.c - adapters of linear layers. */
#include "train/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "train/random.h"

#define KEY_RANK  "samite.lora.rank"
#define KEY_ALPHA "samite.lora.alpha"

/* ---- names ---- */

/* The layer's name: its weight's without ".weight"; thirds of an in_proj get _q, _k, _v. */
static char *layer_name(const linear_w *l)
{
    char full[256];
    const char *name = l->w->name;
    size_t n = strlen(name);
    if (ends_with(name, ".weight"))
        n -= strlen(".weight");
    else if (ends_with(name, "_weight"))
        n -= strlen("_weight");
    const char *third = l->w->t.dim[0] == l->out ? "" : l->first == 0 ? "_q" : l->first == l->out ? "_k" : "_v";
    snprintf(full, sizeof full, "%.*s%s", (int)n, name, third);
    return text_copy(full);
}

/* Attention and perceptron layers; small heads (boxes, presence, scores) are left alone. */
static bool adaptable(const layer *l, unsigned parts)
{
    static const char *const inside[] = {"attn.",     "ca_text.",     ".mlp.",     ".linear1.",
                                         ".linear2.", "_attn_image.", "cross_attn"};
    if (l->kind != LAYER_LINEAR || !(parts >> l->part & 1))
        return false;
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (strstr(l->linear->w->name, inside[i]))
            return true;
    return false;
}

/* ---- making ---- */

static bool make_entry(entry *e, const char *layer, const char *suffix, int64_t rows, int64_t cols, model_part part)
{
    char full[300];
    snprintf(full, sizeof full, "%s.%s.weight", layer, suffix);
    *e = (entry){.part = part};
    e->p.name = text_copy(full);
    e->p.t = (tensor){.axes = 2, .dim = {rows, cols}, .stride = cols, .param = &e->p};
    e->p.t.data = calloc((size_t)(rows * cols) + 1, sizeof(float));
    e->p.owned = true;
    return e->p.name && e->p.t.data;
}

static void free_entry(entry *e)
{
    free((char *)(uintptr_t)e->p.name);
    free(e->p.t.data);
}

static bool make_adapter(adapter *a, const layer *l, int rank, double alpha)
{
    char *name = layer_name(l->linear);
    linear_w *b = a->base = l->linear;
    bool ok = name && make_entry(&a->down, name, "lora_A", rank, b->in, l->part) &&
              make_entry(&a->up, name, "lora_B", b->out, rank, l->part);
    free(name);
    a->w = (adapter_w){{.w = &a->down.p, .in = b->in, .out = rank}, {.w = &a->up.p, .in = rank, .out = b->out},
                       (float)(alpha / rank)};
    return ok;
}

/* Uniform in +-1 / sqrt(in), as a linear layer starts. */
static void fill(entry *e, uint64_t seed, uint64_t number)
{
    int64_t n = tensor_count(&e->p.t);
    double bound = 1 / sqrt((double)e->p.t.dim[1]);
    for (int64_t i = 0; i < n; i++)
        e->p.t.data[i] = (float)(bound * (2 * (double)(random_at(seed, RANDOM_ADAPTER, number, (uint64_t)i) >> 11) /
                                              9007199254740992.0 -
                                          1));
}

int adapters_open(adapters *a, native *n, unsigned parts, int rank, double alpha, uint64_t seed, samite_error *err)
{
    registry *g = &n->net->all;
    *a = (adapters){.rank = rank, .alpha = alpha, .item = calloc(g->layer_count + 1, sizeof *a->item)};
    if (!a->item)
        return fail(err, SAMITE_RESOURCE, "not enough memory for adapters");
    for (size_t i = 0; i < g->layer_count; i++) {
        const layer *l = &g->layers[i];
        if (!adaptable(l, parts))
            continue;
        adapter *one = &a->item[a->count++];
        if (!make_adapter(one, l, rank, alpha)) {
            adapters_close(a);
            return fail(err, SAMITE_RESOURCE, "not enough memory for adapters of rank %d", rank);
        }
        fill(&one->down, seed, i);
        one->base->adapter = &one->w;
    }
    if (a->count)
        return 0;
    adapters_close(a);
    return fail(err, SAMITE_USAGE, "lora.rank is set, but all parts that take adapters are frozen");
}

void adapters_close(adapters *a)
{
    for (int i = 0; i < a->count; i++) {
        if (a->item[i].base)
            a->item[i].base->adapter = NULL;
        free_entry(&a->item[i].down);
        free_entry(&a->item[i].up);
    }
    free(a->item);
    *a = (adapters){0};
}

/* ---- files ---- */

static weight planned(const entry *e)
{
    weight w = {.name = e->p.name, .type = DT_F32, .axes = 2, .dim = {e->p.t.dim[0], e->p.t.dim[1]}};
    weight_set_strides(&w);
    return w;
}

int adapters_write(const adapters *a, const char *path, samite_error *err)
{
    char rank[32], alpha[32];
    snprintf(rank, sizeof rank, "%d", a->rank);
    snprintf(alpha, sizeof alpha, "%.17g", a->alpha);
    char rank_key[] = KEY_RANK, alpha_key[] = KEY_ALPHA;
    text_pair meta[] = {{rank_key, rank}, {alpha_key, alpha}};
    weight *plan = calloc((size_t)a->count * 2 + 1, sizeof *plan);
    safetensors_writer w;
    if (!plan)
        return fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    for (int i = 0; i < a->count; i++) {
        plan[2 * i] = planned(&a->item[i].down);
        plan[2 * i + 1] = planned(&a->item[i].up);
    }
    int code = safetensors_create(&w, path, plan, (size_t)a->count * 2, meta, 2, err);
    for (int i = 0; i < a->count && !code; i++) {
        const entry *e[] = {&a->item[i].down, &a->item[i].up};
        for (int k = 0; k < 2; k++)
            safetensors_put(&w, e[k]->p.t.data, sizeof(float) * (size_t)tensor_count(&e[k]->p.t));
    }
    free(plan);
    return code ? code : safetensors_commit(&w, err);
}

static const weight *listed(const tensor_list *l, const char *layer, const char *suffix)
{
    size_t n = strlen(layer);
    for (size_t i = 0; i < l->count; i++) {
        const char *name = l->items[i].name;
        if (strncmp(name, layer, n) == 0 && name[n] == '.' && starts_with(name + n + 1, suffix) &&
            strcmp(name + n + 1 + strlen(suffix), ".weight") == 0)
            return &l->items[i];
    }
    return NULL;
}

static const char *noted(const tensor_list *l, const char *key)
{
    for (size_t i = 0; i < l->note_count; i++)
        if (strcmp(l->notes[i].key, key) == 0)
            return l->notes[i].value;
    return NULL;
}

/* w [out, in] += scale up down. */
static bool add_product(float *w, const weight *down, const weight *up, float by)
{
    int64_t rank = down->dim[0], in = down->dim[1], out = up->dim[0];
    float *a = malloc(sizeof(float) * (size_t)(rank * in + 1)), *b = malloc(sizeof(float) * (size_t)(out * rank + 1));
    bool ok = a && b;
    if (ok) {
        weight_to_f32(a, down);
        weight_to_f32(b, up);
        ok = gemm(false, false, out, in, rank, by, b, rank, a, in, 1, w, in);
    }
    free(a);
    free(b);
    return ok;
}

/* The parameter gets values of its own, which native_write prefers. */
static bool own_values(native *n, param *p)
{
    if (p->trainable)
        return true;
    float *values = native_values(n, (entry *)p);
    if (!values)
        return false;
    if (p->owned)
        free(p->t.data);
    p->t.data = values;
    p->owned = p->trainable = true;
    return true;
}

static int merge_layer(native *n, const layer *l, const tensor_list *list, float by, const char *path, int *count,
                       samite_error *err)
{
    const linear_w *b = l->linear;
    char *name = layer_name(b);
    const weight *down = name ? listed(list, name, "lora_A") : NULL, *up = name ? listed(list, name, "lora_B") : NULL;
    int code = name ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to merge %s", path);
    if (!code && down && up) {
        *count += 1;
        if (down->axes != 2 || up->axes != 2 || down->dim[1] != b->in || up->dim[0] != b->out ||
            up->dim[1] != down->dim[0])
            code = fail(err, SAMITE_INPUT,
                        "%s: the adapter of %s does not fit a layer of %lld to %lld; it belongs to another model", path,
                        name, (long long)b->in, (long long)b->out);
        else if (!own_values(n, b->w) ||
                 !add_product(b->w->t.data + b->first * b->in, down, up, by / (float)down->dim[0]))
            code = fail(err, SAMITE_RESOURCE, "not enough memory to merge %s", path);
    }
    free(name);
    return code;
}

int adapters_merge(native *n, const char *path, int *count, samite_error *err)
{
    registry *g = &n->net->all;
    file_map map;
    tensor_list list = {0};
    *count = 0;
    int code = file_map_open(&map, path, err);
    if (code)
        return code;
    if (!safetensors_detect(map.data, map.size))
        code = fail(err, SAMITE_INPUT, "%s is no safetensors file; expected an adapter that samite train wrote", path);
    else
        code = safetensors_read(&list, map.data, map.size, path, err);
    const char *alpha = code ? NULL : noted(&list, KEY_ALPHA);
    double by = alpha ? strtod(alpha, NULL) : NAN;
    if (!code && !isfinite(by))
        code =
            fail(err, SAMITE_INPUT,
                 "%s does not say its alpha (metadata %s); is it an adapter that samite train wrote?", path, KEY_ALPHA);
    for (size_t i = 0; i < g->layer_count && !code; i++)
        if (g->layers[i].kind == LAYER_LINEAR)
            code = merge_layer(n, &g->layers[i], &list, (float)by, path, count, err);
    if (!code && !*count)
        code = fail(err, SAMITE_INPUT, "%s has no adapter for any layer of %s", path, n->source);
    tensor_list_free(&list);
    file_map_close(&map);
    return code;
}
