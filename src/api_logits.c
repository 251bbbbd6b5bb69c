/* api_logits.c - logits of an answer in a safetensors file, for a refinement in another run. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "formats/safetensors.h"

#define NAME      "logits"
#define MOST      1024         /* alternatives */
#define MOST_SIDE 16384

int samite_logits_write(const float *logits, int count, int side, const char *path, samite_error *err)
{
    if (!logits || !path || count < 1 || count > MOST || side < 1 || side > MOST_SIDE)
        return fail(err, SAMITE_USAGE, "samite_logits_write: %d maps of side %d", count, side);
    weight plan = {.name = NAME, .type = DT_F32, .axes = 3, .dim = {count, side, side}, .data = logits};
    weight_set_strides(&plan);
    safetensors_writer w;
    int code = safetensors_create(&w, path, &plan, 1, NULL, 0, err);
    if (code)
        return code;
    safetensors_put(&w, logits, weight_bytes(&plan));
    return safetensors_commit(&w, err);
}

static const weight *find(const tensor_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, NAME) == 0)
            return &list->items[i];
    return NULL;
}

static int take(float **out, int *count, int *side, const weight *t, const char *path, samite_error *err)
{
    if (!t || t->type != DT_F32 || t->axes != 3 || t->dim[0] < 1 || t->dim[0] > MOST || t->dim[1] < 1 ||
        t->dim[1] > MOST_SIDE || t->dim[1] != t->dim[2])
        return fail(err, SAMITE_INPUT, "%s: expected a tensor \"" NAME "\" of f32 [count, side, side], as written by "
                    "samite segment --save-logits", path);
    float *values = malloc(weight_bytes(t));
    if (!values)
        return fail(err, SAMITE_RESOURCE, "%s: not enough memory for its values", path);
    weight_to_f32(values, t);
    *out = values;
    *count = (int)t->dim[0];
    *side = (int)t->dim[1];
    return 0;
}

int samite_logits_read(float **out, int *count, int *side, const char *path, samite_error *err)
{
    file_map file;
    tensor_list list = {0};
    if (!out || !count || !side || !path)
        return fail(err, SAMITE_USAGE, "samite_logits_read: no file or no place for its values given");
    *out = NULL;
    int code = file_map_open(&file, path, err);
    if (code)
        return code;
    code = safetensors_read(&list, file.data, file.size, path, err);
    if (!code)
        code = take(out, count, side, find(&list), path, err);
    tensor_list_free(&list);
    file_map_close(&file);
    return code;
}
