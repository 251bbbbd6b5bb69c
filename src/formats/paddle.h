/* paddle.h - PaddlePaddle 3 files: programs (PIR JSON), parameters (.pdiparams) and state dictionaries (.pdparams).
 *
 * Programs are written in file version 1, which every 3.x reads. Reading takes weights back; it copies nothing.
 */
#ifndef FORMATS_PADDLE_H
#define FORMATS_PADDLE_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/text.h"
#include "formats/tensor_list.h"

#define PADDLE_AXES  4
#define PADDLE_NOTES "samite"        /* key of our own notes in a program, which PaddlePaddle does not look at */

/* A program being put together; out of memory shows in `ops.failed`. Values are numbered from 1. */
typedef struct pir {
    text ops;
    text attributes, in;     /* of the operation being put together */
    int  values, fetched;
    bool vector;             /* of the operation: one result that is a list */
} pir;

void pir_free(pir *p);
int  pir_parameter(pir *p, const char *name, dtype type, int axes, const int64_t *dim);
int  pir_data(pir *p, const char *name, dtype type, int axes, const int64_t *dim);
void pir_fetch(pir *p, int value, const char *name, dtype type, int axes, const int64_t *dim);

/* An operation: inputs and attributes, then its end with the shape of its (first) result. 0 as an input: absent. */
void pir_in(pir *p, int value);
void pir_bool(pir *p, const char *name, bool v);
void pir_i32(pir *p, const char *name, int64_t v);
void pir_i64(pir *p, const char *name, int64_t v);
void pir_f32(pir *p, const char *name, double v);
void pir_text(pir *p, const char *name, const char *v);
void pir_dtype(pir *p, const char *name, dtype v);               /* DT_COUNT: undefined */
void pir_i32s(pir *p, const char *name, const int64_t *v, int count);
void pir_i64s(pir *p, const char *name, const int64_t *v, int count);
int  pir_end(pir *p, const char *op, dtype type, int axes, const int64_t *dim);
/* The same with further results, which nothing uses. */
int  pir_end_with(pir *p, const char *op, dtype type, int axes, const int64_t *dim, int more, int more_axes,
                  const int64_t *more_dim);

/* Constants and lists that operations take as inputs. */
int  pir_full(pir *p, dtype type, double v, int axes, const int64_t *dim);
int  pir_integers(pir *p, const int64_t *v, int count);
int  pir_list(pir *p, const int *value, int count, dtype type, int axes, const int64_t (*dim)[PADDLE_AXES]);

/* The whole file. notes: pairs for PADDLE_NOTES, NULL, NULL at the end; or NULL. */
int  pir_write(pir *p, const char *path, const char *const (*notes)[2], samite_error *err);

/* The bytes in front of a tensor's data in a .pdiparams file, whose tensors come in ascending order of their names. */
void paddle_tensor_head(text *out, dtype type, int axes, const int64_t *dim);

/* A .pdparams file: begin, then for each array head, its data, tail; end with all names again. */
void paddle_state_begin(text *out);
void paddle_array_head(text *out, const char *name, dtype type, int axes, const int64_t *dim);
void paddle_array_tail(text *out);
void paddle_state_end(text *out, const char *const *name, size_t count);

/* ---- reading ---- */

/* Adds the arrays of a .pdparams file; they point into `data`. */
int paddle_state_read(tensor_list *list, const uint8_t *data, size_t size, const char *path, samite_error *err);
/* Adds the parameters of a program, which point into its parameter file, and its notes. Files that do not belong
 * together or are cut off are refused. */
int paddle_program_read(tensor_list *list, const file_map *program, const file_map *parameters, samite_error *err);

#endif
