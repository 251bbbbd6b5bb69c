/* align_train_state.c - what a step made of weights, moments and rates, beside the original's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "align_train.h"

#define NORM_OF_WEIGHTS 1e-6      /* relative: norms of tensors hide what single values show */
#define NORM_OF_MOMENTS 1e-5
#define NOISE_OF_MOMENTS 1e-8     /* absolute, where the exact gradient is zero */

/* ---- weights ---- */

/* 16 values of every tensor after the step, in the order of "params". */
static void compare_sample(trainee *x, const json_t *step)
{
    json_t *params = json_object_get(x->t->info, "params"), *p;
    double noise = json_number_value(json_object_get(json_object_get(step, "noise"), "sample")), most = 0;
    int64_t have = 0, at = 0;
    float *theirs = train_values(x->t, &have, "step.%d.sample", x->step);
    size_t i;
    json_array_foreach(params, i, p) {
        const char *name = json_string_value(json_object_get(p, "name"));
        const learner *l = name ? train_learner(&x->o, name) : NULL;
        int64_t n = l ? tensor_count(&l->e->p.t) : 0, k = n < 16 ? n : 16;
        for (int64_t j = 0; theirs && j < k && at < have; j++, at++)
            most = fmax(most, fabs((double)l->e->p.t.data[j * n / k] - theirs[at]));
    }
    char name[32];
    snprintf(name, sizeof name, "step.%d.sample", x->step);
    if (theirs)
        train_number(x->t, name, most + (at != have), 0, 1, 3 * noise + 6e-8);
    free(theirs);
}

static double norm_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

static const learner *learner_at(const trainee *x, size_t i)
{
    const json_t *p = json_array_get(json_object_get(x->t->info, "params"), i);
    const char *name = json_string_value(json_object_get(p, "name"));
    return name ? train_learner(&x->o, name) : NULL;
}

/* f64 values of the reference, which f32 would round. */
static double *exact_values(train_reference *t, const char *name, int64_t *count)
{
    const weight *w = train_find(t, "%s", name);
    double *out = w && w->type == DT_F64 ? malloc(sizeof *out * (size_t)(weight_count(w) + 1)) : NULL;
    *count = out ? weight_count(w) : 0;
    if (out)
        weight_copy(out, w);
    return out;
}

/* The norm of every tensor, within three times what single values may be off. */
static void compare_norms(trainee *x, const json_t *step)
{
    char name[32];
    int64_t n = 0;
    double noise = json_number_value(json_object_get(json_object_get(step, "noise"), "sample")), most = 0, sum = 0;
    snprintf(name, sizeof name, "step.%d.norm", x->step);
    double *theirs = exact_values(x->t, name, &n);
    for (int64_t i = 0; i < n; i++) {
        const learner *l = learner_at(x, (size_t)i);
        int64_t size = l ? tensor_count(&l->e->p.t) : 1;
        double ours = l ? norm_of(l->e->p.t.data, size) : NAN;
        double bar = (3 * noise + 6e-8) * sqrt((double)size) + NORM_OF_WEIGHTS * theirs[i];
        double off = fabs(ours - theirs[i]) / bar;
        most = off > most || isnan(off) ? off : most;
        sum += ours * ours;
    }
    if (n) {
        train_number(x->t, name, most, 0, 1, 1);
        snprintf(name, sizeof name, "step.%d.weight_norm", x->step);
        train_number(x->t, name, sqrt(sum), json_number_value(json_object_get(step, "weight_norm")), NORM_OF_WEIGHTS, 1);
    }
    free(theirs);
}

void train_compare_weights(trainee *x, const json_t *step)
{
    compare_sample(x, step);
    compare_norms(x, step);
}

/* ---- moments ---- */

static void compare_moment(trainee *x, const char *name, bool second)
{
    int64_t n = 0;
    double *theirs = exact_values(x->t, name, &n), most = 0;
    for (int64_t i = 0; i < n; i++) {
        const learner *l = learner_at(x, (size_t)i);
        bool has = l && l->steps > 0;
        double ours = has ? norm_of(second ? l->v : l->m, tensor_count(&l->e->p.t)) : NAN;
        const json_t *p = json_array_get(json_object_get(x->t->info, "params"), (size_t)i);
        double grad = json_number_value(json_object_get(p, "grad")), d = fabs(ours - theirs[i]);
        double off = isnan(theirs[i]) && !has          ? 0
                     : grad > 0 && grad < ZERO_BAR ? NORM_OF_MOMENTS * d / NOISE_OF_MOMENTS
                                                   : d / (theirs[i] + 1e-12);
        most = off > most || isnan(off) ? off : most;
    }
    if (n)
        train_number(x->t, name, most, 0, NORM_OF_MOMENTS, 1);
    free(theirs);
}

void train_compare_moments(trainee *x)
{
    compare_moment(x, "adam.m", false);
    compare_moment(x, "adam.v", true);
}

/* ---- rates ---- */

/* Learning rate and decay of the group that the original put each tensor into. */
void train_compare_rates(trainee *x, const json_t *step, double factor)
{
    const json_t *params = json_object_get(x->t->info, "params"), *p;
    double rate = 0, decay = 0;
    char name[48];
    size_t i;
    json_array_foreach(params, i, p) {
        size_t group = (size_t)json_integer_value(json_object_get(p, "group"));
        const learner *l = learner_at(x, i);
        double lr = json_number_value(json_array_get(json_object_get(step, "lr"), group));
        double wd = json_number_value(json_array_get(json_object_get(step, "weight_decay"), group));
        rate = fmax(rate, l ? fabs(l->base_rate * factor - lr) / fmax(lr, 1e-12) : 1);
        decay = fmax(decay, l ? fabs(l->decay - wd) : 1);
    }
    snprintf(name, sizeof name, "step.%d.lr", x->step);
    train_number(x->t, name, rate, 0, 1e-12, 1);
    snprintf(name, sizeof name, "step.%d.weight_decay", x->step);
    train_number(x->t, name, decay, 0, 0, 1);
}
