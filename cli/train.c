/* train.c - `samite train`: fine-tunes a model on boxes and masks. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "session.h"

#define ROWS_SHOWN 20

typedef struct pair {
    const char *key, *value;
} pair;

typedef struct train_settings {
    pair *pair;                  /* what options say, in the order given; values are borrowed from argv */
    int   count, room;
    bool  dry_run, resume, settings, quiet, all_rows;
} train_settings;

/* ---- options are settings under other names ---- */

static int keep(train_settings *s, const char *key, const char *value, samite_error *err)
{
    if (s->count == s->room) {
        int room = 2 * s->room + 16;
        pair *more = realloc(s->pair, sizeof *more * (size_t)room);
        if (!more)
            return fail(err, SAMITE_RESOURCE, "out of memory");
        s->pair = more;
        s->room = room;
    }
    s->pair[s->count++] = (pair){key, value};
    return SAMITE_OK;
}

static const struct { const char *option, *key, *value;
} shortcuts[] = {
    {"--data", "paths.data", NULL},
    {"--images", "paths.train_images", NULL},
    {"--val", "paths.val_annotations", NULL},
    {"--val-images", "paths.val_images", NULL},
    {"--out", "paths.output", NULL},
    {"--model", "model.checkpoint_path", NULL},
    {"--epochs", "trainer.max_epochs", NULL},
    {"--batch", "trainer.train_batch_size", NULL},
    {"--accumulate", "trainer.gradient_accumulation_steps", NULL},
    {"--resolution", "model.resolution", NULL},
    {"--precision", "model.precision", NULL},
    {"--limit", "data.limit_ids", NULL},
    {"--freeze", "trainer.freeze", NULL},
    {"--lora", "lora.rank", NULL},
    {"--threads", "trainer.threads", NULL},
    {"--memory-limit", "trainer.memory_limit", NULL},
    {"--on-nonfinite", "trainer.on_nonfinite", NULL},
};

static int parse_shortcut(void *to, const char *name, const char *value, samite_error *err)
{
    for (size_t i = 0; i < sizeof shortcuts / sizeof *shortcuts; i++)
        if (strcmp(shortcuts[i].option, name) == 0)
            return keep(to, shortcuts[i].key, value, err);
    return fail(err, SAMITE_USAGE, "%s is not known", name);
}

/* Copies of names given with --set; freed before the program ends. */
static char *names_set[64];
static int   names_count;

static void free_names(void)
{
    while (names_count > 0)
        free(names_set[--names_count]);
}

static int parse_set(void *to, const char *name, const char *value, samite_error *err)
{
    size_t n = strcspn(value, "=");
    if (!n || !value[n])
        return fail(err, SAMITE_USAGE, "%s wants NAME=VALUE, such as trainer.max_epochs=5, not \"%s\"", name, value);
    if (names_count == (int)(sizeof names_set / sizeof *names_set))
        return fail(err, SAMITE_USAGE, "%s may be given %d times", name, names_count);
    char *key = strndup(value, n);
    if (!key)
        return fail(err, SAMITE_RESOURCE, "out of memory");
    names_set[names_count++] = key;
    return keep(to, key, value + n + 1, err);
}

typedef struct flags { bool masks, strict, skip_bad, fixed, official, cache; } flags;
typedef struct all_settings { train_settings s; flags f; } all_settings;

#define CALL(name, letter, what, text) {name, letter, OPTION_CALL, 0, what, .help = text, .parse = parse_shortcut}
#define AT(member) offsetof(all_settings, member)
static const option options[] = {
    CALL("--data", 0, "PATH", "folder in Roboflow or COCO layout, or an instances JSON (then --images)"),
    CALL("--images", 0, "DIR", "pictures of an instances JSON"),
    CALL("--val", 0, "FILE", "instances JSON to validate with (default: of the folder)"),
    CALL("--val-images", 0, "DIR", "its pictures"),
    CALL("--model", 'm', "MODEL",
         "weights to start from: sam3.pt, .safetensors, a folder, formula:tiny (default: $SAMITE_MODEL)"),
    CALL("--out", 'o', "DIR", "checkpoints, logs, report (default: run)"),
    CALL("--epochs", 0, "N", "times that every picture is seen (default: 20)"),
    CALL("--batch", 0, "N", "pictures per pass (default: 1)"),
    CALL("--accumulate", 0, "N", "passes per step; exact (default: 1)"),
    CALL("--resolution", 0, "PIXELS", "side of the input (default: the model's own)"),
    CALL("--precision", 0, "TYPE", "arithmetic of products: f32 or bf16 (default: f32)"),
    CALL("--limit", 0, "N", "that many pictures, chosen as the official loader does"),
    CALL("--freeze", 0, "PARTS",
         "what does not learn: trunk, neck, text, examples, fusion, decoder, masks; with commas"),
    CALL("--lora", 0, "R", "learn adapters of rank R instead of the weights"),
    {"--masks", 0, OPTION_FLAG, AT(f.masks), NULL, .help = "learn masks too"},
    {"--cache-features", 0, OPTION_FLAG, AT(f.cache), NULL,
     .help = "frozen trunk: keep its maps on disk after the first epoch"},
    {"--official-schedule", 0, OPTION_FLAG, AT(f.official), NULL,
     .help = "learning rates exactly as officially (the default)"},
    {"--fixed-schedule", 0, OPTION_FLAG, AT(f.fixed), NULL,
     .help = "the same without its slips: the first step counts, none counts twice"},
    {"--set", 0, OPTION_CALL, 0, "NAME=VALUE", .help = "any setting; repeatable", .parse = parse_set},
    {"--settings", 0, OPTION_FLAG, AT(s.settings), NULL, .help = "list all settings and end"},
    {"--dry-run", 0, OPTION_FLAG, AT(s.dry_run), NULL,
     .help = "check data and model, estimate memory and time, and end"},
    {"--all-rows", 0, OPTION_FLAG, AT(s.all_rows), NULL,
     .help = "with --dry-run: list every row that was rejected or is doubtful"},
    {"--strict", 0, OPTION_FLAG, AT(f.strict), NULL, .help = "refuse data in which any row is rejected or doubtful"},
    {"--skip-bad", 0, OPTION_FLAG, AT(f.skip_bad), NULL, .help = "take the next picture for one that cannot be read"},
    CALL("--on-nonfinite", 0, "WHAT", "loss or gradient that is no number: stop or skip (default: stop)"),
    {"--resume", 0, OPTION_FLAG, AT(s.resume), NULL, .help = "go on where a stopped training was"},
    CALL("--threads", 'j', "N", "threads (default: all physical cores)"),
    CALL("--memory-limit", 0, "SIZE", "most memory for activations, such as 20G"),
    {"--quiet", 'q', OPTION_FLAG, AT(s.quiet), NULL, .help = "no progress"},
    {0}};

/* ---- settings ---- */

static int apply(samite_training *t, const all_settings *a, const words *rest, samite_error *err)
{
    const struct { bool on; const char *key, *value; } switches[] = {
        {a->f.masks, "model.enable_segmentation", "true"}, {a->f.cache, "trainer.cache_features", "true"},
        {a->f.official, "optim.schedule", "official"}, {a->f.fixed, "optim.schedule", "fixed"},
        {a->f.strict, "data.strict", "true"}, {a->f.skip_bad, "data.skip_bad", "true"}};
    const char *usual = getenv("SAMITE_MODEL");
    int code = usual && *usual ? samite_training_set(t, "model.checkpoint_path", usual, err) : SAMITE_OK;
    for (int i = 0; i < rest->count && !code; i++)
        code = samite_training_read(t, rest->item[i], err);
    for (size_t i = 0; i < sizeof switches / sizeof *switches && !code; i++)
        if (switches[i].on)
            code = samite_training_set(t, switches[i].key, switches[i].value, err);
    for (int i = 0; i < a->s.count && !code; i++)
        code = samite_training_set(t, a->s.pair[i].key, a->s.pair[i].value, err);
    if (!code && a->f.official && a->f.fixed)
        code = fail(err, SAMITE_USAGE, "--official-schedule and --fixed-schedule exclude each other");
    return code;
}

/* ---- dry run ---- */

static void print_amount(const char *what, double v, const char *unit)
{
    printf("  %-28s %.3g %s\n", what, v, unit);
}

static void print_time(double seconds)
{
    if (seconds < 120)
        print_amount("time, about", seconds, "s");
    else if (seconds < 7200)
        print_amount("time, about", seconds / 60, "min");
    else
        print_amount("time, about", seconds / 3600, "h");
}

static void print_rows(const samite_training_plan *p, bool all)
{
    int shown = all || p->rows < ROWS_SHOWN ? p->rows : ROWS_SHOWN;
    printf("\nrows: %d rejected, %d doubtful\n", p->rejected, p->noted);
    for (int i = 0; i < shown; i++)
        printf("  %-8s image %s / annotation %s / %s\n", p->row[i].rejected ? "rejected" : "doubtful",
               *p->row[i].image ? p->row[i].image : "-", *p->row[i].annotation ? p->row[i].annotation : "-",
               p->row[i].why);
    if (shown < p->rejected + p->noted)
        printf("  ... and %d more%s\n", p->rejected + p->noted - shown, all ? "" : " (--all-rows lists them)");
}

static int print_plan(const samite_training_plan *p, bool strict, bool all, samite_error *err)
{
    printf("%d pictures, %d objects, %d prompts; %lld pairs of picture and prompt with objects, %lld without\n",
           p->pictures, p->objects, p->prompts, (long long)p->positive, (long long)p->negative);
    for (int i = 0; i < p->prompts; i++)
        printf("  %-28s %6d objects in %5d pictures%s\n", p->prompt[i].text, p->prompt[i].objects,
               p->prompt[i].pictures, p->prompt[i].objects ? "" : "   (never there)");
    print_rows(p, all);
    printf("\n%d steps per epoch, %lld in all\n", p->steps_per_epoch, (long long)p->steps);
    print_amount("numbers that learn", (double)p->learning / 1e6, "million");
    print_amount("numbers that do not", (double)p->frozen / 1e6, "million");
    print_amount("work per picture", p->flops / 1e9, "GFLOP");
    print_amount("memory, about", (double)p->memory_bytes / 1e9, "GB");
    print_amount("memory free now", (double)p->memory_free / 1e9, "GB");
    print_time(p->seconds);
    if (strict && (p->rejected || p->noted))
        return fail(err, SAMITE_INPUT, "%d rows rejected, %d doubtful (--strict)", p->rejected, p->noted);
    if (p->memory_bytes > p->memory_free)
        say("this will not fit into memory: freeze parts (--freeze trunk,text), lower trainer.prompts_per_pass or "
            "--resolution");
    return SAMITE_OK;
}

/* ---- running ---- */

static progress line;
static bool quiet;

static int on_check(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)user;
    progress_label(&line, "%s", "");
    progress_update(&line, strcmp(stage, "check") == 0 ? "pictures" : stage, done, total);
    return interrupted();
}

static void on_tick(void *user, const samite_training_tick *t)
{
    (void)user;
    progress_label(&line, "epoch %d/%d, loss %.4g, norm %.3g, lr %.2g, %.2f images/s", t->epoch + 1, t->epochs, t->loss,
                   t->grad_norm, t->rate, t->images_per_s);
    progress_update(&line, "train", (uint64_t)t->step, (uint64_t)t->steps);
}

static int on_validating(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)user;
    if (strcmp(stage, "image") == 0) {
        progress_label(&line, "validation, picture %llu of %llu", (unsigned long long)done + 1,
                       (unsigned long long)total);
        progress_update(&line, "validation", done, total);
    }
    return interrupted();
}

static int on_stop(void *user)
{
    (void)user;
    return interrupted();
}

static void on_log(void *user, const char *text)
{
    (void)user;
    progress_hide(&line);
    if (!quiet)
        say("%s", text);
}

static int train(samite_training *t, const all_settings *a, samite_error *err)
{
    samite_training_options o = SAMITE_TRAINING_OPTIONS_INIT;
    o.resume = a->s.resume;
    o.tick = on_tick;
    o.validating = on_validating;
    o.stop = on_stop;
    o.log = on_log;
    return samite_training_run(t, &o, err);
}

static int list_settings(samite_error *err)
{
    char *s;
    int code = samite_training_help(&s, err);
    if (!code)
        fputs(s, stdout);
    samite_free(code ? NULL : s);
    return code;
}

static int run_settings(const all_settings *a, const words *rest, samite_error *err)
{
    samite_training *t;
    samite_training_plan plan = {.size = sizeof plan};
    if (a->s.settings)
        return list_settings(err);
    int code = samite_training_new(&t, err);
    if (code)
        return code;
    code = apply(t, a, rest, err);
    if (!code && a->s.dry_run) {
        code = samite_training_check(t, &plan, on_check, NULL, err);
        progress_hide(&line);
        if (!code)
            code = print_plan(&plan, a->f.strict, a->s.all_rows, err);
    } else if (!code) {
        code = train(t, a, err);
    }
    samite_training_free(t);
    return code;
}

static int run(int argc, char **argv)
{
    all_settings a = {0};
    words rest = {0};
    samite_error err = {0};
    int status;
    if (command_parse(&train_command, &a, argc, argv, &rest, 0, 8, &status)) {
        quiet = a.s.quiet;
        progress_open(&line, quiet);
        int code = run_settings(&a, &rest, &err);
        progress_close(&line);
        if (code == SAMITE_CANCELLED)
            say("%s", err.text);
        status = code == SAMITE_CANCELLED ? exit_status(code) : code ? report(&err) : EXIT_OK;
        status = finish_output(status);
    }
    free(a.s.pair);
    free_names();
    words_free(&rest);
    return status;
}

static const char details[] =
    "Every category name is a prompt. Data, losses, matching, optimizer and schedule are those of the official "
    "fine-tuning.\n"
    "Settings come from YAML files, then from options; --settings lists them. Ctrl-C finishes the step, saves and "
    "exits with\n"
    "130; --resume goes on as if nothing had happened. mpirun -np N samite train ... shares the pictures of every "
    "step.\n"
    "\n"
    "Examples:\n"
    "  samite train --data blood-cells -m sam3.pt --epochs 10 --out run1 --dry-run\n"
    "  samite train configs/rf100vl.yaml --data blood-cells -m sam3.pt --out run1\n"
    "  samite train --data blood-cells -m sam3.pt --freeze trunk,text --cache-features --out heads\n"
    "  samite train --data instances.json --images pictures -m sam3.pt --lora 16 --masks --out lora\n";

const command train_command = {
    "train",
    "fine-tune a model on a data set",
    "train [config.yaml ...] --data PATH -m MODEL [options]",
    details,
    options,
    run,
};
