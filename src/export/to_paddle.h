/* to_paddle.h - a graph as a PaddlePaddle program with its parameters, and all weights as a state dictionary. */
#ifndef EXPORT_TO_PADDLE_H
#define EXPORT_TO_PADDLE_H

#include "export/to_onnx.h"
#include "model/sam3.h"

/* Writes PREFIX.json and PREFIX.pdiparams. notes: as pir_write has them. */
int graph_to_paddle(graph *g, const char *prefix, const char *const (*notes)[2], param_values values, void *user,
                    samite_error *err);

/* Writes all weights under their official names as f32; matrices of linear layers are [in, out], as Paddle's layers
 * want them. */
int model_to_pdparams(const sam3 *m, const char *path, param_values values, void *user, samite_error *err);

#endif
