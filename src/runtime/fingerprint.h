/* fingerprint.h - a number that tells one model from another, whatever container its weights come in. */
#ifndef RUNTIME_FINGERPRINT_H
#define RUNTIME_FINGERPRINT_H

#include "base/hash.h"
#include "runtime/native.h"

/* Of names, types and shapes of the network's tensors and a sample of every tensor's bytes; of a formula, its name and
 * seed. The input side does not count. Touches a page per tensor. */
uint64_t native_fingerprint(const native *n);

#endif
