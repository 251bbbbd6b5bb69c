/* formula.h - weights made by a formula from their names: the yardstick models that need no file. */
#ifndef FORMATS_FORMULA_H
#define FORMATS_FORMULA_H

#include <stdint.h>

/* The tensor `name` of the given shape: a hash of name and seed starts a splitmix64 sequence, one draw per element in
 * row-major order, scaled by what the name says the tensor is. Bit-equal to the reference in single precision. */
void formula_fill(float *out, const char *name, int axes, const int64_t *dim, uint64_t seed);

#endif
