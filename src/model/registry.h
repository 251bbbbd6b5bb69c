/* registry.h - the flat list of everything trained: each part declares its tensors once, in one function.
 *
 * Loading, saving, counting, packing, the optimizer and the exporters walk this list; nobody else names a tensor.
 */
#ifndef MODEL_REGISTRY_H
#define MODEL_REGISTRY_H

#include "ops/ops.h"

typedef enum model_part {
    PART_TRUNK, PART_NECK, PART_TEXT, PART_GEOMETRY, PART_FUSION, PART_DECODER, PART_MASK_HEAD,
    PART_TRACKER_NECK, PART_CLICK, PART_MEMORY, PART_COUNT
} model_part;

/* What "missing" means for a part: the detector is needed, the rest only for what it does. */
const char *model_part_name(model_part p);      /* "image encoder", "text encoder", ... */

typedef struct entry {
    param      p;
    model_part part;
    int        packers;      /* layers that pack this tensor and then no longer need its values */
    bool       raw;          /* values are read by ops themselves (norms, embeddings, tokens) */
    bool       unused;       /* official files have it, the network does not need it */
    bool       missing;      /* the file has no such tensor */
    bool       eight;        /* the file has it, or is to get it, in 8 bits with scales */
} entry;

typedef struct layer {
    enum { LAYER_LINEAR, LAYER_CONV, LAYER_UP } kind;
    model_part part;
    union { linear_w *linear; conv_w *conv; up_w *up; };
} layer;

typedef struct registry {
    entry    **entries;      /* stable addresses */
    size_t     count, room;
    layer     *layers;
    size_t     layer_count, layer_room;
    char       path[256];    /* of the part being declared, with a dot at its end */
    size_t     path_size;
    model_part part;
    bool       failed;       /* out of memory or a path too long */
} registry;

void registry_free(registry *g);
entry *registry_find(const registry *g, const char *name);

/* Marks the tensors declared since `from` (a value of g->count) as unused. */
void registry_unused(registry *g, size_t from);

/* Enter "blocks.3." below the current path; returns the mark for registry_leave. */
size_t registry_enter(registry *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
void   registry_leave(registry *g, size_t mark);

/* A tensor that ops read themselves. */
param *declare(registry *g, const char *name, int axes, const int64_t *dim);
param *declare_vector(registry *g, const char *name, int64_t n);
param *declare_matrix(registry *g, const char *name, int64_t rows, int64_t cols);

void declare_linear(registry *g, const char *name, linear_w *l, int64_t in, int64_t out);   /* name.weight, name.bias */
/* Rows first..first+out of NAME_weight and NAME_bias, which were declared with `rows` rows (in_proj). */
void declare_linear_rows(registry *g, const char *name, linear_w *l, int64_t in, int64_t first, int64_t out, int64_t rows);
void declare_linear_no_bias(registry *g, const char *name, linear_w *l, int64_t in, int64_t out, int axes,
                            const int64_t *dim);
void declare_norm(registry *g, const char *name, norm_w *n, int64_t d, float eps);
/* The values of this layer stay after packing, for ops that read them. */
void registry_keep(const linear_w *l);
void declare_conv(registry *g, const char *name, conv_w *c, int64_t in, int64_t out, int kernel, int stride, int pad,
                  int groups);
void declare_conv1(registry *g, const char *name, linear_w *l, int64_t in, int64_t out);    /* 1x1 as a linear layer */
void declare_up(registry *g, const char *name, up_w *u, int64_t in, int64_t out);

#endif
