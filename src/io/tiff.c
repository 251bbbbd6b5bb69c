/* tiff.c - the first page of a TIFF through libtiff, whole or in parts: strips or tiles, gray, palette, RGB(A), 1 to 16
 * bit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tiffio.h>

#include "base/file.h"
#include "io/decoders.h"
#include "io/region.h"

#define FORGET_FROM   ((size_t)64 << 10)
#define LARGEST_CHUNK ((size_t)1 << 30)     /* a strip or tile of a picture that is read in parts */

typedef struct tiff_reader {
    const image_source *src;
    TIFF               *tiff;
    uint64_t            at;
    bool                ended_early;       /* something was wanted from beyond the end */
    char                text[160];         /* first error of libtiff */
    uint32_t            width, height;
    uint16_t            bits, channels, photometric, planar, format, compression;
    uint16_t           *map[3];            /* palette, borrowed from libtiff */
    unsigned            map_shift;         /* 8, or 0 in old files with 8-bit palettes */
    bool                premultiplied;
    uint8_t            *chunk, *samples;   /* a strip or tile as stored; one row of it as bytes */
    bool                forget;            /* the source is a mapped file: what was read need not stay in memory */
} tiff_reader;

static tmsize_t read_bytes(thandle_t handle, void *to, tmsize_t n)
{
    tiff_reader *r = handle;
    uint64_t left = r->at < r->src->size ? r->src->size - r->at : 0;
    size_t take = n < 0 ? 0 : (uint64_t)n < left ? (size_t)n : (size_t)left;
    if (take)
        memcpy(to, r->src->data + r->at, take);
    if (r->forget && take >= FORGET_FROM)
        file_map_drop(r->src->data + r->at, take);
    r->ended_early = r->ended_early || (tmsize_t)take < n;
    r->at += take;
    return (tmsize_t)take;
}

static tmsize_t write_nothing(thandle_t handle, void *from, tmsize_t n)
{
    (void)handle, (void)from, (void)n;
    return 0;
}

static toff_t seek_to(thandle_t handle, toff_t offset, int whence)
{
    tiff_reader *r = handle;
    r->at = whence == SEEK_SET ? offset : whence == SEEK_CUR ? r->at + offset : r->src->size + offset;
    return r->at;
}

static int close_nothing(thandle_t handle)
{
    (void)handle;
    return 0;
}

static toff_t size_of_source(thandle_t handle)
{
    return ((tiff_reader *)handle)->src->size;
}

static int on_error(TIFF *tiff, void *user, const char *module, const char *format, va_list args)
{
    tiff_reader *r = user;
    (void)tiff, (void)module;
    if (!r->text[0])
        vsnprintf(r->text, sizeof r->text, format, args);
    return 1;
}

static int on_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list args)
{
    (void)tiff, (void)user, (void)module, (void)format, (void)args;
    return 1;
}

static TIFF *open_source(tiff_reader *r)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options)
        return NULL;
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, r);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, r);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)((r->src->max_pixels + (64u << 20)) * 8));
    TIFF *tiff = TIFFClientOpenExt(r->src->name, "rm", r, read_bytes, write_nothing, seek_to, close_nothing,
                                   size_of_source, NULL, NULL, options);
    TIFFOpenOptionsFree(options);
    return tiff;
}

static int fail_damaged(const tiff_reader *r, samite_error *err)
{
    return fail(err, SAMITE_INPUT, "%s: damaged or truncated TIFF (%s): get another copy", r->src->name,
                r->text[0] ? r->text : "no reason given");
}

static void read_tags(pixels *out, tiff_reader *r)
{
    uint16_t orientation = 1, extra = 0, *kinds = NULL;
    TIFFGetField(r->tiff, TIFFTAG_IMAGEWIDTH, &r->width);
    TIFFGetField(r->tiff, TIFFTAG_IMAGELENGTH, &r->height);
    TIFFGetFieldDefaulted(r->tiff, TIFFTAG_BITSPERSAMPLE, &r->bits);
    TIFFGetFieldDefaulted(r->tiff, TIFFTAG_SAMPLESPERPIXEL, &r->channels);
    TIFFGetFieldDefaulted(r->tiff, TIFFTAG_PLANARCONFIG, &r->planar);
    TIFFGetFieldDefaulted(r->tiff, TIFFTAG_SAMPLEFORMAT, &r->format);
    TIFFGetFieldDefaulted(r->tiff, TIFFTAG_COMPRESSION, &r->compression);
    TIFFGetFieldDefaulted(r->tiff, TIFFTAG_ORIENTATION, &orientation);
    TIFFGetFieldDefaulted(r->tiff, TIFFTAG_EXTRASAMPLES, &extra, &kinds);
    if (!TIFFGetField(r->tiff, TIFFTAG_PHOTOMETRIC, &r->photometric))
        r->photometric = r->channels >= 3 ? PHOTOMETRIC_RGB : PHOTOMETRIC_MINISBLACK;
    if (orientation >= 1 && orientation <= 8)
        out->exif_orientation = orientation;
    r->premultiplied = r->channels == 4 && extra == 1 && kinds && kinds[0] == EXTRASAMPLE_ASSOCALPHA;
    if (r->photometric == PHOTOMETRIC_YCBCR && r->compression == COMPRESSION_JPEG && r->planar == PLANARCONFIG_CONTIG) {
        TIFFSetField(r->tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
        r->photometric = PHOTOMETRIC_RGB;
    }
}

/* The kinds read here, sample by sample; the rest is left to libtiff's own conversion. */
static bool is_plain(const tiff_reader *r)
{
    if (r->format != SAMPLEFORMAT_UINT && r->format != SAMPLEFORMAT_VOID)
        return false;
    bool depth8 = r->bits == 8 || r->bits == 16, low = r->bits == 1 || r->bits == 2 || r->bits == 4;
    switch (r->photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK: return r->channels >= 1 && (low || depth8);
    case PHOTOMETRIC_PALETTE: return r->channels >= 1 && (low || r->bits == 8);
    case PHOTOMETRIC_RGB: return r->channels >= 3 && depth8;
    default: return false;
    }
}

static bool read_map(tiff_reader *r)
{
    if (!TIFFGetField(r->tiff, TIFFTAG_COLORMAP, &r->map[0], &r->map[1], &r->map[2]))
        return false;
    r->map_shift = 0;
    for (int i = 0; i < 3 << r->bits; i++) {
        if (r->map[i >> r->bits][i & ((1 << r->bits) - 1)] > 255)
            r->map_shift = 8;
    }
    return true;
}

/* `count` packed samples to bytes: gray levels stretched to 0..255, palette indices as they are. */
static void unpack(uint8_t *to, const tiff_reader *r, const uint8_t *from, size_t count)
{
    if (r->bits == 8) {
        memcpy(to, from, count);
    } else if (r->bits == 16) {
        for (size_t i = 0; i < count; i++) {
            uint16_t v;
            memcpy(&v, from + 2 * i, 2);
            to[i] = (uint8_t)(v >> 8);
        }
    } else {
        unsigned per = 8u / r->bits, low = (1u << r->bits) - 1;
        unsigned stretch = r->photometric == PHOTOMETRIC_PALETTE ? 1 : 255 / low;
        for (size_t i = 0; i < count; i++)
            to[i] = (uint8_t)((from[i / per] >> (8 - r->bits * (i % per + 1)) & low) * stretch);
    }
}

static void remove_alpha(uint8_t *rgb, unsigned alpha)
{
    for (int c = 0; c < 3 && alpha; c++) {
        unsigned v = rgb[c] * 255u / alpha;
        rgb[c] = (uint8_t)(v > 255 ? 255 : v);
    }
}

/* One row of samples, `step` apart, into the picture; `plane` is the channel when stored apart, else -1. */
static void place(uint8_t *rgb, const tiff_reader *r, const uint8_t *s, size_t step, size_t count, int plane)
{
    for (size_t i = 0; i < count; i++, s += step, rgb += 3) {
        if (r->photometric == PHOTOMETRIC_RGB && plane >= 0) {
            rgb[plane] = *s;
        } else if (r->photometric == PHOTOMETRIC_RGB) {
            memcpy(rgb, s, 3);
            if (r->premultiplied)
                remove_alpha(rgb, s[3]);
        } else if (r->photometric == PHOTOMETRIC_PALETTE) {
            for (int c = 0; c < 3; c++)
                rgb[c] = (uint8_t)(r->map[c][*s] >> r->map_shift);
        } else {
            memset(rgb, r->photometric == PHOTOMETRIC_MINISWHITE ? 255 - *s : *s, 3);
        }
    }
}

typedef struct layout {
    bool     tiled;
    uint32_t width, height;    /* of a strip or tile */
    size_t   bytes, row_bytes;
} layout;

static bool find_layout(layout *l, const tiff_reader *r)
{
    l->tiled = TIFFIsTiled(r->tiff);
    l->width = r->width;
    l->height = r->height;
    if (l->tiled) {
        TIFFGetField(r->tiff, TIFFTAG_TILEWIDTH, &l->width);
        TIFFGetField(r->tiff, TIFFTAG_TILELENGTH, &l->height);
    } else {
        uint32_t rows = 0;
        TIFFGetFieldDefaulted(r->tiff, TIFFTAG_ROWSPERSTRIP, &rows);
        l->height = rows && rows < r->height ? rows : r->height;
    }
    tmsize_t bytes = l->tiled ? TIFFTileSize(r->tiff) : TIFFStripSize(r->tiff);
    tmsize_t row = l->tiled ? TIFFTileRowSize(r->tiff) : TIFFScanlineSize(r->tiff);
    uint64_t samples = (uint64_t)l->width * (r->planar == PLANARCONFIG_CONTIG ? r->channels : 1);
    uint64_t most = (64u << 20) + (uint64_t)r->width * r->height * r->channels * 2;
    if (bytes <= 0 || row <= 0 || (uint64_t)bytes > most || samples > most ||
        (samples * r->bits + 7) / 8 > (uint64_t)row || (uint64_t)row * l->height > (uint64_t)bytes)
        return false;
    l->bytes = (size_t)bytes;
    l->row_bytes = (size_t)row;
    return true;
}

/* A part of the picture that is wanted, and where its pixels go. */
typedef struct part {
    uint32_t x0, y0, x1, y1;
    uint8_t *rgb;                /* [y1 - y0, x1 - x0, 3] */
} part;

/* Places what the strip or tile at (x, y) and the part have in common. */
static int read_chunk(const part *to, tiff_reader *r, const layout *l, uint32_t x, uint32_t y, uint16_t plane,
                      samite_error *err)
{
    bool apart = r->planar == PLANARCONFIG_SEPARATE;
    uint32_t columns = r->width - x < l->width ? r->width - x : l->width;
    uint32_t rows = r->height - y < l->height ? r->height - y : l->height;
    uint32_t index = l->tiled ? TIFFComputeTile(r->tiff, x, y, 0, plane) : TIFFComputeStrip(r->tiff, y, plane);
    size_t want = l->tiled ? l->bytes : rows * l->row_bytes;
    tmsize_t got = l->tiled ? TIFFReadEncodedTile(r->tiff, index, r->chunk, (tmsize_t)want)
                            : TIFFReadEncodedStrip(r->tiff, index, r->chunk, (tmsize_t)want);
    if (got < 0 || (size_t)got < want)
        return fail_damaged(r, err);
    size_t step = apart ? 1 : r->channels;
    uint32_t left = x > to->x0 ? x : to->x0, right = x + columns < to->x1 ? x + columns : to->x1;
    for (uint32_t i = 0; i < rows; i++) {
        if (y + i < to->y0 || y + i >= to->y1)
            continue;
        unpack(r->samples, r, r->chunk + i * l->row_bytes, columns * step);
        place(to->rgb + ((size_t)(y + i - to->y0) * (to->x1 - to->x0) + (left - to->x0)) * 3, r,
              r->samples + (left - x) * step, step, right - left, apart ? (int)plane : -1);
    }
    return SAMITE_OK;
}

/* Finds the layout and takes memory for one strip or tile. */
static int prepare_plain(layout *l, tiff_reader *r, samite_error *err)
{
    if ((r->photometric == PHOTOMETRIC_PALETTE && !read_map(r)) || !find_layout(l, r))
        return fail_damaged(r, err);
    bool apart = r->planar == PLANARCONFIG_SEPARATE;
    r->chunk = calloc(1, l->bytes);
    r->samples = malloc((size_t)l->width * (apart ? 1 : r->channels));
    if (!r->chunk || !r->samples)
        return fail(err, SAMITE_RESOURCE, "%s: no memory for reading TIFF", r->src->name);
    return SAMITE_OK;
}

/* Reads the strips or tiles that the part touches. */
static int read_part(const part *to, tiff_reader *r, const layout *l, samite_error *err)
{
    uint16_t planes = r->planar == PLANARCONFIG_SEPARATE && r->photometric == PHOTOMETRIC_RGB ? 3 : 1;
    int code = SAMITE_OK;
    for (uint16_t plane = 0; plane < planes; plane++) {
        for (uint64_t y = to->y0 / l->height * l->height; y < to->y1 && code == SAMITE_OK; y += l->height) {
            for (uint64_t x = to->x0 / l->width * l->width; x < to->x1 && code == SAMITE_OK; x += l->width)
                code = read_chunk(to, r, l, (uint32_t)x, (uint32_t)y, plane, err);
        }
    }
    return code;
}

static int read_plain(pixels *out, tiff_reader *r, samite_error *err)
{
    layout l;
    int code = prepare_plain(&l, r, err);
    return code ? code : read_part(&(part){0, 0, r->width, r->height, out->rgb}, r, &l, err);
}

/* CMYK, YCbCr, Lab and the like: libtiff converts to RGBA, in stored order (the orientation is applied later). */
static int read_converted(pixels *out, tiff_reader *r, samite_error *err)
{
    char why[1024] = "";
    if (!TIFFRGBAImageOK(r->tiff, why))
        return fail(err, SAMITE_INPUT, "%s: this kind of TIFF cannot be read (%.120s): convert it to 8-bit RGB",
                    r->src->name, why);
    size_t count = (size_t)r->width * r->height;
    uint32_t *raster = calloc(count, sizeof *raster);
    if (!raster)
        return fail(err, SAMITE_RESOURCE, "%s: no memory for reading TIFF", r->src->name);
    int code = SAMITE_OK;
    if (!TIFFReadRGBAImageOriented(r->tiff, r->width, r->height, raster, out->exif_orientation, 1))
        code = fail_damaged(r, err);
    for (size_t i = 0; i < count && code == SAMITE_OK; i++) {
        uint32_t v = raster[i];
        memcpy(out->rgb + 3 * i, (uint8_t[]){TIFFGetR(v), TIFFGetG(v), TIFFGetB(v)}, 3);
    }
    free(raster);
    return code;
}

int decode_tiff(pixels *out, const image_source *src, samite_error *err)
{
    tiff_reader r = {.src = src};
    r.tiff = open_source(&r);
    if (!r.tiff)
        return fail_damaged(&r, err);
    read_tags(out, &r);
    int code = r.ended_early ? fail_truncated(src, "TIFF", err) : SAMITE_OK;
    if (code == SAMITE_OK)
        code = pixels_alloc(out, src, r.width, r.height, err);
    if (code == SAMITE_OK)
        code = is_plain(&r) ? read_plain(out, &r, err) : read_converted(out, &r, err);
    TIFFClose(r.tiff);
    free(r.chunk);
    free(r.samples);
    return code;
}

/* ---- in parts ---- */

struct tiff_regions {
    file_map     map;
    image_source src;
    tiff_reader  reader;
    layout       layout;
};

/* What can be read in parts: kinds that need no conversion, upright, in strips or tiles of a usable size. */
static int check_regions(tiff_regions *t, const pixels *tags, samite_error *err)
{
    const tiff_reader *r = &t->reader;
    if (r->width == 0 || r->height == 0 || r->width > INT32_MAX || r->height > UINT32_MAX / r->width)
        return fail(err, SAMITE_INPUT, "%s: %u x %u pixels; expected at least 1 and less than 2^32", t->src.name,
                    r->width, r->height);
    if (!is_plain(r) || tags->exif_orientation > 1)
        return fail(err, SAMITE_INPUT, "%s: this kind of TIFF cannot be read in parts: convert it to upright 8-bit RGB",
                    t->src.name);
    int code = prepare_plain(&t->layout, &t->reader, err);
    if (!code && t->layout.bytes > LARGEST_CHUNK)
        code = fail(err, SAMITE_RESOURCE, "%s: one strip of it takes %zu MB: rewrite it in tiles", t->src.name,
                    t->layout.bytes >> 20);
    return code;
}

int tiff_regions_open(tiff_regions **out, const char *path, samite_error *err)
{
    tiff_regions *t = calloc(1, sizeof *t);
    pixels tags = {.exif_orientation = 1};
    *out = NULL;
    if (!t)
        return fail(err, SAMITE_RESOURCE, "%s: no memory for reading TIFF", path);
    int code = file_map_open(&t->map, path, err);
    t->src = (image_source){t->map.data, t->map.size, t->map.path, LARGEST_CHUNK / 8, false};
    t->reader.src = &t->src;
    t->reader.forget = true;
    if (!code && !(t->reader.tiff = open_source(&t->reader)))
        code = fail_damaged(&t->reader, err);
    if (!code) {
        read_tags(&tags, &t->reader);
        code = check_regions(t, &tags, err);
    }
    if (code)
        tiff_regions_close(t);
    else
        *out = t;
    return code;
}

void tiff_regions_size(const tiff_regions *t, int *width, int *height)
{
    *width = (int)t->reader.width;
    *height = (int)t->reader.height;
}

int tiff_regions_read(tiff_regions *t, uint8_t *rgb, int x, int y, int width, int height, samite_error *err)
{
    if (x < 0 || y < 0 || width < 1 || height < 1 || (uint32_t)x + (uint32_t)width > t->reader.width ||
        (uint32_t)y + (uint32_t)height > t->reader.height)
        return fail(err, SAMITE_USAGE, "%s: the part %d,%d of %d x %d pixels reaches outside", t->src.name, x, y, width,
                    height);
    part to = {(uint32_t)x, (uint32_t)y, (uint32_t)(x + width), (uint32_t)(y + height), rgb};
    return read_part(&to, &t->reader, &t->layout, err);
}

void tiff_regions_close(tiff_regions *t)
{
    if (!t)
        return;
    if (t->reader.tiff)
        TIFFClose(t->reader.tiff);
    free(t->reader.chunk);
    free(t->reader.samples);
    file_map_close(&t->map);
    free(t);
}
