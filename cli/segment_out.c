/* segment_out.c - result files of pictures in a folder; what is finished, and the joined COCO file.
 *
 * FOLDER/masks/NAME_1.png ..., NAME_labels.png, NAME_overlay.png, and last records/NAME.json: a COCO file of this one
 * picture, whose "info" says what it was made from. A record exists only when everything else of its picture does.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "segment.h"

#define LARGEST_RECORD ((size_t)1 << 30)

#define NEED_PIXELS (FORMAT_PNG | FORMAT_OVERLAY)      /* are left out for a picture that is read in parts */

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "out of memory for the names of result files");
}

static char *record_path(const results *r, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/records/%s.json", r->folder, name) < 0 ? NULL : path;
}

/* What tells one version of a file from another. What is no regular file (formula:tiny, "-") has only a name. */
static json_t *identity(const char *path)
{
    struct stat st;
    json_t *o = json_object();
    json_set_path(o, "path", path);
    if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        json_object_set_new(o, "bytes", json_integer((json_int_t)st.st_size));
        json_object_set_new(o, "modified",
                            json_integer((json_int_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec));
    }
    return o;
}

static json_t *make_settings(const segment_settings *s, const prompts *ask, const char *model)
{
    json_t *list = json_array();
    for (int i = 0; i < ask->count; i++)
        json_array_append_new(list, prompt_json(&ask->prompt[i]));
    const char *precision = s->engine.precision ? s->engine.precision : "default";
    json_t *o = json_pack("{s:o, s:o, s:f, s:i, s:i, s:s, s:b}", "model", identity(model), "prompts", list, "score",
                          s->score, "max_det", s->most, "size", s->engine.side, "precision", precision, "no_exif",
                          s->no_exif);
    if (o && ask->click && json_object_set_new(o, "click", click_json(ask->click))) {
        json_decref(o);
        return NULL;
    }
    if (o && s->nms >= 0)
        json_object_set_new(o, "nms", json_real(s->nms));
    if (o && ask->everything)
        json_object_set_new(o, "everything", everything_json(ask->everything));
    if (o && s->tile)
        json_object_set_new(o, "tile", json_pack("[i,i]", s->tile, ask->overlap));
    if (o && s->click.mask)
        json_object_set_new(o, "mask", identity(s->click.mask));
    return o;
}

/* DIR and the folders that the formats need. */
static int make_result_folders(const results *r, samite_error *err)
{
    char *records = path_join(r->folder, "records");
    int code = records ? make_folders(records, err) : no_memory(err);
    free(records);
    return code ? code : page_files_folders(r->folder, r->formats, err);
}

int results_open(results *r, const segment_settings *s, const prompts *ask, samite_error *err)
{
    const char *model;
    *r = (results){.folder = s->out, .formats = s->formats ? s->formats : FORMATS_USUAL};
    int code = model_path(&model, &s->engine, err);
    if (code)
        return code;
    r->settings = make_settings(s, ask, model);
    int n = s->part.of ? asprintf(&r->merged, "%s/result-%dof%d.json", s->out, s->part.at, s->part.of)
                       : asprintf(&r->merged, "%s/result.json", s->out);
    if (n < 0)
        r->merged = NULL;
    return r->settings && r->merged ? make_result_folders(r, err) : no_memory(err);
}

void results_free(results *r)
{
    json_decref(r->settings);
    free(r->merged);
    *r = (results){0};
}

static bool exists(char *path)
{
    bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

static json_t *load_record(const results *r, const char *name)
{
    uint8_t *data = NULL;
    size_t size;
    char *path = record_path(r, name);
    json_t *o = NULL;
    if (path && file_read(&data, &size, path, LARGEST_RECORD, NULL) == SAMITE_OK)
        o = json_loadb((const char *)data, size, 0, NULL);
    free(data);
    free(path);
    return o;
}

/* Equal as written: a number read back from a file has the digits that were written, not those it was made from. */
static bool same_json(const json_t *a, const json_t *b)
{
    size_t flags = JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9);
    char *x = a ? json_dumps(a, flags) : NULL, *y = b ? json_dumps(b, flags) : NULL;
    bool same = x && y && strcmp(x, y) == 0;
    free(x);
    free(y);
    return same;
}

bool results_complete(const results *r, const input *in)
{
    if (strcmp(in->path, "-") == 0)
        return false;
    json_t *record = load_record(r, in->name), *source = identity(in->path);
    json_t *info = json_object_get(json_object_get(record, "info"), "samite");
    size_t count = json_array_size(json_object_get(record, "annotations"));
    unsigned formats =
        json_is_true(json_object_get(info, "in_parts")) ? r->formats & ~(unsigned)NEED_PIXELS : r->formats;
    bool ok = same_json(json_object_get(info, "settings"), r->settings) &&
              same_json(json_object_get(info, "source"), source);
    ok = ok && page_files_exist(r->folder, formats, in->name);
    for (size_t i = 1; i <= count && ok && formats & FORMAT_PNG; i++)
        ok = exists(page_mask_path(r->folder, in->name, (int64_t)i));
    json_decref(source);
    json_decref(record);
    return ok;
}

/* The record's info: what the picture was made from, and what the prompts said beside the objects. */
static char *record_info(const results *r, const picture *p, const prompts *ask)
{
    json_t *list = json_array();
    for (int i = 0; i < ask->count; i++) {
        const samite_result *one = p->result[i];
        json_array_append_new(list, json_pack("{s:o, s:o, s:i, s:b, s:i}", "name", json_name(ask->names[i]), "presence",
                                              json_number((double)one->presence), "tokens", one->tokens, "cut",
                                              one->cut, "found", one->count));
    }
    json_t *o = json_pack("{s:s, s:{s:s, s:o, s:o, s:O, s:o, s:b}}", "description", "samite segment", "samite",
                          "version", SAMITE_VERSION, "name", json_name(p->in->name), "source", identity(p->in->path),
                          "settings", r->settings, "prompts", list, "in_parts", p->raster != NULL);
    char *s = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return s;
}

/* Takes the record away, so that the picture does not count as finished while its files are being replaced. */
static int remove_record(const results *r, const char *name, samite_error *err)
{
    char *path = record_path(r, name);
    int code = SAMITE_OK;
    if (!path)
        return no_memory(err);
    if (unlink(path) != 0 && errno != ENOENT)
        code = fail(err, SAMITE_INPUT, "cannot replace %s: %s", path, strerror(errno));
    free(path);
    return code;
}

/* Masks that an earlier run found beyond the `count` of this one. */
static void remove_old_masks(const results *r, const char *name, int count)
{
    bool removed = true;
    while (removed) {
        char *path = page_mask_path(r->folder, name, ++count);
        removed = path && unlink(path) == 0;
        free(path);
    }
}

static int write_masks(const results *r, const picture *p, samite_error *err)
{
    int code = SAMITE_OK;
    for (int i = 0; i < p->objects && !code; i++) {
        char *path = page_mask_path(r->folder, p->in->name, i + 1);
        code = path ? samite_write_mask(&p->object[i].instance->mask, path, err) : no_memory(err);
        free(path);
        if (!code)
            code = check_interrupt(err);
    }
    return code;
}

int results_write(const results *r, const picture *p, const prompts *ask, samite_error *err)
{
    samite_page page = picture_page(p, ask);
    char *record = record_path(r, p->in->name), *info = record_info(r, p, ask);
    unsigned lacking = p->raster ? NEED_PIXELS : p->pixels.rgb ? 0 : FORMAT_OVERLAY, formats = r->formats & ~lacking;
    int code = record && info ? remove_record(r, p->in->name, err) : no_memory(err);
    if (!code && formats & FORMAT_PNG) {
        code = write_masks(r, p, err);
        remove_old_masks(r, p->in->name, p->objects);
    }
    if (!code)
        code = page_files_write(r->folder, formats, p->in->name, &page, page.file, err);
    if (!code)
        code = samite_write_coco(&page, info, record, err);
    if (!code && formats != r->formats)
        say(p->raster ? "%s is read in parts: no masks, label map and overlay as pictures"
                      : "%s was encoded with --no-picture: no overlay", p->in->path);
    free(record);
    free(info);
    return code;
}

/* The joined file while it is written: annotations go out at once, pictures and categories wait for the end. */
typedef struct merger {
    file_writer out;
    json_t     *images, *categories;
    json_int_t  annotations;
    bool        failed;
} merger;

static void write_json(merger *m, const json_t *o)
{
    m->failed |= !json_write(&m->out, o);
}

/* The joined file's category of this name, made when new. */
static json_int_t category_id(merger *m, const char *name)
{
    size_t i;
    json_t *one;
    json_array_foreach(m->categories, i, one)
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
            return (json_int_t)i + 1;
    json_int_t id = (json_int_t)json_array_size(m->categories) + 1;
    m->failed |= json_array_append_new(m->categories, json_pack("{s:I, s:s}", "id", id, "name", name)) != 0;
    return id;
}

static const char *name_of_category(const json_t *record, json_int_t id)
{
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(record, "categories"), i, one)
        if (json_integer_value(json_object_get(one, "id")) == id)
            return json_string_value(json_object_get(one, "name"));
    return NULL;
}

static void merge_annotation(merger *m, const json_t *record, json_t *one, json_int_t image)
{
    const char *name = name_of_category(record, json_integer_value(json_object_get(one, "category_id")));
    json_t *number = json_incref(json_object_get(one, "id"));
    if (!name || !number) {
        json_decref(number);
        m->failed = true;
        return;
    }
    json_object_set_new(one, "object", number);
    json_object_set_new(one, "id", json_integer(++m->annotations));
    json_object_set_new(one, "image_id", json_integer(image));
    json_object_set_new(one, "category_id", json_integer(category_id(m, name)));
    file_printf(&m->out, "%s", m->annotations > 1 ? ",\n" : "\n");
    write_json(m, one);
}

/* false: the record is not what results_write leaves. */
static bool merge_record(merger *m, const json_t *record, const char *name)
{
    size_t i;
    json_t *one, *image = json_array_get(json_object_get(record, "images"), 0);
    json_t *categories = json_object_get(record, "categories");
    if (!json_is_object(image) || !json_is_array(categories))
        return false;
    json_int_t id = (json_int_t)json_array_size(m->images) + 1;
    json_array_foreach(categories, i, one) {
        const char *category = json_string_value(json_object_get(one, "name"));
        if (category)
            category_id(m, category);
    }
    json_object_set_new(image, "id", json_integer(id));
    json_object_set_new(image, "result_name", json_name(name));
    m->failed |= json_array_append(m->images, image) != 0;
    json_array_foreach(json_object_get(record, "annotations"), i, one)
        merge_annotation(m, record, one, id);
    return !m->failed;
}

static int merge_all(merger *m, const results *r, const inputs *in, samite_error *err)
{
    file_printf(&m->out, "{\"annotations\":[");
    for (int i = 0; i < in->count; i++) {
        if (in->item[i].failed)
            continue;
        json_t *record = load_record(r, in->item[i].name);
        bool fine = record && merge_record(m, record, in->item[i].name);
        json_decref(record);
        if (!fine)
            return fail(err, SAMITE_INPUT, "%s/records/%s.json cannot be joined into %s: it is missing, damaged or too "
                        "large for the memory; delete it and run again with --resume", r->folder, in->item[i].name,
                        r->merged);
        int code = check_interrupt(err);
        if (code)
            return code;
    }
    file_printf(&m->out, "\n],\n\"images\":");
    write_json(m, m->images);
    file_printf(&m->out, ",\n\"categories\":");
    write_json(m, m->categories);
    json_t *info = json_pack("{s:s, s:{s:s, s:O}}", "description", "samite segment", "samite", "version",
                             SAMITE_VERSION, "settings", r->settings);
    file_printf(&m->out, ",\n\"info\":");
    write_json(m, info);
    file_printf(&m->out, "}\n");
    json_decref(info);
    return m->failed ? fail(err, SAMITE_RESOURCE, "out of memory while joining records into %s", r->merged) : SAMITE_OK;
}

int results_merge(const results *r, const inputs *in, samite_error *err)
{
    merger m = {.images = json_array(), .categories = json_array()};
    int code = file_writer_open(&m.out, r->merged, err);
    if (!code) {
        code = merge_all(&m, r, in, err);
        if (code)
            file_writer_abort(&m.out);
        else
            code = file_writer_commit(&m.out, err);
    }
    if (!code && r->formats & FORMAT_CVAT && json_array_size(m.images))
        code = cvat_from_coco(r->merged, err);
    json_decref(m.images);
    json_decref(m.categories);
    return code;
}
