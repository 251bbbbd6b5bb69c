/* torch_writer.c - writes a state dict as a file of torch.save. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/torch_file.h"

static void add_byte(text *t, uint8_t byte)
{
    text_add(t, (const char *)&byte, 1);
}

static void add_number(text *t, uint64_t value, int size)
{
    for (int i = 0; i < size; i++)
        add_byte(t, (uint8_t)(value >> (8 * i)));
}

static void add_string(text *t, const char *s)
{
    add_byte(t, 'X');
    add_number(t, strlen(s), 4);
    text_add(t, s, strlen(s));
}

static void add_integer(text *t, int64_t n)
{
    if (n >= INT32_MIN && n <= INT32_MAX) {
        add_byte(t, 'J');
        add_number(t, (uint64_t)n, 4);
    } else {
        add_byte(t, 0x8A);
        add_byte(t, 8);
        add_number(t, (uint64_t)n, 8);
    }
}

static void add_global(text *t, const char *module, const char *name)
{
    text_printf(t, "c%s\n%s\n", module, name);
}

static const char *storage_name(dtype type)
{
    static const char *const names[DT_COUNT] = {
        [DT_F32] = "FloatStorage", [DT_F16] = "HalfStorage",  [DT_BF16] = "BFloat16Storage", [DT_F64] = "DoubleStorage",
        [DT_I64] = "LongStorage",  [DT_I32] = "IntStorage",   [DT_I16] = "ShortStorage",     [DT_I8] = "CharStorage",
        [DT_U8] = "ByteStorage",   [DT_BOOL] = "BoolStorage", [DT_C64] = "ComplexFloatStorage",
    };
    return names[type];
}

static void add_tuple(text *t, int count, const int64_t *numbers)
{
    add_byte(t, '(');
    for (int i = 0; i < count; i++)
        add_integer(t, numbers[i]);
    add_byte(t, 't');
}

/* The call that rebuilds a tensor from all of storage number `key`. */
static void add_tensor(text *t, const weight *w, size_t key)
{
    char number[24];
    weight row_major = *w;
    weight_set_strides(&row_major);
    snprintf(number, sizeof number, "%zu", key);
    add_global(t, "torch._utils", "_rebuild_tensor_v2");
    text_add(t, "((", 2);
    add_string(t, "storage");
    add_global(t, "torch", storage_name(w->type));
    add_string(t, number);
    add_string(t, "cpu");
    add_integer(t, weight_count(w));
    text_add(t, "tQ", 2);
    add_integer(t, 0);
    add_tuple(t, w->axes, w->dim);
    add_tuple(t, w->axes, row_major.stride);
    add_byte(t, 0x89);
    add_global(t, "collections", "OrderedDict");
    text_add(t, ")RtR", 4);
}

/* {"model": {name: tensor, ...}, key: value, ...} */
static void add_pickle(text *t, const weight *plan, size_t count, const text_pair *metadata, size_t pairs)
{
    text_add(t, "\x80\x02}(", 4);
    add_string(t, "model");
    text_add(t, "}(", 2);
    for (size_t i = 0; i < count; i++) {
        add_string(t, plan[i].name);
        add_tensor(t, &plan[i], i);
    }
    add_byte(t, 'u');
    for (size_t i = 0; i < pairs; i++) {
        add_string(t, metadata[i].key);
        add_string(t, metadata[i].value);
    }
    text_add(t, "u.", 2);
}

static void add_file(zip_writer *z, const char *name, const char *data, size_t size)
{
    zip_begin(z, name, size);
    zip_put(z, data, size);
}

int torch_writer_create(torch_writer *w, const char *path, const weight *plan, size_t count,
                        const text_pair *metadata, size_t pairs, samite_error *err)
{
    memset(w, 0, sizeof *w);
    text t = {0};
    add_pickle(&t, plan, count, metadata, pairs);
    w->sizes = calloc(count ? count : 1, sizeof *w->sizes);
    if (t.failed || !w->sizes) {
        text_free(&t);
        free(w->sizes);
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    }
    for (size_t i = 0; i < count; i++)
        w->sizes[i] = weight_bytes(&plan[i]);
    w->count = count;
    int code = zip_create(&w->zip, path, err);
    if (code)
        free(w->sizes);
    else {
        add_file(&w->zip, "archive/data.pkl", t.data, t.size);
        add_file(&w->zip, "archive/byteorder", "little", 6);
    }
    text_free(&t);
    return code;
}

/* Starts the next tensor's entry, and those of empty ones before it. */
static bool next_tensor(torch_writer *w)
{
    while (w->left == 0 && w->next < w->count) {
        char name[48];
        snprintf(name, sizeof name, "archive/data/%zu", w->next);
        w->left = w->sizes[w->next++];
        zip_begin(&w->zip, name, w->left);
    }
    return w->left > 0;
}

void torch_writer_put(torch_writer *w, const void *data, size_t size)
{
    const char *from = data;
    while (size > 0) {
        if (!next_tensor(w)) {
            w->too_much = true;
            return;
        }
        size_t n = size < w->left ? size : (size_t)w->left;
        zip_put(&w->zip, from, n);
        w->left -= n;
        from += n;
        size -= n;
    }
}

int torch_writer_commit(torch_writer *w, samite_error *err)
{
    if (w->too_much || w->left || next_tensor(w)) {
        int code = fail(err, SAMITE_FAILED, "%s: the tensors do not have the sizes that were announced",
                        w->zip.file.path);
        torch_writer_abort(w);
        return code;
    }
    add_file(&w->zip, "archive/version", "3\n", 2);
    free(w->sizes);
    return zip_commit(&w->zip, err);
}

void torch_writer_abort(torch_writer *w)
{
    zip_abort(&w->zip);
    free(w->sizes);
    memset(w, 0, sizeof *w);
}
