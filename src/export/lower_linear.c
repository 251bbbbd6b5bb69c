/* lower_linear.c - weights times rows, tables of rows, means and norms of rows. */
#include "export/lower.h"

#include <stdlib.h>
#include <string.h>

static weight_view rows_of(const lowering *l, const op_node *n, const param *p)
{
    const linear_w *w = ((const linear_attributes *)n->attributes)->w;
    weight_view v = {.p = p, .first = w->first, .rows = w->out};
    lower_rotated_rows(l, n, &v);
    return v;
}

/* A map with its channels in front goes through a 1 x 1 convolution, rows through a product. */
static int as_convolution(lowering *l, const op_node *n)
{
    const linear_w *w = ((const linear_attributes *)n->attributes)->w;
    graph *g = l->g;
    weight_view view = rows_of(l, n, w->w);
    gnode conv = {.op = P_CONV, .inputs = w->b ? 3 : 2, .n = {1, 1, 0, 1}};
    conv.in[0] = lower_first(l, n->in[0]);
    conv.in[1] = graph_weight(g, &view, 4, (int64_t[]){w->out, w->in, 1, 1});
    if (w->b) {
        weight_view shift = rows_of(l, n, w->b);
        conv.in[2] = graph_weight(g, &shift, 1, &w->out);
    }
    const tensor *y = n->out;
    return g_node(g, conv, DT_F32, 4, (int64_t[]){y->dim[0], w->out, y->dim[1], y->dim[2]});
}

static int as_product(lowering *l, const op_node *n)
{
    const linear_w *w = ((const linear_attributes *)n->attributes)->w;
    graph *g = l->g;
    const tensor *x = n->in[0], *y = n->out;
    weight_view view = rows_of(l, n, w->w);
    view.transpose = true;
    int in = lower_last(l, x), rank = x->axes;
    if (rank == 1)
        in = g_reshape(g, in, 2, (int64_t[]){1, w->in});
    int out = g_matmul(g, in, graph_weight(g, &view, 2, (int64_t[]){w->in, w->out}));
    if (w->b) {
        weight_view shift = rows_of(l, n, w->b);
        out = g_binary(g, P_ADD, out, graph_weight(g, &shift, 1, &w->out));
    }
    return rank == 1 ? g_reshape(g, out, 1, y->dim) : out;
}

void lower_linear(lowering *l, const op_node *n)
{
    const linear_attributes *a = n->attributes;
    const tensor *x = n->in[0], *residual = n->inputs > 1 ? n->in[1] : NULL;
    const op_node *from = x->axes == 4 ? lower_maker(l, x) : NULL;
    if (from && !strcmp(from->op->name, "patches")) {
        lower_patch_linear(l, from, n);
        return;
    }
    bool first = x->axes == 4 && lower_has_first(l, x) && !lower_has_last(l, x);
    int y = lower_activation(l, first ? as_convolution(l, n) : as_product(l, n), a->act);
    if (residual)
        y = g_binary(l->g, P_ADD, y, first ? lower_first(l, residual) : lower_last(l, residual));
    if (first)
        lower_bind_first(l, n->out, y);
    else
        lower_bind_last(l, n->out, y);
}

void lower_product(lowering *l, const op_node *n)
{
    lower_bind_last(l, n->out, g_matmul(l->g, lower_last(l, n->in[0]), lower_first(l, n->in[1])));
}

void lower_norm(lowering *l, const op_node *n)
{
    const norm_w *w = ((const norm_attributes *)n->attributes)->w;
    int64_t width = tensor_cols(n->out);
    gnode norm = {.op = P_NORM, .inputs = 3, .f = w->eps};
    norm.in[0] = lower_last(l, n->in[0]);
    norm.in[1] = graph_weight(l->g, &(weight_view){.p = w->gain}, 1, &width);
    norm.in[2] = graph_weight(l->g, &(weight_view){.p = w->shift}, 1, &width);
    lower_bind_last(l, n->out, g_node(l->g, norm, DT_F32, n->out->axes, n->out->dim));
}

static void gather(lowering *l, const op_node *n, int table, int ids)
{
    gnode node = {.op = P_GATHER, .in = {table, ids}, .inputs = 2};
    lower_bind_last(l, n->out, g_node(l->g, node, DT_F32, n->out->axes, n->out->dim));
}

void lower_embed(lowering *l, const op_node *n)
{
    const param *p = ((const embed_attributes *)n->attributes)->table;
    gather(l, n, graph_weight(l->g, &(weight_view){.p = p}, p->t.axes, p->t.dim), lower_last(l, n->in[0]));
}

static bool in_turn(const gather_attributes *a, int64_t rows)
{
    bool same = a->n == rows;
    for (int64_t i = 0; same && i < a->n; i++)
        same = a->index[i] == i;
    return same;
}

void lower_gather_rows(lowering *l, const op_node *n)
{
    const gather_attributes *a = n->attributes;
    int table = lower_last(l, n->in[0]);
    if (in_turn(a, n->in[0]->dim[0])) {
        lower_bind_last(l, n->out, table);
        return;
    }
    int64_t *ids = malloc(sizeof *ids * (size_t)(a->n + 1));
    if (!ids) {
        graph_fail(l->g, SAMITE_RESOURCE, "not enough memory for %lld indices", (long long)a->n);
        return;
    }
    for (int64_t i = 0; i < a->n; i++)
        ids[i] = a->index[i];
    gather(l, n, table, graph_numbers(l->g, DT_I64, 1, &a->n, ids));
    free(ids);
}

static int sum_over(lowering *l, int x, int axis, int axes, const int64_t *dim)
{
    return g_node(l->g, (gnode){.op = P_SUM, .in = {x}, .inputs = 1, .n = {axis}}, DT_F32, axes, dim);
}

/* [B, n, C], mask [B, n] 1 = skip -> [B, C]. */
void lower_masked_mean(lowering *l, const op_node *n)
{
    graph *g = l->g;
    const tensor *x = n->in[0], *mask = n->inputs > 1 ? n->in[1] : NULL;
    int64_t batch = x->dim[0], rows = x->dim[1], width = x->dim[2];
    int in = lower_last(l, x), count = graph_scalar(g, (float)rows);
    if (mask) {
        int keep =
            g_binary(g, P_SUB, graph_scalar(g, 1), g_reshape(g, lower_last(l, mask), 3, (int64_t[]){batch, rows, 1}));
        in = g_binary(g, P_MUL, in, keep);
        count = sum_over(l, keep, 1, 3, (int64_t[]){batch, 1, 1});
        count = g_binary(g, P_MAX, count, graph_scalar(g, 1));
    }
    int mean = g_binary(g, P_DIV, sum_over(l, in, 1, 3, (int64_t[]){batch, 1, width}), count);
    lower_bind_last(l, n->out, g_reshape(g, mean, 2, n->out->dim));
}
