/* pool.h - many small pieces of memory that never move and are freed together. */
#ifndef EVAL_POOL_H
#define EVAL_POOL_H

#include <stddef.h>

typedef struct pool_block pool_block;
typedef struct pool {
    pool_block *last;
    size_t      bytes;      /* taken in all */
} pool;

/* `size` bytes aligned to 8, not cleared; NULL when out of memory. */
void *pool_take(pool *p, size_t size);
/* A NUL-terminated copy of `size` bytes. */
char *pool_string(pool *p, const char *s, size_t size);
void  pool_free(pool *p);

/* Room for one more element in a growing array: doubles *items (of `each` bytes) when `count` has reached *room.
 * 0, or -1 when out of memory. */
int grow(void *items, size_t count, size_t *room, size_t each);

#endif
