/* jpeg.c - JPEG through libjpeg-turbo: reading any colour layout as RGB, writing RGB. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "base/file.h"
#include "io/decoders.h"

/* Real progressive files have about ten; thousands of scans over a large picture stall a reader. */
#define MAX_SCANS 200

typedef struct jpeg_reader {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr         errors;
    struct jpeg_progress_mgr      monitor;
    jmp_buf                       failed;
    char                          text[JMSG_LENGTH_MAX];
    bool                          ended_early, keep_truncated;
} jpeg_reader;

static void on_error(j_common_ptr c)
{
    jpeg_reader *r = c->client_data;
    c->err->format_message(c, r->text);
    longjmp(r->failed, 1);
}

/* Warnings about odd data are passed over, as other readers do; only the end of the file counts. */
static void on_message(j_common_ptr c, int level)
{
    jpeg_reader *r = c->client_data;
    if (level >= 0 || c->err->msg_code != JWRN_JPEG_EOF)
        return;
    r->ended_early = true;
    if (!r->keep_truncated)
        longjmp(r->failed, 1);
}

static void on_progress(j_common_ptr c)
{
    jpeg_reader *r = c->client_data;
    if (r->c.input_scan_number > MAX_SCANS) {
        snprintf(r->text, sizeof r->text, "more than %d scans", MAX_SCANS);
        longjmp(r->failed, 1);
    }
}

static int find_orientation(const jpeg_reader *r)
{
    static const char xmp[] = "http://ns.adobe.com/xap/1.0/";
    int from_xmp = 0;
    for (jpeg_saved_marker_ptr m = r->c.marker_list; m; m = m->next) {
        if (m->data_length >= 6 && memcmp(m->data, "Exif\0\0", 6) == 0) {
            int o = exif_find_orientation(m->data, m->data_length);
            if (o)
                return o;
        } else if (m->data_length > sizeof xmp && memcmp(m->data, xmp, sizeof xmp) == 0 && !from_xmp) {
            from_xmp = xmp_find_orientation(m->data, m->data_length);
        }
    }
    return from_xmp ? from_xmp : 1;
}

static uint8_t scale255(unsigned a, unsigned b)
{
    unsigned t = a * b + 128;
    return (uint8_t)((t + (t >> 8)) >> 8);
}

/* Four inks, stored inverted as Adobe does (and as every reader assumes), to RGB without a colour profile. */
static void inks_to_rgb(uint8_t *rgb, const uint8_t *inks, int width)
{
    for (int x = 0; x < width; x++, rgb += 3, inks += 4) {
        for (int i = 0; i < 3; i++)
            rgb[i] = (uint8_t)(inks[3] - scale255(255u - inks[i], inks[3]));
    }
}

static int read_rows(pixels *out, jpeg_reader *r)
{
    struct jpeg_decompress_struct *c = &r->c;
    bool inks = c->out_color_space == JCS_CMYK;
    JSAMPARRAY line = inks ? c->mem->alloc_sarray((j_common_ptr)c, JPOOL_IMAGE, c->output_width * 4, 1) : NULL;
    while (c->output_scanline < c->output_height) {
        uint8_t *row = out->rgb + (size_t)c->output_scanline * (size_t)out->width * 3;
        JSAMPROW to = inks ? line[0] : row;
        if (jpeg_read_scanlines(c, &to, 1) == 1 && inks)
            inks_to_rgb(row, line[0], out->width);
    }
    return SAMITE_OK;
}

/* Everything that may jump to r->failed. */
static int read_picture(pixels *out, jpeg_reader *r, const image_source *src, samite_error *err)
{
    struct jpeg_decompress_struct *c = &r->c;
    jpeg_mem_src(c, src->data, (unsigned long)src->size);
    jpeg_save_markers(c, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(c, TRUE);
    out->exif_orientation = find_orientation(r);
    if (c->num_components != 1 && c->num_components != 3 && c->num_components != 4)
        return fail(err, SAMITE_INPUT, "%s: JPEG with %d colour components: expected 1, 3 or 4; convert it first",
                    src->name, c->num_components);
    /* Huffman codes take at least one bit for each block of 8 x 8. */
    if (!c->arith_code && !src->keep_truncated && (uint64_t)c->image_width * c->image_height / 64 / 8 > src->size)
        return fail_truncated(src, "JPEG", err);
    c->out_color_space = c->num_components == 4 ? JCS_CMYK : JCS_RGB;
    int code = pixels_alloc(out, src, c->image_width, c->image_height, err);
    if (code != SAMITE_OK)
        return code;
    jpeg_start_decompress(c);
    return read_rows(out, r);
}

/* Sets *ended_early if the data did, whether that made it fail or not. */
static int decode_once(pixels *out, const image_source *src, bool *ended_early, samite_error *err)
{
    jpeg_reader *r = calloc(1, sizeof *r);
    if (!r)
        return fail(err, SAMITE_RESOURCE, "%s: no memory for reading JPEG", src->name);
    int code;
    r->keep_truncated = src->keep_truncated;
    r->c.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->monitor.progress_monitor = on_progress;
    r->c.client_data = r;
    if (setjmp(r->failed) == 0) {
        jpeg_create_decompress(&r->c);
        r->c.client_data = r;
        r->c.progress = &r->monitor;
        code = read_picture(out, r, src, err);
        out->truncated = r->ended_early;
    } else if (r->ended_early && !r->keep_truncated) {
        code = fail_truncated(src, "JPEG", err);
    } else {
        code = fail(err, SAMITE_INPUT, "%s: damaged or unusual JPEG (%s): convert it or get another copy", src->name,
                    r->text);
    }
    *ended_early = r->ended_early;
    jpeg_destroy_decompress(&r->c);
    free(r);
    return code;
}

/* Where the last marker starts that is not part of a scan's data. */
static size_t last_marker(const image_source *src)
{
    for (size_t i = src->size < 2 ? 0 : src->size - 1; i-- > 0;) {
        if (src->data[i] == 0xff && src->data[i + 1] >= 0xc0 && (src->data[i + 1] < 0xd0 || src->data[i + 1] > 0xd7) &&
            src->data[i + 1] < 0xff)
            return i;
    }
    return 0;
}

int decode_jpeg(pixels *out, const image_source *src, samite_error *err)
{
    bool ended_early = false;
    int code = decode_once(out, src, &ended_early, err);
    if (code == SAMITE_OK || code == SAMITE_RESOURCE || !src->keep_truncated || !ended_early)
        return code;
    /* The file ends inside a table between two scans: what comes before it may still be a picture. */
    image_source shorter = *src;
    shorter.size = last_marker(src);
    pixels_free(out);
    out->format = "JPEG";
    return decode_once(out, &shorter, &ended_early, err);
}

typedef struct jpeg_writer {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr       errors;
    jmp_buf                     failed;
    char                        text[JMSG_LENGTH_MAX];
    unsigned char              *bytes;
    unsigned long               size;
} jpeg_writer;

static void on_write_error(j_common_ptr c)
{
    jpeg_writer *w = c->client_data;
    c->err->format_message(c, w->text);
    longjmp(w->failed, 1);
}

static int compress(jpeg_writer *w, const uint8_t *rgb, int width, int height, int quality)
{
    w->c.err = jpeg_std_error(&w->errors);
    w->errors.error_exit = on_write_error;
    w->c.client_data = w;
    if (setjmp(w->failed) != 0)
        return SAMITE_FAILED;
    jpeg_create_compress(&w->c);
    w->c.client_data = w;
    jpeg_mem_dest(&w->c, &w->bytes, &w->size);
    w->c.image_width = (JDIMENSION)width;
    w->c.image_height = (JDIMENSION)height;
    w->c.input_components = 3;
    w->c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&w->c);
    jpeg_set_quality(&w->c, quality, TRUE);
    w->c.optimize_coding = TRUE;
    jpeg_start_compress(&w->c, TRUE);
    while (w->c.next_scanline < w->c.image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + (size_t)w->c.next_scanline * (size_t)width * 3);
        jpeg_write_scanlines(&w->c, &row, 1);
    }
    jpeg_finish_compress(&w->c);
    return SAMITE_OK;
}

int image_encode_jpeg(uint8_t **out, size_t *size, const uint8_t *rgb, int width, int height, int quality,
                      const char *name, samite_error *err)
{
    *out = NULL;
    *size = 0;
    if (width < 1 || height < 1 || width > JPEG_MAX_DIMENSION || height > JPEG_MAX_DIMENSION)
        return fail(err, SAMITE_USAGE, "%s: JPEG holds up to %ld pixels a side, not %d x %d: write PNG instead", name,
                    (long)JPEG_MAX_DIMENSION, width, height);
    jpeg_writer *w = calloc(1, sizeof *w);
    if (!w)
        return fail(err, SAMITE_RESOURCE, "%s: no memory for writing JPEG", name);
    int code = compress(w, rgb, width, height, quality);
    jpeg_destroy_compress(&w->c);
    if (code != SAMITE_OK) {
        fail(err, code, "%s: JPEG cannot be written: %s", name, w->text);
        free(w->bytes);
        w->bytes = NULL;
    }
    *out = w->bytes;
    *size = w->size;
    free(w);
    return code;
}

int image_write_jpeg(const char *path, const uint8_t *rgb, int width, int height, int quality, samite_error *err)
{
    uint8_t *bytes;
    size_t size;
    file_writer f;
    int code = image_encode_jpeg(&bytes, &size, rgb, width, height, quality, path, err);
    if (code == SAMITE_OK && (code = file_writer_open(&f, path, err)) == SAMITE_OK) {
        file_write(&f, bytes, size);
        code = file_writer_commit(&f, err);
    }
    free(bytes);
    return code;
}
