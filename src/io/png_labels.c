/* png_labels.c - PNG masks and label maps: sample values as stored, no colours. */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "io/decoders.h"

typedef struct label_reader {
    png_structp         png;
    png_infop           info;
    const image_source *src;
    size_t              at;
    uint16_t           *values;
    uint8_t            *row;
    int                 width, height;
    char                text[160];
} label_reader;

static void on_error(png_structp png, png_const_charp message)
{
    label_reader *r = png_get_error_ptr(png);
    snprintf(r->text, sizeof r->text, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    label_reader *r = png_get_io_ptr(png);
    if (n > r->src->size - r->at)
        png_error(png, "data end early");
    memcpy(to, r->src->data + r->at, n);
    r->at += n;
}

/* What may jump out of libpng. Interlaced files come row by row only after several passes, so all rows are kept. */
static int read_values(label_reader *r, samite_error *err)
{
    png_set_read_fn(r->png, r, read_bytes);
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_read_info(r->png, r->info);
    int kind = png_get_color_type(r->png, r->info), bits = png_get_bit_depth(r->png, r->info);
    uint64_t width = png_get_image_width(r->png, r->info), height = png_get_image_height(r->png, r->info);
    if (kind != PNG_COLOR_TYPE_GRAY && kind != PNG_COLOR_TYPE_PALETTE)
        return fail(err, SAMITE_INPUT, "%s: a coloured PNG; masks are gray or palette pictures", r->src->name);
    if (height > r->src->max_pixels / width)
        return fail(err, SAMITE_INPUT, "%s: %llu x %llu pixels are more than the limit of %llu", r->src->name,
                    (unsigned long long)width, (unsigned long long)height, (unsigned long long)r->src->max_pixels);
    size_t bytes = bits == 16 ? 2 : 1;
    png_set_packing(r->png);
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    r->width = (int)width;
    r->height = (int)height;
    r->values = calloc((size_t)width * (size_t)height, sizeof *r->values);
    r->row = calloc((size_t)width * (size_t)(passes > 1 ? height : 1), bytes);
    if (!r->values || !r->row)
        return fail(err, SAMITE_RESOURCE, "%s: no memory for reading PNG", r->src->name);
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < (size_t)height; y++) {
            uint8_t *row = r->row + (passes > 1 ? y * (size_t)width * bytes : 0);
            png_read_row(r->png, row, NULL);
            for (size_t x = 0; x < (size_t)width && pass == passes - 1; x++)
                r->values[y * (size_t)width + x] = (uint16_t)(bytes == 2 ? row[2 * x] << 8 | row[2 * x + 1] : row[x]);
        }
    return SAMITE_OK;
}

int image_decode_labels(uint16_t **values, int *width, int *height, const uint8_t *data, size_t size, const char *name,
                        uint64_t max_pixels, samite_error *err)
{
    image_source src = {data, size, name, max_pixels ? max_pixels : IMAGE_MAX_PIXELS, false};
    label_reader *r = calloc(1, sizeof *r);
    *values = NULL;
    if (r) {
        r->src = &src;
        r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
        r->info = r->png ? png_create_info_struct(r->png) : NULL;
    }
    int code;
    if (size < 8 || png_sig_cmp(data, 0, 8) != 0)
        code = fail(err, SAMITE_INPUT, "%s: not a PNG", name);
    else if (!r || !r->info)
        code = fail(err, SAMITE_RESOURCE, "%s: no memory for reading PNG", name);
    else if (setjmp(png_jmpbuf(r->png)) == 0)
        code = read_values(r, err);
    else
        code = fail(err, SAMITE_INPUT, "%s: damaged or truncated PNG (%s)", name, r->text);
    if (r) {
        *width = r->width;
        *height = r->height;
        *values = code ? NULL : r->values;
        if (code)
            free(r->values);
        free(r->row);
        png_destroy_read_struct(&r->png, &r->info, NULL);
    }
    free(r);
    return code;
}
