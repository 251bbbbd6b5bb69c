/* paddle.c - tensors as PaddlePaddle keeps them: bare streams, and pickled numpy arrays. */
#include "formats/paddle.h"

#include <string.h>

#include "formats/protobuf.h"

static void little(text *out, uint64_t v, int bytes)
{
    char b[8];
    for (int i = 0; i < bytes; i++)
        b[i] = (char)(v >> 8 * i);
    text_add(out, b, (size_t)bytes);
}

/* Version, no levels of detail, version, then the descriptor: element type and dimensions. */
void paddle_tensor_head(text *out, dtype type, int axes, const int64_t *dim)
{
    static const uint8_t codes[DT_COUNT] = {[DT_F32] = 5, [DT_F16] = 4, [DT_BF16] = 22, [DT_F64] = 6, [DT_I64] = 3,
                                            [DT_I32] = 2, [DT_I16] = 1, [DT_I8] = 21, [DT_U8] = 20, [DT_BOOL] = 0,
                                            [DT_C64] = 23};
    text about = {0};
    pb_varint(&about, 1, codes[type]);
    for (int i = 0; i < axes; i++)
        pb_varint(&about, 2, (uint64_t)dim[i]);
    little(out, 0, 4);
    little(out, 0, 8);
    little(out, 0, 4);
    little(out, about.size, 4);
    text_add(out, about.data ? about.data : "", about.size);
    out->failed |= about.failed;
    text_free(&about);
}

/* ---- pickle, protocol 4 ---- */

enum { MARK = '(', TUPLE = 't', EMPTY_DICT = '}', SET_ITEMS = 'u', REDUCE = 'R', BUILD = 'b', STOP = '.', NONE = 'N' };
enum { TUPLE1 = 0x85, TUPLE3 = 0x87, TRUE_ = 0x88, FALSE_ = 0x89, LONG1 = 0x8a, BYTES8 = 0x8e };

static void put(text *out, int opcode)
{
    char c = (char)opcode;
    text_add(out, &c, 1);
}

static void put_string(text *out, const char *s)
{
    put(out, 'X');
    little(out, strlen(s), 4);
    text_add(out, s, strlen(s));
}

static void put_integer(text *out, int64_t v)
{
    put(out, LONG1);
    little(out, 8, 1);
    little(out, (uint64_t)v, 8);
}

static void put_global(text *out, const char *module, const char *name)
{
    text_printf(out, "c%s\n%s\n", module, name);
}

static void put_dtype(text *out, dtype type)
{
    static const char *const codes[DT_COUNT] = {[DT_F32] = "f4", [DT_F16] = "f2", [DT_BF16] = "u2", [DT_F64] = "f8",
                                                [DT_I64] = "i8", [DT_I32] = "i4", [DT_I16] = "i2", [DT_I8] = "i1",
                                                [DT_U8] = "u1", [DT_BOOL] = "b1", [DT_C64] = "c8"};
    put_global(out, "numpy", "dtype");
    put_string(out, codes[type]);
    put(out, FALSE_);
    put(out, TRUE_);
    put(out, TUPLE3);
    put(out, REDUCE);
    put(out, MARK);
    put_integer(out, 3);
    put_string(out, dtype_size(type) == 1 ? "|" : "<");
    for (int i = 0; i < 3; i++)
        put(out, NONE);
    put_integer(out, -1);
    put_integer(out, -1);
    put_integer(out, 0);
    put(out, TUPLE);
    put(out, BUILD);
}

void paddle_state_begin(text *out)
{
    text_add(out, "\x80\x04", 2);
    put(out, EMPTY_DICT);
    put(out, MARK);
}

void paddle_array_head(text *out, const char *name, dtype type, int axes, const int64_t *dim)
{
    uint64_t bytes = dtype_size(type);
    put_string(out, name);
    put_global(out, "numpy.core.multiarray", "_reconstruct");
    put_global(out, "numpy", "ndarray");
    put_integer(out, 0);
    put(out, TUPLE1);
    text_add(out, "C\x01" "b", 3);
    put(out, TUPLE3);
    put(out, REDUCE);
    put(out, MARK);
    put_integer(out, 1);
    put(out, MARK);
    for (int i = 0; i < axes; i++) {
        put_integer(out, dim[i]);
        bytes *= (uint64_t)dim[i];
    }
    put(out, TUPLE);
    put_dtype(out, type);
    put(out, FALSE_);
    put(out, BYTES8);
    little(out, bytes, 8);
}

void paddle_array_tail(text *out)
{
    put(out, TUPLE);
    put(out, BUILD);
}

void paddle_state_end(text *out, const char *const *name, size_t count)
{
    put_string(out, "StructuredToParameterName@@");
    put(out, EMPTY_DICT);
    put(out, MARK);
    for (size_t i = 0; i < count; i++) {
        put_string(out, name[i]);
        put_string(out, name[i]);
    }
    put(out, SET_ITEMS);
    put(out, SET_ITEMS);
    put(out, STOP);
}
