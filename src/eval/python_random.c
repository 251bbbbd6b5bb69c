/* python_random.c - MT19937 seeded from an integer, and a Fisher-Yates shuffle from the end. */
#include "eval/python_random.h"

#define N 624
#define M 397

typedef struct twister {
    uint32_t s[N];
    int      at;
} twister;

static void seed_plain(twister *t, uint32_t seed)
{
    t->s[0] = seed;
    for (uint32_t i = 1; i < N; i++)
        t->s[i] = 1812433253u * (t->s[i - 1] ^ t->s[i - 1] >> 30) + i;
    t->at = N;
}

/* Seeds with the 32-bit words of the integer, low one first. */
static void seed_words(twister *t, uint64_t seed)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, length = key[1] ? 2 : 1, j = 0, i = 1;
    seed_plain(t, 19650218u);
    for (int k = N; k > 0; k--) {
        t->s[i] = (t->s[i] ^ (t->s[i - 1] ^ t->s[i - 1] >> 30) * 1664525u) + key[j] + j;
        j = (j + 1) % length;
        if (++i == N) {
            t->s[0] = t->s[N - 1];
            i = 1;
        }
    }
    for (int k = N - 1; k > 0; k--) {
        t->s[i] = (t->s[i] ^ (t->s[i - 1] ^ t->s[i - 1] >> 30) * 1566083941u) - i;
        if (++i == N) {
            t->s[0] = t->s[N - 1];
            i = 1;
        }
    }
    t->s[0] = 0x80000000u;
}

static uint32_t next(twister *t)
{
    if (t->at == N) {
        for (int i = 0; i < N; i++) {
            uint32_t y = (t->s[i] & 0x80000000u) | (t->s[(i + 1) % N] & 0x7fffffffu);
            t->s[i] = t->s[(i + M) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        t->at = 0;
    }
    uint32_t y = t->s[t->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

/* A number below n: as many bits as n has, again until it fits. */
static uint32_t below(twister *t, uint32_t n)
{
    int bits = 0;
    for (uint32_t v = n; v; v >>= 1)
        bits++;
    uint32_t r;
    do
        r = next(t) >> (32 - bits);
    while (r >= n);
    return r;
}

void python_shuffle(int32_t *items, size_t count, uint64_t seed)
{
    twister t;
    seed_words(&t, seed);
    for (size_t i = count; i-- > 1;) {
        size_t j = below(&t, (uint32_t)i + 1);
        int32_t keep = items[i];
        items[i] = items[j];
        items[j] = keep;
    }
}
