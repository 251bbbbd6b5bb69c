/* lower.c - walks a trace and finds the row for each op; shapes and single numbers are lowered here. */
#include "export/lower.h"

#include <stdlib.h>
#include <string.h>

#define MOST_VALUES 32768     /* places of the table of values, a power of 2; half of them can be used */

/* ---- values ---- */

static size_t place_of(const lowering *l, const tensor *t)
{
    size_t at = ((uintptr_t)t >> 4) * 0x9E3779B97F4A7C15u & (l->room - 1);
    while (l->table[at].t && l->table[at].t != t)
        at = (at + 1) & (l->room - 1);
    return at;
}

bool lowering_open(lowering *l, graph *g, const run *r)
{
    *l = (lowering){.g = g, .r = r, .room = MOST_VALUES, .table = calloc(MOST_VALUES, sizeof *l->table)};
    return l->table != NULL;
}

void lowering_close(lowering *l)
{
    free(l->table);
    free(l->rotated);
}

static forms *forms_of(lowering *l, const tensor *t)
{
    forms *f = &l->table[place_of(l, t)];
    if (f->t)
        return f;
    if (++l->count > l->room / 2) {
        graph_fail(l->g, SAMITE_FAILED, "more values than the trace has room for");
        l->count--;
    } else {
        *f = (forms){t, -1, -1};
    }
    return f;
}

void lower_bind_last(lowering *l, const tensor *t, int v)
{
    forms_of(l, t)->last = v;
}

void lower_bind_first(lowering *l, const tensor *t, int v)
{
    forms_of(l, t)->first = v;
}

/* Parameters and constants come into the graph when first asked for. */
static int origin_of(lowering *l, const tensor *t)
{
    if (t->param)
        return graph_weight(l->g, &(weight_view){.p = t->param}, t->axes, t->dim);
    if (t->data)
        return graph_numbers(l->g, DT_F32, t->axes, t->dim, t->data);
    return graph_fail(l->g, SAMITE_FAILED, "%s: a value that comes from nowhere", l->g->scope);
}

static int move_channels(lowering *l, const tensor *t, int v, bool to_first)
{
    static const int first[MAX_AXES + 1][MAX_AXES] = {[3] = {0, 2, 1}, [4] = {0, 3, 1, 2}};
    static const int last[MAX_AXES + 1][MAX_AXES] = {[3] = {0, 2, 1}, [4] = {0, 2, 3, 1}};
    return t->axes < 3 ? v : g_transpose(l->g, v, to_first ? first[t->axes] : last[t->axes]);
}

int lower_last(lowering *l, const tensor *t)
{
    forms *f = forms_of(l, t);
    if (f->last < 0)
        f->last = f->first >= 0 ? move_channels(l, t, f->first, false) : origin_of(l, t);
    return f->last;
}

int lower_first(lowering *l, const tensor *t)
{
    int last = lower_has_first(l, t) ? -1 : lower_last(l, t);
    forms *f = forms_of(l, t);
    if (f->first < 0)
        f->first = move_channels(l, t, last, true);
    return f->first;
}

bool lower_has_last(lowering *l, const tensor *t)
{
    return forms_of(l, t)->last >= 0;
}

bool lower_has_first(lowering *l, const tensor *t)
{
    return forms_of(l, t)->first >= 0;
}

/* Is the value at hand only with its channels in front? Then work on it goes on that way. */
static bool only_first(lowering *l, const tensor *t)
{
    return lower_has_first(l, t) && !lower_has_last(l, t);
}

const op_node *lower_maker(const lowering *l, const tensor *t)
{
    for (size_t i = run_nodes(l->r); i-- > 0;)
        if (run_node(l->r, i)->out == t)
            return run_node(l->r, i);
    return NULL;
}

/* ---- single numbers ---- */

int lower_activation(lowering *l, int x, activation act)
{
    static const prim ops[] = {[ACT_RELU] = P_RELU, [ACT_GELU] = P_GELU, [ACT_SIGMOID] = P_SIGMOID};
    return act == ACT_NONE ? x : g_unary(l->g, ops[act], x);
}

static void same_value(lowering *l, const op_node *n)
{
    forms f = *forms_of(l, n->in[0]);
    if (f.last < 0 && f.first < 0)
        f.last = lower_last(l, n->in[0]);
    if (f.last >= 0)
        lower_bind_last(l, n->out, f.last);
    if (f.first >= 0)
        lower_bind_first(l, n->out, f.first);
}

typedef int (*unary_fn)(lowering *l, int x, const op_node *n);

static void keep_form(lowering *l, const op_node *n, unary_fn fn)
{
    if (only_first(l, n->in[0]))
        lower_bind_first(l, n->out, fn(l, lower_first(l, n->in[0]), n));
    else
        lower_bind_last(l, n->out, fn(l, lower_last(l, n->in[0]), n));
}

static int activated(lowering *l, int x, const op_node *n)
{
    return lower_activation(l, x, ((const activate_attributes *)n->attributes)->act);
}

static void lower_activate(lowering *l, const op_node *n)
{
    keep_form(l, n, activated);
}

static int scaled(lowering *l, int x, const op_node *n)
{
    return g_binary(l->g, P_MUL, x, graph_scalar(l->g, ((const scale_attributes *)n->attributes)->s));
}

static void lower_scale(lowering *l, const op_node *n)
{
    keep_form(l, n, scaled);
}

static int between(lowering *l, int x, float low, float high)
{
    return g_binary(l->g, P_MIN, g_binary(l->g, P_MAX, x, graph_scalar(l->g, low)), graph_scalar(l->g, high));
}

static int clamped(lowering *l, int x, const op_node *n)
{
    const clamp_attributes *a = n->attributes;
    return between(l, x, a->low, a->high);
}

static void lower_clamp(lowering *l, const op_node *n)
{
    keep_form(l, n, clamped);
}

static int unsquashed(lowering *l, int x, const op_node *n)
{
    graph *g = l->g;
    int v = between(l, x, 0, 1), least = graph_scalar(g, 1e-3f);
    int odds = g_binary(g, P_MAX, v, least),
        rest = g_binary(g, P_MAX, g_binary(g, P_SUB, graph_scalar(g, 1), v), least);
    return g_unary(g, P_LOG, g_binary(g, P_DIV, odds, rest));
}

static void lower_inverse_sigmoid(lowering *l, const op_node *n)
{
    keep_form(l, n, unsquashed);
}

/* The second operand ends the shape of the first; what it has in front are ones. */
static int ending(lowering *l, const tensor *a, const tensor *b)
{
    int skip = b->axes > a->axes ? b->axes - a->axes : 0;
    return g_reshape(l->g, lower_last(l, b), b->axes - skip, b->dim + skip);
}

static bool same_dims(const tensor *a, const tensor *b)
{
    return a->axes == b->axes && !memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->axes);
}

static void pair(lowering *l, const op_node *n, prim op)
{
    const tensor *a = n->in[0], *b = n->in[1];
    if (same_dims(a, b) && (only_first(l, a) || only_first(l, b)))
        lower_bind_first(l, n->out, g_binary(l->g, op, lower_first(l, a), lower_first(l, b)));
    else
        lower_bind_last(l, n->out, g_binary(l->g, op, lower_last(l, a), ending(l, a, b)));
}

static void lower_add(lowering *l, const op_node *n)
{
    pair(l, n, P_ADD);
}

static void lower_multiply(lowering *l, const op_node *n)
{
    pair(l, n, P_MUL);
}

/* ---- shapes ---- */

/* [B, .., C] to [B, .., C] can be done with the channels in front, too. */
static bool reshapes_inside(const tensor *x, const tensor *y)
{
    return x->axes >= 3 && y->axes >= 3 && x->dim[0] == y->dim[0] && tensor_cols(x) == tensor_cols(y);
}

static void lower_reshape(lowering *l, const op_node *n)
{
    const tensor *x = n->in[0], *y = n->out;
    if (only_first(l, x) && reshapes_inside(x, y)) {
        int64_t dim[MAX_AXES] = {y->dim[0], tensor_cols(y), y->dim[1], y->dim[2]};
        lower_bind_first(l, y, g_reshape(l->g, lower_first(l, x), y->axes, dim));
    } else {
        lower_bind_last(l, y, g_reshape(l->g, lower_last(l, x), y->axes, y->dim));
    }
}

static void lower_columns(lowering *l, const op_node *n)
{
    const slice_attributes *a = n->attributes;
    lower_bind_last(l, n->out, g_slice(l->g, lower_last(l, n->in[0]), n->in[0]->axes - 1, a->first, a->count));
}

static void lower_rows(lowering *l, const op_node *n)
{
    const slice_attributes *a = n->attributes;
    lower_bind_last(l, n->out, g_slice(l->g, lower_last(l, n->in[0]), 0, a->first, a->count));
}

static void lower_concat(lowering *l, const op_node *n)
{
    const tensor *b = n->in[1];
    int axis = ((const concat_attributes *)n->attributes)->axis;
    int64_t dim[MAX_AXES];
    memcpy(dim, b->dim, sizeof dim);
    if (axis > 0)
        dim[0] = n->out->dim[0];
    int second = g_expand(l->g, lower_last(l, b), b->axes, dim);
    lower_bind_last(l, n->out, g_concat2(l->g, lower_last(l, n->in[0]), second, axis));
}

static void lower_pad_front(lowering *l, const op_node *n)
{
    int64_t more = n->out->dim[1] - n->in[0]->dim[1];
    gnode pad = {.op = P_PAD_FRONT, .in = {lower_last(l, n->in[0])}, .inputs = 1, .n = {1, more}};
    lower_bind_last(l, n->out, g_node(l->g, pad, DT_F32, n->out->axes, n->out->dim));
}

static void lower_repeat(lowering *l, const op_node *n)
{
    lower_bind_last(l, n->out, g_expand(l->g, lower_last(l, n->in[0]), n->out->axes, n->out->dim));
}

/* ---- the table ---- */

static const struct {
    const char *op;
    lower_fn    lower;
} table[] = {
    {"linear", lower_linear},
    {"product", lower_product},
    {"attention", lower_attention},
    {"norm", lower_norm},
    {"group_norm", lower_group_norm},
    {"conv", lower_conv},
    {"conv_up2", lower_conv_up2},
    {"patches", lower_patches},
    {"window_partition", lower_window_partition},
    {"window_merge", lower_window_merge},
    {"max_pool2", lower_max_pool2},
    {"add", lower_add},
    {"multiply", lower_multiply},
    {"scale", lower_scale},
    {"activate", lower_activate},
    {"clamp", lower_clamp},
    {"inverse_sigmoid", lower_inverse_sigmoid},
    {"detach", same_value},
    {"copy", same_value},
    {"reshape", lower_reshape},
    {"columns", lower_columns},
    {"rows", lower_rows},
    {"concat", lower_concat},
    {"pad_front", lower_pad_front},
    {"repeat", lower_repeat},
    {"gather_rows", lower_gather_rows},
    {"embed", lower_embed},
    {"masked_mean", lower_masked_mean},
    {"upsample_add", lower_upsample_add},
    {"resize_bilinear", lower_resize_bilinear},
    {"roi_align", lower_roi_align},
    {"point_sample", lower_point_sample},
    {"sine_embed", lower_sine_embed},
    {"box_distances", lower_box_distances},
    {"fourier_embed", lower_fourier_embed},
};

static lower_fn row_of(const char *op)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].op, op) == 0)
            return table[i].lower;
    return NULL;
}

bool lower_knows(const char *op)
{
    return row_of(op) != NULL;
}

/* Nodes are named by the parameter they use, else by the part and the op. */
static void enter(lowering *l, const op_node *n)
{
    const param *p = NULL;
    if (!strcmp(n->op->name, "linear"))
        p = ((const linear_attributes *)n->attributes)->w->w;
    else if (!strcmp(n->op->name, "conv"))
        p = ((const conv_attributes *)n->attributes)->w->w;
    else if (!strcmp(n->op->name, "norm") || !strcmp(n->op->name, "group_norm"))
        p = ((const norm_attributes *)n->attributes)->w->gain;
    size_t size = p ? strlen(p->name) : 0;
    if (size > 7 && !strcmp(p->name + size - 7, ".weight"))
        graph_scope(l->g, "%.*s", (int)size - 7, p->name);
    else if (p)
        graph_scope(l->g, "%s", p->name);
    else
        graph_scope(l->g, "%s/%s", n->part ? n->part : "", n->op->name);
}

void lower_all(lowering *l)
{
    if (!lower_find_rotated(l))
        graph_fail(l->g, SAMITE_RESOURCE, "not enough memory to export the model");
    for (size_t i = 0; i < run_nodes(l->r) && !l->g->error.code; i++) {
        const op_node *n = run_node(l->r, i);
        lower_fn fn = row_of(n->op->name);
        enter(l, n);
        if (fn)
            fn(l, n);
        else
            graph_fail(l->g, SAMITE_FAILED, "%s: there is no export of the operation %s", n->part, n->op->name);
    }
    graph_scope(l->g, "outputs");
}
