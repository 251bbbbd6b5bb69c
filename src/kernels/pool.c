/* pool.c - a few blocks that go from call to call. */
#include "kernels/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

enum { BLOCKS = 16, ALIGNMENT = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block { void *data; size_t bytes; bool busy; } blocks[BLOCKS];

/* With the lock held: the smallest free block of that size, or, when all are smaller, the largest free one or an empty
 * slot. NULL: all are in use. */
static struct block *best_block(size_t bytes)
{
    struct block *fits = NULL, *grows = NULL, *empty = NULL;

    for (int i = 0; i < BLOCKS; i++) {
        struct block *b = &blocks[i];
        if (b->busy)
            continue;
        if (!b->data)
            empty = empty ? empty : b;
        else if (b->bytes >= bytes && (!fits || b->bytes < fits->bytes))
            fits = b;
        else if (b->bytes < bytes && (!grows || b->bytes > grows->bytes))
            grows = b;
    }
    return fits ? fits : grows ? grows : empty;
}

void *pool_borrow(size_t bytes)
{
    struct block *b;
    void *p;

    if (bytes > SIZE_MAX - ALIGNMENT)
        return NULL;
    bytes = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    pthread_mutex_lock(&lock);
    b = best_block(bytes);
    if (b && b->bytes < bytes) {
        free(b->data);
        b->data = aligned_alloc(ALIGNMENT, bytes);
        b->bytes = b->data ? bytes : 0;
    }
    if (b)
        b->busy = b->data != NULL;
    p = b ? b->data : aligned_alloc(ALIGNMENT, bytes);
    pthread_mutex_unlock(&lock);
    return p;
}

void pool_return(void *p)
{
    bool ours = false;

    pthread_mutex_lock(&lock);
    for (int i = 0; p && i < BLOCKS && !ours; i++) {
        ours = blocks[i].data == p;
        if (ours)
            blocks[i].busy = false;
    }
    pthread_mutex_unlock(&lock);
    if (!ours)
        free(p);
}
