/* names.h - official names of tensors, and what the names in a file say about it. */
#ifndef FORMATS_NAMES_H
#define FORMATS_NAMES_H

#include "formats/tensor_list.h"

/* The official name for a name found in a checkpoint: wrappers in front are dropped, the interactive predictor's
 * tensors are the tracker's, and what has no part in front belongs to the detector. Yours to free; NULL: no memory. */
char *official_name(const char *name);

/* What a file with these tensors looks like, in a short phrase. */
const char *guess_from_names(const tensor_list *list);

#endif
