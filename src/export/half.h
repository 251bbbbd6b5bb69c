/* half.h - which values of a graph are computed and kept in f16 when a file shall be small and fast. */
#ifndef EXPORT_HALF_H
#define EXPORT_HALF_H

#include "export/graph.h"

/* One flag per value, yours to free; NULL: out of memory. Products and convolutions are f16, and so is what moves or
 * joins their results; norms, softmax, positions and boxes stay f32, and so does everything added to an f32 value, such
 * as the stream of a transformer. Parameters are not decided here: they are what their user is. */
bool *half_plan(const graph *g);
/* Does this node compute in f16? */
bool  half_node(const bool *plan, const gnode *n);

#endif
