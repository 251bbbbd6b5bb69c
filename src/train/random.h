/* random.h - random numbers of a training by seed, purpose and place. */
#ifndef TRAIN_RANDOM_H
#define TRAIN_RANDOM_H

#include "base/random.h"

enum { RANDOM_ORDER = 1, RANDOM_DRAW, RANDOM_ADAPTER, RANDOM_DROP, RANDOM_SCENE, RANDOM_SHOWN };     /* purposes */

static inline uint64_t random_at(uint64_t seed, uint64_t purpose, uint64_t a, uint64_t b)
{
    uint64_t x = random_mix(seed + 0x9e3779b97f4a7c15u * purpose);
    return random_next(random_next(x, a), b);
}

/* 0 .. n-1, n > 0; the bias of at most n / 2^64 is of no account. */
static inline int random_below(uint64_t bits, int n)
{
    return (int)((unsigned __int128)bits * (unsigned)n >> 64);
}

#endif
