/* torch_file.c - reads state dicts from files of torch.save. */
#include "formats/torch_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/pickle.h"

#define PICKLE_LIMIT ((uint64_t)256 << 20)

/* A pickle of protocol 2 that starts with the long integer 0x1950a86a20f9469cfc6c. */
static const uint8_t legacy_start[] = {0x80, 0x02, 0x8A, 0x0A, 0x6C, 0xFC, 0x9C, 0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50,
                                       0x19};

static bool is_legacy(const uint8_t *data, size_t size)
{
    return size >= sizeof legacy_start && memcmp(data, legacy_start, sizeof legacy_start) == 0;
}

bool torch_file_detect(const uint8_t *data, size_t size)
{
    return zip_detect(data, size) || is_legacy(data, size) || (size >= 2 && data[0] == 0x80 && data[1] <= 5);
}

static const struct {
    const char *storage;
    dtype type;
} storages[] = {
    {"torch.FloatStorage", DT_F32},  {"torch.HalfStorage", DT_F16},   {"torch.BFloat16Storage", DT_BF16},
    {"torch.DoubleStorage", DT_F64}, {"torch.LongStorage", DT_I64},   {"torch.IntStorage", DT_I32},
    {"torch.ShortStorage", DT_I16},  {"torch.CharStorage", DT_I8},    {"torch.ByteStorage", DT_U8},
    {"torch.BoolStorage", DT_BOOL},  {"torch.ComplexFloatStorage", DT_C64},
};

/* An archive while its state dict is read. */
typedef struct source {
    zip        files;
    name_map  *names;        /* name of an entry -> its index */
    char      *folder;       /* what stands before "data.pkl", e.g. "archive/" */
    const char *path;
} source;

static const zip_entry *find_entry(const source *s, const char *name)
{
    text whole = {0};
    text_printf(&whole, "%s%s", s->folder, name);
    int64_t at = whole.failed ? -1 : name_map_get(s->names, whole.data);
    text_free(&whole);
    return at < 0 ? NULL : &s->files.entries[at];
}

/* Finds the pickle, and with it the folder that all entries stand in. */
static int index_entries(source *s, samite_error *err)
{
    s->names = name_map_new(s->files.count);
    for (size_t i = 0; s->names && i < s->files.count; i++) {
        const char *name = s->files.entries[i].name;
        name_map_put(s->names, name, (int64_t)i);
        if (!s->folder && (strcmp(name, "data.pkl") == 0 || ends_with(name, "/data.pkl"))) {
            s->folder = text_copy(name);
            if (!s->folder)
                break;
            s->folder[strlen(name) - strlen("data.pkl")] = '\0';
        }
    }
    if (!s->names)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", s->path);
    if (!s->folder)
        return fail(err, SAMITE_INPUT, "%s: a zip file, but no model in it (data.pkl is missing); give the .pt file "
                    "that torch.save wrote", s->path);
    return SAMITE_OK;
}

static int check_layout(const source *s, const zip_entry **pickle_entry, samite_error *err)
{
    const zip_entry *order = find_entry(s, "byteorder"), *pkl = find_entry(s, "data.pkl");
    if (find_entry(s, "constants.pkl"))
        return fail(err, SAMITE_INPUT, "%s: is a TorchScript program, not a state dict; save model.state_dict() with "
                    "torch.save", s->path);
    if (order && order->data && (order->size != 6 || memcmp(order->data, "little", 6) != 0))
        return fail(err, SAMITE_INPUT, "%s: was written on a big-endian machine; load and save it once on a "
                    "little-endian one", s->path);
    if (!pkl || !pkl->data || pkl->size > PICKLE_LIMIT)
        return fail(err, SAMITE_INPUT, "%s: its data.pkl is compressed or larger than %" PRIu64 " bytes; save it again "
                    "with torch.save", s->path, PICKLE_LIMIT);
    *pickle_entry = pkl;
    return SAMITE_OK;
}

static bool read_integers(int64_t *out, int count, const pickle_value *from)
{
    for (int i = 0; i < count; i++) {
        if (from->list.item[i]->kind != PICKLE_INT)
            return false;
        out[i] = from->list.item[i]->integer;
    }
    return true;
}

static bool is_sequence(const pickle_value *v)
{
    return v->kind == PICKLE_TUPLE || v->kind == PICKLE_LIST;
}

/* Shape, strides and offset (in elements) of a pickled tensor. */
static bool read_extent(weight *w, int64_t *offset, const pickle_tensor *t)
{
    if (!is_sequence(t->size) || !is_sequence(t->stride) || t->size->list.count != t->stride->list.count ||
        t->offset->kind != PICKLE_INT || t->offset->integer < 0)
        return false;
    w->axes = (int)t->size->list.count;
    *offset = t->offset->integer;
    return read_integers(w->dim, w->axes, t->size) && read_integers(w->stride, w->axes, t->stride);
}

/* The entry and element type that a persistent id ("storage", class, key, device, count) means. NULL and *why in words
 * if this is no storage that weights can have. */
static const zip_entry *find_storage(const source *s, const pickle_value *storage, dtype *type, const char **why)
{
    *why = "has a damaged storage record";
    if (storage->kind != PICKLE_STORAGE || storage->list.count < 5 ||
        !pickle_is_text(storage->list.item[0], "storage") || storage->list.item[1]->kind != PICKLE_GLOBAL ||
        storage->list.item[2]->kind != PICKLE_TEXT)
        return NULL;
    *type = DT_COUNT;
    for (size_t i = 0; i < sizeof storages / sizeof *storages; i++)
        if (pickle_is_text(storage->list.item[1], storages[i].storage))
            *type = storages[i].type;
    if (*type == DT_COUNT) {
        *why = storage->list.item[1]->text.s;
        return NULL;
    }
    text name = {0};
    text_printf(&name, "data/%s", storage->list.item[2]->text.s);
    const zip_entry *e = name.failed ? NULL : find_entry(s, name.data);
    text_free(&name);
    *why = !e ? "has no data in the file" : "is compressed";
    return e && e->data ? e : NULL;
}

/* Adds one tensor of the state dict. A tensor that reaches outside its storage makes the file unusable; one of a kind
 * that weights cannot have is listed as refused. */
static int add_tensor(tensor_list *list, const source *s, const char *name, const pickle_tensor *t, samite_error *err)
{
    weight w = {.name = name};
    int64_t offset = 0, start;
    const char *why;
    const zip_entry *storage = find_storage(s, t->storage, &w.type, &why);
    if (!storage && w.type == DT_COUNT) {
        text reason = {0};
        text_printf(&reason, "has elements of %s; convert it to float32, float16 or bfloat16", why);
        int code = reason.failed ? fail(err, SAMITE_RESOURCE, "%s: out of memory", s->path)
                                 : tensor_list_refuse(list, name, reason.data, err);
        text_free(&reason);
        return code;
    }
    if (!storage)
        return fail(err, SAMITE_INPUT, "%s: tensor \"%s\" %s", s->path, name, why);
    if (is_sequence(t->size) && t->size->list.count > WEIGHT_AXES)
        return tensor_list_refuse(list, name, "has more than 8 axes", err);
    bool good = read_extent(&w, &offset, t) &&
                !__builtin_mul_overflow(offset, (int64_t)dtype_size(w.type), &start) &&
                (uint64_t)start <= storage->size && weight_fits(&w, storage->size - (uint64_t)start);
    if (!good)
        return fail(err, SAMITE_INPUT, "%s: tensor \"%s\" reaches outside the %" PRIu64 " bytes that the file holds "
                    "for it; the file is damaged", s->path, name, storage->size);
    w.data = storage->data + start;
    return tensor_list_add(list, &w, err);
}

static int add_entry(tensor_list *list, const source *s, const pickle_value *key, const pickle_value *v,
                     samite_error *err)
{
    if (key->kind != PICKLE_TEXT || strlen(key->text.s) != key->text.size)
        return SAMITE_OK;
    if (v->kind == PICKLE_TENSOR)
        return add_tensor(list, s, key->text.s, &v->tensor, err);
    if (v->kind != PICKLE_OPAQUE)
        return SAMITE_OK;
    text why = {0};
    text_printf(&why, strstr(v->text.s, "qtensor") ? "is quantized (%s); give the unquantized model"
                                                   : "is an object of %s, not a plain tensor", v->text.s);
    int code = why.failed ? fail(err, SAMITE_RESOURCE, "%s: out of memory", s->path)
                          : tensor_list_refuse(list, key->text.s, why.data, err);
    text_free(&why);
    return code;
}

/* All tensors of a state dict. A key that is there twice counts with its last value, as in Python. */
static int add_state(tensor_list *list, const source *s, const pickle_value *dict, samite_error *err)
{
    size_t count = dict->list.count / 2;
    name_map *last = name_map_new(count);
    bool *used = calloc(count ? count : 1, sizeof *used);
    int code = last && used ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "%s: out of memory", s->path);
    for (size_t i = count; !code && i-- > 0;) {
        const pickle_value *key = dict->list.item[2 * i];
        used[i] = key->kind == PICKLE_TEXT && name_map_put(last, key->text.s, (int64_t)i);
    }
    for (size_t i = 0; !code && i < count; i++)
        if (used[i])
            code = add_entry(list, s, dict->list.item[2 * i], dict->list.item[2 * i + 1], err);
    name_map_free(last);
    free(used);
    return code;
}

/* A dict with at least one tensor, of a known kind or not. */
static bool holds_tensors(const pickle_value *dict)
{
    for (size_t i = 1; dict && dict->kind == PICKLE_DICT && i < dict->list.count; i += 2) {
        const pickle_value *v = dict->list.item[i];
        if (v->kind == PICKLE_TENSOR || (v->kind == PICKLE_OPAQUE && strstr(v->text.s, "._rebuild_")))
            return true;
    }
    return false;
}

/* The file's keys as "a", "b", ...: for the message that none of them holds weights. */
static void list_keys(text *out, const pickle_value *dict)
{
    size_t shown = 0;
    for (size_t i = 0; i < dict->list.count && shown < 8; i += 2)
        if (dict->list.item[i]->kind == PICKLE_TEXT)
            text_printf(out, "%s\"%.40s\"", shown++ ? ", " : "", dict->list.item[i]->text.s);
}

static int find_state(const pickle_value **out, const source *s, const pickle_value *root, samite_error *err)
{
    static const char *const keys[] = {"model", "state_dict", "model_state_dict"};
    if (root->kind != PICKLE_DICT) {
        char what[160];
        return fail(err, SAMITE_INPUT, "%s: holds %s, not a state dict; save model.state_dict() with torch.save",
                    s->path, pickle_describe(root, what, sizeof what));
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (holds_tensors(*out = pickle_get(root, keys[i])))
            return SAMITE_OK;
    *out = root;
    if (holds_tensors(root))
        return SAMITE_OK;
    text names = {0};
    list_keys(&names, root);
    int code = fail(err, SAMITE_INPUT, "%s: no tensors in it; it looks like a training checkpoint without weights "
                    "(keys: %s)", s->path, names.data ? names.data : "none");
    text_free(&names);
    return code;
}

/* Text at the outermost level, beside the state dict. */
static int add_notes(tensor_list *list, const pickle_value *root, samite_error *err)
{
    int code = SAMITE_OK;
    for (size_t i = 0; !code && i + 1 < root->list.count; i += 2)
        if (root->list.item[i]->kind == PICKLE_TEXT && root->list.item[i + 1]->kind == PICKLE_TEXT)
            code = tensor_list_note(list, root->list.item[i]->text.s, root->list.item[i + 1]->text.s, err);
    return code;
}

static int read_archive(tensor_list *list, source *s, samite_error *err)
{
    const zip_entry *entry = NULL;
    const pickle_value *state = NULL;
    pickle *p = NULL;
    int code = index_entries(s, err);
    if (!code)
        code = check_layout(s, &entry, err);
    if (!code)
        code = pickle_open(&p, entry->data, (size_t)entry->size, s->path, err);
    if (!code)
        code = find_state(&state, s, pickle_root(p), err);
    if (!code)
        code = add_state(list, s, state, err);
    if (!code && state != pickle_root(p))
        code = add_notes(list, pickle_root(p), err);
    pickle_close(p);
    return code;
}

int torch_file_read(tensor_list *list, const uint8_t *data, size_t size, const char *path, samite_error *err)
{
    if (is_legacy(data, size))
        return fail(err, SAMITE_INPUT, "%s: is in the old format of torch before 1.6; load it with torch and save it "
                    "again with torch.save", path);
    if (!zip_detect(data, size))
        return fail(err, SAMITE_INPUT, "%s: is a bare pickle, not a file of torch.save; save model.state_dict() with "
                    "torch.save", path);
    source s = {.path = path};
    int code = zip_open(&s.files, data, size, path, err);
    if (!code)
        code = read_archive(list, &s, err);
    name_map_free(s.names);
    free(s.folder);
    zip_close(&s.files);
    return code;
}
