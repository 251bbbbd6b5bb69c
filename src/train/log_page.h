/* log_page.h - curves of a training as one HTML page. */
#ifndef TRAIN_LOG_PAGE_H
#define TRAIN_LOG_PAGE_H

#include <jansson.h>

#include "base/text.h"

#define SERIES_MOST 160

typedef struct series {
    char    name[96];
    double *x, *y;
    int     count, room;
} series;

/* Loss, its parts, gradient norm, rates, validation; folded, the losses of the other layers and the one-to-many half; pictures of
 * folder/overlays, embedded. */
void log_page(text *out, const char *title, const json_t *facts, const series *list, int count, const char *folder);

#endif
