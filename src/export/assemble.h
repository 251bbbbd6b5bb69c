/* assemble.h - weights of a network put together again from the tensors of exported files.
 *
 * An exporter writes a parameter whole or in pieces, turned and with its rows in another order, and says so in the name
 * of the piece (graph.h). Here the pieces are found by those names and what was done to them is undone.
 */
#ifndef EXPORT_ASSEMBLE_H
#define EXPORT_ASSEMBLE_H

#include "formats/tensor_list.h"
#include "model/sam3.h"

typedef struct assembly assembly;

/* NULL: out of memory. `m` must stay. */
assembly *assembly_new(const sam3 *m);
void      assembly_free(assembly *a);                 /* accepts NULL */

/* Adds the tensors of a file, which must stay; tensors that are no parameters are passed over. `state`: a state
 * dictionary of PaddlePaddle, in which matrices of linear layers are [in, out]. SAMITE_INPUT: a parameter of another
 * shape than the network has. */
int  assembly_add(assembly *a, const tensor_list *list, const char *path, bool state, samite_error *err);
/* Are all rows of parameter number `i` of the registry there? */
bool assembly_has(const assembly *a, size_t i);
/* Were any of them stored as f16? */
bool assembly_is_half(const assembly *a, size_t i);
/* Its numbers; `out` has room for all of them. Pieces that say different things about the same rows are refused. */
int  assembly_fill(const assembly *a, size_t i, float *out, samite_error *err);
/* Is this the weight of a linear layer, a plain matrix? */
bool is_linear_matrix(const sam3 *m, const param *p);

#endif
