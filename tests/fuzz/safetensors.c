/* safetensors.c - fuzz target: any bytes as a safetensors file and as a shard index. */
#include <stdlib.h>

#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tensor_list list = {0};
    shard_list shards;
    samite_error err;
    if (safetensors_read(&list, data, size, "fuzz.safetensors", &err) == SAMITE_OK)
        for (size_t i = 0; i < list.count; i++) {
            if (weight_count(&list.items[i]) > 1 << 16)
                continue;
            float *out = malloc((size_t)weight_count(&list.items[i]) * sizeof *out + 1);
            if (out)
                weight_to_f32(out, &list.items[i]);
            free(out);
        }
    tensor_list_free(&list);
    if (safetensors_index(&shards, data, size, "fuzz.json", &err) == SAMITE_OK)
        shard_list_free(&shards);
    return 0;
}
