/* align_train_steps.c - whole training steps beside the original's: losses, every gradient, every tensor after each
 * step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align_train.h"
#include "base/text.h"
#include "model/tokenizer.h"

typedef struct trainee {
    train_reference *t;
    native    *n;
    tapes      tapes;
    optimizer  o;
    bool       masks;
    train_data data;
    int        step;
    batch      b;
    match_list match[2][DECODER_MAX_LAYERS];    /* of the whole batch, prompts counted through */
} trainee;

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

/* ---- comparing ---- */

static void keep_matches(trainee *x, const picture_answers *a, int half, int layer)
{
    const match_list *m = half ? &a->many[layer] : &a->one[layer];
    match_list *all = &x->match[half][layer];
    match *more = realloc(all->item, sizeof *more * (size_t)(all->count + m->count + 1));
    if (!more) {
        x->t->a->out_of_memory = true;
        return;
    }
    all->item = more;
    for (int i = 0; i < m->count; i++) {
        match one = m->item[i];
        one.prompt += a->first_prompt;
        all->item[all->count++] = one;
    }
}

/* The picture's prompts of a reference tensor [prompts, ...] beside ours, which has both halves of the queries. */
static void compare_answers(trainee *x, const picture_answers *a, const char *name, const float *ours, int width,
                            int half, const char *layer)
{
    char full[96], title[128];
    int64_t all = 0, n = (int64_t)a->queries * width;
    snprintf(full, sizeof full, "out.%s%s%s", name, half ? "_o2m" : "", layer);
    float *theirs = x->step ? NULL : train_values(x->t, &all, "%s", full);
    for (int p = 0; theirs && p < a->prompts; p++) {
        snprintf(title, sizeof title, "%s[%d]", full, a->first_prompt + p);
        train_array(x->t, title, ours + ((int64_t)p * 2 + half) * n, theirs + (a->first_prompt + p) * n, n, 5e-4, 0);
    }
    free(theirs);
}

static void compare_gradients(trainee *x, const picture_answers *a, const char *name, const float *ours, int width,
                              const char *layer)
{
    char full[96];
    int64_t n = (int64_t)a->prompts * width;
    snprintf(full, sizeof full, "dout.%s%s", name, layer);
    float *theirs = x->step ? NULL : train_values(x->t, NULL, "%s", full);
    if (theirs)
        train_array(x->t, full, ours, theirs + (int64_t)a->first_prompt * width, n, 1e-4, 0);
    free(theirs);
}

static void look(void *user, run *r, const picture_answers *a)
{
    trainee *x = user;
    int layers = x->n->net->decoder.layers, q = a->queries;
    for (int i = 0; i < layers; i++) {
        char layer[16] = "";
        const decoder_layer_output *y = &a->found->layer[i];
        if (i + 1 < layers)
            snprintf(layer, sizeof layer, ".aux.%d", i);
        for (int half = 0; half < 2; half++) {
            const answer_grads *g = half ? &a->many_grads[i] : &a->one_grads[i];
            keep_matches(x, a, half, i);
            compare_answers(x, a, "pred_logits", y->logits->data, 1, half, layer);
            compare_answers(x, a, "pred_boxes", y->boxes->data, 4, half, layer);
            compare_gradients(x, a, half ? "pred_logits_o2m" : "pred_logits", g->logits, q, layer);
            compare_gradients(x, a, half ? "pred_boxes_o2m" : "pred_boxes", g->boxes, 4 * q, layer);
            compare_gradients(x, a, half ? "pred_boxes_xyxy_o2m" : "pred_boxes_xyxy", g->corners, 4 * q, layer);
        }
        compare_gradients(x, a, "presence_logit_dec", a->one_grads[i].presence, 1, layer);
    }
}

static void compare_matches(trainee *x)
{
    int layers = x->n->net->decoder.layers;
    for (int i = 0; i < layers; i++) {
        for (int half = 0; half < 2; half++) {
            char name[64], layer[16] = "", prefix[16] = "";
            if (i + 1 < layers)
                snprintf(layer, sizeof layer, ".aux.%d", i);
            if (x->step || strcmp(x->t->variant, "brisk") == 0)
                snprintf(prefix, sizeof prefix, "step.%d.", x->step);
            snprintf(name, sizeof name, "%smatch.%s%s", prefix, half ? "o2m" : "o2o", layer);
            train_matches(x->t, name, x->match[half][i].item, x->match[half][i].count, &x->b.t);
            match_list_free(&x->match[half][i]);
        }
    }
}

static const learner *learner_of(const optimizer *o, const char *name)
{
    for (int i = 0; i < o->count; i++)
        if (strcmp(o->item[i].e->p.name, name) == 0)
            return &o->item[i];
    return NULL;
}

/* The gradient of one tensor against its stored sample; bar relative to the whole tensor's norm. */
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
    double size = json_number_value(norm);
    if (ours)
        train_array(x->t, name, ours, theirs, have, size > ZERO_BAR ? GRAD_BAR : ZERO_BAR, size > ZERO_BAR ? size : 1);
    free(ours);
    free(theirs);
}

static void compare_grads(trainee *x)
{
    json_t *params = json_object_get(x->t->info, "params"), *p;
    size_t i;
    json_array_foreach(params, i, p) {
        const char *name = json_string_value(json_object_get(p, "name"));
        const learner *l = name ? learner_of(&x->o, name) : NULL;
        if (l)
            compare_grad(x, l, p);
        else
            train_number(x->t, name ? name : "unnamed parameter", 0, 1, 0, 1);
    }
}

/* 16 values of every tensor after the step, in the order of "params". */
static void compare_weights(trainee *x, const json_t *step)
{
    json_t *params = json_object_get(x->t->info, "params"), *p;
    double noise = json_number_value(json_object_get(json_object_get(step, "noise"), "sample")), most = 0;
    int64_t have = 0, at = 0;
    float *theirs = train_values(x->t, &have, "step.%d.sample", x->step);
    size_t i;
    json_array_foreach(params, i, p) {
        const char *name = json_string_value(json_object_get(p, "name"));
        const learner *l = name ? learner_of(&x->o, name) : NULL;
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

/* ---- steps ---- */

static int one_step(trainee *x, const json_t *step, samite_error *err)
{
    char name[64], prefix[16] = "";
    step_losses l;
    forward_options o = {.weights = &official_weights, .masks = x->masks, .look = look, .user = x};
    if (x->step || strcmp(x->t->variant, "brisk") == 0)
        snprintf(prefix, sizeof prefix, "step.%d.", x->step);
    if (!train_targets(x->t, &x->b.t, prefix) || !read_images(x) || !read_texts(x, step))
        return fail(err, SAMITE_INPUT, "step %d of %s lacks its batch", x->step, x->t->variant);
    if (x->masks && !x->b.t.masks)
        x->b.t.masks = calloc(1, 1);      /* no objects at all */
    x->b.t.side = x->b.side;
    optimizer_zero(&x->o);
    int code = align_train_data(x->t, &x->data, x->step, step, &x->b, err);
    if (!code)
        code = batch_gradients(&x->tapes, x->n, &x->b, &o, &l, err);
    if (code)
        return code;
    train_losses(x->t, x->step, &l, json_object_get(step, "losses"), x->masks);
    compare_matches(x);
    if (x->step == 0 && strcmp(x->t->variant, "brisk") != 0)
        compare_grads(x);
    double norm = optimizer_norm(&x->o), where = json_number_value(json_object_get(step, "where"));
    double epochs = json_number_value(json_object_get(x->t->info, "epochs"));
    double per_epoch = json_number_value(json_object_get(x->t->info, "iterations_per_epoch"));
    snprintf(name, sizeof name, "step.%d.grad_norm", x->step);
    train_number(x->t, name, norm, json_number_value(json_object_get(step, "grad_norm")), NORM_BAR, 1e-6);
    optimizer_step(&x->o, norm, schedule_factor(&x->o.rates, (int64_t)(where * epochs * per_epoch), where));
    compare_weights(x, step);
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
    align_train_data_close(&x.data);
    optimizer_close(&x.o);
    tapes_close(&x.tapes);
    native_close(x.n);
    return code;
}
