/* trainer.c - epochs and steps, states, statistics, validation. */
#define _GNU_SOURCE
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/progress.h"
#include "base/text.h"
#include "train/random.h"

#define PAGE_EVERY 30.0       /* seconds between two versions of the report */

/* ---- opening ---- */

static bool leader(const trainer *t)
{
    return team_rank(t->team) == 0;
}

uint64_t trainer_memory(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}

/* Of all threads of the process so far. */
static double processor_seconds(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) != 0 ? 0 : (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
                                                 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

checkpoint_files trainer_files(const trainer *t)
{
    return (checkpoint_files){t->n, &t->o, t->a.count ? &t->a : NULL, t->checkpoints, t->c->keep_last};
}

int trainer_open(trainer *t, const train_config *c, const train_hooks *h, samite_error *err)
{
    *t = (trainer){.c = c, .h = h, .base_ap = -1, .state = {.best = -1}};
    int code = team_open(&t->team, c->backend, err);
    if (!code)
        code = trainer_data(t, err);
    if (!code)
        code = trainer_model(t, err);
    t->state.sums = json_object();
    t->state.shape = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "pictures", t->set.chosen, "prompts",
                               t->set.prompt_count, "batch", c->batch * c->accumulate, "epochs", c->epochs, "seed",
                               c->seed, "processes", t->team ? team_size(t->team) : 1, "masks", c->masks);
    t->order = malloc(sizeof *t->order * (size_t)(t->set.chosen + 1));
    t->drop_seeds = malloc(sizeof *t->drop_seeds * (size_t)(t->share + 1));
    if (!code &&
        (!t->state.sums || !t->state.shape || !t->order || !t->drop_seeds ||
         asprintf(&t->checkpoints, "%s/checkpoints", c->output) < 0))
        code = fail(err, SAMITE_RESOURCE, "out of memory");
    if (code)
        trainer_close(t);
    return code;
}

void trainer_close(trainer *t)
{
    loader_close(&t->loader);
    tapes_close(&t->tapes);
    optimizer_close(&t->o);
    adapters_close(&t->a);
    native_close(t->n);
    sampler_close(&t->sampler);
    trainer_scenes_close(t);
    train_set_free(&t->set);
    train_log_close(t->log);
    json_decref(t->state.sums);
    json_decref(t->state.shape);
    free(t->checkpoints), free(t->order), free(t->features), free(t->drop_seeds);
    team_close(t->team);
    *t = (trainer){0};
}

/* ---- which pictures ---- */

static void shuffle(trainer *t, int epoch)
{
    int n = t->set.chosen;
    memcpy(t->order, t->set.order, sizeof *t->order * (size_t)n);
    for (int i = n - 1; i > 0; i--) {
        int k = random_below(random_at((uint64_t)t->c->seed, RANDOM_ORDER, (uint64_t)epoch, (uint64_t)i), i + 1);
        int32_t keep = t->order[i];
        t->order[i] = t->order[k];
        t->order[k] = keep;
    }
}

/* The loader's next request: this process's share of step `iter`. */
static int request(trainer *t, int epoch, int iter, samite_error *err)
{
    loader *l = &t->loader;
    int first = (iter * team_size(t->team) + team_rank(t->team)) * t->share, side = t->sampler.side;
    l->count = t->share;
    l->epoch = (uint64_t)epoch;
    for (int i = 0; i < t->share; i++) {
        l->image[i] = t->order[first + i];
        l->at[i] = t->c->random_placement
                       ? placement_draw((uint64_t)t->c->seed, (uint64_t)epoch, (uint64_t)l->image[i], side)
                       : placement_whole(side);
    }
    return loader_begin(l, err);
}

/* ---- statistics ---- */

static json_t *step_numbers(trainer *t, const step_result *r, double images_per_s, double cpu)
{
    rate_group groups[80];
    char name[64];
    json_t *o = json_object();
    named_loss *losses = malloc(sizeof *losses * LOSS_NAMES);
    int n = losses ? losses_by_name(losses, &r->losses, &t->weights, t->c->masks) : 0,
        k = optimizer_groups(&t->o, groups, 80);
    json_object_set_new(o, "step", json_integer(t->state.step));
    json_object_set_new(o, "epoch", json_integer(t->state.epoch));
    for (int i = 0; i < n; i++) {
        double sum = json_number_value(json_object_get(t->state.sums, losses[i].name)),
               images = t->share * team_size(t->team);
        if (!isfinite(losses[i].value))
            continue;
        json_object_set_new(o, losses[i].name, json_real(losses[i].value));
        json_object_set_new(t->state.sums, losses[i].name, json_real(sum + losses[i].value * images));
    }
    json_object_set_new(o, "grad_norm", json_real(isfinite(r->grad_norm) ? r->grad_norm : -1));
    for (int i = 0; i < k; i++) {
        snprintf(name, sizeof name, "lr_%s", groups[i].name);
        double rate = groups[i].rate * r->factor;
        if (!(json_number_value(json_object_get(o, name)) > rate))
            json_object_set_new(o, name, json_real(rate));
    }
    if (t->aids)
        aids_log(t->aids, team_size(t->team), o);
    json_object_set_new(o, "images_per_s", json_real(images_per_s));
    json_object_set_new(o, "cpu_s", json_real(cpu));
    json_object_set_new(o, "memory_bytes", json_real((double)trainer_memory()));
    free(losses);
    return o;
}

/* What tells early whether a training from nothing gets off the ground. */
static void say_aids(const trainer *t)
{
    const aids_state *s = &t->aids->now;
    trainer_say(t, "step %lld: patch loss %.3f, patches right %.3f, match loss %.3f, spread of features %.3g, of words %.3g",
                (long long)t->state.step, s->patches * team_size(t->team), s->accuracy, s->match * team_size(t->team),
                s->image_spread, s->word_spread);
}

static void tick(trainer *t, const step_result *r, double took, double cpu)
{
    int64_t steps = (int64_t)t->c->epochs * t->iters, done = t->state.step - t->first_step;
    double per_step = done ? (seconds_now() - t->started) / (double)done : took, images = t->share * team_size(t->team);
    if (t->log)
        train_log_step(t->log, t->state.step, step_numbers(t, r, took > 0 ? images / took : 0, cpu));
    if (t->aids && t->state.step % 50 == 0)
        say_aids(t);
    if (!t->h->tick || !leader(t))
        return;
    t->h->tick(t->h->user,
               &(train_tick){t->state.epoch, t->c->epochs, t->state.iter, t->iters, t->state.step, steps,
                             r->losses.core, r->grad_norm, t->c->lr * r->factor, took > 0 ? images / took : 0,
                             per_step * (double)(steps - t->state.step), trainer_memory()});
}

static void trainer_place(const trainer *t, json_t *o, const char *name, int64_t steps)
{
    json_object_set_new(o, "Trainer/where", json_real((double)t->state.epoch / t->c->epochs));
    json_object_set_new(o, "Trainer/epoch", json_integer(t->state.epoch - 1));
    json_object_set_new(o, name, json_integer(steps));
}

/* Means of the epoch by the official keys. */
static void log_epoch(trainer *t)
{
    const char *name;
    json_t *v, *o = json_object();
    char key[96];
    double weight = t->state.weight > 0 ? t->state.weight : 1;
    json_object_foreach(t->state.sums, name, v) {
        double mean = json_number_value(v) / weight;
        snprintf(key, sizeof key, "Losses/train_all_%s", name);
        json_object_set_new(o, key, json_real(mean));
        if (strcmp(name, "core_loss") == 0)
            json_object_set_new(o, "Losses/train_all_loss", json_real(mean));
    }
    json_object_set_new(o, "Losses/train_default_loss", json_real(0));
    trainer_place(t, o, "Trainer/steps_train", t->state.step);
    trainer_say(t, "epoch %d of %d: mean loss %.4g", t->state.epoch, t->c->epochs,
                json_number_value(json_object_get(o, "Losses/train_all_loss")));
    if (t->log)
        train_log_object(t->log, "train_stats.json", t->state.step, o);
    else
        json_decref(o);
}

static int write_page(trainer *t, bool done, samite_error *err)
{
    long positive, negative;
    if (!t->log || !t->c->report)
        return 0;
    train_set_pairs(&t->set, &positive, &negative);
    json_t *facts =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:f}", "state", done ? "finished" : "running", "model",
                  t->c->checkpoint, "data", t->set.path, "pictures", t->set.chosen, "prompts", t->set.prompt_count,
                  "positive pairs", (int)positive, "negative pairs", (int)negative, "hours", t->state.elapsed / 3600);
    if (facts && t->base_ap >= 0)
        json_object_set_new(facts, "box AP before training", json_real(t->base_ap));
    if (facts && t->state.best >= 0)
        json_object_set_new(facts, "best box AP", json_real(t->state.best));
    return train_log_page(t->log, facts, err);
}

/* ---- states and validation ---- */

static int save(trainer *t, char **path, samite_error *err)
{
    checkpoint_files f = trainer_files(t);
    t->state.elapsed += seconds_now() - t->started;
    t->started = seconds_now();
    t->first_step = t->state.step;
    if (!leader(t) || t->c->skip_saving)
        return 0;
    return checkpoint_save(&f, &t->state, path, err);
}

/* After epoch `done` (from 0) when it is divisible, as officially; always at the end. */
static bool validation_due(const trainer *t, int done)
{
    int every = t->c->val_frequency;
    if (done + 1 == t->c->epochs)
        return true;
    return every && done % every == 0 && !(done == 0 && t->c->skip_first_val);
}

/* Validations so far, with the one at hand; batches of validation have one picture. Follows from the settings, so that
 * going on after a stop counts the same. */
static int validations(const trainer *t)
{
    int n = t->c->val_base;
    for (int done = 0; done < t->state.epoch; done++)
        n += validation_due(t, done);
    return n;
}

static void log_scores(trainer *t, train_scores *s)
{
    const char *name;
    json_t *v, *o = json_object();
    char key[128];
    json_object_foreach(s->all, name, v) {
        snprintf(key, sizeof key, "Meters_train/val_roboflow100/detection/%s", name);
        json_object_set(o, key, v);
    }
    json_object_set_new(o, "Losses/val_all_loss", json_real(0));
    json_object_set_new(o, "Losses/val_default_loss", json_real(0));
    trainer_place(t, o, "Trainer/steps_val", (int64_t)validations(t) * s->pictures);
    train_log_object(t->log, "val_stats.json", t->state.step, o);
    json_decref(s->all);
}

/* The model in the state file `path`, or one written for this when nothing is saved. */
static int validate(trainer *t, const char *path, bool *better, samite_error *err)
{
    train_scores s = {.ap = -1};
    checkpoint_files f = trainer_files(t);
    char *own = NULL;
    int code = 0;
    *better = false;
    if (!leader(t) || !t->h->validate || !t->c->val_annotations)
        return 0;
    if (!path) {
        own = NULL;
        if (asprintf(&own, "%s/validated%s", t->c->output, f.a ? ".adapter.safetensors" : ".pt") < 0)
            return fail(err, SAMITE_RESOURCE, "out of memory");
        code = f.a ? adapters_write(f.a, own, err) : native_write(t->n, own, &WRITE_AS_STORED, NULL, NULL, err);
        path = own;
    }
    char title[32];
    snprintf(title, sizeof title, "epoch_%d", t->state.epoch);
    if (!code)
        code = t->h->validate(t->h->user, f.a ? t->c->checkpoint : path, f.a ? path : NULL, title, &s, err);
    if (!code) {
        *better = s.ap > t->state.best;
        t->state.best = fmax(t->state.best, s.ap);
        trainer_say(t, "validation after epoch %d: box AP %.4f, AP50 %.4f%s", t->state.epoch, s.ap, s.ap50,
                    t->base_ap < 0      ? ""
                    : t->base_ap < s.ap ? ", better than before training"
                                        : ", not better than before training");
        log_scores(t, &s);
    }
    if (own)
        unlink(own);
    free(own);
    return code;
}

static int validate_base(trainer *t, samite_error *err)
{
    train_scores s = {.ap = -1};
    if (!leader(t) || !t->h->validate || !t->c->val_annotations || !t->c->val_base || t->state.step)
        return 0;
    int code = t->h->validate(t->h->user, t->c->checkpoint, NULL, "base", &s, err);
    if (code)
        return code;
    t->base_ap = s.ap;
    trainer_say(t, "before training: box AP %.4f, AP50 %.4f", s.ap, s.ap50);
    log_scores(t, &s);
    return 0;
}

static void log_best(trainer *t)
{
    json_t *o = json_object();
    if (t->state.best >= 0)
        json_object_set_new(o, "val_roboflow100/detection/coco_eval_bbox_AP", json_real(t->state.best));
    trainer_place(t, o, "Trainer/steps_train", t->state.step);
    train_log_object(t->log, "best_stats.json", t->state.step, o);
}

static int end_epoch(trainer *t, samite_error *err)
{
    int done = t->state.epoch++;
    bool last = done + 1 == t->c->epochs, better = false;
    char *path = NULL;
    t->state.iter = 0;
    log_epoch(t);
    json_object_clear(t->state.sums);
    t->state.weight = 0;
    int code = 0;
    if (last || (done + 1) % t->c->save_frequency == 0)
        code = save(t, &path, err);
    if (!code && validation_due(t, done))
        code = validate(t, path, &better, err);
    checkpoint_files f = trainer_files(t);
    if (!code && better && path && t->c->keep_best)
        code = checkpoint_mark_best(&f, path, err);
    if (!code && path && last)
        trainer_say(t, "the trained %s is %s", f.a ? "adapter" : "model", path);
    if (!code && t->log)
        log_best(t);
    if (!code)
        code = write_page(t, last, err);
    free(path);
    return code;
}

/* ---- steps ---- */

static int one_step(trainer *t, samite_error *err)
{
    batch b;
    step_result r;
    double from = seconds_now(), cpu = processor_seconds();
    int code = loader_finish(&t->loader, &b, err);
    if (code)
        return code;
    if (t->loader.note[0])
        trainer_say(t, "%s", t->loader.note);
    int32_t *images = malloc(sizeof *images * (size_t)(t->share + 1));
    if (images)
        memcpy(images, t->loader.image, sizeof *images * (size_t)t->share);
    t->images = images;
    code = images ? 0 : fail(err, SAMITE_RESOURCE, "out of memory");
    if (!code && t->state.iter + 1 < t->iters)
        code = request(t, t->state.epoch, t->state.iter + 1, err);
    if (!code)
        code = trainer_step(t, &b, &r, err);
    batch_free(&b);
    free(images);
    t->images = NULL;
    if (code)
        return code;
    t->state.step++;
    t->state.iter++;
    t->state.weight += r.applied ? t->share * team_size(t->team) : 0;
    tick(t, &r, seconds_now() - from, processor_seconds() - cpu);
    return t->log ? train_log_status(t->log, err) : 0;
}

/* Does anyone want to stop? */
static int asked_to_stop(trainer *t, bool *stop, samite_error *err)
{
    double wanted = t->h->stop && t->h->stop(t->h->user);
    int code = team_sum_doubles(t->team, &wanted, 1, err);
    *stop = wanted > 0;
    return code;
}

/* After a step in the middle of an epoch. */
static int between_steps(trainer *t, double *paged, samite_error *err)
{
    bool stop = false;
    int code = asked_to_stop(t, &stop, err);
    bool due = t->c->save_steps && t->state.step % t->c->save_steps == 0;
    if (!code && (stop || due))
        code = save(t, NULL, err);
    if (!code && (stop || seconds_now() - *paged > PAGE_EVERY)) {
        code = write_page(t, false, err);
        *paged = seconds_now();
    }
    if (!code && stop)
        code = fail(err, SAMITE_CANCELLED, "stopped after step %lld%s", (long long)t->state.step,
                    t->c->skip_saving ? "; nothing was saved" : "; go on with --resume");
    return code;
}

static int run_epoch(trainer *t, samite_error *err)
{
    double paged = seconds_now();
    shuffle(t, t->state.epoch);
    int code = t->state.iter < t->iters ? request(t, t->state.epoch, t->state.iter, err) : 0;
    while (!code && t->state.iter < t->iters) {
        code = one_step(t, err);
        if (!code && t->state.iter < t->iters)
            code = between_steps(t, &paged, err);
    }
    if (!code)
        code = end_epoch(t, err);
    bool stop = false;
    if (!code && t->state.epoch < t->c->epochs)
        code = asked_to_stop(t, &stop, err);
    if (!code && stop)
        code = fail(err, SAMITE_CANCELLED, "stopped after epoch %d; go on with --resume", t->state.epoch);
    return code;
}

/* ---- the run ---- */

static int write_settings(const trainer *t, samite_error *err)
{
    text out = {0};
    file_writer w;
    char *path = path_join(t->c->output, "config_resolved.yaml");
    train_config_print(t->c, &out);
    int code = path && !out.failed ? file_writer_open(&w, path, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    if (!code) {
        file_write(&w, out.data, out.size);
        code = file_writer_commit(&w, err);
    }
    text_free(&out);
    free(path);
    return code;
}

static int begin(trainer *t, bool resume, samite_error *err)
{
    checkpoint_files f = trainer_files(t);
    bool found = false;
    int code = make_folders(t->checkpoints, err);
    if (!code && t->features)
        code = make_folders(t->features, err);
    if (!code && leader(t))
        checkpoint_clean(t->checkpoints);
    if (!code && !t->c->skip_saving && leader(t))
        code = checkpoint_space(&f, err);
    if (!code && resume)
        code = checkpoint_load(&f, &t->state, &found, err);
    char *latest = path_join(t->checkpoints, "latest.json");
    if (!code && !resume && latest && access(latest, F_OK) == 0)
        code = fail(err, SAMITE_USAGE,
                    "%s holds a training already; go on with --resume, or choose another paths.output", t->c->output);
    free(latest);
    if (!code && resume)
        trainer_say(t,
                    found ? "going on after step %lld (epoch %d, %d of %d steps)"
                          : "nothing to go on with; starting from the beginning",
                    (long long)t->state.step, t->state.epoch, t->state.iter, t->iters);
    if (!code && leader(t))
        code = write_settings(t, err);
    if (!code && leader(t))
        code = train_log_open(&t->log, t->c->output, "samite train", t->state.step, t->c->tensorboard, err);
    return code;
}

/* Says beforehand when it will not fit. */
static int foresee_memory(const trainer *t, samite_error *err)
{
    train_cost cost;
    uint64_t there = memory_available() + trainer_memory();     /* weights and moments are there already */
    int code = trainer_cost(t, &cost, err);
    if (!code && there && train_cost_bytes(&cost) > there)
        trainer_say(t,
                    "this needs about %.1f GB, %.1f GB are free: it may run out of memory; freeze parts, or lower "
                    "trainer.prompts_per_pass, "
                    "trainer.train_batch_size or model.resolution",
                    (double)train_cost_bytes(&cost) / 1e9, (double)there / 1e9);
    return code;
}

/* The last good weights stay when a step was no number. */
static int end_badly(trainer *t, int code, samite_error *err)
{
    samite_error own = {0};
    if (code == SAMITE_FAILED && t->state.step && !t->c->skip_saving && leader(t) && save(t, NULL, &own) == 0)
        trainer_say(t, "the weights before that step are saved");
    if (code != SAMITE_CANCELLED && team_size(t->team) > 1) {
        trainer_tell(t, "%s; all processes end", err ? err->text : "failed");
        team_abort(t->team, code);
    }
    return code;
}

int trainer_run(trainer *t, bool resume, samite_error *err)
{
    int code = begin(t, resume, err);
    if (!code)
        code = foresee_memory(t, err);
    if (!code)
        code = validate_base(t, err);
    if (!code && t->c->begin_aligned && !t->state.step)
        code = trainer_align(t, err);
    t->started = seconds_now();
    t->first_step = t->state.step;
    while (!code && t->state.epoch < t->c->epochs)
        code = run_epoch(t, err);
    return code ? end_badly(t, code, err) : 0;
}
