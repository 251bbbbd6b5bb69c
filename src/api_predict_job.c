/* api_predict_job.c - which images and prompts a prediction run has, and the settings its records are told apart by. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api_predict.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "eval/python_random.h"

#define LARGEST_PROMPTS ((size_t)64 << 20)

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "not enough memory to prepare predictions");
}

/* ---- images and categories ---- */

static int choose_images(prediction_job *j, samite_error *err)
{
    size_t n = j->truth.image_ids.count;
    j->images = malloc((n + 1) * sizeof *j->images);
    if (!j->images)
        return no_memory(err);
    memcpy(j->images, j->truth.image_order, n * sizeof *j->images);
    j->image_count = n;
    if (j->o->limit > 0 && (size_t)j->o->limit < n) {
        python_shuffle(j->images, n, n);
        j->image_count = (size_t)j->o->limit;
    }
    return SAMITE_OK;
}

static int choose_categories(prediction_job *j, samite_error *err)
{
    uint8_t *keep;
    size_t n = j->truth.category_ids.count;
    int code = evaluation_categories(&keep, &j->truth, j->o->classes, j->o->class_count, err);
    if (code)
        return code;
    j->categories = malloc((n + 1) * sizeof *j->categories);
    j->text = calloc(n + 1, sizeof *j->text);
    if (!j->categories || !j->text)
        code = no_memory(err);
    for (size_t i = 0; i < n && !code; i++) {
        int32_t c = j->truth.category_order[i];
        char id[40];
        if (keep && !keep[c])
            continue;
        if (!j->truth.categories[c])
            code = fail(err, SAMITE_INPUT, "%s: category id %s has no name, which would be its prompt", j->truth.path,
                        id_print(id, sizeof id, &j->truth.category_ids.item[c]));
        else if (!(j->text[j->category_count] = text_copy(j->truth.categories[c])))
            code = no_memory(err);
        else
            j->categories[j->category_count++] = c;
    }
    free(keep);
    return code;
}

/* With positive_only prompts are those of objects in the image; those it says itself limit them. */
static int note_asked(prediction_job *j, samite_error *err)
{
    size_t n = j->truth.category_ids.count, k = j->category_count;
    int32_t *rank = malloc((n + 1) * sizeof *rank);
    j->asked = calloc(j->truth.image_ids.count * k + 1, 1);
    if (!rank || !j->asked) {
        free(rank);
        return no_memory(err);
    }
    for (size_t i = 0; i < n; i++)
        rank[i] = -1;
    for (size_t i = 0; i < k; i++)
        rank[j->categories[i]] = (int32_t)i;
    for (size_t i = 0; j->o->positive_only && i < j->truth.count; i++) {
        const eval_item *item = &j->truth.items[i];
        if (item->category >= 0 && rank[item->category] >= 0 && eval_asked(&j->truth, item->image, item->category))
            j->asked[(size_t)item->image * k + (size_t)rank[item->category]] = 1;
    }
    for (size_t i = 0; !j->o->positive_only && i < j->truth.image_ids.count; i++)
        for (size_t c = 0; c < k; c++)
            j->asked[i * k + c] = eval_asked(&j->truth, (int32_t)i, j->categories[c]);
    free(rank);
    return SAMITE_OK;
}

bool job_asks(const prediction_job *j, size_t at, size_t category)
{
    return !j->asked || j->asked[(size_t)j->images[at] * j->category_count + category];
}

/* ---- prompts ---- */

static int set_prompt(prediction_job *j, const char *name, const char *words, samite_error *err)
{
    bool found = false;
    for (size_t i = 0; i < j->truth.category_ids.count; i++)
        found |= j->truth.categories[i] && strcmp(j->truth.categories[i], name) == 0;
    if (!found)
        return fail(err, SAMITE_INPUT, "%s: \"%s\" is no category of %s", j->o->prompts, name, j->truth.path);
    for (size_t i = 0; i < j->category_count; i++) {
        if (strcmp(j->truth.categories[j->categories[i]], name) != 0)
            continue;
        free(j->text[i]);
        if (!(j->text[i] = text_copy(words)))
            return no_memory(err);
    }
    return SAMITE_OK;
}

static int prompts_from_lines(prediction_job *j, char *data, samite_error *err)
{
    int number = 0, code = SAMITE_OK;
    for (char *line = data, *next; line && *line && !code; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        line[strcspn(line, "\r")] = '\0';
        number++;
        char *tab = strchr(line, '\t');
        if (!*line)
            continue;
        if (!tab || !tab[1])
            return fail(err, SAMITE_INPUT, "%s, line %d: expected \"category name<TAB>prompt\"", j->o->prompts, number);
        *tab = '\0';
        code = set_prompt(j, line, tab + 1, err);
    }
    return code;
}

static int read_prompts(prediction_job *j, samite_error *err)
{
    uint8_t *data;
    size_t size;
    int code = file_read(&data, &size, j->o->prompts, LARGEST_PROMPTS, err);
    if (code)
        return code;
    if (size == 0 || data[strspn((char *)data, " \t\r\n")] != '{') {
        code = prompts_from_lines(j, (char *)data, err);
        free(data);
        return code;
    }
    json_error_t e;
    json_t *o = json_loadb((const char *)data, size, 0, &e), *value;
    const char *name;
    if (!o)
        code = fail(err, SAMITE_INPUT, "%s, line %d, column %d: %s", j->o->prompts, e.line, e.column, e.text);
    json_object_foreach(o, name, value) {
        if (!code && !json_is_string(value))
            code = fail(err, SAMITE_INPUT, "%s: the prompt of \"%s\" is no string", j->o->prompts, name);
        else if (!code)
            code = set_prompt(j, name, json_string_value(value), err);
    }
    json_decref(o);
    free(data);
    return code;
}

/* ---- settings ---- */

/* Other prompts of an image are other settings. */
static uint64_t hash_asked(const prediction_job *j)
{
    return hash_bytes(HASH_START, j->asked, j->truth.image_ids.count * j->category_count) >> 1;
}

static int make_settings(prediction_job *j, const samite_model *m, samite_error *err)
{
    samite_model_info info = {.size = sizeof info};
    json_t *list = json_array();
    int code = m ? samite_model_describe(m, &info, err) : SAMITE_OK;
    for (size_t i = 0; i < j->category_count; i++) {
        char id[64];
        id_print(id, sizeof id, &j->truth.category_ids.item[j->categories[i]]);
        json_array_append_new(list, json_pack("[o,o]", json_name(id), json_name(j->text[i])));
    }
    j->settings = json_pack("{s:o, s:i, s:i, s:b, s:b, s:o}", "model", m ? json_name(info.source) : json_null(), "side",
                            info.input_side, "most", j->o->most, "masks", (j->o->iou & SAMITE_IOU_SEGM) != 0,
                            "positive_only", j->o->positive_only != 0, "prompts", list);
    if (j->settings && j->truth.has_prompts)
        json_object_set_new(j->settings, "asked", json_integer((json_int_t)hash_asked(j)));
    j->settings_text = j->settings ? json_dumps(j->settings, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    return code ? code : j->settings_text ? SAMITE_OK : no_memory(err);
}

int job_open(prediction_job *j, const samite_predict_options *o, const samite_model *m, samite_error *err)
{
    *j = (prediction_job){.o = o};
    struct stat st;
    if (stat(o->images, &st) != 0 || !S_ISDIR(st.st_mode))
        return fail(err, SAMITE_INPUT, "%s is no folder; --images names the folder of the pictures", o->images);
    eval_read_options how = {.masks = o->check_masks && !o->join_only, .prompts = !o->all_prompts};
    int code = eval_set_load(&j->truth, o->gt, &how, err);
    if (!code)
        code = choose_images(j, err);
    if (!code)
        code = choose_categories(j, err);
    if (!code && (o->positive_only || j->truth.has_prompts))
        code = note_asked(j, err);
    if (!code && o->prompts)
        code = read_prompts(j, err);
    if (!code)
        code = make_settings(j, m, err);
    return code;
}

void job_free(prediction_job *j)
{
    for (size_t i = 0; j->text && i < j->category_count; i++)
        free(j->text[i]);
    free(j->text);
    free(j->images);
    free(j->categories);
    free(j->asked);
    free(j->settings_text);
    json_decref(j->settings);
    eval_set_free(&j->truth);
    *j = (prediction_job){0};
}
