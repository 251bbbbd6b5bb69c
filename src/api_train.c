/* api_train.c - training in the public API: settings, check, run, merge; validation with the inference path itself. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api_train.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "kernels/gemm.h"
#include "runtime/native_write.h"

/* ---- settings ---- */

int samite_training_new(samite_training **out, samite_error *err)
{
    if (!out)
        return fail(err, SAMITE_USAGE, "samite_training_new: no place for the training given");
    samite_training *t = calloc(1, sizeof *t);
    *out = t;
    if (t && train_config_init(&t->c))
        return SAMITE_OK;
    samite_training_free(t);
    *out = NULL;
    return fail(err, SAMITE_RESOURCE, "out of memory");
}

static void forget_plan(samite_training *t)
{
    if (t->checked)
        trainer_close(&t->trainer);
    free(t->rows), free(t->prompts);
    t->rows = NULL;
    t->prompts = NULL;
    t->checked = false;
}

void samite_training_free(samite_training *t)
{
    if (!t)
        return;
    forget_plan(t);
    train_config_free(&t->c);
    free(t);
}

int samite_training_read(samite_training *t, const char *path, samite_error *err)
{
    if (!t || !path)
        return fail(err, SAMITE_USAGE, "samite_training_read: training and path are needed");
    return train_config_read(&t->c, path, err);
}

int samite_training_set(samite_training *t, const char *key, const char *value, samite_error *err)
{
    if (!t || !key || !value)
        return fail(err, SAMITE_USAGE, "samite_training_set: training, name and value are needed");
    return train_config_set(&t->c, key, value, NULL, err);
}

static int hand_out(char **out, text *t, samite_error *err)
{
    *out = t->failed ? NULL : t->data;
    if (*out)
        return SAMITE_OK;
    text_free(t);
    return fail(err, SAMITE_RESOURCE, "out of memory");
}

int samite_training_print(const samite_training *t, char **out, samite_error *err)
{
    if (!t || !out)
        return fail(err, SAMITE_USAGE, "samite_training_print: training and a place for the text are needed");
    text s = {0};
    train_config_print(&t->c, &s);
    return hand_out(out, &s, err);
}

int samite_training_help(char **out, samite_error *err)
{
    if (!out)
        return fail(err, SAMITE_USAGE, "samite_training_help: no place for the text given");
    text s = {0};
    train_config_help(&s);
    return hand_out(out, &s, err);
}

/* ---- check ---- */

#define PICTURES_LOOKED_AT 1000
#define USUAL_RATE 0.6            /* of the matrix rate that training reaches */

/* Missing, broken and stretched pictures become rows. Made-up scenes have no files. */
static int check_pictures(samite_training *t, samite_progress_fn progress, void *user, samite_error *err)
{
    train_set *s = &t->trainer.set;
    int step = (s->chosen + PICTURES_LOOKED_AT - 1) / PICTURES_LOOKED_AT;
    for (int i = 0; i < s->chosen && !s->scenes; i++) {
        int32_t image = s->order[i];
        char *path = train_set_picture(s, image);
        pixels px = {0};
        bool stretched = false, there = path && access(path, R_OK) == 0, fine = true;
        samite_error why = {0};
        if (progress && progress(user, "check", (uint64_t)i, (uint64_t)s->chosen)) {
            free(path);
            return fail(err, SAMITE_CANCELLED, "interrupted");
        }
        int code = there && i % step == 0 ? read_training_picture(&px, &stretched, s, image, &why) : 0;
        const train_image *im = &s->images[image];
        const id_value *id = &s->image_ids.item[image];
        if (!there)
            fine = train_set_row(s, true, id, NULL, "%s: no such picture", im->file_name);
        else if (code)
            fine = train_set_row(s, true, id, NULL, "%.200s", why.text);
        else if (stretched)
            fine =
                train_set_row(s, false, id, NULL, "%s has %d x %d pixels, its record says %d x %d; boxes are stretched",
                              im->file_name, px.width, px.height, im->width, im->height);
        pixels_free(&px);
        free(path);
        if (!fine)
            return fail(err, SAMITE_RESOURCE, "out of memory");
    }
    return 0;
}

static int make_lists(samite_training *t, samite_error *err)
{
    const train_set *s = &t->trainer.set;
    t->rows = calloc(s->row_count + 1, sizeof *t->rows);
    t->prompts = calloc((size_t)s->prompt_count + 1, sizeof *t->prompts);
    if (!t->rows || !t->prompts)
        return fail(err, SAMITE_RESOURCE, "out of memory");
    for (size_t i = 0; i < s->row_count; i++)
        t->rows[i] =
            (samite_training_row){s->rows[i].image, s->rows[i].annotation, s->rows[i].why, s->rows[i].rejected};
    for (int i = 0; i < s->prompt_count; i++) {
        t->prompts[i].text = s->prompts[i];
        train_set_prompt(s, i, &t->prompts[i].objects, &t->prompts[i].pictures);
    }
    return 0;
}

static int fill_plan(samite_training *t, samite_training_plan *out, samite_error *err)
{
    const trainer *x = &t->trainer;
    train_cost cost;
    long positive, negative;
    int code = trainer_cost(x, &cost, err);
    if (code)
        return code;
    train_set_pairs(&x->set, &positive, &negative);
    double rate = gemm_rate(GEMM_F32) * 1e9 * USUAL_RATE;
    samite_training_plan p = {.pictures = x->set.chosen,
                              .objects = train_set_objects(&x->set),
                              .prompts = x->set.prompt_count,
                              .prompt = t->prompts,
                              .positive = positive,
                              .negative = negative,
                              .rejected = x->set.rejected,
                              .noted = x->set.noted,
                              .rows = (int)x->set.row_count,
                              .row = t->rows,
                              .steps_per_epoch = x->iters,
                              .steps = (int64_t)x->iters * x->c->epochs,
                              .learning = cost.learners,
                              .frozen = cost.frozen,
                              .flops = cost.flops,
                              .memory_free = memory_available(),
                              .memory_bytes = train_cost_bytes(&cost)};
    p.seconds = rate > 0 ? (double)p.steps * x->share * cost.flops / rate : 0;
    p.size = out->size;
    memcpy(out, &p, out->size < sizeof p ? out->size : sizeof p);
    return 0;
}

static const train_hooks no_hooks;

int samite_training_check(samite_training *t, samite_training_plan *out, samite_progress_fn progress, void *user,
                          samite_error *err)
{
    if (!t || !out)
        return fail(err, SAMITE_USAGE, "samite_training_check: no training, or nowhere to put the plan");
    forget_plan(t);
    int code = train_config_resolve(&t->c, err);
    bool strict = t->c.strict;
    t->c.strict = false;             /* all rows are wanted */
    if (!code)
        code = trainer_open(&t->trainer, &t->c, &no_hooks, err);
    t->c.strict = strict;
    t->checked = !code;
    if (!code)
        code = check_pictures(t, progress, user, err);
    if (!code)
        code = make_lists(t, err);
    if (!code)
        code = fill_plan(t, out, err);
    return code;
}

/* ---- run ---- */

static void on_tick(void *user, const train_tick *x)
{
    const training_run *r = user;
    if (r->o->tick)
        r->o->tick(r->o->user,
                   &(samite_training_tick){x->epoch, x->epochs, x->iter, x->iters, x->step, x->steps, x->loss,
                                           x->grad_norm, x->rate, x->images_per_s, x->left, x->memory});
}

static bool on_stop(void *user)
{
    const training_run *r = user;
    return r->o->stop && r->o->stop(r->o->user);
}

static void on_log(void *user, const char *line)
{
    const training_run *r = user;
    if (r->o->log)
        r->o->log(r->o->user, line);
}

int samite_training_run(samite_training *t, const samite_training_options *o, samite_error *err)
{
    samite_training_options own = SAMITE_TRAINING_OPTIONS_INIT;
    samite_error line = {0};
    if (!t || !o)
        return fail(err, SAMITE_USAGE, "samite_training_run: no training, or no options");
    memcpy(&own, o, o->size < sizeof own ? o->size : sizeof own);
    forget_plan(t);
    training_run r = {&own, &t->c};
    train_hooks h = {on_tick, on_stop, on_log, training_validate, &r};
    trainer x;
    int code = train_config_resolve(&t->c, &line);
    if (!code)
        code = trainer_open(&x, &t->c, &h, &line);
    if (!code) {
        code = trainer_run(&x, own.resume != 0, &line);
        trainer_close(&x);
    }
    return code ? fail(err, code, "%s", line.text) : SAMITE_OK;
}

int samite_merge(const char *base, const char *adapter, const char *out, samite_error *err)
{
    native *n;
    int count;
    if (!base || !adapter || !out)
        return fail(err, SAMITE_USAGE, "samite_merge: base, adapter and output are all needed");
    int code = native_open(&n, base, &(native_options){0}, err);
    if (code)
        return code;
    code = adapters_merge(n, adapter, &count, err);
    if (!code)
        code = native_write(n, out, &WRITE_AS_STORED, NULL, NULL, err);
    native_close(n);
    return code;
}
