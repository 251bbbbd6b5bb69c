/* json_stream.h - JSON files of any size, event by event, without holding more than a piece of them. */
#ifndef EVAL_JSON_STREAM_H
#define EVAL_JSON_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Handlers return true to go on. When one returns false the walk ends with the error that it left in *err. */
typedef struct json_events {
    bool (*number)(void *to, const char *s, size_t size);
    bool (*string)(void *to, const char *s, size_t size);
    bool (*other)(void *to, int value);          /* true 1, false 0, null -1 */
    bool (*key)(void *to, const char *s, size_t size);
    bool (*open)(void *to, bool map);
    bool (*close)(void *to, bool map);
} json_events;

/* Walks through the file. Broken JSON is SAMITE_INPUT with line and column. */
int json_stream_file(const char *path, const json_events *on, void *to, samite_error *err);
/* The same; now and then piece() hears that `at` of `size` bytes are done. */
typedef bool (*json_piece)(void *to, size_t at, size_t size);
int json_stream_watched(const char *path, const json_events *on, json_piece piece, void *to, samite_error *err);
int json_stream_bytes(const char *data, size_t size, const char *name, const json_events *on, void *to,
                      samite_error *err);

/* The number that `size` characters of JSON stand for, correctly rounded. */
double real_from_json(const char *s, size_t size);

#endif
