/* tokenizer_bpe.h - byte pair encoding of one word with the CLIP vocabulary. */
#ifndef MODEL_TOKENIZER_BPE_H
#define MODEL_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BPE_START = 49406, BPE_END = 49407, BPE_VOCABULARY = 49408 };

/* How many bytes of a word decide its first `count` ids: later bytes cannot change them. */
size_t bpe_window(size_t count);

/* Room for words of up to `size` bytes; opaque to callers. */
typedef struct bpe_work {
    uint16_t *symbol, *rank;     /* [size] each */
    size_t    size;
} bpe_work;
bool bpe_work_open(bpe_work *w, size_t size);        /* false: out of memory */
void bpe_work_close(bpe_work *w);

/* Writes the first ids of a word, at most `count`, and returns how many. Only the first bpe_window(count) bytes of the
 * word are read; w->size must be at least that or `size`. An empty word has no ids. */
size_t bpe_encode(int32_t *ids, size_t count, const uint8_t *word, size_t size, bpe_work *w);

/* The bytes that an id below BPE_START stands for, at most `room`; returns how many. *whole: a word ends there. Slow. */
size_t bpe_spell(uint8_t *out, size_t room, int32_t id, bool *whole);

#endif
