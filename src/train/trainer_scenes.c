/* trainer_scenes.c - a training that needs no data set: scenes, losses on patches, and the start of fusion. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/random.h"
#include "train/trainer.h"

#define PICTURES_MEASURED 16
#define WORD_SPREAD 0.7        /* of word tokens over names, once aligned; features get 1 */
#define APART (UINT64_C(1) << 40)      /* an epoch that no training reaches */

int trainer_scenes(trainer *t, samite_error *err)
{
    const train_config *c = t->c;
    if (!(t->scenes = calloc(1, sizeof *t->scenes)))
        return fail(err, SAMITE_RESOURCE, "out of memory");
    bool crowded = c->scenes_crowded;
    t->scenes->options = (scene_options){.least = crowded ? 5 : 1, .most = crowded ? SCENE_MOST : 6, .all_differ = crowded};
    t->scenes->prompts = c->patches_only ? 0 : c->scene_prompts;
    t->scenes->seed = (uint64_t)c->seed;
    int code = scene_world_open(&t->scenes->world, c->scenes, err);
    return code ? code : scene_set(&t->set, t->scenes, c->scene_count, c->masks, err);
}

int trainer_aids(trainer *t, samite_error *err)
{
    if (!(t->aids = calloc(1, sizeof *t->aids)))
        return fail(err, SAMITE_RESOURCE, "out of memory");
    t->aids->only = t->c->patches_only;
    t->aids->patch_weight = t->c->patches;
    t->aids->match_weight = t->c->match;
    return aids_open(t->aids, t->n, &t->scenes->world, &t->o, err);
}

void trainer_scenes_close(trainer *t)
{
    if (t->aids)
        aids_close(t->aids);
    if (t->scenes)
        scene_world_close(&t->scenes->world);
    free(t->aids), free(t->scenes);
    t->aids = NULL;
    t->scenes = NULL;
}

/* ---- one scale ---- */

static void scale_by(param *p, float by)
{
    for (int64_t i = 0; p && i < tensor_count(&p->t); i++)
        p->t.data[i] *= by;
}

/* Standard deviation of level 2 over a few scenes. */
static int measure_features(trainer *t, double *spread, samite_error *err)
{
    batch b;
    int32_t image[PICTURES_MEASURED];
    const sam3 *net = t->n->net;
    int64_t side = t->sampler.side, count = 0;
    double sum = 0, squares = 0;
    for (int i = 0; i < PICTURES_MEASURED; i++)
        image[i] = i;
    int code = scene_batch(&b, &t->sampler, APART, image, PICTURES_MEASURED, err);
    if (code)
        return code;
    for (int i = 0; i < b.images && !code; i++) {
        run *r = t->tapes.picture;
        run_reset(r);
        tensor *x = run_input(r, b.pixels + (int64_t)i * side * side * 3, 4, (int64_t[]){1, side, side, 3});
        x = neck_level(r, &net->neck, vit_forward(r, &net->trunk, x), 2, "neck");
        code = run_status(r, err);
        for (int64_t k = 0; !code && k < tensor_count(x); k++, count++) {
            sum += x->data[k];
            squares += (double)x->data[k] * x->data[k];
        }
    }
    batch_free(&b);
    double mean = count ? sum / (double)count : 0;
    *spread = count ? sqrt(fmax(squares / (double)count - mean * mean, 0)) : 0;
    return code;
}

/* The mean over classes of their mean token: what all words have in common. */
static void common_part(const aids *a, double *mean)
{
    int d = a->vectors.d, n = a->longest;
    memset(mean, 0, sizeof *mean * (size_t)d);
    for (int c = 0; c < a->vectors.classes; c++)
        for (int k = 0; k < a->tokens[c]; k++)
            for (int i = 0; i < d; i++)
                mean[i] += a->words->data[((int64_t)c * n + k) * d + i] / a->tokens[c] / a->vectors.classes;
}

int trainer_align(trainer *t, samite_error *err)
{
    sam3 *net = t->n->net;
    double features, *common = malloc(sizeof *common * (size_t)net->c.d);
    if (!common || !t->aids) {
        free(common);
        return t->aids ? fail(err, SAMITE_RESOURCE, "out of memory")
                       : fail(err, SAMITE_USAGE, "trainer.begin_aligned needs loss.patches or loss.match");
    }
    int code = measure_features(t, &features, err);
    if (!code)
        code = aids_begin(t->aids, err);
    if (!code && features > 0 && t->aids->now.word_spread > 0) {
        conv_w *last = &net->neck.smooth[2];
        linear_w *words = &net->text.resizer;
        float by = (float)(WORD_SPREAD / t->aids->now.word_spread);
        common_part(t->aids, common);
        scale_by(last->w, (float)(1 / features));
        scale_by(last->b, (float)(1 / features));
        for (int i = 0; i < net->c.d; i++)
            words->b->t.data[i] -= (float)common[i];
        scale_by(words->w, by);
        scale_by(words->b, by);
        trainer_say(t, "features had a spread of %.3g and words of %.3g; now 1 and %.3g", features,
                    t->aids->now.word_spread, WORD_SPREAD);
    }
    free(common);
    return code;
}
