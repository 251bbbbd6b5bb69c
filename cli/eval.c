/* eval.c - `samite eval`: how good results are, or how good a model is on a data set. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/threads.h"
#include "session.h"

#define MOST_PROCESSES 1000000
#define WAIT_SECONDS 1

typedef struct eval_settings {
    engine_settings engine;
    words       gt, cgf1, classes;
    const char *dt, *iou, *images, *out, *prompts, *report, *image_list, *presence;
    int         limit;
    shard       part;
    double      threshold, nms;
    bool        video, json, arrays, compat, positive_only, all_prompts;
    bool        started_together;      /* part comes from mpirun */
} eval_settings;

/* "cat,red dog": the names are copies. */
static int parse_classes(void *to, const char *name, const char *value, samite_error *err)
{
    int code = *value ? SAMITE_OK : fail(err, SAMITE_USAGE, "%s wants names of categories", name);
    for (const char *s = value; *s && !code;) {
        size_t n = strcspn(s, ",");
        char *one = strndup(s, n);
        code = one ? words_add(to, one, err) : fail(err, SAMITE_RESOURCE, "out of memory");
        s += n + (s[n] == ',');
    }
    return code;
}

static int parse_class(void *to, const char *name, const char *value, samite_error *err)
{
    char *one = text_copy(value);
    (void)name;
    return one ? words_add(to, one, err) : fail(err, SAMITE_RESOURCE, "out of memory");
}

static void free_classes(words *w)
{
    for (int i = 0; i < w->count; i++)
        free((char *)(uintptr_t)w->item[i]);
    words_free(w);
}

#define AT(member) offsetof(eval_settings, member)
static const option options[] = {
    {"--gt", 0, OPTION_LIST, AT(gt), "FILE",
     .help = "ground truth: COCO instances JSON; with --video a COCO-video JSON"},
    {"--dt", 0, OPTION_TEXT, AT(dt), "FILE", .help = "results: COCO result list or COCO file; with --video like --gt"},
    {"--iou", 0, OPTION_TEXT, AT(iou), "TYPES", .help = "bbox, segm or bbox,segm (default: bbox)"},
    {"--cgf1", 0, OPTION_LIST, AT(cgf1), "FILE",
     .help = "SA-Co metric against this ground truth; repeat for alternatives"},
    {"--video", 0, OPTION_FLAG, AT(video), NULL, .help = "J&F and HOTA of tracks"},
    {"--threshold", 0, OPTION_REAL, AT(threshold), "X", .help = "with --cgf1: least score that counts; of presence: above it the thing is there (default: 0.5)",
     .least = 0, .most = 1},
    {"--nms", 0, OPTION_REAL, AT(nms), "IOU",
     .help = "the numbers once more without boxes that overlap a better one of the same prompt more than this",
     .least = 0, .most = 1},
    {"--presence", 0, OPTION_TEXT, AT(presence), "FILE",
     .help = "with --dt: presence.json of an earlier run, to say how often presence is right"},
    {"--images", 0, OPTION_TEXT, AT(images), "DIR",
     .help = "the pictures: to run -m MODEL on, or for galleries in the report"},
    {"--out", 'o', OPTION_TEXT, AT(out), "DIR",
     .help = "with -m: where predictions go, and where a stopped run goes on"},
    {"--prompts", 0, OPTION_TEXT, AT(prompts), "FILE",
     .help = "with -m: other words for categories, JSON object or lines NAME<TAB>WORDS"},
    {"--limit", 0, OPTION_INT, AT(limit), "N", .help = "N images, chosen as the official code does", .least = 1,
     .most = 1e9},
    {"--image-list", 0, OPTION_TEXT, AT(image_list), "FILE", .help = "only these images: JSON list of ids"},
    {"--classes", 0, OPTION_CALL, AT(classes), "NAMES", .help = "only these categories: NAME,NAME",
     .parse = parse_classes},
    {"--class", 0, OPTION_CALL, AT(classes), "NAME", .help = "only this one; for names with a comma; repeatable",
     .parse = parse_class},
    {"--positive-only", 0, OPTION_FLAG, AT(positive_only), NULL, .help = "only categories that the image has"},
    {"--all-prompts", 0, OPTION_FLAG, AT(all_prompts), NULL,
     .help = "ask every category of every image, also where images say under \"prompts\" what to ask"},
    {"--shard", 0, OPTION_CALL, AT(part), "I/N", .help = "with -m: every N-th image, starting with the I-th",
     .parse = parse_shard},
    {"--pycocotools-compat", 0, OPTION_FLAG, AT(compat), NULL,
     .help = "objects with id 0 and repeated ids as in pycocotools"},
    {"--report", 0, OPTION_TEXT, AT(report), "DIR", .help = "write report.html, metrics.csv and metrics.json into DIR"},
    {"--json", 0, OPTION_FLAG, AT(json), NULL, .help = "JSON on standard output"},
    {"--arrays", 0, OPTION_FLAG, AT(arrays), NULL, .help = "precision, recall and scores go into the JSON too"},
    ENGINE_OPTIONS(eval_settings),
    ENGINE_CHOICE(eval_settings),
    {0}};

/* ---- settings ---- */

static int read_iou(unsigned *out, const char *types, samite_error *err)
{
    *out = 0;
    for (const char *s = types ? types : "bbox"; *s;) {
        size_t n = strcspn(s, ",");
        if (n == 4 && memcmp(s, "bbox", 4) == 0)
            *out |= SAMITE_IOU_BBOX;
        else if (n == 4 && memcmp(s, "segm", 4) == 0)
            *out |= SAMITE_IOU_SEGM;
        else
            return fail(err, SAMITE_USAGE, "--iou takes bbox, segm or bbox,segm, not \"%s\"", types);
        s += n + (s[n] == ',');
    }
    return *out ? SAMITE_OK : fail(err, SAMITE_USAGE, "--iou takes bbox, segm or bbox,segm, not \"%s\"", types);
}

/* Rank and size of a process that a launcher started beside others; false when there is none. */
static bool launched(int *rank, int *size)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMIX_RANK", "PMIX_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"}, {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *r = getenv(names[i][0]), *s = getenv(names[i][1]);
        double at, of;
        if (r && s && parse_number(&at, r) && parse_number(&of, s) && of > 1 && of <= MOST_PROCESSES && at >= 0 &&
            at < of) {
            *rank = (int)at;
            *size = (int)of;
            return true;
        }
    }
    return false;
}

static int check_settings(eval_settings *s, samite_error *err)
{
    if (s->video && s->cgf1.count)
        return fail(err, SAMITE_USAGE, "--video and --cgf1 exclude each other; take one");
    if (s->cgf1.count && s->gt.count)
        return fail(err, SAMITE_USAGE, "--cgf1 FILE is the ground truth; leave --gt out");
    if (!s->cgf1.count && s->gt.count != 1)
        return fail(err, SAMITE_USAGE, "%s: samite eval --gt instances.json --dt results.json",
                    s->gt.count ? "--gt takes one file" : "no ground truth given");
    if (s->dt && (s->engine.model || s->engine.name))
        return fail(err, SAMITE_USAGE, "--dt and %s exclude each other: evaluate results, or run a model",
                    s->engine.model ? "-m" : "--engine");
    if (!s->dt && (s->video || s->cgf1.count))
        return fail(err, SAMITE_USAGE, "no results given: --dt FILE is needed with %s",
                    s->video ? "--video" : "--cgf1");
    if (!s->dt && (!s->images || !s->out))
        return fail(err, SAMITE_USAGE,
                    "no results given: --dt FILE, or a model to run: -m MODEL --images DIR --out DIR");
    if (s->presence && (!s->dt || s->video || s->cgf1.count))
        return fail(err, SAMITE_USAGE, "--presence goes with --gt and --dt; with -m MODEL it is measured anyway");
    if (s->nms > 0 && (s->video || s->cgf1.count))
        return fail(err, SAMITE_USAGE, "--nms goes with --gt");
    if (s->dt && (s->prompts || s->part.of))
        return fail(err, SAMITE_USAGE, "%s goes with -m MODEL, not with --dt", s->prompts ? "--prompts" : "--shard");
    int rank, size;
    if (!s->dt && !s->part.of && launched(&rank, &size)) {
        s->part.at = rank + 1;
        s->part.of = size;
        s->started_together = true;
    }
    return SAMITE_OK;
}

/* ---- running a model ---- */

static int on_each(void *user, const char *what, uint64_t at, uint64_t total)
{
    (void)user;
    if (strcmp(what, "image") == 0)
        progress_item((int)at, (int)total);
    else
        progress_prompt((int)at, (int)total);
    return interrupted();
}

/* The first of several processes waits until the others are done. They end together when one fails. */
static int wait_for_others(samite_model *m, samite_predict_options *o, samite_predicted *p, samite_error *err)
{
    samite_predicted mine = *p;
    int code = SAMITE_OK;
    o->join_only = 1;
    while (!code && !p->complete) {
        sleep(WAIT_SECONDS);
        code = check_interrupt(err);
        if (!code)
            code = samite_predict(m, o, p, err);
    }
    mine.complete = p->complete;
    mine.left_out = p->left_out;
    *p = mine;
    return code;
}

static int predict(const eval_settings *s, unsigned iou, samite_predicted *p, samite_error *err)
{
    samite_model *m = NULL;
    samite_predict_options o = SAMITE_PREDICT_OPTIONS_INIT;
    o.gt = s->gt.item[0];
    o.images = s->images;
    o.out = s->out;
    o.iou = iou;
    o.check_masks = (iou & SAMITE_IOU_SEGM) != 0;
    o.limit = s->limit;
    o.classes = s->classes.count ? s->classes.item : NULL;
    o.class_count = s->classes.count;
    o.prompts = s->prompts;
    o.positive_only = s->positive_only;
    o.all_prompts = s->all_prompts;
    o.shard = s->part.at;
    o.shards = s->part.of;
    o.each = on_each;
    int code = open_model(&m, &s->engine, err);
    if (!code)
        code = samite_predict(m, &o, p, err);
    if (!code && s->started_together && s->part.at == 1)
        code = wait_for_others(m, &o, p, err);
    samite_model_free(m);
    return code;
}

/* A line for each of the first pictures that could not be used, then how many there are. */
static void say_failures(const eval_settings *s, const samite_predicted *p)
{
    int said = 0;
    for (const char *line = p->failures; *line; said++) {
        size_t n = strcspn(line, "\n");
        say("%.*s", (int)n, line);
        line += n + (line[n] == '\n');
    }
    if (p->failed > said)
        say("... and %d pictures more; their records in %s/records say why", p->failed - said, s->out);
    if (p->failed)
        say("%d of %d pictures could not be used and are not evaluated", p->failed, p->images);
}

static void say_predicted(const eval_settings *s, const samite_predicted *p)
{
    if (p->done_before && !s->engine.quiet)
        say("%d of %d images were finished already", p->done_before, p->images);
    say_failures(s, p);
    if (p->complete && p->left_out > p->failed && (!s->started_together || s->part.at == 1))
        say("%d pictures in all could not be used; their records in %s/records say why", p->left_out, s->out);
    if (!p->complete && !s->started_together && !s->engine.quiet)
        say("shard %d of %d is done; the shard that ends last evaluates", s->part.at, s->part.of);
}

/* ---- printing ---- */

static const char *explain(const char *group)
{
    return strcmp(group, "presence") == 0 ? "  share of pairs of image and prompt whose presence is right"
           : strstr(group, "/pairs") ? "  over all pairs of image and prompt at once"
           : strcmp(group, "bbox_nms") == 0 ? "  the same without doubles"
           : strcmp(group, "segm_nms") == 0 ? "  the same without doubles"
           : strcmp(group, "bbox") == 0 ? "  IoU of boxes 0.50:0.95, 100 results per image and category"
           : strcmp(group, "segm") == 0 ? "  IoU of masks 0.50:0.95, 100 results per image and category"
           : strcmp(group, "video") == 0 ? "  masks; HOTA over IoU 0.05:0.95" : "";
}

/* Single categories come last. */
static void print_metrics(const samite_evaluation *e)
{
    const char *group = "";
    for (int i = 0; i < 2 * e->count; i++) {
        const samite_metric *m = &e->metric[i % e->count];
        if ((strstr(m->group, "/category") != NULL) != (i >= e->count))
            continue;
        if (strcmp(group, m->group) != 0)
            printf("%s%s%s\n", *group ? "\n" : "", m->group, explain(m->group));
        group = m->group;
        printf("  %-28s %8.4f\n", m->name, m->value);
    }
}

static void print_evaluation(const eval_settings *s, const samite_evaluation *e)
{
    if (s->json) {
        puts(e->json);
        return;
    }
    printf("ground truth: %s\nresults:      %s\n\n", s->cgf1.count ? s->cgf1.item[0] : s->gt.item[0],
           s->dt ? s->dt : s->out);
    print_metrics(e);
    for (int i = 0; i < e->notes; i++)
        printf("%snote: %s\n", i ? "" : "\n", e->note[i]);
}

static int evaluate(const eval_settings *s, unsigned iou, const char *dt, const char *list, const char *presence,
                    samite_error *err)
{
    samite_eval_options o = SAMITE_EVAL_OPTIONS_INIT;
    samite_evaluation *e = NULL;
    threads_set(s->engine.threads);
    o.kind = s->video ? SAMITE_EVAL_VIDEO : s->cgf1.count ? SAMITE_EVAL_CGF1 : SAMITE_EVAL_COCO;
    o.gt = s->cgf1.count ? s->cgf1.item : s->gt.item;
    o.gt_count = s->cgf1.count ? s->cgf1.count : s->gt.count;
    o.dt = dt;
    o.iou = iou;
    o.compat = s->compat;
    o.threshold = s->threshold;
    o.limit = list ? 0 : s->limit;
    o.image_list = list;
    o.classes = s->classes.count ? s->classes.item : NULL;
    o.class_count = s->classes.count;
    o.positive_only = s->positive_only;
    o.all_prompts = s->all_prompts;
    o.presence = presence;
    o.nms = s->nms;
    o.arrays = s->arrays;
    o.report = s->report;
    o.images = s->images;
    if (!s->dt && model_path(&o.model, &s->engine, err))
        return err->code;
    samite_options shown = library_options(&s->engine);
    o.progress = shown.progress;
    o.user = shown.user;
    int code = samite_evaluate(&e, &o, err);
    if (!code)
        print_evaluation(s, e);
    if (!code && s->report && !s->json)
        printf("\nreport: %s/report.html\n", s->report);
    samite_evaluation_free(e);
    return code;
}

static int run_settings(eval_settings *s)
{
    samite_error err = {0};
    samite_predicted p = {0};
    unsigned iou = 0;
    char *dt = NULL, *list = NULL, *presence = NULL;
    int code = check_settings(s, &err);
    if (!code)
        code = read_iou(&iou, s->iou, &err);
    if (!code && !s->dt) {
        code = predict(s, iou, &p, &err);
        dt = path_join(s->out, "predictions.json");
        list = path_join(s->out, "images.json");
        presence = path_join(s->out, "presence.json");
        if (!code && (!dt || !list || !presence))
            code = fail(&err, SAMITE_RESOURCE, "out of memory");
        if (!code)
            say_predicted(s, &p);
    }
    bool mine = s->dt || (p.complete && (!s->started_together || s->part.at == 1));
    int left_out = p.complete ? p.left_out : p.failed;
    if (s->started_together && s->part.at > 1)
        left_out = 0; /* a launcher would end all when one reports a failure; the first one does */
    if (!code && mine)
        code = evaluate(s, iou, s->dt ? s->dt : dt, s->dt ? s->image_list : list,
                        s->dt ? s->presence : access(presence, F_OK) == 0 ? presence : NULL, &err);
    free(dt);
    free(presence);
    free(list);
    return code ? report(&err) : left_out ? exit_status(SAMITE_INPUT) : EXIT_OK;
}

static int run(int argc, char **argv)
{
    eval_settings s = {.threshold = 0.5};
    words rest = {0};
    int status;
    if (command_parse(&eval_command, &s, argc, argv, &rest, 0, 0, &status)) {
        progress_begin(s.engine.quiet);
        status = run_settings(&s);
        progress_end();
        status = finish_output(status);
    }
    words_free(&rest);
    words_free(&s.gt);
    words_free(&s.cgf1);
    free_classes(&s.classes);
    return status;
}

static const char details[] =
    "Numbers are those of pycocotools, to the last digit; --cgf1: those of the official SA-Co evaluator; --video: J&F\n"
    "of DAVIS and HOTA, as TrackEval computes them. With -m every category name is a prompt, and the 100 best results\n"
    "of an image count. A run that was stopped goes on with the same command; mpirun -np N samite eval -m ... shares\n"
    "the work. Pictures that are missing or broken are named and left out, with exit status 3.\n"
    "\n"
    "Examples:\n"
    "  samite eval --gt instances.json --dt results.json --iou bbox,segm\n"
    "  samite eval -m sam3.pt --gt instances_val2017.json --images val2017 --out run1 --limit 100 --report run1\n"
    "  samite eval --cgf1 gt_a.json --cgf1 gt_b.json --dt results.json --iou segm\n"
    "  samite eval --video --gt videos.json --dt tracks.json\n";

const command eval_command = {
    "eval", "measure results or a model against ground truth",
    "eval --gt FILE (--dt FILE | -m MODEL --images DIR --out DIR) [options]", details, options, run,
};
