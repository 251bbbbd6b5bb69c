/* tokenizer.c - ids equal to the official tokenizer's on recorded strings, and what must hold for any text. */
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer.h"

#include <cmocka.h>      /* last: it has a macro named fail */

enum { CONTEXT = 32 };

/* ---- recorded strings -------------------------------------------------------------------------------------------- */

/* The bytes of a line: "text", or "hex" where they are no UTF-8. Yours to free. */
static char *line_bytes(const json_t *line, size_t *size)
{
    const json_t *t = json_object_get(line, "text");
    const char *hex = json_string_value(json_object_get(line, "hex"));
    *size = t ? json_string_length(t) : strlen(hex) / 2;
    char *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    if (t)
        memcpy(bytes, json_string_value(t), *size);
    for (size_t i = 0; !t && i < *size; i++) {
        unsigned b;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &b), 1);
        bytes[i] = (char)b;
    }
    return bytes;
}

/* "ids" may leave out the padding; "cut" may be missing. */
static bool line_agrees(const json_t *line)
{
    size_t size;
    char *bytes = line_bytes(line, &size);
    const json_t *want = json_object_get(line, "ids"), *want_cut = json_object_get(line, "cut");
    int32_t ids[CONTEXT];
    bool cut;
    int n = tokenize(ids, CONTEXT, bytes, size, &cut);
    bool same = n >= 2 && n <= CONTEXT && json_array_size(want) >= (size_t)n;
    same = same && (!want_cut || cut == json_is_true(want_cut));
    for (size_t i = 0; i < CONTEXT && same; i++) {
        int64_t id = json_integer_value(json_array_get(want, i));        /* 0 past its end */
        same = ids[i] == id;
    }
    free(bytes);
    return same;
}

static void check_file(const char *path, int at_least)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    int lines = 0, wrong = 0;
    json_error_t e;
    json_t *line;
    for (; (line = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &e)); json_decref(line), lines++) {
        if (line_agrees(line))
            continue;
        char *said = json_dumps(line, JSON_ENSURE_ASCII | JSON_COMPACT);
        print_error("%s: item %d: %s\n", path, lines + 1, said);
        free(said);
        wrong++;
    }
    fclose(f);
    assert_int_equal(wrong, 0);
    assert_true(lines >= at_least);
}

static void recorded(void **state)
{
    check_file(TEST_DATA "/tokens.jsonl", 600);
}

static void recorded_hard(void **state)
{
    check_file(TEST_DATA "/tokens_hard.jsonl", 1000);
}

/* ---- texts that mean the same ------------------------------------------------------------------------------------ */

static const struct {
    const char *given, *plain;
} alike[] = {
    {"Dog", "dog"},
    {"  dog \n bone\t", "dog bone"},
    {"\xEF\xAC\x81ne", "fine"},
    {"\xEF\xBC\xA6\xEF\xBC\xB5\xEF\xBC\xAC\xEF\xBC\xAC\xE3\x80\x80width", "full width"},
    {"don\xE2\x80\x99t \xE2\x80\x9Cgo\xE2\x80\x9D", "don't \"go\""},
    {"sch\xC3\x83\xC2\xB6n", "sch\xC3\xB6n"},
    {"sch\xC3\x83\xC6\x92\xC3\x82\xC2\xB6n", "sch\xC3\xB6n"},
    {"voil\xC3\x83 le travail", "voil\xC3\xA0 le travail"},
    {"a \xD0\xB2\xD0\x82\xE2\x80\x9D b", "a \xE2\x80\x94 b"},
    {"&lt;b&gt; &eacute; P&EACUTE;REZ &amp;amp; &#39;x&#x27;", "<b> \xC3\xA9 p\xC3\xA9rez & 'x'"},
    {"e\xCC\x81t\xC3\xA9", "\xC3\xA9t\xC3\xA9"},
    {"\x1B[36;44mblue\x1B[0m", "blue"},
    {"a\r\nb\xE2\x80\xA8" "c", "a b c"},
    {"\x07" "bell\xEF\xBB\xBF", "bell"},
    {"\xC4\xB0stanbul", "i\xCC\x87stanbul"},
    {"\xCE\x9F\xCE\x94\xCE\x9F\xCE\xA3 \xCE\xA3", "\xCE\xBF\xCE\xB4\xCE\xBF\xCF\x82 \xCF\x83"},
    {"\xFF dog \xC3", "\xEF\xBF\xBD dog \xEF\xBF\xBD"},
    {"\xED\xA0\xBD", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    {"<START_OF_TEXT>", "<start_of_text>"},
};

static void texts_alike(void **state)
{
    for (size_t i = 0; i < sizeof alike / sizeof *alike; i++) {
        int32_t a[CONTEXT], b[CONTEXT];
        assert_true(tokenize(a, CONTEXT, alike[i].given, strlen(alike[i].given), NULL) > 2);
        assert_true(tokenize(b, CONTEXT, alike[i].plain, strlen(alike[i].plain), NULL) > 2);
        if (memcmp(a, b, sizeof a) != 0)
            fail_msg("\"%s\" is not read as \"%s\"", alike[i].given, alike[i].plain);
    }
}

static void special_tokens(void **state)
{
    int32_t ids[CONTEXT];
    const char *text = "<start_of_text>!<end_of_text> <end_of_text>";
    int n = tokenize(ids, CONTEXT, text, strlen(text), NULL);
    assert_int_equal(ids[1], BPE_START);
    assert_int_equal(ids[n - 2], BPE_END);
    int ends = 0;                            /* the one after `!` is not seen: symbols are taken as far as they go */
    for (int i = 0; i < n; i++)
        ends += ids[i] == BPE_END;
    assert_int_equal(ends, 2);
}

/* ---- length ------------------------------------------------------------------------------------------------------ */

static void dogs(char *text, int count)
{
    *text = 0;
    while (count-- > 0)
        strcat(text, "dog ");
}

static void cut_flag(void **state)
{
    char text[400];
    for (int words = 29; words <= 33; words++) {
        int32_t ids[CONTEXT + 1];
        bool cut;
        ids[CONTEXT] = -7;
        dogs(text, words);
        int n = tokenize(ids, CONTEXT, text, strlen(text), &cut);
        assert_int_equal(n, words + 2 < CONTEXT ? words + 2 : CONTEXT);
        assert_int_equal(cut, words + 2 > CONTEXT);
        assert_int_equal(ids[n - 1], BPE_END);
        assert_int_equal(ids[n - 2], 1929);
        assert_int_equal(ids[CONTEXT], -7);
    }
}

static void other_contexts(void **state)
{
    char text[400];
    int32_t ids[77];
    bool cut;
    dogs(text, 80);
    for (int context = 1; context <= 77; context++) {
        assert_int_equal(tokenize(ids, context, text, strlen(text), &cut), context);
        assert_true(cut);
        assert_int_equal(ids[context - 1], BPE_END);
        for (int i = 0; i < context - 1; i++)
            assert_int_equal(ids[i], i ? 1929 : BPE_START);
    }
    assert_int_equal(tokenize(ids, 0, text, strlen(text), &cut), 0);
    assert_int_equal(tokenize(ids, 77, NULL, 0, &cut), 2);
    assert_false(cut);
    assert_int_equal(ids[76], 0);
}

/* Reading only the window gives the first ids of the whole word. */
static void window_of_long_words(void **state)
{
    enum { SIZE = 3000, FEW = 7 };
    static const char *const alphabets[] = {"a", "ab", "etaoin", "abcdefghijklmnopqrstuvwxyz", "omn",
                                            "\xF0\x9F\x98\x82", "!.-"};
    uint8_t word[SIZE];
    int32_t all[SIZE], few[FEW];
    bpe_work w;
    uint32_t random = 1;
    assert_true(bpe_work_open(&w, SIZE));
    assert_true(bpe_window(FEW) < SIZE / 2);
    for (int round = 0; round < 70; round++) {
        const char *alphabet = alphabets[round % 7];
        for (size_t i = 0; i < SIZE; i++, random = random * 1664525u + 1013904223u)
            word[i] = (uint8_t)alphabet[(random >> 16) % strlen(alphabet)];
        assert_true(bpe_encode(all, SIZE, word, SIZE, &w) > FEW);
        assert_int_equal(bpe_encode(few, FEW, word, SIZE, &w), FEW);
        assert_memory_equal(few, all, sizeof few);
    }
    bpe_work_close(&w);
}

/* ---- hostile texts ----------------------------------------------------------------------------------------------- */

/* `unit` again and again, `head` before it: as many bytes as fit into `size`, or all. */
static void check_repeated(const char *head, const char *unit, size_t size)
{
    char *text = malloc(size);
    size_t n = strlen(head), step = strlen(unit);
    assert_non_null(text);
    memcpy(text, head, n);
    for (; n + step <= size; n += step)
        memcpy(text + n, unit, step);
    int32_t ids[CONTEXT];
    bool cut;
    int count = tokenize(ids, CONTEXT, text, n, &cut);
    assert_in_range(count, 2, CONTEXT);
    assert_int_equal(ids[0], BPE_START);
    assert_int_equal(ids[count - 1], BPE_END);
    free(text);
}

/* Each of these takes quadratic time, or more memory than there is, when done naively. */
static void long_texts(void **state)
{
    static const char *const texts[][2] = {
        {"", "x"}, {"", "dog "}, {"", "\n"}, {"", "&"}, {"&", "amp;"}, {"&#", "9"}, {"", "&#x"}, {"", "\x1B[1;"},
        {"", "\xF0\x9F\x98\x82"}, {"\xC3\x83", "\xC6\x92"}, {"", "\xC3\x83\xC6\x92"}, {"", "\xC2\x80"},
        {"a", "\xCC\x81\xCC\xA3"}, {"", "\xCE\xA3'"}, {"", "\xC4\xB0"}, {"", "\xEF\xBF\xBD"}, {"", "\xC3\x83 "},
        {"", "\xED\xA0\xBD"}, {"", "\xE4\xB8\xAD"}, {"", "\xEA\xB0\x80\xE1\x86\xA7"}, {"", "<end_of_text>"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check_repeated(texts[i][0], texts[i][1], 200000);
    check_repeated("", "a\xCC\x81 ", 3000000);       /* longer than a segment */
}

static void *in_thread(void *user)
{
    const char *text = user;
    int32_t ids[CONTEXT], first[CONTEXT];
    tokenize(first, CONTEXT, text, strlen(text), NULL);
    for (int i = 0; i < 200; i++) {
        tokenize(ids, CONTEXT, text, strlen(text), NULL);
        if (memcmp(ids, first, sizeof ids) != 0)
            return NULL;
    }
    return user;
}

static void threads(void **state)
{
    static char texts[4][40] = {"a red car", "sch\xC3\x83\xC2\xB6n", "&eacute;t&eacute; \xCE\xA3",
                                "xxxxxxxxxxxxxxxxxxxxxxxx"};
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, in_thread, texts[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(t[i], &result);
        assert_ptr_equal(result, texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded), cmocka_unit_test(recorded_hard), cmocka_unit_test(texts_alike),
        cmocka_unit_test(special_tokens), cmocka_unit_test(cut_flag), cmocka_unit_test(other_contexts),
        cmocka_unit_test(window_of_long_words), cmocka_unit_test(long_texts), cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
