/* text_repair.c - undoes common damage to text, line by line, until nothing changes any more. */
#include "model/text_repair.h"

#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "model/html_entities.h"
#include "model/text_repair_encoding.h"

enum { LONGEST_SEGMENT = 1000000, ESCAPE = 0x1B, HANGUL_NO_FINAL = 0x11A7 };

typedef struct plain {
    uint16_t code, form[3];      /* zero padded */
} plain;

#include "text_repair_plain.h"   /* plain_forms, sorted by code: ligatures, odd widths, curly quotes, C1 controls ... */

static const plain *find_plain(uint32_t c)
{
    size_t low = 0, high = sizeof plain_forms / sizeof *plain_forms;
    if (c < plain_forms[0].code || c > plain_forms[high - 1].code)
        return NULL;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plain_forms[middle].code == c)
            return &plain_forms[middle];
        if (plain_forms[middle].code < c)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Characters with a plain form get it; every kind of line end becomes U+000A. `out` is empty. */
static void make_plain(runes *out, const runes *text)
{
    for (size_t i = 0; i < text->count && !out->failed; i++) {
        uint32_t c = text->at[i];
        const plain *p = c < 0x80 ? NULL : find_plain(c);
        if (c == '\r') {
            runes_add(out, '\n');
            i += i + 1 < text->count && text->at[i + 1] == '\n';
        } else if (!p) {
            runes_add(out, c);
        }
        for (size_t k = 0; p && k < 3 && p->form[k]; k++)
            runes_add(out, p->form[k]);
    }
}

/* Pairs of UTF-16 surrogates become the character that they stand for, single ones U+FFFD. */
static void join_surrogates(runes *text)
{
    size_t to = 0;
    for (size_t i = 0; i < text->count; i++) {
        uint32_t c = text->at[i];
        uint32_t next = i + 1 < text->count ? text->at[i + 1] : 0;
        if (c >= 0xD800 && c < 0xDC00 && next >= 0xDC00 && next < 0xE000) {
            c = 0x10000 + ((c - 0xD800) << 10) + (next - 0xDC00);
            i++;
        }
        text->at[to++] = c >= 0xD800 && c < 0xE000 ? 0xFFFD : c;
    }
    text->count = to;
}

/* Length of a terminal's control sequence (ESC [ numbers and semicolons, a letter) at `s`, or 0. */
static size_t escape_sequence(const uint32_t *s, size_t left)
{
    if (left < 3 || s[0] != ESCAPE || s[1] != '[')
        return 0;
    size_t n = 2;
    while (n < left && (s[n] == ';' || utf8proc_category((utf8proc_int32_t)s[n]) == UTF8PROC_CATEGORY_ND))
        n++;
    bool letter = n < left && s[n] < 0x80 && (s[n] | 32) >= 'a' && (s[n] | 32) <= 'z';
    return letter ? n + 1 : 0;
}

/* Controls without an effect on text, C1 left alone. */
static bool is_control(uint32_t c)
{
    return (c < 0x20 && c != '\t' && c != '\n' && c != '\f' && c != '\r') || c == 0x7F || (c >= 0x206A && c < 0x2070) ||
           c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFC);
}

static void remove_controls(runes *text)
{
    size_t to = 0;
    for (size_t i = 0; i < text->count; ) {
        size_t n = escape_sequence(text->at + i, text->count - i);
        if (n == 0 && !is_control(text->at[i]))
            text->at[to++] = text->at[i];
        i += n ? n : 1;
    }
    text->count = to;
}

/* ---- normalization form C ---------------------------------------------------------------------------------------- */

static int combining_class(uint32_t c)
{
    return c < 0x300 ? 0 : utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
}

/* Sorts one run of combining marks by class, equal ones in their order. `spare` has room for `count`. */
static void sort_marks(uint32_t *marks, size_t count, uint32_t *spare)
{
    size_t start[257] = {0};
    for (size_t i = 0; i < count; i++)
        start[combining_class(marks[i]) + 1]++;
    for (size_t k = 1; k < 257; k++)
        start[k] += start[k - 1];
    for (size_t i = 0; i < count; i++)
        spare[start[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, count * sizeof *marks);
}

/* Canonical order of all runs of marks. false: out of memory. */
static bool order_marks(runes *text)
{
    uint32_t *spare = NULL;
    for (size_t i = 0; i < text->count; i++) {
        size_t n = 0;
        bool sorted = true;
        for (int last = 0, k; i + n < text->count && (k = combining_class(text->at[i + n])) != 0; n++, last = k)
            sorted &= k >= last;
        if (!sorted && !spare && !(spare = malloc(text->count * sizeof *spare)))
            return false;
        if (!sorted)
            sort_marks(text->at + i, n, spare);
        i += n;
    }
    free(spare);
    return true;
}

/* Composes decomposed, ordered text in place; returns the new length. It is handed over in pieces that end before
 * U+11A7, which nothing combines with: utf8proc takes it for a final consonant and drops it. */
static size_t compose(uint32_t *text, size_t count)
{
    size_t to = 0;
    for (size_t i = 0, n; i < count; i += n) {
        for (n = 1; i + n < count && text[i + n] != HANGUL_NO_FINAL; )
            n++;
        utf8proc_ssize_t left = utf8proc_normalize_utf32((utf8proc_int32_t *)text + i, (utf8proc_ssize_t)n,
                                                         UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        memmove(text + to, text + i, (size_t)left * sizeof *text);
        to += (size_t)left;
    }
    return to;
}

/* Text without code points from U+0300 on is its own form C. `work` is overwritten. */
static void normalize(runes *text, runes *work)
{
    bool simple = true;
    for (size_t i = 0; i < text->count && simple; i++)
        simple = text->at[i] < 0x300;
    if (simple)
        return;
    runes_clear(work);
    for (size_t i = 0; i < text->count && !work->failed; i++) {
        utf8proc_int32_t parts[8];
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)text->at[i], parts, 8,
                                                     UTF8PROC_STABLE | UTF8PROC_COMPOSE, NULL);
        for (utf8proc_ssize_t k = 0; k < n && k < 8; k++)
            runes_add(work, (uint32_t)parts[k]);
    }
    work->failed |= !work->failed && !order_marks(work);
    if (!work->failed)
        work->count = compose(work->at, work->count);
    runes_swap(text, work);
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

/* Nothing that any repair would look at. */
static bool is_harmless(const uint32_t *s, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (s[i] >= 0x7F || s[i] == '&' || (s[i] < 0x20 && s[i] != '\n' && s[i] != '\t'))
            return false;
    return true;
}

/* All repairs in their order, again and again until a round changes nothing. */
static void repair_segment(runes *text, bool references, int64_t *budget)
{
    runes before = {0}, work = {0};
    bool changed = true;
    while (changed && !text->failed && repair_spend(budget, 4 * text->count)) {
        runes_clear(&before);
        runes_append(&before, text->at, text->count);
        if (references)
            html_unescape_closed(text);
        repair_encoding(text, budget);
        runes_clear(&work);
        make_plain(&work, text);
        runes_swap(&work, text);
        join_surrogates(text);
        remove_controls(text);
        normalize(text, &work);
        text->failed |= before.failed;
        changed = !text->failed && !runes_equal(text, &before);
    }
    runes_free(&before);
    runes_free(&work);
}

/* A segment is a line, or a million code points of one. From the first `<` on, the text is taken for HTML itself, whose
 * references are meant. */
void text_repair(runes *text)
{
    runes out = {0}, segment = {0};
    int64_t budget = INT64_C(20000000) + 32 * (int64_t)text->count;
    bool references = true;
    for (size_t i = 0, n; i < text->count && !out.failed && !text->failed; i += n) {
        bool line_end = false;
        for (n = 0; n < LONGEST_SEGMENT && i + n < text->count && !line_end; n++) {
            line_end = text->at[i + n] == '\n';
            references &= text->at[i + n] != '<';
        }
        if (is_harmless(text->at + i, n)) {
            runes_append(&out, text->at + i, n);
            continue;
        }
        runes_clear(&segment);
        runes_append(&segment, text->at + i, n);
        repair_segment(&segment, references, &budget);
        out.failed |= segment.failed;
        runes_append(&out, segment.at, segment.count);
    }
    text->failed |= out.failed;
    if (!text->failed)
        runes_swap(text, &out);
    runes_free(&out);
    runes_free(&segment);
}
