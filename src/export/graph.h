/* graph.h - what exporters write: a list of simple operations on dense values of known shape, in order of computation.
 *
 * Lowering (lower.h) makes it from the trace of the one model definition; each format has one table row per operation.
 * Sticky error, as in a run: after a failure every call returns 0, which is a value that exists in every graph.
 */
#ifndef EXPORT_GRAPH_H
#define EXPORT_GRAPH_H

#include "base/dtype.h"
#include "base/text.h"
#include "ops/ops.h"

typedef enum prim {
    P_ADD, P_SUB, P_MUL, P_DIV, P_MAX, P_MIN,                      /* numpy broadcasting */
    P_RELU, P_SIGMOID, P_GELU, P_SIN, P_COS, P_LOG, P_ABS, P_SIGN, /* GELU is the erf form */
    P_IDENTITY,
    P_MATMUL,           /* [.., n, k] [.., k, m] -> [.., n, m], leading axes as numpy */
    P_SOFTMAX,          /* last axis */
    P_NORM,             /* x, gain, shift; f: epsilon; last axis */
    P_GROUP_NORM,       /* x [B, C, h, w], gain, shift; f: epsilon; n: groups */
    P_CONV,             /* x [B, in, h, w], w [out, in / groups, k, k], bias?; n: kernel, stride, pad, groups */
    P_CONV_UP2,         /* x [B, in, h, w], w [in, out, 2, 2], bias? */
    P_MAX_POOL2,        /* [B, C, h, w] */
    P_RESIZE_NEAREST,   /* [B, C, h, w] -> n: height, width; pixel floor(i * from / to) */
    P_RESIZE_LINEAR,    /* the same; corners not aligned */
    P_RESHAPE,          /* to the shape of the output */
    P_TRANSPOSE,        /* n: permutation */
    P_SLICE,            /* n: axis, first, count */
    P_CONCAT,           /* n: axis; up to GRAPH_INPUTS values */
    P_EXPAND,           /* to the shape of the output */
    P_PAD_FRONT,        /* n: axis, count; zeros */
    P_GATHER,           /* table [rows, ..], ids: rows by index */
    P_SUM,              /* n: axis, which stays with length 1 */
    P_EQUAL,            /* to bool */
    P_CAST,             /* to the type of the output */
    P_ROI_ALIGN,        /* x [B, C, h, w], boxes [B n, 4], n of each map in turn -> [B n, C, s, s]; n: s, n */
    P_GRID_SAMPLE,      /* x [1, C, h, w], grid [1, 1, n, 2] in -1..1 -> [1, C, 1, n] */
    P_COUNT
} prim;

#define GRAPH_INPUTS 8
#define GRAPH_INTS   4

/* Numbers of an initializer, taken from a parameter when the file is written. */
typedef struct weight_view {
    const param *p;
    int64_t first, rows;           /* of the parameter's matrix view; 0, 0 = all of it as it is */
    bool    transpose;             /* [rows, cols] -> [cols, rows] */
    int64_t halves, halves_to; /* rows 0..halves_to come in blocks of `halves`: in each the even rows, then the odd */
} weight_view;

typedef enum origin { FROM_INPUT, FROM_NODE, FROM_PARAM, FROM_NUMBERS } origin;

typedef struct gvalue {
    char       *name;              /* unique */
    dtype       type;              /* DT_F32, DT_I64, DT_BOOL */
    int         axes;              /* 0..4 */
    int64_t     dim[MAX_AXES];
    origin      from;
    weight_view view;              /* FROM_PARAM */
    void       *numbers;           /* FROM_NUMBERS */
    bool        used;              /* after graph_prune: something needs it */
} gvalue;

typedef struct gnode {
    prim    op;
    char   *name;                  /* unique */
    int     in[GRAPH_INPUTS], inputs, out;
    int64_t n[GRAPH_INTS];
    float   f;
    bool    used;
} gnode;

typedef struct graph {
    gvalue  *value;
    gnode   *node;
    int      values, nodes, value_room, node_room;
    int     *input, *output;       /* value numbers, in the order they were declared */
    int      inputs, outputs;
    char     scope[256];           /* prefix of node names */
    name_map *names;
    samite_error error;            /* code 0: none */
} graph;

bool graph_open(graph *g);                     /* false: out of memory */
void graph_close(graph *g);
int  graph_fail(graph *g, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));   /* returns 0 */
void graph_scope(graph *g, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Values. All return value numbers. */
int graph_input(graph *g, const char *name, dtype type, int axes, const int64_t *dim);
int graph_weight(graph *g, const weight_view *v, int axes, const int64_t *dim); /* the same view: the same value */
int graph_numbers(graph *g, dtype type, int axes, const int64_t *dim, const void *numbers); /* equal ones are shared */
int graph_scalar(graph *g, float v);                                                   /* shape [1] */
void graph_output(graph *g, int v, const char *name);
/* Puts a node in front of output number i that copies the value; the name stays the output's. */
void graph_output_apart(graph *g, int i);

/* Operations. */
int g_binary(graph *g, prim op, int a, int b);
int g_unary(graph *g, prim op, int x);
int g_matmul(graph *g, int a, int b);
int g_reshape(graph *g, int x, int axes, const int64_t *dim);
int g_transpose(graph *g, int x, const int *order);
int g_slice(graph *g, int x, int axis, int64_t first, int64_t count);
int g_concat(graph *g, const int *x, int count, int axis);
int g_concat2(graph *g, int a, int b, int axis);
int g_expand(graph *g, int x, int axes, const int64_t *dim);
int g_cast(graph *g, int x, dtype type);
/* Any other: the caller knows the shape of the result. */
int g_node(graph *g, gnode n, dtype type, int axes, const int64_t *dim);

int64_t graph_count(const gvalue *v);          /* elements */
/* NULL when `b` is the same graph as `a` but for sizes that only inputs tell: a file with free dimensions can stand for
 * both. Else what depends on them besides. */
const char *graph_same_but_sizes(const graph *a, const graph *b);
/* Marks what the outputs need, and only that. */
void graph_prune(graph *g);

#endif
