/* tensor.h - what the network computes with: shapes, values, parameters. */
#ifndef OPS_TENSOR_H
#define OPS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/gemm.h"

#define MAX_AXES 4

/* Channels-last, row-major, f32 (or int32 indices). The last axis is contiguous; rows are `stride` elements apart and
 * all other axes are packed rows: row r of the flattened [.., dim[axes-1]] starts at data + r * stride. */
typedef struct tensor {
    int      axes;             /* 1..4 */
    int64_t  dim[MAX_AXES];    /* outermost first */
    int64_t  stride;           /* dim[axes - 1] unless this is a view of some columns */
    float   *data;             /* NULL in TRACE */
    int32_t *index;            /* set instead of data for tensors of indices (token ids) */
    float   *grad;             /* strides of data; NULL unless asked for (run_want_grad) or a parameter's */
    int      id;               /* number of the value in the run, from 1; 0 = constant of this run or parameter */
    struct param *param;       /* the parameter behind this value, or NULL */
} tensor;

/* A trained tensor: named, shaped, bound to a file. Values are read-only in inference (they may be mapped). */
typedef struct param {
    const char *name;          /* official checkpoint name */
    tensor      t;             /* shape as in the checkpoint; data = contiguous f32 values */
    bool        owned;         /* t.data was allocated (converted from another type); else mapped or synthesised */
    const uint16_t *narrow;    /* the values as bf16 where t.data is NULL, for embed alone; NULL: none */
    bool        trainable;     /* the optimizer owns t.data and t.grad */
} param;

/* y = x w^T + b over rows first..first+out of the matrices; several may look at one parameter (in_proj_weight). */
typedef struct linear {
    param        *w, *b;       /* w [.., in], b [..]; b NULL = no bias */
    int64_t       first;       /* first row of w and b used */
    int64_t       in, out;
    gemm_weights *packed;      /* made once by linear_pack for inference; NULL = use w as it is */
    const struct adapter_w *adapter;   /* learnt beside frozen weights, or NULL */
} linear_w;

/* Low-rank change of a linear layer: y += scale (x down^T) up^T. */
typedef struct adapter_w {
    linear_w down, up;         /* [rank, in], [out, rank]; no bias */
    float    scale;
} adapter_w;

typedef struct conv_w {
    param        *w, *b;       /* w [out, in / groups, kernel, kernel] */
    conv_shape    shape;
    conv_weights *packed;
} conv_w;

typedef struct norm_w {
    param *gain, *shift;       /* [d] */
    float  eps;
} norm_w;

int64_t tensor_count(const tensor *t);    /* elements */
int64_t tensor_rows(const tensor *t);     /* product of all axes but the last */
int64_t tensor_cols(const tensor *t);     /* the last axis */

#endif
