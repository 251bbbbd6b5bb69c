/* dataset_match.c - results with images and categories of their own are matched to the ground truth by name. */
#include <stdlib.h>
#include <string.h>

#include "eval/dataset_read.h"

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Names of `count` things to their numbers; NULL when two share one, when one has none, or out of memory. */
static name_map *map_names(const eval_set *truth, const char *(*name)(const eval_set *, size_t), size_t count)
{
    name_map *m = name_map_new(count + 1);
    for (size_t i = 0; m && i < count; i++) {
        const char *s = name(truth, i);
        if (!s || !name_map_put(m, s, (int64_t)i)) {
            name_map_free(m);
            m = NULL;
        }
    }
    return m;
}

static const char *path_of(const eval_set *s, size_t i)
{
    return s->images[i].file_name;
}

static const char *base_of(const eval_set *s, size_t i)
{
    return s->images[i].file_name ? base_name(s->images[i].file_name) : NULL;
}

static const char *category_of(const eval_set *s, size_t i)
{
    return s->categories[i];
}

static void match_open(name_match *m, const eval_set *truth)
{
    m->open = true;
    m->paths = map_names(truth, path_of, truth->image_ids.count);
    m->bases = map_names(truth, base_of, truth->image_ids.count);
    m->categories = map_names(truth, category_of, truth->category_ids.count);
}

void match_free(name_match *m)
{
    name_map_free(m->paths);
    name_map_free(m->bases);
    name_map_free(m->categories);
    *m = (name_match){0};
}

int32_t match_image(name_match *m, const eval_set *truth, const eval_set *results, const id_value *id)
{
    int32_t own = ids_find(&results->image_ids, id);
    const char *file = own < 0 ? NULL : results->images[own].file_name;
    if (file && !m->open)
        match_open(m, truth);
    if (!file || (!m->paths && !m->bases))
        return ids_find(&truth->image_ids, id);
    int64_t at = m->paths ? name_map_get(m->paths, file) : -1;
    return (int32_t)(at < 0 && m->bases ? name_map_get(m->bases, base_name(file)) : at);
}

int32_t match_category(name_match *m, const eval_set *truth, const eval_set *results, const id_value *id)
{
    int32_t own = ids_find(&results->category_ids, id);
    const char *name = own < 0 ? NULL : results->categories[own];
    if (name && !m->open)
        match_open(m, truth);
    return name && m->categories ? (int32_t)name_map_get(m->categories, name) : ids_find(&truth->category_ids, id);
}
