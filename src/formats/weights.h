/* weights.h - the tensors of a model file under their official names, whatever container and naming they come in. */
#ifndef FORMATS_WEIGHTS_H
#define FORMATS_WEIGHTS_H

#include "formats/tensor_list.h"

typedef struct weights weights;

/* Opens a torch .pt (zip), a .safetensors, a shard index, or a folder that holds sam3.pt, model.safetensors or
 * model.safetensors.index.json. Everything is mapped, nothing is copied. Names become the official ones: "module.",
 * "_orig_mod." and "model." in front are dropped, transformers' names are translated, and names that are neither
 * "detector." nor "tracker." get "detector.". The tables *.freqs_cis (c64) of official files are listed too. */
int  weights_open(weights **out, const char *path, samite_error *err);
void weights_close(weights *w);

/* In file order. */
size_t        weights_count(const weights *w);
const weight *weights_at(const weights *w, size_t i);
const weight *weights_find(const weights *w, const char *name);       /* NULL: absent */
/* Is it the scales of another tensor ("NAME_scale" of an 8-bit NAME, whose `scale` they are)? */
bool          weights_is_scale(const weights *w, const weight *t);
/* Why a tensor that the file does name cannot be used ("is quantized ..."); NULL if there is nothing to say. */
const char   *weights_refusal(const weights *w, const char *name);
/* Text stored beside the tensors; NULL: absent. For a model in transformers' naming, "config.json" is the text of the
 * file of that name beside it. */
const char   *weights_metadata(const weights *w, const char *key);

/* A hash of size, time of change and number of every file behind `w`: another one when a file was written again. */
uint64_t weights_stamp(const weights *w);
/* Pages that were looked at need not stay in memory: they are read again when touched. */
void weights_rest(const weights *w);
const char *weights_path(const weights *w);
const char *weights_kind(const weights *w);      /* "torch zip", "safetensors", "safetensors, 4 shards", ... */
/* What the file looks like, as a short phrase for a message: "SAM 3", "SAM 2", "a LoRA adapter", ... */
const char *weights_guess(const weights *w);

/* Writing. The container follows from the ending of the path: .pt or .pth makes a torch zip with the layout of the
 * official file, anything else safetensors. The file appears only on commit. */
typedef struct weights_writer weights_writer;

/* `plan` gives name, type and shape of each tensor in the order in which put() hands over their bytes (each tensor in
 * one or several calls, row-major). Nothing of `plan` is needed after the call. */
int  weights_create(weights_writer **out, const char *path, const weight *plan, size_t count,
                    const text_pair *metadata, size_t pairs, samite_error *err);
void weights_put(weights_writer *w, const void *data, size_t size);   /* errors are told by commit */
int  weights_commit(weights_writer *w, samite_error *err);             /* frees the writer in any case */
void weights_abort(weights_writer *w);                                 /* accepts NULL */

#endif
