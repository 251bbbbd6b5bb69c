/* versions.c - names the picture libraries in use. */
#include "io/versions.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>
#include <webp/decode.h>

#include <jpeglib.h>

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

void io_versions(char *out, size_t room)
{
    const char *tiff = TIFFGetVersion(), *digits = strstr(tiff, "Version ");
    int webp = WebPGetDecoderVersion(), n = digits ? (int)strcspn(digits + 8, "\n") : 0;
    snprintf(out, room, "libjpeg-turbo %s, libpng %s, libwebp %d.%d.%d, libtiff %.*s", TEXT(LIBJPEG_TURBO_VERSION),
             png_get_libpng_ver(NULL), webp >> 16, webp >> 8 & 255, webp & 255, n, digits ? digits + 8 : "");
}
