/* hf_names.h - from the tensor names of Hugging Face transformers' Sam3 models to the official ones. */
#ifndef FORMATS_HF_NAMES_H
#define FORMATS_HF_NAMES_H

#include "formats/tensor_list.h"

/* Are these the tensors of a Sam3Model or Sam3VideoModel? */
bool hf_detect(const tensor_list *found);

/* Adds the tensors of *found to *out under official names and in official shapes, still without copying: split
 * query/key/value projections become one tensor of three parts, transposed ones a strided view, the position table gets
 * a zero row for the class token that transformers leaves out (its value is never used). The six
 * geometry_encoder.points_* tensors and the tables freqs_cis have no counterpart in such files. */
int hf_translate(tensor_list *out, const tensor_list *found, const char *path, samite_error *err);

#endif
