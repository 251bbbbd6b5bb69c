/* image.c - any bytes as a picture: whatever the sniffing makes of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/image.h"
#include "io/preprocess.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int keep = 0; keep < 2; keep++) {
        image_options opt = {.apply_exif = true, .keep_truncated = keep, .max_pixels = 1 << 20};
        pixels p;
        samite_error err = {0};
        int code = image_decode(&p, data, size, "fuzz", &opt, &err);
        if (code == SAMITE_OK) {
            uint8_t small[8 * 8 * 3];
            if ((uint64_t)p.width * (uint64_t)p.height > opt.max_pixels || p.exif_orientation < 1 ||
                p.exif_orientation > 8)
                abort();
            if (resize_rgb(small, 8, 8, &p, &err) != SAMITE_OK && err.code != SAMITE_RESOURCE)
                abort();
            pixels_free(&p);
        } else if (p.rgb || err.code != code || !err.text[0] || strchr(err.text, '\n')) {
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
    }
    return 0;
}
