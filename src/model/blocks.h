/* blocks.h - what several parts are made of: multi-head attention, small perceptrons, position codes. */
#ifndef MODEL_BLOCKS_H
#define MODEL_BLOCKS_H

#include "model/config.h"
#include "model/registry.h"

/* Multi-head attention with separate inputs for queries, keys and values. */
typedef struct attend_w {
    linear_w q, k, v, out;     /* [d, d] each; q, k, v are thirds of in_proj_weight */
    int      heads;
} attend_w;
void declare_attend(registry *g, const char *name, attend_w *w, int64_t d, int heads);

/* residual + out(attention(q, k, v)). o may be NULL; o->heads is taken from w. */
tensor *attend_add(run *r, tensor *residual, const attend_w *w, tensor *q, tensor *k, tensor *v, const attend_options *o);

/* The same with what run_set_drop asks for: attention weights, and the result before it is added. */
tensor *attend_drop_add(run *r, tensor *residual, const attend_w *w, tensor *q, tensor *k, tensor *v,
                        const attend_options *o);

/* Linear layers with ReLU between them: layers.0 .. layers.(count - 1). */
#define MLP_MAX 3
typedef struct mlp_w {
    linear_w layer[MLP_MAX];
    int      count;
} mlp_w;
void    declare_mlp(registry *g, const char *name, mlp_w *w, int64_t in, int64_t hidden, int64_t out, int count);
tensor *mlp(run *r, tensor *x, const mlp_w *w);
tensor *mlp_drop(run *r, tensor *x, const mlp_w *w);        /* numbers dropped between layers, see run_set_drop */

/* feed_forward with numbers dropped, see run_set_drop, behind the activation and before the sum. */
tensor *feed_forward_drop(run *r, tensor *x, const norm_w *n, const linear_w *up, const linear_w *down,
                              activation act);

/* Sine position codes of a grid: [height, width, d]; first half y, second half x; positions i / n from 1, times 2 pi. */
void grid_codes(float *out, int64_t height, int64_t width, int64_t d);

/* 2-D rotary table for a side x side grid: [side * side, dim] cos/sin pairs, first half of the pairs turns with x, the other
 * with y; positions are multiplied by `step`. window > 0: rows stand in window order, else in raster order. */
void rope_table(float *out, int64_t side, int64_t dim, float step, int64_t window);

#endif
