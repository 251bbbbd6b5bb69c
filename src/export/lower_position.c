/* lower_position.c - places as sines, cosines and logarithms. */
#include "export/lower.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float full_circle = 6.28318530717958647692f;

/* Sines and cosines of [n, f] angles in turn: [n, f, 2]. */
static int in_turns(graph *g, int angle, int64_t n, int64_t f)
{
    int s = g_reshape(g, g_unary(g, P_SIN, angle), 3, (int64_t[]){n, f, 1});
    int c = g_reshape(g, g_unary(g, P_COS, angle), 3, (int64_t[]){n, f, 1});
    return g_concat2(g, s, c, 2);
}

/* The columns in the order wanted. */
static int ordered(lowering *l, const tensor *x, const sine_attributes *a)
{
    int column[GRAPH_INPUTS], v = lower_last(l, x);
    bool same = a->count == tensor_cols(x);
    for (int k = 0; k < a->count; k++)
        same &= a->order[k] == k;
    if (same)
        return v;
    for (int k = 0; k < a->count; k++)
        column[k] = g_slice(l->g, v, x->axes - 1, a->order[k], 1);
    return a->count == 1 ? column[0] : g_concat(l->g, column, a->count, x->axes - 1);
}

void lower_sine_embed(lowering *l, const op_node *n)
{
    const sine_attributes *a = n->attributes;
    graph *g = l->g;
    int64_t pairs = a->features / 2, values = tensor_rows(n->in[0]) * a->count;
    float *divisor = malloc(sizeof *divisor * (size_t)pairs);
    if (!divisor) {
        graph_fail(g, SAMITE_RESOURCE, "not enough memory for %lld frequencies", (long long)pairs);
        return;
    }
    for (int64_t i = 0; i < pairs; i++)
        divisor[i] = powf(10000.0f, 2.0f * (float)i / (float)a->features);
    int v = g_reshape(g, ordered(l, n->in[0], a), 2, (int64_t[]){values, 1});
    v = g_binary(g, P_MUL, v, graph_scalar(g, full_circle));
    v = g_binary(g, P_DIV, v, graph_numbers(g, DT_F32, 1, &pairs, divisor));
    free(divisor);
    v = in_turns(g, v, values, pairs);
    lower_bind_last(l, n->out, g_reshape(g, v, n->out->axes, n->out->dim));
}

void lower_fourier_embed(lowering *l, const op_node *n)
{
    const param *m = ((const fourier_attributes *)n->attributes)->matrix;
    graph *g = l->g;
    int x = g_binary(g, P_SUB, g_binary(g, P_MUL, lower_last(l, n->in[0]), graph_scalar(g, 2)), graph_scalar(g, 1));
    int angle = g_matmul(g, x, graph_weight(g, &(weight_view){.p = m}, m->t.axes, m->t.dim));
    angle = g_binary(g, P_MUL, angle, graph_scalar(g, full_circle));
    int both = g_concat2(g, g_unary(g, P_SIN, angle), g_unary(g, P_COS, angle), n->out->axes - 1);
    lower_bind_last(l, n->out, both);
}

/* boxes [.., 4] -> [.., n, 2]: sign(d) log2(|d| + 1) / 3 of the distances of n grid lines to both edges. */
void lower_box_distances(lowering *l, const op_node *n)
{
    graph *g = l->g;
    int axis = ((const distance_attributes *)n->attributes)->axis, last = n->in[0]->axes - 1;
    int64_t lines = n->out->dim[n->out->axes - 2], boxes = tensor_rows(n->in[0]);
    float *at = malloc(sizeof *at * (size_t)lines);
    if (!at) {
        graph_fail(g, SAMITE_RESOURCE, "not enough memory for %lld grid lines", (long long)lines);
        return;
    }
    for (int64_t i = 0; i < lines; i++)
        at[i] = (float)i / (float)lines;
    int x = lower_last(l, n->in[0]), centre = g_slice(g, x, last, axis, 1);
    int half = g_binary(g, P_MUL, g_slice(g, x, last, 2 + axis, 1), graph_scalar(g, 0.5f));
    int edges = g_concat2(g, g_binary(g, P_SUB, centre, half), g_binary(g, P_ADD, centre, half), last);
    edges = g_reshape(g, edges, 3, (int64_t[]){boxes, 1, 2});
    int grid = graph_numbers(g, DT_F32, 2, (int64_t[]){lines, 1}, at);
    free(at);
    int d = g_binary(g, P_MUL, g_binary(g, P_SUB, grid, edges), graph_scalar(g, 8));
    int size = g_unary(g, P_LOG, g_binary(g, P_ADD, g_unary(g, P_ABS, d), graph_scalar(g, 1)));
    size = g_binary(g, P_MUL, size, graph_scalar(g, 1.0f / logf(8.0f)));
    d = g_binary(g, P_MUL, g_unary(g, P_SIGN, d), size);
    lower_bind_last(l, n->out, g_reshape(g, d, n->out->axes, n->out->dim));
}
