/* weights.c - fuzz target: any bytes as a model file, with names, pieces and the scales of 8-bit tensors. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "formats/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const weights *w)
{
    for (size_t i = 0; i < weights_count(w); i++) {
        const weight *t = weights_at(w, i);
        int64_t count = weight_count(t);
        if (t->type == DT_C64 || count > 1 << 16)
            continue;
        float *out = malloc((size_t)count * sizeof *out + 1);
        if (out)
            weight_to_f32(out, t);
        free(out);
        weights_is_scale(w, t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    weights *w;
    samite_error err;
    int file = memfd_create("fuzz", 0);
    if (file < 0)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (write(file, data, size) == (ssize_t)size && weights_open(&w, path, &err) == SAMITE_OK) {
        read_all(w);
        weights_close(w);
    }
    close(file);
    return 0;
}
