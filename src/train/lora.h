/* lora.h - low-rank adapters beside frozen linear layers: attached, written to a small file, added to the weights. */
#ifndef TRAIN_LORA_H
#define TRAIN_LORA_H

#include "runtime/native.h"

typedef struct adapter {
    linear_w *base;
    adapter_w w;
    entry     down, up;      /* NAME.lora_A.weight [rank, in], NAME.lora_B.weight [out, rank] */
} adapter;

typedef struct adapters {
    adapter *item;           /* stable: layers point into it */
    int      count, rank;
    double   alpha;
} adapters;

/* An adapter for every linear layer of attention and perceptrons in `parts` (1 << PART_..). A starts at random by
 * `seed`, B at zero, so that nothing changes at first. Detach before the network goes. */
int  adapters_open(adapters *a, native *n, unsigned parts, int rank, double alpha, uint64_t seed, samite_error *err);
void adapters_close(adapters *a);

/* The adapters alone, as safetensors with rank and alpha. */
int  adapters_write(const adapters *a, const char *path, samite_error *err);
/* Adds the adapters in the file to the weights of `n`, which native_write then writes. *count: layers changed. */
int  adapters_merge(native *n, const char *path, int *count, samite_error *err);

#endif
