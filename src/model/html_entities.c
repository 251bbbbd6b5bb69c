/* html_entities.c - HTML character references replaced by their characters. */
#include "model/html_entities.h"

#include <string.h>

enum { CLOSED = 1, OPEN = 2, SHOUTED = 4 };      /* `&name;`, `&name`, `&NAME;` for a name in small letters */
enum { LONGEST_NAME = 32, LONGEST_CLOSED = 24, TOO_LARGE = 0x110000 };

typedef struct entity {
    uint16_t name;           /* where it starts in entity_names */
    uint8_t  length, kinds;  /* in which of the spellings it counts */
    uint32_t value[3];       /* zero padded */
} entity;

#include "html_entities_table.h"   /* entity_names; entities, sorted by name */

typedef struct reference {
    size_t   used;       /* code points after the `&` that it covers, 0 when there is none */
    size_t   count;      /* code points in `value`; 0 removes the reference */
    uint32_t value[3];
} reference;

static bool is_digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(uint32_t c)
{
    return (c | 32) >= 'a' && (c | 32) <= 'z' && c < 0x80;
}

/* The row of a name in one of the spellings `kinds`, or NULL. */
static const entity *find_entity(const uint32_t *name, size_t length, int kinds)
{
    size_t low = 0, high = sizeof entities / sizeof *entities;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const entity *e = &entities[middle];
        const char *s = entity_names + e->name;
        size_t k = 0;
        while (k < length && k < e->length && name[k] == (uint8_t)s[k])
            k++;
        if (k == length && k == e->length)
            return e->kinds & kinds ? e : NULL;
        if (k == e->length || (k < length && name[k] > (uint8_t)s[k]))
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static reference named(const entity *e, size_t used)
{
    reference r = {used, 0, {0}};
    while (r.count < 3 && e->value[r.count]) {
        r.value[r.count] = e->value[r.count];
        r.count++;
    }
    return r;
}

/* What a number stands for: some are read as Windows-1252, some as U+FFFD, some as nothing. */
static reference numbered(uint32_t n, size_t used)
{
    reference r = {used, 1, {n}};
    if (n == 0 || (n >= 0xD800 && n < 0xE000) || n >= TOO_LARGE)
        r.value[0] = 0xFFFD;
    else if (n >= 0x80 && n < 0xA0)
        r.value[0] = rune_c1_meaning(n);
    else if (n < 9 || n == 0x0B || (n >= 0x0E && n < 0x20) || n == 0x7F || (n >= 0xFDD0 && n < 0xFDF0) ||
             (n & 0xFFFE) == 0xFFFE)
        r.count = 0;
    return r;
}

/* `#` and what follows it: #123 or #x1F, with or without `;`. */
static reference read_number(const uint32_t *s, size_t left)
{
    bool hex = left > 1 && (s[1] == 'x' || s[1] == 'X');
    size_t first = hex ? 2 : 1, i = first;
    uint32_t n = 0;
    for (; i < left && (is_digit(s[i]) || (hex && is_letter(s[i]) && (s[i] | 32) <= 'f')); i++) {
        uint32_t digit = is_digit(s[i]) ? s[i] - '0' : (s[i] | 32) - 'a' + 10;
        n = n >= TOO_LARGE ? TOO_LARGE : n * (hex ? 16 : 10) + digit;
    }
    if (i == first)
        return (reference){0};
    return numbered(n, i + (i < left && s[i] == ';'));
}

/* The longest known name at the start of up to 32 characters after the `&`. */
static reference read_name(const uint32_t *s, size_t left)
{
    size_t length = 0;
    while (length < left && length < LONGEST_NAME && (is_digit(s[length]) || is_letter(s[length])))
        length++;
    const entity *e;
    if (length < left && s[length] == ';' && (e = find_entity(s, length, CLOSED)))
        return named(e, length + 1);
    for (; length > 1; length--)
        if ((e = find_entity(s, length, OPEN)))
            return named(e, length);
    return (reference){0};
}

static reference read_any(const uint32_t *s, size_t left)
{
    if (left > 0 && s[0] == '#')
        return read_number(s, left);
    return read_name(s, left);
}

static reference read_closed(const uint32_t *s, size_t left)
{
    size_t number = left > 0 && s[0] == '#', end = number;
    while (end < left && end <= LONGEST_CLOSED + number && (is_digit(s[end]) || is_letter(s[end])))
        end++;
    if (end == number || end > LONGEST_CLOSED + number || end == left || s[end] != ';')
        return (reference){0};
    if (!number) {
        const entity *e = find_entity(s, end, CLOSED | SHOUTED);
        return e ? named(e, end + 1) : (reference){0};
    }
    reference r = read_number(s, end + 1);
    bool whole = r.used == end + 1 && !(r.count == 1 && r.value[0] == ';');
    return whole ? r : (reference){0};
}

/* No reference is shorter than its characters, so the text only shrinks. */
static void replace(runes *text, reference (*read)(const uint32_t *, size_t))
{
    if (text->failed)
        return;
    size_t to = 0;
    for (size_t i = 0; i < text->count; i++) {
        reference r = {0};
        if (text->at[i] == '&')
            r = read(text->at + i + 1, text->count - i - 1);
        if (r.used == 0) {
            text->at[to++] = text->at[i];
            continue;
        }
        memcpy(text->at + to, r.value, r.count * sizeof *r.value);
        to += r.count;
        i += r.used;
    }
    text->count = to;
}

void html_unescape(runes *text)
{
    replace(text, read_any);
}

void html_unescape_closed(runes *text)
{
    replace(text, read_closed);
}
