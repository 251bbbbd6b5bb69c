/* voc.c - boxes of Pascal VOC: one XML file a picture. */
#include <expat.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/annotations.h"

#define LONGEST_VALUE 4096
#define DEEPEST       32

/* ---- writing ---- */

int voc_write(const annotations *a, int image, const char *path, samite_error *err)
{
    const labelled_image *im = &a->images[image];
    const char *slash = strrchr(im->file, '/');
    text t = {0};
    text_printf(&t, "<annotation>\n  <filename>");
    text_add_xml(&t, slash ? slash + 1 : im->file);
    text_printf(&t, "</filename>\n  <size><width>%d</width><height>%d</height><depth>3</depth></size>\n"
                    "  <segmented>0</segmented>\n", im->width, im->height);
    for (size_t i = im->first; i < im->first + im->count; i++) {
        const labelled_object *o = &a->objects[i];
        double b[4];
        object_box(b, o);
        text_printf(&t, "  <object>\n    <name>");
        text_add_xml(&t, a->categories[o->category]);
        text_printf(&t, "</name>\n    <difficult>%d</difficult>\n    <bndbox><xmin>%.10g</xmin><ymin>%.10g</ymin>"
                        "<xmax>%.10g</xmax><ymax>%.10g</ymax></bndbox>\n  </object>\n", o->crowd, b[0] + 1, b[1] + 1,
                    b[0] + b[2], b[1] + b[3]);
    }
    text_printf(&t, "</annotation>\n");
    return text_write_file(&t, path, err);
}

/* ---- reading ---- */

typedef struct voc_reader {
    annotations  *a;
    const char   *name;
    samite_error *err;
    int           code, depth, image, object_number;
    char          path[DEEPEST][16];       /* names of the open elements */
    char          value[LONGEST_VALUE];
    size_t        value_size;
    char          file[LONGEST_VALUE], label[LONGEST_VALUE];
    double        width, height, corner[4];
    bool          difficult, in_object;
} voc_reader;

static bool number_of(double *out, const char *s)
{
    char *end;
    *out = strtod(s, &end);
    return end != s && end[strspn(end, " \t\r\n")] == '\0' && isfinite(*out) && fabs(*out) < 1e7;
}

static void on_open(void *user, const XML_Char *element, const XML_Char **attributes)
{
    voc_reader *r = user;
    (void)attributes;
    if (r->depth < DEEPEST)
        snprintf(r->path[r->depth], sizeof r->path[0], "%s", element);
    r->depth++;
    r->value_size = 0;
    r->value[0] = '\0';
    if (r->depth == 2 && strcmp(element, "object") == 0) {
        r->in_object = true;
        r->label[0] = '\0';
        r->difficult = false;
        for (int i = 0; i < 4; i++)
            r->corner[i] = (double)NAN;
    }
}

static void on_text(void *user, const XML_Char *s, int size)
{
    voc_reader *r = user;
    size_t left = sizeof r->value - 1 - r->value_size, n = (size_t)size < left ? (size_t)size : left;
    memcpy(r->value + r->value_size, s, n);
    r->value_size += n;
    r->value[r->value_size] = '\0';
}

/* Corners count from 1 and belong to the box, as in the development kit. */
static void end_object(voc_reader *r)
{
    const double *c = r->corner;
    labelled_object o = {.image = -1, .score = (double)NAN, .has_box = true, .crowd = r->difficult};
    r->in_object = false;
    r->object_number++;
    if (!(c[2] >= c[0]) || !(c[3] >= c[1])) {
        annotations_drop(r->a, "boxes without usable corners", "%.60s, object %d", r->name, r->object_number);
        return;
    }
    memcpy(o.box, (double[]){c[0] - 1, c[1] - 1, c[2] - c[0] + 1, c[3] - c[1] + 1}, sizeof o.box);
    o.category = annotations_category(r->a, r->label[0] ? r->label : "object", r->err);
    r->code = o.category < 0 ? SAMITE_RESOURCE : annotations_add(r->a, &o, r->err);
}

static void on_close(void *user, const XML_Char *element)
{
    static const char *const corners[] = {"xmin", "ymin", "xmax", "ymax"};
    voc_reader *r = user;
    const char *parent = r->depth >= 2 && r->depth <= DEEPEST ? r->path[r->depth - 2] : "";
    double v;
    char *value = r->value + strspn(r->value, " \t\r\n");
    for (size_t n = strlen(value); n && strchr(" \t\r\n", value[n - 1]);)
        value[--n] = '\0';
    if (r->code)
        return;
    if (r->depth == 2 && strcmp(element, "filename") == 0)
        memcpy(r->file, value, strlen(value) + 1);
    else if (strcmp(parent, "size") == 0 && strcmp(element, "width") == 0 && number_of(&v, value))
        r->width = v;
    else if (strcmp(parent, "size") == 0 && strcmp(element, "height") == 0 && number_of(&v, value))
        r->height = v;
    else if (r->in_object && r->depth == 3 && strcmp(element, "name") == 0)
        memcpy(r->label, value, strlen(value) + 1);
    else if (r->in_object && r->depth == 3 && strcmp(element, "difficult") == 0)
        r->difficult = strcmp(value, "1") == 0;
    else if (r->in_object && r->depth == 4 && strcmp(parent, "bndbox") == 0)
        for (int i = 0; i < 4; i++)
            r->corner[i] = strcmp(element, corners[i]) == 0 && number_of(&v, value) ? v : r->corner[i];
    if (r->depth == 2 && strcmp(element, "object") == 0)
        end_object(r);
    r->depth--;
    r->value_size = 0;
    r->value[0] = '\0';
}

/* The objects that were read belong to a picture that is known only now. */
static int settle(voc_reader *r, size_t first, samite_error *err)
{
    annotations *a = r->a;
    bool sized = r->width >= 1 && r->height >= 1 && r->width <= 1 << 24 && r->height <= 1 << 24 &&
                 r->width * r->height < (double)UINT32_MAX && r->width == floor(r->width) &&
                 r->height == floor(r->height);
    if (!sized)
        return fail(err, SAMITE_INPUT, "%s: no usable <size> with <width> and <height>; is this a VOC file?", r->name);
    int image = annotations_add_image(a, r->file[0] ? r->file : r->name, (int)r->width, (int)r->height, err);
    for (size_t i = first; i < a->count; i++)
        a->objects[i].image = image;
    return image < 0 ? SAMITE_RESOURCE : SAMITE_OK;
}

int voc_read(annotations *a, const char *data, size_t size, const char *name, samite_error *err)
{
    size_t first = a->count;
    voc_reader *r = calloc(1, sizeof *r);
    XML_Parser p = r ? XML_ParserCreate(NULL) : NULL;
    int code = p ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "%s: out of memory", name);
    if (!code && size > INT32_MAX)
        code = fail(err, SAMITE_INPUT, "%s: too large for one picture's annotations", name);
    if (!code) {
        *r = (voc_reader){.a = a, .name = name, .err = err};
        XML_SetUserData(p, r);
        XML_SetElementHandler(p, on_open, on_close);
        XML_SetCharacterDataHandler(p, on_text);
        if (XML_Parse(p, data, (int)size, 1) != XML_STATUS_OK)
            code = fail(err, SAMITE_INPUT, "%s: broken XML, line %lu column %lu: %s", name, XML_GetCurrentLineNumber(p),
                        XML_GetCurrentColumnNumber(p) + 1, XML_ErrorString(XML_GetErrorCode(p)));
        else
            code = r->code ? r->code : settle(r, first, err);
    }
    if (code)                              /* objects without a picture */
        while (a->count > first)
            object_free(&a->objects[--a->count]);
    if (p)
        XML_ParserFree(p);
    free(r);
    return code;
}
