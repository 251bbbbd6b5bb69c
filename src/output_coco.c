/* output_coco.c - a COCO file of one picture. */
#include <stdlib.h>
#include <string.h>

#include "io/coco.h"
#include "output.h"

/* What coco_write takes, made from a page. Strings and run lengths stay the page's. */
typedef struct coco_page {
    coco_image       image;
    coco_category   *categories;
    coco_annotation *annotations;
    rle             *masks;
    int64_t         *number;       /* [name_count] category of each name */
} coco_page;

/* Numbers the names from 1; equal names share a category. Returns how many categories there are. */
static size_t number_names(coco_page *c, const samite_page *p)
{
    size_t count = 0;
    for (int i = 0; i < p->name_count; i++) {
        for (size_t k = 0; k < count && !c->number[i]; k++)
            if (strcmp(p->names[i], c->categories[k].name) == 0)
                c->number[i] = c->categories[k].id;
        if (c->number[i])
            continue;
        c->number[i] = (int64_t)count + 1;
        c->categories[count] = (coco_category){c->number[i], p->names[i]};
        count++;
    }
    return count;
}

static int add_object(coco_page *c, const samite_page *p, int at, const char *path, samite_error *err)
{
    const samite_instance *i = p->object[at].instance;
    const float *b = i->box;
    int code = i->mask.runs ? mask_view(&c->masks[at], &i->mask, path, err) : SAMITE_OK;
    c->annotations[at] = (coco_annotation){
        .id = at + 1, .image_id = 1, .category_id = c->number[p->object[at].name],
        .box = {(double)b[0], (double)b[1], (double)b[2] - (double)b[0], (double)b[3] - (double)b[1]},
        .score = (double)i->score, .track = p->track ? &p->track[at] : NULL, .mask = i->mask.runs ? &c->masks[at] : NULL,
    };
    return code;
}

int samite_write_coco(const samite_page *page, const char *info, const char *path, samite_error *err)
{
    samite_page p;
    int code = page_check(&p, page, path, err);
    if (code)
        return code;
    size_t names = (size_t)p.name_count + 1, objects = (size_t)p.object_count + 1;
    coco_page c = {
        .image = {1, p.file, p.pixels->width, p.pixels->height, p.pixels->exif_orientation, p.pixels->exif_applied},
        .categories = calloc(names, sizeof *c.categories), .annotations = calloc(objects, sizeof *c.annotations),
        .masks = calloc(objects, sizeof *c.masks), .number = calloc(names, sizeof *c.number),
    };
    if (!c.categories || !c.annotations || !c.masks || !c.number)
        code = fail(err, SAMITE_RESOURCE, "%s: out of memory for %d objects", path, p.object_count);
    size_t categories = code ? 0 : number_names(&c, &p);
    for (int i = 0; i < p.object_count && !code; i++)
        code = add_object(&c, &p, i, path, err);
    coco_data data = {
        .info = info, .images = &c.image, .image_count = 1, .categories = c.categories, .category_count = categories,
        .annotations = c.annotations, .annotation_count = (size_t)p.object_count, .segmentation = COCO_BOTH,
    };
    if (!code)
        code = coco_write(path, &data, err);
    free(c.categories);
    free(c.annotations);
    free(c.masks);
    free(c.number);
    return code;
}
