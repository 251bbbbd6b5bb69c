/* cvat_read.c - reads "CVAT for images 1.1": boxes, polygons and masks of the pictures of one XML file. */
#include <expat.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/annotations.h"
#include "io/image.h"
#include "io/runs.h"

typedef struct cvat_reader {
    annotations    *a;
    const char     *name;
    samite_error   *err;
    XML_Parser      parser;
    int             code, image;           /* image: index of the open one; -1: none */
    bool            root;                  /* <annotations> was there */
    labelled_object object;                /* of the open element; category -1: none is open */
    char            attribute[32], value[64];
    size_t          value_size;
} cvat_reader;

static const char *find(const XML_Char **attributes, const char *name)
{
    for (; *attributes; attributes += 2)
        if (strcmp(attributes[0], name) == 0)
            return attributes[1];
    return NULL;
}

/* The attribute as a number of magnitude below 10^7; NAN when it is not there or none. */
static double number(const XML_Char **attributes, const char *name)
{
    const char *s = find(attributes, name);
    char *end = NULL;
    double v = s ? strtod(s, &end) : (double)NAN;
    return end && end != s && *end == '\0' && fabs(v) < 1e7 ? v : (double)NAN;
}

/* ---- shapes; each returns why it cannot be used, or NULL ---- */

static const char *read_box(labelled_object *o, const XML_Char **attributes)
{
    double x0 = number(attributes, "xtl"), y0 = number(attributes, "ytl"), x1 = number(attributes, "xbr"),
           y1 = number(attributes, "ybr"), turned = number(attributes, "rotation");
    if (!(x1 >= x0) || !(y1 >= y0))
        return "boxes without usable corners";
    if (!(fabs(turned) > 0)) {
        memcpy(o->box, (double[]){x0, y0, x1 - x0, y1 - y0}, sizeof o->box);
        o->has_box = true;
        return NULL;
    }
    double c = cos(turned * 3.14159265358979323846 / 180), s = sin(turned * 3.14159265358979323846 / 180), xy[8];
    for (int i = 0; i < 4; i++) {          /* turned about the middle, clockwise as pictures are seen */
        double dx = (i == 1 || i == 2 ? x1 - x0 : x0 - x1) / 2, dy = (i > 1 ? y1 - y0 : y0 - y1) / 2;
        xy[2 * i] = (x0 + x1) / 2 + c * dx - s * dy;
        xy[2 * i + 1] = (y0 + y1) / 2 + s * dx + c * dy;
    }
    return outlines_add(&o->drawn, xy, 4, NULL) ? "shapes for which there was no memory" : NULL;
}

/* "x,y;x,y;..." */
static const char *read_polygon(labelled_object *o, const char *points)
{
    static const char bad[] = "polygons of fewer than 3 points or without numbers";
    size_t room = 1, n = 0;
    for (const char *c = points; c && *c; c++)
        room += *c == ';';
    double *xy = points ? malloc(room * 2 * sizeof *xy) : NULL;
    for (const char *c = points; xy && *c; n++) {
        char *end;
        xy[2 * n] = strtod(c, &end);
        bool fine = end != c && *end == ',' && fabs(xy[2 * n]) < 1e7;
        c = end + fine;
        xy[2 * n + 1] = fine ? strtod(c, &end) : 0;
        if (!fine || end == c || (*end && *end != ';') || !(fabs(xy[2 * n + 1]) < 1e7)) {
            free(xy);
            return bad;
        }
        c = end + (*end == ';');
    }
    const char *why = !xy || n < 3 ? bad
                      : outlines_add(&o->drawn, xy, n, NULL) ? "shapes for which there was no memory" : NULL;
    free(xy);
    return why;
}

/* Fills `box` (row by row, zeros) from "12, 3, ..." of which every other run is inside; false unless they fill it. */
static bool fill_rows(uint8_t *box, size_t size, const char *runs)
{
    size_t at = 0;
    bool on = false;
    for (const char *c = runs; *c; on = !on) {
        char *end;
        c += strspn(c, " ");
        unsigned long long n = *c >= '0' && *c <= '9' ? strtoull(c, &end, 10) : size + 1;
        if (n > size - at)
            return false;
        memset(box + at, on, (size_t)n);
        at += (size_t)n;
        c = end + strspn(end, " ");
        if (*c == ',')
            c++;
        else if (*c)
            return false;
    }
    return at == size;
}

static const char *read_mask(labelled_object *o, const XML_Char **attributes, const labelled_image *im)
{
    static const char bad[] = "masks whose run lengths do not fill their box, or that leave their picture";
    double left = number(attributes, "left"), top = number(attributes, "top"), w = number(attributes, "width"),
           h = number(attributes, "height");
    const char *runs = find(attributes, "rle");
    if (!runs || !(left >= 0) || !(top >= 0) || !(w >= 1) || !(h >= 1) || left + w > im->width || top + h > im->height)
        return bad;
    uint32_t x0 = (uint32_t)left, y0 = (uint32_t)top, columns = (uint32_t)w, rows = (uint32_t)h;
    uint32_t height = (uint32_t)im->height, below = height - y0 - rows;
    uint8_t *box = calloc(columns, rows);
    bool fine = box && fill_rows(box, (size_t)columns * rows, runs);
    run_list l = {0};
    if (fine)
        runs_add(&l, false, x0 * height);
    for (uint32_t x = 0; fine && x < columns; x++) {
        runs_add(&l, false, y0);
        for (uint32_t y = 0; y < rows; y++)
            runs_add(&l, box[(size_t)y * columns + x] != 0, 1);
        runs_add(&l, false, below);
    }
    free(box);
    if (!fine)
        return bad;
    runs_add(&l, false, ((uint32_t)im->width - x0 - columns) * height);
    return runs_finish(&o->mask, &l, im->width, im->height, NULL) ? "shapes for which there was no memory" : NULL;
}

/* ---- elements ---- */

static void open_image(cvat_reader *r, const XML_Char **attributes)
{
    const char *file = find(attributes, "name");
    double w = number(attributes, "width"), h = number(attributes, "height");
    if (!file || !*file || !(w >= 1) || !(h >= 1) || w * h > (double)IMAGE_MAX_PIXELS || w > 1 << 24 || h > 1 << 24)
        r->code = fail(r->err, SAMITE_INPUT, "%s, line %lu: an image without name, width or height", r->name,
                       XML_GetCurrentLineNumber(r->parser));
    else if ((r->image = annotations_add_image(r->a, file, (int)w, (int)h, r->err)) < 0)
        r->code = SAMITE_RESOURCE;
}

static void open_shape(cvat_reader *r, const char *element, const XML_Char **attributes)
{
    const char *label = find(attributes, "label"), *why = NULL;
    labelled_object *o = &r->object;
    *o = (labelled_object){.image = r->image, .score = (double)NAN};
    o->category = annotations_category(r->a, label ? label : "object", r->err);
    if (o->category < 0)
        r->code = SAMITE_RESOURCE;
    else if (strcmp(element, "box") == 0)
        why = read_box(o, attributes);
    else if (strcmp(element, "polygon") == 0)
        why = read_polygon(o, find(attributes, "points"));
    else
        why = read_mask(o, attributes, &r->a->images[r->image]);
    if (why)
        annotations_drop(r->a, why, "%.60s, line %lu", r->name, XML_GetCurrentLineNumber(r->parser));
    if (why || r->code) {
        object_free(o);
        o->category = -1;
    }
}

static void on_open(void *user, const XML_Char *element, const XML_Char **attributes)
{
    static const char *const others[] = {"polyline", "points", "ellipse", "cuboid", "skeleton", "tag"};
    cvat_reader *r = user;
    r->value_size = 0;
    r->attribute[0] = '\0';
    if (r->code)
        return;
    if (strcmp(element, "annotations") == 0)
        r->root = true;
    else if (strcmp(element, "image") == 0)
        open_image(r, attributes);
    else if (strcmp(element, "attribute") == 0 && find(attributes, "name"))
        snprintf(r->attribute, sizeof r->attribute, "%s", find(attributes, "name"));
    else if (r->image >= 0 && r->object.category < 0 &&
             (strcmp(element, "box") == 0 || strcmp(element, "polygon") == 0 || strcmp(element, "mask") == 0))
        open_shape(r, element, attributes);
    else if (strcmp(element, "track") == 0)
        r->code = fail(r->err, SAMITE_INPUT,
                       "%s, line %lu: this is \"CVAT for video\"; export it as \"CVAT for images\"", r->name,
                       XML_GetCurrentLineNumber(r->parser));
    for (size_t i = 0; i < sizeof others / sizeof *others && r->image >= 0; i++)
        if (strcmp(element, others[i]) == 0)
            annotations_drop(r->a, "points, lines, ellipses and other shapes that are no box, polygon or mask",
                             "%.60s, line %lu", r->name, XML_GetCurrentLineNumber(r->parser));
}

static void on_text(void *user, const XML_Char *s, int size)
{
    cvat_reader *r = user;
    size_t left = sizeof r->value - 1 - r->value_size, n = (size_t)size < left ? (size_t)size : left;
    memcpy(r->value + r->value_size, s, n);
    r->value_size += n;
}

static void close_attribute(cvat_reader *r)
{
    char *end;
    r->value[r->value_size] = '\0';
    double v = strtod(r->value, &end);
    if (end == r->value || *end || !isfinite(v))
        return;
    if (strcmp(r->attribute, "score") == 0)
        r->object.score = v;
    if (strcmp(r->attribute, "track_id") == 0 && v >= 0 && v <= 1e9 && v == floor(v)) {
        r->object.has_track = true;
        r->object.track = (int64_t)v;
    }
}

static void on_close(void *user, const XML_Char *element)
{
    cvat_reader *r = user;
    if (r->code)
        return;
    if (strcmp(element, "attribute") == 0 && r->object.category >= 0) {
        close_attribute(r);
    } else if (strcmp(element, "image") == 0) {
        r->image = -1;
    } else if (r->object.category >= 0 && strcmp(element, "attribute") != 0) {
        r->code = annotations_add(r->a, &r->object, r->err);
        r->object = (labelled_object){.category = -1};
    }
}

int cvat_read(annotations *a, const char *data, size_t size, const char *name, samite_error *err)
{
    XML_Parser p = XML_ParserCreate(NULL);
    cvat_reader r = {.a = a, .name = name, .err = err, .parser = p, .image = -1, .object = {.category = -1}};
    if (!p)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", name);
    if (size > INT32_MAX) {
        XML_ParserFree(p);
        return fail(err, SAMITE_INPUT, "%s: larger than 2 GiB; export it in parts", name);
    }
    XML_SetUserData(p, &r);
    XML_SetElementHandler(p, on_open, on_close);
    XML_SetCharacterDataHandler(p, on_text);
    bool fine = XML_Parse(p, data, (int)size, 1) == XML_STATUS_OK;
    int code = r.code;
    if (!code && !fine)
        code = fail(err, SAMITE_INPUT, "%s: broken XML, line %lu column %lu: %s", name, XML_GetCurrentLineNumber(p),
                    XML_GetCurrentColumnNumber(p) + 1, XML_ErrorString(XML_GetErrorCode(p)));
    if (!code && !r.root)
        code = fail(err, SAMITE_INPUT, "%s: no <annotations>; is this \"CVAT for images 1.1\"?", name);
    if (r.object.category >= 0)
        object_free(&r.object);
    XML_ParserFree(p);
    return code;
}
