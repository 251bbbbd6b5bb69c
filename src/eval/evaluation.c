/* evaluation.c - reads the files, evaluates each IoU type, and puts numbers and remarks together. */
#include "eval/evaluation.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "eval/cgf1.h"
#include "eval/json_stream.h"
#include "eval/presence.h"
#include "eval/python_random.h"
#include "eval/report.h"

void findings_free(findings *f)
{
    free(f->metric);
    free(f->note);
    json_decref(f->json);
    pool_free(&f->texts);
    *f = (findings){0};
}

/* Names come from files and go to terminals. */
static void remove_controls(char *s)
{
    for (; s && *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
}

void findings_number(findings *f, const char *group, const char *name, double value)
{
    char *g = pool_string(&f->texts, group, strlen(group)), *n = pool_string(&f->texts, name, strlen(name));
    if (!g || !n || grow(&f->metric, f->metrics, &f->metric_room, sizeof *f->metric)) {
        f->failed = true;
        return;
    }
    remove_controls(n);
    f->metric[f->metrics++] = (samite_metric){g, n, value};
}

void findings_note(findings *f, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    remove_controls(line);
    for (size_t i = 0; i < f->notes; i++)
        if (strcmp(f->note[i], line) == 0)
            return;
    char *copy = pool_string(&f->texts, line, strlen(line));
    if (!copy || grow(&f->note, f->notes, &f->note_room, sizeof *f->note))
        f->failed = true;
    else
        f->note[f->notes++] = copy;
}

static json_t *group_of(findings *f, const char *group)
{
    json_t *g = json_object_get(f->json, group);
    if (!g) {
        g = json_object();
        f->failed |= json_object_set_new(f->json, group, g) != 0;
    }
    return g;
}

void findings_put(findings *f, const char *group, const char *name, double value)
{
    f->failed |= json_object_set_new(group_of(f, group), name, json_number(value)) != 0;
}

/* ---- which images and categories ---- */

typedef struct id_list {
    const eval_set *truth;
    uint8_t        *keep;
    samite_error   *err;
    const char     *path;
} id_list;

static bool list_id(id_list *l, id_value id)
{
    char name[64];
    int32_t at = ids_find(&l->truth->image_ids, &id);
    if (at < 0)
        fail(l->err, SAMITE_INPUT, "%s: image id %s is not in %s", l->path, id_print(name, sizeof name, &id),
             l->truth->path);
    else
        l->keep[at] = 1;
    return at >= 0;
}

static bool list_number(void *to, const char *s, size_t size)
{
    return list_id(to, id_from_number(s, size));
}

static bool list_string(void *to, const char *s, size_t size)
{
    return list_id(to, id_from_string(s, size));
}

static bool list_other(void *to, int value)
{
    id_list *l = to;
    (void)value;
    fail(l->err, SAMITE_INPUT, "%s: expected a JSON list of image ids", l->path);
    return false;
}

static bool list_key(void *to, const char *s, size_t size)
{
    (void)s;
    (void)size;
    return list_other(to, 0);
}

static bool list_bracket(void *to, bool map)
{
    return !map || list_other(to, 0);
}

static int keep_listed(uint8_t *keep, const eval_set *truth, const char *path, samite_error *err)
{
    static const json_events events = {list_number, list_string,  list_other, list_key,
                                       list_bracket, list_bracket};
    samite_error own = {0};
    id_list l = {truth, keep, &own, path};
    int code = json_stream_file(path, &events, &l, &own);
    return code ? fail(err, code, "%s", own.text) : SAMITE_OK;
}

static int keep_chosen(uint8_t *keep, const eval_set *truth, size_t limit, samite_error *err)
{
    size_t n = truth->image_ids.count;
    int32_t *order = malloc((n + 1) * sizeof *order);
    if (!order)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %zu images", n);
    memcpy(order, truth->image_order, n * sizeof *order);
    python_shuffle(order, n, n);
    for (size_t i = 0; i < n; i++)
        keep[order[i]] = i < limit;
    free(order);
    return SAMITE_OK;
}

int evaluation_images(uint8_t **keep, const eval_set *truth, int limit, const char *list, samite_error *err)
{
    size_t n = truth->image_ids.count;
    bool choose = limit > 0 && (size_t)limit < n;
    *keep = NULL;
    if (!choose && !list)
        return SAMITE_OK;
    if (!(*keep = calloc(n + 1, 1)))
        return fail(err, SAMITE_RESOURCE, "not enough memory for %zu images", n);
    int code = list ? keep_listed(*keep, truth, list, err) : keep_chosen(*keep, truth, (size_t)limit, err);
    if (code) {
        free(*keep);
        *keep = NULL;
    }
    return code;
}

int evaluation_categories(uint8_t **keep, const eval_set *truth, const char *const *classes, int count,
                          samite_error *err)
{
    size_t n = truth->category_ids.count;
    *keep = NULL;
    if (!classes || count <= 0)
        return SAMITE_OK;
    uint8_t *k = calloc(n + 1, 1);
    if (!k)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %zu categories", n);
    for (int i = 0; i < count; i++) {
        bool found = false;
        for (size_t c = 0; c < n; c++)
            if (truth->categories[c] && strcmp(truth->categories[c], classes[i]) == 0)
                k[c] = found = true;
        if (!found) {
            free(k);
            return fail(err, SAMITE_USAGE, "%s has no category \"%s\"", truth->path, classes[i]);
        }
    }
    *keep = k;
    return SAMITE_OK;
}

/* ---- remarks ---- */

static void note_truth(findings *f, const eval_set *s, const samite_eval_options *o)
{
    const id_value zero = {.kind = ID_INTEGER};
    if (ids_find(&s->ids, &zero) >= 0 && o->kind == SAMITE_EVAL_COCO)
        findings_note(
            f,
            o->compat
                ? "%s has an annotation with id 0: as in pycocotools, it never counts as found"
                : "%s has an annotation with id 0: it is treated like any other; pycocotools would never count it as "
                  "found (--pycocotools-compat does the same)",
            s->path);
    if (s->no_area)
        findings_note(f, "%s: %zu annotations have no area; that of the mask or else of the box is taken", s->path,
                      s->no_area);
    if (s->no_crowd)
        findings_note(f, "%s: %zu annotations have no iscrowd; 0 is taken", s->path, s->no_crowd);
    if (s->ignore_flags)
        findings_note(f, "%s: %zu annotations have \"ignore\"; by COCO's rules only iscrowd counts", s->path,
                      s->ignore_flags);
    if (s->unknown_images)
        findings_note(f, "%s: %zu annotations are on images that are not listed (the first: image id %s); left out",
                      s->path, s->unknown_images, s->first_unknown);
    if (s->unknown_categories)
        findings_note(f, "%s: %zu annotations have a category that is not listed; left out", s->path,
                      s->unknown_categories);
    if (s->repeated_ids)
        findings_note(f,
                      o->compat
                          ? "%s: %zu annotations repeat an id (the first: %s): as in pycocotools, the last of each "
                            "stands for all"
                          : "%s: %zu annotations repeat an id (the first: %s); each counts for itself",
                      s->path, s->repeated_ids, s->first_repeated);
    if (s->repeated_images)
        findings_note(f, "%s: %zu images repeat an id (the first: %s); the last of each counts", s->path,
                      s->repeated_images, s->first_image);
    if (s->made_categories)
        findings_note(f, "%s has no \"categories\"; they are taken from the annotations", s->path);
    if (s->count == 0)
        findings_note(f, "%s has no annotations: there is nothing to be found, so all numbers are -1", s->path);
}

static void note_results(findings *f, const eval_set *s, const eval_set *truth)
{
    if (s->unknown_images)
        findings_note(f, "%s: %zu results are on images that %s does not have (the first: image id %s); left out",
                      s->path, s->unknown_images, truth->path, s->first_unknown);
    if (s->unknown_categories)
        findings_note(f, "%s: %zu results have a category that %s does not have; left out, as in pycocotools%s",
                      s->path, s->unknown_categories, truth->path,
                      s->count ? "" : ". None is left: is this another data set?");
    if (s->negative_boxes)
        findings_note(f, "%s: %zu results have a box of negative width or height; they count as wrong: are these "
                         "corners instead of [x, y, width, height]?", s->path, s->negative_boxes);
    if (s->matched_by_name)
        findings_note(f, "%s has images and categories of its own; they are matched to those of %s by name", s->path,
                      truth->path);
    if (s->count == 0 && s->unknown_categories == 0)
        findings_note(f, "%s has no results", s->path);
}

/* ---- COCO ---- */

static void put_array(findings *f, json_t *group, const char *name, const double *v, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; a && i < n; i++)
        f->failed |= json_array_append_new(a, json_real(v[i])) != 0;
    f->failed |= json_object_set_new(group, name, a) != 0;
}

static void put_categories(findings *f, json_t *group, const char *kind, const coco_result *r, const eval_set *truth)
{
    json_t *ap = json_object(), *list = json_array();
    char name[160], all[200];
    snprintf(all, sizeof all, "%s/category", kind);
    for (size_t k = 0; k < r->categories; k++) {
        char id[64];
        int32_t c = r->category[k];
        id_print(id, sizeof id, &truth->category_ids.item[c]);
        snprintf(name, sizeof name, "%s %s", id, truth->categories[c] ? truth->categories[c] : "");
        findings_number(f, all, name, r->category_ap[k]);
        f->failed |= json_object_set_new(ap, id, json_number(r->category_ap[k])) != 0;
        json_t *one = json_pack("{s:o, s:o, s:o, s:o}", "id", json_name(id), "name",
                                json_name(truth->categories[c] ? truth->categories[c] : ""), "AP",
                                json_number(r->category_ap[k]), "AP50", json_number(r->category_ap50[k]));
        f->failed |= json_array_append_new(list, one) != 0;
    }
    f->failed |= json_object_set_new(group, "per_category_AP", ap) != 0;
    f->failed |= json_object_set_new(group, "categories", list) != 0;
}

/* By name is one thing, over all pairs of image and prompt at once another. */
static void put_pooled(findings *f, json_t *group, const char *kind, const coco_result *r)
{
    char name[40];
    snprintf(name, sizeof name, "%s/pairs", kind);
    findings_number(f, name, "AP", r->pooled[0]);
    findings_number(f, name, "AP50", r->pooled[1]);
    f->failed |= json_object_set_new(group, "pairs", json_pack("{s:f, s:f}", "AP", r->pooled[0], "AP50", r->pooled[1])) != 0;
}

static void put_coco(findings *f, const char *kind, const coco_result *r, const eval_set *truth, bool arrays)
{
    json_t *g = group_of(f, kind);
    put_array(f, g, "stats", r->stats, COCO_STATS);
    for (int i = 0; i < COCO_STATS; i++)
        findings_number(f, kind, coco_stat_names[i], r->stats[i]);
    if (truth->has_prompts)
        put_pooled(f, g, kind, r);
    put_categories(f, g, kind, r, truth);
    size_t each = COCO_IOUS * r->categories * COCO_AREAS * COCO_LIMITS;
    if (arrays) {
        put_array(f, g, "precision", r->precision, each * COCO_RECALLS);
        put_array(f, g, "recall", r->recall, each);
        put_array(f, g, "scores", r->scores, each * COCO_RECALLS);
    }
    f->failed |= json_object_set_new(g, "images", json_integer((json_int_t)r->images)) != 0;
    f->failed |= json_object_set_new(g, "objects", json_integer((json_int_t)r->objects)) != 0;
    f->failed |= json_object_set_new(g, "detections", json_integer((json_int_t)r->detections)) != 0;
}

typedef struct coco_run {
    eval_set truth, results;
    uint8_t *images, *categories;
} coco_run;

/* One kind of IoU over `results`; `page` may be NULL. */
static int evaluate_results(findings *f, const coco_run *run, const eval_set *results, bool masks, const char *kind,
                            const samite_eval_options *o, report *page, samite_error *err)
{
    coco_result r;
    coco_options how = {.masks = masks, .compat = o->compat != 0, .images = run->images, .categories = run->categories,
                        .positive_only = o->positive_only != 0, .keep_matches = page != NULL,
                        .pool = run->truth.has_prompts};
    int code = coco_evaluate(&r, &run->truth, results, &how, err);
    if (code)
        return code;
    put_coco(f, kind, &r, &run->truth, o->arrays != 0);
    if (page)
        code = report_coco(page, kind, &r, &run->truth, results, o, err);
    coco_result_free(&r);
    return code;
}

static int evaluate_kind(findings *f, const coco_run *run, bool masks, const samite_eval_options *o, report *page,
                         samite_error *err)
{
    eval_set single;
    int code = evaluate_results(f, run, &run->results, masks, masks ? "segm" : "bbox", o, page, err);
    if (code || o->nms <= 0)
        return code;
    code = drop_doubles(&single, &run->results, o->nms, err);
    if (!code)
        code = evaluate_results(f, run, &single, masks, masks ? "segm_nms" : "bbox_nms", o, NULL, err);
    free(single.items);
    return code;
}

/* Only pairs that were asked for take part. */
static void leave_out_unasked(findings *f, coco_run *run)
{
    eval_set *t = &run->truth, *r = &run->results;
    if (!t->has_prompts)
        return;
    eval_drop_unasked(t, t);
    eval_drop_unasked(r, t);
    if (t->unasked)
        findings_note(f, "%s: %zu annotations are of categories that their image does not ask for; left out", t->path,
                      t->unasked);
    if (r->unasked)
        findings_note(f, "%s: %zu results are of categories that their image does not ask for; left out", r->path,
                      r->unasked);
}

static int evaluate_coco(findings *f, const samite_eval_options *o, report *page, samite_error *err)
{
    coco_run run = {0};
    unsigned iou = o->iou ? o->iou : SAMITE_IOU_BBOX;
    bool masks = (iou & SAMITE_IOU_SEGM) != 0;
    eval_read_options how = {.masks = masks, .prompts = !o->all_prompts, .progress = o->progress, .user = o->user};
    int code = eval_set_load(&run.truth, o->gt[0], &how, err);
    if (!code)
        code = eval_results_load(&run.results, &run.truth, o->dt, &how, err);
    if (!code)
        code = evaluation_images(&run.images, &run.truth, o->limit, o->image_list, err);
    if (!code)
        code = evaluation_categories(&run.categories, &run.truth, o->classes, o->class_count, err);
    if (!code) {
        note_truth(f, &run.truth, o);
        note_results(f, &run.results, &run.truth);
        leave_out_unasked(f, &run);
    }
    if (!code && o->presence)
        code = evaluate_presence(f, &run.truth, run.images, run.categories, o->presence, o->threshold, err);
    if (!code && iou & SAMITE_IOU_BBOX)
        code = evaluate_kind(f, &run, false, o, page, err);
    if (!code && masks)
        code = evaluate_kind(f, &run, true, o, page, err);
    free(run.images);
    free(run.categories);
    eval_set_free(&run.results);
    eval_set_free(&run.truth);
    return code;
}

/* ---- SA-Co ---- */

static void put_cgf1(findings *f, const char *kind, const cgf1_result *r)
{
    char group[32], name[80];
    snprintf(group, sizeof group, "cgf1_%s", kind);
    for (int i = 0; i < CGF1_NUMBERS; i++) {
        snprintf(name, sizeof name, "cgF1_eval_%s_%s", kind, cgf1_names[i]);
        findings_put(f, group, name, r->numbers[i]);
        findings_number(f, group, cgf1_names[i], r->numbers[i]);
    }
    if (r->left_out)
        findings_note(f, "%zu of %zu (image, phrase) pairs are not exhaustively annotated and were left out",
                      r->left_out, r->left_out + r->points);
}

static int evaluate_cgf1(findings *f, const samite_eval_options *o, samite_error *err)
{
    size_t n = (size_t)o->gt_count;
    unsigned iou = o->iou ? o->iou : SAMITE_IOU_BBOX;
    bool masks = (iou & SAMITE_IOU_SEGM) != 0;
    eval_set *truths = calloc(n, sizeof *truths), *results = calloc(n, sizeof *results);
    int code = truths && results ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for %zu files", n);
    for (size_t i = 0; i < n && !code; i++) {
        eval_read_options how = {.masks = masks, .strangers = true, .progress = o->progress, .user = o->user};
        code = eval_set_load(&truths[i], o->gt[i], &how, err);
        if (!code)
            code = eval_results_load(&results[i], &truths[i], o->dt, &how, err);
        if (!code) {
            note_truth(f, &truths[i], o);
            note_results(f, &results[i], &truths[i]);
        }
    }
    for (int kind = 0; kind < 2 && !code; kind++) {
        cgf1_result r;
        if (!(iou & (kind ? SAMITE_IOU_SEGM : SAMITE_IOU_BBOX)))
            continue;
        code = cgf1_evaluate(&r, truths, results, n, kind == 1, o->threshold, err);
        if (!code)
            put_cgf1(f, kind ? "segm" : "bbox", &r);
    }
    for (size_t i = 0; truths && results && i < n; i++) {
        eval_set_free(&results[i]);
        eval_set_free(&truths[i]);
    }
    free(truths);
    free(results);
    return code;
}

/* ---- all ---- */

static void put_about(findings *f, const samite_eval_options *o)
{
    static const char *const kinds[] = {"coco", "cgf1", "video"};
    json_t *about =
        json_pack("{s:s, s:s, s:o}", "evaluation", kinds[o->kind], "samite", SAMITE_VERSION, "dt", json_name(o->dt));
    json_t *gt = json_array(), *iou = json_array(), *notes = json_array();
    for (int i = 0; i < o->gt_count; i++)
        f->failed |= json_array_append_new(gt, json_name(o->gt[i])) != 0;
    if (o->kind != SAMITE_EVAL_VIDEO && (o->iou & SAMITE_IOU_BBOX || !o->iou))
        json_array_append_new(iou, json_string("bbox"));
    if (o->kind == SAMITE_EVAL_VIDEO || o->iou & SAMITE_IOU_SEGM)
        json_array_append_new(iou, json_string("segm"));
    f->failed |= json_object_set_new(about, "gt", gt) != 0;
    f->failed |= json_object_set_new(about, "iou", iou) != 0;
    if (o->kind == SAMITE_EVAL_COCO) {
        json_object_set_new(about, "iou_thresholds", json_string("0.50:0.05:0.95"));
        json_object_set_new(about, "max_detections", json_pack("[i,i,i]", 1, 10, 100));
        json_object_set_new(about, "pycocotools_compat", json_boolean(o->compat));
        json_object_set_new(about, "positive_only", json_boolean(o->positive_only));
        if (o->nms > 0)
            json_object_set_new(about, "nms", json_real(o->nms));
        if (o->presence)
            json_object_set_new(about, "presence_threshold", json_real(o->threshold));
        if (o->limit > 0)
            json_object_set_new(about, "limit", json_integer(o->limit));
        if (o->image_list)
            json_object_set_new(about, "image_list", json_name(o->image_list));
    } else if (o->kind == SAMITE_EVAL_CGF1) {
        json_object_set_new(about, "score_threshold", json_real(o->threshold));
    }
    for (size_t i = 0; i < f->notes; i++)
        json_array_append_new(notes, json_name(f->note[i]));
    f->failed |= json_object_set_new(f->json, "about", about) != 0;
    f->failed |= json_object_set_new(f->json, "notes", notes) != 0;
}

int evaluate_files(findings *f, const samite_eval_options *o, samite_error *err)
{
    report *page = NULL;
    int code = o->report ? report_open(&page, o->report, err) : SAMITE_OK;
    f->json = json_object();
    if (!code && o->kind == SAMITE_EVAL_COCO)
        code = evaluate_coco(f, o, page, err);
    else if (!code && o->kind == SAMITE_EVAL_CGF1)
        code = evaluate_cgf1(f, o, err);
    else if (!code)
        code = evaluate_videos(f, o, err);
    if (!code)
        put_about(f, o);
    if (!code && (f->failed || !f->json))
        code = fail(err, SAMITE_RESOURCE, "not enough memory to put the numbers of %s together", o->dt);
    if (!code && page)
        code = report_write(page, f, o, err);
    report_free(page);
    return code;
}
