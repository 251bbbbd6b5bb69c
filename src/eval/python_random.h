/* python_random.h - the shuffle of Python's random.Random(seed), to choose the images the official code chooses. */
#ifndef EVAL_PYTHON_RANDOM_H
#define EVAL_PYTHON_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Shuffles as random.Random(seed).shuffle(items) does; `seed` as a non-negative Python int. */
void python_shuffle(int32_t *items, size_t count, uint64_t seed);

#endif
