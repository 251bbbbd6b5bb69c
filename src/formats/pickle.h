/* pickle.h - a restricted unpickler: it builds plain values and descriptions of tensors, and never runs anything. */
#ifndef FORMATS_PICKLE_H
#define FORMATS_PICKLE_H

#include <stdbool.h>

#include "base/error.h"

typedef enum pickle_kind {
    PICKLE_NONE, PICKLE_BOOL, PICKLE_INT, PICKLE_FLOAT,
    PICKLE_TEXT,        /* text.s, NUL-terminated behind text.size bytes */
    PICKLE_BYTES,       /* text.s points at text.size bytes of the pickle itself, without an end */
    PICKLE_TUPLE, PICKLE_LIST,
    PICKLE_DICT,        /* items alternate key, value; a later pair replaces an earlier one with the same key */
    PICKLE_GLOBAL,      /* a class or function by name, "module.name" in text */
    PICKLE_STORAGE,     /* what a persistent id describes: items = the id's tuple */
    PICKLE_TENSOR,
    PICKLE_OPAQUE       /* made by a class or function that is not known here: its name in text, what it was called with
                         * and what was set afterwards in args and state, NULL where there was nothing */
} pickle_kind;

typedef struct pickle_value pickle_value;

typedef struct pickle_tensor {
    const pickle_value *storage, *offset, *size, *stride;   /* as they stood in the call; kinds not checked */
} pickle_tensor;

struct pickle_value {
    pickle_kind kind;
    union {
        int64_t integer;           /* also PICKLE_BOOL */
        double  real;
        struct { const char *s; size_t size; const pickle_value *args, *state; } text;
        struct { pickle_value **item; size_t count, room; } list;
        pickle_tensor tensor;
    };
};

typedef struct pickle pickle;

/* Reads one pickle of protocol 2 to 5. Depth of the stack, memo and memory are bounded; integers beyond 64 bits become
 * opaque. Values belong to *out and live until pickle_close(). They may refer to each other in circles. */
int  pickle_open(pickle **out, const uint8_t *data, size_t size, const char *path, samite_error *err);
void pickle_close(pickle *p);
const pickle_value *pickle_root(const pickle *p);

/* Value of a text key in a dict; NULL: absent or no dict. */
const pickle_value *pickle_get(const pickle_value *dict, const char *key);
bool pickle_is_text(const pickle_value *v, const char *s);
/* In words, for messages: "an integer", "an object of argparse.Namespace". */
const char *pickle_describe(const pickle_value *v, char *out, size_t room);

#endif
