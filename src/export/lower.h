/* lower.h - from the trace of a part of the network to a graph: one table row per op. */
#ifndef EXPORT_LOWER_H
#define EXPORT_LOWER_H

#include "export/graph.h"

/* How a value of the trace is at hand in the graph: as the network has it, channels last, or with the channels in
 * front, as convolutions want it: [B, .., C] and [B, C, ..]. Made from each other when asked for. -1: not at hand. */
typedef struct forms {
    const tensor *t;
    int           last, first;
} forms;

typedef struct lowering {
    graph   *g;
    const run *r;
    forms   *table;            /* by tensor, open addressing */
    size_t   room, count;
    /* Linear layers whose outputs are rotated by position: see lower_attention.c. */
    struct rotated *rotated;
    size_t   rotated_count;
} lowering;

bool lowering_open(lowering *l, graph *g, const run *r);     /* false: out of memory */
void lowering_close(lowering *l);

/* What the caller knows of inputs of the trace: their values in the graph. */
void lower_bind_last(lowering *l, const tensor *t, int v);
void lower_bind_first(lowering *l, const tensor *t, int v);
/* Lowers all nodes of the run. Errors are in the graph. */
void lower_all(lowering *l);
/* A value of the trace. */
int  lower_last(lowering *l, const tensor *t);
int  lower_first(lowering *l, const tensor *t);

/* Is there a row for this op? (For tests.) */
bool lower_knows(const char *op);

/* ---- between the files of lowering ---- */

typedef void (*lower_fn)(lowering *l, const op_node *n);
bool lower_has_last(lowering *l, const tensor *t);
bool lower_has_first(lowering *l, const tensor *t);
/* The node that made a value, or NULL. */
const op_node *lower_maker(const lowering *l, const tensor *t);
int  lower_activation(lowering *l, int x, activation act);

/* lower_attention.c */
void lower_attention(lowering *l, const op_node *n);
/* Finds the linear layers that feed rotated attention; their rows are put in order for the half-split form. */
bool lower_find_rotated(lowering *l);
/* Sets halves and halves_to of a view of a linear layer's rows. */
void lower_rotated_rows(const lowering *l, const op_node *linear, weight_view *v);
/* lower_linear.c, lower_position.c, lower_picture.c */
void lower_linear(lowering *l, const op_node *n);
void lower_product(lowering *l, const op_node *n);
void lower_embed(lowering *l, const op_node *n);
void lower_gather_rows(lowering *l, const op_node *n);
void lower_masked_mean(lowering *l, const op_node *n);
void lower_norm(lowering *l, const op_node *n);
void lower_sine_embed(lowering *l, const op_node *n);
void lower_fourier_embed(lowering *l, const op_node *n);
void lower_box_distances(lowering *l, const op_node *n);
void lower_conv(lowering *l, const op_node *n);
void lower_conv_up2(lowering *l, const op_node *n);
void lower_group_norm(lowering *l, const op_node *n);
void lower_max_pool2(lowering *l, const op_node *n);
void lower_patches(lowering *l, const op_node *n);
void lower_patch_linear(lowering *l, const op_node *patches, const op_node *linear);
void lower_window_partition(lowering *l, const op_node *n);
void lower_window_merge(lowering *l, const op_node *n);
void lower_upsample_add(lowering *l, const op_node *n);
void lower_resize_bilinear(lowering *l, const op_node *n);
void lower_roi_align(lowering *l, const op_node *n);
void lower_point_sample(lowering *l, const op_node *n);

#endif
