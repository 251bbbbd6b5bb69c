/* random.h - random numbers by counter: the value depends on seed, purpose and place only, never on who asked before.
 */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include <stdint.h>

enum { RANDOM_ORDER = 1, RANDOM_DRAW, RANDOM_ADAPTER, RANDOM_DROP };     /* purposes */

static inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t random_at(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b)
{
    uint64_t x = random_mix(seed + 0x9e3779b97f4a7c15u * purpose);
    x = random_mix(x + 0x9e3779b97f4a7c15u * (a + 1));
    return random_mix(x + 0x9e3779b97f4a7c15u * (b + 1));
}

/* 0 .. n-1, n > 0; the bias of at most n / 2^64 is of no account. */
static inline int random_below(uint64_t bits, int n)
{
    return (int)((unsigned __int128)bits * (unsigned)n >> 64);
}

#endif
