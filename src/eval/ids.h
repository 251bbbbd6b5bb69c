/* ids.h - ids as files have them (1, 1.0, "1", "a/b.jpg") made comparable, and numbered. */
#ifndef EVAL_IDS_H
#define EVAL_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "eval/pool.h"

typedef enum id_kind { ID_NONE, ID_INTEGER, ID_TEXT } id_kind;

/* 1, 1.0 and "1" are all the integer 1; other numbers and strings are texts. */
typedef struct id_value {
    id_kind     kind;
    bool        quoted;      /* was a string in the file */
    int64_t     number;
    const char *text;        /* not NUL-terminated unless it comes out of an id_table */
    size_t      size;
} id_value;

id_value id_from_number(const char *s, size_t size);
id_value id_from_string(const char *s, size_t size);

/* Ids numbered 0, 1, ... in the order they are put in. */
typedef struct id_table {
    id_value *item;
    size_t    count, room;
    int32_t  *slot;          /* index + 1, or 0 */
    size_t    slots;
    pool      texts;
} id_table;

/* The number of `id`, put in if it is new; -1 when out of memory. *known says whether it was there. */
int32_t ids_put(id_table *t, const id_value *id, bool *known);
int32_t ids_find(const id_table *t, const id_value *id);       /* -1: absent */
void    ids_free(id_table *t);
/* Order as Python sorts them: by number when none was quoted, else as texts. order[] is a permutation of 0..count-1,
 * to be freed; NULL when out of memory. */
int32_t *ids_order(const id_table *t);
/* For messages and JSON keys; returns `out`. */
const char *id_print(char *out, size_t room, const id_value *id);

#endif
