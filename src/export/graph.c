/* graph.c - values and operations with their shapes; equal constants and weights are made once. */
#include "export/graph.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool graph_open(graph *g)
{
    *g = (graph){.names = name_map_new(1024)};
    return g->names != NULL;
}

void graph_close(graph *g)
{
    for (int i = 0; i < g->values; i++) {
        free(g->value[i].name);
        free(g->value[i].numbers);
    }
    for (int i = 0; i < g->nodes; i++)
        free(g->node[i].name);
    free(g->value);
    free(g->node);
    free(g->input);
    free(g->output);
    name_map_free(g->names);
    *g = (graph){0};
}

int graph_fail(graph *g, int code, const char *format, ...)
{
    char line[sizeof g->error.text];
    va_list list;
    if (g->error.code)
        return 0;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    fail(&g->error, code, "%s", line);
    return 0;
}

static int no_memory(graph *g)
{
    return graph_fail(g, SAMITE_RESOURCE, "not enough memory for the graph to export");
}

/* Letters that every converter takes. */
static void make_plain(char *s)
{
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("_./-", *s))
            *s = '_';
}

void graph_scope(graph *g, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(g->scope, sizeof g->scope, format, list);
    va_end(list);
    make_plain(g->scope);
}

/* `wanted`, or that with a number behind it; owned by the value or node that it will name. NULL: out of memory. */
static char *unique_name(graph *g, const char *wanted)
{
    size_t room = strlen(wanted) + 16;
    char *s = malloc(room);
    for (int i = 0; s && i < INT32_MAX; i++) {
        snprintf(s, room, i ? "%s_%d" : "%s", wanted, i);
        if (name_map_get(g->names, s) >= 0)
            continue;
        if (name_map_put(g->names, s, 1))
            return s;
        break;
    }
    free(s);
    return NULL;
}

static bool grow(void **list, int count, int *room, size_t item)
{
    if (count < *room)
        return true;
    int wanted = *room ? *room * 2 : 256;
    void *more = realloc(*list, (size_t)wanted * item);
    if (!more)
        return false;
    *list = more;
    *room = wanted;
    return true;
}

static int add_value(graph *g, const char *name, gvalue v, int axes, const int64_t *dim)
{
    if (g->error.code)
        return 0;
    if (axes < 0 || axes > MAX_AXES)
        return graph_fail(g, SAMITE_FAILED, "%s: a value with %d axes cannot be exported", name, axes);
    v.axes = axes;
    for (int i = 0; i < axes; i++)
        v.dim[i] = dim[i];
    v.name = grow((void **)&g->value, g->values, &g->value_room, sizeof *g->value) ? unique_name(g, name) : NULL;
    if (!v.name)
        return no_memory(g);
    g->value[g->values] = v;
    return g->values++;
}

int64_t graph_count(const gvalue *v)
{
    int64_t n = 1;
    for (int i = 0; i < v->axes; i++)
        n *= v->dim[i];
    return n;
}

static bool add_number(int **list, int *count, int v)
{
    int *more = realloc(*list, sizeof *more * (size_t)(*count + 1));
    if (!more)
        return false;
    *list = more;
    more[(*count)++] = v;
    return true;
}

int graph_input(graph *g, const char *name, dtype type, int axes, const int64_t *dim)
{
    int v = add_value(g, name, (gvalue){.type = type, .from = FROM_INPUT}, axes, dim);
    if (!g->error.code && !add_number(&g->input, &g->inputs, v))
        return no_memory(g);
    return v;
}

static bool has_shape(const gvalue *v, int axes, const int64_t *dim)
{
    return v->axes == axes && !memcmp(v->dim, dim, sizeof *dim * (size_t)axes);
}

static bool same_view(const weight_view *a, const weight_view *b)
{
    return a->p == b->p && a->first == b->first && a->rows == b->rows && a->transpose == b->transpose &&
           a->halves == b->halves && a->halves_to == b->halves_to;
}

/* The parameter's name, then what was done to it: rows taken, even and odd rows of a head apart, transposed. */
static void name_of_view(char *out, size_t room, const weight_view *v)
{
    size_t n = (size_t)snprintf(out, room, "%s", v->p->name);
    if (v->rows && n < room && (v->first || v->rows != v->p->t.dim[0]))
        n +=
            (size_t)snprintf(out + n, room - n, "/rows%lld-%lld", (long long)v->first, (long long)(v->first + v->rows));
    if (v->halves && n < room)
        n += (size_t)snprintf(out + n, room - n, "/halves%lld-%lld", (long long)v->halves, (long long)v->halves_to);
    if (v->transpose && n < room)
        snprintf(out + n, room - n, "/T");
}

int graph_weight(graph *g, const weight_view *v, int axes, const int64_t *dim)
{
    char name[512];
    for (int i = 0; i < g->values; i++)
        if (g->value[i].from == FROM_PARAM && same_view(&g->value[i].view, v) && has_shape(&g->value[i], axes, dim))
            return i;
    name_of_view(name, sizeof name, v);
    return add_value(g, name, (gvalue){.type = DT_F32, .from = FROM_PARAM, .view = *v}, axes, dim);
}

int graph_numbers(graph *g, dtype type, int axes, const int64_t *dim, const void *numbers)
{
    gvalue v = {.type = type, .from = FROM_NUMBERS, .axes = axes};
    for (int i = 0; i < axes && i < MAX_AXES; i++)
        v.dim[i] = dim[i];
    size_t bytes = (size_t)graph_count(&v) * dtype_size(type);
    for (int i = 0; i < g->values; i++) {
        const gvalue *o = &g->value[i];
        if (o->from == FROM_NUMBERS && o->type == type && has_shape(o, axes, dim) &&
            !memcmp(o->numbers, numbers, bytes))
            return i;
    }
    v.numbers = malloc(bytes ? bytes : 1);
    if (!v.numbers)
        return no_memory(g);
    memcpy(v.numbers, numbers, bytes);
    int at = add_value(g, "constant", v, axes, dim);
    if (g->error.code)
        free(v.numbers);
    return at;
}

int graph_scalar(graph *g, float v)
{
    return graph_numbers(g, DT_F32, 1, (int64_t[]){1}, &v);
}

int g_node(graph *g, gnode n, dtype type, int axes, const int64_t *dim)
{
    static const char *const names[P_COUNT] = {
        "Add",     "Sub",       "Mul",       "Div",       "Max",           "Min",     "Relu",          "Sigmoid",
        "Gelu",    "Sin",       "Cos",       "Log",       "Abs",           "Sign",    "Identity",      "MatMul",
        "Softmax", "LayerNorm", "GroupNorm", "Conv",      "ConvTranspose", "MaxPool", "ResizeNearest", "ResizeLinear",
        "Reshape", "Transpose", "Slice",     "Concat",    "Expand",        "Pad",     "Gather",        "Sum",
        "Equal",   "Cast",      "RoiAlign",  "GridSample"};
    char name[320];
    if (g->error.code)
        return 0;
    snprintf(name, sizeof name, "%s/%s", g->scope[0] ? g->scope : "graph", names[n.op]);
    if (!grow((void **)&g->node, g->nodes, &g->node_room, sizeof *g->node))
        return no_memory(g);
    n.out = add_value(g, name, (gvalue){.type = type, .from = FROM_NODE}, axes, dim);
    if (g->error.code)
        return 0;
    n.name = text_copy(g->value[n.out].name);
    if (!n.name)
        return no_memory(g);
    g->node[g->nodes++] = n;
    return n.out;
}

void graph_output(graph *g, int v, const char *name)
{
    if (g->error.code)
        return;
    bool taken = g->value[v].from != FROM_NODE;
    for (int i = 0; i < g->outputs; i++)
        taken |= g->output[i] == v;
    if (taken)
        v = g_unary(g, P_IDENTITY, v);
    char *own = g->error.code ? NULL : unique_name(g, name);
    if (!own || strcmp(own, name) != 0 || !add_number(&g->output, &g->outputs, v)) {
        free(own);
        no_memory(g);
        return;
    }
    /* The old name stays in the map, which borrows it: it is kept as the node's. */
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].out == v) {
            free(g->node[i].name);
            g->node[i].name = g->value[v].name;
        }
    g->value[v].name = own;
}

void graph_output_apart(graph *g, int i)
{
    int v = g->output[i], copy = g_unary(g, P_IDENTITY, v);
    if (g->error.code)
        return;
    char *name = g->value[v].name;
    g->value[v].name = g->value[copy].name;
    g->value[copy].name = name;
    g->output[i] = copy;
}

/* ---- operations ---- */

static int mismatch(graph *g, prim op, int a, int b)
{
    return graph_fail(g, SAMITE_FAILED, "%s: operation %d does not fit the shapes of %s and %s", g->scope, (int)op,
                      g->value[a].name, g->value[b].name);
}

/* Shape of a and b by numpy's rule over their first axes, leaving `keep` last ones to the caller. false: they do not
 * fit. */
static bool broadcast(const gvalue *a, const gvalue *b, int keep, int *axes, int64_t *dim)
{
    int na = a->axes - keep, nb = b->axes - keep, n = na > nb ? na : nb;
    for (int i = 0; i < n; i++) {
        int64_t da = i - (n - na) >= 0 ? a->dim[i - (n - na)] : 1, db = i - (n - nb) >= 0 ? b->dim[i - (n - nb)] : 1;
        if (da != db && da != 1 && db != 1)
            return false;
        dim[i] = da > db ? da : db;
    }
    *axes = n + keep;
    return true;
}

int g_binary(graph *g, prim op, int a, int b)
{
    int64_t dim[MAX_AXES];
    int axes;
    if (g->error.code)
        return 0;
    if (!broadcast(&g->value[a], &g->value[b], 0, &axes, dim))
        return mismatch(g, op, a, b);
    return g_node(g, (gnode){.op = op, .in = {a, b}, .inputs = 2}, op == P_EQUAL ? DT_BOOL : g->value[a].type, axes,
                  dim);
}

int g_unary(graph *g, prim op, int x)
{
    if (g->error.code)
        return 0;
    gvalue v = g->value[x];
    return g_node(g, (gnode){.op = op, .in = {x}, .inputs = 1}, v.type, v.axes, v.dim);
}

int g_matmul(graph *g, int a, int b)
{
    int64_t dim[MAX_AXES];
    int axes;
    if (g->error.code)
        return 0;
    gvalue x = g->value[a], y = g->value[b];
    if (x.axes < 2 || y.axes < 2 || x.dim[x.axes - 1] != y.dim[y.axes - 2] || !broadcast(&x, &y, 2, &axes, dim))
        return mismatch(g, P_MATMUL, a, b);
    dim[axes - 2] = x.dim[x.axes - 2];
    dim[axes - 1] = y.dim[y.axes - 1];
    return g_node(g, (gnode){.op = P_MATMUL, .in = {a, b}, .inputs = 2}, x.type, axes, dim);
}

int g_reshape(graph *g, int x, int axes, const int64_t *dim)
{
    if (g->error.code || has_shape(&g->value[x], axes, dim))
        return g->error.code ? 0 : x;
    gvalue as = {.axes = axes};
    memcpy(as.dim, dim, sizeof *dim * (size_t)axes);
    if (graph_count(&as) != graph_count(&g->value[x]))
        return graph_fail(g, SAMITE_FAILED, "%s: a reshape changes the number of elements of %s", g->scope,
                          g->value[x].name);
    return g_node(g, (gnode){.op = P_RESHAPE, .in = {x}, .inputs = 1}, g->value[x].type, axes, dim);
}

int g_transpose(graph *g, int x, const int *order)
{
    int64_t dim[MAX_AXES];
    if (g->error.code)
        return 0;
    gvalue v = g->value[x];
    gnode n = {.op = P_TRANSPOSE, .in = {x}, .inputs = 1};
    for (int i = 0; i < v.axes; i++) {
        n.n[i] = order[i];
        dim[i] = v.dim[order[i]];
    }
    return g_node(g, n, v.type, v.axes, dim);
}

int g_slice(graph *g, int x, int axis, int64_t first, int64_t count)
{
    if (g->error.code)
        return 0;
    gvalue v = g->value[x];
    if (first == 0 && count == v.dim[axis])
        return x;
    v.dim[axis] = count;
    return g_node(g, (gnode){.op = P_SLICE, .in = {x}, .inputs = 1, .n = {axis, first, count}}, v.type, v.axes, v.dim);
}

int g_concat(graph *g, const int *x, int count, int axis)
{
    if (g->error.code)
        return 0;
    if (count < 1 || count > GRAPH_INPUTS)
        return graph_fail(g, SAMITE_FAILED, "%s: %d values to join", g->scope, count);
    gvalue v = g->value[x[0]];
    gnode n = {.op = P_CONCAT, .inputs = count, .n = {axis}};
    v.dim[axis] = 0;
    for (int i = 0; i < count; i++) {
        n.in[i] = x[i];
        v.dim[axis] += g->value[x[i]].dim[axis];
    }
    return g_node(g, n, v.type, v.axes, v.dim);
}

int g_concat2(graph *g, int a, int b, int axis)
{
    return g_concat(g, (int[]){a, b}, 2, axis);
}

int g_expand(graph *g, int x, int axes, const int64_t *dim)
{
    if (g->error.code || has_shape(&g->value[x], axes, dim))
        return g->error.code ? 0 : x;
    return g_node(g, (gnode){.op = P_EXPAND, .in = {x}, .inputs = 1}, g->value[x].type, axes, dim);
}

int g_cast(graph *g, int x, dtype type)
{
    if (g->error.code)
        return 0;
    gvalue v = g->value[x];
    return v.type == type ? x : g_node(g, (gnode){.op = P_CAST, .in = {x}, .inputs = 1}, type, v.axes, v.dim);
}

void graph_prune(graph *g)
{
    for (int i = 0; i < g->values; i++)
        g->value[i].used = false;
    for (int i = 0; i < g->outputs; i++)
        g->value[g->output[i]].used = true;
    for (int i = g->nodes; i-- > 0;) {
        gnode *n = &g->node[i];
        n->used = g->value[n->out].used;
        for (int k = 0; n->used && k < n->inputs; k++)
            g->value[n->in[k]].used = true;
    }
}

const char *graph_same_but_sizes(const graph *a, const graph *b)
{
    if (a->values != b->values || a->nodes != b->nodes)
        return "its steps";
    for (int i = 0; i < a->values; i++)
        if (a->value[i].from != b->value[i].from ||
            ((a->value[i].from == FROM_PARAM || a->value[i].from == FROM_NUMBERS) &&
             !has_shape(&a->value[i], b->value[i].axes, b->value[i].dim)))
            return "its constants";
    for (int i = 0; i < a->nodes; i++)
        if (a->node[i].op != b->node[i].op || memcmp(a->node[i].n, b->node[i].n, sizeof a->node[i].n) != 0)
            return "what its steps do";
    return NULL;
}
