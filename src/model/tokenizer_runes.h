/* tokenizer_runes.h - growing arrays of code points, in which prompts are repaired and split. */
#ifndef MODEL_TOKENIZER_RUNES_H
#define MODEL_TOKENIZER_RUNES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct runes {
    uint32_t *at;
    size_t    count, room;
    bool      failed;       /* out of memory at some point; later calls do nothing */
} runes;

void runes_add(runes *r, uint32_t c);
void runes_append(runes *r, const uint32_t *at, size_t count);
void runes_clear(runes *r);                          /* keeps the memory */
void runes_swap(runes *a, runes *b);
bool runes_equal(const runes *a, const runes *b);
void runes_free(runes *r);

/* Decodes UTF-8. A byte outside well-formed sequences becomes U+DC00 + byte, as Python does for arguments. */
void runes_decode(runes *r, const char *utf8, size_t size);
/* Bytes of the code point in UTF-8 (1..4); surrogates become U+FFFD. */
size_t rune_encode(uint8_t out[4], uint32_t c);

/* What Windows-1252 has in place of a C1 control (U+0080..U+009F); other code points are returned unchanged. */
uint32_t rune_c1_meaning(uint32_t c);

typedef enum rune_kind { RUNE_LETTER, RUNE_NUMBER, RUNE_OTHER } rune_kind;      /* categories L*, N*, the rest */
rune_kind rune_kind_of(uint32_t c);
bool rune_is_word(uint32_t c);                       /* letters, numbers, underscore */
/* White space in the sense of Python's str.isspace. */
bool rune_is_space(uint32_t c);

#endif
