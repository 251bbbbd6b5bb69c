/* tokenizer_runes.c - growing arrays of code points. */
#include "model/tokenizer_runes.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/utf8.h"

static bool reserve(runes *r, size_t more)
{
    if (r->failed)
        return false;
    if (more <= r->room - r->count)
        return true;
    size_t room = r->room + r->room / 2 + 64;
    if (room - r->count < more)
        room = r->count + more;
    uint32_t *grown = more > SIZE_MAX / 16 || room > SIZE_MAX / 16 ? NULL : realloc(r->at, room * sizeof *grown);
    if (!grown) {
        r->failed = true;
        return false;
    }
    r->at = grown;
    r->room = room;
    return true;
}

void runes_add(runes *r, uint32_t c)
{
    if (reserve(r, 1))
        r->at[r->count++] = c;
}

void runes_append(runes *r, const uint32_t *at, size_t count)
{
    if (count == 0 || !reserve(r, count))
        return;
    memcpy(r->at + r->count, at, count * sizeof *at);
    r->count += count;
}

void runes_clear(runes *r)
{
    r->count = 0;
}

void runes_swap(runes *a, runes *b)
{
    runes t = *a;
    *a = *b;
    *b = t;
}

bool runes_equal(const runes *a, const runes *b)
{
    return a->count == b->count && (a->count == 0 || memcmp(a->at, b->at, a->count * sizeof *a->at) == 0);
}

void runes_free(runes *r)
{
    free(r->at);
    *r = (runes){0};
}

void runes_decode(runes *r, const char *utf8, size_t size)
{
    const uint8_t *s = (const uint8_t *)utf8;
    size_t i = 0;
    while (i < size && reserve(r, 1)) {
        size_t n = utf8_sequence(utf8 + i, size - i);
        uint32_t c = n == 0 ? 0xDC00u + s[i] : n == 1 ? s[i] : s[i] & (0x7Fu >> n);
        for (size_t k = 1; k < n; k++)
            c = c << 6 | (s[i + k] & 0x3Fu);
        r->at[r->count++] = c;
        i += n ? n : 1;
    }
}

size_t rune_encode(uint8_t out[4], uint32_t c)
{
    if (c >= 0xD800 && c < 0xE000)
        c = 0xFFFD;
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t k = n; k-- > 1; c >>= 6)
        out[k] = (uint8_t)(0x80 | (c & 0x3F));
    out[0] = (uint8_t)(0xF00u >> n | c);
    return n;
}

bool rune_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

uint32_t rune_c1_meaning(uint32_t c)
{
    static const uint16_t windows[32] = {
        0x20AC, 0x0081, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0x008D,
        0x017D, 0x008F, 0x0090, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A,
        0x0153, 0x009D, 0x017E, 0x0178};
    return c >= 0x80 && c < 0xA0 ? windows[c - 0x80] : c;
}

rune_kind rune_kind_of(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return RUNE_LETTER;
    case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_NO:
        return RUNE_NUMBER;
    default:
        return RUNE_OTHER;
    }
}

bool rune_is_word(uint32_t c)
{
    return c == '_' || rune_kind_of(c) != RUNE_OTHER;
}
