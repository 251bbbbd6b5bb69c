/* exif.c - the orientation tag of EXIF and XMP, and turning a picture upright. */
#include <stdlib.h>
#include <string.h>

#include "io/decoders.h"

#define TAG_ORIENTATION 0x0112
#define TILE 32

static uint32_t number(const uint8_t *p, int bytes, bool big)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++)
        v = v << 8 | p[big ? i : bytes - 1 - i];
    return v;
}

static bool starts(const uint8_t *data, size_t size, const char *what, size_t n)
{
    return size >= n && memcmp(data, what, n) == 0;
}

int exif_find_orientation(const uint8_t *data, size_t size)
{
    if (starts(data, size, "Exif\0\0", 6))
        data += 6, size -= 6;
    bool big = starts(data, size, "MM\0*", 4);
    if (size < 8 || (!big && !starts(data, size, "II*\0", 4)))
        return 0;
    size_t at = number(data + 4, 4, big);
    if (at > size - 2)
        return 0;
    uint32_t entries = number(data + at, 2, big);
    at += 2;
    for (uint32_t i = 0; i < entries && size - at >= 12; i++, at += 12) {
        if (number(data + at, 2, big) != TAG_ORIENTATION)
            continue;
        bool is_long = number(data + at + 2, 2, big) == 4;
        uint32_t v = number(data + at + 8, is_long ? 4 : 2, big);
        return v >= 1 && v <= 8 ? (int)v : 0;
    }
    return 0;
}

int xmp_find_orientation(const uint8_t *data, size_t size)
{
    static const char key[] = "tiff:Orientation";
    const size_t n = sizeof key - 1;
    for (const uint8_t *end = data + size; size > n + 2; size = (size_t)(end - data)) {
        const uint8_t *hit = memchr(data, 't', size - n - 2);
        if (!hit)
            return 0;
        data = hit + 1;
        if (memcmp(hit, key, n) != 0)
            continue;
        const uint8_t *value = hit[n] == '>' ? hit + n + 1 : hit[n] == '=' && hit[n + 1] == '"' ? hit + n + 2 : NULL;
        if (value && value < end && *value >= '1' && *value <= '8')
            return *value - '0';
    }
    return 0;
}

/* Pixel (x, y) of the upright picture is source pixel start + x * step_x + y * step_y. */
static void turn(uint8_t *out, int width, int height, const uint8_t *start, ptrdiff_t step_x, ptrdiff_t step_y)
{
#pragma omp parallel for schedule(static)
    for (int y0 = 0; y0 < height; y0 += TILE) {
        for (int x0 = 0; x0 < width; x0 += TILE) {
            int x1 = width - x0 < TILE ? width : x0 + TILE, y1 = height - y0 < TILE ? height : y0 + TILE;
            for (int y = y0; y < y1; y++) {
                uint8_t *to = out + ((size_t)y * (size_t)width + (size_t)x0) * 3;
                for (int x = x0; x < x1; x++, to += 3)
                    memcpy(to, start + x * step_x + y * step_y, 3);
            }
        }
    }
}

int exif_apply(pixels *p, const char *name, samite_error *err)
{
    p->exif_applied = true;
    int o = p->exif_orientation;
    if (o < 2 || o > 8)
        return SAMITE_OK;
    bool swap = o >= 5;
    bool flip_column = o == 2 || o == 3 || o == 7 || o == 8;
    bool flip_row = o == 3 || o == 4 || o == 6 || o == 7;
    size_t stride = (size_t)p->width * 3, bytes = stride * (size_t)p->height;
    uint8_t *out = malloc(bytes);
    if (!out)
        return fail(err, SAMITE_RESOURCE, "%s: no memory for turning %d x %d pixels upright", name, p->width,
                    p->height);
    const uint8_t *start = p->rgb + (flip_row ? bytes - stride : 0) + (flip_column ? stride - 3 : 0);
    ptrdiff_t along = flip_column ? -3 : 3, down = flip_row ? -(ptrdiff_t)stride : (ptrdiff_t)stride;
    int width = swap ? p->height : p->width, height = swap ? p->width : p->height;
    turn(out, width, height, start, swap ? down : along, swap ? along : down);
    free(p->rgb);
    p->rgb = out;
    p->width = width;
    p->height = height;
    return SAMITE_OK;
}
