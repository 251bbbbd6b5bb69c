/* tracks_match.c - videos and categories of a results file are matched to those of the truth by name. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "eval/tracks_read.h"

/* A path without folders and ending: what videos are compared by. */
static void stem_of(char out[256], const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    snprintf(out, 256, "%.*s", (int)(dot && dot > name ? dot - name : (ptrdiff_t)strnlen(name, 255)), name);
}

/* Names to indices; NULL when one has none, two share one, or out of memory: then ids count. The map borrows names. */
static name_map *map_videos(const track_set *truth, pool *texts)
{
    size_t n = truth->video_ids.count;
    name_map *m = name_map_new(n + 1);
    for (size_t i = 0; m && i < n; i++) {
        char stem[256] = "";
        if (truth->videos[i].name)
            stem_of(stem, truth->videos[i].name);
        const char *kept = *stem ? pool_string(texts, stem, strlen(stem)) : NULL;
        if (!kept || !name_map_put(m, kept, (int64_t)i)) {
            name_map_free(m);
            m = NULL;
        }
    }
    return m;
}

static name_map *map_categories(const track_set *truth)
{
    size_t n = truth->category_ids.count;
    name_map *m = name_map_new(n + 1);
    for (size_t i = 0; m && i < n; i++)
        if (!*truth->categories[i] || !name_map_put(m, truth->categories[i], (int64_t)i)) {
            name_map_free(m);
            m = NULL;
        }
    return m;
}

static int match_video(track_match *m, track_set *s, const track_set *truth, const name_map *names, const json_t *v,
                       size_t at, bool only, samite_error *err)
{
    char room[64], stem[256] = "";
    bool known;
    id_value id = tracks_id(json_object_get(v, "id"), room);
    int32_t index = id.kind ? ids_put(&m->videos, &id, &known) : 0;
    const char *name = json_string_value(json_object_get(v, "name"));
    if (!id.kind)
        return fail(err, SAMITE_INPUT, "%s: video number %zu has no id", s->path, at + 1);
    if (index < 0)
        return tracks_no_memory(s, err);
    if (known)
        return fail(err, SAMITE_INPUT, "%s: video number %zu repeats an id", s->path, at + 1);
    if (name)
        stem_of(stem, name);
    m->video[index] = only ? 0 : *stem && names ? (int32_t)name_map_get(names, stem) : ids_find(&truth->video_ids, &id);
    m->frames[index] = json_array_size(json_object_get(v, "frame_indices"));
    return tracks_numbers(&m->numbers[index], s, json_object_get(v, "frame_indices"), m->frames[index], at, err);
}

static int match_category(track_match *m, track_set *s, const track_set *truth, const name_map *names, const json_t *v,
                          size_t at, bool only, samite_error *err)
{
    char room[64];
    bool known;
    id_value id = tracks_id(json_object_get(v, "id"), room);
    int32_t index = id.kind ? ids_put(&m->categories, &id, &known) : 0;
    const char *name = json_string_value(json_object_get(v, "name"));
    if (!id.kind)
        return fail(err, SAMITE_INPUT, "%s: category number %zu has no id", s->path, at + 1);
    if (index < 0)
        return tracks_no_memory(s, err);
    m->category[index] = only            ? 0
                         : name && names ? (int32_t)name_map_get(names, name)
                                         : ids_find(&truth->category_ids, &id);
    return SAMITE_OK;
}

int track_match_open(track_match *m, track_set *s, const track_set *truth, const json_t *o, samite_error *err)
{
    const json_t *videos = json_object_get(o, "videos"), *categories = json_object_get(o, "categories");
    size_t n = json_array_size(videos), k = json_array_size(categories), i;
    json_t *v;
    *m = (track_match){.video = calloc(n + 1, sizeof *m->video), .category = calloc(k + 1, sizeof *m->category),
                       .frames = calloc(n + 1, sizeof *m->frames), .numbers = calloc(n + 1, sizeof *m->numbers)};
    name_map *video_names = map_videos(truth, &s->texts), *category_names = map_categories(truth);
    int code = m->video && m->category && m->frames && m->numbers ? SAMITE_OK : tracks_no_memory(s, err);
    json_array_foreach(videos, i, v)
        code = code ? code : match_video(m, s, truth, video_names, v, i, n == 1 && truth->video_ids.count == 1, err);
    json_array_foreach(categories, i, v)
        code = code ? code : match_category(m, s, truth, category_names, v, i, k == 1 && truth->category_ids.count == 1,
                                            err);
    name_map_free(video_names);
    name_map_free(category_names);
    return code;
}

void track_match_free(track_match *m)
{
    ids_free(&m->videos);
    ids_free(&m->categories);
    free(m->video);
    free(m->category);
    free(m->frames);
    free(m->numbers);
    *m = (track_match){0};
}

int32_t track_match_video(const track_match *m, const track_set *truth, const id_value *id, const int64_t **numbers,
                          size_t *frames)
{
    int32_t own = m ? ids_find(&m->videos, id) : -1, index = own < 0 ? ids_find(&truth->video_ids, id) : m->video[own];
    *numbers = own < 0 ? NULL : m->numbers[own];
    *frames = *numbers ? m->frames[own] : index < 0 ? 0 : truth->videos[index].frames;
    return index;
}

int32_t track_match_category(const track_match *m, const track_set *truth, const id_value *id)
{
    int32_t own = m ? ids_find(&m->categories, id) : -1;
    return own < 0 ? ids_find(&truth->category_ids, id) : m->category[own];
}
