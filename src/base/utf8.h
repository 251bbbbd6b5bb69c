/* utf8.h - is it UTF-8, and what to show when it is not. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the well-formed sequence at `s` (1..4), of which `left` may be read; 0 when it is not well formed. */
size_t utf8_sequence(const char *s, size_t left);

/* A copy of `s` in which every byte outside well-formed UTF-8 became the four characters \xNN. *changed (may be NULL)
 * tells whether there were any. Yours to free; NULL when out of memory. */
char *utf8_clean(const char *s, bool *changed);

#endif
