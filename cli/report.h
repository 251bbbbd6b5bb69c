/* report.h - printing of facts: aligned lines, sizes, JSON documents. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "samite.h"

/* "name          text" on standard output; control characters in the text become '?'. */
void print_line(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* "512 B", "1.2 MiB" */
void format_bytes(char *out, size_t room, uint64_t bytes);
/* Prints `o` as one indented document and frees it; NULL: out of memory. */
int  print_document(json_t *o, samite_error *err);

#endif
