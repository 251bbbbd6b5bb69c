/* api_train_validate.c - scores a model as `samite eval` does, and draws a few pictures for the report. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api_train.h"
#include "base/file.h"
#include "base/text.h"

#define OVERLAY_SCORE 0.3f
#define OVERLAY_MOST  50        /* objects drawn per prompt */

/* The official names of the twelve numbers. */
static const struct { const char *ours, *official;
} names[] = {{"AP", "AP"},
             {"AP50", "AP_50"},
             {"AP75", "AP_75"},
             {"AP_small", "AP_small"},
             {"AP_medium", "AP_medium"},
             {"AP_large", "AP_large"},
             {"AR_1", "AR_maxDets@1"},
             {"AR_10", "AR_maxDets@10"},
             {"AR_100", "AR_maxDets@100"},
             {"AR_small", "AR_small"},
             {"AR_medium", "AR_medium"},
             {"AR_large", "AR_large"}};

static void take_metric(train_scores *out, const samite_metric *m)
{
    char key[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(m->name, names[i].ours) != 0 || (strcmp(m->group, "bbox") != 0 && strcmp(m->group, "segm") != 0))
            continue;
        snprintf(key, sizeof key, "coco_eval_%s_%s", m->group, names[i].official);
        json_object_set_new(out->all, key, json_real(m->value));
        if (i < 2 && strcmp(m->group, "bbox") == 0)
            *(i ? &out->ap50 : &out->ap) = m->value;
    }
}

static int evaluate(const train_config *c, const char *folder, unsigned iou, train_scores *out, samite_error *err)
{
    samite_eval_options o = SAMITE_EVAL_OPTIONS_INIT;
    samite_evaluation *e = NULL;
    char *results = path_join(folder, "predictions.json"), *images = path_join(folder, "images.json");
    const char *gt = c->val_annotations;
    o.gt = &gt;
    o.gt_count = 1;
    o.dt = results;
    o.iou = iou;
    o.image_list = images;
    int code = results && images ? samite_evaluate(&e, &o, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    for (int i = 0; i < (code ? 0 : e->count); i++)
        take_metric(out, &e->metric[i]);
    samite_evaluation_free(e);
    free(results);
    free(images);
    return code;
}

/* Ground truth in which some objects have no mask cannot be scored so; boxes still can. */
static int evaluate_masks(const training_run *r, const char *folder, train_scores *out, samite_error *err)
{
    samite_error why = {0};
    int code = evaluate(r->c, folder, SAMITE_IOU_SEGM, out, &why);
    if (code == SAMITE_INPUT && r->o->log)
        r->o->log(r->o->user, why.text);
    return code && code != SAMITE_INPUT ? fail(err, code, "%s", why.text) : 0;
}

/* ---- overlays ---- */

typedef struct drawing {
    samite_result **of;          /* [prompts] */
    samite_object  *objects;
    int             count;
} drawing;

static int ask_all(drawing *d, samite_image *im, const train_set *s, samite_error *err)
{
    int code = 0;
    for (int p = 0; p < s->prompt_count && !code; p++) {
        samite_prompt ask = SAMITE_PROMPT_INIT;
        ask.text = s->prompts[p];
        ask.score = OVERLAY_SCORE;
        ask.max_results = OVERLAY_MOST;
        ask.no_masks = !s->masks;
        code = samite_image_segment(im, &ask, &d->of[p], err);
        for (int i = 0; !code && i < d->of[p]->count; i++)
            d->objects[d->count++] = (samite_object){&d->of[p]->instance[i], p};
    }
    return code;
}

static int draw_one(samite_model *m, const train_set *s, int32_t image, const char *path, samite_error *err)
{
    char *file = train_set_picture(s, image);
    samite_pixels px = {0};
    samite_image *im = NULL;
    samite_page page = SAMITE_PAGE_INIT;
    drawing d = {calloc((size_t)s->prompt_count + 1, sizeof *d.of),
                 calloc((size_t)s->prompt_count * OVERLAY_MOST + 1, sizeof *d.objects), 0};
    int code = file && d.of && d.objects ? samite_pixels_read(&px, file, SAMITE_NO_EXIF, err)
                                         : fail(err, SAMITE_RESOURCE, "out of memory");
    if (!code)
        code = samite_image_open(&im, m, &px, err);
    if (!code)
        code = ask_all(&d, im, s, err);
    page.file = s->images[image].file_name;
    page.pixels = &px;
    page.names = s->prompts;
    page.name_count = s->prompt_count;
    page.object = d.objects;
    page.object_count = d.count;
    if (!code)
        code = samite_write_overlay(&page, NULL, path, err);
    for (int p = 0; d.of && p < s->prompt_count; p++)
        samite_result_free(d.of[p]);
    free(d.of), free(d.objects), free(file);
    samite_image_free(im);
    samite_pixels_free(&px);
    return code;
}

/* Pictures that cannot be drawn are left out: they do not matter for the training. */
static void draw_overlays(samite_model *m, const train_config *c)
{
    train_set s;
    train_options o = {c->val_annotations, c->val_images, c->val_limit, c->masks, c->keep_unused};
    char *folder = path_join(c->output, "overlays");
    if (c->overlays && folder && make_folders(folder, NULL) == 0 && train_set_read(&s, &o, NULL) == 0) {
        for (int i = 0; i < s.chosen && i < c->overlays; i++) {
            char *path = NULL;
            if (asprintf(&path, "%s/%d.jpg", folder, i + 1) >= 0)
                (void)draw_one(m, &s, s.order[i], path, NULL);
            free(path);
        }
        train_set_free(&s);
    }
    free(folder);
}

/* ---- the whole ---- */

/* Records of an earlier model under the same name must not be taken for this one's. */
static void forget_records(const char *folder)
{
    char *records = path_join(folder, "records");
    DIR *d = records ? opendir(records) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char *path = ends_with(e->d_name, ".json") ? path_join(records, e->d_name) : NULL;
        if (path)
            unlink(path);
        free(path);
    }
    if (d)
        closedir(d);
    free(records);
}

static int score(const training_run *r, const char *model, const char *title, train_scores *out, samite_error *err)
{
    const train_config *c = r->c;
    samite_options options = SAMITE_OPTIONS_INIT;
    samite_predict_options o = SAMITE_PREDICT_OPTIONS_INIT;
    samite_predicted done;
    samite_model *m = NULL;
    char *folder = NULL;
    options.threads = c->threads;
    options.precision = c->precision;
    options.input_side = c->resolution;
    int code = asprintf(&folder, "%s/val/%s", c->output, title) < 0 ? fail(err, SAMITE_RESOURCE, "out of memory") : 0;
    if (!code)
        code = make_folders(folder, err);
    if (!code) {
        forget_records(folder);
        code = samite_model_open(&m, model, &options, err);
    }
    o.gt = c->val_annotations;
    o.images = c->val_images;
    o.out = folder;
    o.iou = SAMITE_IOU_BBOX | (c->masks ? SAMITE_IOU_SEGM : 0u);
    o.limit = c->val_limit;
    o.each = r->o->validating;
    o.user = r->o->user;
    if (!code)
        code = samite_predict(m, &o, &done, err);
    char *rest = NULL;
    for (char *line = strtok_r(done.failures, "\n", &rest); line && !code && r->o->log; line = strtok_r(NULL, "\n", &rest))
        r->o->log(r->o->user, line);
    out->all = json_object();
    out->pictures = code ? 0 : done.images + done.done_before;
    if (!code)
        code = evaluate(c, folder, SAMITE_IOU_BBOX, out, err);
    if (!code && c->masks)
        code = evaluate_masks(r, folder, out, err);
    if (!code)
        draw_overlays(m, c);
    samite_model_free(m);
    free(folder);
    return code;
}

int training_validate(void *user, const char *model, const char *adapter, const char *title, train_scores *out,
                      samite_error *err)
{
    const training_run *r = user;
    char *merged = NULL;
    int code = 0;
    if (adapter) {
        if (asprintf(&merged, "%s/merged.safetensors", r->c->output) < 0)
            return fail(err, SAMITE_RESOURCE, "out of memory");
        code = samite_merge(model, adapter, merged, err);
    }
    if (!code)
        code = score(r, merged ? merged : model, title, out, err);
    if (merged)
        unlink(merged);
    free(merged);
    return code;
}
