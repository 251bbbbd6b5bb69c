/* align_train_steps.c - whole training steps beside the original's: losses, every gradient, every tensor after each
 * step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align_train.h"
#include "base/text.h"
#include "model/tokenizer.h"

/* ---- the batch ---- */

static void pixels_of(batch *b, const float *first, int64_t n, double scale, double shift)
{
    int64_t area = (int64_t)b->side * b->side;
    b->pixels = malloc(sizeof(float) * (size_t)(n + 1));
    for (int64_t i = 0; b->pixels && i < n; i++) {
        int64_t image = i / (3 * area), channel = i / area % 3, at = i % area;
        b->pixels[(image * area + at) * 3 + channel] = (float)(first[i] * scale + shift);
    }
}

/* Images of the step: whole numbers for all but the first step of a recorded variant. */
static bool read_images(trainee *x)
{
    const weight *w = x->step ? NULL : train_find(x->t, "in.image");
    double scale = w ? 1 : 1 / 127.5, shift = w ? 0 : -1;
    if (!w)
        w = train_find(x->t, "step.%d.image", x->step);
    if (!w || w->axes != 4)
        return false;
    float *values = malloc(sizeof(float) * (size_t)weight_count(w));
    if (!values)
        return false;
    weight_to_f32(values, w);
    x->b.images = (int)w->dim[0];
    x->b.side = (int)w->dim[2];
    pixels_of(&x->b, values, weight_count(w), scale, shift);
    free(values);
    return x->b.pixels != NULL;
}

static bool read_texts(trainee *x, const json_t *step)
{
    const json_t *prompts = json_object_get(step, "prompts"), *s;
    int context = x->n->net->c.context, texts = (int)json_array_size(prompts);
    size_t i;
    x->b.texts = texts;
    x->b.ids = calloc((size_t)texts * (size_t)context + 1, sizeof(int32_t));
    x->b.tokens = calloc((size_t)texts + 1, sizeof(int));
    x->b.text_of = calloc((size_t)x->b.t.prompts + 1, sizeof(int));
    x->b.image_prompts = calloc((size_t)x->b.images + 1, sizeof(int));
    if (!x->b.ids || !x->b.tokens || !x->b.text_of || !x->b.image_prompts || !texts)
        return false;
    json_array_foreach(prompts, i, s) {
        bool cut;
        const char *said = json_string_value(s);
        x->b.tokens[i] =
            tokenize(x->b.ids + (int64_t)i * context, context, said ? said : "", said ? strlen(said) : 0, &cut);
    }
    for (int p = 0; p < x->b.t.prompts; p++)
        x->b.text_of[p] = p % texts;      /* every picture is asked for every category */
    for (int k = 0; k < x->b.images; k++)
        x->b.image_prompts[k] = x->b.t.prompts / x->b.images;
    return true;
}

/* ---- what goes in ---- */

/* Token ids, their padding, and which prompt asks what of which picture. */
static void compare_inputs(trainee *x)
{
    const batch *b = &x->b;
    int context = x->n->net->c.context, n = b->texts * context, most = n > b->t.prompts ? n : b->t.prompts;
    float *ids = malloc(sizeof *ids * (size_t)(most + 1)), *padding = malloc(sizeof *padding * (size_t)(most + 1));
    if (ids && padding && !x->step) {
        for (int i = 0; i < n; i++) {
            ids[i] = (float)b->ids[i];
            padding[i] = i % context >= b->tokens[i / context];
        }
        train_exact(x->t, "in.tokens", ids, n);
        train_exact(x->t, "in.text_mask", padding, n);
        for (int i = 0, p = 0; i < b->images; i++) {
            for (int k = 0; k < b->image_prompts[i]; k++, p++) {
                ids[p] = (float)i;
                padding[p] = (float)b->text_of[p];
            }
        }
        train_exact(x->t, "in.img_ids", ids, b->t.prompts);
        train_exact(x->t, "in.text_ids", padding, b->t.prompts);
    }
    x->t->a->out_of_memory |= !ids || !padding;
    free(ids);
    free(padding);
}

/* ---- gradients ---- */

const learner *train_learner(const optimizer *o, const char *name)
{
    for (int i = 0; i < o->count; i++)
        if (strcmp(o->item[i].e->p.name, name) == 0)
            return &o->item[i];
    return NULL;
}

/* The norm of the difference beside the norm of the whole tensor; of a sample, with every value standing for `share`. */
static void compare_norm(trainee *x, const char *name, const float *ours, const float *theirs, int64_t n, double share,
                         double norm)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += share * ((double)ours[i] - theirs[i]) * ((double)ours[i] - theirs[i]);
    if (norm > ZERO_BAR)
        train_number(x->t, name, norm + sqrt(sum), norm, GRAD_BAR, 0);
    else
        train_number(x->t, name, sqrt(sum), 0, norm > 0 ? ZERO_BAR : 0, 1);
}

/* Of an embedding, the rows that the prompts use. */
static void compare_rows(trainee *x, const learner *l, const json_t *rows, double norm)
{
    char name[256];
    int64_t have = 0, count = (int64_t)json_array_size(rows), width;
    if (!count)
        return;
    snprintf(name, sizeof name, "grad.%s#rows", l->e->p.name);
    float *theirs = train_values(x->t, &have, "%s", name), *ours = malloc(sizeof(float) * (size_t)(have + 1));
    width = have / count;
    for (int64_t i = 0; theirs && ours && i < count; i++) {
        int64_t at = (int64_t)json_integer_value(json_array_get(rows, (size_t)i));
        bool there = at >= 0 && (at + 1) * width <= tensor_count(&l->e->p.t);
        for (int64_t k = 0; k < width; k++)
            ours[i * width + k] = there ? l->e->p.t.grad[at * width + k] : NAN;
    }
    if (theirs && ours)
        compare_norm(x, name, ours, theirs, have, 1, norm);
    free(ours);
    free(theirs);
}

/* The gradient of one tensor against its stored sample; or that there is none on both sides. */
static void compare_grad(trainee *x, const learner *l, const json_t *info)
{
    const json_t *norm = json_object_get(info, "grad");
    char name[256];
    int64_t n = tensor_count(&l->e->p.t), have = 0, step = 1;
    snprintf(name, sizeof name, "grad.%s", l->e->p.name);
    if (json_is_null(norm) != !l->touched) {
        train_number(x->t, name, l->touched, !json_is_null(norm), 0, 1);
        return;
    }
    if (!l->touched)
        return;
    float *theirs = train_values(x->t, &have, "%s", name);
    while (!theirs && step++ < n)
        if (train_find(x->t, "%s#every%lld", name, (long long)step))
            theirs = train_values(x->t, &have, "%s#every%lld", name, (long long)step);
    float *ours = theirs ? malloc(sizeof(float) * (size_t)(have + 1)) : NULL;
    for (int64_t i = 0; ours && i < have; i++)
        ours[i] = l->e->p.t.grad[i * step];
    if (ours)
        compare_norm(x, name, ours, theirs, have, (double)step, json_number_value(norm));
    free(ours);
    free(theirs);
    compare_rows(x, l, json_object_get(info, "rows"), json_number_value(norm));
}

static void compare_grads(trainee *x)
{
    json_t *params = json_object_get(x->t->info, "params"), *p;
    size_t i;
    json_array_foreach(params, i, p) {
        const char *name = json_string_value(json_object_get(p, "name"));
        const learner *l = name ? train_learner(&x->o, name) : NULL;
        if (l)
            compare_grad(x, l, p);
        else
            train_number(x->t, name ? name : "unnamed parameter", 0, 1, 0, 1);
    }
}

/* ---- steps ---- */

static int one_step(trainee *x, const json_t *step, samite_error *err)
{
    char name[64], prefix[16] = "";
    step_losses l;
    forward_options o = {.weights = &official_weights, .masks = x->masks, .look = train_look, .look_encoded = train_look_encoded,
                         .user = x};
    if (x->step || strcmp(x->t->variant, "brisk") == 0)
        snprintf(prefix, sizeof prefix, "step.%d.", x->step);
    if (!train_targets(x->t, &x->b.t, prefix) || !read_images(x) || !read_texts(x, step))
        return fail(err, SAMITE_INPUT, "step %d of %s lacks its batch", x->step, x->t->variant);
    compare_inputs(x);
    train_boxes(x->t, &x->b.t, prefix);
    if (x->masks && !x->b.t.masks)
        x->b.t.masks = calloc(1, 1);      /* no objects at all */
    x->b.t.side = x->b.side;
    optimizer_zero(&x->o);
    int code = align_train_data(x->t, &x->data, x->step, step, &x->b, err);
    if (!code)
        code = batch_gradients(&x->tapes, x->n, &x->b, &o, &l, err);
    if (code)
        return code;
    snprintf(name, sizeof name, "step.%d", x->step);
    train_losses(x->t, name, &l, json_object_get(step, "losses"), x->masks, false);
    train_compare_matches(x);
    train_compare_words(x);
    if (x->step == 0 && strcmp(x->t->variant, "brisk") != 0)
        compare_grads(x);
    double norm = optimizer_norm(&x->o), where = json_number_value(json_object_get(step, "where"));
    double epochs = json_number_value(json_object_get(x->t->info, "epochs"));
    double per_epoch = json_number_value(json_object_get(x->t->info, "iterations_per_epoch"));
    snprintf(name, sizeof name, "step.%d.grad_norm", x->step);
    train_number(x->t, name, norm, json_number_value(json_object_get(step, "grad_norm")), NORM_BAR, 1e-6);
    double factor = schedule_factor(&x->o.rates, (int64_t)(where * epochs * per_epoch), where);
    train_compare_rates(x, step, factor);
    optimizer_step(&x->o, norm, factor);
    train_compare_weights(x, step);
    return 0;
}

static learn_rates rates_of(const train_reference *t)
{
    learn_rates r = official_rates;
    if (strcmp(t->variant, "brisk") == 0) {
        r.rest *= 10, r.vision *= 10, r.language *= 10;
        r.timescale = r.warmup = r.cooldown = 2;
    }
    return r;
}

#define DETECTOR ((1u << PART_MASK_HEAD) - 1)      /* every part before the mask head */

int align_train_steps(train_reference *t, samite_model *m, samite_error *err)
{
    trainee x = {.t = t, .masks = json_is_true(json_object_get(t->info, "segmentation"))};
    json_t *steps = json_object_get(t->info, "steps"), *step;
    learn_rates rates = rates_of(t);
    size_t i;
    int code = native_open(&x.n, m->n->source, &(native_options){0}, err);
    if (code)
        return code;
    code = tapes_open(&x.tapes, &(run_options){0}, err);
    unsigned parts = x.masks ? DETECTOR | 1u << PART_MASK_HEAD : DETECTOR;
    if (!code)
        code = optimizer_open(&x.o, x.n, parts, x.masks, &rates, err);
    if (!code)
        code = align_train_data_open(&x.data, t, x.n->net->c.image, x.n->net->c.context, x.masks, err);
    json_array_foreach(steps, i, step) {
        if (code)
            break;
        x.step = (int)i;
        code = one_step(&x, step, err);
        batch_free(&x.b);
    }
    if (!code)
        train_compare_moments(&x);
    free(x.words);
    align_train_data_close(&x.data);
    optimizer_close(&x.o);
    tapes_close(&x.tapes);
    native_close(x.n);
    return code;
}
