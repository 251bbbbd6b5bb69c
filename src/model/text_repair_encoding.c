/* text_repair_encoding.c - text that was decoded with the wrong encoding (mojibake): is it, and what was it. */
#include "model/text_repair_encoding.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* Single-byte encodings in the order in which they are tried. The "sloppy" Windows ones give every byte a meaning and
 * read U+FFFD as byte 0x1A. */
enum { LATIN1, CP1252, CP1251, CP1250, CP1253, CP1254, CP1257, ISO8859_2, MAC_ROMAN, CP437, PAGE_COUNT };
enum { ALL_PAGES = (1 << PAGE_COUNT) - 1 };
/* As which byte of a UTF-8 sequence a character may occur when that was read in some Latin-like page. */
enum { LEAD2 = 1, LEAD3 = 2, LEAD4 = 4, TAIL = 8, STRICT_TAIL = 16 };
enum { CLASS_LETTER, CLASS_SPACE, CLASS_OTHER, LONGEST_RULE = 7, DEEPEST = 64, SUBSTITUTE = 0x1A };

typedef struct suspect {
    uint16_t code;
    uint16_t pages;                     /* bit p: page p has this character */
    uint8_t  clues, class_of;
    uint8_t  byte[PAGE_COUNT];
} suspect;

/* Consecutive characters whose classes are in these sets (indices into rule_sets) make a text look bad. */
typedef struct rule {
    bool    at_start;                   /* only at the start of the text */
    uint8_t length, set[LONGEST_RULE];
} rule;

/* rule_sets; rules; rules_from: bits of the rules that a class can start; suspects, sorted by code, with all of U+0000
 * to U+00FF. */
#include "text_repair_mojibake.h"

bool repair_spend(int64_t *budget, size_t count)
{
    *budget -= (int64_t)count + 1;
    return *budget > 0;
}

static const suspect *find_suspect(uint32_t c)
{
    if (c < 256)
        return &suspects[c];
    size_t low = 256, high = sizeof suspects / sizeof *suspects;
    if (c > suspects[high - 1].code)
        return NULL;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (suspects[middle].code == c)
            return &suspects[middle];
        if (suspects[middle].code < c)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static int clues_of(uint32_t c)
{
    const suspect *s = find_suspect(c);
    return s ? s->clues : 0;
}

static uint8_t class_of(uint32_t c)
{
    const suspect *s = find_suspect(c);
    if (s)
        return s->class_of;
    if (rune_is_space(c))
        return CLASS_SPACE;
    return rune_is_word(c) ? CLASS_LETTER : CLASS_OTHER;
}

static bool in_set(uint8_t set, uint8_t class)
{
    return rule_sets[set][class >> 6] >> (class & 63) & 1;
}

/* Does any rule match where `window` (the classes of the next `left` characters, at most LONGEST_RULE) stands? */
static bool rule_matches(const uint8_t *window, size_t left, bool at_start)
{
    for (uint64_t bits = rules_from[window[0]]; bits; bits &= bits - 1) {
        const rule *r = &rules[__builtin_ctzll(bits)];
        if (r->length > left || (r->at_start && !at_start))
            continue;
        size_t k = 1;
        while (k < r->length && in_set(r->set[k], window[k]))
            k++;
        if (k == r->length)
            return true;
    }
    return false;
}

/* Is there a sequence that hardly ever occurs in good text? */
static bool looks_bad(const uint32_t *text, size_t count)
{
    uint8_t window[LONGEST_RULE];
    for (size_t k = 0; k < LONGEST_RULE && k < count; k++)
        window[k] = class_of(text[k]);
    for (size_t i = 0; i < count; i++) {
        size_t left = count - i < LONGEST_RULE ? count - i : LONGEST_RULE;
        if (rule_matches(window, left, i == 0))
            return true;
        memmove(window, window + 1, LONGEST_RULE - 1);
        if (count - i > LONGEST_RULE)
            window[LONGEST_RULE - 1] = class_of(text[i + LONGEST_RULE]);
    }
    return false;
}

/* The pages in which the whole text can be written, as bits. */
static int possible_pages(const uint32_t *text, size_t count)
{
    int pages = ALL_PAGES;
    for (size_t i = 0; i < count && pages; i++) {
        const suspect *s = find_suspect(text[i]);
        pages &= s ? s->pages : 0;
    }
    return pages;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Members of the byte classes that the patterns below are written in. */
static bool in_byte_class(uint8_t b, char class)
{
    bool tail = b >= 0x80 && b < 0xC0;
    switch (class) {
    case ' ': return b == ' ';
    case 's': return b == SUBSTITUTE;
    case '?': return b == '?';
    case 'q': return b == SUBSTITUTE || b == '?';
    case 't': return tail;
    case 'T': return b == SUBSTITUTE || tail;
    case 'Q': return b == SUBSTITUTE || b == '?' || tail;
    case 'x': return tail && b != 0x85 && b != 0xA0;
    case 'h': return b >= 0xA0 && b < 0xB0;
    case 'l': return b >= 0xB0 && b < 0xC0;
    case 'c': return b == 0xC2 || b == 0xC3;
    case '2': return b >= 0xC2 && b < 0xE0;
    case 'a': return b == 0xC2 || b == 0xC3 || b == 0xC5 || b == 0xCE || b == 0xD0 || b == 0xD9;
    case '3': return b >= 0xE0 && b < 0xF0;
    case 'd': return b >= 0xE0 && b < 0xE4;
    case 'b': return b == 0xE2 || b == 0xE3;
    case 'e': return b == 0xED;
    case 'f': return b == 0xF0;
    default:  return b >= 0xF0 && b < 0xF5;        /* '4' */
    }
}

/* Sequences that were UTF-8 before byte A0, a no-break space, became a blank. */
static const char *const blanked[] = {"a ", "b x", "dx ", "f tt", "ft t", "ftt ", NULL};
/* Sequences that were UTF-8 or CESU-8 before some bytes were lost, which left 1A or, once, a question mark. */
static const char *const lossy[] = {"2s", "c?", "ehqelQ", "ehQelq", "3qT", "3Tq", "4qTT", "4TqT", "4TTq", "s", NULL};

/* Length of the first pattern that matches at `s`, or 0. */
static size_t match_bytes(const char *const *patterns, const uint8_t *s, size_t left)
{
    if (left == 0 || (*s < 0xC2 && *s != SUBSTITUTE))
        return 0;
    for (; *patterns; patterns++) {
        size_t k = 0;
        while ((*patterns)[k] && k < left && in_byte_class(s[k], (*patterns)[k]))
            k++;
        if (!(*patterns)[k])
            return k;
    }
    return 0;
}

/* `à` as a word of its own lost the A0 to the blank that follows it, except before the Portuguese words that it is
 * glued to. `s` stands after C3 and the blank. */
static bool a_grave_stands_alone(const uint8_t *s, size_t left)
{
    static const char *const glued[] = {" ", "quele", "quela", "quilo", "s "};
    for (size_t i = 0; i < sizeof glued / sizeof *glued; i++)
        if (left >= strlen(glued[i]) && memcmp(s, glued[i], strlen(glued[i])) == 0)
            return false;
    return true;
}

/* Puts back A0 where a blank took its place. `out` has room for 3 bytes for every 2; returns the new size. */
static size_t restore_blanks(uint8_t *out, const uint8_t *in, size_t size)
{
    bool any = false;
    for (size_t i = 0; i < size && !any; i++)
        any = match_bytes(blanked, in + i, size - i) > 0;
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        out[n++] = in[i];
        if (any && in[i] == 0xC3 && i + 1 < size && in[i + 1] == ' ' && a_grave_stands_alone(in + i + 2, size - i - 2))
            out[n++] = 0xA0;
    }
    for (size_t i = 0; any && i < n; ) {
        size_t length = match_bytes(blanked, out + i, n - i);
        for (size_t k = 0; k < length; k++)
            out[i + k] = out[i + k] == ' ' ? 0xA0 : out[i + k];
        i += length ? length : 1;
    }
    return n;
}

/* Replaces sequences that lost bytes by U+FFFD. `out` has room for 3 bytes for every byte; returns the new size. */
static size_t replace_lossy(uint8_t *out, const uint8_t *in, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; ) {
        size_t length = match_bytes(lossy, in + i, size - i);
        if (length == 0) {
            out[n++] = in[i++];
            continue;
        }
        memcpy(out + n, "\xEF\xBF\xBD", 3);
        n += 3;
        i += length;
    }
    return n;
}

/* One character of the variants that hide NUL as C0 80 and write large code points as two surrogates; returns its
 * bytes or 0. The last byte of the text may be a line end in place of the last byte of such a sequence. */
static size_t decode_variant(uint32_t *c, const uint8_t *s, size_t left)
{
    if (left >= 2 && s[0] == 0xC0 && (s[1] == 0x80 || (s[1] == '\n' && left == 2))) {
        *c = 0;
        return 2;
    }
    if (left >= 6 && s[0] == 0xED && in_byte_class(s[1], 'h') && in_byte_class(s[2], 't') && s[3] == 0xED &&
        in_byte_class(s[4], 'l') && (in_byte_class(s[5], 't') || (s[5] == '\n' && left == 6))) {
        *c = 0x10000u + ((s[1] & 15u) << 16) + ((s[2] & 63u) << 10) + ((s[4] & 15u) << 6) + (s[5] & 63u);
        return 6;
    }
    return 0;
}

/* Strict UTF-8 with these variants where one of their lead bytes occurs. false: it is not; `out` is undefined. */
static bool decode_bytes(runes *out, const uint8_t *s, size_t size)
{
    runes_clear(out);
    for (size_t i = 0; i < size; ) {
        uint32_t c;
        size_t n = decode_variant(&c, s + i, size - i);
        if (n) {
            runes_add(out, c);
        } else {
            n = utf8_sequence((const char *)s + i, size - i);
            if (n == 0)
                return false;
            runes_decode(out, (const char *)s + i, n);
        }
        i += n;
    }
    return !out->failed;
}

/* Writes the text in a page and reads it as UTF-8, mending what was lost in between. `work` has 6 bytes a character. */
static bool reread(runes *out, const uint32_t *text, size_t count, int page, uint8_t *work)
{
    uint8_t *a = work, *b = work + 2 * count;
    for (size_t i = 0; i < count; i++)
        b[i] = find_suspect(text[i])->byte[page];
    size_t size = count;
    if (page != MAC_ROMAN)
        size = restore_blanks(a, b, count);
    else
        memcpy(a, b, count);
    if (page >= CP1252 && page <= CP1257) {
        size = replace_lossy(b, a, size);
        a = b;
    }
    return decode_bytes(out, a, size);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void repair_to_depth(runes *text, int64_t *budget, int depth);

/* Length of the run of mojibake sequences that starts at `text`, or 0. */
static size_t sequence_run(const uint32_t *text, size_t left)
{
    size_t n = 0;
    while (n < left) {
        int lead = clues_of(text[n]);
        size_t tails = lead & LEAD2 ? 1 : lead & LEAD3 ? 2 : lead & LEAD4 ? 3 : 0, k = 1;
        while (k <= tails && n + k < left && clues_of(text[n + k]) & TAIL)
            k++;
        if (tails == 0 || k <= tails)
            break;
        n += k;
    }
    return n;
}

/* Repairs runs of mojibake sequences one by one, for text put together from several encodings. */
static void repair_runs(runes *out, const runes *text, int64_t *budget, int depth)
{
    for (size_t i = 0; i < text->count && !out->failed; ) {
        bool inside = i > 0 && clues_of(text->at[i - 1]) & STRICT_TAIL;
        size_t n = inside ? 0 : sequence_run(text->at + i, text->count - i);
        if (n > 0 && n < text->count && looks_bad(text->at + i, n)) {
            runes part = {0};
            runes_append(&part, text->at + i, n);
            repair_to_depth(&part, budget, depth + 1);
            runes_append(out, part.at, part.count);
            out->failed |= part.failed;
            runes_free(&part);
        } else {
            n += n == 0;
            runes_append(out, text->at + i, n);
        }
        i += n;
    }
}

/* One reinterpretation of bad text into the empty `out`: as a whole, in runs, or of its C1 controls. */
static void repair_step(runes *out, const runes *text, int64_t *budget, int depth)
{
    int pages = possible_pages(text->at, text->count);
    uint8_t *work = pages ? malloc(6 * text->count) : NULL;
    bool done = pages && !work;
    out->failed |= done;
    for (int page = 0; page < PAGE_COUNT && !done; page++)
        if (pages >> page & 1 && repair_spend(budget, text->count))
            done = reread(out, text->at, text->count, page, work) || out->failed;
    free(work);
    if (done)
        return;
    runes_clear(out);
    repair_runs(out, text, budget, depth);
    if (out->failed || !runes_equal(out, text))
        return;
    for (size_t i = 0; i < out->count; i++)
        out->at[i] = rune_c1_meaning(out->at[i]);
}

static bool is_ascii(const runes *text)
{
    for (size_t i = 0; i < text->count; i++)
        if (text->at[i] >= 0x80)
            return false;
    return true;
}

static void repair_to_depth(runes *text, int64_t *budget, int depth)
{
    runes out = {0};
    bool changed = !is_ascii(text);
    while (changed && depth < DEEPEST && repair_spend(budget, 3 * text->count) &&
           looks_bad(text->at, text->count)) {
        runes_clear(&out);
        repair_step(&out, text, budget, depth);
        changed = !out.failed && !runes_equal(&out, text) && !is_ascii(&out);
        text->failed |= out.failed;
        if (!out.failed)
            runes_swap(&out, text);
    }
    runes_free(&out);
}

void repair_encoding(runes *text, int64_t *budget)
{
    repair_to_depth(text, budget, 0);
}
