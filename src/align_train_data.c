/* align_train_data.c - the batch of a recorded step made again from picture files and annotations, with the recorded
 * draws. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align_train.h"
#include "base/file.h"
#include "base/text.h"
#include "train/sample.h"

#define MOST_PICTURES 16

int align_train_data_open(train_data *d, const train_reference *t, int side, int context, bool masks, samite_error *err)
{
    char *folder = path_join(t->a->o->reference, "data");
    char *json = folder ? path_join(folder, "instances.json") : NULL;
    FILE *f = json ? fopen(json, "rb") : NULL;
    *d = (train_data){0};
    int code = 0;
    if (f) {
        fclose(f);
        code = train_set_read(&d->set, &(train_options){.annotations = json, .pictures = folder, .masks = masks}, err);
        if (!code)
            code = sampler_open(&d->sampler, &d->set, &(config){.image = side, .context = context}, err);
        d->open = !code;
    }
    free(folder);
    free(json);
    return code;
}

void align_train_data_close(train_data *d)
{
    sampler_close(&d->sampler);
    train_set_free(&d->set);
    *d = (train_data){0};
}

static double bytes_that_differ(const uint8_t *a, const uint8_t *b, int64_t n)
{
    int64_t differ = 0;
    for (int64_t i = 0; i < n; i++)
        differ += a[i] != b[i];
    return (double)differ;
}

/* All of it has to be equal to the last bit. */
static void compare(train_reference *t, int step, const batch *ours, const batch *theirs)
{
    char name[64];
    const targets *a = &ours->t, *b = &theirs->t;
    int64_t objects = targets_objects(a), area = (int64_t)a->side * a->side;
    snprintf(name, sizeof name, "step.%d.data.prompts", step);
    train_number(t, name, a->prompts, b->prompts, 0, 1);
    snprintf(name, sizeof name, "step.%d.data.num_boxes", step);
    train_number(t, name, a->prompts == b->prompts && memcmp(a->count, b->count, sizeof(int) * (size_t)a->prompts) == 0,
                 1, 0, 1);
    if (a->prompts != b->prompts || objects != targets_objects(b) || ours->images != theirs->images)
        return;
    snprintf(name, sizeof name, "step.%d.data.boxes", step);
    train_array(t, name, a->boxes, b->boxes, 4 * objects, 0, 1);
    snprintf(name, sizeof name, "step.%d.data.image", step);
    train_array(t, name, ours->pixels, theirs->pixels, 3 * area * ours->images, 2e-7, 1);
    if (!a->masks || !b->masks || !objects)
        return;
    snprintf(name, sizeof name, "step.%d.data.masks", step);
    train_number(t, name, bytes_that_differ(a->masks, b->masks, objects * area), 0, 0, 1);
    snprintf(name, sizeof name, "step.%d.data.is_valid_mask", step);
    train_number(t, name, bytes_that_differ(a->mask_valid, b->mask_valid, objects), 0, 0, 1);
}

int align_train_data(train_reference *t, const train_data *d, int step, const json_t *info, const batch *theirs,
                     samite_error *err)
{
    const json_t *images = json_object_get(info, "images"), *one;
    int32_t image[MOST_PICTURES];
    placement at[MOST_PICTURES];
    int count = 0;
    size_t i;
    if (!d->open)
        return 0;
    json_array_foreach(images, i, one) {
        int index = (int)json_integer_value(json_object_get(one, "index"));
        const json_t *pad = json_object_get(one, "left_top_right_bottom");
        if (index < 0 || index >= d->set.chosen || count == MOST_PICTURES)
            return fail(err, SAMITE_INPUT, "step %d of %s draws picture %d of %d", step, t->variant, index,
                        d->set.chosen);
        image[count] = d->set.order[index];
        at[count++] = (placement){(int)json_integer_value(json_object_get(one, "size")),
                                  (int)json_integer_value(json_array_get(pad, 0)),
                                  (int)json_integer_value(json_array_get(pad, 1))};
        if (at[count - 1].size < 1 || at[count - 1].left < 0 || at[count - 1].top < 0 ||
            at[count - 1].left + at[count - 1].size > d->sampler.side ||
            at[count - 1].top + at[count - 1].size > d->sampler.side)
            return fail(err, SAMITE_INPUT, "step %d of %s places a picture outside the input", step, t->variant);
    }
    batch ours;
    int code = sample_batch(&ours, &d->sampler, image, at, count, err);
    if (code)
        return code;
    compare(t, step, &ours, theirs);
    batch_free(&ours);
    return 0;
}
