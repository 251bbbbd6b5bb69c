/* onnx.h - ONNX files: written piece by piece, and read without copying anything.
 *
 * Written: IR 8, opset 17, static or named dimensions, row-major tensors. Tensors are asked for one at a time while the
 * file is being written, so that no more than one is in memory.
 */
#ifndef FORMATS_ONNX_H
#define FORMATS_ONNX_H

#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "formats/tensor_list.h"

#define ONNX_OPSET 17
#define ONNX_IR    8
#define ONNX_AXES  8
#define ONNX_ALIGN 4096          /* of large tensors in an external data file */

/* Code of an element type in ONNX files; 0: none. */
int  onnx_type(dtype d);
bool onnx_type_back(dtype *d, int code);

/* ---- writing ---- */

typedef struct onnx_writer onnx_writer;
/* Fills the bytes of tensor number `index` (as counted by onnx_tensor). false: out of memory. */
typedef bool (*onnx_fill)(void *user, size_t index, void *out, size_t bytes);

onnx_writer *onnx_writer_new(void); /* NULL: out of memory; later failures are told by onnx_write */
void         onnx_writer_free(onnx_writer *w);

/* Begins a node; the attributes that follow belong to it. An input "" is an omitted one. */
void onnx_node(onnx_writer *w, const char *op, const char *name, const char *const *in, int inputs,
               const char *const *out, int outputs);
void onnx_attribute_int(onnx_writer *w, const char *name, int64_t v);
void onnx_attribute_ints(onnx_writer *w, const char *name, const int64_t *v, int count);
void onnx_attribute_float(onnx_writer *w, const char *name, float v);
void onnx_attribute_text(onnx_writer *w, const char *name, const char *v);

/* Declares a tensor of the model; returns its index. `inside`: small, and read by converters: never in the data file.
 */
size_t onnx_tensor(onnx_writer *w, const char *name, dtype type, int axes, const int64_t *dim, bool inside);

enum { ONNX_INPUT = 11, ONNX_OUTPUT = 12, ONNX_INNER = 13 };
/* A dimension of -1 is written as `symbol`. */
void onnx_value(onnx_writer *w, int kind, const char *name, dtype type, int axes, const int64_t *dim,
                const char *symbol);
void onnx_metadata(onnx_writer *w, const char *key, const char *value);

/* Writes PATH and, if `external`, PATH.data beside it. Both appear whole or not at all. */
int onnx_write(onnx_writer *w, const char *path, const char *graph_name, const char *version, bool external,
               onnx_fill fill, void *user, samite_error *err);

/* ---- reading ---- */

typedef struct onnx_name { const char *s; size_t n; } onnx_name;   /* inside the mapped file, not terminated */
bool onnx_is(onnx_name a, const char *s);

typedef struct onnx_tensor_info {
    onnx_name   name;
    int         type, axes;      /* type: ONNX code */
    int64_t     dim[ONNX_AXES];
    const void *data;            /* in the mapped file or its data file; NULL: neither */
    size_t      bytes;
    bool        external;
    uint64_t    offset;          /* in the data file */
} onnx_tensor_info;

typedef struct onnx_value_info {
    onnx_name name;
    int       type, axes;
    int64_t   dim[ONNX_AXES];    /* -1: not a number */
} onnx_value_info;

typedef struct onnx_node_info {
    onnx_name name, op;
    onnx_name in[16], out[4];
    int       inputs, outputs;
} onnx_node_info;

typedef struct onnx_file {
    file_map          map, data;         /* data: of the external file, if any */
    int64_t           ir, opset;
    onnx_node_info   *node;
    onnx_tensor_info *tensor;
    onnx_value_info  *input, *output;
    onnx_name        *meta;              /* key, value, key, value, ... */
    size_t            nodes, tensors, inputs, outputs, metas;
} onnx_file;

/* Refuses what is no ONNX model, tensors whose bytes are missing, and data files outside the model's folder. */
int  onnx_open(onnx_file *out, const char *path, samite_error *err);
void onnx_close(onnx_file *f);
const onnx_tensor_info *onnx_find_tensor(const onnx_file *f, const char *name);
/* Adds all tensors and metadata to a list; the tensors point into the mapped files. */
int onnx_list_weights(const onnx_file *f, tensor_list *list, samite_error *err);
/* Text of a metadata entry; yours to free. NULL: absent or out of memory. */
char *onnx_meta(const onnx_file *f, const char *key);

/* What every file of ours has to hold: one name per value and node, values made before they are used, numbers for all
 * dimensions, external ranges inside the file, aligned and apart. SAMITE_FAILED names the first that is not so. */
int onnx_check(const char *path, bool dynamic, samite_error *err);

#endif
