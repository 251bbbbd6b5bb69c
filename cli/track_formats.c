/* track_formats.c - frames of `samite track` in the formats of annotation tools. */
#include "track_formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "page_files.h"

#define NEED_COCO (FORMAT_COCO | FORMAT_CVAT)

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "out of memory for annotations of frames");
}

int frame_formats_open(frame_formats *f, const char *folder, unsigned formats, const char *name, samite_error *err)
{
    *f = (frame_formats){.folder = folder, .formats = formats, .name = name ? name : "object"};
    if (!formats)
        return SAMITE_OK;
    int code = page_files_folders(folder, formats, err);
    if (code || !(formats & NEED_COCO))
        return code;
    char *path = path_join(folder, "result.json");
    code = path ? file_writer_open(&f->coco, path, err) : no_memory(err);
    if (code) {
        free(path);
        return code;
    }
    f->coco_path = path;
    file_printf(&f->coco, "{\"annotations\":[");
    return SAMITE_OK;
}

static int note_frame(frame_formats *f, const samite_frame_result *r, samite_error *err)
{
    if (f->count == f->room) {
        size_t room = f->room ? 2 * f->room : 256;
        int64_t *more = realloc(f->frames, sizeof *more * 3 * room);
        if (!more)
            return no_memory(err);
        f->frames = more;
        f->room = room;
    }
    int64_t *at = f->frames + 3 * f->count++;
    at[0] = r->frame;
    at[1] = r->width;
    at[2] = r->height;
    return SAMITE_OK;
}

/* Pictures have the number of their frame plus 1 for id, because 0 is no id to some programs. */
static int add_annotation(frame_formats *f, const samite_frame_result *r, const samite_tracked *t, samite_error *err)
{
    char *counts = NULL;
    int code = samite_mask_string(&counts, &t->mask, err);
    const double box[4] = {(double)t->box[0], (double)t->box[1], (double)t->box[2] - (double)t->box[0],
                           (double)t->box[3] - (double)t->box[1]};
    json_t *o = code ? NULL
                     : json_pack("{s:I, s:I, s:i, s:I, s:[o,o,o,o], s:I, s:i, s:o, s:{s:[i,i], s:s}}", "id",
                                 (json_int_t)++f->annotations, "image_id", (json_int_t)r->frame + 1, "category_id", 1,
                                 "track_id", (json_int_t)t->id, "bbox", json_number(box[0]), json_number(box[1]),
                                 json_number(box[2]), json_number(box[3]), "area", (json_int_t)t->area, "iscrowd", 0,
                                 "score", json_number((double)t->score), "segmentation", "size", r->height, r->width,
                                 "counts", counts);
    file_printf(&f->coco, "%s", f->annotations > 1 ? ",\n" : "\n");
    bool written = json_write(&f->coco, o);
    json_decref(o);
    samite_free(counts);
    return code || written ? code : no_memory(err);
}

/* masks/000012_3.png for object 3. */
static int write_masks(const frame_formats *f, const samite_frame_result *r, const char *name, samite_error *err)
{
    int code = SAMITE_OK;
    for (int i = 0; i < r->count && !code; i++) {
        char *path = page_mask_path(f->folder, name, r->object[i].id);
        code = path ? samite_write_mask(&r->object[i].mask, path, err) : no_memory(err);
        free(path);
    }
    return code;
}

/* The files that belong to this frame alone. */
static int write_page(const frame_formats *f, const samite_frame_result *r, samite_error *err)
{
    size_t room = (size_t)r->count + 1;
    samite_instance *instances = calloc(room, sizeof *instances);
    samite_object *objects = calloc(room, sizeof *objects);
    int64_t *ids = calloc(room, sizeof *ids);
    char file[48], name[32];
    int code = instances && objects && ids ? SAMITE_OK : no_memory(err);
    snprintf(name, sizeof name, "%06lld", (long long)r->frame);
    snprintf(file, sizeof file, "%s.jpg", name);
    for (int i = 0; i < r->count && !code; i++) {
        const samite_tracked *t = &r->object[i];
        instances[i] = (samite_instance){.score = t->score, .area = t->area, .mask = t->mask};
        memcpy(instances[i].box, t->box, sizeof t->box);
        objects[i].instance = &instances[i];
        ids[i] = t->id;
    }
    samite_pixels size = {.width = r->width, .height = r->height};
    samite_page page = SAMITE_PAGE_INIT;
    page.file = file;
    page.pixels = &size;
    page.names = &f->name;
    page.name_count = 1;
    page.object = objects;
    page.object_count = r->count;
    page.track = ids;
    if (!code && f->formats & FORMAT_PNG)
        code = write_masks(f, r, name, err);
    if (!code)
        code = page_files_write(f->folder, f->formats & ~(unsigned)(FORMAT_PNG | FORMAT_OVERLAY), name, &page, NULL,
                                err);
    free(instances);
    free(objects);
    free(ids);
    return code;
}

int frame_formats_add(frame_formats *f, const samite_frame_result *r, samite_error *err)
{
    int code = f->formats ? note_frame(f, r, err) : SAMITE_OK;
    for (int i = 0; i < r->count && f->coco_path && !code; i++)
        code = add_annotation(f, r, &r->object[i], err);
    return code || !f->formats ? code : write_page(f, r, err);
}

static int finish_coco(frame_formats *f, samite_error *err)
{
    file_printf(&f->coco, "\n],\n\"images\":[");
    for (size_t i = 0; i < f->count; i++) {
        const int64_t *at = f->frames + 3 * i;
        file_printf(&f->coco, "%s{\"id\":%lld,\"file_name\":\"%06lld.jpg\",\"frame\":%lld,\"width\":%lld,"
                    "\"height\":%lld}", i ? ",\n" : "\n", (long long)at[0] + 1, (long long)at[0], (long long)at[0], (long long)at[1],
                    (long long)at[2]);
    }
    json_t *categories = json_pack("[{s:i, s:o}]", "id", 1, "name", json_name(f->name));
    file_printf(&f->coco, "\n],\n\"categories\":");
    bool written = json_write(&f->coco, categories);
    json_decref(categories);
    file_printf(&f->coco, ",\n\"info\":{\"description\":\"samite track\",\"version\":\"%s\"}}\n", SAMITE_VERSION);
    if (written)
        return file_writer_commit(&f->coco, err);
    file_writer_abort(&f->coco);
    return no_memory(err);
}

int frame_formats_close(frame_formats *f, bool keep, samite_error *err)
{
    int code = SAMITE_OK;
    if (f->coco_path && !keep)
        file_writer_abort(&f->coco);
    else if (f->coco_path)
        code = finish_coco(f, err);
    if (!code && keep && f->count && f->formats & FORMAT_CVAT)
        code = cvat_from_coco(f->coco_path, err);
    free(f->coco_path);
    free(f->frames);
    *f = (frame_formats){0};
    return code;
}
