/* utf8.c - well-formed sequences by the table of the Unicode standard, and a readable stand-in for other bytes. */
#include "base/utf8.h"

#include <string.h>

#include "base/text.h"

size_t utf8_sequence(const char *s, size_t left)
{
    const unsigned char *u = (const unsigned char *)s;
    if (left == 0)
        return 0;
    if (u[0] < 0x80)
        return 1;
    size_t n = u[0] >= 0xC2 && u[0] <= 0xDF ? 2 : (u[0] & 0xF0) == 0xE0 ? 3 : u[0] >= 0xF0 && u[0] <= 0xF4 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((u[i] & 0xC0) != 0x80)
            return 0;
    /* overlong forms, surrogates, beyond U+10FFFF */
    if ((u[0] == 0xE0 && u[1] < 0xA0) || (u[0] == 0xED && u[1] > 0x9F) || (u[0] == 0xF0 && u[1] < 0x90) ||
        (u[0] == 0xF4 && u[1] > 0x8F))
        return 0;
    return n;
}

char *utf8_clean(const char *s, bool *changed)
{
    text t = {0};
    size_t left = strlen(s);
    bool odd = false;
    text_add(&t, "", 0);
    while (left > 0) {
        size_t n = utf8_sequence(s, left);
        if (n)
            text_add(&t, s, n);
        else
            text_printf(&t, "\\x%02X", (unsigned char)*s);
        odd |= n == 0;
        n += n == 0;
        s += n;
        left -= n;
    }
    if (changed)
        *changed = odd;
    if (t.failed)
        text_free(&t);
    return t.data;
}
