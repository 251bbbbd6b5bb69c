/* pool.h - inside src/kernels: memory that a call needs for itself, kept for the next call instead of freed. */
#ifndef KERNELS_POOL_H
#define KERNELS_POOL_H

#include <stddef.h>

/* `bytes` of memory, 64-byte aligned, not cleared; the same blocks serve one call after another, of any thread. NULL:
 * out of memory. Give it back with pool_return (which accepts NULL). */
void *pool_borrow(size_t bytes);
void  pool_return(void *p);

#endif
