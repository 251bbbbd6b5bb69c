/* safetensors.h - the safetensors container: a JSON header, then the plain bytes of every tensor. */
#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H

#include "base/file.h"
#include "formats/tensor_list.h"

/* Does this look like a safetensors file? (a plausible header length and an opening brace) */
bool safetensors_detect(const uint8_t *data, size_t size);

/* Adds the file's tensors to *list in the order of its header; they point into the map, which must stay open.
 * Tensors of types that no weight can have are listed as refused. `path` is for messages. */
int safetensors_read(tensor_list *list, const uint8_t *data, size_t size, const char *path, samite_error *err);

/* Names of the shard files in an index (model.safetensors.index.json), each once, in order of first appearance.
 * Names are plain file names without folders. */
typedef struct shard_list {
    char **names;
    size_t count;
} shard_list;
int  safetensors_index(shard_list *out, const uint8_t *data, size_t size, const char *path, samite_error *err);
void shard_list_free(shard_list *s);

/* Writes a file tensor by tensor. `plan` gives name, type and shape of every tensor in the order in which put() will
 * hand over their bytes; order a mixed file by falling element size if its tensors are to be aligned. */
typedef struct safetensors_writer {
    file_writer file;
    uint64_t    total, written;
} safetensors_writer;

int  safetensors_create(safetensors_writer *w, const char *path, const weight *plan, size_t count,
                        const text_pair *metadata, size_t pairs, samite_error *err);
void safetensors_put(safetensors_writer *w, const void *data, size_t size);
int  safetensors_commit(safetensors_writer *w, samite_error *err);
void safetensors_abort(safetensors_writer *w);

#endif
