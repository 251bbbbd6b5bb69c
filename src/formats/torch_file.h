/* torch_file.h - state dicts in files of torch.save. */
#ifndef FORMATS_TORCH_FILE_H
#define FORMATS_TORCH_FILE_H

#include "formats/tensor_list.h"
#include "formats/zip.h"

/* Does this look like a file of torch.save, new (zip) or old? */
bool torch_file_detect(const uint8_t *data, size_t size);

/* Adds the tensors of the state dict to *list: of the dict under "model", "state_dict" or "model_state_dict", else of
 * the file's outermost dict. They point into `data`. Entries that cannot be weights are listed as refused; text beside
 * the state dict becomes notes. Nothing in the file is executed. */
int torch_file_read(tensor_list *list, const uint8_t *data, size_t size, const char *path, samite_error *err);

/* Writes {"model": {name: tensor, ...}, key: text, ...} so that torch.load(weights_only=True) reads it. `plan` as in
 * weights_create(); the writer keeps names and sizes of it. */
typedef struct torch_writer {
    zip_writer zip;
    uint64_t  *sizes;        /* bytes per tensor */
    size_t     count, next;
    uint64_t   left;         /* bytes that the current tensor still expects */
    bool       too_much;
} torch_writer;

int  torch_writer_create(torch_writer *w, const char *path, const weight *plan, size_t count,
                         const text_pair *metadata, size_t pairs, samite_error *err);
void torch_writer_put(torch_writer *w, const void *data, size_t size);
int  torch_writer_commit(torch_writer *w, samite_error *err);
void torch_writer_abort(torch_writer *w);

#endif
