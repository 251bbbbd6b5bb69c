/* registry.c - declares tensors and layers by their official names. */
#include "model/registry.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *model_part_name(model_part p)
{
    static const char *const names[PART_COUNT] = {
        "image trunk", "image neck", "text encoder", "example encoder", "fusion encoder", "decoder", "mask head",
        "tracker neck", "click decoder", "tracker memory"};
    return names[p];
}

void registry_free(registry *g)
{
    for (size_t i = 0; i < g->layer_count; i++) {
        layer *l = &g->layers[i];
        if (l->kind == LAYER_LINEAR)
            gemm_weights_free(l->linear->packed);
        else if (l->kind == LAYER_CONV)
            conv_weights_free(l->conv->packed);
        else
            gemm_weights_free(l->up->packed), gemm_weights_free(l->up->folded);
    }
    for (size_t i = 0; i < g->count; i++) {
        if (g->entries[i]->p.owned)
            free(g->entries[i]->p.t.data);
        free((char *)g->entries[i]->p.name);
        free(g->entries[i]);
    }
    free(g->entries);
    free(g->layers);
    memset(g, 0, sizeof *g);
}

entry *registry_find(const registry *g, const char *name)
{
    for (size_t i = 0; i < g->count; i++)
        if (strcmp(g->entries[i]->p.name, name) == 0)
            return g->entries[i];
    return NULL;
}

void registry_unused(registry *g, size_t from)
{
    for (size_t i = from; i < g->count; i++)
        g->entries[i]->unused = true;
}

size_t registry_enter(registry *g, const char *format, ...)
{
    size_t mark = g->path_size;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(g->path + mark, sizeof g->path - mark, format, args);
    va_end(args);
    if (n < 0 || mark + (size_t)n + 1 >= sizeof g->path) {
        g->failed = true;
        return mark;
    }
    g->path_size += (size_t)n;
    g->path[g->path_size++] = '.';
    g->path[g->path_size] = 0;
    return mark;
}

void registry_leave(registry *g, size_t mark)
{
    g->path_size = mark;
    g->path[mark] = 0;
}

static bool grow(void **list, size_t count, size_t *room, size_t item)
{
    if (count < *room)
        return true;
    size_t wanted = *room ? *room * 2 : 256;
    void *more = realloc(*list, wanted * item);
    if (!more)
        return false;
    *list = more;
    *room = wanted;
    return true;
}

static entry *new_entry(registry *g, const char *name)
{
    entry *e = calloc(1, sizeof *e);
    size_t size = g->path_size + strlen(name) + 1;
    char *full = malloc(size);
    if (!e || !full || !grow((void **)&g->entries, g->count, &g->room, sizeof *g->entries)) {
        free(e);
        free(full);
        g->failed = true;
        return NULL;
    }
    snprintf(full, size, "%s%s", g->path, name);
    e->p.name = full;
    g->entries[g->count++] = e;
    return e;
}

static entry *declare_entry(registry *g, const char *name, int axes, const int64_t *dim)
{
    static param nothing;
    static entry spare;   /* stands in after a failure, so that declarations need no checks */
    spare.p = nothing;
    entry *e = g->failed ? NULL : new_entry(g, name);
    if (!e)
        return &spare;
    e->part = g->part;
    e->p.t.axes = axes;
    for (int i = 0; i < axes; i++)
        e->p.t.dim[i] = dim[i];
    e->p.t.stride = dim[axes - 1];
    e->p.t.param = &e->p;
    return e;
}

param *declare(registry *g, const char *name, int axes, const int64_t *dim)
{
    entry *e = declare_entry(g, name, axes, dim);
    e->raw = true;
    return &e->p;
}

param *declare_vector(registry *g, const char *name, int64_t n)
{
    return declare(g, name, 1, (int64_t[]){n});
}

param *declare_matrix(registry *g, const char *name, int64_t rows, int64_t cols)
{
    return declare(g, name, 2, (int64_t[]){rows, cols});
}

/* NAME + suffix, declared for a layer that packs it (raw = false). */
static param *declare_packed(registry *g, const char *name, const char *suffix, int axes, const int64_t *dim)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    entry *e = declare_entry(g, full, axes, dim);
    e->packers++;
    return &e->p;
}

static void add_layer(registry *g, layer l)
{
    if (!grow((void **)&g->layers, g->layer_count, &g->layer_room, sizeof *g->layers)) {
        g->failed = true;
        return;
    }
    l.part = g->part;
    g->layers[g->layer_count++] = l;
}

void declare_linear(registry *g, const char *name, linear_w *l, int64_t in, int64_t out)
{
    declare_linear_no_bias(g, name, l, in, out, 2, (int64_t[]){out, in});
    l->b = declare_packed(g, name, ".bias", 1, (int64_t[]){out});
}

void declare_linear_no_bias(registry *g, const char *name, linear_w *l, int64_t in, int64_t out, int axes,
                            const int64_t *dim)
{
    *l = (linear_w){.in = in, .out = out};
    l->w = declare_packed(g, name, ".weight", axes, dim);
    add_layer(g, (layer){.kind = LAYER_LINEAR, .linear = l});
}

void declare_linear_rows(registry *g, const char *name, linear_w *l, int64_t in, int64_t first, int64_t out, int64_t rows)
{
    char full[384];
    snprintf(full, sizeof full, "%s%s_weight", g->path, name);
    entry *w = registry_find(g, full);
    snprintf(full, sizeof full, "%s%s_bias", g->path, name);
    entry *b = registry_find(g, full);
    *l = (linear_w){.first = first, .in = in, .out = out};
    if (w && b) {
        w->packers++;
        b->packers++;
        l->w = &w->p;
        l->b = &b->p;
    } else {
        l->w = declare_packed(g, name, "_weight", 2, (int64_t[]){rows, in});
        l->b = declare_packed(g, name, "_bias", 1, (int64_t[]){rows});
    }
    add_layer(g, (layer){.kind = LAYER_LINEAR, .linear = l});
}

void registry_keep(const linear_w *l)
{
    ((entry *)l->w)->raw = true;
    if (l->b)
        ((entry *)l->b)->raw = true;
}

void declare_norm(registry *g, const char *name, norm_w *n, int64_t d, float eps)
{
    char full[128];
    snprintf(full, sizeof full, "%s.weight", name);
    n->gain = declare_vector(g, full, d);
    snprintf(full, sizeof full, "%s.bias", name);
    n->shift = declare_vector(g, full, d);
    n->eps = eps;
}

void declare_conv(registry *g, const char *name, conv_w *c, int64_t in, int64_t out, int kernel, int stride, int pad,
                  int groups)
{
    *c = (conv_w){.shape = {.in = in, .out = out, .kernel = kernel, .stride = stride, .pad = pad, .groups = groups}};
    c->w = declare_packed(g, name, ".weight", 4, (int64_t[]){out, in / groups, kernel, kernel});
    c->b = declare_packed(g, name, ".bias", 1, (int64_t[]){out});
    add_layer(g, (layer){.kind = LAYER_CONV, .conv = c});
}

void declare_conv1(registry *g, const char *name, linear_w *l, int64_t in, int64_t out)
{
    declare_linear_no_bias(g, name, l, in, out, 4, (int64_t[]){out, in, 1, 1});
    l->b = declare_packed(g, name, ".bias", 1, (int64_t[]){out});
}

void declare_up(registry *g, const char *name, up_w *u, int64_t in, int64_t out)
{
    *u = (up_w){.in = in, .out = out};
    u->w = declare_packed(g, name, ".weight", 4, (int64_t[]){in, out, 2, 2});
    u->b = declare_packed(g, name, ".bias", 1, (int64_t[]){out});
    add_layer(g, (layer){.kind = LAYER_UP, .up = u});
}
