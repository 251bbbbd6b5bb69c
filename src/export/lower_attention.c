/* lower_attention.c - heads, rotations, masks and biases of attention as products and a softmax.
 *
 * Rotation turns pairs of neighbouring channels. Converters know the other form better, in which channel i pairs with
 * i + d / 2; it follows from putting the rows of the query and key projections in another order, which changes nothing
 * else: products of queries and keys do not depend on the order of channels.
 */
#include "export/lower.h"

#include <stdlib.h>
#include <string.h>

#define NEVER (-1e9f)                /* added to scores of keys that must not be seen */
#define MOST_SCORES ((int64_t)64 << 20)   /* elements of a picture's score matrix; queries take turns beyond that */

/* Columns from..to of a linear layer's output are heads of width `halves` that will be rotated. */
typedef struct rotated {
    const op_node *linear;
    int64_t halves, from, to;
} rotated;

/* ---- which rows to put in order ---- */

static bool note_rotated(lowering *l, const tensor *t, int64_t width)
{
    int64_t from = 0, count = tensor_cols(t);
    const op_node *n = lower_maker(l, t);
    while (n && (!strcmp(n->op->name, "columns") || !strcmp(n->op->name, "reshape"))) {
        if (n->op->name[0] == 'c')
            from += ((const slice_attributes *)n->attributes)->first;
        t = n->in[0];
        n = lower_maker(l, t);
    }
    if (!n || strcmp(n->op->name, "linear") != 0 || tensor_cols(n->out) != tensor_cols(t)) {
        graph_fail(l->g, SAMITE_FAILED, "rotated attention whose queries or keys come from no linear layer");
        return true;
    }
    rotated *more = realloc(l->rotated, sizeof *more * (l->rotated_count + 1));
    if (!more)
        return false;
    l->rotated = more;
    more[l->rotated_count++] = (rotated){n, width, from, from + count};
    return true;
}

bool lower_find_rotated(lowering *l)
{
    for (size_t i = 0; i < run_nodes(l->r); i++) {
        const op_node *n = run_node(l->r, i);
        if (strcmp(n->op->name, "attention") != 0)
            continue;
        const attention_attributes *a = n->attributes;
        int64_t width = tensor_cols(n->in[0]) / a->heads;
        if (a->rope && (!note_rotated(l, n->in[0], width) || !note_rotated(l, n->in[1], width)))
            return false;
    }
    return true;
}

void lower_rotated_rows(const lowering *l, const op_node *linear, weight_view *v)
{
    size_t mine = 0, joined = 0, before;
    for (size_t i = 0; i < l->rotated_count; i++)
        mine += l->rotated[i].linear == linear;
    do {
        before = joined;
        for (size_t i = 0; i < l->rotated_count; i++) {
            const rotated *x = &l->rotated[i];
            if (x->linear != linear || x->from != v->halves_to)
                continue;
            v->halves = x->halves;
            v->halves_to = x->to;
            joined++;
        }
    } while (joined > before);
    if (joined < mine)
        graph_fail(l->g, SAMITE_FAILED, "%s: rotated columns do not start at the first", l->g->scope);
}

/* ---- rotation ---- */

typedef struct heads { int64_t batch, count, rows, width; } heads;

/* Cosines, or sines with the sign of the first half turned, of the first `rows` rows in half-split form: [rows, width].
 */
static int rotation_table(graph *g, const attention_attributes *a, int64_t rows, int64_t width, bool sine, float factor)
{
    float *table = malloc(sizeof *table * (size_t)(rows * width));
    int64_t half = width / 2;
    if (!table)
        return graph_fail(g, SAMITE_RESOURCE, "not enough memory for a table of rotations");
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < half; k++) {
            float v = a->rope[i % a->rope_rows * width + 2 * k + sine] * factor;
            table[i * width + k] = sine ? -v : v;
            table[i * width + half + k] = v;
        }
    int v = graph_numbers(g, DT_F32, 2, (int64_t[]){rows, width}, table);
    free(table);
    return v;
}

/* x [.., rows, width] with as many rows as the table. */
static int turn_pairs(graph *g, int x, const attention_attributes *a, int64_t rows, int64_t width, float factor)
{
    int64_t half = width / 2;
    int swapped = g_concat2(g, g_slice(g, x, 3, half, half), g_slice(g, x, 3, 0, half), 3);
    int straight = g_binary(g, P_MUL, x, rotation_table(g, a, rows, width, false, factor));
    return g_binary(g, P_ADD, straight,
                    g_binary(g, P_MUL, swapped, rotation_table(g, a, rows, width, true, factor)));
}

/* x [B, heads, rows, width]; where the table begins again and again, its rounds become an axis. */
static int rotate(graph *g, int x, const attention_attributes *a, const heads *h, float factor)
{
    int64_t rounds = h->rows / a->rope_rows;
    if (rounds < 2 || h->rows % a->rope_rows)
        return turn_pairs(g, x, a, h->rows, h->width, factor);
    x = g_reshape(g, x, 4, (int64_t[]){h->batch * h->count, rounds, a->rope_rows, h->width});
    x = turn_pairs(g, x, a, a->rope_rows, h->width, factor);
    return g_reshape(g, x, 4, (int64_t[]){h->batch, h->count, h->rows, h->width});
}

/* Keys behind the first `rope_keys` have no place. */
static int rotate_keys(graph *g, int x, const attention_attributes *a, const heads *h)
{
    heads placed = *h;
    placed.rows = a->rope_keys;
    int y = rotate(g, g_slice(g, x, 2, 0, placed.rows), a, &placed, 1);
    return placed.rows == h->rows ? y : g_concat2(g, y, g_slice(g, x, 2, placed.rows, h->rows - placed.rows), 2);
}

/* ---- scores ---- */

static heads heads_of(const tensor *t, int count)
{
    return (heads){t->dim[0], count, t->dim[1], t->dim[2] / count};
}

/* [B, n, C] -> [B, heads, n, width], or with the last two axes exchanged. */
static int split(lowering *l, const tensor *t, int count, bool turned)
{
    heads h = heads_of(t, count);
    int x = g_reshape(l->g, lower_last(l, t), 4, (int64_t[]){h.batch, h.rows, h.count, h.width});
    return g_transpose(l->g, x, turned ? (int[]){0, 2, 3, 1} : (int[]){0, 2, 1, 3});
}

static int queries(lowering *l, const op_node *n)
{
    const attention_attributes *a = n->attributes;
    heads h = heads_of(n->in[0], a->heads);
    int q = split(l, n->in[0], a->heads, false);
    return a->rope ? rotate(l->g, q, a, &h, a->scale) : g_binary(l->g, P_MUL, q, graph_scalar(l->g, a->scale));
}

static int keys(lowering *l, const op_node *n)
{
    const attention_attributes *a = n->attributes;
    heads h = heads_of(n->in[1], a->heads);
    if (!a->rope)
        return split(l, n->in[1], a->heads, true);
    return g_transpose(l->g, rotate_keys(l->g, split(l, n->in[1], a->heads, false), a, &h), (int[]){0, 1, 3, 2});
}

/* Row i sees keys 0..i: [n, n]. */
static int causal_mask(graph *g, int64_t nq, int64_t nk)
{
    float *mask = malloc(sizeof *mask * (size_t)(nq * nk));
    if (!mask)
        return graph_fail(g, SAMITE_RESOURCE, "not enough memory for a causal mask");
    for (int64_t i = 0; i < nq; i++)
        for (int64_t k = 0; k < nk; k++)
            mask[i * nk + k] = k > i ? NEVER : 0;
    int v = graph_numbers(g, DT_F32, 2, (int64_t[]){nq, nk}, mask);
    free(mask);
    return v;
}

/* bias_x [B, nq, w, heads] and bias_y [B, nq, h, heads] -> [B, heads, nq, h * w] */
static int box_bias(lowering *l, const tensor *bx, const tensor *by)
{
    graph *g = l->g;
    int64_t batch = bx->dim[0], nq = bx->dim[1], w = bx->dim[2], count = bx->dim[3], h = by->dim[2];
    int x = g_transpose(g, lower_last(l, bx), (int[]){0, 3, 1, 2}),
        y = g_transpose(g, lower_last(l, by), (int[]){0, 3, 1, 2});
    x = g_reshape(g, x, 4, (int64_t[]){batch * count, nq, 1, w});
    y = g_reshape(g, y, 4, (int64_t[]){batch * count, nq, h, 1});
    return g_reshape(g, g_binary(g, P_ADD, y, x), 4, (int64_t[]){batch, count, nq, h * w});
}

/* What is added to the scores; returns the number of terms. */
static int terms_of(lowering *l, const op_node *n, int *term)
{
    const attention_attributes *a = n->attributes;
    const tensor *mask = n->in[3];
    int count = 0;
    if (a->causal)
        term[count++] = causal_mask(l->g, n->in[0]->dim[1], n->in[1]->dim[1]);
    if (mask) {
        int64_t dim[MAX_AXES] = {mask->dim[0], 1, 1, mask->dim[1]};
        int never = g_binary(l->g, P_MUL, lower_last(l, mask), graph_scalar(l->g, NEVER));
        term[count++] = g_reshape(l->g, never, 4, dim);
    }
    if (n->in[4])
        term[count++] = box_bias(l, n->in[4], n->in[5]);
    return count;
}

static int attend(graph *g, int q, int k, int v, const int *term, int terms)
{
    int s = g_matmul(g, q, k);
    for (int i = 0; i < terms; i++)
        s = g_binary(g, P_ADD, s, term[i]);
    return g_matmul(g, g_unary(g, P_SOFTMAX, s), v);
}

/* Queries in turns, so that no score matrix is larger than MOST_SCORES: [B, heads, nq, width]. Terms are the same for
 * all queries. */
static int attend_in_turns(graph *g, int q, int k, int v, const int *term, int terms, const heads *h, int64_t steps)
{
    int part[GRAPH_INPUTS];
    for (int64_t i = 0; i < steps; i++) {
        int64_t from = h->rows * i / steps, to = h->rows * (i + 1) / steps;
        part[i] = attend(g, g_slice(g, q, 2, from, to - from), k, v, term, terms);
    }
    return g_concat(g, part, (int)steps, 2);
}

void lower_attention(lowering *l, const op_node *n)
{
    const attention_attributes *a = n->attributes;
    heads h = heads_of(n->in[0], a->heads);
    int term[3], q = queries(l, n), k = keys(l, n), v = split(l, n->in[2], a->heads, false);
    int terms = terms_of(l, n, term), y;
    int64_t scores = h.count * h.rows * n->in[1]->dim[1], steps = (scores + MOST_SCORES - 1) / MOST_SCORES;
    bool same = !a->causal && !n->in[4];
    if (steps > 1 && same)
        y = attend_in_turns(l->g, q, k, v, term, terms, &h, steps < GRAPH_INPUTS ? steps : GRAPH_INPUTS);
    else
        y = attend(l->g, q, k, v, term, terms);
    y = g_transpose(l->g, y, (int[]){0, 2, 1, 3});
    lower_bind_last(l, n->out, g_reshape(l->g, y, 3, n->out->dim));
}
