/* output.h - what the files that write results share. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "base/error.h"
#include "io/mask.h"

/* Looks at a mask of the caller as run lengths of ours, after checking that they fill its size.
 * `path`: for messages. */
int mask_view(rle *out, const samite_mask *m, const char *path, samite_error *err);

/* Copies the page, filling what an older caller's struct lacks, and checks what all writers rely on: there are pixels,
 * every name exists, and every mask that is there has the picture's size. */
int page_check(samite_page *out, const samite_page *page, const char *path, samite_error *err);

#endif
