/* report.h - printing of facts: aligned lines, sizes, JSON documents. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "samite.h"

/* "name          text" on standard output; control characters in the text become '?'. */
void print_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "512 B", "1.2 MiB" */
void format_bytes(char *out, size_t room, uint64_t bytes);
/* Prints `o` as one indented document and frees it; NULL: out of memory. */
int  print_document(json_t *o, samite_error *err);

/* The number, or null when it is infinite or not a number, which JSON cannot hold. */
json_t *json_number(double v);
/* Any bytes as a JSON string; what is not UTF-8 becomes \xNN. */
json_t *json_name(const char *bytes);
/* Sets object[key] = path and, when the path is not UTF-8, object[key_hex] = its bytes. 0, or -1 when out of memory. */
int json_set_path(json_t *object, const char *key, const char *path);

#endif
