/* json.h - values for jansson from what files and arithmetic bring. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "base/file.h"

/* The number, or null when it is infinite or not a number, which JSON cannot hold. */
json_t *json_number(double v);
/* Any bytes as a JSON string; what is not UTF-8 becomes \xNN. */
json_t *json_name(const char *bytes);
/* Sets object[key] = path and, when the path is not UTF-8, object[key_hex] = its bytes. 0, or -1 when out of memory. */
int json_set_path(json_t *object, const char *key, const char *path);
/* Writes `o` in compact form, numbers with the nine digits that tell all floats apart. false: `o` is NULL or out of
 * memory; what the disk says is kept by the writer. */
bool json_write(file_writer *w, const json_t *o);

#endif
