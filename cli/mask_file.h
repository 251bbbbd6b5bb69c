/* mask_file.h - a picture file as a mask. */
#ifndef CLI_MASK_FILE_H
#define CLI_MASK_FILE_H

#include "samite.h"

/* Bright pixels of a picture of width x height are inside; `whose`: what it must fit, for the message. out->counts are
 * yours to free with mask_file_free. */
int  mask_file_read(samite_mask *out, const char *path, int width, int height, const char *whose, samite_error *err);
void mask_file_free(samite_mask *m);

#endif
