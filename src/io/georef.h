/* georef.h - where on earth a picture lies: world files and GeoTIFF tags. */
#ifndef IO_GEOREF_H
#define IO_GEOREF_H

#include <stdbool.h>

#include "base/error.h"

typedef struct georef {
    bool   found;
    double m[6]; /* easting = m0 + m1 x + m2 y, northing = m3 + m4 x + m5 y; x, y count pixel corners from 0 */
    int    epsg;           /* code of the coordinate system; 0: not told */
    char   source[16];     /* "world file" or "GeoTIFF" */
} georef;

/* Looks for a world file beside the picture (.jgw, .pgw, .tfw, .wld, ...) and for GeoTIFF tags in it. Nothing found is
 * no failure; a broken world file is. `path` "-" has none. */
int georef_read(georef *out, const char *path, samite_error *err);
/* Six lines of a world file. */
int georef_parse_world(georef *out, const char *data, size_t size, const char *name, samite_error *err);

#endif
