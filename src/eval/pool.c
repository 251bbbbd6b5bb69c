/* pool.c - blocks handed out piece by piece. */
#include "eval/pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((size_t)1 << 20)

struct pool_block {
    pool_block *before;
    size_t      used, room;
    char        data[];
};

void *pool_take(pool *p, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + 7) & ~(size_t)7;
    if (!p->last || p->last->room - p->last->used < size) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        pool_block *b = malloc(sizeof *b + room);
        if (!b)
            return NULL;
        *b = (pool_block){p->last, 0, room};
        p->last = b;
    }
    void *out = p->last->data + p->last->used;
    p->last->used += size;
    p->bytes += size;
    return out;
}

char *pool_string(pool *p, const char *s, size_t size)
{
    char *out = size < SIZE_MAX ? pool_take(p, size + 1) : NULL;
    if (out) {
        memcpy(out, s, size);
        out[size] = '\0';
    }
    return out;
}

void pool_free(pool *p)
{
    while (p->last) {
        pool_block *before = p->last->before;
        free(p->last);
        p->last = before;
    }
    p->bytes = 0;
}

int grow(void *items, size_t count, size_t *room, size_t each)
{
    void *old;
    memcpy(&old, items, sizeof old);
    if (count < *room)
        return 0;
    size_t wanted = *room ? *room * 2 : 64;
    void *moved = wanted <= SIZE_MAX / 2 / each ? realloc(old, wanted * each) : NULL;
    if (!moved)
        return -1;
    memcpy(items, &moved, sizeof moved);
    *room = wanted;
    return 0;
}
