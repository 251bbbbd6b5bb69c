/* kernels.h - everything that touches numbers in bulk: one table of function pointers, filled per CPU.
 *
 * Raw pointers and sizes; nothing is allocated and nothing can fail. Matrices are row-major f32 unless said otherwise.
 * `ref/` holds plain loops with double accumulators: specification, oracle and fallback. Levels above it agree with it
 * within the stated tolerance (relative to the largest |value| of the output) and give the same bits for any number of
 * threads. Outputs may alias an input only where a slot says so. Loops are shared out among OpenMP threads inside.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum activation { ACT_NONE, ACT_RELU, ACT_GELU, ACT_SIGMOID } activation;   /* GELU is the exact (erf) form */

/* softmax(scale q k^T + bias) v for every batch item and head. Head h of a row are the `dim` values from h * dim on. */
typedef struct attention_args {
    float       *y;                 /* [batch, nq, heads * dim], row stride y_stride */
    const float *q, *k, *v;         /* rows of heads * dim values; v and y: of heads * v_dim */
    int64_t batch, heads, dim, nq, nk;
    int64_t v_dim;                  /* 0: dim. Backward takes dim only */
    int64_t q_stride, k_stride, v_stride, y_stride;   /* elements from one row to the next */
    int64_t q_batch, k_batch, v_batch, y_batch;       /* elements from one batch item to the next; 0: shared by all */
    float   scale;                  /* usually 1 / sqrt(dim) */
    bool    causal;                 /* row i sees keys 0..i only */
    const float *key_mask;          /* [batch, nk], nonzero = never attended, whatever k and v hold there; NULL = none.
                                       A row without any key gives y = 0 and lse = -infinity. */
    const float *bias_x, *bias_y;   /* [batch, nq, grid_w, heads] and [batch, nq, grid_h, heads] or both NULL: key j's
                                       score gains bias_x[.., j % grid_w, head] + bias_y[.., j / grid_w, head] */
    int64_t grid_w, grid_h;
    const float *rope;              /* [rope_rows, dim]: cos, sin of each of dim / 2 rotated pairs, interleaved; or
                                       NULL. Values 2i, 2i+1 of a head form a pair. Query or key i: row i % rope_rows */
    int64_t rope_rows, rope_keys;   /* only the first rope_keys keys are rotated (all queries are) */
    float  *lse;                    /* [batch, heads, nq] log of the softmax denominator, or NULL (backward needs it) */
    void   *scratch;                /* attention_scratch(args) bytes, 64-byte aligned */
} attention_args;

/* Gradients of the above; each may be NULL, and each is added to. Same strides as the forward's q, k, v, y. */
typedef struct attention_grads {
    const float *dy, *y, *lse;
    float *dq, *dk, *dv;            /* with respect to the unrotated q, k */
    float *dbias_x, *dbias_y;
    void  *scratch;                 /* attention_backward_scratch(args) bytes */
} attention_grads;

/* y[r, o] = act(x_scale[r] w_scale[o] (sum_i x[r, i] w[o, i] - x_zero[r] w_sum[o]) + bias[o]) + residual[r, o].
 * Weights lie in panels of INT8_PANEL outputs: w[o / PANEL][i / 4][o % PANEL][i % 4], zeros where there is no i or o. */
enum { INT8_PANEL = 64 };
typedef struct int8_product {
    float         *y;
    const float   *residual;        /* strides of y; y itself, or NULL */
    int64_t        ldy;
    const uint8_t *x;               /* [rows, in], from quantize */
    const float   *x_scale;         /* [rows] */
    const int32_t *x_zero;
    const int8_t  *w;
    const float   *w_scale, *bias;  /* [out], padded to whole panels */
    const int32_t *w_sum;           /* sum_i w[o, i] */
    int64_t        rows, in, out;   /* in: a multiple of 4 */
    activation     act;
} int8_product;

/* 3x3 convolution with stride 1 and zeros around, channels last, by Winograd's F(2, 3): every 2 x 2 outputs come from 16
 * products instead of 36. Weights from winograd_pack: [16][out / WINOGRAD_PANEL][in][WINOGRAD_PANEL] in f32, or
 * [16][out / WINOGRAD_PANEL][in / 2][WINOGRAD_PANEL][2] in bf16, zeros where there is no output. */
enum { WINOGRAD_PANEL = 64, WINOGRAD_TILES = 24, WINOGRAD_CHANNELS = 16 };
typedef struct winograd_args {
    float         *y;               /* [batch, height, width, out] */
    const float   *x;               /* [batch, height, width, in] */
    const void    *w;
    const float   *bias;            /* [out], padded to whole panels */
    int64_t        batch, height, width, in, out;     /* in and out: multiples of WINOGRAD_CHANNELS */
    void          *scratch;         /* winograd_scratch() bytes for each thread, 64-byte aligned */
} winograd_args;

typedef struct kernels {
    const char *level;              /* "ref", "avx2", "avx512" */

    /* y[i] = a[i] + b[i % period]; y may be a or b (b only if period == n). Exact. */
    void (*add)(float *y, const float *a, const float *b, int64_t n, int64_t period);
    /* y[i] += s * x[i]. 1e-7 */
    void (*axpy)(float *y, const float *x, float s, int64_t n);
    /* y = act(x); y may be x. GELU within 1e-6. */
    void (*activate)(float *y, const float *x, activation act, int64_t n);
    /* dx += dy * act'(x). */
    void (*activate_backward)(float *dx, const float *dy, const float *x, activation act, int64_t n);
    /* y = e^x / (sum of e^x) over each row of `cols`; -infinity gives 0, and a row of nothing else zeros. y may be x.
     * 1e-6 */
    void (*softmax)(float *y, const float *x, int64_t rows, int64_t cols);
    /* y[r] = (x[r] - mean) * rstd * gain + shift over each row of `cols`; mean/rstd [rows] are stored unless NULL.
     * y may be x. Variance without Bessel's correction. 1e-6 times (1 + |mean| rstd), which no f32 input can beat */
    void (*norm)(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift,
                 int64_t rows, int64_t cols, float eps);
    /* dx, dgain, dshift are added to; each may be NULL. */
    void (*norm_backward)(float *dx, float *dgain, float *dshift, const float *dy, const float *x, const float *mean,
                          const float *rstd, const float *gain, int64_t rows, int64_t cols);
    /* GroupNorm over [pixels, channels] with `groups` equal slices of channels, statistics over all pixels of one item;
     * batch items follow each other. mean/rstd [batch, groups] stored unless NULL. relu: max(0, .) after. y may be x.
     * Tolerance 1e-5 */
    void (*group_norm)(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift,
                       int64_t batch, int64_t pixels, int64_t channels, int64_t groups, float eps, bool relu);
    /* See attention_args. 1e-5. dim and v_dim are multiples of 8 up to 256. */
    void (*attention)(const attention_args *a);
    /* The same with q, k, v and the weights rounded to bf16 before they are multiplied (sums and softmax stay f32) where
     * the CPU has instructions for that, else in f32. 1.5e-2 */
    void (*attention_bf16)(const attention_args *a);
    /* The same with q and k (turned) in 8 bits, a scale per row, where the CPU has instructions for that and the scores
     * are short enough for so few; without mask, bias and causal only. 3e-2 */
    void (*attention_int8)(const attention_args *a);
    void (*attention_backward)(const attention_args *a, const attention_grads *g);
    /* bf16 <-> f32, round to nearest even; n values. Exact. */
    void (*to_bf16)(uint16_t *y, const float *x, int64_t n);
    void (*from_bf16)(float *y, const uint16_t *x, int64_t n);
    /* to_bf16 of act(x). GELU 1e-4 besides the rounding */
    void (*activate_to_bf16)(uint16_t *y, const float *x, activation act, int64_t n);
    void (*from_f16)(float *y, const uint16_t *x, int64_t n);
    /* Each row of x as 8-bit numbers: x = scale (y - zero) within half a step; 0 is exact. y rows are ldy apart, a
     * multiple of 4; columns beyond `cols` become 0. A row that is not finite has scale NaN. Exact. */
    void (*quantize)(uint8_t *y, int64_t ldy, float *scale, int32_t *zero, const float *x, int64_t ldx, int64_t rows,
                     int64_t cols);
    /* See int8_product. 1e-6, with GELU 1e-4 */
    void (*product_int8)(const int8_product *p);
    /* See winograd_args. 1e-5 */
    void (*winograd)(const winograd_args *a);
    /* Pixels and weights rounded to bf16 after their transformation; NULL where the CPU has no such instructions. 2e-2 */
    void (*winograd_bf16)(const winograd_args *a);
    int    int8_limit;              /* largest |w| that product_int8 may be given */
    /* sum over rows: y[c] += sum_r x[r, c]. 1e-6 */
    void (*column_sums)(float *y, const float *x, int64_t rows, int64_t cols, int64_t stride);
} kernels;

/* The table in use. Before the first call kernels_cap() may limit it; the choice is made once and never changes. */
const kernels *kernels_get(void);
/* "ref", "avx2", "avx512" (or NULL = best): the highest level allowed, for oneDNN too. false: unknown, or too late. */
bool kernels_cap(const char *level);
/* All levels this CPU can run, lowest first; returns their number (at most `max`). For tests. */
int kernels_levels(const kernels **tables, int max);
/* One line such as "AVX2 FMA F16C AVX512F AVX512_BF16 AVX512_VNNI". */
const char *kernels_cpu_features(void);

/* Bytes; they depend on the sizes and on whether there is a bias, not on pointers or threads. */
size_t attention_scratch(const attention_args *a);
size_t attention_backward_scratch(const attention_args *a);
size_t winograd_scratch(int64_t in);         /* per thread */

#endif
