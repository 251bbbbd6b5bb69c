/* output.c - masks, label maps and overlays as picture files. */
#include "output.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "io/image.h"

#define MOST_LABELS 65535

int mask_view(rle *out, const samite_mask *m, const char *path, samite_error *err)
{
    *out = (rle){0};
    uint64_t size = 0;
    if (!m || !m->counts || m->runs == 0 || m->width <= 0 || m->height <= 0)
        return fail(err, SAMITE_USAGE, "%s: there is no mask to write (no_masks was asked for?)", path);
    for (size_t i = 0; i < m->runs; i++)
        size += m->counts[i];
    if (size != (uint64_t)m->width * (uint64_t)m->height)
        return fail(err, SAMITE_USAGE, "%s: the run lengths of a mask add up to %llu pixels, not to its %d x %d", path,
                    (unsigned long long)size, m->width, m->height);
    *out = (rle){m->width, m->height, (uint32_t *)(uintptr_t)m->counts, m->runs};
    return SAMITE_OK;
}

int page_check(samite_page *out, const samite_page *page, const char *path, samite_error *err)
{
    *out = (samite_page){0};
    if (!page || !path)
        return fail(err, SAMITE_USAGE, "no page or no path given to write results");
    memcpy(out, page, page->size < sizeof *out ? page->size : sizeof *out);
    const samite_pixels *p = out->pixels;
    if (!p || p->width <= 0 || p->height <= 0 || out->object_count < 0 || out->name_count < 0 || !out->file)
        return fail(err, SAMITE_USAGE, "%s: the page has no picture size, no file name or a negative count", path);
    for (int i = 0; i < out->object_count; i++) {
        const samite_object *o = &out->object[i];
        rle view;
        if (!o->instance || o->name < 0 || o->name >= out->name_count || !out->names[o->name])
            return fail(err, SAMITE_USAGE, "%s: object %d has no instance or no name", path, i + 1);
        const samite_mask *m = &o->instance->mask;
        if (m->runs == 0)
            continue;
        int code = mask_view(&view, m, path, err);
        if (code)
            return code;
        if (m->width != p->width || m->height != p->height)
            return fail(err, SAMITE_USAGE, "%s: the mask of object %d has %d x %d pixels, the picture %d x %d", path,
                        i + 1, m->width, m->height, p->width, p->height);
    }
    return SAMITE_OK;
}

int samite_write_mask(const samite_mask *m, const char *path, samite_error *err)
{
    rle view;
    if (!path)
        return fail(err, SAMITE_USAGE, "samite_write_mask: no path given");
    int code = mask_view(&view, m, path, err);
    if (code)
        return code;
    uint8_t *gray = malloc((size_t)view.width * (size_t)view.height);
    if (!gray)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory for %d x %d pixels", path, view.width, view.height);
    rle_decode(gray, &view);
    for (size_t i = 0, n = (size_t)view.width * (size_t)view.height; i < n; i++)
        gray[i] = gray[i] ? 255 : 0;
    png_image_data image = {.width = view.width, .height = view.height, .kind = PNG_GRAY8, .data = gray};
    code = image_write_png(path, &image, err);
    free(gray);
    return code;
}

/* Sets the pixels of the mask to `label`. Runs go down the columns. */
static void paint_label(uint16_t *labels, const samite_mask *m, uint16_t label)
{
    size_t height = (size_t)m->height, width = (size_t)m->width, at = 0;
    for (size_t i = 0; i < m->runs; i++) {
        size_t end = at + m->counts[i];
        for (; i % 2 && at < end; at++)
            labels[at % height * width + at / height] = label;
        at = end;
    }
}

int samite_write_label_map(const samite_page *page, const char *path, samite_error *err)
{
    samite_page p;
    int code = page_check(&p, page, path, err);
    if (code)
        return code;
    if (p.object_count > MOST_LABELS)
        return fail(err, SAMITE_USAGE, "%s: a 16-bit label map holds %d objects and there are %d; ask for fewer "
                    "(max_results)", path, MOST_LABELS, p.object_count);
    uint16_t *labels = calloc((size_t)p.pixels->width * (size_t)p.pixels->height, sizeof *labels);
    if (!labels)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory for %d x %d pixels", path, p.pixels->width,
                    p.pixels->height);
    for (int i = p.object_count - 1; i >= 0; i--)
        paint_label(labels, &p.object[i].instance->mask, (uint16_t)(i + 1));
    png_image_data image = {.width = p.pixels->width, .height = p.pixels->height, .kind = PNG_GRAY16, .data = labels};
    code = image_write_png(path, &image, err);
    free(labels);
    return code;
}

int samite_mask_string(char **out, const samite_mask *m, samite_error *err)
{
    rle view;
    if (!out)
        return fail(err, SAMITE_USAGE, "samite_mask_string: no place for the text given");
    *out = NULL;
    int code = mask_view(&view, m, "mask", err);
    return code ? code : rle_to_string(out, &view, err);
}

void samite_free(void *string)
{
    free(string);
}

int samite_is_picture_name(const char *name)
{
    return name && image_has_known_ending(name);
}
