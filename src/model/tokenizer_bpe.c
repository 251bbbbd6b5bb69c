/* tokenizer_bpe.c - byte pair encoding of one word with the CLIP vocabulary. */
#include "model/tokenizer_bpe.h"

#include <stdlib.h>

/* Ids: 256 bytes, the same 256 at the end of a word, then one per merge in the order of their ranks, then start and
 * end of text. */
enum { BYTES = 256, FIRST_MERGE = 2 * BYTES, MERGES = 48894, SYMBOLS = FIRST_MERGE + MERGES, NO_MERGE = 0xFFFF };

/* merge_first[s] .. merge_first[s + 1]: the merges whose left part is symbol s, sorted by merge_right; merge_rank.
 * byte_symbol: id of each byte. LONGEST_TOKEN: bytes of the longest token. REACH: by how many bytes at most the effects
 * of a change travel towards the start of a word (bounded by running over the merges, see tools/make_vocab.py). */
#include "tokenizer_vocab.h"

size_t bpe_window(size_t count)
{
    return count > SIZE_MAX / 2 / LONGEST_TOKEN ? SIZE_MAX : count * LONGEST_TOKEN + REACH;
}

bool bpe_work_open(bpe_work *w, size_t size)
{
    w->symbol = malloc(size * sizeof *w->symbol);
    w->rank = malloc(size * sizeof *w->rank);
    w->size = size;
    if (w->symbol && w->rank)
        return true;
    bpe_work_close(w);
    return false;
}

void bpe_work_close(bpe_work *w)
{
    free(w->symbol);
    free(w->rank);
    *w = (bpe_work){0};
}

static uint16_t rank_of(uint16_t left, uint16_t right)
{
    size_t low = merge_first[left], high = merge_first[left + 1];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (merge_right[middle] == right)
            return merge_rank[middle];
        if (merge_right[middle] < right)
            low = middle + 1;
        else
            high = middle;
    }
    return NO_MERGE;
}

/* Joins all pairs of rank `best` from left to right; returns the new number of symbols. rank[i] belongs to the pair
 * (i, i + 1). */
static size_t merge_all(bpe_work *w, size_t n, uint16_t best)
{
    size_t to = 0;
    bool joined = false;          /* the last symbol written is new */
    for (size_t i = 0; i < n; i++, to++) {
        bool join = w->rank[i] == best;
        uint16_t symbol = join ? (uint16_t)(FIRST_MERGE + best) : w->symbol[i];
        if (to > 0 && (join || joined))
            w->rank[to - 1] = rank_of(w->symbol[to - 1], symbol);
        i += join;
        w->symbol[to] = symbol;
        w->rank[to] = w->rank[i];
        joined = join;
    }
    return to;
}

size_t bpe_encode(int32_t *ids, size_t count, const uint8_t *word, size_t size, bpe_work *w)
{
    bool whole = size <= bpe_window(count);
    size_t n = whole ? size : bpe_window(count);
    if (n == 0 || n > w->size)
        return 0;
    for (size_t i = 0; i < n; i++)
        w->symbol[i] = (uint16_t)(byte_symbol[word[i]] + (whole && i == n - 1 ? BYTES : 0));
    for (size_t i = 0; i < n; i++)
        w->rank[i] = i + 1 < n ? rank_of(w->symbol[i], w->symbol[i + 1]) : NO_MERGE;
    for (;;) {
        uint16_t best = NO_MERGE;
        for (size_t i = 0; i + 1 < n; i++)
            best = w->rank[i] < best ? w->rank[i] : best;
        if (best == NO_MERGE)
            break;
        n = merge_all(w, n, best);
    }
    if (n > count)
        n = count;
    for (size_t i = 0; i < n; i++)
        ids[i] = w->symbol[i];
    return n;
}

/* The two symbols that merge `rank` joins. */
static bool parts_of(uint16_t rank, uint16_t *left, uint16_t *right)
{
    for (int s = 0; s < SYMBOLS; s++)
        for (size_t m = merge_first[s]; m < merge_first[s + 1]; m++)
            if (merge_rank[m] == rank) {
                *left = (uint16_t)s;
                *right = merge_right[m];
                return true;
            }
    return false;
}

size_t bpe_spell(uint8_t *out, size_t room, int32_t id, bool *whole)
{
    uint16_t left, right;
    *whole = false;
    if (id < 0 || id >= SYMBOLS)
        return 0;
    if (id >= FIRST_MERGE) {
        if (!parts_of((uint16_t)(id - FIRST_MERGE), &left, &right))
            return 0;
        size_t n = bpe_spell(out, room, left, whole);
        return n + bpe_spell(out + n, room - n, right, whole);
    }
    *whole = id >= BYTES;
    for (int b = 0; b < BYTES && room > 0; b++)
        if (byte_symbol[b] == id % BYTES) {
            out[0] = (uint8_t)b;
            return 1;
        }
    return 0;
}
