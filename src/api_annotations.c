/* api_annotations.c - converts data sets between the formats of annotation tools: options, and folders of files. */
#include "api_annotations.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    return natural_compare(*(char *const *)a, *(char *const *)b);
}

static bool has_ending(const char *name, const char *endings)
{
    const char *dot = strrchr(name, '.');
    char wanted[16];
    if (!dot || strlen(dot) > 8)
        return false;
    snprintf(wanted, sizeof wanted, "|%s|", dot);
    for (char *c = wanted; *c; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + 32 : *c);
    return strstr(endings, wanted) != NULL;
}

static bool add_path(file_list *l, char *path)
{
    if (path && l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        char **more = realloc(l->item, room * sizeof *more);
        if (more) {
            l->item = more;
            l->room = room;
        }
    }
    if (!path || l->count == l->room) {
        free(path);
        return false;
    }
    l->item[l->count++] = path;
    return true;
}

int file_list_read(file_list *out, const char *folder, const char *endings, samite_error *err)
{
    *out = (file_list){0};
    DIR *d = opendir(folder);
    if (!d)
        return fail(err, SAMITE_INPUT, "cannot read the folder %s: %s", folder, strerror(errno));
    int code = SAMITE_OK;
    for (const struct dirent *e = readdir(d); e && !code; e = readdir(d))
        if (e->d_name[0] != '.' && has_ending(e->d_name, endings) && !add_path(out, path_join(folder, e->d_name)))
            code = fail(err, SAMITE_RESOURCE, "out of memory for the names of files in %s", folder);
    closedir(d);
    if (code)
        file_list_free(out);
    else if (out->count)
        qsort(out->item, out->count, sizeof *out->item, compare);
    return code;
}

void file_list_free(file_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->item[i]);
    free(l->item);
    *l = (file_list){0};
}

int set_progress(const samite_convert_options *o, const char *stage, size_t done, size_t total, samite_error *err)
{
    return o->progress && o->progress(o->user, stage, done, total) ? fail(err, SAMITE_CANCELLED, "interrupted")
                                                                   : SAMITE_OK;
}

static bool among(const char *word, const char *words)
{
    char wanted[24];
    return word && snprintf(wanted, sizeof wanted, "|%s|", word) < (int)sizeof wanted && strstr(words, wanted);
}

static int check(const samite_convert_options *o, samite_error *err)
{
    if (!o->input || !*o->input || !o->output || !*o->output)
        return fail(err, SAMITE_USAGE, "samite_convert_annotations: no input or no output given");
    if (!among(o->from, "|coco|yolo|labelme|voc|png|cvat|"))
        return fail(err, SAMITE_USAGE, "annotations can be read as coco, yolo, labelme, voc, png and cvat, not \"%s\"",
                    o->from ? o->from : "");
    if (!among(o->to, "|coco|yolo|labelme|voc|png|cvat|"))
        return fail(err, SAMITE_USAGE,
                    "annotations can be written as coco, yolo, labelme, voc, png and cvat, not \"%s\"",
                    o->to ? o->to : "");
    return SAMITE_OK;
}

static void tell(samite_conversion *out, const annotations *set)
{
    out->images = set->image_count;
    out->categories = set->category_count;
    out->objects = set->count;
    for (size_t i = 0; i < set->drop_count && out->drops < (int)(sizeof out->drop / sizeof *out->drop); i++) {
        samite_dropped *d = &out->drop[out->drops++];
        *d = (samite_dropped){.why = set->drops[i].why, .count = set->drops[i].count};
        memcpy(d->first, set->drops[i].first, sizeof d->first);
    }
}

int samite_convert_annotations(const samite_convert_options *options, samite_conversion *out, samite_error *err)
{
    samite_convert_options o = SAMITE_CONVERT_OPTIONS_INIT;
    annotations set = {0};
    if (!options || !out)
        return fail(err, SAMITE_USAGE, "samite_convert_annotations: no options given");
    *out = (samite_conversion){0};
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    int code = check(&o, err);
    if (!code)
        code = set_read(&set, &o, err);
    if (!code && set.image_count == 0)
        code = fail(err, SAMITE_INPUT, "%s: no %s annotations found", o.input, o.from);
    if (!code)
        code = set_write(&set, &o, err);
    if (!code)
        tell(out, &set);
    annotations_free(&set);
    return code;
}
