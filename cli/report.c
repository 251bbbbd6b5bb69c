/* report.c - printing of facts as aligned lines or as a JSON document. */
#define _GNU_SOURCE
#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

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
    printf("%-14s%s\n", name, line ? line : "");
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

json_t *json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *json_name(const char *bytes)
{
    char *clean = utf8_clean(bytes, NULL);
    json_t *s = clean ? json_string(clean) : NULL;
    free(clean);
    return s;
}

int json_set_path(json_t *object, const char *key, const char *path)
{
    bool odd = false;
    char *clean = utf8_clean(path, &odd);
    int bad = !clean || json_object_set_new(object, key, json_string(clean));
    if (odd && !bad) {
        text hex = {0}, name = {0};
        for (const unsigned char *c = (const unsigned char *)path; *c; c++)
            text_printf(&hex, "%02x", *c);
        text_printf(&name, "%s_hex", key);
        bad = hex.failed || name.failed || json_object_set_new(object, name.data, json_string(hex.data));
        text_free(&hex);
        text_free(&name);
    }
    free(clean);
    return bad ? -1 : 0;
}
