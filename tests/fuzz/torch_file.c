/* torch_file.c - fuzz target: any bytes as a file of torch.save; every tensor that comes out is read through. */
#include <stdlib.h>

#include "formats/torch_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tensor_list list = {0};
    samite_error err;
    if (torch_file_read(&list, data, size, "fuzz.pt", &err) == SAMITE_OK)
        for (size_t i = 0; i < list.count; i++) {
            if (weight_count(&list.items[i]) > 1 << 16)
                continue;
            float *out = malloc((size_t)weight_count(&list.items[i]) * sizeof *out + 1);
            if (out)
                weight_to_f32(out, &list.items[i]);
            free(out);
        }
    tensor_list_free(&list);
    return 0;
}
