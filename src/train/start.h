/* start.h - a network before anything was learnt: random weights from a seed, and a few that are set on purpose. */
#ifndef TRAIN_START_H
#define TRAIN_START_H

#include "runtime/native.h"

/* Gives every tensor of an empty network (native_open_empty) its first values; native_write then writes them. The same
 * seed makes the same weights. */
int start_weights(native *n, uint64_t seed, samite_error *err);

#endif
