/* error.c - fills a samite_error. */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_LINE 8192

static size_t back_to_character(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80)
        at--;
    return at;
}

/* Takes "..." for the middle of a line that does not fit: a long name keeps its beginning, the reason behind it stays.
 * Whole characters only, so that the text stays valid UTF-8. */
static void shorten(char *out, size_t room, const char *line, size_t size)
{
    size_t head = back_to_character(line, room / 2 - 3), tail = size - (room / 2 - 1);
    while (tail < size && ((unsigned char)line[tail] & 0xC0) == 0x80)
        tail++;
    memcpy(out, line, head);
    memcpy(out + head, "...", 3);
    memcpy(out + head + 3, line + tail, size - tail + 1);
}

int fail(samite_error *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    char line[LONGEST_LINE];         /* the arguments may point into *err */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n < 0)
        line[0] = '\0';
    else if ((size_t)n >= sizeof line)
        line[back_to_character(line, sizeof line - 1)] = '\0';
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';                /* names come from files: no line breaks, no terminal escapes */
    err->code = code;
    size_t size = strlen(line);
    if (size < sizeof err->text)
        memcpy(err->text, line, size + 1);
    else
        shorten(err->text, sizeof err->text, line, size);
    return code;
}
