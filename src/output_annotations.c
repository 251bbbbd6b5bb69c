/* output_annotations.c - a page as the formats of annotation tools. */
#include <stdlib.h>
#include <string.h>

#include "io/annotations.h"
#include "output.h"

/* The page as annotations: picture 0. Masks are copies. */
static int add_object(annotations *a, const samite_page *p, int at, const char *path, samite_error *err)
{
    const samite_object *from = &p->object[at];
    const samite_instance *i = from->instance;
    const float *b = i->box;
    labelled_object o = {
        .image = 0, .category = annotations_category(a, p->names[from->name], err), .has_box = true,
        .score = (double)i->score, .has_track = p->track != NULL, .track = p->track ? p->track[at] : 0,
        .box = {(double)b[0], (double)b[1], (double)b[2] - (double)b[0], (double)b[3] - (double)b[1]},
    };
    rle view;
    int code = o.category < 0 ? SAMITE_RESOURCE : SAMITE_OK;
    if (!code && i->mask.runs && !(code = mask_view(&view, &i->mask, path, err)))
        code = rle_copy(&o.mask, &view, err);
    return code ? code : annotations_add(a, &o, err);
}

static int from_page(annotations *a, const samite_page *page, const char *path, samite_error *err)
{
    samite_page p;
    *a = (annotations){0};
    int code = page_check(&p, page, path, err);
    if (!code && annotations_add_image(a, p.file, p.pixels->width, p.pixels->height, err) < 0)
        code = SAMITE_RESOURCE;
    for (int i = 0; i < p.name_count && !code; i++)
        code = annotations_category(a, p.names[i] ? p.names[i] : "", err) < 0 ? SAMITE_RESOURCE : SAMITE_OK;
    for (int i = 0; i < p.object_count && !code; i++)
        code = add_object(a, &p, i, path, err);
    return code ? code : annotations_sort(a, err);
}

static int write_image(const samite_page *page, const char *path,
                       int write(const annotations *, int, const char *, samite_error *), samite_error *err)
{
    annotations a;
    int code = from_page(&a, page, path, err);
    if (!code)
        code = write(&a, 0, path, err);
    annotations_free(&a);
    return code;
}

static int write_all(const samite_page *page, const char *path,
                     int write(const annotations *, const char *, samite_error *), samite_error *err)
{
    annotations a;
    int code = from_page(&a, page, path, err);
    if (!code)
        code = write(&a, path, err);
    annotations_free(&a);
    return code;
}

int samite_write_yolo(const samite_page *page, const char *path, samite_error *err)
{
    return write_image(page, path, yolo_write, err);
}

int samite_write_yolo_names(const samite_page *page, const char *path, samite_error *err)
{
    return write_all(page, path, yolo_write_names, err);
}

int samite_write_labelme(const samite_page *page, const char *path, samite_error *err)
{
    return write_image(page, path, labelme_write, err);
}

int samite_write_voc(const samite_page *page, const char *path, samite_error *err)
{
    return write_image(page, path, voc_write, err);
}

int samite_write_cvat(const samite_page *page, const char *path, samite_error *err)
{
    return write_all(page, path, cvat_write, err);
}

int samite_write_geojson(const samite_page *page, const char *picture, const char *path, samite_error *err)
{
    annotations a;
    georef where = {0};
    int code = from_page(&a, page, path, err);
    if (!code && picture && !(page->pixels->exif_applied && page->pixels->exif_orientation > 1))
        code = georef_read(&where, picture, err);
    if (!code)
        code = geojson_write(&a, 0, &where, path, err);
    annotations_free(&a);
    return code;
}
