/* api_annotations_read.c - whole data sets: files found, pictures measured, everything joined. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api_annotations.h"
#include "io/image.h"

#define LARGEST_FILE ((size_t)2 << 30)
#define PICTURES "|.jpg|.jpeg|.png|.webp|.tif|.tiff|.bmp|.ppm|.pgm|.pnm|"

typedef int read_fn(annotations *a, const char *data, size_t size, const char *name, samite_error *err);

static int read_file(annotations *a, const char *path, read_fn *read, samite_error *err)
{
    uint8_t *data = NULL;
    size_t size;
    int code = file_read(&data, &size, path, LARGEST_FILE, err);
    if (!code)
        code = read(a, (const char *)data, size, path, err);
    free(data);
    return code;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A broken file of many is left out and told; of one it is the error. */
static int settle(annotations *a, int code, const samite_error *why, samite_error *err)
{
    if (code == SAMITE_INPUT) {
        annotations_drop(a, "files that cannot be used", "%s", why->text);
        return SAMITE_OK;
    }
    if (code && err)
        *err = *why;
    return code;
}

/* Every file of the folder with this ending, or the one file. */
static int read_files(annotations *a, const samite_convert_options *o, const char *ending, read_fn *read,
                      samite_error *err)
{
    file_list l;
    if (!is_folder(o->input))
        return read_file(a, o->input, read, err);
    int code = file_list_read(&l, o->input, ending, err);
    for (size_t i = 0; i < l.count && !code; i++) {
        samite_error why = {0};
        code = set_progress(o, "read", i, l.count, err);
        if (!code)
            code = settle(a, read_file(a, l.item[i], read, &why), &why, err);
    }
    file_list_free(&l);
    return code;
}

/* ---- YOLO ---- */

/* folder/name when it exists; NULL if not. */
static char *existing(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    if (path && access(path, F_OK) == 0)
        return path;
    free(path);
    return NULL;
}

static int read_classes(annotations *a, const samite_convert_options *o, samite_error *err)
{
    static const char *const names[] = {"data.yaml", "data.yml", "classes.txt", "obj.names", "../data.yaml",
                                        "../classes.txt"};
    char *path = o->classes ? text_copy(o->classes) : NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !path && !o->classes; i++)
        path = existing(o->input, names[i]);
    if (!path)
        return fail(err, SAMITE_INPUT,
                    "%s: no data.yaml and no classes.txt there; name the classes with --classes FILE", o->input);
    int code = read_file(a, path, yolo_read_names, err);
    free(path);
    return code;
}

/* The path without folder and ending. */
static char *stem_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return strndup(name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

/* The label file of a picture goes into the set; a picture without one has no objects. */
static int read_labels(annotations *a, const char *picture, const char *labels, samite_error *err)
{
    pixels p;
    char *stem = stem_of(picture);
    text path = {0};
    int code = image_read(&p, picture, NULL, err), image = -1;
    if (!code) {
        const char *slash = strrchr(picture, '/');
        image = annotations_add_image(a, slash ? slash + 1 : picture, p.width, p.height, err);
        code = image < 0 ? SAMITE_RESOURCE : SAMITE_OK;
        pixels_free(&p);
    }
    text_printf(&path, "%s/%s.txt", labels, stem ? stem : "");
    if (!code && (!stem || path.failed))
        code = fail(err, SAMITE_RESOURCE, "out of memory for the name of a label file");
    if (!code && access(path.data, F_OK) == 0) {
        uint8_t *data = NULL;
        size_t size;
        code = file_read(&data, &size, path.data, LARGEST_FILE, err);
        if (!code)
            code = yolo_read(a, image, (const char *)data, size, path.data, err);
        free(data);
    }
    free(stem);
    text_free(&path);
    return code;
}

/* Label files whose picture is missing have no size to be read with. */
static int count_orphans(annotations *a, const file_list *pictures, const char *labels, samite_error *err)
{
    file_list l;
    name_map *known = name_map_new(pictures->count + 1);
    char **stems = calloc(pictures->count + 1, sizeof *stems);
    int code = file_list_read(&l, labels, "|.txt|", err);
    for (size_t i = 0; i < pictures->count && known && stems && !code; i++)
        if ((stems[i] = stem_of(pictures->item[i])))
            name_map_put(known, stems[i], (int64_t)i);
    for (size_t i = 0; i < l.count && known && stems && !code; i++) {
        char *stem = stem_of(l.item[i]);
        if (stem && name_map_get(known, stem) < 0 && strcmp(stem, "classes") != 0)
            annotations_drop(a, "label files without a picture", "%s", l.item[i]);
        free(stem);
    }
    for (size_t i = 0; stems && i < pictures->count; i++)
        free(stems[i]);
    free(stems);
    name_map_free(known);
    file_list_free(&l);
    return code;
}

/* `input`: a folder with labels/ and images/, or the folder of the label files itself. */
static int read_yolo(annotations *a, const samite_convert_options *o, samite_error *err)
{
    file_list pictures = {0};
    char *labels = existing(o->input, "labels"),
         *images = o->images ? text_copy(o->images) : existing(o->input, "images");
    images = images ? images : existing(o->input, "../images");
    images = images ? images : text_copy(o->input);
    labels = labels ? labels : text_copy(o->input);
    int code = images && labels ? read_classes(a, o, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    if (!code)
        code = file_list_read(&pictures, images, PICTURES, err);
    if (!code && pictures.count == 0)
        code = fail(err, SAMITE_INPUT,
                    "%s: no pictures there, and YOLO's labels are fractions of their sizes; name the "
                    "folder with --images DIR",
                    images);
    for (size_t i = 0; i < pictures.count && !code; i++) {
        samite_error why = {0};
        code = set_progress(o, "read", i, pictures.count, err);
        if (!code)
            code = settle(a, read_labels(a, pictures.item[i], labels, &why), &why, err);
    }
    if (!code)
        code = count_orphans(a, &pictures, labels, err);
    file_list_free(&pictures);
    free(labels);
    free(images);
    return code;
}

/* ---- masks ---- */

/* masks.csv: which picture and category a mask belongs to. The rows point into `csv`. */
typedef struct mask_row { char *file, *picture, *category; } mask_row;
typedef struct mask_index {
    char     *csv;
    mask_row *rows;
    size_t    count;
    name_map *files;
} mask_index;

/* Cuts the next field off, quotes taken away in place; NULL at the end of the line. */
static char *field(char **at)
{
    char *s = *at, *to = s, *start = s;
    if (!s)
        return NULL;
    bool quoted = *s == '"';
    for (s += quoted; *s && (quoted || *s != ','); s++) {
        if (quoted && *s == '"' && s[1] != '"') {
            quoted = false;
            continue;
        }
        s += quoted && *s == '"';
        *to++ = *s;
    }
    *at = *s ? s + 1 : NULL;
    *to = '\0';
    return start;
}

static int read_index(mask_index *m, const char *folder, samite_error *err)
{
    size_t size, lines = 1;
    char *path = existing(folder, "masks.csv"), *save = NULL;
    *m = (mask_index){0};
    int code = path ? file_read((uint8_t **)&m->csv, &size, path, LARGEST_FILE, err) : SAMITE_OK;
    free(path);
    for (const char *c = m->csv; c && *c; c++)
        lines += *c == '\n';
    m->rows = calloc(lines, sizeof *m->rows);
    m->files = name_map_new(lines);
    if (!code && (!m->rows || !m->files))
        code = fail(err, SAMITE_RESOURCE, "out of memory for masks.csv");
    for (char *line = m->csv && !code ? strtok_r(m->csv, "\r\n", &save) : NULL; line;
         line = strtok_r(NULL, "\r\n", &save)) {
        mask_row *row = &m->rows[m->count];
        row->file = field(&line);
        row->picture = field(&line);
        row->category = field(&line);
        if (row->category && name_map_put(m->files, row->file, (int64_t)m->count))
            m->count++;
    }
    return code;
}

static void index_free(mask_index *m)
{
    free(m->csv);
    free(m->rows);
    name_map_free(m->files);
}

/* Index of the picture of this name, made when new; negative on failure. */
static int image_named(annotations *a, const char *name, int width, int height, samite_error *err)
{
    for (size_t i = a->image_count; i-- > 0;)
        if (strcmp(a->images[i].file, name) == 0)
            return a->images[i].width == width && a->images[i].height == height
                       ? (int)i
                       : fail(err, SAMITE_INPUT, "%s: its masks have different sizes", name);
    return annotations_add_image(a, name, width, height, err) < 0 ? SAMITE_RESOURCE : (int)a->image_count - 1;
}

static int read_mask(annotations *a, const char *path, const mask_index *m, samite_error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    uint8_t *data = NULL;
    uint16_t *values = NULL;
    size_t size;
    int width, height, code = file_read(&data, &size, path, LARGEST_FILE, err);
    if (!code)
        code = image_decode_labels(&values, &width, &height, data, size, path, 0, err);
    free(data);
    if (code)
        return code;
    int64_t at = name_map_get(m->files, name);
    int image = image_named(a, at < 0 ? name : m->rows[at].picture, width, height, err);
    int category = image < 0 ? 0 : annotations_category(a, at < 0 ? "object" : m->rows[at].category, err);
    code = image < 0 ? image : category < 0 ? SAMITE_RESOURCE : label_map_read(a, image, category, values, err);
    free(values);
    return code;
}

static int read_masks(annotations *a, const samite_convert_options *o, samite_error *err)
{
    file_list l = {0};
    mask_index m;
    int code = read_index(&m, o->input, err);
    if (!code)
        code = file_list_read(&l, o->input, "|.png|", err);
    for (size_t i = 0; i < l.count && !code; i++) {
        samite_error why = {0};
        code = set_progress(o, "read", i, l.count, err);
        if (!code)
            code = settle(a, read_mask(a, l.item[i], &m, &why), &why, err);
    }
    file_list_free(&l);
    index_free(&m);
    return code;
}

int set_read(annotations *set, const samite_convert_options *o, samite_error *err)
{
    if (strcmp(o->from, "coco") == 0)
        return read_file(set, o->input, coco_annotations_read, err);
    if (strcmp(o->from, "cvat") == 0)
        return read_file(set, o->input, cvat_read, err);
    if (strcmp(o->from, "labelme") == 0)
        return read_files(set, o, "|.json|", labelme_read, err);
    if (strcmp(o->from, "voc") == 0)
        return read_files(set, o, "|.xml|", voc_read, err);
    if (strcmp(o->from, "yolo") == 0)
        return read_yolo(set, o, err);
    return read_masks(set, o, err);
}
