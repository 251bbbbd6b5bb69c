/* api_predict.c - a model over the images of a data set by the official protocol. */
#include "api_predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/mask.h"

#define USUAL_MOST 100

/* The best detections of one image so far, best first; equal scores stay in the order they came. */
typedef struct best_list {
    detection *item;
    size_t     count, most;
} best_list;

typedef struct worker {
    prediction_job   j;
    samite_model    *model;
    samite_image    *image;
    best_list        best;
    float           *presence;      /* [categories] of this image */
    samite_predicted *out;
} worker;

static void best_clear(best_list *b)
{
    for (size_t i = 0; i < b->count; i++)
        free(b->item[i].counts);
    b->count = 0;
}

/* Takes `d` over. */
static void best_add(best_list *b, detection d)
{
    size_t at = b->count;
    while (at > 0 && b->item[at - 1].score < d.score)
        at--;
    if (at >= b->most) {
        free(d.counts);
        return;
    }
    if (b->count == b->most)
        free(b->item[--b->count].counts);
    memmove(b->item + at + 1, b->item + at, (b->count - at) * sizeof *b->item);
    b->item[at] = d;
    b->count++;
}

static int call_each(const worker *w, const char *what, size_t at, size_t total, samite_error *err)
{
    const samite_predict_options *o = w->j.o;
    return o->each && o->each(o->user, what, at, total) ? fail(err, SAMITE_CANCELLED, "interrupted") : SAMITE_OK;
}

/* As stored when that has the size in the ground truth (or there is none), else upright. */
static int read_picture(samite_pixels *out, const prediction_job *j, const eval_image *im, samite_error *err)
{
    if (!im->file_name)
        return fail(err, SAMITE_INPUT, "%s: an image has no file_name", j->truth.path);
    char *path = path_join(j->o->images, im->file_name);
    int code = path ? samite_pixels_read(out, path, SAMITE_NO_EXIF, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    bool known = im->width > 0 && im->height > 0;
    if (!code && known && (out->width != im->width || out->height != im->height) && out->exif_orientation > 1) {
        samite_pixels_free(out);
        code = samite_pixels_read(out, path, 0, err);
    }
    if (!code && known && (out->width != im->width || out->height != im->height)) {
        code =
            fail(err, SAMITE_INPUT, "%s has %d x %d pixels, %s says %d x %d; is this another version of the picture?",
                 path, out->width, out->height, j->truth.path, im->width, im->height);
        samite_pixels_free(out);
    }
    free(path);
    return code;
}

/* One prompt; what cannot be among the best any more is not asked for, so that few masks are computed in vain. */
static int ask(worker *w, int32_t category, samite_error *err)
{
    best_list *b = &w->best;
    bool masks = (w->j.o->iou & SAMITE_IOU_SEGM) != 0;
    samite_prompt p = SAMITE_PROMPT_INIT;
    samite_result *res = NULL;
    p.text = w->j.text[category];
    p.score = b->count == b->most ? b->item[b->count - 1].score : 0;
    p.max_results = w->j.o->most;
    p.no_masks = !masks;
    p.whole_boxes = 1;
    p.nms = 0;
    int code = samite_image_segment(w->image, &p, &res, err);
    for (int i = 0; i < (code ? 0 : res->count) && !code; i++) {
        const samite_instance *s = &res->instance[i];
        detection d = {.score = s->score, .category = category};
        memcpy(d.box, s->box, sizeof d.box);
        if (masks && s->mask.runs)
            code = samite_mask_string(&d.counts, &s->mask, err);
        if (!code)
            best_add(b, d);
    }
    if (!code)
        w->presence[category] = res->presence;
    samite_result_free(res);
    return code;
}

static int predict_picture(worker *w, size_t at, samite_error *err)
{
    prediction_job *j = &w->j;
    samite_pixels px = {0};
    int code = read_picture(&px, j, &j->truth.images[j->images[at]], err);
    if (code)
        return code;
    code = w->image ? samite_image_replace(w->image, &px, err) : samite_image_open(&w->image, w->model, &px, err);
    for (size_t c = 0; c < j->category_count && !code; c++) {
        if (!job_asks(j, at, c))
            continue;
        code = call_each(w, "prompt", c, j->category_count, err);
        if (!code)
            code = ask(w, (int32_t)c, err);
    }
    if (!code)
        code = record_write(j, at, &(record_data){w->best.item, w->best.count, j->truth.has_prompts ? w->presence : NULL,
                                                  px.width, px.height, NULL}, err);
    samite_pixels_free(&px);
    return code;
}

/* A picture that cannot be used is noted and does not end the run. */
static int note_failure(worker *w, size_t at, const samite_error *why, samite_error *err)
{
    samite_predicted *out = w->out;
    size_t n = strlen(out->failures), more = strlen(why->text);
    out->failed++;
    if (n + more + 2 <= sizeof out->failures)
        snprintf(out->failures + n, sizeof out->failures - n, "%s%s", n ? "\n" : "", why->text);
    return record_write(&w->j, at, &(record_data){.error = why->text}, err);
}

static int predict_one(worker *w, size_t at, samite_error *err)
{
    bool failed;
    w->out->images++;
    if (record_finished(&w->j, at, &failed) && !failed) {
        w->out->done_before++;
        return SAMITE_OK;
    }
    samite_error why = {0};
    int code = call_each(w, "image", at, w->j.image_count, err);
    if (code)
        return code;
    code = predict_picture(w, at, &why);
    best_clear(&w->best);
    if (code == SAMITE_INPUT)
        return note_failure(w, at, &why, err);
    return code ? fail(err, code, "%s", why.text) : SAMITE_OK;
}

/* Of an image; where images say themselves what is asked, each prompt keeps its own. */
static size_t most_results(const prediction_job *j)
{
    size_t most = 1;
    for (size_t i = 0; j->truth.has_prompts && i < j->image_count; i++) {
        size_t asked = 0;
        for (size_t c = 0; c < j->category_count; c++)
            asked += job_asks(j, i, c);
        most = asked > most ? asked : most;
    }
    return most * (size_t)j->o->most;
}

static int predict_all(worker *w, samite_error *err)
{
    const samite_predict_options *o = w->j.o;
    size_t step = o->shards > 1 ? (size_t)o->shards : 1, first = o->shards > 1 ? (size_t)o->shard - 1 : 0;
    char *records = path_join(o->out, "records");
    int code = records ? make_folders(records, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    free(records);
    w->best.most = most_results(&w->j);
    w->best.item = malloc((w->best.most + 1) * sizeof *w->best.item);
    w->presence = calloc(w->j.category_count + 1, sizeof *w->presence);
    if (!code && (!w->best.item || !w->presence))
        code = fail(err, SAMITE_RESOURCE, "not enough memory for %zu results per image", w->best.most);
    for (size_t i = first; i < w->j.image_count && !code && !o->join_only; i += step)
        code = predict_one(w, i, err);
    return code ? code : records_join(&w->j, w->out, err);
}

static int check_options(samite_predict_options *own, const samite_predict_options *o, const samite_model *m,
                         samite_error *err)
{
    *own = (samite_predict_options)SAMITE_PREDICT_OPTIONS_INIT;
    memcpy(own, o, o->size < sizeof *own ? o->size : sizeof *own);
    if (!own->gt || !own->images || !own->out || !m)
        return fail(err, SAMITE_USAGE,
                    "samite_predict: model, ground truth, folder of pictures and output folder are all needed");
    if (own->shards < 0 || (own->shards > 0 && (own->shard < 1 || own->shard > own->shards)))
        return fail(err, SAMITE_USAGE, "samite_predict: there is no shard %d of %d", own->shard, own->shards);
    if (own->most < 0)
        return fail(err, SAMITE_USAGE, "samite_predict: %d results per image", own->most);
    own->most = own->most ? own->most : USUAL_MOST;
    return SAMITE_OK;
}

int samite_predict(samite_model *m, const samite_predict_options *o, samite_predicted *out, samite_error *err)
{
    samite_predict_options own;
    if (!o || !out)
        return fail(err, SAMITE_USAGE, "samite_predict: no options, or nowhere to put the counts");
    *out = (samite_predicted){0};
    int code = check_options(&own, o, m, err);
    if (code)
        return code;
    worker w = {.model = m, .out = out};
    code = job_open(&w.j, &own, m, err);
    if (!code)
        code = predict_all(&w, err);
    best_clear(&w.best);
    free(w.best.item);
    free(w.presence);
    samite_image_free(w.image);
    job_free(&w.j);
    return code;
}
