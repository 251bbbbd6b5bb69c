/* image.h - picture files to RGB and back. */
#ifndef IO_IMAGE_H
#define IO_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A decoded picture. Alpha is dropped, not composited; 16-bit samples keep their high byte. */
typedef struct pixels {
    int         width, height;
    uint8_t    *rgb;              /* [height, width, 3] */
    int         exif_orientation; /* 1..8 as found in the file (1 when absent); rgb is turned only if exif_applied */
    bool        exif_applied;     /* true: rgb, width and height are those of the upright picture */
    bool        truncated;        /* only with keep_truncated: the file ended early, missing pixels are filled */
    const char *format;           /* "JPEG", "PNG", ...: static */
} pixels;

typedef struct image_options {
    bool     apply_exif;     /* turn the picture upright */
    bool     keep_truncated; /* JPEG, PNG and BMP that end early are decoded as far as they go instead of refused */
    uint64_t max_pixels;     /* width * height above this is refused before memory is taken; 0: IMAGE_MAX_PIXELS */
} image_options;

#define IMAGE_MAX_PIXELS ((uint64_t)512 << 20)
#define IMAGE_OPTIONS_INIT { .apply_exif = true, .keep_truncated = false, .max_pixels = 0 }

/* Decodes JPEG, PNG, WebP, TIFF, PNM/PAM or BMP, told apart by content. `name` is used in messages only. `opt` NULL:
 * IMAGE_OPTIONS_INIT. Of files with several pictures the first is taken. On failure *out is empty. */
int image_decode(pixels *out, const uint8_t *data, size_t size, const char *name, const image_options *opt,
                 samite_error *err);
/* The same from a file, or from standard input for "-". */
int image_read(pixels *out, const char *path, const image_options *opt, samite_error *err);
void pixels_free(pixels *p);
/* The samples of a gray or palette PNG as they are stored, 1 to 16 bits: masks and label maps. *values is
 * [height, width], yours to free. Other kinds of pictures are SAMITE_INPUT. max_pixels 0: IMAGE_MAX_PIXELS. */
int  image_decode_labels(uint16_t **values, int *width, int *height, const uint8_t *data, size_t size, const char *name,
                         uint64_t max_pixels, samite_error *err);

/* File name endings (with dot, lower case) under which pictures usually come; for listing folders. */
bool image_has_known_ending(const char *path);

typedef enum png_kind { PNG_BIT, PNG_GRAY8, PNG_GRAY16, PNG_PALETTE, PNG_RGB8, PNG_RGBA8 } png_kind;

typedef struct png_image_data {
    int            width, height;
    png_kind       kind;
    const void    *data;    /* rows without padding; BIT: one byte a pixel, 0 or not; GRAY16: native uint16_t */
    const uint8_t *palette; /* PALETTE: [colours, 3] */
    int            colours; /* PALETTE: 1..256; every index must be below it */
} png_image_data;

/* Files are written through a temporary beside `path` that is renamed at the end. */
int image_write_png(const char *path, const png_image_data *image, samite_error *err);
/* The bytes of a JPEG file, yours to free; `name` is for messages. */
int image_encode_jpeg(uint8_t **out, size_t *size, const uint8_t *rgb, int width, int height, int quality,
                      const char *name, samite_error *err);
int image_write_jpeg(const char *path, const uint8_t *rgb, int width, int height, int quality, samite_error *err);

#endif
