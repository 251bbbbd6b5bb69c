/* onnx_writer.c - an ONNX file from nodes, values and tensors, the large ones streamed. */
#include "formats/onnx.h"

#include <stdlib.h>
#include <string.h>

#include "formats/protobuf.h"

#define LARGE ((size_t)1 << 20)      /* tensors from this size on are aligned in the data file */
#define SMALL 1024                   /* tensors below this size stay inside */

typedef struct planned {
    char    *name;
    dtype    type;
    int      axes;
    int64_t  dim[ONNX_AXES];
    size_t   bytes;
    bool     outside;
    uint64_t offset;
} planned;

struct onnx_writer {
    text     nodes, values, meta;    /* finished messages with their tags */
    text     node;                   /* being put together */
    planned *tensor;
    size_t   tensors, room;
    bool     failed;
};

int onnx_type(dtype d)
{
    static const int codes[DT_COUNT] = {[DT_F32] = 1, [DT_U8] = 2,   [DT_I8] = 3,   [DT_I16] = 5,  [DT_I32] = 6,
                                        [DT_I64] = 7, [DT_BOOL] = 9, [DT_F16] = 10, [DT_F64] = 11, [DT_BF16] = 16};
    return codes[d];
}

bool onnx_type_back(dtype *d, int code)
{
    for (int i = 0; i < DT_COUNT; i++)
        if (code && onnx_type((dtype)i) == code) {
            *d = (dtype)i;
            return true;
        }
    return false;
}

onnx_writer *onnx_writer_new(void)
{
    return calloc(1, sizeof(onnx_writer));
}

void onnx_writer_free(onnx_writer *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->tensors; i++)
        free(w->tensor[i].name);
    free(w->tensor);
    text_free(&w->nodes);
    text_free(&w->values);
    text_free(&w->meta);
    text_free(&w->node);
    free(w);
}

/* ---- nodes ---- */

static void finish_node(onnx_writer *w)
{
    if (w->node.size || w->node.failed)
        pb_message(&w->nodes, 1, &w->node);
    w->node = (text){0};
}

void onnx_node(onnx_writer *w, const char *op, const char *name, const char *const *in, int inputs,
               const char *const *out, int outputs)
{
    finish_node(w);
    for (int i = 0; i < inputs; i++)
        pb_string(&w->node, 1, in[i]);
    for (int i = 0; i < outputs; i++)
        pb_string(&w->node, 2, out[i]);
    pb_string(&w->node, 3, name);
    pb_string(&w->node, 4, op);
}

enum { ATTRIBUTE_FLOAT = 1, ATTRIBUTE_INT = 2, ATTRIBUTE_STRING = 3, ATTRIBUTE_INTS = 7 };

static void finish_attribute(onnx_writer *w, text *a, int type)
{
    pb_varint(a, 20, (uint64_t)type);
    pb_message(&w->node, 5, a);
}

void onnx_attribute_int(onnx_writer *w, const char *name, int64_t v)
{
    text a = {0};
    pb_string(&a, 1, name);
    pb_varint(&a, 3, (uint64_t)v);
    finish_attribute(w, &a, ATTRIBUTE_INT);
}

void onnx_attribute_ints(onnx_writer *w, const char *name, const int64_t *v, int count)
{
    text a = {0};
    pb_string(&a, 1, name);
    for (int i = 0; i < count; i++)
        pb_varint(&a, 8, (uint64_t)v[i]);
    finish_attribute(w, &a, ATTRIBUTE_INTS);
}

void onnx_attribute_float(onnx_writer *w, const char *name, float v)
{
    text a = {0};
    pb_string(&a, 1, name);
    pb_float(&a, 2, v);
    finish_attribute(w, &a, ATTRIBUTE_FLOAT);
}

void onnx_attribute_text(onnx_writer *w, const char *name, const char *v)
{
    text a = {0};
    pb_string(&a, 1, name);
    pb_string(&a, 4, v);
    finish_attribute(w, &a, ATTRIBUTE_STRING);
}

/* ---- tensors, values, metadata ---- */

static bool grow(onnx_writer *w)
{
    if (w->tensors < w->room)
        return true;
    size_t room = w->room ? w->room * 2 : 256;
    planned *more = realloc(w->tensor, room * sizeof *more);
    if (!more)
        return false;
    w->tensor = more;
    w->room = room;
    return true;
}

size_t onnx_tensor(onnx_writer *w, const char *name, dtype type, int axes, const int64_t *dim, bool inside)
{
    planned t = {.name = text_copy(name), .type = type, .axes = axes, .bytes = dtype_size(type)};
    if (!t.name || axes > ONNX_AXES || !grow(w)) {
        free(t.name);
        w->failed = true;
        return 0;
    }
    for (int i = 0; i < axes; i++) {
        t.dim[i] = dim[i];
        t.bytes *= (size_t)dim[i];
    }
    t.outside = !inside && t.bytes >= SMALL;
    w->tensor[w->tensors] = t;
    return w->tensors++;
}

void onnx_value(onnx_writer *w, int kind, const char *name, dtype type, int axes, const int64_t *dim,
                const char *symbol)
{
    text value = {0}, holder = {0}, tensor = {0}, shape = {0};
    for (int i = 0; i < axes; i++) {
        text d = {0};
        if (dim[i] >= 0)
            pb_varint(&d, 1, (uint64_t)dim[i]);
        else
            pb_string(&d, 2, symbol);
        pb_message(&shape, 1, &d);
    }
    pb_varint(&tensor, 1, (uint64_t)onnx_type(type));
    pb_message(&tensor, 2, &shape);
    pb_message(&holder, 1, &tensor);
    pb_string(&value, 1, name);
    pb_message(&value, 2, &holder);
    pb_message(&w->values, kind, &value);
}

void onnx_metadata(onnx_writer *w, const char *key, const char *value)
{
    text entry = {0};
    pb_string(&entry, 1, key);
    pb_string(&entry, 2, value);
    pb_message(&w->meta, 14, &entry);
}

/* ---- the file ---- */

static void external_entry(text *m, const char *key, const char *value)
{
    text e = {0};
    pb_string(&e, 1, key);
    pb_string(&e, 2, value);
    pb_message(m, 13, &e);
}

static void external_number(text *m, const char *key, uint64_t value)
{
    char s[24];
    snprintf(s, sizeof s, "%llu", (unsigned long long)value);
    external_entry(m, key, s);
}

/* The tensor's message up to its raw bytes; the message's own tag and length come first. */
static void tensor_head(text *out, const planned *t, const char *location)
{
    text m = {0}, raw = {0};
    for (int i = 0; i < t->axes; i++)
        pb_varint(&m, 1, (uint64_t)t->dim[i]);
    pb_varint(&m, 2, (uint64_t)onnx_type(t->type));
    pb_string(&m, 8, t->name);
    if (location) {
        external_entry(&m, "location", location);
        external_number(&m, "offset", t->offset);
        external_number(&m, "length", t->bytes);
        pb_varint(&m, 14, 1);
    } else {
        pb_header(&raw, 9, t->bytes);
    }
    pb_header(out, 5, m.size + raw.size + (location ? 0 : t->bytes));
    text_add(out, m.data, m.size);
    text_add(out, raw.data ? raw.data : "", raw.size);
    out->failed |= m.failed | raw.failed;
    text_free(&m);
    text_free(&raw);
}

static void place_outside(onnx_writer *w)
{
    uint64_t at = 0;
    for (size_t i = 0; i < w->tensors; i++) {
        planned *t = &w->tensor[i];
        if (!t->outside)
            continue;
        uint64_t align = t->bytes >= LARGE ? ONNX_ALIGN : 64;
        t->offset = at = (at + align - 1) / align * align;
        at += t->bytes;
    }
}

typedef struct filling {
    onnx_fill fill;
    void     *user;
    void     *buffer;
} filling;

/* false: out of memory. */
static bool put_tensor(file_writer *to, const planned *t, size_t index, const filling *f)
{
    if (!f->fill(f->user, index, f->buffer, t->bytes))
        return false;
    file_write(to, f->buffer, t->bytes);
    return true;
}

static bool put_outside(file_writer *to, const onnx_writer *w, const filling *f)
{
    static const char zeros[ONNX_ALIGN];
    uint64_t at = 0;
    for (size_t i = 0; i < w->tensors; i++) {
        const planned *t = &w->tensor[i];
        if (!t->outside)
            continue;
        file_write(to, zeros, (size_t)(t->offset - at));
        if (!put_tensor(to, t, i, f))
            return false;
        at = t->offset + t->bytes;
    }
    return true;
}

/* Everything of the graph but raw bytes: heads[0..tensors) are written before each tensor's bytes. */
typedef struct layout {
    text     model;       /* fields before the graph, and the graph's tag and length */
    text     begin;       /* name of the graph */
    text    *head;
    uint64_t size;        /* of the graph's message */
} layout;

static bool lay_out(layout *l, onnx_writer *w, const char *graph_name, const char *version, const char *location)
{
    text opset = {0};
    pb_string(&l->begin, 2, graph_name);
    l->head = calloc(w->tensors + 1, sizeof *l->head);
    if (!l->head)
        return false;
    bool ok = !l->begin.failed;
    l->size = l->begin.size + w->nodes.size + w->values.size;
    for (size_t i = 0; i < w->tensors; i++) {
        const planned *t = &w->tensor[i];
        bool outside = location && t->outside;
        tensor_head(&l->head[i], t, outside ? location : NULL);
        l->size += l->head[i].size + (outside ? 0 : t->bytes);
        ok &= !l->head[i].failed;
    }
    pb_varint(&l->model, 1, ONNX_IR);
    pb_string(&l->model, 2, "samite");
    pb_string(&l->model, 3, version);
    pb_string(&opset, 1, "");
    pb_varint(&opset, 2, ONNX_OPSET);
    pb_message(&l->model, 8, &opset);
    text_add(&l->model, w->meta.data ? w->meta.data : "", w->meta.size);
    pb_header(&l->model, 7, l->size);
    return ok && !l->model.failed;
}

static void layout_free(layout *l, size_t tensors)
{
    for (size_t i = 0; l->head && i < tensors; i++)
        text_free(&l->head[i]);
    free(l->head);
    text_free(&l->model);
    text_free(&l->begin);
}

static bool put_model(file_writer *to, const onnx_writer *w, const layout *l, bool external, const filling *f)
{
    file_write(to, l->model.data, l->model.size);
    file_write(to, w->nodes.data, w->nodes.size);
    file_write(to, l->begin.data, l->begin.size);
    for (size_t i = 0; i < w->tensors; i++) {
        const planned *t = &w->tensor[i];
        file_write(to, l->head[i].data, l->head[i].size);
        if (!(external && t->outside) && !put_tensor(to, t, i, f))
            return false;
    }
    file_write(to, w->values.data, w->values.size);
    return true;
}

static size_t largest(const onnx_writer *w)
{
    size_t most = 1;
    for (size_t i = 0; i < w->tensors; i++)
        most = w->tensor[i].bytes > most ? w->tensor[i].bytes : most;
    return most;
}

static int write_data(const char *path, const onnx_writer *w, const filling *f, samite_error *err)
{
    file_writer data;
    int code = file_writer_open(&data, path, err);
    if (code)
        return code;
    if (put_outside(&data, w, f))
        return file_writer_commit(&data, err);
    file_writer_abort(&data);
    return fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
}

static int write_model(const char *path, onnx_writer *w, const layout *l, bool external, const filling *f,
                       samite_error *err)
{
    file_writer model;
    int code = file_writer_open(&model, path, err);
    if (code)
        return code;
    if (put_model(&model, w, l, external, f))
        return file_writer_commit(&model, err);
    file_writer_abort(&model);
    return fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
}

int onnx_write(onnx_writer *w, const char *path, const char *graph_name, const char *version, bool external,
               onnx_fill fill, void *user, samite_error *err)
{
    text data_path = {0};
    layout l = {.size = 0};
    filling f = {fill, user, malloc(largest(w))};
    const char *slash = strrchr(path, '/');
    text_printf(&data_path, "%s.data", path);
    finish_node(w);
    place_outside(w);
    const char *location = external && !data_path.failed ? data_path.data + (slash ? slash + 1 - path : 0) : NULL;
    bool ok = !w->failed && !w->nodes.failed && !w->values.failed && !w->meta.failed && !data_path.failed && f.buffer &&
              lay_out(&l, w, graph_name, version, location);
    int code = 0;
    if (!ok)
        code = fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    else if (l.size > INT32_MAX)
        code = fail(err, SAMITE_USAGE,
                    "%s would have %llu bytes, and ONNX files end at 2 GiB: keep the weights in a data file", path,
                    (unsigned long long)l.size);
    if (!code && external)
        code = write_data(data_path.data, w, &f, err);
    if (!code)
        code = write_model(path, w, &l, external, &f, err);
    if (!code && !external)
        remove(data_path.data);      /* of an earlier export of the same name */
    layout_free(&l, w->tensors);
    free(f.buffer);
    text_free(&data_path);
    return code;
}
