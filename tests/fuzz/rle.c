/* rle.c - any text as a compressed mask: decodes to itself, and its outlines fill to the same mask. */
#include <stdlib.h>
#include <string.h>

#include "io/mask.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_outlines(const rle *r)
{
    polygons p;
    samite_error err;
    if (mask_to_polygons(&p, r, 0, &err) != SAMITE_OK)
        abort();
    uint64_t area = 0;
    for (size_t i = 0, at = 0; i < p.count; at = p.ends[i++]) {
        size_t n = p.ends[i] - at;
        double *xy = malloc(n * 2 * sizeof *xy);
        for (size_t k = 0; k < 2 * n; k++)
            xy[k] = p.xy[2 * at + k];
        rle one;
        if (rle_from_polygon(&one, xy, n, r->width, r->height, &err) != SAMITE_OK ||
            rle_intersection(&one, r) != rle_area(&one))
            abort();
        area += rle_area(&one);
        rle_free(&one);
        free(xy);
    }
    if (area != rle_area(r))
        abort();
    polygons_free(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    int width = data[0] % 64 + 1, height = data[1] % 64 + 1;
    rle r, again;
    samite_error err;
    if (rle_from_string(&r, (const char *)data + 2, size - 2, width, height, "fuzz", &err) != SAMITE_OK)
        return 0;
    char *text;
    if (rle_to_string(&text, &r, &err) != SAMITE_OK ||
        rle_from_string(&again, text, strlen(text), width, height, "again", &err) != SAMITE_OK ||
        again.runs != r.runs || memcmp(again.counts, r.counts, r.runs * sizeof *r.counts) != 0)
        abort();
    check_outlines(&r);
    free(text);
    rle_free(&again);
    rle_free(&r);
    return 0;
}
