/* dtype.c - conversions between stored element types and f32; the inputs may be misaligned. */
#include "base/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    size_t size;
} types[DT_COUNT] = {
    [DT_F32] = {"f32", 4}, [DT_F16] = {"f16", 2}, [DT_BF16] = {"bf16", 2}, [DT_F64] = {"f64", 8},
    [DT_I64] = {"i64", 8}, [DT_I32] = {"i32", 4}, [DT_I16] = {"i16", 2},   [DT_I8] = {"i8", 1},
    [DT_U8] = {"u8", 1},   [DT_BOOL] = {"bool", 1}, [DT_C64] = {"c64", 8},
};

size_t dtype_size(dtype d)
{
    return (unsigned)d < DT_COUNT ? types[d].size : 0;
}

const char *dtype_name(dtype d)
{
    return (unsigned)d < DT_COUNT ? types[d].name : "unknown";
}

static float as_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t as_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* All three cases are computed and one is selected, so that loops over it vectorise. Subnormals go through a
 * subtraction of normal numbers: right even where the CPU is told to flush subnormals to zero. */
static inline float half_to_float(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7FFF) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t normal = magnitude + (112u << 23), special = magnitude | 0x7F800000u;
    uint32_t subnormal = as_bits(as_float(magnitude + (113u << 23)) - as_float(113u << 23));
    uint32_t u = magnitude >= 0x0F800000u ? special : normal;
    u = magnitude < 0x00800000u ? subnormal : u;
    return as_float(u | sign);
}

static inline uint16_t float_to_half(float f)
{
    uint32_t u = as_bits(f), sign = u >> 16 & 0x8000, m = u & 0x7FFFFFFF;
    uint32_t normal = (m - (112u << 23) + 0xFFF + (m >> 13 & 1)) >> 13;
    uint32_t subnormal = as_bits(as_float(m) + 0.5f) - 0x3F000000u;
    uint32_t nan = 0x7E00 | (m >> 13 & 0x1FF);
    uint32_t h = m < 0x38800000u ? subnormal : normal;
    h = m >= 0x47800000u || h > 0x7C00 ? 0x7C00 : h;
    h = m > 0x7F800000u ? nan : h;
    return (uint16_t)(h | sign);
}

static inline uint16_t float_to_bfloat(float f)
{
    uint32_t u = as_bits(f);
    uint32_t rounded = (u + 0x7FFF + (u >> 16 & 1)) >> 16, nan = u >> 16 | 0x40;
    return (uint16_t)((u & 0x7FFFFFFF) > 0x7F800000u ? nan : rounded);
}

/* One loop per stored type; memcpy is a plain load that may be misaligned. */
#define CONVERT(TYPE, EXPRESSION)                                  \
    for (size_t i = 0; i < count; i++) {                           \
        TYPE v;                                                    \
        memcpy(&v, (const char *)in + i * sizeof(TYPE), sizeof v); \
        out[i] = EXPRESSION;                                       \
    }

void dtype_to_f32(float *out, const void *in, dtype d, size_t count)
{
    switch (d) {
    case DT_F32:
        if (count)
            memcpy(out, in, count * sizeof *out);
        break;
    case DT_F16: CONVERT(uint16_t, half_to_float(v)) break;
    case DT_BF16: CONVERT(uint16_t, as_float((uint32_t)v << 16)) break;
    case DT_F64: CONVERT(double, (float)v) break;
    case DT_I64: CONVERT(int64_t, (float)v) break;
    case DT_I32: CONVERT(int32_t, (float)v) break;
    case DT_I16: CONVERT(int16_t, v) break;
    case DT_I8: CONVERT(int8_t, v) break;
    case DT_U8: CONVERT(uint8_t, v) break;
    case DT_BOOL: CONVERT(uint8_t, v != 0) break;
    default:        /* complex numbers have no f32 form */
        memset(out, 0, count * sizeof *out);
    }
}

void dtype_from_f32(void *out, dtype d, const float *in, size_t count)
{
    uint16_t *half = out;
    if (d == DT_F16)
        for (size_t i = 0; i < count; i++)
            half[i] = float_to_half(in[i]);
    else if (d == DT_BF16)
        for (size_t i = 0; i < count; i++)
            half[i] = float_to_bfloat(in[i]);
    else if (count)
        memcpy(out, in, count * sizeof *in);
}
