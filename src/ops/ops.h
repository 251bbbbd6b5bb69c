/* ops.h - the verbs the network is written in. Each has its backward beside its forward and a row in every exporter.
 *
 * Shapes in brackets; `..` stands for any leading axes. Outputs are new, contiguous values of the run unless "view".
 * A failing op names itself, the part and both shapes. FLOPs are counted as 2 per multiply-add.
 */
#ifndef OPS_OPS_H
#define OPS_OPS_H

#include "ops/run.h"

typedef struct op_info {
    const char *name;                               /* "linear", "attention", ... : the key of export tables */
    void (*backward)(run *r, const op_node *n);     /* NULL: not differentiable (its inputs get no gradient) */
    bool view;                                      /* the output looks into the first input: nothing to do backwards */
} op_info;

/* The attribute structs are what op_node.attributes points at. An op without one has nothing beyond its shapes. */

/* linear.c */
typedef struct linear_attributes { const linear_w *w; activation act; } linear_attributes;   /* in: x, residual */
tensor *linear(run *r, tensor *x, const linear_w *w);                      /* [.., in] -> [.., out] */
tensor *linear_act(run *r, tensor *x, const linear_w *w, activation act);
tensor *linear_add(run *r, tensor *x, const linear_w *w, tensor *residual); /* x w^T + b + residual */
tensor *product(run *r, tensor *a, tensor *b);                             /* [B, n, d] [B, m, d] -> [B, n, m]; a b^T */
/* product(a, linear(pixels, w)) for a [B, n, d], pixels [B, h, w, in] -> [B, n, h * w]. RUN takes the weights to the few
 * rows of a instead, a (x W^T + b)^T = (a W) x^T + a b, where their values are at hand; else both ops are called. */
tensor *product_linear(run *r, tensor *a, tensor *pixels, const linear_w *w);
bool    linear_pack(linear_w *w, gemm_type type);                          /* false: out of memory */

/* feed_forward.c: one op each in RUN where the weights are packed, else the ops they consist of */
tensor *norm_linear(run *r, tensor *x, const norm_w *n, const linear_w *w);            /* linear(norm(x)) */
/* x + down(act(up(norm(x)))); n NULL: no norm. down: [up->out] -> [up->in] */
tensor *feed_forward(run *r, tensor *x, const norm_w *n, const linear_w *up, const linear_w *down, activation act);

/* attention.c */
typedef struct attend_options {
    int     heads;
    float   scale;                     /* 0 = 1 / sqrt(head width) */
    bool    causal;
    tensor *key_mask;                  /* [B, nk], 1 = padding, or NULL */
    tensor *bias_x, *bias_y;           /* [B, nq, grid_w, heads], [B, nq, grid_h, heads] or NULL: see kernels.h */
    const float *rope;                 /* [rope_rows, head width] table that outlives the run, or NULL */
    int64_t rope_rows, rope_keys;      /* rope_keys 0 = all keys */
} attend_options;
/* What the node keeps of it: in: q, k, v, key_mask, bias_x, bias_y; scale is never 0, rope_keys neither. */
typedef struct attention_attributes {
    int     heads;
    float   scale;
    bool    causal;
    const float *rope;
    int64_t rope_rows, rope_keys;
} attention_attributes;
/* q [B, nq, C], k and v [B or 1, nk, C] (1: shared by all B); may be column views. -> [B, nq, C]. In RUN v may be
 * narrower, and y is then as wide as v. */
tensor *attention(run *r, tensor *q, tensor *k, tensor *v, const attend_options *o);
/* attention(q, k, linear(x, w)). The weights of a row sum to 1, so with one head and no mask RUN projects what was
 * gathered of x, in place of every row of it; else both ops are called. */
tensor *attention_linear(run *r, tensor *q, tensor *k, tensor *x, const linear_w *w, const attend_options *o);

/* drop.c - what run_set_drop asks for */
typedef struct drop_attributes { uint64_t key; float rate; int64_t first, group; } drop_attributes;
typedef struct attention_drop_attributes {
    attention_attributes attention;
    drop_attributes      drop;
} attention_drop_attributes;
/* Numbers are 0 with run_drop_rate, the others grow by 1 / (1 - rate). x itself where nothing is dropped. */
tensor *drop(run *r, tensor *x);
/* The same for a branch as a whole: one of the `branches` equal parts of x at a time. */
tensor *drop_path(run *r, tensor *x, float rate, int64_t branches);
/* attention with weights dropped after the softmax; without rotation, and not causal. */
tensor *attention_drop(run *r, tensor *q, tensor *k, tensor *v, const attend_options *o);

/* norm.c */
typedef struct norm_attributes { const norm_w *w; int groups; bool relu; } norm_attributes;  /* groups 0 in norm */
tensor *norm(run *r, tensor *x, const norm_w *w);                          /* LayerNorm over the last axis */
/* GroupNorm over [B, h, w, C] channels-last, optionally followed by ReLU. */
tensor *group_norm(run *r, tensor *x, const norm_w *w, int groups, bool relu);

/* conv.c - [B, h, w, C] channels-last */
tensor *conv(run *r, tensor *x, const conv_w *w, activation act);
bool    conv_w_pack(conv_w *w, gemm_type type);
/* Transposed convolution with kernel 2, stride 2: w [in, out, 2, 2] as PyTorch stores it. -> [B, 2h, 2w, out] */
typedef struct up_w { param *w, *b; int64_t in, out; gemm_weights *packed;
                      const linear_w *then; gemm_weights *folded; } up_w;
typedef struct conv_attributes { const conv_w *w; activation act; } conv_attributes;
typedef struct up_attributes { const up_w *w; activation act; } up_attributes;
tensor *conv_up2(run *r, tensor *x, const up_w *w, activation act);
bool    up_w_pack(up_w *w, gemm_type type);
/* linear(conv_up2(x, w), then). RUN: one product with the weights `folded`, which up_w_pack makes where w->then is known
 * and its values are there; else both ops. */
tensor *conv_up2_linear(run *r, tensor *x, const up_w *w, const linear_w *then);
/* Non-overlapping patches as rows: [B, S, S, 3] -> [B, S/p, S/p, 3 p p], each row in order (channel, y, x). */
tensor *patches(run *r, tensor *x, int patch);
typedef struct window_attributes { int64_t size; } window_attributes;                  /* patches, window_*: the side */
/* Windows as batch items: [B, H, W, C] -> [B * (H/w) * (W/w), w * w, C], and back. */
tensor *window_partition(run *r, tensor *x, int window);
tensor *window_merge(run *r, tensor *x, int64_t batch, int64_t height, int64_t width, int window);
tensor *max_pool2(run *r, tensor *x);                                      /* [B, h, w, C] -> [B, h/2, w/2, C] */

/* elementwise.c */
typedef struct scale_attributes { float s; } scale_attributes;
typedef struct activate_attributes { activation act; } activate_attributes;
typedef struct clamp_attributes { float low, high; } clamp_attributes;
tensor *add(run *r, tensor *a, tensor *b);        /* b has a's shape or a suffix of it (repeated over leading axes) */
tensor *multiply(run *r, tensor *a, tensor *b);   /* same rule */
tensor *scale(run *r, tensor *x, float s);
tensor *activate(run *r, tensor *x, activation act);
tensor *clamp(run *r, tensor *x, float low, float high);                   /* zero gradient outside */
tensor *inverse_sigmoid(run *r, tensor *x);       /* log(max(x,1e-3)) - log(max(1-x,1e-3)), x clamped to 0..1 */
tensor *detach(run *r, tensor *x);                /* view without gradient */

/* shape.c */
typedef struct slice_attributes { int axis; int64_t first, count; } slice_attributes;    /* columns, rows */
typedef struct concat_attributes { int axis; } concat_attributes;
typedef struct gather_attributes { int64_t n; int32_t index[]; } gather_attributes;
typedef struct embed_attributes { const param *table; } embed_attributes;
tensor *reshape(run *r, tensor *x, int axes, const int64_t *dim);          /* view; x contiguous */
tensor *columns(run *r, tensor *x, int64_t first, int64_t count);          /* view of columns of the last axis */
tensor *rows(run *r, tensor *x, int64_t first, int64_t count);             /* view along axis 0 */
tensor *concat(run *r, tensor *a, tensor *b, int axis);                    /* b's axis 0 may be 1 when axis > 0 */
tensor *pad_front(run *r, tensor *x, int64_t n);                           /* [B, m, C] -> [B, n + m, C], zeros first */
tensor *copy(run *r, tensor *x);                                           /* contiguous copy of a view */
tensor *repeat(run *r, tensor *x, int64_t times);                         /* axis 0: 1 -> times */
tensor *gather_rows(run *r, tensor *x, const int32_t *index, int64_t n);   /* [rows, C] -> [n, C]; index is copied */
tensor *embed(run *r, param *table, tensor *ids);                          /* [vocab, C], ids [B, n] -> [B, n, C] */
/* [B, n, C], mask [B, n] 1 = skip, or NULL -> [B, C] */
tensor *masked_mean(run *r, tensor *x, tensor *mask);

/* resize.c */
/* nearest enlargement of small to big's size, plus big: the step of a feature pyramid. [B or 1, H, W, C] big. */
tensor *upsample_add(run *r, tensor *small, tensor *big);
/* [B, h, w, C]; corners not aligned, no antialias */
tensor *resize_bilinear(run *r, tensor *x, int64_t height, int64_t width);

/* sample.c */
typedef struct roi_attributes { int size; } roi_attributes;
/* Mean over sample points as torchvision's roi_align with aligned=false, scale 1, sampling_ratio 0 (adaptive).
 * x [B, H, W, C], boxes [B n, 4] x0 y0 x1 y1 in feature pixels (constants), n of each map in turn
 * -> [B n, size, size, C] */
tensor *roi_align(run *r, tensor *x, tensor *boxes, int size);
/* Bilinear, zero outside, corners not aligned: x [1, H, W, C], points [n, 2] x y in 0..1 -> [n, C] */
tensor *point_sample(run *r, tensor *x, tensor *points);

/* position.c */
typedef struct sine_attributes { int order[8]; int count, features; } sine_attributes;
typedef struct distance_attributes { int axis; } distance_attributes;
/* Sine codes of a normalised vector: each of x's columns c (in the order given) becomes `features` values
 * sin/cos interleaved of 2 pi x / 10000^(2 floor(i/2)/features). x [.., k] -> [.., k * features]. Differentiable. */
tensor *sine_embed(run *r, tensor *x, const int *order, int count, int features);
/* Distances of grid lines to box edges on a log scale: boxes [.., 4] cx cy w h in 0..1; axis 0: x, 1: y.
 * d = (i / n - edge) * 8; sign(d) log2(|d| + 1) / log2(8) -> [.., n, 2]. Differentiable. */
tensor *box_distances(run *r, tensor *boxes, int axis, int64_t n);

/* fourier.c */
typedef struct fourier_attributes { const param *matrix; } fourier_attributes;
/* Sines, then cosines, of 2 pi (2 x - 1) M: x [.., k] in 0..1, M [k, f] fixed frequencies -> [.., 2 f]. Differentiable
 * in x. */
tensor *fourier_embed(run *r, tensor *x, param *matrix);

#endif
