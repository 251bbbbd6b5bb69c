/* decoders.h - what the per-format decoders of src/io share. Not for use outside src/io. */
#ifndef IO_DECODERS_H
#define IO_DECODERS_H

#include "io/image.h"

typedef struct image_source {
    const uint8_t *data;
    size_t         size;
    const char    *name;
    uint64_t       max_pixels;
    bool           keep_truncated;
} image_source;

/* Each fills *out without turning it (exif_orientation is set when found) or fails, leaving what it took to the
 * caller's pixels_free. The content has been recognised by its first bytes before. */
int decode_jpeg(pixels *out, const image_source *src, samite_error *err);
int decode_png(pixels *out, const image_source *src, samite_error *err);
int decode_webp(pixels *out, const image_source *src, samite_error *err);
int decode_tiff(pixels *out, const image_source *src, samite_error *err);
int decode_pnm(pixels *out, const image_source *src, samite_error *err);
int decode_bmp(pixels *out, const image_source *src, samite_error *err);

/* Checks the size against 1, INT_MAX and max_pixels, then allocates zeroed out->rgb. */
int pixels_alloc(pixels *out, const image_source *src, uint64_t width, uint64_t height, samite_error *err);
/* The usual line about a file that ends early. */
int fail_truncated(const image_source *src, const char *format, samite_error *err);

/* Orientation 1..8 from an EXIF block (with or without its "Exif\0\0" start) or an XMP packet; 0 when there is none. */
int exif_find_orientation(const uint8_t *data, size_t size);
int xmp_find_orientation(const uint8_t *data, size_t size);
/* Turns the picture upright according to exif_orientation. */
int exif_apply(pixels *p, const char *name, samite_error *err);

#endif
