/* region.h - parts of a TIFF that need not fit into memory. */
#ifndef IO_REGION_H
#define IO_REGION_H

#include <stdint.h>

#include "base/error.h"

typedef struct tiff_regions tiff_regions;

/* The file stays mapped. Kinds that need conversion as a whole (CMYK, YCbCr, turned ones) are SAMITE_INPUT. */
int  tiff_regions_open(tiff_regions **out, const char *path, samite_error *err);
void tiff_regions_size(const tiff_regions *t, int *width, int *height);
/* RGB into [height, width, 3]. Whole strips or tiles are decoded: read in the order of the file. */
int  tiff_regions_read(tiff_regions *t, uint8_t *rgb, int x, int y, int width, int height, samite_error *err);
void tiff_regions_close(tiff_regions *t);

#endif
