/* paddle.c - bytes as files of PaddlePaddle: a state dictionary, or a program, a zero and its parameters; whatever
 * tensors come out are looked for in a network. */
#include <stdlib.h>
#include <string.h>

#include "export/assemble.h"
#include "formats/paddle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_program(tensor_list *list, const uint8_t *data, size_t size, samite_error *err)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t n = end ? (size_t)(end - data) : size, rest = end ? size - n - 1 : 0;
    char name[] = "program";
    file_map program = {data, n, name}, parameters = {end ? end + 1 : NULL, rest, name};
    return paddle_program_read(list, &program, &parameters, err);
}

static void put_together(const sam3 *net, const tensor_list *list, bool state, samite_error *err)
{
    assembly *a = assembly_new(net);
    int code = a ? assembly_add(a, list, "file", state, err) : -1;
    for (size_t i = 0; !code && i < net->all.count; i++) {
        if (!assembly_has(a, i))
            continue;
        float *out = malloc(sizeof *out * (size_t)(tensor_count(&net->all.entries[i]->p.t) + 1));
        if (out)
            assembly_fill(a, i, out, err);
        free(out);
    }
    assembly_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static sam3 *net;
    samite_error err = {0};
    tensor_list list = {0};
    config c;
    if (!net && (!config_preset(&c, "tiny") || sam3_open(&net, &c, &err)))
        abort();
    bool state = size > 0 && data[0] == 0x80;
    int code = state ? paddle_state_read(&list, data, size, "file", &err) : read_program(&list, data, size, &err);
    if (code && (err.code != code || !err.text[0]))
        abort();
    if (!code)
        put_together(net, &list, state, &err);
    tensor_list_free(&list);
    return 0;
}
