/* labels.c - any bytes as a file of an annotation tool: read, and every object turned into a mask. */
#include <stdlib.h>
#include <string.h>

#include "io/annotations.h"
#include "io/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_one(annotations *a, int kind, const char *s, size_t size)
{
    samite_error err;
    georef g;
    uint16_t *values;
    int width, height;
    if (kind == 0)
        coco_annotations_read(a, s, size, "fuzz", &err);
    else if (kind == 1)
        labelme_read(a, s, size, "fuzz", &err);
    else if (kind == 2)
        voc_read(a, s, size, "fuzz", &err);
    else if (kind == 3)
        yolo_read_names(a, s, size, "fuzz.yaml", &err);
    else if (kind == 4)
        georef_parse_world(&g, s, size, "fuzz", &err);
    else if (kind == 7)
        cvat_read(a, s, size, "fuzz", &err);
    else if (kind == 5 && annotations_category(a, "one", &err) == 0 && annotations_add_image(a, "x", 50, 40, &err) == 0)
        yolo_read(a, 0, s, size, "fuzz", &err);
    else if (kind == 6 &&
             image_decode_labels(&values, &width, &height, (const uint8_t *)s, size, "fuzz", 10000, &err) == 0) {
        if (annotations_add_image(a, "x", width, height, &err) == 0)
            label_map_read(a, 0, 0, values, &err);
        free(values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    annotations a = {0};
    if (size < 1)
        return 0;
    char *copy = malloc(size > 1 ? size - 1 : 1);
    memcpy(copy, data + 1, size - 1);          /* no byte more than there are */
    read_one(&a, data[0] % 8, copy, size - 1);
    for (size_t i = 0; i < a.count; i++) {
        const labelled_object *o = &a.objects[i];
        rle r;
        samite_error err;
        if (o->image < 0 || (size_t)o->image >= a.image_count || o->category < 0)
            abort();
        const labelled_image *im = &a.images[o->image];
        if ((uint64_t)im->width * (uint64_t)im->height < 1000000 &&
            object_mask(&r, o, im->width, im->height, &err) == SAMITE_OK)
            rle_free(&r);
    }
    annotations_free(&a);
    free(copy);
    return 0;
}
