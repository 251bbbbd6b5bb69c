/* train.c - training against the original's numbers, and states that survive whatever happens to the process. */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/native_write.h"
#include "samite.h"
#include "train/lora.h"

#include <cmocka.h>      /* last: it makes a macro of `fail` */

#define TINY  TEST_DATA "/train_tiny"
#define JSON  TINY "/data/instances.json"
#define PHOTOS TINY "/data"
#define STEPS 12          /* 3 epochs of 4 pictures */

static char folder[64];

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "%s/samite-train-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static char *path_of(const char *name)
{
    static char paths[4][256];
    static int next;
    char *p = paths[next++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static void assert_same_file(const char *a, const char *b)
{
    uint8_t *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    samite_error e = {0};
    if (file_read(&x, &n, a, (size_t)1 << 30, &e) || file_read(&y, &m, b, (size_t)1 << 30, &e))
        fail_msg("%s", e.text);
    assert_int_equal(n, m);
    if (memcmp(x, y, n) != 0)
        fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

/* ---- the original's numbers ---- */

typedef struct tally { int data, losses, grads, steps, inner, moments, wrong; } tally;

static void count(void *user, const samite_compared *c)
{
    tally *t = user;
    t->data += strstr(c->name, ".data.") != NULL;
    t->grads += strstr(c->name, ".grad.") != NULL;
    t->steps += strstr(c->name, ".sample") != NULL;
    t->losses += strstr(c->name, "core_loss") != NULL;
    t->inner += strstr(c->name, ".mid.") || strstr(c->name, ".dmid.");
    t->moments += strstr(c->name, ".adam.") != NULL;
    if (!c->within) {
        t->wrong++;
        print_error("%s: difference %g (relative %g) %s\n", c->name, c->max_difference, c->relative, c->note);
    }
}

static void agrees_with_original(void **state)
{
    tally t = {0};
    samite_align_options o = {.size = sizeof o, .reference = TINY, .each = count, .user = &t};
    samite_align_summary s;
    samite_model *m;
    samite_error e = {0};
    if (samite_model_open(&m, "formula:tiny", NULL, &e) || samite_align(m, &o, &s, &e))
        print_error("%s\n", e.text);
    samite_model_free(m);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.steps, 10);
    assert_int_equal(t.data, 56);
    assert_int_equal(t.losses, 14);
    assert_in_range(t.grads, 270, 400);
    assert_int_equal(t.inner, 16);
    assert_int_equal(t.moments, 4);
    assert_int_equal(s.skipped, 64);      /* those that docs/align.md names */
}

/* ---- runs ---- */

typedef struct pair { const char *key, *value; } pair;

typedef struct run_options_of_test {
    int stop_after, die_at;       /* steps; 0: never */
    bool resume;
    int steps;
    double first, last;           /* losses */
    char log[8192];
} observed;

static void on_tick(void *user, const samite_training_tick *t)
{
    observed *o = user;
    o->first = o->steps ? o->first : t->loss;
    o->last = t->loss;
    o->steps++;
    if (o->die_at && t->step == o->die_at)
        raise(SIGKILL);
}

static int on_stop(void *user)
{
    const observed *o = user;
    return o->stop_after && o->steps >= o->stop_after;
}

static void on_log(void *user, const char *line)
{
    observed *o = user;
    size_t n = strlen(o->log);
    snprintf(o->log + n, sizeof o->log - n, "%s\n", line);
}

static samite_training *prepared(const char *out, const pair *more)
{
    static const pair usual[] = {{"train_annotations", JSON},
                                 {"train_images", PHOTOS},
                                 {"checkpoint_path", "formula:tiny"},
                                 {"epochs", "3"},
                                 {"lr", "8e-4"},
                                 {"threads", "1"},
                                 {"report", "false"},
                                 {"tensorboard", "false"},
                                 {NULL, NULL}};
    samite_training *t;
    samite_error e = {0};
    assert_int_equal(samite_training_new(&t, &e), 0);
    int code = samite_training_set(t, "paths.output", path_of(out), &e);
    for (const pair *p = usual; p->key && !code; p++)
        code = samite_training_set(t, p->key, p->value, &e);
    for (const pair *p = more; p && p->key && !code; p++)
        code = samite_training_set(t, p->key, p->value, &e);
    if (code)
        fail_msg("%s", e.text);
    return t;
}

static int train(const char *out, const pair *more, observed *o, samite_error *err)
{
    samite_training_options options = SAMITE_TRAINING_OPTIONS_INIT;
    samite_training *t = prepared(out, more);
    options.resume = o->resume;
    options.tick = on_tick;
    options.stop = on_stop;
    options.log = on_log;
    options.user = o;
    int code = samite_training_run(t, &options, err);
    samite_training_free(t);
    return code;
}

static observed train_well(const char *out, const pair *more, bool resume)
{
    observed o = {.resume = resume};
    samite_error e = {0};
    if (train(out, more, &o, &e))
        fail_msg("%s", e.text);
    return o;
}

#define MODEL(out)  path_of(out "/checkpoints/checkpoint_3.pt")
#define STATE(out)  path_of(out "/checkpoints/checkpoint_3.optimizer.safetensors")
#define ADAPTER(out) path_of(out "/checkpoints/checkpoint_3.adapter.safetensors")

static void whole_run(void **state)
{
    observed o = train_well("whole", NULL, false);
    assert_int_equal(o.steps, STEPS);
    assert_int_equal(access(MODEL("whole"), F_OK), 0);
}

static void stopped_run_goes_on_equally(void **state)
{
    observed o = {.stop_after = 3};
    samite_error e = {0};
    assert_int_equal(train("stop", NULL, &o, &e), SAMITE_CANCELLED);
    assert_int_equal(o.steps, 3);
    observed rest = train_well("stop", NULL, true);
    assert_int_equal(rest.steps, STEPS - 3);
    assert_same_file(MODEL("whole"), MODEL("stop"));
    assert_same_file(STATE("whole"), STATE("stop"));
}

static const pair often[] = {{"save_steps", "2"}, {NULL, NULL}};
static double largest_difference(const char *a, const char *b);

/* Runs in a process of its own, which a signal ends. */
static void expect_death(const char *out, int die_at, rlim_t largest_file, bool resume, int signal)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        observed o = {.die_at = die_at, .resume = resume};
        if (largest_file)
            setrlimit(RLIMIT_FSIZE, &(struct rlimit){largest_file, largest_file});
        (void)train(out, often, &o, NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), signal);
}

static void killed_run_goes_on_equally(void **state)
{
    expect_death("kill", 7, 0, false, SIGKILL);
    observed rest = train_well("kill", often, true);
    assert_int_equal(rest.steps, STEPS - 6);
    assert_same_file(MODEL("whole"), MODEL("kill"));
    assert_same_file(STATE("whole"), STATE("kill"));
}

#define MEAN(out)   path_of(out "/checkpoints/checkpoint_3.ema.pt")

/* The running mean changes nothing in what is learnt, lags behind it, and is the same after a stop. */
static void running_mean_goes_on_equally(void **state)
{
    static const pair mean[] = {{"optim.ema", "0.9"}, {NULL, NULL}}, none[] = {{"optim.ema", "1e-9"}, {NULL, NULL}};
    observed o = {.stop_after = 3};
    samite_error e = {0};
    train_well("mean", mean, false);
    assert_same_file(MODEL("whole"), MODEL("mean"));
    assert_int_equal(access(MEAN("whole"), F_OK), -1);
    double lag = largest_difference(MEAN("mean"), MODEL("mean"));
    assert_true(lag > 1e-5 && lag < 1e-2);
    assert_int_equal(train("mean2", mean, &o, &e), SAMITE_CANCELLED);
    train_well("mean2", mean, true);
    assert_same_file(MEAN("mean"), MEAN("mean2"));
    assert_same_file(STATE("mean"), STATE("mean2"));
    train_well("mean3", none, false);
    assert_true(largest_difference(MEAN("mean3"), MODEL("mean3")) < 1e-6);
}

/* The process dies while it writes a state: the one before counts. */
static void killed_while_saving(void **state)
{
    observed first = {.stop_after = 3};
    samite_error e = {0};
    assert_int_equal(train("saving", often, &first, &e), SAMITE_CANCELLED);
    expect_death("saving", 0, 1 << 20, true, SIGXFSZ);
    observed rest = train_well("saving", often, true);
    assert_int_equal(rest.steps, STEPS - 3);
    assert_same_file(MODEL("whole"), MODEL("saving"));
}

/* As on a full disk: an error, and the state before stays. */
static void full_disk_keeps_the_old_state(void **state)
{
    observed first = {.stop_after = 3}, second = {.resume = true};
    samite_error e = {0};
    struct rlimit before;
    assert_int_equal(train("full", often, &first, &e), SAMITE_CANCELLED);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, before.rlim_max});
    int code = train("full", often, &second, &e);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, old);
    assert_int_not_equal(code, 0);
    assert_non_null(strstr(e.text, "cannot write"));
    observed rest = train_well("full", often, true);
    assert_int_equal(rest.steps, STEPS - 3);
    assert_same_file(MODEL("whole"), MODEL("full"));
}

static void another_training_is_not_continued(void **state)
{
    static const pair other[] = {{"batch_size", "2"}, {NULL, NULL}};
    observed o = {0};
    samite_error e = {0};
    assert_int_equal(train("whole", NULL, &o, &e), SAMITE_USAGE);
    assert_non_null(strstr(e.text, "--resume"));
    o.resume = true;
    assert_int_equal(train("whole", other, &o, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "was begun with"));
}

/* ---- the same in other ways ---- */

static double largest_difference(const char *a, const char *b)
{
    weights *x, *y;
    double most = 0;
    samite_error e = {0};
    if (weights_open(&x, a, &e) || weights_open(&y, b, &e))
        fail_msg("%s", e.text);
    assert_int_equal(weights_count(x), weights_count(y));
    for (size_t i = 0; i < weights_count(x); i++) {
        const weight *w = weights_at(x, i), *v = weights_find(y, w->name);
        if (w->type != DT_F32)
            continue;
        assert_non_null(v);
        size_t n = (size_t)weight_count(w);
        float *p = malloc(sizeof *p * (n + 1)), *q = malloc(sizeof *q * (n + 1));
        weight_to_f32(p, w);
        weight_to_f32(q, v);
        for (size_t k = 0; k < n; k++)
            most = fmax(most, fabs((double)p[k] - q[k]));
        free(p);
        free(q);
    }
    weights_close(x);
    weights_close(y);
    return most;
}

static void ways_of_computing_agree(void **state)
{
    static const pair one_by_one[] = {{"prompts_per_pass", "1"}, {NULL, NULL}},
                      kept[] = {{"activation_checkpointing", "false"}, {NULL, NULL}},
                      two[] = {{"batch_size", "2"}, {NULL, NULL}},
                      summed[] = {{"gradient_accumulation_steps", "2"}, {NULL, NULL}};
    train_well("single", one_by_one, false);
    double far = largest_difference(MODEL("whole"), MODEL("single"));
    assert_true(far < 1e-5);
    train_well("kept", kept, false);
    assert_same_file(MODEL("whole"), MODEL("kept"));
    train_well("two", two, false);
    train_well("summed", summed, false);
    assert_same_file(MODEL("two"), MODEL("summed"));
    assert_true(largest_difference(MODEL("whole"), MODEL("two")) > 1e-5);
}

static void cached_maps_change_nothing(void **state)
{
    static const pair frozen[] = {{"freeze", "trunk,text"}, {"random_placement", "false"}, {NULL, NULL}},
                      cached[] = {{"freeze", "trunk,text"}, {"cache_features", "true"}, {NULL, NULL}};
    train_well("frozen", frozen, false);
    train_well("cached", cached, false);
    assert_same_file(MODEL("frozen"), MODEL("cached"));
}

/* ---- adapters ---- */

static void adapters_merge_into_weights(void **state)
{
    static const pair lora[] = {{"lora.rank", "4"}, {"lr_vision_backbone", "1e-3"}, {NULL, NULL}},
                      tuned[] = {{"lr", "0"}, {"lr_vision_backbone", "0"}, {"lr_language_backbone", "0"}, {NULL, NULL}};
    observed o = train_well("lora", lora, false), whole = train_well("still", tuned, false);
    assert_float_equal(o.first, whole.first, 1e-3);         /* the first step: an adapter changes nothing yet */
    samite_error e = {0};
    if (samite_merge("formula:tiny", ADAPTER("lora"), path_of("merged.safetensors"), &e))
        fail_msg("%s", e.text);
    assert_true(largest_difference(MODEL("still"), path_of("merged.safetensors")) > 1e-5);
}

static void foreign_adapters_are_refused(void **state)
{
    samite_error e = {0};
    assert_int_equal(samite_merge("formula:small", ADAPTER("lora"), path_of("x.pt"), &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "does not fit"));
    assert_int_equal(samite_merge("formula:tiny", MODEL("whole"), path_of("x.pt"), &e), SAMITE_INPUT);
    assert_int_equal(samite_merge("formula:tiny", STATE("whole"), path_of("x.pt"), &e), SAMITE_INPUT);
    assert_int_equal(access(path_of("x.pt"), F_OK), -1);
}

/* ---- ailments ---- */

/* A tensor of the model becomes `value` from element `first` on. */
static void poison(native *n, const char *name, int64_t first, int64_t count, float value)
{
    entry *w = registry_find(&n->net->all, name);
    assert_non_null(w);
    w->p.t.data = native_values(n, w);
    for (int64_t i = first; i < first + count; i++)
        w->p.t.data[i] = value;
    w->p.owned = w->p.trainable = true;
}

#define DECODER "detector.transformer.decoder."

/* Huge values times zero weights: finite answers with the gradient that follows. Or answers that are no numbers. */
static char *poisoned_model(float huge)
{
    native *n;
    samite_error e = {0};
    if (native_open(&n, "formula:tiny", &(native_options){0}, &e))
        fail_msg("%s", e.text);
    if (!(huge > 0))
        poison(n, DECODER "norm.weight", 3, 1, NAN);
    else
        poison(n, DECODER "presence_token_head.layers.1.bias", 0, n->net->c.d, huge);
    if (huge > 0)
        poison(n, DECODER "presence_token_head.layers.2.weight", 0, n->net->c.d, 0);
    assert_int_equal(native_write(n, path_of("poison.safetensors"), &WRITE_AS_STORED, NULL, NULL, &e), 0);
    native_close(n);
    return strdup(path_of("poison.safetensors"));
}

static void numbers_that_are_none(void **state)
{
    char *model = poisoned_model(0);
    const pair stop[] = {{"checkpoint_path", model}, {NULL, NULL}},
               skip[] = {{"checkpoint_path", model}, {"on_nonfinite", "skip"}, {NULL, NULL}};
    observed o = {0}, p = {0};
    samite_error e = {0};
    assert_int_equal(train("nan", stop, &o, &e), SAMITE_FAILED);
    assert_non_null(strstr(e.text, "step 0"));
    assert_non_null(strstr(e.text, ".png"));
    assert_non_null(strstr(e.text, "prompt \""));
    assert_int_equal(train("skip", skip, &p, &e), 0);
    assert_non_null(strstr(p.log, "left out"));
    free(model);
}

static void gradients_that_are_none(void **state)
{
    char *model = poisoned_model(3e38f);
    const pair stop[] = {{"checkpoint_path", model}, {"batch_size", "2"}, {NULL, NULL}},
               skip[] = {{"checkpoint_path", model}, {"on_nonfinite", "skip"}, {"epochs", "1"}, {NULL, NULL}};
    observed o = {0}, p = {0};
    samite_error e = {0};
    assert_int_equal(train("inf", stop, &o, &e), SAMITE_FAILED);
    assert_non_null(strstr(e.text, "the gradient is not finite"));
    assert_non_null(strstr(e.text, "step 0"));
    assert_non_null(strstr(e.text, ".png"));
    assert_non_null(strstr(e.text, "prompt \""));
    assert_int_equal(train("leave", skip, &p, &e), 0);
    assert_non_null(strstr(p.log, "left out"));
    assert_true(largest_difference(model, path_of("leave/checkpoints/checkpoint_1.pt")) == 0);
    free(model);
}

/* It diverges; the weights before the step that shows it are kept. */
static void last_good_weights_stay(void **state)
{
    char *model = poisoned_model(3e37f);
    const pair wild[] = {{"checkpoint_path", model}, {"lr", "10"}, {NULL, NULL}};
    observed o = {0};
    samite_error e = {0};
    weights *w;
    char name[128];
    assert_int_equal(train("wild", wild, &o, &e), SAMITE_FAILED);
    assert_true(o.steps > 0);
    assert_non_null(strstr(o.log, "the weights before that step are saved"));
    snprintf(name, sizeof name, "wild/checkpoints/checkpoint_0_%d.pt", o.steps);
    free(model);
    if (weights_open(&w, path_of(name), &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < weights_count(w); i++) {
        const weight *one = weights_at(w, i);
        float *p = malloc(sizeof *p * ((size_t)weight_count(one) + 1));
        weight_to_f32(p, one);
        for (int64_t k = 0; one->type == DT_F32 && k < weight_count(one); k++)
            assert_true(isfinite(p[k]));
        free(p);
    }
    weights_close(w);
}

static void missing_pictures(void **state)
{
    char *bad = strdup(path_of("bad"));
    char command[512];
    snprintf(command, sizeof command,
             "mkdir '%s' && cp '%s'/*.png '%s' && rm '%s'/000008.png && echo no picture > '%s'/000011.png", bad, PHOTOS,
             bad, bad, bad);
    assert_int_equal(system(command), 0);
    const pair there[] = {{"train_images", bad}, {NULL, NULL}},
               skip[] = {{"train_images", bad}, {"skip_bad", "true"}, {NULL, NULL}};
    observed o = {0};
    samite_error e = {0};
    assert_int_equal(train("missing", there, &o, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, ".png"));
    observed p = train_well("skipped", skip, false);
    assert_int_equal(p.steps, STEPS);
    assert_non_null(strstr(p.log, "000008.png"));
    assert_non_null(strstr(p.log, "000011.png"));
    samite_training *t = prepared("check", there);
    samite_training_plan plan = {.size = sizeof plan};
    assert_int_equal(samite_training_check(t, &plan, NULL, NULL, &e), 0);
    assert_int_equal(plan.rejected, 2);
    assert_int_equal(plan.steps, STEPS);
    assert_true(plan.memory_bytes > 0 && plan.flops > 0);
    samite_training_free(t);
    free(bad);
}

static void no_steps_no_training(void **state)
{
    static const pair large[] = {{"batch_size", "5"}, {NULL, NULL}},
                      all[] = {{"freeze", "trunk,neck,text,examples,fusion,decoder"}, {NULL, NULL}};
    observed o = {0};
    samite_error e = {0};
    assert_int_equal(train("large", large, &o, &e), SAMITE_USAGE);
    assert_non_null(strstr(e.text, "fewer than one step"));
    assert_int_equal(train("all", all, &o, &e), SAMITE_USAGE);
}

/* ---- it learns ---- */

static void one_picture_is_learnt(void **state)
{
    static const pair fast[] = {{"epochs", "30"},
                                {"limit_ids", "1"},
                                {"random_placement", "false"},
                                {"lr", "1e-3"},
                                {"lr_vision_backbone", "1e-3"},
                                {"wd", "0"},
                                {"scheduler_timescale", "100"},
                                {"scheduler_warmup", "5"},
                                {"dropout", "0"},
                                {"drop_path", "0"},
                                {"schedule", "fixed"},
                                {"skip_saving_ckpts", "true"},
                                {NULL, NULL}};
    observed o = train_well("learn", fast, false);
    assert_true(o.last < 0.5 * o.first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(agrees_with_original),
                                       cmocka_unit_test(whole_run),
                                       cmocka_unit_test(stopped_run_goes_on_equally),
                                       cmocka_unit_test(killed_run_goes_on_equally),
                                       cmocka_unit_test(running_mean_goes_on_equally),
                                       cmocka_unit_test(killed_while_saving),
                                       cmocka_unit_test(full_disk_keeps_the_old_state),
                                       cmocka_unit_test(another_training_is_not_continued),
                                       cmocka_unit_test(ways_of_computing_agree),
                                       cmocka_unit_test(cached_maps_change_nothing),
                                       cmocka_unit_test(adapters_merge_into_weights),
                                       cmocka_unit_test(foreign_adapters_are_refused),
                                       cmocka_unit_test(numbers_that_are_none),
                                       cmocka_unit_test(gradients_that_are_none),
                                       cmocka_unit_test(last_good_weights_stay),
                                       cmocka_unit_test(missing_pictures),
                                       cmocka_unit_test(no_steps_no_training),
                                       cmocka_unit_test(one_picture_is_learnt)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
