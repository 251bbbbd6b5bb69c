/* safetensors.c - reads and writes safetensors files, reads their shard index. */
#include "formats/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define HEADER_LIMIT ((uint64_t)100000000)
#define SHARD_LIMIT 4096

static const struct {
    const char *name;
    dtype type;
} types[] = {
    {"F32", DT_F32}, {"F16", DT_F16}, {"BF16", DT_BF16}, {"F64", DT_F64}, {"I64", DT_I64}, {"I32", DT_I32},
    {"I16", DT_I16}, {"I8", DT_I8},   {"U8", DT_U8},     {"BOOL", DT_BOOL}, {"C64", DT_C64},
};

static dtype type_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return DT_COUNT;
}

static const char *type_name(dtype type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type)
            return types[i].name;
    return NULL;
}

static uint64_t header_size(const uint8_t *data)
{
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | data[i];
    return n;
}

bool safetensors_detect(const uint8_t *data, size_t size)
{
    return size >= 10 && data[8] == '{' && header_size(data) >= 2;
}

/* What reading one tensor needs to know about the file around it. */
typedef struct source {
    const uint8_t *data;     /* behind the header */
    uint64_t       size;
    const char    *path;
} source;

/* Type, shape and place of one header entry into *w; a type that no weight has leaves w->type at DT_COUNT. */
static int read_entry(weight *w, json_t *entry, const source *from, samite_error *err)
{
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    json_t *shape = json_object_get(entry, "shape"), *place = json_object_get(entry, "data_offsets");
    json_t *begin = json_array_get(place, 0), *end = json_array_get(place, 1);
    if (!type || !json_is_array(shape) || json_array_size(place) != 2 || !json_is_integer(begin) ||
        !json_is_integer(end))
        return fail(err, SAMITE_INPUT, "%s: tensor \"%s\" has no proper dtype, shape and data_offsets", from->path,
                    w->name);
    json_int_t lo = json_integer_value(begin), hi = json_integer_value(end);
    if (lo < 0 || hi < lo || (uint64_t)hi > from->size)
        return fail(err, SAMITE_INPUT, "%s: tensor \"%s\" is at bytes %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT
                    ", but the file has only %" PRIu64 " bytes of data; it is cut short or damaged", from->path,
                    w->name, lo, hi, from->size);
    w->type = type_from_name(type);
    w->data = from->data + lo;
    if (w->type == DT_COUNT || json_array_size(shape) > WEIGHT_AXES) {
        w->type = DT_COUNT;
        return SAMITE_OK;
    }
    w->axes = (int)json_array_size(shape);
    for (int a = 0; a < w->axes; a++) {
        json_t *n = json_array_get(shape, (size_t)a);
        w->dim[a] = json_is_integer(n) ? json_integer_value(n) : -1;
    }
    weight_set_strides(w);
    if (!weight_fits(w, (uint64_t)(hi - lo)) || weight_bytes(w) != (uint64_t)(hi - lo)) {
        char extent[200];
        return fail(err, SAMITE_INPUT, "%s: tensor \"%s\" of shape %s and type %s does not take the %"
                    JSON_INTEGER_FORMAT " bytes that the file gives it", from->path, w->name,
                    weight_shape(w, extent, sizeof extent), type, hi - lo);
    }
    return SAMITE_OK;
}

static int read_metadata(tensor_list *list, json_t *metadata, const char *path, samite_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return fail(err, SAMITE_INPUT, "%s: __metadata__ is no object of strings", path);
    json_object_foreach(metadata, key, value) {
        const char *note = json_string_value(value);
        int code = note ? tensor_list_note(list, key, note, err)
                        : fail(err, SAMITE_INPUT, "%s: metadata \"%s\" is no string", path, key);
        if (code)
            return code;
    }
    return SAMITE_OK;
}

static int read_tensor(tensor_list *list, const char *name, json_t *entry, const source *from, samite_error *err)
{
    weight w = {.name = name, .type = DT_COUNT};
    int code = read_entry(&w, entry, from, err);
    if (code)
        return code;
    if (w.type != DT_COUNT)
        return tensor_list_add(list, &w, err);
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    text why = {0};
    if (type_from_name(type) == DT_COUNT)
        text_printf(&why, "has type %s; save it as F32, F16 or BF16", type);
    else
        text_printf(&why, "has more than %d axes", WEIGHT_AXES);
    code = why.failed ? fail(err, SAMITE_RESOURCE, "out of memory") : tensor_list_refuse(list, name, why.data, err);
    text_free(&why);
    return code;
}

int safetensors_read(tensor_list *list, const uint8_t *data, size_t size, const char *path, samite_error *err)
{
    if (size < 8)
        return fail(err, SAMITE_INPUT, "%s: %zu bytes are too few for a safetensors file", path, size);
    uint64_t header = header_size(data);
    if (header > HEADER_LIMIT)
        return fail(err, SAMITE_INPUT, "%s: header of %" PRIu64 " bytes, more than the %" PRIu64
                    " allowed; this is no safetensors file or it is damaged", path, header, HEADER_LIMIT);
    if (header > size - 8)
        return fail(err, SAMITE_INPUT, "%s: the header takes %" PRIu64 " bytes but the file has only %zu; it is cut "
                    "short, get it again", path, header, size);
    json_error_t why;
    json_t *root = json_loadb((const char *)data + 8, (size_t)header, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        json_decref(root);
        return fail(err, SAMITE_INPUT, "%s: the safetensors header is no valid JSON object: %s", path,
                    root ? "another kind of value" : why.text);
    }
    source from = {data + 8 + header, size - 8 - header, path};
    int code = SAMITE_OK;
    const char *name;
    json_t *entry;
    json_object_foreach(root, name, entry) {
        code = strcmp(name, "__metadata__") == 0 ? read_metadata(list, entry, path, err)
                                                 : read_tensor(list, name, entry, &from, err);
        if (code)
            break;
    }
    json_decref(root);
    return code;
}

/* A shard is a file beside the index: no folders, so that an index cannot make us read elsewhere. */
static bool plain_name(const char *name)
{
    return name && *name && strlen(name) < 256 && !strchr(name, '/') && strcmp(name, "..") != 0;
}

static int add_shard(shard_list *out, name_map *seen, const char *name, const char *path, samite_error *err)
{
    if (!plain_name(name))
        return fail(err, SAMITE_INPUT, "%s: weight_map must name files in the same folder", path);
    if (name_map_get(seen, name) >= 0)
        return SAMITE_OK;
    if (out->count == SHARD_LIMIT)
        return fail(err, SAMITE_INPUT, "%s: more than %d shards", path, SHARD_LIMIT);
    char *copy = text_copy(name);
    if (!copy || !name_map_put(seen, copy, (int64_t)out->count)) {
        free(copy);
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    }
    out->names[out->count++] = copy;
    return SAMITE_OK;
}

int safetensors_index(shard_list *out, const uint8_t *data, size_t size, const char *path, samite_error *err)
{
    memset(out, 0, sizeof *out);
    if (size > HEADER_LIMIT)
        return fail(err, SAMITE_INPUT, "%s: too large for a shard index", path);
    json_error_t why;
    json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, &why);
    json_t *names = json_object_get(root, "weight_map"), *value;
    if (!json_is_object(names) || json_object_size(names) == 0) {
        int code = fail(err, SAMITE_INPUT, "%s: no shard index: %s", path, root ? "it has no weight_map" : why.text);
        json_decref(root);
        return code;
    }
    name_map *seen = name_map_new(64);
    out->names = calloc(SHARD_LIMIT, sizeof *out->names);
    int code = seen && out->names ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    const char *key;
    if (!code)
        json_object_foreach(names, key, value) {
            code = add_shard(out, seen, json_string_value(value), path, err);
            if (code)
                break;
        }
    name_map_free(seen);
    json_decref(root);
    if (code)
        shard_list_free(out);
    return code;
}

void shard_list_free(shard_list *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->names[i]);
    free(s->names);
    memset(s, 0, sizeof *s);
}

/* The header for `plan` as text in *out, padded so that the data behind it starts at a multiple of 8. */
static bool write_header(text *out, const weight *plan, size_t count, const text_pair *metadata, size_t pairs,
                         uint64_t *total)
{
    json_t *root = json_object();
    bool good = root != NULL;
    if (pairs) {
        json_t *notes = json_object();
        for (size_t i = 0; i < pairs; i++)
            good &= json_object_set_new(notes, metadata[i].key, json_string(metadata[i].value)) == 0;
        good &= json_object_set_new(root, "__metadata__", notes) == 0;
    }
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        json_t *shape = json_array();
        for (int a = 0; a < plan[i].axes; a++)
            good &= json_array_append_new(shape, json_integer(plan[i].dim[a])) == 0;
        uint64_t end = at + weight_bytes(&plan[i]);
        json_t *entry = json_pack("{s:s,s:o,s:[I,I]}", "dtype", type_name(plan[i].type), "shape", shape,
                                  "data_offsets", (json_int_t)at, (json_int_t)end);
        good &= !json_object_get(root, plan[i].name) && json_object_set_new(root, plan[i].name, entry) == 0;
        at = end;
    }
    char *json = good ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (!json)
        return false;
    text_add(out, json, strlen(json));
    free(json);
    while (!out->failed && out->size % 8)
        text_add(out, " ", 1);
    *total = at;
    return !out->failed;
}

int safetensors_create(safetensors_writer *w, const char *path, const weight *plan, size_t count,
                       const text_pair *metadata, size_t pairs, samite_error *err)
{
    memset(w, 0, sizeof *w);
    text header = {0};
    int code = SAMITE_OK;
    if (!write_header(&header, plan, count, metadata, pairs, &w->total))
        code = fail(err, SAMITE_FAILED, "%s: cannot make the header: a name or text is no UTF-8 or is there twice, or "
                    "memory ran out", path);
    if (!code)
        code = file_writer_open(&w->file, path, err);
    if (!code) {
        uint8_t size[8];
        for (int i = 0; i < 8; i++)
            size[i] = (uint8_t)((uint64_t)header.size >> (8 * i));
        file_write(&w->file, size, sizeof size);
        file_write(&w->file, header.data, header.size);
    }
    text_free(&header);
    return code;
}

void safetensors_put(safetensors_writer *w, const void *data, size_t size)
{
    file_write(&w->file, data, size);
    w->written += size;
}

int safetensors_commit(safetensors_writer *w, samite_error *err)
{
    if (w->written == w->total)
        return file_writer_commit(&w->file, err);
    int code = fail(err, SAMITE_FAILED, "%s: %" PRIu64 " bytes of tensors were to be written, got %" PRIu64,
                    w->file.path, w->total, w->written);
    safetensors_abort(w);
    return code;
}

void safetensors_abort(safetensors_writer *w)
{
    file_writer_abort(&w->file);
}
