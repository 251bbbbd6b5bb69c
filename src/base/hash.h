/* hash.h - a 64-bit number for bytes (FNV-1a), to tell things apart that nobody made alike on purpose. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START 0xCBF29CE484222325u

/* Continues the hash `h` (HASH_START for the first piece) over `size` bytes. */
static inline uint64_t hash_bytes(uint64_t h, const void *data, size_t size)
{
    const uint8_t *b = data;
    for (size_t i = 0; i < size; i++)
        h = (h ^ b[i]) * 0x100000001B3u;
    return h;
}

#endif
