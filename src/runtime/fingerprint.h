/* fingerprint.h - a number that tells one model from another, whatever container its weights come in. */
#ifndef RUNTIME_FINGERPRINT_H
#define RUNTIME_FINGERPRINT_H

#include "runtime/native.h"

/* Continues the hash `h` (HASH_START for the first piece) over bytes. Not for adversaries. */
#define HASH_START 0xCBF29CE484222325u
uint64_t hash_bytes(uint64_t h, const void *data, size_t size);

/* Of names, types and shapes of the network's tensors and a sample of every tensor's bytes; of a formula, its name and
 * seed. The input side does not count. Touches a page per tensor. */
uint64_t native_fingerprint(const native *n);

#endif
