/* paddle_reader.c - tensors out of PaddlePaddle's files: state dictionaries, and programs with their parameters. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "formats/paddle.h"
#include "formats/pickle.h"
#include "formats/protobuf.h"

/* ---- state dictionaries ---- */

static const struct {
    const char *code;
    dtype       type;
} numpy_types[] = {{"f4", DT_F32}, {"f2", DT_F16}, {"f8", DT_F64}, {"i8", DT_I64}, {"i4", DT_I32}, {"i2", DT_I16},
                   {"i1", DT_I8},  {"u1", DT_U8},  {"b1", DT_BOOL}, {"c8", DT_C64}};

static const pickle_value *item_of(const pickle_value *v, size_t i, pickle_kind kind)
{
    bool list = v && (v->kind == PICKLE_TUPLE || v->kind == PICKLE_LIST);
    return list && i < v->list.count && v->list.item[i]->kind == kind ? v->list.item[i] : NULL;
}

/* numpy.dtype("f4", ..) with the state (3, "<", ..). */
static bool read_type(dtype *out, const pickle_value *v)
{
    const pickle_value *code = v && pickle_is_text(v, "numpy.dtype") ? item_of(v->text.args, 0, PICKLE_TEXT) : NULL;
    const pickle_value *order = code ? item_of(v->text.state, 1, PICKLE_TEXT) : NULL;
    if (!code || (order && pickle_is_text(order, ">")))
        return false;
    for (size_t i = 0; i < sizeof numpy_types / sizeof *numpy_types; i++)
        if (pickle_is_text(code, numpy_types[i].code)) {
            *out = numpy_types[i].type;
            return true;
        }
    return false;
}

static bool is_array(const pickle_value *v)
{
    return v->kind == PICKLE_OPAQUE && (pickle_is_text(v, "numpy.core.multiarray._reconstruct") ||
                                        pickle_is_text(v, "numpy._core.multiarray._reconstruct"));
}

/* The state of an array: (version, shape, type, by columns, bytes). */
static bool read_array(weight *w, const pickle_value *state)
{
    const pickle_value *shape = item_of(state, 1, PICKLE_TUPLE), *type = item_of(state, 2, PICKLE_OPAQUE);
    const pickle_value *by_columns = item_of(state, 3, PICKLE_BOOL), *data = item_of(state, 4, PICKLE_BYTES);
    if (!shape || !type || !by_columns || !data || by_columns->integer || !read_type(&w->type, type) ||
        shape->list.count > WEIGHT_AXES)
        return false;
    w->axes = (int)shape->list.count;
    for (int i = 0; i < w->axes; i++) {
        const pickle_value *d = item_of(shape, (size_t)i, PICKLE_INT);
        if (!d || d->integer < 0)
            return false;
        w->dim[i] = d->integer;
    }
    weight_set_strides(w);
    w->data = data->text.s;
    return weight_fits(w, data->text.size) && weight_bytes(w) == data->text.size;
}

static int add_arrays(tensor_list *list, const pickle_value *dict, const char *path, samite_error *err)
{
    size_t found = 0;
    int code = 0;
    if (dict->kind != PICKLE_DICT)
        return fail(err, SAMITE_INPUT, "%s: this is no state dictionary: save layer.state_dict() with paddle.save",
                    path);
    for (size_t i = 0; i + 1 < dict->list.count && !code; i += 2) {
        const pickle_value *key = dict->list.item[i], *v = dict->list.item[i + 1];
        weight w = {.name = key->text.s};
        if (key->kind != PICKLE_TEXT || strlen(key->text.s) != key->text.size || !is_array(v))
            continue;
        if (!read_array(&w, v->text.state))
            code = fail(err, SAMITE_INPUT,
                        "%s: the array \"%.200s\" is damaged, or of a kind that weights cannot have", path, w.name);
        else
            code = tensor_list_add(list, &w, err);
        found++;
    }
    if (!code && !found)
        code = fail(err, SAMITE_INPUT, "%s: no arrays in it: this is no state dictionary of PaddlePaddle", path);
    return code;
}

int paddle_state_read(tensor_list *list, const uint8_t *data, size_t size, const char *path, samite_error *err)
{
    pickle *p;
    int code = pickle_open(&p, data, size, path, err);
    if (!code)
        code = add_arrays(list, pickle_root(p), path, err);
    pickle_close(p);
    return code;
}

/* ---- programs ---- */

/* The operations of a program, or NULL. */
static const json_t *operations_of(const json_t *program)
{
    const json_t *regions = json_object_get(json_object_get(program, "program"), "regions");
    const json_t *blocks = json_object_get(json_array_get(regions, 0), "blocks");
    return json_object_get(json_array_get(blocks, 0), "ops");
}

/* Type and shape of the result of a parameter operation. */
static bool read_shape(weight *w, const json_t *op)
{
    const json_t *about = json_object_get(json_object_get(json_object_get(op, "O"), "TT"), "D"), *dims, *d;
    const char *element = json_string_value(json_object_get(json_array_get(about, 0), "#"));
    size_t i;
    w->type = !element ? DT_COUNT
            : !strcmp(element, "0.t_f32") ? DT_F32
            : !strcmp(element, "0.t_i64") ? DT_I64
            : !strcmp(element, "0.t_bool") ? DT_BOOL : DT_COUNT;
    dims = json_array_get(about, 1);
    if (w->type == DT_COUNT || !json_is_array(dims) || json_array_size(dims) > WEIGHT_AXES)
        return false;
    w->axes = (int)json_array_size(dims);
    json_array_foreach(dims, i, d) {
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return false;
        w->dim[i] = json_integer_value(d);
    }
    weight_set_strides(w);
    return weight_fits(w, INT64_MAX);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const weight *)a)->name, ((const weight *)b)->name);
}

/* Takes the tensors in turn off the parameter file, each behind the head that its shape demands. */
static int take_parameters(tensor_list *list, weight *w, size_t count, const uint8_t *data, size_t size,
                           const char *path, samite_error *err)
{
    size_t at = 0;
    int code = 0;
    for (size_t i = 0; i < count && !code; i++) {
        text head = {0};
        size_t bytes = weight_bytes(&w[i]);
        paddle_tensor_head(&head, w[i].type, w[i].axes, w[i].dim);
        if (head.failed)
            code = fail(err, SAMITE_RESOURCE, "not enough memory to read %s", path);
        else if (size - at < head.size || memcmp(data + at, head.data, head.size) != 0)
            code = fail(err, SAMITE_INPUT, "%s: at byte %zu not what its program says of %.200s: it belongs to another "
                        "program, or is damaged", path, at, w[i].name);
        else if (size - at - head.size < bytes)
            code = fail(err, SAMITE_INPUT, "%s: is cut off at byte %zu, in the middle of %.200s; copy it again", path,
                        size, w[i].name);
        if (!code) {
            w[i].data = data + at + head.size;
            at += head.size + bytes;
            code = tensor_list_add(list, &w[i], err);
        }
        text_free(&head);
    }
    if (!code && at != size)
        code = fail(err, SAMITE_INPUT, "%s: has %zu bytes behind its last tensor", path, size - at);
    return code;
}

static int read_parameters(tensor_list *list, const json_t *ops, const char *program, const uint8_t *data, size_t size,
                           const char *path, samite_error *err)
{
    weight *w = calloc(json_array_size(ops) + 1, sizeof *w);
    size_t count = 0, i;
    const json_t *op;
    int code = w ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to read %s", path);
    json_array_foreach(ops, i, op) {
        const char *kind = json_string_value(json_object_get(op, "#"));
        if (code || !kind || strcmp(kind, "p") != 0)
            continue;
        w[count].name = json_string_value(json_array_get(json_object_get(op, "A"), 3));
        if (!w[count].name || !read_shape(&w[count], op))
            code = fail(err, SAMITE_INPUT, "%s: operation %zu is a parameter without a name or with a shape that is "
                        "not supported", program, i);
        count++;
    }
    if (!code)
        qsort(w, count, sizeof *w, by_name);
    for (i = 1; i < count && !code; i++)
        if (!strcmp(w[i].name, w[i - 1].name))
            code = fail(err, SAMITE_INPUT, "%s: has two parameters %.200s", program, w[i].name);
    if (!code)
        code = take_parameters(list, w, count, data, size, path, err);
    free(w);
    return code;
}

int paddle_program_read(tensor_list *list, const file_map *program, const file_map *parameters, samite_error *err)
{
    json_error_t e;
    json_t *o = json_loadb((const char *)program->data, program->size, 0, &e), *v;
    const json_t *ops = operations_of(o);
    const char *key;
    int code = 0;
    if (!json_is_array(ops))
        code = fail(err, SAMITE_INPUT, "%s: this is no program of PaddlePaddle 3%s%s", program->path, o ? "" : ": ",
                    o ? "" : e.text);
    else
        code = read_parameters(list, ops, program->path, parameters->data, parameters->size, parameters->path, err);
    json_object_foreach(json_object_get(o, PADDLE_NOTES), key, v)
        if (!code && json_is_string(v))
            code = tensor_list_note(list, key, json_string_value(v), err);
    json_decref(o);
    return code;
}
