/* mask_file.c - a picture file as a mask: bright is inside. */
#include "mask_file.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/error.h"

/* Column by column, background first. */
static int count_runs(samite_mask *out, const samite_pixels *p, samite_error *err)
{
    uint32_t *counts = calloc((size_t)p->width * (size_t)p->height + 1, sizeof *counts);
    size_t runs = 0;
    bool inside = false;
    if (!counts)
        return fail(err, SAMITE_RESOURCE, "out of memory for a mask of %d x %d pixels", p->width, p->height);
    for (int x = 0; x < p->width; x++)
        for (int y = 0; y < p->height; y++) {
            const uint8_t *rgb = p->rgb + 3 * ((size_t)y * (size_t)p->width + (size_t)x);
            if ((rgb[0] > 127 || rgb[1] > 127 || rgb[2] > 127) != inside) {
                inside = !inside;
                runs++;
            }
            counts[runs]++;
        }
    *out = (samite_mask){p->width, p->height, counts, runs + 1};
    return SAMITE_OK;
}

static bool is_empty(const samite_mask *m)
{
    return m->runs < 2;
}

int mask_file_read(samite_mask *out, const char *path, int width, int height, const char *whose, samite_error *err)
{
    samite_pixels p = {0};
    int code = samite_pixels_read(&p, path, SAMITE_NO_EXIF, err);
    if (!code && (p.width != width || p.height != height))
        code = fail(err, SAMITE_INPUT, "%s: a mask of %d x %d pixels does not fit %s of %d x %d", path, p.width,
                    p.height, whose, width, height);
    if (!code)
        code = count_runs(out, &p, err);
    if (!code && is_empty(out)) {
        mask_file_free(out);
        code = fail(err, SAMITE_INPUT, "%s: nothing in this mask is bright, so it shows no object", path);
    }
    samite_pixels_free(&p);
    return code;
}

void mask_file_free(samite_mask *m)
{
    free((uint32_t *)(uintptr_t)m->counts);
    *m = (samite_mask){0};
}
