/* image.c - tells picture formats apart by content, calls the decoder, turns the result upright. */
#include "io/image.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "io/decoders.h"

#define FILE_LIMIT ((size_t)4 << 30)

typedef int decode_fn(pixels *out, const image_source *src, samite_error *err);

/* First bytes ('?' stands for any byte) and who reads them. */
static const struct signature {
    const char *bytes;
    size_t      size;
    const char *format;
    decode_fn  *decode;
} known[] = {
    {"\xff\xd8\xff", 3, "JPEG", decode_jpeg},
    {"\x89PNG\r\n\x1a\n", 8, "PNG", decode_png},
    {"RIFF????WEBP", 12, "WebP", decode_webp},
    {"II*\0", 4, "TIFF", decode_tiff},
    {"MM\0*", 4, "TIFF", decode_tiff},
    {"II+\0", 4, "TIFF", decode_tiff},
    {"MM\0+", 4, "TIFF", decode_tiff},
    {"P1", 2, "PNM", decode_pnm},
    {"P2", 2, "PNM", decode_pnm},
    {"P3", 2, "PNM", decode_pnm},
    {"P4", 2, "PNM", decode_pnm},
    {"P5", 2, "PNM", decode_pnm},
    {"P6", 2, "PNM", decode_pnm},
    {"P7", 2, "PAM", decode_pnm},
    {"BM", 2, "BMP", decode_bmp},
};

/* What people hand over by mistake. */
static const struct stranger {
    const char *bytes;
    size_t      size;
    const char *what;
} strangers[] = {
    {"GIF8", 4, "a GIF"},
    {"????ftypavif", 12, "an AVIF picture"},
    {"????ftypavis", 12, "an AVIF sequence"},
    {"????ftyphe", 10, "a HEIC picture"},
    {"????ftypmif1", 12, "a HEIF picture"},
    {"????ftypmsf1", 12, "a HEIF sequence"},
    {"????ftypcrx ", 12, "a Canon raw picture"},
    {"????ftyp", 8, "a video (MP4 or QuickTime)"},
    {"\x1a\x45\xdf\xa3", 4, "a video (Matroska or WebM)"},
    {"RIFF????AVI ", 12, "a video (AVI)"},
    {"\0\0\0\x0cJXL ", 8, "a JPEG XL picture"},
    {"\xff\x0a", 2, "a JPEG XL picture"},
    {"\0\0\0\x0cjP  ", 8, "a JPEG 2000 picture"},
    {"\xff\x4f\xff\x51", 4, "a JPEG 2000 picture"},
    {"%PDF", 4, "a PDF document"},
    {"8BPS", 4, "a Photoshop document"},
    {"\x76\x2f\x31\x01", 4, "an OpenEXR picture"},
    {"#?RADIANCE", 10, "a Radiance HDR picture"},
    {"Pf", 2, "a floating-point PFM picture"},
    {"PF", 2, "a floating-point PFM picture"},
    {"\0\0\x01\0", 4, "a Windows icon"},
    {"DDS ", 4, "a DDS texture"},
    {"PK\x03\x04", 4, "a zip archive"},
    {"\x1f\x8b", 2, "a gzip file"},
    {"7z\xbc\xaf\x27\x1c", 6, "a 7z archive"},
    {"version https://git-lfs", 23, "a Git LFS pointer, not the file itself"},
};

static bool matches(const image_source *src, const char *bytes, size_t size)
{
    if (src->size < size)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != '?' && (uint8_t)bytes[i] != src->data[i])
            return false;
    }
    return true;
}

static const struct signature *find_kind(const image_source *src)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (matches(src, known[i].bytes, known[i].size))
            return &known[i];
    return NULL;
}

/* Does a text, after spaces and a byte order mark, start with this tag in any case? */
static bool has_tag(const image_source *src, const char *tag)
{
    size_t at = src->size >= 3 && memcmp(src->data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0, n = strlen(tag);
    while (at < src->size && strchr(" \t\r\n", src->data[at]) && src->data[at])
        at++;
    return src->size - at >= n && strncasecmp((const char *)src->data + at, tag, n) == 0;
}

static const char *name_stranger(const image_source *src)
{
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        if (matches(src, strangers[i].bytes, strangers[i].size))
            return strangers[i].what;
    }
    if (has_tag(src, "<!doctype html") || has_tag(src, "<html"))
        return "an HTML page, perhaps an error page that was saved instead of the picture";
    if (has_tag(src, "<svg") || has_tag(src, "<?xml"))
        return "an SVG or XML text";
    if (has_tag(src, "{") || has_tag(src, "["))
        return "a JSON text";
    return NULL;
}

static int fail_unknown(const image_source *src, samite_error *err)
{
    static const char advice[] = "supported are JPEG, PNG, WebP, TIFF, PNM and BMP: convert it first";
    if (src->size == 0)
        return fail(err, SAMITE_INPUT, "%s: the file is empty: expected a picture", src->name);
    const char *what = name_stranger(src);
    if (what)
        return fail(err, SAMITE_INPUT, "%s: this is %s; %s", src->name, what, advice);
    char hex[3 * 8 + 1] = "", printable[9] = "";
    for (size_t i = 0; i < 8 && i < src->size; i++) {
        static const char digits[] = "0123456789abcdef";
        uint8_t b = src->data[i];
        memcpy(hex + 3 * i, (char[]){' ', digits[b >> 4], digits[b & 15], '\0'}, 4);
        printable[i] = b >= 32 && b < 127 ? (char)b : '.';
    }
    return fail(err, SAMITE_INPUT, "%s: not a known picture format (first bytes%s \"%s\"); %s", src->name, hex,
                printable, advice);
}

int fail_truncated(const image_source *src, const char *format, samite_error *err)
{
    return fail(err, SAMITE_INPUT, "%s: %s data end early (%zu bytes): the file is truncated, get a complete copy",
                src->name, format, src->size);
}

int pixels_alloc(pixels *out, const image_source *src, uint64_t width, uint64_t height, samite_error *err)
{
    if (width == 0 || height == 0)
        return fail(err, SAMITE_INPUT, "%s: the picture has no pixels (%llu x %llu)", src->name,
                    (unsigned long long)width, (unsigned long long)height);
    if (width > INT_MAX || height > INT_MAX || height > src->max_pixels / width)
        return fail(err, SAMITE_INPUT, "%s: the picture says it is %llu x %llu, more than the limit of %llu pixels: "
                    "make it smaller first", src->name, (unsigned long long)width, (unsigned long long)height,
                    (unsigned long long)src->max_pixels);
    if (height > SIZE_MAX / 3 / width || !(out->rgb = calloc((size_t)(width * height), 3)))
        return fail(err, SAMITE_RESOURCE, "%s: no memory for %llu x %llu pixels", src->name, (unsigned long long)width,
                    (unsigned long long)height);
    out->width = (int)width;
    out->height = (int)height;
    return SAMITE_OK;
}

int image_decode(pixels *out, const uint8_t *data, size_t size, const char *name, const image_options *opt,
                 samite_error *err)
{
    static const image_options defaults = IMAGE_OPTIONS_INIT;
    const image_options *o = opt ? opt : &defaults;
    *out = (pixels){.exif_orientation = 1};
    image_source src = {data, size, name, o->max_pixels ? o->max_pixels : IMAGE_MAX_PIXELS, o->keep_truncated};
    const struct signature *kind = find_kind(&src);
    if (!kind)
        return fail_unknown(&src, err);
    out->format = kind->format;
    int code = kind->decode(out, &src, err);
    if (code == SAMITE_OK && o->apply_exif)
        code = exif_apply(out, name, err);
    if (code != SAMITE_OK)
        pixels_free(out);
    return code;
}

/* Does a file start like a picture? */
static int look_at_start(const uint8_t *start, size_t size, const char *name, samite_error *err)
{
    image_source src = {start, size, name, 0, 0};
    return find_kind(&src) ? SAMITE_OK : fail_unknown(&src, err);
}

int image_read(pixels *out, const char *path, const image_options *opt, samite_error *err)
{
    uint8_t *data = NULL;
    size_t size = 0;
    *out = (pixels){0};
    int code = file_read_if(&data, &size, path, FILE_LIMIT, look_at_start, err);
    if (code != SAMITE_OK)
        return code;
    code = image_decode(out, data, size, strcmp(path, "-") == 0 ? "standard input" : path, opt, err);
    free(data);
    return code;
}

void pixels_free(pixels *p)
{
    if (!p)
        return;
    free(p->rgb);
    *p = (pixels){0};
}

bool image_has_known_ending(const char *path)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff",
                                          ".pbm", ".pgm", ".ppm", ".pnm", ".pam", ".bmp", ".dib"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t m = strlen(endings[i]);
        if (n > m && strcasecmp(path + n - m, endings[i]) == 0)
            return true;
    }
    return false;
}
