/* json_stream.c - yajl fed piece by piece from a mapped file. */
#include "eval/json_stream.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_parse.h>

#include "base/file.h"

#define PIECE ((size_t)1 << 20)
#define LONGEST_NUMBER 4096

typedef struct walker {
    const json_events *on;
    void              *to;
} walker;

static int on_number(void *w, const char *s, size_t size)
{
    return ((walker *)w)->on->number(((walker *)w)->to, s, size);
}

static int on_string(void *w, const unsigned char *s, size_t size)
{
    return ((walker *)w)->on->string(((walker *)w)->to, (const char *)s, size);
}

static int on_boolean(void *w, int value)
{
    return ((walker *)w)->on->other(((walker *)w)->to, value != 0);
}

static int on_null(void *w)
{
    return ((walker *)w)->on->other(((walker *)w)->to, -1);
}

static int on_key(void *w, const unsigned char *s, size_t size)
{
    return ((walker *)w)->on->key(((walker *)w)->to, (const char *)s, size);
}

static int on_open_map(void *w)
{
    return ((walker *)w)->on->open(((walker *)w)->to, true);
}

static int on_close_map(void *w)
{
    return ((walker *)w)->on->close(((walker *)w)->to, true);
}

static int on_open_array(void *w)
{
    return ((walker *)w)->on->open(((walker *)w)->to, false);
}

static int on_close_array(void *w)
{
    return ((walker *)w)->on->close(((walker *)w)->to, false);
}

static const yajl_callbacks callbacks = {on_null, on_boolean, NULL, NULL, on_number, on_string,
                                         on_open_map, on_key, on_close_map, on_open_array, on_close_array};

/* Python writes these words where JSON has no number. */
static const char *odd_number(const char *data, size_t size, size_t at)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < 3; i++)
        for (size_t back = 0; back <= strlen(words[i]) && back <= at; back++)
            if (size - (at - back) >= strlen(words[i]) && memcmp(data + at - back, words[i], strlen(words[i])) == 0)
                return words[i];
    return NULL;
}

static int broken(yajl_handle h, const char *data, size_t size, size_t at, const char *name, samite_error *err)
{
    size_t line = 1, start = 0;
    at = at > size ? size : at < size && at > 0 ? at - 1 : at;     /* the parser has just taken the bad character */
    for (size_t i = 0; i < at; i++)
        if (data[i] == '\n') {
            line++;
            start = i + 1;
        }
    if (size == 0)
        return fail(err, SAMITE_INPUT, "%s is empty; expected JSON", name);
    const char *odd = odd_number(data, size, at);
    if (odd)
        return fail(err, SAMITE_INPUT,
                    "%s, line %zu, column %zu: %s is no number in JSON; the program that wrote the file "
                    "had a value that is not finite there",
                    name, line, at - start + 1, odd);
    unsigned char *why = at < size || size == 0 ? yajl_get_error(h, 0, NULL, 0) : NULL;
    if (why)
        why[strcspn((char *)why, "\n")] = '\0';
    int code = fail(err, SAMITE_INPUT, "%s, line %zu, column %zu: broken JSON (%s)", name, line, at - start + 1,
                    why ? (const char *)why : "it ends too early");
    if (why)
        yajl_free_error(h, why);
    return code;
}

/* `piece`: NULL, or heard after each piece. */
static int walk(const char *data, size_t size, const char *name, bool mapped, const json_events *on, json_piece piece,
                void *to, samite_error *err)
{
    walker w = {on, to};
    yajl_handle h = yajl_alloc(&callbacks, NULL, &w);
    if (!h)
        return fail(err, SAMITE_RESOURCE, "no memory to read %s", name);
    yajl_config(h, yajl_dont_validate_strings, 1);
    size_t at = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, n = 0;
    yajl_status status = yajl_status_ok;
    for (; at < size && status == yajl_status_ok; at += status == yajl_status_ok ? n : 0) {
        n = size - at < PIECE ? size - at : PIECE;
        status = yajl_parse(h, (const unsigned char *)data + at, n);
        if (mapped && status == yajl_status_ok)
            file_map_drop(data + at, n);
        if (piece && status == yajl_status_ok && !piece(to, at + n, size))
            status = yajl_status_client_canceled;
    }
    if (status == yajl_status_ok)
        status = yajl_complete_parse(h);
    int code = SAMITE_OK;
    if (status == yajl_status_client_canceled)
        code = err && err->code ? err->code : SAMITE_FAILED;
    else if (status != yajl_status_ok)
        code = broken(h, data, size, at < size ? at + yajl_get_bytes_consumed(h) : size, name, err);
    yajl_free(h);
    return code;
}

int json_stream_bytes(const char *data, size_t size, const char *name, const json_events *on, void *to,
                      samite_error *err)
{
    return walk(data, size, name, false, on, NULL, to, err);
}

int json_stream_watched(const char *path, const json_events *on, json_piece piece, void *to, samite_error *err)
{
    file_map m;
    int code = file_map_open(&m, path, err);
    if (code)
        return code;
    code = walk((const char *)m.data, m.size, path, true, on, piece, to, err);
    file_map_close(&m);
    return code;
}

int json_stream_file(const char *path, const json_events *on, void *to, samite_error *err)
{
    return json_stream_watched(path, on, NULL, to, err);
}

static double slow_value(const char *s, size_t size)
{
    char number[LONGEST_NUMBER];
    size_t n = size < sizeof number ? size : sizeof number - 1;
    memcpy(number, s, n);
    number[n] = '\0';
    return strtod(number, NULL);
}

/* Up to 2^53 times or over a power of ten up to 10^22 is one correctly rounded operation on exact doubles. */
double real_from_json(const char *s, size_t size)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    size_t i = size > 0 && s[0] == '-';
    uint64_t digits = 0;
    int after = 0;
    bool point = false;
    if (size > 20)
        return slow_value(s, size);
    for (; i < size; i++) {
        if (s[i] == '.') {
            point = true;
            continue;
        }
        if (s[i] < '0' || s[i] > '9')
            return slow_value(s, size);
        digits = digits * 10 + (uint64_t)(s[i] - '0');
        after += point;
    }
    if (digits > (uint64_t)1 << 53 || after > 22)
        return slow_value(s, size);
    double v = (double)digits / powers[after];
    return s[0] == '-' ? -v : v;
}
