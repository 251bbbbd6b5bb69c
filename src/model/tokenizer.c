/* tokenizer.c - a prompt becomes token ids: repair, lower case, split into words, byte pairs. */
#include "model/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "samite.h"
#include "model/html_entities.h"
#include "model/text_repair.h"
#include "model/tokenizer_runes.h"

enum { CAPITAL_SIGMA = 0x3A3, SMALL_SIGMA = 0x3C3, FINAL_SIGMA = 0x3C2, DOTTED_I = 0x130, DOT_ABOVE = 0x307,
       LONG_S = 0x17F, YPOGEGRAMMENI = 0x345 };

/* ---- lower case -------------------------------------------------------------------------------------------------- */

/* Unicode's Case_Ignorable: marks, formats, modifiers and some punctuation inside words. */
static bool is_case_ignorable(uint32_t c)
{
    static const uint16_t inside_words[] = {'\'', '.', ':', 0xB7, 0x387, 0x55F, 0x5F4, 0x2018, 0x2019, 0x2024, 0x2027,
                                            0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_ME: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        for (size_t i = 0; i < sizeof inside_words / sizeof *inside_words; i++)
            if (inside_words[i] == c)
                return true;
        return false;
    }
}

/* Unicode's Cased, for code points that are not case-ignorable. */
static bool is_cased(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT:
        return true;
    default:
        return c == 0xAA || c == 0xBA || (c >= 0x2160 && c <= 0x217F) || (c >= 0x24B6 && c <= 0x24E9) ||
               (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    }
}

/* Is there a cased character after position `i`, with only case-ignorable ones between? */
static bool cased_follows(const runes *text, size_t i)
{
    for (i++; i < text->count && is_case_ignorable(text->at[i]); )
        i++;
    return i < text->count && is_cased(text->at[i]);
}

/* Full lower case of Unicode as Python has it: a capital sigma at the end of a word becomes a final one. */
static void lower(runes *out, const runes *text)
{
    bool cased_before = false;          /* the last character that is not case-ignorable is cased */
    for (size_t i = 0; i < text->count; i++) {
        uint32_t c = text->at[i];
        if (c == CAPITAL_SIGMA)
            runes_add(out, cased_before && !cased_follows(text, i) ? FINAL_SIGMA : SMALL_SIGMA);
        else if (c == DOTTED_I)
            runes_append(out, (const uint32_t[]){'i', DOT_ABOVE}, 2);
        else if (c < 0x80)
            runes_add(out, c >= 'A' && c <= 'Z' ? c | 32 : c);
        else
            runes_add(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
        if (!is_case_ignorable(c))
            cased_before = is_cased(c);
    }
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static const char start_of_text[] = "<start_of_text>", end_of_text[] = "<end_of_text>";

/* Code points of `literal` if the text begins with it in either case: of a lower-case text, long s alone differs. */
static size_t literal_here(const char *literal, const uint32_t *s, size_t left)
{
    size_t n = 0;
    while (literal[n] && n < left && (s[n] == (uint8_t)literal[n] || (literal[n] == 's' && s[n] == LONG_S)))
        n++;
    return literal[n] ? 0 : n;
}

typedef enum word_kind { GAP, LETTERS, NUMBER, SYMBOLS } word_kind;

/* Between words: white space, and the combining iota that is no letter itself but has a capital that is one. */
static word_kind kind_of(uint32_t c)
{
    rune_kind k = rune_kind_of(c);
    if (k != RUNE_OTHER)
        return k == RUNE_LETTER ? LETTERS : NUMBER;
    return c == YPOGEGRAMMENI || rune_is_space(c) ? GAP : SYMBOLS;
}

/* Code points of the word at `s`, 0 where none begins: a special token, an English ending, letters, one number or
 * symbols. */
static size_t word_here(const uint32_t *s, size_t left)
{
    static const char *const first[] = {start_of_text, end_of_text, "'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    if (*s == '<' || *s == '\'') {
        for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
            size_t n = literal_here(first[i], s, left);
            if (n)
                return n;
        }
    }
    word_kind kind = kind_of(*s);
    if (kind == GAP || kind == NUMBER)
        return kind == NUMBER;
    size_t n = 1;
    while (n < left && kind_of(s[n]) == kind)
        n++;
    return n;
}

/* Ids of one word, at most `count`; `bytes` and `work` have room for bpe_window(count) + 4 bytes or the whole text. */
static size_t encode_word(int32_t *ids, size_t count, const uint32_t *s, size_t length, uint8_t *bytes, bpe_work *work)
{
    size_t size = 0, window = bpe_window(count);
    for (size_t i = 0; i < length && size <= window; i++)
        size += rune_encode(bytes + size, s[i]);
    bool start = size == strlen(start_of_text) && memcmp(bytes, start_of_text, size) == 0;
    bool end = size == strlen(end_of_text) && memcmp(bytes, end_of_text, size) == 0;
    if (start || end) {
        ids[0] = start ? BPE_START : BPE_END;
        return 1;
    }
    return bpe_encode(ids, count, bytes, size, work);
}

/* Writes at most `count` ids of the text; returns how many, or -1 when out of memory. */
static int64_t encode_text(int32_t *ids, size_t count, const runes *text)
{
    size_t room = bpe_window(count);
    if (room > 4 * text->count)
        room = 4 * text->count;
    room += 4;
    bpe_work work;
    uint8_t *bytes = malloc(room);
    if (!bytes || !bpe_work_open(&work, room)) {
        free(bytes);
        return -1;
    }
    size_t n = 0;
    for (size_t i = 0, length; i < text->count && n < count; i += length ? length : 1) {
        length = word_here(text->at + i, text->count - i);
        if (length)
            n += encode_word(ids + n, count - n, text->at + i, length, bytes, &work);
    }
    bpe_work_close(&work);
    free(bytes);
    return (int64_t)n;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* White space at the ends, or more of it in a row, is not removed as the official code does: no id depends on it. */
static void prepare(runes *out, const char *utf8, size_t size)
{
    runes text = {0};
    runes_decode(&text, utf8, size);
    text_repair(&text);
    html_unescape(&text);
    html_unescape(&text);
    if (!text.failed)
        lower(out, &text);
    out->failed |= text.failed;
    runes_free(&text);
}

int tokenize(int32_t *ids, int context, const char *utf8, size_t size, bool *cut)
{
    if (cut)
        *cut = false;
    if (context < 1)
        return 0;
    memset(ids, 0, (size_t)context * sizeof *ids);
    /* one id more than fits tells whether the text was cut; it lands where BPE_END goes */
    size_t count = context > 1 ? (size_t)context - 1 : 1;
    int32_t only;
    runes text = {0};
    prepare(&text, utf8, size);
    int64_t n = text.failed ? -1 : encode_text(context > 1 ? ids + 1 : &only, count, &text);
    runes_free(&text);
    if (n < 0)
        return SAMITE_RESOURCE;
    bool full = (size_t)n + 2 > (size_t)context;
    size_t used = full ? (size_t)context : (size_t)n + 2;
    ids[0] = BPE_START;
    ids[used - 1] = BPE_END;
    if (cut)
        *cut = full;
    return (int)used;
}
