/* trainer_step.c - one optimizer step: gradients of all processes, the check that they are numbers, AdamW. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "train/random.h"
#include "train/trainer.h"

/* ---- cached trunk maps ---- */

static char *map_path(const trainer *t, int image)
{
    char *path = NULL;
    return asprintf(&path, "%s/%d.f32", t->features, (int)t->images[image]) < 0 ? NULL : path;
}

static bool recall_map(const trainer *t, int image, float *map, int64_t count)
{
    char *path = map_path(t, image);
    file_map m;
    bool there = path && access(path, F_OK) == 0 && file_map_open(&m, path, NULL) == 0;
    if (there) {
        there = m.size == sizeof(float) * (size_t)count;
        if (there)
            memcpy(map, m.data, m.size);
        file_map_close(&m);
    }
    free(path);
    return there;
}

static void keep_map(const trainer *t, int image, const float *map, int64_t count)
{
    char *path = map_path(t, image);
    file_writer w;
    if (path && file_writer_open(&w, path, NULL) == 0) {
        file_write(&w, map, sizeof(float) * (size_t)count);
        (void)file_writer_commit(&w, NULL);       /* without it the map is computed again */
    }
    free(path);
}

/* ---- sums over processes ---- */

/* Parts whose gradients are complete before the picture's tape is walked. */
#define HEADS (1u << PART_TEXT | 1u << PART_GEOMETRY | 1u << PART_DECODER | 1u << PART_MASK_HEAD)

typedef struct summing {
    trainer     *t;
    batch_counts counts;         /* of all processes */
    bool         heads_begun;
    int          code;
    samite_error err;
} summing;

static void sum_parts(summing *s, bool heads)
{
    for (int i = 0; i < s->t->o.count && !s->code; i++) {
        const entry *e = s->t->o.item[i].e;
        if ((HEADS >> e->part & 1) == heads && s->t->o.item[i].touched)
            s->code = team_begin_sum(s->t->team, e->p.t.grad, tensor_count(&e->p.t), &s->err);
    }
}

static void begin_heads(summing *s)
{
    if (!s->heads_begun)
        sum_parts(s, true);
    s->heads_begun = true;
}

static int sum_losses(team *team, step_losses *l, samite_error *err)
{
    double *x = (double *)l->one;
    int code = 0;
    int n = (int)(sizeof(loss_terms) / sizeof(double)) * l->layers;
    double rest[4] = {l->semantic, l->semantic_dice, l->semantic_iou, l->core};
    code = team_sum_doubles(team, x, n, err);
    if (!code)
        code = team_sum_doubles(team, (double *)l->many, n, err);
    if (!code)
        code = team_sum_doubles(team, rest, 4, err);
    l->semantic = rest[0], l->semantic_dice = rest[1], l->semantic_iou = rest[2], l->core = rest[3];
    return code;
}

static int count_all(trainer *t, const batch *b, batch_counts *out, samite_error *err)
{
    *out = batch_count(b);
    double x[3] = {out->objects, out->prompts, out->present};
    int code = team_sum_doubles(t->team, x, 3, err);
    *out = (batch_counts){x[0], x[1], x[2]};
    return code;
}

/* ---- the step ---- */

static bool recall(void *user, int image, float *map, int64_t count)
{
    return recall_map(((summing *)user)->t, image, map, count);
}

static void keep(void *user, int image, const float *map, int64_t count)
{
    keep_map(((summing *)user)->t, image, map, count);
}

static void heads_done(void *user)
{
    begin_heads(user);
}

/* "step 12: blood.jpg, prompt "RBC": ..." */
static int explain(const trainer *t, const batch *b, const step_losses *l, const char *why, samite_error *err)
{
    const char *file = l->bad_image >= 0 ? t->set.images[t->images[l->bad_image]].file_name : "";
    const char *prompt = l->bad_prompt >= 0 ? t->set.prompts[b->text_of[l->bad_prompt]] : "";
    return fail(err, SAMITE_FAILED, "step %lld: %s%s%s%s%s%s", (long long)t->state.step, file, *file ? ", " : "",
                *prompt ? "prompt \"" : "", prompt, *prompt ? "\": " : "", why);
}

#define PI 3.14159265358979

static double schedule_now(const trainer *t)
{
    double epochs = t->c->epochs, iters = t->iters;
    if (strcmp(t->c->schedule, "cosine") == 0) {
        double step = (double)t->state.epoch * iters + t->state.iter + 1, warm = fmin(1, step / fmax(t->c->warmup, 1));
        return warm * (t->c->least_rate + (1 - t->c->least_rate) * 0.5 * (1 + cos(PI * step / (epochs * iters))));
    }
    if (strcmp(t->c->schedule, "fixed") == 0) {
        int64_t step = (int64_t)t->state.epoch * t->iters + t->state.iter + 1;
        return schedule_factor(&t->o.rates, step, (double)step / (epochs * iters + 1));
    }
    double exact = t->state.epoch + t->state.iter / iters;
    return schedule_factor(&t->o.rates, (int64_t)(exact * iters), exact / epochs);
}

static forward_options options_of(trainer *t, const batch *b, summing *sums)
{
    for (int i = 0; i < b->images; i++)
        t->drop_seeds[i] =
            random_at((uint64_t)t->c->seed, RANDOM_DROP, (uint64_t)t->state.step, (uint64_t)t->images[i]);
    return (forward_options){.weights = &t->weights,
                             .masks = t->c->masks,
                             .chunk = t->c->prompts_per_pass,
                             .counts = &sums->counts,
                             .frozen_trunk = !(t->parts >> PART_TRUNK & 1),
                             .recall = t->features ? recall : NULL,
                             .keep = t->features ? keep : NULL,
                             .heads_done = heads_done,
                             .drop_rate = (float)t->c->dropout,
                             .path_rate = t->parts >> PART_TRUNK & 1 ? (float)t->c->drop_path : 0,
                             .seeds = t->drop_seeds,
                             .aids = t->aids,
                             .user = sums};
}

/* Gradients of this process's pictures, added up with the others'. */
static int all_gradients(trainer *t, const batch *b, const forward_options *o, summing *sums, step_result *out,
                         samite_error *err)
{
    int code = count_all(t, b, &sums->counts, err);
    if (code)
        return code;
    if (t->aids) {
        t->aids->pictures = t->share * team_size(t->team);
        t->aids->prompts = sums->counts.prompts > 1 ? (int)sums->counts.prompts : 1;
    }
    optimizer_zero(&t->o);
    samite_error own = {0};
    int bad = batch_gradients(&t->tapes, t->n, b, o, &out->losses, &own);
    if (bad && bad != SAMITE_FAILED)
        return fail(err, bad, "%s", own.text);
    double failed = bad != 0;
    begin_heads(sums);      /* everyone calls in the same order, whatever happened */
    if ((code = team_sum_doubles(t->team, &failed, 1, err)))
        return code;
    sum_parts(sums, false);
    code = sums->code ? fail(err, sums->code, "%s", sums->err.text) : team_wait(t->team, err);
    if (!code)
        code = sum_losses(t->team, &out->losses, err);
    if (!code && failed > 0)
        code = explain(t, b, &out->losses, bad ? own.text : "another process found an answer that is no finite number",
                       err);
    return code;
}

int trainer_step(trainer *t, const batch *b, step_result *out, samite_error *err)
{
    samite_error why = {0};
    *out = (step_result){0};
    summing sums = {.t = t};
    forward_options o = options_of(t, b, &sums);
    int code = all_gradients(t, b, &o, &sums, out, &why);
    out->grad_norm = code ? NAN : optimizer_norm(&t->o);
    if (!code && !(isfinite(out->losses.core) && isfinite(out->grad_norm))) {
        trainer_blame(t, b, &o, &out->losses);
        code = explain(t, b, &out->losses,
                       isfinite(out->losses.core) ? "the gradient is not finite" : "the loss is not finite", &why);
    }
    if (code == SAMITE_FAILED && strcmp(t->c->on_nonfinite, "skip") == 0) {
        bool ours = out->losses.bad_image >= 0;
        (ours ? trainer_tell : trainer_say)(t, "%s; the step is left out", why.text);
        return 0;
    }
    if (code)
        return fail(err, code, "%s", why.text);
    out->factor = schedule_now(t);
    optimizer_step(&t->o, out->grad_norm, out->factor);
    out->applied = true;
    return 0;
}
