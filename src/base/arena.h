/* arena.h - scratch memory taken in order and given back in reverse order, all of it in one reserved address range. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_ALIGN 64
#define ARENA_SLACK ((size_t)512 << 20)     /* what a picture of 1008 pixels takes and gives back from part to part */

typedef struct arena {
    char  *base;       /* reserved range; pages are made usable as `used` grows */
    size_t reserved;   /* bytes of address space */
    size_t committed;  /* bytes that may be touched */
    size_t used;
    size_t peak;       /* largest `used` so far */
    bool   counting;   /* true: only sizes are tracked, take() returns NULL (TRACE) */
    bool   full;       /* a take() did not fit since the last reset; `wanted` says how much it asked for */
    size_t wanted;
} arena;

/* Reserves address space for at most `limit` bytes (0: 1 TiB or what the system allows). false: no address space.
 * With `counting` nothing is reserved at all. */
bool arena_open(arena *a, size_t limit, bool counting);
void arena_close(arena *a);

/* `size` bytes aligned to ARENA_ALIGN, not cleared; NULL when full (and always when counting). 0 bytes is valid. */
void *arena_take(arena *a, size_t size);

/* used-mark and return to it; release() beyond ARENA_SLACK gives pages back to the system. */
size_t arena_mark(const arena *a);
void   arena_release(arena *a, size_t mark);

#endif
