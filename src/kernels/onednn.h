/* onednn.h - inside src/kernels: the shared oneDNN engine and small helpers over its C interface.
 *
 * oneDNN 2.x and 3.x differ in how tensors and operations are described; only onednn.c knows. A description made here is
 * freed with onednn_forget, and never copied by assignment.
 */
#ifndef KERNELS_ONEDNN_H
#define KERNELS_ONEDNN_H

#include <dnnl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/gemm.h"

/* The engine of this process, made on first use with the ISA cap in force. false: oneDNN is unusable. */
bool onednn_ready(void);

/* Whether GEMM_BF16 may be computed in bf16 here; otherwise it is packed and computed in f32. */
bool onednn_has_bf16(void);
/* Whether bf16 is computed by AMX, which is several times as fast as anything else. */
bool onednn_has_tiles(void);

/* Descriptions of tensors: a matrix by its strides, anything by a tag. false: refused; *d is empty then. */
bool   onednn_matrix(dnnl_memory_desc_t *d, int64_t rows, int64_t cols, dnnl_data_type_t type, int64_t row, int64_t col);
bool   onednn_tensor(dnnl_memory_desc_t *d, int axes, const int64_t *dim, dnnl_data_type_t type, dnnl_format_tag_t tag);
bool   onednn_same(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b);
size_t onednn_bytes(const dnnl_memory_desc_t *d);
void   onednn_forget(dnnl_memory_desc_t *d);           /* accepts an empty one ({0}) */

/* Operations. bias may be NULL; attr from onednn_epilogue, or NULL. false: refused; *pd is NULL then. */
bool onednn_product(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *w,
                    const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *y, dnnl_primitive_attr_t attr);
bool onednn_convolution(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *w,
                        const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *y, int64_t stride, int64_t pad,
                        dnnl_primitive_attr_t attr);
/* Description of the weights that an operation wants, and of its scratch memory (empty: none), as new ones. */
bool onednn_wanted(dnnl_memory_desc_t *weights, const_dnnl_primitive_desc_t pd);
bool onednn_scratch(dnnl_memory_desc_t *scratch, const_dnnl_primitive_desc_t pd);

/* A new tensor in `to` holding what `data` holds in `from`; *owner owns it. false: out of memory or refused. */
bool onednn_reorder(dnnl_memory_t *owner, const dnnl_memory_desc_t *to, const dnnl_memory_desc_t *from,
                    const void *data);

/* How an m x n product with inner length k is cut into blocks that one thread computes; depends on the shape alone. */
void onednn_blocks(int64_t *rows, int64_t *columns, int64_t m, int64_t n, int64_t k);

/* Attributes with the activation, then the residual (`sum` in place or another tensor of layout `residual`), appended
 * in that order; scratch memory comes from the caller, because oneDNN's own is not safe when a primitive made by one
 * thread runs in several others. NULL: out of memory. Free with dnnl_primitive_attr_destroy. */
dnnl_primitive_attr_t onednn_epilogue(activation act, bool sum, const dnnl_memory_desc_t *residual);

/* Runs to the end; `args` has room for one more than its n. false: out of memory or refused. */
bool onednn_execute(const_dnnl_primitive_t p, const dnnl_memory_desc_t *scratch, dnnl_exec_arg_t *args, int n);

/* dnnl_sgemm, safe against signals. Row-major, c = alpha op(a) op(b) + beta c. */
bool onednn_sgemm(char op_a, char op_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                  const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

/* As the function of oneDNN, but a failure leaves NULL in *m. */
bool onednn_wrap(dnnl_memory_t *m, const dnnl_memory_desc_t *desc, const void *data);

#endif
