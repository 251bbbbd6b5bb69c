/* loader.c - one thread that makes one batch. */
#include "train/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/scene_batch.h"

#define MOST_TRIES 100

int loader_open(loader *l, const sampler *s, bool skip_bad, int count, samite_error *err)
{
    *l = (loader){.s = s, .skip_bad = skip_bad, .room = count};
    l->image = malloc(sizeof *l->image * (size_t)(count + 1));
    l->at = malloc(sizeof *l->at * (size_t)(count + 1));
    if (l->image && l->at)
        return 0;
    loader_close(l);
    return fail(err, SAMITE_RESOURCE, "not enough memory for a batch of %d pictures", count);
}

void loader_close(loader *l)
{
    batch b = {0};
    if (l->running)
        (void)loader_finish(l, &b, NULL);
    batch_free(&b);
    free(l->image), free(l->at);
    l->image = NULL;
    l->at = NULL;
}

/* The image behind `image` in the order of the loader. */
static int32_t next_image(const train_set *set, int32_t image)
{
    for (int i = 0; i < set->chosen; i++)
        if (set->order[i] == image)
            return set->order[(i + 1) % set->chosen];
    return set->order[0];
}

/* Puts a readable picture in place of each that is not. */
static int replace_bad(loader *l)
{
    for (int i = 0; i < l->count; i++) {
        for (int tries = 0;; tries++) {
            pixels px = {0};
            bool stretched;
            samite_error why = {0};
            int code = read_training_picture(&px, &stretched, l->s->set, l->image[i], &why);
            pixels_free(&px);
            if (!code)
                break;
            if (code != SAMITE_INPUT || tries == MOST_TRIES)
                return fail(&l->err, code, "%s", why.text);
            size_t n = strlen(l->note);
            snprintf(l->note + n, sizeof l->note - n, "%s%.400s; the next picture takes its place", n ? "; " : "",
                     why.text);
            l->image[i] = next_image(l->s->set, l->image[i]);
        }
    }
    return sample_batch(&l->b, l->s, l->image, l->at, l->count, &l->err);
}

static void *load(void *of)
{
    loader *l = of;
    l->err = (samite_error){0};
    l->note[0] = '\0';
    l->code = l->s->set->scenes ? scene_batch(&l->b, l->s, l->epoch, l->image, l->count, &l->err)
                                : sample_batch(&l->b, l->s, l->image, l->at, l->count, &l->err);
    if (l->code == SAMITE_INPUT && l->skip_bad)
        l->code = replace_bad(l);
    return NULL;
}

int loader_begin(loader *l, samite_error *err)
{
    l->running = pthread_create(&l->thread, NULL, load, l) == 0;
    return l->running ? 0 : fail(err, SAMITE_RESOURCE, "no thread for reading pictures");
}

int loader_finish(loader *l, batch *out, samite_error *err)
{
    pthread_join(l->thread, NULL);
    l->running = false;
    *out = l->b;
    l->b = (batch){0};
    return l->code ? fail(err, l->code, "%s", l->err.text) : 0;
}
