/* cvat.c - "CVAT for images 1.1": boxes and masks of all pictures in one XML file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/annotations.h"

/* Run lengths row by row inside the box, background first: what CVAT calls rle. */
static int add_mask(text *t, const rle *r, const double *box, samite_error *err)
{
    size_t left = (size_t)box[0], top = (size_t)box[1], width = (size_t)box[2], height = (size_t)box[3];
    uint8_t *mask = malloc((size_t)r->width * (size_t)r->height);
    if (!mask)
        return fail(err, SAMITE_RESOURCE, "out of memory for a mask of %d x %d", r->width, r->height);
    rle_decode(mask, r);
    size_t run = 0, count = width * height;
    bool on = false, first = true;
    text_add(t, " rle=\"", 6);
    for (size_t i = 0; i <= count; i++) {
        bool now = i < count && mask[(top + i / width) * (size_t)r->width + left + i % width];
        if (i == count || now != on) {
            text_printf(t, "%s%zu", first ? "" : ", ", run);
            first = false;
            run = 0;
            on = now;
        }
        run++;
    }
    text_printf(t, "\" left=\"%zu\" top=\"%zu\" width=\"%zu\" height=\"%zu\"", left, top, width, height);
    free(mask);
    return SAMITE_OK;
}

static void add_points(text *t, const double *xy, size_t points)
{
    text_add(t, " points=\"", 9);
    for (size_t i = 0; i < points; i++)
        text_printf(t, "%s%.10g,%.10g", i ? ";" : "", xy[2 * i], xy[2 * i + 1]);
    text_add(t, "\"", 1);
}

/* A polygon as a file drew it, in one piece; else the mask, exactly; else the box. */
static int add_object(text *t, const annotations *a, const labelled_object *o, samite_error *err)
{
    const labelled_image *im = &a->images[o->image];
    bool polygon = o->drawn.count == 1, mask = !polygon && (o->drawn.count || o->mask.runs);
    const char *element = polygon ? "polygon" : mask ? "mask" : "box";
    int code = SAMITE_OK;
    double box[4];
    rle r = {0};
    if (mask) {
        if ((code = object_mask(&r, o, im->width, im->height, err)))
            return code;
        rle_bbox(box, &r);
        if (rle_area(&r) == 0) {
            rle_free(&r);
            return SAMITE_OK;
        }
    }
    text_printf(t, "    <%s label=\"", element);
    text_add_xml(t, a->categories[o->category]);
    text_printf(t, "\" source=\"%s\" occluded=\"0\"", isfinite(o->score) ? "auto" : "manual");
    if (mask) {
        code = add_mask(t, &r, box, err);
    } else if (polygon) {
        add_points(t, o->drawn.xy, o->drawn.ends[0]);
    } else {
        text_printf(t, " xtl=\"%.10g\" ytl=\"%.10g\" xbr=\"%.10g\" ybr=\"%.10g\"", o->box[0], o->box[1],
                    o->box[0] + o->box[2], o->box[1] + o->box[3]);
    }
    text_printf(t, " z_order=\"0\">");
    if (isfinite(o->score))
        text_printf(t, "<attribute name=\"score\">%.9g</attribute>", o->score);
    if (o->has_track)
        text_printf(t, "<attribute name=\"track_id\">%lld</attribute>", (long long)o->track);
    text_printf(t, "</%s>\n", element);
    rle_free(&r);
    return code;
}

int cvat_write(const annotations *a, const char *path, samite_error *err)
{
    text t = {0};
    int code = SAMITE_OK;
    const char *tracks = "";
    for (size_t i = 0; i < a->count; i++)
        if (a->objects[i].has_track)
            tracks = "<attribute><name>track_id</name><mutable>False</mutable><input_type>number</input_type>"
                     "<default_value>0</default_value><values>0&#10;1000000000&#10;1</values></attribute>";
    text_printf(&t,
                "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<annotations>\n  <version>1.1</version>\n  <meta><task>"
                "<labels>\n");
    for (size_t i = 0; i < a->category_count; i++) {
        text_printf(&t, "    <label><name>");
        text_add_xml(&t, a->categories[i]);
        text_printf(&t, "</name><attributes><attribute><name>score</name><mutable>False</mutable><input_type>number"
                        "</input_type><default_value>0</default_value><values>0&#10;1&#10;0.000001</values>"
                        "</attribute>%s</attributes></label>\n", tracks);
    }
    text_printf(&t, "  </labels></task></meta>\n");
    for (size_t i = 0; i < a->image_count && !code; i++) {
        const labelled_image *im = &a->images[i];
        text_printf(&t, "  <image id=\"%zu\" name=\"", i);
        text_add_xml(&t, im->file);
        text_printf(&t, "\" width=\"%d\" height=\"%d\">\n", im->width, im->height);
        for (size_t k = im->first; k < im->first + im->count && !code; k++)
            code = add_object(&t, a, &a->objects[k], err);
        text_printf(&t, "  </image>\n");
    }
    text_printf(&t, "</annotations>\n");
    if (code) {
        text_free(&t);
        return code;
    }
    return text_write_file(&t, path, err);
}
