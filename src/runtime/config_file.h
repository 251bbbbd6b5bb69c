/* config_file.h - the sizes of a network read off its tensors, and what tensors do not tell kept beside them. */
#ifndef RUNTIME_CONFIG_FILE_H
#define RUNTIME_CONFIG_FILE_H

#include "formats/weights.h"
#include "model/config.h"

/* Key of the metadata entry that holds the fields of the reference's Config as JSON. */
#define CONFIG_KEY "samite.config"

/* Sizes come from tensor shapes. Heads, window, global blocks and the input side come from the metadata entry, else from
 * the rotary tables of a .pt, else from the preset whose sizes these are, else from the official model. */
int config_from_weights(config *c, const weights *w, samite_error *err);
/* The same from the text of that entry alone, found in the file at `path`. */
int config_from_json(config *c, const char *json, const char *path, samite_error *err);
/* The JSON for CONFIG_KEY; yours to free. NULL: out of memory. */
char *config_to_json(const config *c);

#endif
