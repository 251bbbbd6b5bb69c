/* align_train_look.c - answers of a training step and the tensors inside it beside the original's, with their
 * gradients. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align_train.h"

#define ANSWER_BAR 5e-4      /* of the largest value */
#define INNER_BAR  1e-4      /* gradients, likewise */

/* ---- matches ---- */

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

void train_compare_matches(trainee *x)
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

/* ---- answers ---- */

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
        train_array(x->t, title, ours + ((int64_t)p * 2 + half) * n, theirs + (a->first_prompt + p) * n, n, ANSWER_BAR,
                    0);
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
        train_array(x->t, full, ours, theirs + (int64_t)a->first_prompt * width, n, INNER_BAR, 0);
    free(theirs);
}

/* The boxes as corners, of both halves. */
static void compare_corners(trainee *x, const picture_answers *a, const tensor *boxes, const char *layer)
{
    int64_t n = 2 * (int64_t)a->prompts * a->queries;
    corners *c = malloc(sizeof *c * (size_t)(n + 1));
    for (int64_t i = 0; c && i < n; i++)
        c[i] = box_corners_of(boxes->data + 4 * i);
    for (int half = 0; half < 2 && c; half++)
        compare_answers(x, a, "pred_boxes_xyxy", &c->x0, 4, half, layer);
    x->t->a->out_of_memory |= !c;
    free(c);
}

/* A whole answer [prompts, width] of the reference without halves. */
static void compare_whole(trainee *x, const picture_answers *a, const char *name, const float *ours, int64_t width,
                          const char *layer, double bar)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", name, layer);
    float *theirs = x->step ? NULL : train_values(x->t, NULL, "%s", full);
    if (theirs)
        train_array(x->t, full, ours, theirs + a->first_prompt * width, a->prompts * width, bar, 0);
    free(theirs);
}

/* ---- masks ---- */

/* Ours are computed for matched queries only, once per match: values are compared where they are there; gradients, which
 * add up over the matches of a query, everywhere. */
static void compare_half_masks(trainee *x, run *r, const picture_answers *a, int half)
{
    char name[32];
    int layer = x->n->net->decoder.layers - 1;
    const match_list *m = half ? &a->many[layer] : &a->one[layer], *before = half ? &a->one[layer] : NULL;
    int64_t n = 0;
    snprintf(name, sizeof name, "pred_masks%s", half ? "_o2m" : "");
    float *theirs = x->step ? NULL : train_values(x->t, &n, "out.%s", name);
    int64_t pixels = theirs ? n / x->b.t.prompts / a->queries : 0, count = pixels * a->prompts * a->queries;
    float *values = calloc((size_t)count + 1, sizeof(float)), *grads = calloc((size_t)count + 1, sizeof(float));
    float *known = calloc((size_t)count + 1, sizeof(float));
    for (int i = 0; theirs && values && grads && known && i < m->count; i++) {
        const match *one = &m->item[i];
        tensor *masks = a->masks[one->prompt];
        const float *slope = run_seed(r, masks);
        int64_t at = ((int64_t)one->prompt * a->queries + one->query) * pixels, row = 0;
        for (int k = 0; before && k < before->count; k++)
            row += before->item[k].prompt == one->prompt;
        for (int k = 0; k < i; k++)
            row += m->item[k].prompt == one->prompt;
        for (int64_t k = 0; k < pixels; k++) {
            values[at + k] = masks->data[row * pixels + k];
            known[at + k] = theirs[a->first_prompt * a->queries * pixels + at + k];
            grads[at + k] += slope ? slope[row * pixels + k] : 0;
        }
    }
    if (theirs && values && grads && known) {
        char full[48];
        snprintf(full, sizeof full, "out.%s", name);
        train_array(x->t, full, values, known, count, ANSWER_BAR, 0);
        compare_gradients(x, a, name, grads, (int)(pixels * a->queries), "");
    }
    free(theirs), free(values), free(grads), free(known);
}

static void compare_masks(trainee *x, run *r, const picture_answers *a)
{
    if (!a->masks || !a->semantic || x->step)
        return;
    for (int half = 0; half < 2; half++)
        compare_half_masks(x, r, a, half);
    int64_t pixels = tensor_count(a->semantic) / a->prompts;
    compare_whole(x, a, "out.semantic_seg", a->semantic->data, pixels, "", ANSWER_BAR);
    const float *slope = run_seed(r, a->semantic);
    if (slope)
        compare_gradients(x, a, "semantic_seg", slope, (int)pixels, "");
}

/* ---- inner tensors ---- */

/* Reference tensors stand place by place, [places, all, width]; ours picture by picture, [count, places, width]. Returns
 * the reference's in our order. */
static float *turned(const float *theirs, int64_t places, int64_t all, int64_t first, int64_t count, int64_t width)
{
    float *out = malloc(sizeof *out * (size_t)(places * count * width + 1));
    for (int64_t c = 0; out && c < count; c++)
        for (int64_t i = 0; i < places; i++)
            memcpy(out + (c * places + i) * width, theirs + (i * all + first + c) * width, sizeof *out * (size_t)width);
    return out;
}

/* name[layer] in "mid." and, when `ours` has a gradient, in "dmid.", [layers, places, prompts of all pictures, width]. */
static void compare_inner(trainee *x, const picture_answers *a, const char *name, const tensor *ours, int layer,
                          bool with_gradient)
{
    static const char *const kinds[2] = {"mid", "dmid"};
    int64_t all = x->b.t.prompts, width = ours->dim[ours->axes - 1], places = tensor_count(ours) / width / a->prompts;
    for (int i = 0; i <= with_gradient; i++) {
        char title[64];
        float *theirs = x->step ? NULL : train_values(x->t, NULL, "%s.%s", kinds[i], name), *same = NULL;
        snprintf(title, sizeof title, "%s.%s[%d]", kinds[i], name, layer);
        if (theirs)
            same = turned(theirs + layer * places * all * width, places, all, a->first_prompt, a->prompts, width);
        const float *values = i ? ours->grad : ours->data;
        if (same && values)
            train_array(x->t, title, values, same, tensor_count(ours), i ? INNER_BAR : ANSWER_BAR, 0);
        free(theirs);
        free(same);
    }
}

/* Texts are encoded once per picture here and once per batch there. */
static void add_words(trainee *x, const picture_answers *a)
{
    int64_t width = a->words->dim[2], one = a->words->dim[1] * width, most = one * x->b.texts;
    if (x->step)
        return;
    x->longest = (int)a->words->dim[1];
    if (!x->words)
        x->words = calloc((size_t)most + 1, sizeof *x->words);
    x->t->a->out_of_memory |= !x->words;
    for (int p = 0; x->words && a->words->grad && p < a->prompts; p++)
        for (int64_t i = 0; i < one; i++)
            x->words[x->b.text_of[a->first_prompt + p] * one + i] += a->words->grad[p * one + i];
    float *theirs = a->image ? NULL : train_values(x->t, NULL, "mid.text");
    float *same = theirs ? turned(theirs, x->longest, x->b.texts, 0, x->b.texts, width) : NULL;
    for (int p = 0; same && p < a->prompts; p++) {
        int64_t at = x->b.text_of[a->first_prompt + p];
        char title[32];
        snprintf(title, sizeof title, "mid.text[%d]", p);
        train_array(x->t, title, a->words->data + p * one, same + at * one, x->b.tokens[at] * width, ANSWER_BAR, 0);
    }
    free(theirs);
    free(same);
}

void train_compare_words(trainee *x)
{
    int64_t n = 0, width;
    float *theirs = x->step || !x->words ? NULL : train_values(x->t, &n, "dmid.text");
    int places = x->n->net->c.context;
    if (theirs) {
        width = n / places / x->b.texts;
        float *same = turned(theirs, x->longest, x->b.texts, 0, x->b.texts, width);
        if (same)
            train_array(x->t, "dmid.text", x->words, same, x->longest * x->b.texts * width, INNER_BAR, 0);
        free(same);
    }
    free(theirs);
    free(x->words);
    x->words = NULL;
}

/* [1, t, t, d] beside [pictures, d, t, t]. */
static void compare_map(trainee *x, int image, const char *name, const tensor *ours)
{
    static const char *const kinds[2] = {"mid", "dmid"};
    int64_t n = tensor_count(ours), width = ours->dim[ours->axes - 1], places = n / width;
    for (int i = 0; i < 2; i++) {
        char title[64];
        const float *values = i ? ours->grad : ours->data;
        float *theirs = x->step ? NULL : train_values(x->t, NULL, "%s.%s", kinds[i], name);
        float *same = theirs ? turned(theirs + image * n, width, places, 0, places, 1) : NULL;
        snprintf(title, sizeof title, "%s.%s[%d]", kinds[i], name, image);
        if (same && values)
            train_array(x->t, title, values, same, n, i ? INNER_BAR : ANSWER_BAR, 0);
        free(theirs);
        free(same);
    }
}

/* ---- looking ---- */

static void look_at_layer(trainee *x, const picture_answers *a, int i)
{
    int layers = x->n->net->decoder.layers, q = a->queries;
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
    compare_corners(x, a, y->boxes, layer);
    compare_whole(x, a, "out.presence_logit_dec", y->presence->data, 1, layer, ANSWER_BAR);
    compare_gradients(x, a, "presence_logit_dec", a->one_grads[i].presence, 1, layer);
    /* Gradients only where the tensor feeds nothing here that has a copy of it there: the next boxes, the first layer. */
    compare_inner(x, a, "hs", y->queries, i, i + 1 == layers);
    compare_inner(x, a, "refs", y->reference, i, i > 0);
}

void train_look(void *user, run *r, const picture_answers *a)
{
    trainee *x = user;
    for (int i = 0; i < x->n->net->decoder.layers; i++)
        look_at_layer(x, a, i);
    compare_inner(x, a, "memory", a->memory, 0, true);
    add_words(x, a);
    compare_masks(x, r, a);
}

void train_look_encoded(void *user, int image, const encoded_image *e)
{
    trainee *x = user;
    compare_map(x, image, "trunk", e->trunk);
    compare_map(x, image, "neck", e->level[2]);
}
