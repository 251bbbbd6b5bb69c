/* aids.c - patch losses where forward.c calls for them: class vectors once per step, then picture by picture. */
#include "train/aids.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "model/tokenizer_reduced.h"

#define FIRST_OFFSET 5.0f
#define FIRST_SCALE  12.0f

/* Named so that they do not decay, see optimizer.c. */
static bool make_entry(entry *e, const char *name, int64_t size)
{
    *e = (entry){.part = PART_FUSION};
    e->p.name = text_copy(name);
    e->p.t = (tensor){.axes = 1, .dim = {size}, .stride = size, .data = calloc((size_t)size, sizeof(float))};
    e->p.owned = true;
    return e->p.name && e->p.t.data;
}

static void free_entry(entry *e)
{
    free((char *)(uintptr_t)e->p.name);
    if (e->p.owned)
        free(e->p.t.data);
    *e = (entry){0};
}

static int add_learners(aids *a, native *n, optimizer *o, samite_error *err)
{
    int d = n->net->c.d;
    char name[64];
    bool ok = make_entry(&a->background, "aid.background.bias", d + 2);
    if (ok) {
        a->background.p.t.data[d] = FIRST_OFFSET;
        a->background.p.t.data[d + 1] = logf(FIRST_SCALE);
    }
    for (int i = 0; i < a->layers && ok; i++) {
        snprintf(name, sizeof name, "aid.match.%d.bias", i);
        ok = make_entry(&a->match[i], name, d + 1);
        for (int k = 0; k < d && ok; k++)
            a->match[i].p.t.data[k] = 0.05f * (k % 2 ? 1 : -1);
    }
    int code = ok ? optimizer_add_aside(o, n, &a->background, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    for (int i = 0; i < a->layers && !code && a->match_weight > 0; i++)
        code = optimizer_add_aside(o, n, &a->match[i], err);
    return code;
}

int aids_open(aids *a, native *n, const scene_world *w, optimizer *o, samite_error *err)
{
    const config *c = &n->net->c;
    size_t classes = (size_t)w->classes, patches = (size_t)config_tokens(c) * (size_t)config_tokens(c);
    a->n = n;
    a->world = w;
    a->layers = c->enc_layers;
    a->text = run_open(&(run_options){.mode = TAPE, .keep_all = true, .type = n->type}, err);
    a->ids = calloc(classes * (size_t)c->context + 1, sizeof *a->ids);
    a->tokens = calloc(classes + 1, sizeof *a->tokens);
    a->share = malloc(sizeof(float) * (patches * classes + 1));
    a->room = malloc(sizeof(float) * (2 * patches + classes + 1 + 2 * (size_t)c->d));
    if (!a->text || !a->ids || !a->tokens || !a->share || !a->room ||
        !class_vectors_open(&a->vectors, w->classes, c->d))
        return fail(err, SAMITE_RESOURCE, "not enough memory for the losses on patches");
    for (int i = 0; i < w->classes; i++) {
        int32_t *ids = a->ids + (int64_t)i * c->context;
        a->tokens[i] = tokenize_reduced(ids, c, w->prompt[i], strlen(w->prompt[i]), NULL, NULL);
        a->longest = a->tokens[i] > a->longest ? a->tokens[i] : a->longest;
        if (a->tokens[i] < 0)
            return fail(err, SAMITE_RESOURCE, "out of memory");
    }
    for (int i = 1; i < w->classes; i++)        /* places follow each other without gaps */
        memmove(a->ids + (int64_t)i * a->longest, a->ids + (int64_t)i * c->context, sizeof *a->ids * (size_t)a->longest);
    return add_learners(a, n, o, err);
}

void aids_close(aids *a)
{
    free_entry(&a->background);
    for (int i = 0; i < a->layers; i++)
        free_entry(&a->match[i]);
    run_close(a->text);
    free(a->ids), free(a->tokens), free(a->share), free(a->room);
    class_vectors_close(&a->vectors);
    *a = (aids){0};
}

int aids_begin(aids *a, samite_error *err)
{
    int d = a->vectors.d, n = a->longest, classes = a->vectors.classes;
    run_reset(a->text);
    tensor *ids = run_indices(a->text, a->ids, 2, (int64_t[]){classes, n});
    a->words = text_forward(a->text, &a->n->net->text, ids);
    a->now = (aids_state){0};
    a->hits = a->objects = a->seen = 0;
    int code = run_status(a->text, err);
    if (code)
        return code;
    class_vectors_make(&a->vectors, a->words->data, n, a->tokens);
    double all = 0;
    for (int i = 0; i < d; i++) {        /* of the first word's token */
        double sum = 0, squares = 0;
        for (int c = 0; c < classes; c++) {
            double x = a->words->data[((int64_t)c * n + 1) * d + i];
            sum += x;
            squares += x * x;
        }
        all += squares / classes - sum / classes * (sum / classes);
    }
    a->now.word_spread = sqrt(fmax(all / d, 0));
    return 0;
}

/* How much of every patch each object covers, added to out[patch * step + column of the object]. */
static void cover(float *out, int step, const int *column, const batch *b, int image, int side)
{
    int patch = b->side / side;
    const uint8_t *owner = b->owner + (int64_t)image * b->side * b->side;
    float pixel = 1 / (float)(patch * patch);
    for (int y = 0; y < side * patch; y++)
        for (int x = 0; x < side * patch; x++) {
            int who = owner[y * b->side + x];
            if (who && column[who - 1] >= 0)
                out[(int64_t)(y / patch * side + x / patch) * step + column[who - 1]] += pixel;
        }
}

static double spread(const float *x, int64_t n)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += x[i];
        squares += (double)x[i] * x[i];
    }
    return sqrt(fmax(squares / (double)n - sum / (double)n * (sum / (double)n), 0));
}

void aids_picture(aids *a, run *r, tensor *level, const batch *b, int image)
{
    int side = (int)level->dim[1], patches = side * side, d = a->vectors.d;
    float *seed = run_seed(r, level), *own = a->background.p.t.data, *grad = a->background.p.t.grad;
    if (!seed || !run_ok(r))
        return;
    patch_result result;
    patch_head h = {own, own[d], own[d + 1], grad, 0, 0};
    memset(a->share, 0, sizeof(float) * (size_t)patches * (size_t)a->vectors.classes);
    cover(a->share, a->vectors.classes, b->classes + (int64_t)image * SCENE_MOST, b, image, side);
    patch_loss(&result, seed, &a->vectors, &h, level->data, a->share, patches, a->patch_weight / a->pictures,
               a->room + 2 * patches);
    grad[d] += h.doffset;
    grad[d + 1] += h.dlog_scale;
    a->now.patches += result.loss / a->pictures;
    a->hits += result.hits;
    a->objects += result.objects;
    a->now.accuracy = a->objects > 0 ? a->hits / a->objects : 0;
    a->now.image_spread += (spread(level->data, (int64_t)patches * d) - a->now.image_spread) / ++a->seen;
}

void aids_match(aids *a, run *r, int layer, tensor *x, const batch *b, int image, int first)
{
    int patches = (int)x->dim[1], d = (int)x->dim[2], side = config_tokens(&a->n->net->c), column[SCENE_MOST];
    float *seed = a->match_weight > 0 ? run_seed(r, x) : NULL, *belongs = a->room, *counts = a->room + patches;
    if (!seed || !run_ok(r))
        return;
    for (int64_t p = 0; p < x->dim[0]; p++) {
        memset(belongs, 0, sizeof(float) * 2 * (size_t)patches);
        for (int i = 0; i < SCENE_MOST; i++) {
            int class = b->classes[(int64_t)image * SCENE_MOST + i];
            column[i] = class >= 0 && scene_true(a->world, class, b->text_of[first + p]) ? 0 : -1;
        }
        cover(belongs, 1, column, b, image, side);
        for (int i = 0; i < SCENE_MOST; i++)
            column[i] = 0;
        cover(counts, 1, column, b, image, side);
        for (int i = 0; i < patches; i++)
            counts[i] += 0.1f;
        int64_t at = p * patches * d;
        double weight = 1.0 / a->prompts / a->layers;
        a->now.match += weight * match_loss(seed + at, a->match[layer].p.t.grad, x->data + at, a->match[layer].p.t.data,
                                            belongs, counts, patches, d, weight * a->match_weight, a->room + 2 * patches);
    }
}

int aids_end(aids *a, samite_error *err)
{
    float *seed = run_seed(a->text, a->words);
    if (!seed)
        return run_status(a->text, err);
    class_vectors_back(&a->vectors, seed, a->longest, a->tokens);
    return run_backward(a->text, NULL, err);
}

double aids_loss(const aids *a)
{
    return a->patch_weight * a->now.patches + a->match_weight * a->now.match;
}

void aids_log(const aids *a, int processes, json_t *o)
{
    const struct { const char *name; double value; } all[] = {
        {"loss_patches", a->now.patches * processes}, {"patch_accuracy", a->now.accuracy}, {"loss_match", a->now.match * processes},
        {"spread_image", a->now.image_spread}, {"spread_words", a->now.word_spread}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        json_object_set_new(o, all[i].name, json_real(all[i].value));
}
