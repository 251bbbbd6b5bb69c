/* to_onnx.h - a graph as an ONNX file. */
#ifndef EXPORT_TO_ONNX_H
#define EXPORT_TO_ONNX_H

#include "export/graph.h"

/* Values of a parameter as f32 in a new buffer, which becomes the caller's. NULL: out of memory. */
typedef float *(*param_values)(void *user, const param *p);

typedef struct onnx_options {
    const char *name, *version;        /* of the graph and of the producer */
    bool        external;              /* weights in a file of their own */
    bool        plain;                 /* norms as single steps, for converters that know no LayerNormalization */
    bool        half;                  /* weights and most arithmetic in f16; inputs and outputs stay f32 */
    const graph *other;                /* the same part traced with another size: dimensions that differ are free */
    const char *symbol;                /* their name, "batch" */
    const char *const (*meta)[2];      /* pairs; NULL, NULL at the end */
    param_values values;
    void        *user;
} onnx_options;

int graph_to_onnx(graph *g, const char *path, const onnx_options *o, samite_error *err);

/* The numbers of an initializer from those of its parameter. */
void view_fill(float *out, const weight_view *v, const float *values);
/* The way back: rows of the parameter from what was stored of them; other rows are left alone. v->rows is not 0. */
void view_take(float *out, const weight_view *v, const float *stored);
/* Bytes of all weights the graph needs. */
uint64_t graph_weight_bytes(graph *g);

#endif
