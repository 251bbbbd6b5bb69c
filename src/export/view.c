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

void view_fill(float *out, const weight_view *v, const float *values)
{
    int64_t cols = v->p->t.dim[0] ? tensor_count(&v->p->t) / v->p->t.dim[0] : 0;
    if (!v->rows) {
        memcpy(out, values, sizeof *out * (size_t)tensor_count(&v->p->t));
        return;
    }
    for (int64_t i = 0; i < v->rows; i++) {
        const float *row = values + source_row(v, i) * cols;
        if (v->transpose)
            for (int64_t c = 0; c < cols; c++)
                out[c * v->rows + i] = row[c];
        else
            memcpy(out + i * cols, row, sizeof *out * (size_t)cols);
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
