/* records.h - the records of a COCO file one by one, whatever its size. */
#ifndef TRAIN_RECORDS_H
#define TRAIN_RECORDS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"

/* What stands in place of a number that JSON cannot hold (NaN, Infinity, as Python writes them): a string of blanks. */
bool record_is_odd(const json_t *value);

/* Calls `take` with the name of the list ("images", "annotations", "categories", ...) and each of its objects, which is
 * borrowed. false: stop with the error that `take` left in *err. */
typedef bool (*record_fn)(void *to, const char *section, const json_t *record);
int records_read(const char *path, record_fn take, void *to, samite_error *err);

#endif
