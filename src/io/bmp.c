/* bmp.c - BMP: 1, 4, 8, 16, 24 and 32 bit, bit fields, RLE4, RLE8, top-down, OS/2 headers; own parser. */
#include <stdlib.h>
#include <string.h>

#include "io/decoders.h"

enum { BI_RGB = 0, BI_RLE8 = 1, BI_RLE4 = 2, BI_BITFIELDS = 3, BI_ALPHABITFIELDS = 6 };

typedef struct bmp_reader {
    const image_source *src;
    size_t              at;              /* of the pixels */
    uint64_t            width, height;
    bool                top_down;
    unsigned            bits, compression;
    uint32_t            mask[3];         /* red, green, blue of 16 and 32 bit */
    uint8_t             palette[256][3]; /* red, green, blue */
} bmp_reader;

static uint32_t le16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t le32(const uint8_t *p)
{
    return le16(p) | le16(p + 2) << 16;
}

static int fail_damaged(const image_source *src, const char *what, samite_error *err)
{
    return fail(err, SAMITE_INPUT, "%s: damaged or unusual BMP (%s): convert it or get another copy", src->name, what);
}

/* Size, depth and compression from the header of `size` bytes after the 14 of the file header. */
static void read_fields(bmp_reader *r, const uint8_t *h, uint32_t size)
{
    if (size == 12) {
        r->width = le16(h + 4);
        r->height = le16(h + 6);
        r->bits = le16(h + 10);
        return;
    }
    uint32_t height = le32(h + 8);
    r->width = le32(h + 4);
    r->top_down = height >> 31;
    r->height = r->top_down ? (uint32_t)(0u - height) : height;
    r->bits = le16(h + 14);
    r->compression = le32(h + 16);
}

static bool is_supported(const bmp_reader *r)
{
    switch (r->compression) {
    case BI_RGB: return r->bits == 1 || r->bits == 4 || r->bits == 8 || r->bits == 16 || r->bits == 24 || r->bits == 32;
    case BI_RLE8: return r->bits == 8 && !r->top_down;
    case BI_RLE4: return r->bits == 4 && !r->top_down;
    case BI_BITFIELDS:
    case BI_ALPHABITFIELDS: return r->bits == 16 || r->bits == 32;
    default: return false;
    }
}

static int read_masks(bmp_reader *r, const uint8_t *h, samite_error *err)
{
    static const uint32_t of16[3] = {0x7c00, 0x03e0, 0x001f}, of32[3] = {0xff0000, 0xff00, 0xff};
    memcpy(r->mask, r->bits == 16 ? of16 : of32, sizeof r->mask);
    if (r->compression != BI_BITFIELDS && r->compression != BI_ALPHABITFIELDS)
        return SAMITE_OK;
    if (r->src->size < 14 + 40 + 12)
        return fail_truncated(r->src, "BMP", err);
    for (int c = 0; c < 3; c++) {
        r->mask[c] = le32(h + 40 + 4 * c);
        uint32_t m = r->mask[c];
        while (m && !(m & 1))
            m >>= 1;
        if (m == 0 || (m & (m + 1)))
            return fail_damaged(r->src, "colour mask is empty or has gaps", err);
    }
    return SAMITE_OK;
}

static int read_palette(bmp_reader *r, const uint8_t *h, uint32_t size, samite_error *err)
{
    size_t entry = size == 12 ? 3 : 4, all = (size_t)1 << r->bits, start = 14 + (size_t)size;
    size_t count = size >= 36 ? le32(h + 32) : 0;
    if (count == 0 || count > all)
        count = all;
    if (r->at >= start && (r->at - start) / entry < count)
        count = (r->at - start) / entry;
    if (start > r->src->size || (r->src->size - start) / entry < count)
        return fail_truncated(r->src, "BMP", err);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *p = r->src->data + start + i * entry;
        memcpy(r->palette[i], (uint8_t[]){p[2], p[1], p[0]}, 3);
    }
    return SAMITE_OK;
}

static int read_header(bmp_reader *r, samite_error *err)
{
    const image_source *src = r->src;
    if (src->size < 14 + 12)
        return fail_truncated(src, "BMP", err);
    const uint8_t *h = src->data + 14;
    uint32_t size = le32(h);
    if (size != 12 && (size < 16 || size > 1024))
        return fail_damaged(src, "header size", err);
    if (src->size < 14 + (size_t)size || (size > 12 && size < 40 && src->size < 14 + 40))
        return fail_truncated(src, "BMP", err);
    r->at = le32(src->data + 10);
    if (size != 12 && size < 20) {
        uint8_t padded[40] = {0};
        memcpy(padded, h, size);
        read_fields(r, padded, size);
    } else {
        read_fields(r, h, size);
    }
    if (!is_supported(r))
        return fail(err, SAMITE_INPUT, "%s: BMP with %u bits and compression %u is not supported: convert it to PNG",
                    src->name, r->bits, r->compression);
    return r->bits <= 8 ? read_palette(r, h, size, err) : r->bits == 24 ? SAMITE_OK : read_masks(r, h, err);
}

static uint8_t *row_of(pixels *out, const bmp_reader *r, size_t y)
{
    size_t row = r->top_down ? y : (size_t)out->height - 1 - y;
    return out->rgb + row * (size_t)out->width * 3;
}

static void unpack_indices(uint8_t *rgb, const bmp_reader *r, const uint8_t *from, size_t width)
{
    unsigned per = 8 / r->bits, low = (1u << r->bits) - 1;
    for (size_t x = 0; x < width; x++) {
        unsigned shift = 8 - r->bits * (unsigned)(x % per + 1);
        memcpy(rgb + 3 * x, r->palette[from[x / per] >> shift & low], 3);
    }
}

static void unpack_masked(uint8_t *rgb, const bmp_reader *r, const uint8_t *from, size_t width)
{
    size_t bytes = r->bits / 8;
    int shift[3];
    for (int c = 0; c < 3; c++)
        shift[c] = __builtin_ctz(r->mask[c]);
    for (size_t x = 0; x < width; x++, from += bytes, rgb += 3) {
        uint32_t v = bytes == 2 ? le16(from) : le32(from);
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)((uint64_t)((v & r->mask[c]) >> shift[c]) * 255 / (r->mask[c] >> shift[c]));
    }
}

static void unpack_row(uint8_t *rgb, const bmp_reader *r, const uint8_t *from, size_t width)
{
    if (r->bits <= 8) {
        unpack_indices(rgb, r, from, width);
    } else if (r->bits == 24) {
        for (size_t x = 0; x < width; x++)
            memcpy(rgb + 3 * x, (uint8_t[]){from[3 * x + 2], from[3 * x + 1], from[3 * x]}, 3);
    } else {
        unpack_masked(rgb, r, from, width);
    }
}

static int read_plain(pixels *out, const bmp_reader *r, samite_error *err)
{
    size_t width = (size_t)out->width, height = (size_t)out->height, stride = (width * r->bits + 31) / 32 * 4;
    size_t last = (width * r->bits + 7) / 8;   /* the last row need not be padded */
    size_t room = r->src->size - r->at, rows = room / stride;
    if (rows < height && room - rows * stride >= last)
        rows++;
    if (rows < height && !r->src->keep_truncated)
        return fail_truncated(r->src, "BMP", err);
    for (size_t y = 0; y < height && y < rows; y++)
        unpack_row(row_of(out, r, y), r, r->src->data + r->at + y * stride, width);
    out->truncated = rows < height;
    return SAMITE_OK;
}

typedef struct rle_cursor {
    size_t x, y;
} rle_cursor;

/* Puts `count` pixels; `from` is one byte for a run, or the literal bytes. Pixels beyond the row are dropped. */
static void put(pixels *out, const bmp_reader *r, rle_cursor *c, const uint8_t *from, size_t count, bool literal)
{
    size_t width = (size_t)out->width;
    for (size_t i = 0; i < count && c->x < width; i++, c->x++) {
        uint8_t b = literal ? from[r->bits == 4 ? i / 2 : i] : from[0];
        unsigned index = r->bits == 8 ? b : i & 1 ? b & 15u : b >> 4;
        memcpy(row_of(out, r, c->y) + 3 * c->x, r->palette[index], 3);
    }
}

/* Pixels that the data skip have colour 0. */
static void fill_background(pixels *out, const bmp_reader *r)
{
    size_t count = (size_t)out->width * (size_t)out->height;
    for (size_t i = 0; i < count; i++)
        memcpy(out->rgb + 3 * i, r->palette[0], 3);
}

static int read_runs(pixels *out, const bmp_reader *r, samite_error *err)
{
    const uint8_t *p = r->src->data + r->at, *end = r->src->data + r->src->size;
    rle_cursor c = {0, 0};
    fill_background(out, r);
    while (c.y < (size_t)out->height && end - p >= 2) {
        uint8_t count = p[0], value = p[1];
        p += 2;
        if (count > 0) {
            put(out, r, &c, p - 1, count, false);
        } else if (value == 0) {
            c.x = 0;
            c.y++;
        } else if (value == 1) {
            return SAMITE_OK;
        } else if (value == 2) {
            if (end - p < 2)
                break;
            c.x += p[0];
            c.y += p[1];
            p += 2;
        } else {
            size_t bytes = r->bits == 4 ? (value + 1u) / 2 : value, padded = (bytes + 1) / 2 * 2;
            if ((size_t)(end - p) < bytes)
                break;
            put(out, r, &c, p, value, true);
            p += (size_t)(end - p) < padded ? bytes : padded;
        }
    }
    bool full = c.y >= (size_t)out->height || (c.y + 1 == (size_t)out->height && c.x >= (size_t)out->width);
    out->truncated = !full;
    return full || r->src->keep_truncated ? SAMITE_OK : fail_truncated(r->src, "BMP", err);
}

int decode_bmp(pixels *out, const image_source *src, samite_error *err)
{
    bmp_reader r = {.src = src};
    int code = read_header(&r, err);
    if (code != SAMITE_OK)
        return code;
    if (r.at > src->size)
        return fail_truncated(src, "BMP", err);
    bool runs = r.compression == BI_RLE4 || r.compression == BI_RLE8;
    uint64_t least = runs ? 0 : r.width * r.bits / 8 * r.height;
    if (least > src->size && !src->keep_truncated && r.height <= src->max_pixels / r.width)
        return fail_truncated(src, "BMP", err);
    code = pixels_alloc(out, src, r.width, r.height, err);
    if (code != SAMITE_OK)
        return code;
    return runs ? read_runs(out, &r, err) : read_plain(out, &r, err);
}
