/* align.h - the parts of samite_align: a set of reference tensors, and comparing with them by name. */
#ifndef ALIGN_H
#define ALIGN_H

#include <jansson.h>

#include "api.h"
#include "formats/tensor_list.h"

/* How a tensor of ours lies compared with the reference. */
typedef enum layout { AS_IS, CHANNELS_FIRST } layout;

typedef struct aligner {
    const samite_align_options *o;
    samite_align_summary *summary;
    double      max_relative, min_cosine;
    gemm_type   type;               /* of the model that is compared */
    bool        deep;               /* it has as many blocks as the official one */
    bool        by_part;            /* in bf16 and int8, unless the caller chose: see align_least_cosine */
    double      side;               /* longer side of the reference's picture in pixels; 0 = unknown */
    double      min_side;           /* in bf16 and int8, of decided masks: share of values on the same side of 0
                                       that is enough; else 0 */
    bool        decided;            /* what is compared now is such a mask */
    tensor_list reference;
    bool       *used;               /* [reference.count] */
    bool        out_of_memory;
    const char *title;              /* in front of every name that is reported; NULL: nothing */
} aligner;

/* Compares ours [shape `dim`] with the reference tensors `name`, `name`#everyK and `name`#stats, whichever exist. */
void align_tensor(aligner *a, const char *name, const float *ours, int axes, const int64_t *dim, layout how);
/* The same for masks after holes were filled and places chosen: there rounding decides about whole regions, so that in
 * bf16 and int8 the share of values on the same side of 0 counts, as NOTE says. */
void align_decided(aligner *a, const char *name, const float *ours, int axes, const int64_t *dim);
/* The same with the other values at hand: both [n]. */
void align_values(aligner *a, const char *name, const float *ours, const float *theirs, int64_t n);
/* Bounds of low precision for the tensor of that name, which is part of the network's result or on the way to one: the
 * least cosine, and the largest difference of its values (0: none; boxes in int8 may be off by 1 % of the side). */
double align_least_cosine(const aligner *a, const char *name);
double align_most_difference(const aligner *a, const char *name);
/* Index of a reference tensor, or -1. */
int64_t align_find(const aligner *a, const char *name);
/* Reports one row and counts it. */
void align_row(aligner *a, const samite_compared *row);
/* Marks references whose names start with `prefix` as parts that are not computed. */
void align_skip(aligner *a, const char *prefix);

int align_reference(aligner *a, samite_model *m, samite_error *err);    /* prompts.json */
/* Parts of prompts.json. `im` has the scene encoded, with its trunk's map; afterwards it holds another picture or none. */
int align_clicks(aligner *a, samite_image *im, const json_t *asked, samite_error *err);     /* click.* */
int align_track(aligner *a, samite_image *im, const json_t *asked, samite_error *err);      /* track.* */
int align_tokens(aligner *a, const char *path, samite_error *err);      /* tokens.jsonl */
int align_pixels(aligner *a, const char *photos, samite_error *err);    /* pixels.safetensors, already in a->reference */
int align_train(aligner *a, samite_model *m, samite_error *err);        /* train_*.safetensors */
int align_video(aligner *a, samite_model *m, samite_error *err);        /* video_*.json */
int align_models(aligner *a, samite_model *m, samite_error *err);       /* a->o->against */
int align_engine(aligner *a, samite_model *m, samite_error *err);       /* the same where that is exported parts */

#endif
