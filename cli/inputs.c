/* inputs.c - collects picture files and gives each a name of its own for result files. */
#define _GNU_SOURCE
#include "inputs.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/utf8.h"

#define LONGEST_NAME 120      /* bytes: leaves room for "_overlay.png" and a temporary's ending within NAME_MAX */

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "out of memory for the list of pictures");
}

/* Takes `path` over. */
static int add(inputs *in, char *path, samite_error *err)
{
    if (path && in->count == in->room) {
        int room = in->room ? 2 * in->room : 64;
        input *item = in->room > INT_MAX / 4 ? NULL : realloc(in->item, (size_t)room * sizeof *item);
        if (!item) {
            free(path);
            return no_memory(err);
        }
        in->item = item;
        in->room = room;
    }
    if (!path)
        return no_memory(err);
    in->item[in->count++] = (input){.path = path};
    return SAMITE_OK;
}


static int not_hidden(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static void free_entries(struct dirent **entry, int count)
{
    for (int i = 0; i < count; i++)
        free(entry[i]);
    free(entry);
}

static int entry_order(const struct dirent **a, const struct dirent **b)
{
    return natural_compare((*a)->d_name, (*b)->d_name);
}

static bool same_file(const char *a, const struct stat *b)
{
    struct stat s;
    return a && stat(a, &s) == 0 && s.st_dev == b->st_dev && s.st_ino == b->st_ino;
}

static int add_folder(inputs *in, const char *folder, bool recursive, const char *skip, samite_error *err);

/* Adds the entry if it is a picture, or what is in it if it is a folder. Links to folders are not followed. */
static int add_entry(inputs *in, const char *folder, const char *name, bool recursive, const char *skip,
                     samite_error *err)
{
    char *path = path_join(folder, name);
    struct stat st;
    if (!path)
        return no_memory(err);
    int code = SAMITE_OK;
    if (recursive && lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (!same_file(skip, &st))
            code = add_folder(in, path, recursive, skip, err);
    } else if (samite_is_picture_name(name) && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
        return add(in, path, err);
    }
    free(path);
    return code;
}

/* A folder that cannot be listed becomes an input itself: opening it fails, says why, and the batch goes on. */
static int add_folder(inputs *in, const char *folder, bool recursive, const char *skip, samite_error *err)
{
    struct dirent **entry;
    int count = scandir(folder, &entry, not_hidden, entry_order), code = SAMITE_OK;
    if (count < 0)
        return add(in, text_copy(folder), err);
    for (int i = 0; i < count && !code; i++)
        code = add_entry(in, folder, entry[i]->d_name, recursive, skip, err);
    free_entries(entry, count);
    return code;
}

/* Drops later copies of the same path; keeps the order. */
static int drop_repeats(inputs *in, samite_error *err)
{
    name_map *seen = name_map_new((size_t)in->count);
    if (!seen)
        return no_memory(err);
    int kept = 0;
    for (int i = 0; i < in->count; i++) {
        if (name_map_put(seen, in->item[i].path, i))
            in->item[kept++] = in->item[i];
        else
            free(in->item[i].path);
    }
    in->count = kept;
    name_map_free(seen);
    return SAMITE_OK;
}

/* The first `most` bytes of s, not ending inside a UTF-8 sequence. */
static int cut_length(const char *s, int most)
{
    int n = 0, total = (int)strlen(s);
    while (n < total) {
        int step = (int)utf8_sequence(s + n, (size_t)(total - n));
        step += step == 0;
        if (n + step > most)
            break;
        n += step;
    }
    return n;
}

/* Level 0: "photo" of "a/photo.jpg". Level 1: the whole path, "a_photo.jpg". Level 2: "photo-" and a hash. */
static char *make_name(const char *path, int level)
{
    if (strcmp(path, "-") == 0)
        return text_copy("stdin");
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *dot = strrchr(base, '.');
    int stem = dot && dot != base ? (int)(dot - base) : (int)strlen(base);
    char *name = NULL;
    if (level == 0 && stem <= LONGEST_NAME)
        return asprintf(&name, "%.*s", stem, base) < 0 ? NULL : name;
    while (level == 1 && starts_with(path, "./"))
        path += 2;
    if (level == 1 && strlen(path) <= LONGEST_NAME) {
        name = text_copy(path);
        for (char *c = name; c && *c; c++)
            if (*c == '/')
                *c = '_';
        return name;
    }
    int n = cut_length(base, stem < LONGEST_NAME - 17 ? stem : LONGEST_NAME - 17);
    return asprintf(&name, "%.*s-%016llx", n, base, (unsigned long long)hash_bytes(HASH_START, path, strlen(path))) < 0 ? NULL : name;
}

/* Marks every item whose name another item has too; returns how many, or -1. */
static int find_clashes(const inputs *in, bool *clash)
{
    name_map *first = name_map_new((size_t)in->count);
    int count = 0;
    if (!first)
        return -1;
    memset(clash, 0, (size_t)in->count * sizeof *clash);
    for (int i = 0; i < in->count; i++) {
        if (name_map_put(first, in->item[i].name, i))
            continue;
        int64_t other = name_map_get(first, in->item[i].name);
        if (other >= 0)
            clash[other] = true;
        clash[i] = true;
        count++;
    }
    name_map_free(first);
    return count;
}

/* Names do not depend on the order of the list: all that clash go to the next level together. */
static int give_names(inputs *in, samite_error *err)
{
    bool *clash = calloc((size_t)in->count + 1, sizeof *clash);
    if (!clash)
        return no_memory(err);
    memset(clash, true, (size_t)in->count * sizeof *clash);
    int clashes = in->count;
    for (int level = 0; level < 3 && clashes > 0; level++) {
        for (int i = 0; i < in->count && clashes > 0; i++) {
            if (!clash[i])
                continue;
            free(in->item[i].name);
            in->item[i].name = make_name(in->item[i].path, level);
            if (!in->item[i].name)
                clashes = -1;
        }
        if (clashes > 0)
            clashes = find_clashes(in, clash);
    }
    free(clash);
    if (clashes < 0)
        return no_memory(err);
    return clashes == 0 ? SAMITE_OK : fail(err, SAMITE_INPUT, "cannot find distinct result names for all pictures");
}

int inputs_collect(inputs *in, const words *paths, bool recursive, const char *skip, samite_error *err)
{
    *in = (inputs){0};
    int folders = 0, code = SAMITE_OK;
    const char *last_folder = NULL;
    for (int i = 0; i < paths->count && !code; i++) {
        const char *path = paths->item[i];
        struct stat st;
        if (strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            folders++;
            last_folder = path;
            if (same_file(skip, &st))
                code = fail(err, SAMITE_USAGE, "--out %s is the folder of the pictures: results would be taken for "
                            "pictures next time; name another folder", skip);
            else
                code = add_folder(in, path, recursive, skip, err);
        } else {
            code = add(in, text_copy(path), err);
        }
    }
    if (!code && in->count == 0)
        code = fail(err, SAMITE_INPUT, "no pictures in %s (looked for names such as .jpg .png .webp .tiff .ppm .bmp%s)",
                    last_folder, recursive ? "" : "; --recursive looks into folders in it too");
    if (!code)
        code = drop_repeats(in, err);
    in->single = folders == 0 && paths->count == 1;
    return code ? code : give_names(in, err);
}

void inputs_take_shard(inputs *in, int shard, int shards)
{
    int kept = 0;
    for (int i = 0; i < in->count; i++) {
        if (i % shards == shard - 1) {
            in->item[kept++] = in->item[i];
        } else {
            free(in->item[i].path);
            free(in->item[i].name);
        }
    }
    in->count = kept;
    in->single = in->single && shards == 1;
}

void inputs_free(inputs *in)
{
    for (int i = 0; i < in->count; i++) {
        free(in->item[i].path);
        free(in->item[i].name);
    }
    free(in->item);
    *in = (inputs){0};
}
