/* paddle_program.c - PIR programs as JSON text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "formats/paddle.h"

static const char *element_of(dtype d)
{
    static const char *const names[DT_COUNT] = {
        [DT_F32] = "0.t_f32", [DT_F16] = "0.t_f16", [DT_BF16] = "0.t_bf16", [DT_F64] = "0.t_f64", [DT_I64] = "0.t_i64",
        [DT_I32] = "0.t_i32", [DT_I16] = "0.t_i16", [DT_I8] = "0.t_i8", [DT_U8] = "0.t_ui8", [DT_BOOL] = "0.t_bool",
        [DT_C64] = "0.t_c64"};
    return names[d];
}

static const char *dtype_text(dtype d)
{
    static const char *const names[DT_COUNT + 1] = {
        [DT_F32] = "float32", [DT_F16] = "float16", [DT_BF16] = "bfloat16", [DT_F64] = "float64", [DT_I64] = "int64",
        [DT_I32] = "int32", [DT_I16] = "int16", [DT_I8] = "int8", [DT_U8] = "uint8", [DT_BOOL] = "bool",
        [DT_C64] = "complex64", [DT_COUNT] = "Undefined(ALL_DTYPE)"};
    return names[d];
}

void pir_free(pir *p)
{
    text_free(&p->ops);
    text_free(&p->attributes);
    text_free(&p->in);
}

/* ---- pieces ---- */

/* A JSON string; names are plain, so that only what JSON forbids is looked for. */
static void put_string(text *out, const char *s)
{
    text_add(out, "\"", 1);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            text_add(out, "\\", 1);
        text_add(out, s, 1);
    }
    text_add(out, "\"", 1);
}

static void put_numbers(text *out, const int64_t *v, int count)
{
    text_add(out, "[", 1);
    for (int i = 0; i < count; i++)
        text_printf(out, "%s%lld", i ? "," : "", (long long)v[i]);
    text_add(out, "]", 1);
}

static void put_type(text *out, dtype type, int axes, const int64_t *dim)
{
    text_printf(out, "{\"#\":\"0.t_dtensor\",\"D\":[{\"#\":\"%s\"},", element_of(type));
    put_numbers(out, dim, axes);
    text_printf(out, ",\"NCHW\",[],0]}");
}

/* Digits as the C locale writes them, whatever the program's locale. */
static void put_real(text *out, double v)
{
    char s[40];
    snprintf(s, sizeof s, "%.9g", v);
    for (char *c = s; *c; c++)
        if (*c == ',')
            *c = '.';
    text_printf(out, "%s", s);
}

static void begin_attribute(pir *p, const char *name, const char *kind)
{
    text_printf(&p->attributes, "%s{\"AT\":{\"#\":\"%s\",\"D\":", p->attributes.size ? "," : "", kind);
    (void)name;
}

static void end_attribute(pir *p, const char *name)
{
    text_printf(&p->attributes, "},\"N\":\"%s\"}", name);
}

void pir_in(pir *p, int value)
{
    text_printf(&p->in, "%s{\"%%\":%d}", p->in.size ? "," : "", value);
}

void pir_bool(pir *p, const char *name, bool v)
{
    begin_attribute(p, name, "0.a_bool");
    text_printf(&p->attributes, "%s", v ? "true" : "false");
    end_attribute(p, name);
}

static void put_integer(pir *p, const char *name, const char *kind, int64_t v)
{
    begin_attribute(p, name, kind);
    text_printf(&p->attributes, "%lld", (long long)v);
    end_attribute(p, name);
}

void pir_i32(pir *p, const char *name, int64_t v)
{
    put_integer(p, name, "0.a_i32", v);
}

void pir_i64(pir *p, const char *name, int64_t v)
{
    put_integer(p, name, "0.a_i64", v);
}

static void put_float(pir *p, const char *name, const char *kind, double v)
{
    begin_attribute(p, name, kind);
    put_real(&p->attributes, v);
    end_attribute(p, name);
}

void pir_f32(pir *p, const char *name, double v)
{
    put_float(p, name, "0.a_f32", v);
}

void pir_text(pir *p, const char *name, const char *v)
{
    begin_attribute(p, name, "0.a_str");
    put_string(&p->attributes, v);
    end_attribute(p, name);
}

void pir_dtype(pir *p, const char *name, dtype v)
{
    begin_attribute(p, name, "1.a_dtype");
    put_string(&p->attributes, dtype_text(v));
    end_attribute(p, name);
}

static void put_array(pir *p, const char *name, const char *kind, const int64_t *v, int count)
{
    begin_attribute(p, name, "0.a_array");
    text_add(&p->attributes, "[", 1);
    for (int i = 0; i < count; i++)
        text_printf(&p->attributes, "%s{\"#\":\"%s\",\"D\":%lld}", i ? "," : "", kind, (long long)v[i]);
    text_add(&p->attributes, "]", 1);
    end_attribute(p, name);
}

void pir_i32s(pir *p, const char *name, const int64_t *v, int count)
{
    put_array(p, name, "0.a_i32", v, count);
}

void pir_i64s(pir *p, const char *name, const int64_t *v, int count)
{
    put_array(p, name, "0.a_i64", v, count);
}

static void put_place(pir *p, int type)
{
    begin_attribute(p, "place", "1.a_place");
    text_printf(&p->attributes, "[%d,0,\"\"]", type);
    end_attribute(p, "place");
}

static void put_shape(pir *p, int axes, const int64_t *dim)
{
    begin_attribute(p, "shape", "1.a_intarray");
    put_numbers(&p->attributes, dim, axes);
    end_attribute(p, "shape");
}

/* ---- operations ---- */

static void begin_operation(pir *p, const char *op)
{
    text_printf(&p->ops, "%s{\"#\":\"%s\",\"A\":[%s],\"I\":[%s],\"O\":[", p->ops.size ? ",\n" : "", op,
                p->attributes.size ? p->attributes.data : "", p->in.size ? p->in.data : "");
    p->ops.failed |= p->attributes.failed || p->in.failed;
    text_free(&p->attributes);
    text_free(&p->in);
    p->attributes = p->in = (text){0};
}

static int put_result(pir *p, dtype type, int axes, const int64_t *dim)
{
    int v = ++p->values;
    text_printf(&p->ops, "%s{\"%%\":%d,\"TT\":", p->ops.data && p->ops.data[p->ops.size - 1] == '}' ? "," : "", v);
    put_type(&p->ops, type, axes, dim);
    text_add(&p->ops, "}", 1);
    return v;
}

int pir_end_with(pir *p, const char *op, dtype type, int axes, const int64_t *dim, int more, int more_axes,
                 const int64_t *more_dim)
{
    begin_operation(p, op);
    int v = put_result(p, type, axes, dim);
    for (int i = 0; i < more; i++)
        put_result(p, type, more_axes, more_dim);
    text_add(&p->ops, "]}", 2);
    return v;
}

int pir_end(pir *p, const char *op, dtype type, int axes, const int64_t *dim)
{
    return pir_end_with(p, op, type, axes, dim, 0, 0, NULL);
}

int pir_parameter(pir *p, const char *name, dtype type, int axes, const int64_t *dim)
{
    int v = ++p->values;
    text_printf(&p->ops, "%s{\"#\":\"p\",\"A\":[0,1,1,", p->ops.size ? ",\n" : "");
    put_string(&p->ops, name);
    text_printf(&p->ops, "],\"DA\":[],\"O\":{\"%%\":%d,\"TT\":", v);
    put_type(&p->ops, type, axes, dim);
    text_printf(&p->ops, "},\"OA\":[1,1,0],\"QA\":[]}");
    return v;
}

int pir_data(pir *p, const char *name, dtype type, int axes, const int64_t *dim)
{
    pir_text(p, "name", name);
    put_shape(p, axes, dim);
    pir_dtype(p, "dtype", type);
    put_place(p, 0);
    return pir_end(p, "1.data", type, axes, dim);
}

void pir_fetch(pir *p, int value, const char *name, dtype type, int axes, const int64_t *dim)
{
    pir_in(p, value);
    pir_text(p, "name", name);
    pir_i32(p, "col", p->fetched++);
    pir_end(p, "1.fetch", type, axes, dim);
}

int pir_full(pir *p, dtype type, double v, int axes, const int64_t *dim)
{
    put_shape(p, axes, dim);
    put_float(p, "value", "0.a_f64", v);
    pir_dtype(p, "dtype", type);
    put_place(p, 1);
    return pir_end(p, "1.full", type, axes, dim);
}

int pir_integers(pir *p, const int64_t *v, int count)
{
    int64_t dim = count;
    pir_i64s(p, "value", v, count);
    pir_dtype(p, "dtype", DT_I64);
    put_place(p, 1);
    return pir_end(p, "1.full_int_array", DT_I64, 1, &dim);
}

int pir_list(pir *p, const int *value, int count, dtype type, int axes, const int64_t (*dim)[PADDLE_AXES])
{
    for (int i = 0; i < count; i++)
        pir_in(p, value[i]);
    begin_operation(p, "0.combine");
    int v = ++p->values;
    text_printf(&p->ops, "{\"%%\":%d,\"TT\":{\"#\":\"0.t_vec\",\"D\":[", v);
    for (int i = 0; i < count; i++) {
        text_printf(&p->ops, "%s", i ? "," : "");
        put_type(&p->ops, type, axes, dim[i]);
    }
    text_printf(&p->ops, "]}}]}");
    return v;
}

/* The notes as a JSON object in one line; yours to free. NULL: out of memory. */
static char *notes_text(const char *const (*notes)[2])
{
    json_t *o = json_object();
    for (int i = 0; o && notes && notes[i][0]; i++)
        json_object_set_new(o, notes[i][0], json_name(notes[i][1]));
    char *s = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return s;
}

int pir_write(pir *p, const char *path, const char *const (*notes)[2], samite_error *err)
{
    file_writer w;
    char *told = notes_text(notes);
    int code = told && !p->ops.failed ? file_writer_open(&w, path, err)
                                      : fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    if (code) {
        free(told);
        return code;
    }
    file_printf(&w,
                "{\"base_code\":{\"magic\":\"pir\",\"trainable\":true,\"version\":1},\"program\":{\"regions\":[{\"#\":"
                "\"region_0\",\"blocks\":[{\"#\":\"block_0\",\"args\":[],\"ops\":[\n");
    file_write(&w, p->ops.data ? p->ops.data : "", p->ops.size);
    file_printf(&w, "\n]}]}]},\"" PADDLE_NOTES "\":%s}\n", told);
    free(told);
    return file_writer_commit(&w, err);
}
