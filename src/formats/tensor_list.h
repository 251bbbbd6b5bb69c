/* tensor_list.h - a stored tensor, and the growing list of them that each file reader fills. */
#ifndef FORMATS_TENSOR_LIST_H
#define FORMATS_TENSOR_LIST_H

#include <stdbool.h>

#include "base/dtype.h"
#include "base/error.h"

#define WEIGHT_AXES 8

/* A tensor as it lies in a mapped file: nothing is copied, `data` may be misaligned and strides may be anything that
 * stays inside the file. A tensor that a file holds in pieces has data == NULL and `parts` pieces whose elements
 * follow each other in row-major order. */
typedef struct weight {
    const char *name;
    dtype       type;
    int         axes;
    int64_t     dim[WEIGHT_AXES];
    int64_t     stride[WEIGHT_AXES];    /* in elements */
    const void *data;
    int         parts;                  /* 0, or how many pieces `part` has */
    const struct weight *part;
    const void *scale;                  /* f32 for every step along axis 0, by which its elements are to be multiplied,
                                           misaligned perhaps; NULL: none. For DT_I8 in one piece */
} weight;

int64_t weight_count(const weight *w);       /* elements */
size_t  weight_bytes(const weight *w);       /* bytes of its elements once they stand one after the other */
/* Row-major without gaps and in one piece: `data` may be used as it is (mind its alignment). */
bool    weight_contiguous(const weight *w);
/* All elements in row-major order, as f32 with their scales or unchanged. Parallel. `out` has room for weight_count() elements. */
void    weight_to_f32(float *out, const weight *w);
void    weight_copy(void *out, const weight *w);
/* "[64, 3, 14, 14]" into `out`, which is returned. */
const char *weight_shape(const weight *w, char *out, size_t room);

typedef struct text_pair {
    char *key, *value;
} text_pair;

typedef struct tensor_list {
    weight    *items;                   /* names and pieces owned by the list */
    size_t     count, room;
    text_pair *refused;                 /* tensors in a form that cannot be used, and why: told when one is asked for */
    size_t     refused_count, refused_room;
    text_pair *notes;                   /* metadata */
    size_t     note_count, note_room;
} tensor_list;

/* Every add copies the strings and pieces it gets; the answer is 0 or SAMITE_RESOURCE, with *err filled. */
int  tensor_list_add(tensor_list *l, const weight *w, samite_error *err);
int  tensor_list_refuse(tensor_list *l, const char *name, const char *why, samite_error *err);
int  tensor_list_note(tensor_list *l, const char *key, const char *value, samite_error *err);
void tensor_list_free(tensor_list *l);

/* Fills the strides of a row-major tensor. */
void weight_set_strides(weight *w);
/* True if dims are >= 0 and the tensor's elements, at its strides, all lie within `bytes` bytes from its first one. */
bool weight_fits(const weight *w, uint64_t bytes);

#endif
