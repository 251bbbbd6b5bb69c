/* records.c - JSON events put together to one record at a time. */
#define _GNU_SOURCE
#include "train/records.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "eval/json_stream.h"

#define DEEPEST 16

typedef struct builder {
    const char   *path;
    record_fn     take;
    void         *to;
    samite_error *err;
    char          section[64], key[64];
    int           depth;              /* open brackets */
    json_t       *open[DEEPEST];      /* of the record: the record itself, then what is open inside it */
    int           opened;
} builder;

bool record_is_odd(const json_t *value)
{
    const char *s = json_string_value(value);
    return s && *s && s[strspn(s, " ")] == '\0';
}

/* Puts a value into what is open; takes it over. */
static bool put(builder *b, json_t *v)
{
    if (!b->opened || !v) {
        json_decref(v);
        return v || !b->opened || (fail(b->err, SAMITE_RESOURCE, "not enough memory to read %s", b->path), false);
    }
    json_t *in = b->open[b->opened - 1];
    if ((json_is_array(in) ? json_array_append_new(in, v) : json_object_set_new(in, b->key, v)) == 0)
        return true;
    fail(b->err, SAMITE_RESOURCE, "not enough memory to read %s", b->path);
    return false;
}

static bool on_number(void *to, const char *s, size_t size)
{
    builder *b = to;
    if (!b->opened)
        return true;
    bool whole =
        size < 19 && memchr(s, '.', size) == NULL && memchr(s, 'e', size) == NULL && memchr(s, 'E', size) == NULL;
    double v = real_from_json(s, size);
    return put(b, whole ? json_integer((json_int_t)v) : v - v == 0 ? json_real(v) : json_string(" "));
}

static bool on_string(void *to, const char *s, size_t size)
{
    builder *b = to;
    json_t *v = b->opened ? json_stringn(s, size) : NULL;
    return !b->opened || put(b, v ? v : json_null());      /* not UTF-8: as if it were not there */
}

static bool on_other(void *to, int value)
{
    builder *b = to;
    return !b->opened || put(b, value < 0 ? json_null() : json_boolean(value));
}

static bool on_key(void *to, const char *s, size_t size)
{
    builder *b = to;
    char *into = b->opened ? b->key : b->depth == 1 ? b->section : NULL;
    if (!into)
        return true;
    size_t n = size < sizeof b->key ? size : sizeof b->key - 1;
    memcpy(into, s, n);
    into[n] = '\0';
    if (b->opened && memchr(s, 0, size))
        into[0] = '\0';
    return true;
}

static bool on_open(void *to, bool map)
{
    builder *b = to;
    b->depth++;
    if (!b->opened && (b->depth != 3 || !map))
        return true;
    if (b->opened == DEEPEST) {
        fail(b->err, SAMITE_INPUT, "%s: a record in \"%s\" is nested more than %d deep", b->path, b->section, DEEPEST);
        return false;
    }
    json_t *v = map ? json_object() : json_array();
    if (b->opened ? !put(b, v) : !v)
        return false;
    b->open[b->opened++] = v;
    return true;
}

static bool on_close(void *to, bool map)
{
    builder *b = to;
    (void)map;
    b->depth--;
    if (!b->opened || --b->opened)
        return true;
    bool go_on = b->take(b->to, b->section, b->open[0]);
    json_decref(b->open[0]);
    return go_on;
}

/* Words that are no JSON numbers become strings of blanks of the same length, outside strings only. */
static void blank_odd(char *s, size_t size)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    bool inside = false;
    for (size_t i = 0; i < size; i++) {
        if (s[i] == '"')
            inside = !inside;
        else if (inside && s[i] == '\\')
            i++;
        if (inside || (s[i] != 'N' && s[i] != 'I' && s[i] != '-'))
            continue;
        for (int k = 0; k < 3; k++) {
            size_t n = strlen(words[k]);
            if (size - i < n || memcmp(s + i, words[k], n) != 0)
                continue;
            memset(s + i, ' ', n);
            s[i] = s[i + n - 1] = '"';
            i += n - 1;
            break;
        }
    }
}

static const json_events events = {on_number, on_string, on_other, on_key, on_open, on_close};

static bool has(const file_map *m, const char *word)
{
    return m->size && memmem(m->data, m->size, word, strlen(word));
}

int records_read(const char *path, record_fn take, void *to, samite_error *err)
{
    samite_error own = {0};
    builder b = {.path = path, .take = take, .to = to, .err = err ? err : &own};
    file_map m;
    int code = file_map_open(&m, path, b.err);
    if (code)
        return code;
    if (has(&m, "NaN") || has(&m, "Infinity")) {
        char *copy = malloc(m.size);
        if (copy) {
            memcpy(copy, m.data, m.size);
            blank_odd(copy, m.size);
            code = json_stream_bytes(copy, m.size, path, &events, &b, b.err);
            free(copy);
        } else {
            code = fail(b.err, SAMITE_RESOURCE, "not enough memory to read %s", path);
        }
    } else {
        code = json_stream_bytes((const char *)m.data, m.size, path, &events, &b, b.err);
    }
    if (b.opened)
        json_decref(b.open[0]);
    file_map_close(&m);
    return code;
}
