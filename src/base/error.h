/* error.h - one way to fail: a code and one line for a person. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "samite.h"

/* Fills *err (if not NULL) with `code` and the formatted line, cut to fit; returns `code`. */
int fail(samite_error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
