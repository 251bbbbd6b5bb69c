/* weights.c - one view of a model's tensors for every container and naming. */
#define _GNU_SOURCE
#include "formats/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "formats/hf_names.h"
#include "formats/names.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"

#define INDEX_ENDING ".safetensors.index.json"
#define SCALE_ENDING "_scale"
#define INDEX_NAME "model.safetensors.index.json"

struct weights {
    char       *path;
    char        kind[80];
    const char *guess;
    file_map   *maps;
    size_t      map_count;
    tensor_list found;        /* under the names of the file */
    tensor_list official;     /* under official names */
    name_map   *index;
};

static int map_file(weights *w, const char *path, samite_error *err)
{
    file_map *maps = realloc(w->maps, (w->map_count + 1) * sizeof *maps);
    if (!maps)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    w->maps = maps;
    int code = file_map_open(&maps[w->map_count], path, err);
    if (!code)
        w->map_count++;
    return code;
}

/* A file that is no model, told apart by its first bytes as far as that helps. */
static int not_a_model(const file_map *m, samite_error *err)
{
    if (m->size == 0)
        return fail(err, SAMITE_INPUT, "%s: is empty", m->path);
    if (m->size > 40 && memcmp(m->data, "version https://git-lfs", 23) == 0)
        return fail(err, SAMITE_INPUT, "%s: is a Git LFS pointer, not the file itself; fetch it with git lfs pull",
                    m->path);
    return fail(err, SAMITE_INPUT, "%s: is neither a .pt file of torch.save nor a .safetensors file", m->path);
}

/* Reads the tensors of one mapped file. While the headers all over a large file are visited, the system is told not to
 * read ahead around each of them. */
static int read_file(weights *w, const file_map *m, samite_error *err)
{
    if (torch_file_detect(m->data, m->size)) {
        void *start = (void *)(uintptr_t)m->data;
        madvise(start, m->size, MADV_RANDOM);
        int code = torch_file_read(&w->found, m->data, m->size, m->path, err);
        madvise(start, m->size, MADV_NORMAL);
        snprintf(w->kind, sizeof w->kind, "torch zip");
        return code;
    }
    if (!safetensors_detect(m->data, m->size))
        return not_a_model(m, err);
    snprintf(w->kind, sizeof w->kind, "safetensors");
    return safetensors_read(&w->found, m->data, m->size, m->path, err);
}

static int open_file(weights *w, const char *path, samite_error *err)
{
    int code = map_file(w, path, err);
    return code ? code : read_file(w, &w->maps[w->map_count - 1], err);
}

/* The folder part of `path` ("." if it has none), yours to free. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : text_copy(".");
}

static int open_shards(weights *w, const char *index_path, samite_error *err)
{
    uint8_t *json;
    size_t size;
    int code = file_read(&json, &size, index_path, (size_t)100 << 20, err);
    if (code)
        return code;
    shard_list shards = {0};
    code = safetensors_index(&shards, json, size, index_path, err);
    free(json);
    char *folder = folder_of(index_path);
    for (size_t i = 0; !code && i < shards.count; i++) {
        char *path = folder ? path_join(folder, shards.names[i]) : NULL;
        code = path ? open_file(w, path, err) : fail(err, SAMITE_RESOURCE, "%s: out of memory", index_path);
        free(path);
    }
    snprintf(w->kind, sizeof w->kind, "safetensors, %zu shard%s", shards.count, shards.count == 1 ? "" : "s");
    free(folder);
    shard_list_free(&shards);
    return code;
}

static int open_path(weights *w, const char *path, samite_error *err)
{
    return ends_with(path, INDEX_ENDING) ? open_shards(w, path, err) : open_file(w, path, err);
}

static int open_folder(weights *w, const char *folder, samite_error *err)
{
    static const char *const names[] = {"sam3.pt", "model.safetensors", INDEX_NAME};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat st;
        char *path = path_join(folder, names[i]);
        if (!path)
            return fail(err, SAMITE_RESOURCE, "%s: out of memory", folder);
        bool there = stat(path, &st) == 0;
        int code = there ? open_path(w, path, err) : SAMITE_OK;
        free(path);
        if (there)
            return code;
    }
    return fail(err, SAMITE_INPUT, "%s: this folder has no sam3.pt, model.safetensors or " INDEX_NAME
                "; give a folder with one of them, or a file", folder);
}

/* Enters an official tensor. Two tensors of the file that come out under one name are refused, except that the shared
 * tracker may stand there twice, as the tracker and inside the detector: the first counts.
 * `found` is the name in the file, "" if that is not known. */
static int enter(weights *w, const weight *t, const char *found, samite_error *err)
{
    if (name_map_get(w->index, t->name) >= 0) {
        if (strstr(found, "inst_interactive_predictor."))
            return SAMITE_OK;
        return fail(err, SAMITE_INPUT, "%s: holds \"%s\" twice%s%s; remove one of them", w->path, t->name,
                    *found ? ", once as " : "", found);
    }
    int code = tensor_list_add(&w->official, t, err);
    const char *kept = code ? NULL : w->official.items[w->official.count - 1].name;
    if (!code && !name_map_put(w->index, kept, (int64_t)w->official.count - 1))
        code = fail(err, SAMITE_RESOURCE, "%s: out of memory", w->path);
    return code;
}

static int no_memory(const weights *w, samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "%s: out of memory", w->path);
}

static int name_plainly(weights *w, samite_error *err)
{
    int code = SAMITE_OK;
    for (size_t i = 0; !code && i < w->found.count; i++) {
        weight t = w->found.items[i];
        char *name = official_name(t.name);
        t.name = name;
        code = name ? enter(w, &t, w->found.items[i].name, err) : no_memory(w, err);
        free(name);
    }
    for (size_t i = 0; !code && i < w->found.refused_count; i++) {
        char *name = official_name(w->found.refused[i].key);
        code = name ? tensor_list_refuse(&w->official, name, w->found.refused[i].value, err) : no_memory(w, err);
        free(name);
    }
    return code;
}

static int name_from_hf(weights *w, samite_error *err)
{
    tensor_list list = {0};
    int code = hf_translate(&list, &w->found, w->path, err);
    for (size_t i = 0; !code && i < list.count; i++)
        code = enter(w, &list.items[i], "", err);
    for (size_t i = 0; !code && i < list.refused_count; i++)
        code = tensor_list_refuse(&w->official, list.refused[i].key, list.refused[i].value, err);
    tensor_list_free(&list);
    size_t n = strlen(w->kind);
    snprintf(w->kind + n, sizeof w->kind - n, ", transformers naming");
    return code;
}

static int name_all(weights *w, samite_error *err)
{
    w->guess = guess_from_names(&w->found);
    w->index = name_map_new(w->found.count);
    if (!w->index)
        return no_memory(w, err);
    return hf_detect(&w->found) ? name_from_hf(w, err) : name_plainly(w, err);
}

/* The scales of an 8-bit tensor are "NAME_scale": one f32 above 0 for each row. */
static int attach_scale(const weights *w, weight *t, const weight *s, samite_error *err)
{
    char extent[200];
    if (s->type != DT_F32 || s->axes != 1 || t->axes < 1 || s->dim[0] != t->dim[0] || !weight_contiguous(s) || t->parts)
        return fail(err, SAMITE_INPUT, "%s: tensor %s of type %s and shape %s cannot be the scales of %s: expected f32, "
                    "one for each of its %lld rows", w->path, s->name, dtype_name(s->type),
                    weight_shape(s, extent, sizeof extent), t->name, t->axes ? (long long)t->dim[0] : 0);
    for (int64_t i = 0; i < s->dim[0]; i++) {
        float v;
        memcpy(&v, (const char *)s->data + (size_t)i * sizeof v, sizeof v);
        if (!(v > 0) || !isfinite(v))
            return fail(err, SAMITE_INPUT, "%s: tensor %s: scale %lld is %g, expected a number above 0; the file is "
                        "damaged, make it again with samite convert --dtype int8", w->path, s->name, (long long)i, (double)v);
    }
    t->scale = s->data;
    return SAMITE_OK;
}

static int attach_scales(weights *w, samite_error *err)
{
    int code = SAMITE_OK;
    for (size_t i = 0; !code && i < w->official.count; i++) {
        weight *t = &w->official.items[i];
        text name = {0};
        if (t->type != DT_I8)
            continue;
        text_printf(&name, "%s" SCALE_ENDING, t->name);
        const weight *s = name.failed ? NULL : weights_find(w, name.data);
        code = name.failed ? no_memory(w, err) : s ? attach_scale(w, t, s, err) : SAMITE_OK;
        text_free(&name);
    }
    return code;
}

/* config.json beside the tensors, as the note "config.json": it knows heads and windows. Absence is fine. */
static int note_config(weights *w, samite_error *err)
{
    const size_t limit = (size_t)1 << 20;
    char *folder = folder_of(w->maps[0].path), *path = folder ? path_join(folder, "config.json") : NULL;
    uint8_t *json = NULL;
    size_t size;
    int code = path ? SAMITE_OK : no_memory(w, err);
    if (!code && file_read(&json, &size, path, limit, NULL) == SAMITE_OK)
        code = tensor_list_note(&w->found, "config.json", (const char *)json, err);
    free(json);
    free(path);
    free(folder);
    return code;
}

int weights_open(weights **out, const char *path, samite_error *err)
{
    struct stat st;
    *out = NULL;
    weights *w = calloc(1, sizeof *w);
    if (!w || !(w->path = text_copy(path))) {
        free(w);
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    }
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    int code = folder ? open_folder(w, path, err) : open_path(w, path, err);
    if (!code)
        code = name_all(w, err);
    if (!code)
        code = attach_scales(w, err);
    if (!code && hf_detect(&w->found))
        code = note_config(w, err);
    if (code) {
        weights_close(w);
        return code;
    }
    *out = w;
    return SAMITE_OK;
}

void weights_close(weights *w)
{
    if (!w)
        return;
    name_map_free(w->index);
    tensor_list_free(&w->official);
    tensor_list_free(&w->found);
    for (size_t i = 0; i < w->map_count; i++)
        file_map_close(&w->maps[i]);
    free(w->maps);
    free(w->path);
    free(w);
}

size_t weights_count(const weights *w)
{
    return w->official.count;
}

const weight *weights_at(const weights *w, size_t i)
{
    return i < w->official.count ? &w->official.items[i] : NULL;
}

const weight *weights_find(const weights *w, const char *name)
{
    int64_t at = name_map_get(w->index, name);
    return at < 0 ? NULL : &w->official.items[at];
}

bool weights_is_scale(const weights *w, const weight *t)
{
    text name = {0};
    if (!ends_with(t->name, SCALE_ENDING))
        return false;
    text_add(&name, t->name, strlen(t->name) - strlen(SCALE_ENDING));
    const weight *of = name.failed ? NULL : weights_find(w, name.data);
    text_free(&name);
    return of && of->scale && of->scale == t->data;
}

const char *weights_refusal(const weights *w, const char *name)
{
    for (size_t i = 0; i < w->official.refused_count; i++)
        if (strcmp(w->official.refused[i].key, name) == 0)
            return w->official.refused[i].value;
    return NULL;
}

const char *weights_metadata(const weights *w, const char *key)
{
    for (size_t i = 0; i < w->found.note_count; i++)
        if (strcmp(w->found.notes[i].key, key) == 0)
            return w->found.notes[i].value;
    return NULL;
}

uint64_t weights_stamp(const weights *w)
{
    uint64_t h = HASH_START;
    for (size_t i = 0; i < w->map_count; i++) {
        struct stat st = {0};
        stat(w->maps[i].path, &st);
        const uint64_t facts[] = {(uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
                                  (uint64_t)st.st_ino, (uint64_t)st.st_dev};
        h = hash_bytes(h, facts, sizeof facts);
    }
    return h;
}

void weights_rest(const weights *w)
{
    for (size_t i = 0; i < w->map_count; i++)
        file_map_drop(w->maps[i].data, w->maps[i].size);
}

const char *weights_path(const weights *w)
{
    return w->path;
}

const char *weights_kind(const weights *w)
{
    return w->kind;
}

const char *weights_guess(const weights *w)
{
    return w->guess;
}
