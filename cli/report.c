/* report.c - printing of facts as aligned lines or as a JSON document. */
#define _GNU_SOURCE
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

void print_line(const char *name, const char *format, ...)
{
    char *line = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&line, format, args) < 0)
        line = NULL;
    va_end(args);
    for (char *c = line; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
    printf("%-16s%s\n", name, line ? line : "");
    free(line);
}

void format_bytes(char *out, size_t room, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double n = (double)bytes;
    int unit = 0;
    while (n >= 1024 && unit < 5) {
        n /= 1024;
        unit++;
    }
    snprintf(out, room, unit ? "%.1f %s" : "%.0f %s", n, units[unit]);
}

int print_document(json_t *o, samite_error *err)
{
    int bad = o ? json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : -1;
    json_decref(o);
    if (bad && !ferror(stdout))
        return fail(err, SAMITE_RESOURCE, "out of memory for the JSON output");
    putchar('\n');
    return SAMITE_OK;
}
