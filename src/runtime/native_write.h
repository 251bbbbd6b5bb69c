/* native_write.h - a network with its values into a file under official names, what was learnt included. */
#ifndef RUNTIME_NATIVE_WRITE_H
#define RUNTIME_NATIVE_WRITE_H

#include "runtime/native.h"

/* What a file gets. */
typedef struct write_choice {
    const char *type;            /* of all float tensors that are not learnt: "f32", "f16", "bf16", or NULL = as stored */
    bool        detector_only;   /* leaves out the tracker, its neck and the head for clicks */
    float       nms;             /* for config.nms; less than 0: as the model has it */
} write_choice;
#define WRITE_AS_STORED ((write_choice){.nms = -1})

/* Writes the tensors of the model's file (or formula) to `path` (.safetensors or .pt); values of trainable tensors are
 * taken from memory, as f32. `step` (may be NULL) is told how many of how many tensors are done; nonzero = stop. The file
 * appears whole or not at all. */
int native_write(const native *n, const char *path, const write_choice *how, native_progress step, void *user,
                 samite_error *err);
/* Metadata entry of files in 8 bits: which tensors, what each loses, and why others stayed as they were; JSON. */
#define CALIBRATION_KEY "samite.int8"
/* The same with every tensor whose entry is marked `eight` in 8 bits beside its scales, the other big products in bf16 and
 * the rest as stored; only .safetensors. note: the text for CALIBRATION_KEY. how->type does not count. */
int native_write_int8(const native *n, const char *path, const write_choice *how, const char *note, native_progress step,
                      void *user, samite_error *err);
/* Bytes of that file, near enough to ask for disk space. */
uint64_t native_write_bytes(const native *n);

#endif
