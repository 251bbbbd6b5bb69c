/* dataset_rows.h - one record of an annotation file into the set, or a row that says why not. Private to dataset*.c. */
#ifndef TRAIN_DATASET_ROWS_H
#define TRAIN_DATASET_ROWS_H

#include <jansson.h>

#include "train/dataset.h"

typedef struct set_reader {
    train_set    *s;
    samite_error *err;
    bool          lists[3];          /* images, annotations, categories were there */
} set_reader;

/* A record_fn; `to` is a set_reader. */
bool dataset_record(void *to, const char *section, const json_t *record);

#endif
