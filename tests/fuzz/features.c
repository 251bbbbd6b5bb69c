/* features.c - fuzz target: any bytes as a file of `samite encode`, loaded and asked about. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "samite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The smallest model at its smallest side; seeds are of the same. */
static samite_model *open_model(void)
{
    samite_model *m = NULL;
    samite_options o = SAMITE_OPTIONS_INIT;
    o.input_side = 56;
    o.threads = 1;
    return samite_model_open(&m, "formula:tiny", &o, NULL) ? NULL : m;
}

static void load(samite_model *m, const char *path)
{
    samite_error err;
    samite_image *im;
    samite_pixels pixels;
    if (samite_image_load(&im, m, path, &pixels, &err))
        return;
    samite_prompt p = SAMITE_PROMPT_INIT;
    samite_result *res;
    p.text = "dog";
    p.no_masks = 1;
    if (samite_image_segment(im, &p, &res, &err) == SAMITE_OK)
        samite_result_free(res);
    samite_image_free(im);
    samite_pixels_free(&pixels);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static samite_model *m;
    char path[64];
    int file = memfd_create("fuzz", 0);
    if (!m && !(m = open_model()))
        abort();
    if (file < 0)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (write(file, data, size) == (ssize_t)size)
        load(m, path);
    close(file);
    return 0;
}
