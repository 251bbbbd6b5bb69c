/* yolo.c - label files of YOLO: a class and a polygon (or a box) a line, in fractions of the picture. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "io/annotations.h"

#define MOST_CLASSES 30000
#define LONGEST_LINE ((size_t)64 << 20)

/* ---- writing ---- */

static void add_point(text *t, const double *xy, const labelled_image *im)
{
    double x = xy[0] / im->width, y = xy[1] / im->height;
    text_printf(t, " %.10g %.10g", x < 0 ? 0 : x > 1 ? 1 : x, y < 0 ? 0 : y > 1 ? 1 : y);
}

/* A line holds one polygon: several are joined to the first by lines that run there and back, which enclose nothing. */
static void add_polygons(text *t, const outlines *p, const labelled_image *im)
{
    for (size_t i = 0, at = 0; i < p->count; at = p->ends[i++]) {
        for (size_t k = at; k < p->ends[i]; k++)
            add_point(t, p->xy + 2 * k, im);
        if (i > 0)
            add_point(t, p->xy + 2 * at, im);
        if (p->count > 1 && i + 1 < p->count)
            add_point(t, p->xy, im);
    }
}

int yolo_write(const annotations *a, int image, const char *path, samite_error *err)
{
    const labelled_image *im = &a->images[image];
    text t = {0};
    int code = SAMITE_OK;
    for (size_t i = im->first; i < im->first + im->count && !code; i++) {
        const labelled_object *o = &a->objects[i];
        outlines p = {0};
        if (o->drawn.count || o->mask.runs)
            code = object_outlines(&p, o, err);
        if (code || ((o->drawn.count || o->mask.runs) && !p.count))
            continue;                       /* an empty mask has no line */
        text_printf(&t, "%d", o->category);
        if (p.count) {
            add_polygons(&t, &p, im);
        } else {
            add_point(&t, (double[]){o->box[0] + o->box[2] / 2, o->box[1] + o->box[3] / 2}, im);
            add_point(&t, (double[]){o->box[2], o->box[3]}, im);
        }
        text_add(&t, "\n", 1);
        outlines_free(&p);
    }
    if (code) {
        text_free(&t);
        return code;
    }
    text_add(&t, "", 0);
    return text_write_file(&t, path, err);
}

int yolo_write_names(const annotations *a, const char *path, samite_error *err)
{
    text t = {0};
    text_printf(&t, "path: .\ntrain: images\nval: images\nnames:\n");
    for (size_t i = 0; i < a->category_count; i++) {
        json_t *name = json_string(a->categories[i]);
        char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;    /* a JSON string is a YAML one too */
        t.failed |= quoted == NULL;
        text_printf(&t, "  %zu: %s\n", i, quoted ? quoted : "");
        free(quoted);
        json_decref(name);
    }
    return text_write_file(&t, path, err);
}

/* ---- reading ---- */

/* The numbers of a line in a new list; *count 0 with NULL when a word is no number. */
static double *read_numbers(const char *line, size_t *count, samite_error *err)
{
    size_t room = strlen(line) / 2 + 1, n = 0;
    double *v = malloc(room * sizeof *v);
    if (!v)
        fail(err, SAMITE_RESOURCE, "out of memory for a label");
    while (v) {
        char *end;
        while (*line == ' ' || *line == '\t' || *line == '\r')
            line++;
        if (!*line)
            break;
        double one = strtod(line, &end);
        if (end == line || (*end && !strchr(" \t\r", *end)) || !isfinite(one) || fabs(one) > 1e6) {
            n = 0;
            break;
        }
        v[n++] = one;
        line = end;
    }
    *count = n;
    return v;
}

/* The object that `n` numbers say, the first of which is the class. */
static int add_label(annotations *a, int image, const double *v, size_t n, const char *name, size_t line,
                     samite_error *err)
{
    const labelled_image *im = &a->images[image];
    labelled_object o = {.image = image, .score = (double)NAN};
    if (n < 5 || v[0] < 0 || v[0] != floor(v[0])) {
        annotations_drop(a, "lines that are no class with a polygon or a box", "%.60s, line %zu", name, line);
        return SAMITE_OK;
    }
    if (v[0] >= (double)a->category_count) {
        annotations_drop(a, "classes without a name in data.yaml or classes.txt", "%.60s, line %zu", name, line);
        return SAMITE_OK;
    }
    o.category = (int)v[0];
    if (n == 5 || n == 6) {                /* a sixth number is a score */
        memcpy(o.box, (double[]){(v[1] - v[3] / 2) * im->width, (v[2] - v[4] / 2) * im->height, v[3] * im->width,
                                 v[4] * im->height}, sizeof o.box);
        o.has_box = true;
        o.score = n == 6 ? v[5] : o.score;
        return annotations_add(a, &o, err);
    }
    size_t points = (n - 1) / 2;           /* an odd one behind them is a score */
    double *xy = malloc(points * 2 * sizeof *xy);
    for (size_t i = 0; xy && i < 2 * points; i++)
        xy[i] = v[1 + i] * (i % 2 ? im->height : im->width);
    o.score = n % 2 == 0 ? v[n - 1] : o.score;
    int code = xy ? outlines_add(&o.drawn, xy, points, err) : fail(err, SAMITE_RESOURCE, "out of memory for a label");
    free(xy);
    if (code)
        object_free(&o);
    return code ? code : annotations_add(a, &o, err);
}

/* The line at *at of the text as a string of its own; *at moves behind it. NULL: too long, or out of memory. */
static char *next_line(const char *data, size_t size, size_t *at)
{
    const char *s = data + *at, *end = memchr(s, '\n', size - *at);
    size_t n = end ? (size_t)(end - s) : size - *at;
    *at += n + 1;
    return n < LONGEST_LINE ? strndup(s, n) : NULL;
}

int yolo_read(annotations *a, int image, const char *data, size_t size, const char *name, samite_error *err)
{
    int code = SAMITE_OK;
    for (size_t at = 0, number = 1; at < size && !code; number++) {
        char *line = next_line(data, size, &at);
        size_t n = 0;
        double *v = line ? read_numbers(line, &n, err) : NULL;
        if (!v)
            code = fail(err, SAMITE_RESOURCE, "%s, line %zu: too long or out of memory", name, number);
        else if (line[strspn(line, " \t\r")])
            code = add_label(a, image, v, n, name, number, err);
        free(v);
        free(line);
    }
    return code;
}

/* A class of its own even when the name is there already: numbers must not shift. */
static int add_name(annotations *a, const char *name, samite_error *err)
{
    text t = {0};
    size_t before = a->category_count;
    text_printf(&t, "%s", name);
    for (int i = 2; !t.failed; i++) {
        int at = annotations_category(a, t.data, err);
        if (at < 0 || (size_t)at == before)
            break;
        text_free(&t);
        text_printf(&t, "%s (%d)", name, i);
    }
    text_free(&t);
    return a->category_count > before ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "out of memory for names of classes");
}

static const char *scalar(yaml_document_t *doc, int node)
{
    const yaml_node_t *n = yaml_document_get_node(doc, node);
    return n && n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : NULL;
}

static int read_list(annotations *a, yaml_document_t *doc, const yaml_node_t *list, samite_error *err)
{
    int code = SAMITE_OK;
    for (const yaml_node_item_t *i = list->data.sequence.items.start; i < list->data.sequence.items.top && !code; i++) {
        const char *name = scalar(doc, *i);
        code = add_name(a, name ? name : "class", err);
    }
    return code;
}

/* "0: cat": numbers that are left out get names of their own. */
static int read_numbered(annotations *a, yaml_document_t *doc, const yaml_node_t *map, samite_error *err)
{
    int code = SAMITE_OK;
    for (const yaml_node_pair_t *i = map->data.mapping.pairs.start; i < map->data.mapping.pairs.top && !code; i++) {
        const char *key = scalar(doc, i->key), *name = scalar(doc, i->value);
        char *end = NULL;
        long number = key ? strtol(key, &end, 10) : -1;
        if (!name || end == key || *end || number < (long)a->category_count || number > MOST_CLASSES)
            return fail(err, SAMITE_INPUT, "class \"%.40s\": expected numbers from 0 to %d that ascend",
                        key ? key : "?", MOST_CLASSES);
        while ((size_t)number > a->category_count && !code) {
            char stand_in[32];
            snprintf(stand_in, sizeof stand_in, "class %zu", a->category_count);
            code = add_name(a, stand_in, err);
        }
        code = code ? code : add_name(a, name, err);
    }
    return code;
}

static int read_document(annotations *a, yaml_document_t *doc, const char *name, samite_error *err)
{
    const yaml_node_t *root = yaml_document_get_root_node(doc), *names = NULL;
    bool map = root && root->type == YAML_MAPPING_NODE;
    for (const yaml_node_pair_t *i = map ? root->data.mapping.pairs.start : NULL;
         map && i < root->data.mapping.pairs.top; i++) {
        const char *key = scalar(doc, i->key);
        if (key && strcmp(key, "names") == 0)
            names = yaml_document_get_node(doc, i->value);
    }
    samite_error why = {0};
    int code = SAMITE_OK;
    if (names && names->type == YAML_SEQUENCE_NODE)
        code = read_list(a, doc, names, &why);
    else if (names && names->type == YAML_MAPPING_NODE)
        code = read_numbered(a, doc, names, &why);
    return code ? fail(err, code, "%s: %s", name, why.text) : SAMITE_OK;
}

static int read_yaml(annotations *a, const char *data, size_t size, const char *name, samite_error *err)
{
    yaml_parser_t p;
    yaml_document_t doc;
    if (!yaml_parser_initialize(&p))
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", name);
    yaml_parser_set_input_string(&p, (const unsigned char *)data, size);
    int code = SAMITE_OK;
    if (!yaml_parser_load(&p, &doc)) {
        code = fail(err, SAMITE_INPUT, "%s: broken YAML, line %zu: %s", name, p.problem_mark.line + 1,
                    p.problem ? p.problem : "no reason given");
    } else {
        code = read_document(a, &doc, name, err);
        yaml_document_delete(&doc);
    }
    yaml_parser_delete(&p);
    return code;
}

int yolo_read_names(annotations *a, const char *data, size_t size, const char *name, samite_error *err)
{
    bool yaml = ends_with(name, ".yaml") || ends_with(name, ".yml");
    int code = yaml ? read_yaml(a, data, size, name, err) : SAMITE_OK;
    for (size_t at = 0; !yaml && at < size && !code;) {
        char *line = next_line(data, size, &at);
        if (!line)
            return fail(err, SAMITE_RESOURCE, "%s: a line is too long, or out of memory", name);
        line[strcspn(line, "\r")] = '\0';
        code = *line ? add_name(a, line, err) : SAMITE_OK;
        free(line);
    }
    if (!code && a->category_count == 0)
        code = fail(err, SAMITE_INPUT, "%s: no names of classes in it", name);
    return code;
}
