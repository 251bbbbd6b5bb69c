/* view.c - initializers from parameters: rows taken, put in another order, transposed. */
#include <stdlib.h>
#include <string.h>

#include "export/to_onnx.h"

static int64_t source_row(const weight_view *v, int64_t i)
{
    if (i >= v->halves_to)
        return v->first + i;
    int64_t block = i / v->halves, k = i % v->halves, half = v->halves / 2;
    return v->first + block * v->halves + (k < half ? 2 * k : 2 * (k - half) + 1);
}

enum { TILE = 32 };     /* rows and columns that are turned together, so that both sides stay in the cache */

/* Between rows of a parameter and columns of its transposed view; `back`: to the parameter. */
static void turn_tile(float *out, const weight_view *v, const float *in, int64_t cols, int64_t i0, int64_t c0,
                      bool back)
{
    int64_t i1 = i0 + TILE < v->rows ? i0 + TILE : v->rows, c1 = c0 + TILE < cols ? c0 + TILE : cols;
    for (int64_t i = i0; i < i1; i++) {
        int64_t row = source_row(v, i) * cols;
        for (int64_t c = c0; c < c1; c++)
            if (back)
                out[row + c] = in[c * v->rows + i];
            else
                out[c * v->rows + i] = in[row + c];
    }
}

static void turn(float *out, const weight_view *v, const float *in, int64_t cols, bool back)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < v->rows; i += TILE)
        for (int64_t c = 0; c < cols; c += TILE)
            turn_tile(out, v, in, cols, i, c, back);
}

static int64_t columns_of(const weight_view *v)
{
    int64_t rows = v->p->t.axes ? v->p->t.dim[0] : 1;
    return rows ? tensor_count(&v->p->t) / rows : 0;
}

void view_fill(float *out, const weight_view *v, const float *values)
{
    int64_t cols = columns_of(v);
    if (!v->rows) {
        memcpy(out, values, sizeof *out * (size_t)tensor_count(&v->p->t));
    } else if (v->transpose) {
        turn(out, v, values, cols, false);
    } else {
        for (int64_t i = 0; i < v->rows; i++)
            memcpy(out + i * cols, values + source_row(v, i) * cols, sizeof *out * (size_t)cols);
    }
}

void view_take(float *out, const weight_view *v, const float *stored)
{
    int64_t cols = columns_of(v);
    if (v->transpose) {
        turn(out, v, stored, cols, true);
    } else {
        for (int64_t i = 0; i < v->rows; i++)
            memcpy(out + source_row(v, i) * cols, stored + i * cols, sizeof *out * (size_t)cols);
    }
}

uint64_t graph_weight_bytes(graph *g)
{
    uint64_t bytes = 0;
    graph_prune(g);
    for (int i = 0; i < g->values; i++)
        if (g->value[i].used && (g->value[i].from == FROM_PARAM || g->value[i].from == FROM_NUMBERS))
            bytes += (uint64_t)graph_count(&g->value[i]) * dtype_size(g->value[i].type);
    return bytes;
}
