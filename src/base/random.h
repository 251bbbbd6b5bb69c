/* random.h - mixing of 64 bits, from which everything random is made: the value depends on what goes in only, never on
 * who asked before. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stdint.h>

static inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Number `at` of the sequence that belongs to `key`. */
static inline uint64_t random_next(uint64_t key, uint64_t at)
{
    return random_mix(key + 0x9e3779b97f4a7c15u * (at + 1));
}

#endif
