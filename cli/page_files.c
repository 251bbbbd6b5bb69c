/* page_files.c - one picture or frame in the formats of annotation tools, each in its place in a folder. */
#define _GNU_SOURCE
#include "page_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

static const struct page_file { unsigned format; const char *prefix, *suffix; } page_files[] = {
    {FORMAT_PNG, "", "_labels.png"}, {FORMAT_OVERLAY, "", "_overlay.png"}, {FORMAT_YOLO, "labels/", ".txt"},
    {FORMAT_LABELME, "labelme/", ".json"}, {FORMAT_GEOJSON, "", ".geojson"}, {FORMAT_VOC, "voc/", ".xml"},
};
#define PAGE_FILES (sizeof page_files / sizeof *page_files)

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "out of memory for the names of result files");
}

int parse_formats(void *to, const char *name, const char *value, samite_error *err)
{
    static const char *const words[] = {"coco", "png", "overlay", "yolo", "labelme", "geojson", "cvat", "voc"};
    unsigned *formats = to;
    for (const char *s = value; *s || s == value;) {
        size_t n = strcspn(s, ","), i = 0, count = sizeof words / sizeof *words;
        while (i < count && (strlen(words[i]) != n || memcmp(words[i], s, n) != 0))
            i++;
        if (i == count)
            return fail(err, SAMITE_USAGE,
                        "%s takes a list of coco, png, overlay, yolo, labelme, geojson, cvat and voc, not "
                        "\"%s\"",
                        name, value);
        *formats |= 1u << i;
        s += n + (s[n] == ',');
    }
    return SAMITE_OK;
}

static char *path_of(const char *folder, const struct page_file *f, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s%s%s", folder, f->prefix, name, f->suffix) < 0 ? NULL : path;
}

char *page_mask_path(const char *folder, const char *name, int64_t number)
{
    char *path = NULL;
    return asprintf(&path, "%s/masks/%s_%lld.png", folder, name, (long long)number) < 0 ? NULL : path;
}

static int make_folder(const char *folder, const char *name, samite_error *err)
{
    char *path = path_join(folder, name);
    int code = path ? make_folders(path, err) : no_memory(err);
    free(path);
    return code;
}

int page_files_folders(const char *folder, unsigned formats, samite_error *err)
{
    int code = formats & FORMAT_PNG ? make_folder(folder, "masks", err) : make_folders(folder, err);
    for (size_t i = 0; i < PAGE_FILES && !code; i++)
        if (formats & page_files[i].format && *page_files[i].prefix)
            code = make_folder(folder, page_files[i].prefix, err);
    return code;
}

static int write_file(const samite_page *page, unsigned format, const char *picture, const char *path,
                      samite_error *err)
{
    switch (format) {
    case FORMAT_PNG: return samite_write_label_map(page, path, err);
    case FORMAT_OVERLAY: return samite_write_overlay(page, NULL, path, err);
    case FORMAT_YOLO: return samite_write_yolo(page, path, err);
    case FORMAT_LABELME: return samite_write_labelme(page, path, err);
    case FORMAT_GEOJSON: return samite_write_geojson(page, picture, path, err);
    default: return samite_write_voc(page, path, err);
    }
}

int page_files_write(const char *folder, unsigned formats, const char *name, const samite_page *page,
                     const char *picture, samite_error *err)
{
    int code = SAMITE_OK;
    for (size_t i = 0; i < PAGE_FILES && !code; i++) {
        if (!(formats & page_files[i].format))
            continue;
        char *path = path_of(folder, &page_files[i], name);
        code = path ? write_file(page, page_files[i].format, picture, path, err) : no_memory(err);
        free(path);
    }
    if (!code && formats & FORMAT_YOLO) {
        char *names = path_join(folder, "data.yaml");
        code = names ? samite_write_yolo_names(page, names, err) : no_memory(err);
        free(names);
    }
    return code;
}

bool page_files_exist(const char *folder, unsigned formats, const char *name)
{
    bool all = true;
    for (size_t i = 0; i < PAGE_FILES && all; i++) {
        if (!(formats & page_files[i].format))
            continue;
        char *path = path_of(folder, &page_files[i], name);
        all = path && access(path, F_OK) == 0;
        free(path);
    }
    return all;
}

int cvat_from_coco(const char *coco, samite_error *err)
{
    samite_convert_options o = SAMITE_CONVERT_OPTIONS_INIT;
    samite_conversion c;
    char *path = NULL;
    if (asprintf(&path, "%.*s.cvat.xml", (int)(strlen(coco) - strlen(".json")), coco) < 0)
        return no_memory(err);
    o.input = coco;
    o.output = path;
    o.from = "coco";
    o.to = "cvat";
    int code = samite_convert_annotations(&o, &c, err);
    free(path);
    return code;
}
