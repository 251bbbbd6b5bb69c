/* api_annotations_write.c - a data set as files; what a format cannot hold is counted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api_annotations.h"
#include "io/image.h"

/* ---- what is lost ---- */

static bool is_shape(const labelled_object *o)
{
    return o->drawn.count || o->mask.runs;
}

/* Why the object cannot be written; NULL: it can. What it loses is noted. */
static const char *judge(annotations *a, const labelled_object *o, const char *to)
{
    const char *picture = a->images[o->image].file;
    bool voc = strcmp(to, "voc") == 0, yolo = strcmp(to, "yolo") == 0, png = strcmp(to, "png") == 0;
    if (yolo && o->crowd)
        return "crowd regions, which YOLO does not know";
    if (png && !is_shape(o))
        return "boxes without a mask";
    if (voc && is_shape(o))
        annotations_drop(a, "masks and polygons, of which VOC keeps the box", "%.80s", picture);
    if ((voc || yolo || png) && isfinite(o->score))
        annotations_drop(a, "scores", "%.80s", picture);
    if (o->crowd && !voc && strcmp(to, "coco") != 0)
        annotations_drop(a, "marks of crowd regions", "%.80s", picture);
    return NULL;
}

static void leave_out(annotations *a, const char *to)
{
    size_t kept = 0;
    for (size_t i = 0; i < a->count; i++) {
        const char *why = judge(a, &a->objects[i], to);
        if (why) {
            annotations_drop(a, why, "%.80s", a->images[a->objects[i].image].file);
            object_free(&a->objects[i]);
        } else {
            a->objects[kept++] = a->objects[i];
        }
    }
    a->count = kept;
}

/* ---- names of files ---- */

static void free_names(char **names, size_t count)
{
    for (size_t i = 0; names && i < count; i++)
        free(names[i]);
    free(names);
}

/* The picture's name without folder and ending, with a number from 2 on. */
static char *make_name(const labelled_image *im, size_t index, size_t number)
{
    const char *slash = strrchr(im->file, '/'), *base = slash ? slash + 1 : im->file, *dot = strrchr(base, '.');
    int n = (int)(dot && dot > base ? (size_t)(dot - base) : strlen(base));
    text t = {0};
    text_printf(&t, "%.*s", n, base);
    if (n == 0)
        text_printf(&t, "picture_%zu", index + 1);
    if (number > 1)
        text_printf(&t, "_%zu", number);
    if (t.failed)
        text_free(&t);
    return t.data;
}

/* For each picture a name for files, unlike the others; NULL: out of memory. */
static char **make_names(annotations *a)
{
    char **names = calloc(a->image_count + 1, sizeof *names);
    name_map *used = name_map_new(a->image_count + 1);
    bool fine = names && used;
    for (size_t i = 0; fine && i < a->image_count; i++) {
        size_t number = 1;
        names[i] = make_name(&a->images[i], i, number);
        while (names[i] && name_map_get(used, names[i]) >= 0) {
            if (number++ == 1)
                annotations_drop(a, "names of pictures that occur twice (files got a number)", "%.80s",
                                 a->images[i].file);
            free(names[i]);
            names[i] = make_name(&a->images[i], i, number);
        }
        fine = names[i] && name_map_put(used, names[i], (int64_t)i);
    }
    name_map_free(used);
    if (fine)
        return names;
    free_names(names, a->image_count);
    return NULL;
}

/* ---- writing ---- */

typedef int write_fn(const annotations *a, int image, const char *path, samite_error *err);

/* One file a picture, as FOLDER/NAME ENDING. */
static int write_each(const annotations *a, const samite_convert_options *o, const char *folder, char **names,
                      const char *ending, write_fn *write, samite_error *err)
{
    int code = make_folders(folder, err);
    for (size_t i = 0; i < a->image_count && !code; i++) {
        text path = {0};
        text_printf(&path, "%s/%s%s", folder, names[i], ending);
        code = path.failed ? fail(err, SAMITE_RESOURCE, "out of memory")
                           : set_progress(o, "write", i, a->image_count, err);
        if (!code)
            code = write(a, (int)i, path.data, err);
        text_free(&path);
    }
    return code;
}

static int write_yolo(const annotations *a, const samite_convert_options *o, char **names, samite_error *err)
{
    char *labels = path_join(o->output, "labels"), *yaml = path_join(o->output, "data.yaml");
    int code = labels && yaml ? write_each(a, o, labels, names, ".txt", yolo_write, err)
                              : fail(err, SAMITE_RESOURCE, "out of memory");
    if (!code)
        code = yolo_write_names(a, yaml, err);
    free(labels);
    free(yaml);
    return code;
}

static int write_mask(const labelled_object *o, const labelled_image *im, const char *path, samite_error *err)
{
    rle r;
    int code = object_mask(&r, o, im->width, im->height, err);
    if (code)
        return code;
    size_t pixels = (size_t)im->width * (size_t)im->height;
    uint8_t *gray = malloc(pixels);
    if (gray)
        rle_decode(gray, &r);
    for (size_t i = 0; gray && i < pixels; i++)
        gray[i] = gray[i] ? 255 : 0;
    png_image_data png = {.width = im->width, .height = im->height, .kind = PNG_GRAY8, .data = gray};
    code = gray ? image_write_png(path, &png, err) : fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    free(gray);
    rle_free(&r);
    return code;
}

/* A field of a CSV file: quoted, line ends replaced. */
static void add_field(text *t, const char *s)
{
    text_add(t, "\"", 1);
    for (; *s; s++)
        text_add(t, *s == '"' ? "\"\"" : *s == '\n' || *s == '\r' ? " " : s, *s == '"' ? 2 : 1);
    text_add(t, "\"", 1);
}

/* OUT/NAME_1.png ... and OUT/masks.csv, which says whose they are. */
static int write_masks(const annotations *a, const samite_convert_options *o, char **names, samite_error *err)
{
    text csv = {0};
    int code = make_folders(o->output, err);
    for (size_t i = 0; i < a->image_count && !code; i++) {
        const labelled_image *im = &a->images[i];
        code = set_progress(o, "write", i, a->image_count, err);
        for (size_t k = 0; k < im->count && !code; k++) {
            text file = {0}, path = {0};
            text_printf(&file, "%s_%zu.png", names[i], k + 1);
            text_printf(&path, "%s/%s", o->output, file.failed ? "" : file.data);
            if (file.failed || path.failed)
                code = fail(err, SAMITE_RESOURCE, "out of memory for names of files");
            else
                code = write_mask(&a->objects[im->first + k], im, path.data, err);
            add_field(&csv, file.failed ? "" : file.data);
            text_add(&csv, ",", 1);
            add_field(&csv, im->file);
            text_add(&csv, ",", 1);
            add_field(&csv, a->categories[a->objects[im->first + k].category]);
            text_add(&csv, "\n", 1);
            text_free(&file);
            text_free(&path);
        }
    }
    char *path = path_join(o->output, "masks.csv");
    text_add(&csv, "", 0);
    if (!code)
        code = path ? text_write_file(&csv, path, err) : fail(err, SAMITE_RESOURCE, "out of memory for names of files");
    text_free(&csv);
    free(path);
    return code;
}

int set_write(annotations *set, const samite_convert_options *o, samite_error *err)
{
    leave_out(set, o->to);
    int code = annotations_sort(set, err);
    if (code)
        return code;
    if (strcmp(o->to, "coco") == 0)
        return coco_annotations_write(set, o->output, err);
    if (strcmp(o->to, "cvat") == 0)
        return cvat_write(set, o->output, err);
    char **names = make_names(set);
    if (!names)
        return fail(err, SAMITE_RESOURCE, "out of memory for the names of %zu files", set->image_count);
    if (strcmp(o->to, "yolo") == 0)
        code = write_yolo(set, o, names, err);
    else if (strcmp(o->to, "labelme") == 0)
        code = write_each(set, o, o->output, names, ".json", labelme_write, err);
    else if (strcmp(o->to, "voc") == 0)
        code = write_each(set, o, o->output, names, ".xml", voc_write, err);
    else
        code = write_masks(set, o, names, err);
    free_names(names, set->image_count);
    return code;
}
