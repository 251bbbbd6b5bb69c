/* error.c - fills a samite_error. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Ends a cut line with "..." at a character boundary, so that the text stays valid UTF-8. */
static void mark_cut(char *text, size_t room)
{
    size_t at = room - 4;
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    memcpy(text + at, "...", 4);
}

int fail(samite_error *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    char line[sizeof err->text];     /* the arguments may point into *err */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0)
        line[0] = '\0';
    else if ((size_t)n >= sizeof line)
        mark_cut(line, sizeof line);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';                /* names come from files: no line breaks, no terminal escapes */
    err->code = code;
    memcpy(err->text, line, sizeof line);
    return code;
}
