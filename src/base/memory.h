/* memory.h - how much memory this process could still get. */
#ifndef BASE_MEMORY_H
#define BASE_MEMORY_H

#include <stdint.h>

/* Bytes that the system would still give, caches included, within the limits of a container; 0: not known. */
uint64_t memory_available(void);

#endif
