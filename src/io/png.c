/* png.c - PNG through libpng: reading any kind as RGB, writing RGB, RGBA, gray, palette and one-bit pictures. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "base/file.h"
#include "io/decoders.h"

#define DEFLATE_RATIO 1032      /* deflate cannot shrink data more than this */
#define CHUNK_LIMIT   (64u << 20)

typedef struct png_reader {
    png_structp         png;
    png_infop           info;
    const image_source *src;
    size_t              at;
    bool                ended_early, started, complete;
    char                text[160];
} png_reader;

static void on_error(png_structp png, png_const_charp message)
{
    png_reader *r = png_get_error_ptr(png);
    snprintf(r->text, sizeof r->text, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    png_reader *r = png_get_io_ptr(png);
    if (n > r->src->size - r->at) {
        r->ended_early = true;
        png_error(png, "data end early");
    }
    memcpy(to, r->src->data + r->at, n);
    r->at += n;
}

/* Sets up conversion of every kind to 8-bit RGB. */
static void ask_for_rgb(png_reader *r)
{
    png_set_expand(r->png);
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_gray_to_rgb(r->png);
}

/* Refuses sizes that are over the limit or that so few bytes cannot hold. Call before conversions are set up. */
static int check_header(pixels *out, png_reader *r, samite_error *err)
{
    uint64_t width = png_get_image_width(r->png, r->info), height = png_get_image_height(r->png, r->info);
    uint64_t bits = (uint64_t)png_get_bit_depth(r->png, r->info) * png_get_channels(r->png, r->info);
    if (width * bits / 8 * height / DEFLATE_RATIO > r->src->size && height <= r->src->max_pixels / width)
        return fail_truncated(r->src, "PNG", err);
    return pixels_alloc(out, r->src, width, height, err);
}

static void find_orientation(pixels *out, png_reader *r)
{
    png_bytep exif = NULL;
    png_uint_32 size = 0;
    if (!png_get_eXIf_1(r->png, r->info, &size, &exif))
        return;
    int o = exif_find_orientation(exif, size);
    if (o)
        out->exif_orientation = o;
}

/* Everything that may jump out of libpng. */
static int read_picture(pixels *out, png_reader *r, samite_error *err)
{
    png_set_read_fn(r->png, r, read_bytes);
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(r->png, CHUNK_LIMIT);
    if (r->src->keep_truncated)
        png_set_compression_buffer_size(r->png, 64);   /* what does not come whole is lost */
    png_read_info(r->png, r->info);
    int code = check_header(out, r, err);
    if (code != SAMITE_OK)
        return code;
    ask_for_rgb(r);
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    size_t stride = (size_t)out->width * 3;
    if (png_get_rowbytes(r->png, r->info) != stride)
        png_error(r->png, "unexpected row size");
    find_orientation(out, r);
    r->started = true;
    for (int pass = 0; pass < passes; pass++) {
        for (size_t y = 0; y < (size_t)out->height; y++)
            png_read_row(r->png, out->rgb + y * stride, NULL);
    }
    r->complete = true;
    png_read_end(r->png, r->info);
    return SAMITE_OK;
}

/* Trouble after the last row does not hurt the picture. */
static int settle_failure(pixels *out, png_reader *r, samite_error *err)
{
    if (r->complete)
        return SAMITE_OK;
    if (r->started && r->src->keep_truncated) {
        out->truncated = true;
        return SAMITE_OK;
    }
    if (r->ended_early)
        return fail_truncated(r->src, "PNG", err);
    return fail(err, SAMITE_INPUT, "%s: damaged PNG (%s): get another copy", r->src->name, r->text);
}

int decode_png(pixels *out, const image_source *src, samite_error *err)
{
    png_reader *r = calloc(1, sizeof *r);
    if (r) {
        r->src = src;
        r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
        r->info = r->png ? png_create_info_struct(r->png) : NULL;
    }
    int code;
    if (!r || !r->info) {
        code = fail(err, SAMITE_RESOURCE, "%s: no memory for reading PNG", src->name);
    } else if (setjmp(png_jmpbuf(r->png)) == 0) {
        code = read_picture(out, r, err);
    } else {
        code = settle_failure(out, r, err);
    }
    if (code == SAMITE_OK)
        find_orientation(out, r);
    if (r)
        png_destroy_read_struct(&r->png, &r->info, NULL);
    free(r);
    return code;
}

typedef struct png_writer {
    png_structp png;
    png_infop   info;
    file_writer file;
    uint8_t    *row;
    char        text[160];
} png_writer;

static const struct { int type, depth, bytes; } kinds[] = {
    [PNG_BIT] = {PNG_COLOR_TYPE_GRAY, 1, 1},      [PNG_GRAY8] = {PNG_COLOR_TYPE_GRAY, 8, 1},
    [PNG_GRAY16] = {PNG_COLOR_TYPE_GRAY, 16, 2},  [PNG_PALETTE] = {PNG_COLOR_TYPE_PALETTE, 8, 1},
    [PNG_RGB8] = {PNG_COLOR_TYPE_RGB, 8, 3},      [PNG_RGBA8] = {PNG_COLOR_TYPE_RGB_ALPHA, 8, 4},
};

static void on_write_error(png_structp png, png_const_charp message)
{
    png_writer *w = png_get_error_ptr(png);
    snprintf(w->text, sizeof w->text, "%s", message);
    png_longjmp(png, 1);
}

static void write_bytes(png_structp png, png_bytep data, size_t n)
{
    png_writer *w = png_get_io_ptr(png);
    file_write(&w->file, data, n);
}

static void flush_bytes(png_structp png)
{
    (void)png;
}

/* One row as PNG stores it: bits packed from the left, 16-bit samples big-endian. */
static void pack_row(uint8_t *row, const png_image_data *image, size_t y)
{
    size_t width = (size_t)image->width, n = width * (size_t)kinds[image->kind].bytes;
    const uint8_t *from = (const uint8_t *)image->data + y * n;
    if (image->kind == PNG_BIT) {
        memset(row, 0, (width + 7) / 8);
        for (size_t x = 0; x < width; x++)
            row[x / 8] |= (uint8_t)(from[x] ? 0x80 >> (x & 7) : 0);
    } else if (image->kind == PNG_GRAY16) {
        for (size_t x = 0; x < width; x++) {
            uint16_t v;
            memcpy(&v, from + 2 * x, 2);
            row[2 * x] = (uint8_t)(v >> 8);
            row[2 * x + 1] = (uint8_t)v;
        }
    } else {
        memcpy(row, from, n);
    }
}

static int write_picture(png_writer *w, const png_image_data *image)
{
    if (setjmp(png_jmpbuf(w->png)) != 0)
        return SAMITE_FAILED;
    png_set_write_fn(w->png, w, write_bytes, flush_bytes);
    png_set_user_limits(w->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_compression_level(w->png, 6);
    png_set_IHDR(w->png, w->info, (png_uint_32)image->width, (png_uint_32)image->height, kinds[image->kind].depth,
                 kinds[image->kind].type, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (image->kind == PNG_PALETTE) {
        png_color colours[256] = {{0}};
        for (int i = 0; i < image->colours; i++)
            colours[i] = (png_color){image->palette[3 * i], image->palette[3 * i + 1], image->palette[3 * i + 2]};
        png_set_PLTE(w->png, w->info, colours, image->colours);
    }
    png_write_info(w->png, w->info);
    for (size_t y = 0; y < (size_t)image->height; y++) {
        pack_row(w->row, image, y);
        png_write_row(w->png, w->row);
    }
    png_write_end(w->png, w->info);
    return SAMITE_OK;
}

int image_write_png(const char *path, const png_image_data *image, samite_error *err)
{
    if (image->width < 1 || image->height < 1 ||
        (image->kind == PNG_PALETTE && (image->colours < 1 || image->colours > 256)))
        return fail(err, SAMITE_USAGE, "%s: a PNG of %d x %d pixels cannot be written", path, image->width,
                    image->height);
    png_writer *w = calloc(1, sizeof *w);
    if (w) {
        w->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, w, on_write_error, on_warning);
        w->info = w->png ? png_create_info_struct(w->png) : NULL;
        w->row = malloc((size_t)image->width * (size_t)kinds[image->kind].bytes);
    }
    int code = SAMITE_RESOURCE;
    if (!w || !w->info || !w->row) {
        fail(err, code, "%s: no memory for writing PNG", path);
    } else if ((code = file_writer_open(&w->file, path, err)) == SAMITE_OK) {
        if ((code = write_picture(w, image)) == SAMITE_OK) {
            code = file_writer_commit(&w->file, err);
        } else {
            file_writer_abort(&w->file);
            fail(err, code, "%s: PNG cannot be written: %s", path, w->text);
        }
    }
    if (w) {
        png_destroy_write_struct(&w->png, &w->info);
        free(w->row);
    }
    free(w);
    return code;
}
