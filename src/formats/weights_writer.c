/* weights_writer.c - writes tensors into whichever container the path asks for. */
#include <stdlib.h>

#include "base/text.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "formats/weights.h"

struct weights_writer {
    bool torch;
    torch_writer pt;
    safetensors_writer st;
};

int weights_create(weights_writer **out, const char *path, const weight *plan, size_t count,
                   const text_pair *metadata, size_t pairs, samite_error *err)
{
    *out = NULL;
    weights_writer *w = calloc(1, sizeof *w);
    if (!w)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    w->torch = ends_with(path, ".pt") || ends_with(path, ".pth");
    int code = w->torch ? torch_writer_create(&w->pt, path, plan, count, metadata, pairs, err)
                        : safetensors_create(&w->st, path, plan, count, metadata, pairs, err);
    if (code)
        free(w);
    else
        *out = w;
    return code;
}

void weights_put(weights_writer *w, const void *data, size_t size)
{
    if (w->torch)
        torch_writer_put(&w->pt, data, size);
    else
        safetensors_put(&w->st, data, size);
}

int weights_commit(weights_writer *w, samite_error *err)
{
    int code = w->torch ? torch_writer_commit(&w->pt, err) : safetensors_commit(&w->st, err);
    free(w);
    return code;
}

void weights_abort(weights_writer *w)
{
    if (w && w->torch)
        torch_writer_abort(&w->pt);
    else if (w)
        safetensors_abort(&w->st);
    free(w);
}
