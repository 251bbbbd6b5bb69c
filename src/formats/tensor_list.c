/* tensor_list.c - stored tensors: their extent, conversion to plain rows, and lists of them. */
#include "formats/tensor_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define CHUNK ((int64_t)1 << 18)     /* elements that one thread converts at a time */

int64_t weight_count(const weight *w)
{
    int64_t n = 1;
    for (int a = 0; a < w->axes; a++)
        n *= w->dim[a];
    return n;
}

size_t weight_bytes(const weight *w)
{
    return (size_t)weight_count(w) * dtype_size(w->type);
}

bool weight_contiguous(const weight *w)
{
    if (w->parts)
        return false;
    int64_t step = 1;
    for (int a = w->axes - 1; a >= 0; a--) {
        if (w->dim[a] == 0)
            return true;
        if (w->dim[a] != 1 && w->stride[a] != step)
            return false;
        step *= w->dim[a];
    }
    return true;
}

void weight_set_strides(weight *w)
{
    int64_t step = 1;
    for (int a = w->axes - 1; a >= 0; a--) {
        w->stride[a] = step;
        if (w->dim[a] > 0 && __builtin_mul_overflow(step, w->dim[a], &step))
            step = 0;                /* such a tensor is refused by weight_fits */
    }
}

bool weight_fits(const weight *w, uint64_t bytes)
{
    int64_t last = 0, count = 1, size = (int64_t)dtype_size(w->type), reach, total;
    bool empty = false;
    if (w->axes < 0 || w->axes > WEIGHT_AXES || size == 0)
        return false;
    for (int a = 0; a < w->axes; a++) {
        if (w->dim[a] < 0 || w->stride[a] < 0)
            return false;
        empty |= w->dim[a] == 0;
        if (w->dim[a] > 0 && __builtin_mul_overflow(count, w->dim[a], &count))
            return false;
        if (w->dim[a] > 0 && (__builtin_mul_overflow(w->dim[a] - 1, w->stride[a], &reach) ||
                              __builtin_add_overflow(last, reach, &last)))
            return false;
    }
    if (__builtin_mul_overflow(count, size, &total))
        return false;
    if (empty)
        return true;
    return !__builtin_add_overflow(last, 1, &last) && !__builtin_mul_overflow(last, size, &reach) &&
           (uint64_t)reach <= bytes;
}

typedef void convert_fn(void *out, const char *in, dtype d, size_t count);

static void convert_f32(void *out, const char *in, dtype d, size_t count)
{
    dtype_to_f32(out, in, d, count);
}

static void convert_none(void *out, const char *in, dtype d, size_t count)
{
    memcpy(out, in, count * dtype_size(d));
}

/* Elements from flat index `from` on, `count` of them, of a tensor with any strides, in runs along the last axis. */
static void gather(char *out, size_t out_size, const weight *w, int64_t from, int64_t count, convert_fn *convert)
{
    size_t size = dtype_size(w->type);
    int last = w->axes - 1;
    int64_t at[WEIGHT_AXES], rest = from, offset = 0;
    for (int a = last; a >= 0; a--) {
        at[a] = rest % w->dim[a];
        rest /= w->dim[a];
        offset += at[a] * w->stride[a];
    }
    while (count > 0) {
        int64_t run = last < 0 ? 1 : w->dim[last] - at[last], step = last < 0 ? 1 : w->stride[last];
        run = run < count ? run : count;
        const char *in = (const char *)w->data + (size_t)offset * size;
        if (step == 1)
            convert(out, in, w->type, (size_t)run);
        else
            for (int64_t i = 0; i < run; i++)
                convert(out + (size_t)i * out_size, in + (size_t)(i * step) * size, w->type, 1);
        out += (size_t)run * out_size;
        count -= run;
        if (last < 0)
            return;
        at[last] += run;
        offset += run * step;
        for (int a = last; a > 0 && at[a] == w->dim[a]; a--) {
            offset += w->stride[a - 1] - at[a] * w->stride[a];
            at[a] = 0;
            at[a - 1]++;
        }
    }
}

/* The whole tensor, its pieces one after the other, split among the threads. */
static void copy_all(char *out, size_t out_size, const weight *w, convert_fn *convert)
{
    for (int p = 0; p < w->parts; p++) {
        copy_all(out, out_size, &w->part[p], convert);
        out += (size_t)weight_count(&w->part[p]) * out_size;
    }
    if (w->parts)
        return;
    int64_t count = weight_count(w), chunks = (count + CHUNK - 1) / CHUNK;
    bool plain = weight_contiguous(w);
#pragma omp parallel for schedule(dynamic) if (chunks > 1)
    for (int64_t c = 0; c < chunks; c++) {
        int64_t from = c * CHUNK, n = count - from < CHUNK ? count - from : CHUNK;
        char *to = out + (size_t)from * out_size;
        if (plain)
            convert(to, (const char *)w->data + (size_t)from * dtype_size(w->type), w->type, (size_t)n);
        else
            gather(to, out_size, w, from, n, convert);
    }
}

void weight_to_f32(float *out, const weight *w)
{
    copy_all((char *)out, sizeof *out, w, convert_f32);
    int64_t rows = w->scale ? w->dim[0] : 0, cols = rows ? weight_count(w) / rows : 0;
#pragma omp parallel for schedule(static) if (rows * cols > CHUNK)
    for (int64_t r = 0; r < rows; r++) {
        float scale;
        memcpy(&scale, (const char *)w->scale + (size_t)r * sizeof scale, sizeof scale);
        for (int64_t c = 0; c < cols; c++)
            out[r * cols + c] *= scale;
    }
}

void weight_copy(void *out, const weight *w)
{
    copy_all(out, dtype_size(w->type), w, convert_none);
}

const char *weight_shape(const weight *w, char *out, size_t room)
{
    size_t n = (size_t)snprintf(out, room, "[");
    for (int a = 0; a < w->axes && n < room; a++)
        n += (size_t)snprintf(out + n, room - n, "%s%lld", a ? ", " : "", (long long)w->dim[a]);
    if (n < room)
        snprintf(out + n, room - n, "]");
    return out;
}

/* `items` with room for one more of `size` bytes, perhaps moved; NULL, with `items` left alone, when out of memory. */
static void *grow(void *items, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return items;
    size_t more = *room ? 2 * *room : 64;
    void *grown = more > SIZE_MAX / 2 / size ? NULL : realloc(items, more * size);
    if (grown)
        *room = more;
    return grown;
}

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "out of memory while listing tensors");
}

int tensor_list_add(tensor_list *l, const weight *w, samite_error *err)
{
    char *name = text_copy(w->name);
    weight *part = w->parts ? malloc((size_t)w->parts * sizeof *part) : NULL;
    weight *items = name && (part || !w->parts) ? grow(l->items, l->count, &l->room, sizeof *items) : NULL;
    if (!items) {
        free(name);
        free(part);
        return no_memory(err);
    }
    if (part)
        memcpy(part, w->part, (size_t)w->parts * sizeof *part);
    l->items = items;
    items[l->count] = *w;
    items[l->count].name = name;
    items[l->count++].part = part;
    return SAMITE_OK;
}

/* Appends two copied strings to an array of pairs. */
static int add_pair(text_pair **items, size_t *count, size_t *room, const char *key, const char *value,
                    samite_error *err)
{
    text_pair pair = {text_copy(key), text_copy(value)};
    text_pair *grown = pair.key && pair.value ? grow(*items, *count, room, sizeof pair) : NULL;
    if (!grown) {
        free(pair.key);
        free(pair.value);
        return no_memory(err);
    }
    *items = grown;
    grown[(*count)++] = pair;
    return SAMITE_OK;
}

int tensor_list_refuse(tensor_list *l, const char *name, const char *why, samite_error *err)
{
    return add_pair(&l->refused, &l->refused_count, &l->refused_room, name, why, err);
}

int tensor_list_note(tensor_list *l, const char *key, const char *value, samite_error *err)
{
    return add_pair(&l->notes, &l->note_count, &l->note_room, key, value, err);
}

static void free_pairs(text_pair *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(items[i].key);
        free(items[i].value);
    }
    free(items);
}

void tensor_list_free(tensor_list *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free((char *)l->items[i].name);
        free((weight *)l->items[i].part);
    }
    free(l->items);
    free_pairs(l->refused, l->refused_count);
    free_pairs(l->notes, l->note_count);
    memset(l, 0, sizeof *l);
}
