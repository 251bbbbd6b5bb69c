/* output_overlay.c - the picture with what was found drawn over it. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "io/draw.h"
#include "io/image.h"
#include "output.h"

#define JPEG_QUALITY 92

static int make_instances(draw_instance *out, rle *masks, const samite_page *p, const char *path, samite_error *err)
{
    int code = SAMITE_OK;
    for (int k = 0; k < p->object_count && !code; k++) {
        const samite_instance *i = p->object[k].instance;
        const float *b = i->box;
        if (i->mask.runs)
            code = mask_view(&masks[k], &i->mask, path, err);
        out[k] = (draw_instance){
            .mask = i->mask.runs ? &masks[k] : NULL, .name = p->names[p->object[k].name], .score = (double)i->score,
            .box = {(double)b[0], (double)b[1], (double)b[2] - (double)b[0], (double)b[3] - (double)b[1]}, .colour = k,
        };
    }
    return code;
}

static bool is_jpeg_name(const char *path)
{
    return ends_with(path, ".jpg") || ends_with(path, ".jpeg") || ends_with(path, ".JPG") || ends_with(path, ".JPEG");
}

/* Draws into a copy of the picture and writes it. */
static int draw_page(const samite_page *p, const draw_instance *instances, const draw_style *style, const char *path,
                     samite_error *err)
{
    int width = p->pixels->width, height = p->pixels->height;
    size_t size = (size_t)width * (size_t)height * 3;
    uint8_t *rgb = malloc(size);
    if (!rgb)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory for %d x %d pixels", path, width, height);
    memcpy(rgb, p->pixels->rgb, size);
    int code = draw_overlay(rgb, width, height, instances, (size_t)p->object_count, style, err);
    png_image_data png = {.width = width, .height = height, .kind = PNG_RGB8, .data = rgb};
    if (!code)
        code = is_jpeg_name(path) ? image_write_jpeg(path, rgb, width, height, JPEG_QUALITY, err)
                                  : image_write_png(path, &png, err);
    free(rgb);
    return code;
}

int samite_write_overlay(const samite_page *page, const samite_overlay_options *options, const char *path,
                         samite_error *err)
{
    samite_page p;
    samite_overlay_options o = SAMITE_OVERLAY_OPTIONS_INIT;
    draw_style style = DRAW_STYLE_INIT;
    int code = page_check(&p, page, path, err);
    if (code)
        return code;
    if (!p.pixels->rgb)
        return fail(err, SAMITE_USAGE, "%s: an overlay needs the pixels of the picture", path);
    if (options)
        memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    style.masks = style.outlines = !o.no_masks;
    style.boxes = !o.no_boxes;
    style.labels = !o.no_names;
    size_t room = (size_t)p.object_count + 1;
    draw_instance *instances = calloc(room, sizeof *instances);
    rle *masks = calloc(room, sizeof *masks);
    if (!instances || !masks)
        code = fail(err, SAMITE_RESOURCE, "%s: out of memory for %d objects", path, p.object_count);
    if (!code)
        code = make_instances(instances, masks, &p, path, err);
    if (!code)
        code = draw_page(&p, instances, &style, path, err);
    free(instances);
    free(masks);
    return code;
}
