/* api_predict_records.c - one record per finished image; predictions.json when all are there. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api_predict.h"
#include "base/file.h"
#include "base/json.h"

#define LARGEST_RECORD ((size_t)1 << 30)

static char *record_path(const prediction_job *j, size_t at)
{
    char *path = NULL;
    return asprintf(&path, "%s/records/%d.json", j->o->out, (int)j->images[at]) < 0 ? NULL : path;
}

static json_t *id_json(const id_value *id)
{
    char digits[64];
    if (id->kind == ID_INTEGER && !id->quoted)
        return json_integer((json_int_t)id->number);
    if (id->kind == ID_TEXT && !id->quoted)
        return json_real(strtod(id->text, NULL));
    return json_name(id->kind == ID_TEXT ? id->text : id_print(digits, sizeof digits, id));
}

/* Rounded to five decimals as the official dump is: correctly, on the exact value. */
static void print_five(file_writer *w, float v)
{
    char s[64];
    snprintf(s, sizeof s, "%.5f", (double)v);
    size_t n = strlen(s);
    while (s[n - 1] == '0' && s[n - 2] != '.')
        s[--n] = '\0';
    file_printf(w, "%s", s);
}

static void print_detection(file_writer *w, const prediction_job *j, const char *image, const detection *d, int width,
                            int height)
{
    json_t *category = id_json(&j->truth.category_ids.item[j->categories[d->category]]);
    char *id = json_dumps(category, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    const float box[4] = {d->box[0], d->box[1], d->box[2] - d->box[0], d->box[3] - d->box[1]};
    file_printf(w, "{\"image_id\":%s,\"category_id\":%s,\"bbox\":[", image, id ? id : "null");
    for (int i = 0; i < 4; i++) {
        file_printf(w, "%s", i ? "," : "");
        print_five(w, box[i]);
    }
    file_printf(w, "],\"score\":");
    print_five(w, d->score);
    if (d->counts) {
        json_t *s = json_string(d->counts);
        char *counts = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
        file_printf(w, ",\"segmentation\":{\"size\":[%d,%d],\"counts\":%s}", height, width, counts ? counts : "\"\"");
        free(counts);
        json_decref(s);
    }
    file_printf(w, "}");
    free(id);
    json_decref(category);
}

/* Of the prompts that were asked. */
static void print_presence(file_writer *w, const prediction_job *j, size_t at, const float *presence)
{
    bool any = false;
    file_printf(w, "\"presence\":[");
    for (size_t c = 0; c < j->category_count; c++) {
        if (!job_asks(j, at, c))
            continue;
        json_t *category = id_json(&j->truth.category_ids.item[j->categories[c]]);
        char *id = json_dumps(category, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        file_printf(w, "%s{\"category_id\":%s,\"presence\":", any ? "," : "", id ? id : "null");
        print_five(w, presence[c]);
        file_printf(w, "}");
        any = true;
        free(id);
        json_decref(category);
    }
    file_printf(w, "],\n");
}

int record_write(const prediction_job *j, size_t at, const record_data *data, samite_error *err)
{
    char *path = record_path(j, at);
    json_t *id = id_json(&j->truth.image_ids.item[j->images[at]]), *why = data->error ? json_name(data->error) : NULL;
    char *image = id ? json_dumps(id, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
    file_writer w;
    int code =
        path && image ? file_writer_open(&w, path, err) : fail(err, SAMITE_RESOURCE, "not enough memory for a record");
    if (!code) {
        file_printf(&w, "{\"settings\":%s,\n\"image_id\":%s,\n", j->settings_text, image);
        if (why) {
            char *line = json_dumps(why, JSON_ENCODE_ANY);
            file_printf(&w, "\"error\":%s,\n", line ? line : "\"\"");
            free(line);
        }
        if (data->presence)
            print_presence(&w, j, at, data->presence);
        file_printf(&w, "\"results\":[");
        for (size_t i = 0; i < data->count; i++) {
            file_printf(&w, "%s", i ? ",\n" : "\n");
            print_detection(&w, j, image, &data->d[i], data->width, data->height);
        }
        file_printf(&w, "]}\n");
        code = file_writer_commit(&w, err);
    }
    json_decref(id);
    json_decref(why);
    free(image);
    free(path);
    return code;
}

/* The record, or NULL when there is none of this run. */
static json_t *record_load(const prediction_job *j, size_t at)
{
    uint8_t *data = NULL;
    size_t size;
    char *path = record_path(j, at);
    json_t *o = NULL;
    if (path && access(path, F_OK) == 0 && file_read(&data, &size, path, LARGEST_RECORD, NULL) == SAMITE_OK)
        o = json_loadb((const char *)data, size, 0, NULL);
    json_t *settings = json_object_get(o, "settings");
    char *made_with = settings ? json_dumps(settings, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_t *id = id_json(&j->truth.image_ids.item[j->images[at]]);
    if (!made_with || strcmp(made_with, j->settings_text) != 0 || !json_equal(json_object_get(o, "image_id"), id)) {
        json_decref(o);
        o = NULL;
    }
    json_decref(id);
    free(made_with);
    free(data);
    free(path);
    return o;
}

bool record_finished(const prediction_job *j, size_t at, bool *failed)
{
    json_t *o = record_load(j, at);
    bool there = o != NULL;
    *failed = json_object_get(o, "error") != NULL;
    json_decref(o);
    return there;
}

static bool all_there(const prediction_job *j)
{
    bool there = true;
    for (size_t i = 0; i < j->image_count && there; i++) {
        char *path = record_path(j, i);
        there = path && access(path, F_OK) == 0;
        free(path);
    }
    return there;
}

/* predictions.json and images.json while they are written. */
typedef struct joiner {
    file_writer all, ids, presence;
    bool        any, any_id, any_presence, has_presence;
    int         left_out;
} joiner;

/* {"image_id", "category_id", "presence"} */
static void join_presence(joiner *w, json_t *record)
{
    json_t *one;
    size_t i;
    json_array_foreach(json_object_get(record, "presence"), i, one) {
        json_object_set(one, "image_id", json_object_get(record, "image_id"));
        char *s = json_dumps(one, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
        file_printf(&w->presence, "%s%s", w->any_presence ? ",\n" : "\n", s ? s : "null");
        w->any_presence = true;
        free(s);
    }
}

/* Appends the results of one record; false when it is not there. */
static bool join_one(joiner *w, const prediction_job *j, size_t at)
{
    json_t *o = record_load(j, at), *one;
    size_t i;
    if (!o)
        return false;
    if (json_object_get(o, "error")) {
        w->left_out++;
    } else {
        char *id = json_dumps(json_object_get(o, "image_id"), JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        file_printf(&w->ids, "%s%s", w->any_id ? ",\n" : "", id ? id : "null");
        w->any_id = true;
        free(id);
        if (w->has_presence)
            join_presence(w, o);
        json_array_foreach(json_object_get(o, "results"), i, one) {
            char *s = json_dumps(one, JSON_COMPACT | JSON_REAL_PRECISION(15));
            file_printf(&w->all, "%s%s", w->any ? ",\n" : "\n", s ? s : "null");
            w->any = true;
            free(s);
        }
    }
    json_decref(o);
    return true;
}

/* Ends all files, or drops them. */
static int join_end(joiner *w, bool keep, samite_error *err)
{
    file_writer *files[] = {&w->all, &w->ids, &w->presence};
    int code = SAMITE_OK;
    for (int i = 0; i < (w->has_presence ? 3 : 2); i++) {
        if (keep && !code)
            code = file_writer_commit(files[i], err);
        else
            file_writer_abort(files[i]);
    }
    return code;
}

static int join_all(joiner *w, const prediction_job *j, bool *complete, samite_error *err)
{
    file_printf(&w->all, "[");
    file_printf(&w->ids, "[");
    if (w->has_presence)
        file_printf(&w->presence, "[");
    for (size_t i = 0; i < j->image_count && *complete; i++)
        *complete = join_one(w, j, i);
    file_printf(&w->all, "]\n");
    file_printf(&w->ids, "]\n");
    if (w->has_presence)
        file_printf(&w->presence, "]\n");
    return join_end(w, *complete, err);
}

/* Opens the files to join into; one of an earlier run that has no successor goes away. */
static int join_open(joiner *w, const prediction_job *j, samite_error *err)
{
    static const char *const names[] = {"predictions.json", "images.json", "presence.json"};
    file_writer *files[] = {&w->all, &w->ids, &w->presence};
    int code = SAMITE_OK, opened = 0;
    w->has_presence = j->truth.has_prompts;
    for (int i = 0; i < 3 && !code; i++) {
        char *path = path_join(j->o->out, names[i]);
        if (!path)
            code = fail(err, SAMITE_RESOURCE, "not enough memory");
        else if (i == 2 && !w->has_presence)
            unlink(path);
        else if ((code = file_writer_open(files[i], path, err)) == SAMITE_OK)
            opened++;
        free(path);
    }
    while (code && opened > 0)
        file_writer_abort(files[--opened]);
    return code;
}

int records_join(const prediction_job *j, samite_predicted *out, samite_error *err)
{
    joiner w = {.left_out = 0};
    bool complete = all_there(j);
    out->complete = 0;
    if (!complete)
        return SAMITE_OK;
    int code = join_open(&w, j, err);
    if (!code)
        code = join_all(&w, j, &complete, err);
    out->complete = !code && complete;
    out->left_out = w.left_out;
    return code;
}
