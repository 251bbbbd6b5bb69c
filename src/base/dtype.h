/* dtype.h - element types of stored tensors. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

typedef enum dtype {
    DT_F32, DT_F16, DT_BF16, DT_F64, DT_I64, DT_I32, DT_I16, DT_I8, DT_U8, DT_BOOL, DT_C64, DT_COUNT
} dtype;

size_t      dtype_size(dtype d);        /* bytes per element */
const char *dtype_name(dtype d);        /* "f32", "bf16", ... */
/* Converts `count` contiguous elements of f32/f16/bf16/f64/integers to f32 (scalar, exact rules of IEEE). */
void        dtype_to_f32(float *out, const void *in, dtype d, size_t count);
/* Rounds to nearest even; `out` has dtype f32, f16 or bf16. */
void        dtype_from_f32(void *out, dtype d, const float *in, size_t count);

#endif
