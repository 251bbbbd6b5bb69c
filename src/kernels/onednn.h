/* onednn.h - inside src/kernels: the shared oneDNN engine and small helpers over its C interface. */
#ifndef KERNELS_ONEDNN_H
#define KERNELS_ONEDNN_H

#include <dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/gemm.h"

/* The engine and stream of this process, made on first use with the ISA cap in force. false: oneDNN is unusable. */
bool onednn_ready(void);
dnnl_engine_t onednn_engine(void);
dnnl_stream_t onednn_stream(void);

/* Whether GEMM_BF16 may be computed in bf16 here; otherwise it is packed and computed in f32. */
bool onednn_has_bf16(void);

/* A new tensor in `to` holding what `data` holds in `from`; *owner owns it. false: out of memory or refused. */
bool onednn_reorder(dnnl_memory_t *owner, const dnnl_memory_desc_t *to, const dnnl_memory_desc_t *from, const void *data);

/* Attributes with the activation, then the residual (`sum` in place or another tensor of layout `residual`), appended in
 * that order. NULL: out of memory. Free with dnnl_primitive_attr_destroy. */
dnnl_primitive_attr_t onednn_epilogue(activation act, bool sum, const dnnl_memory_desc_t *residual);

/* As the function of oneDNN, but a failure leaves NULL in *m. */
bool onednn_wrap(dnnl_memory_t *m, const dnnl_memory_desc_t *desc, const void *data);

#endif
