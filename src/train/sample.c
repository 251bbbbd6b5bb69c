/* sample.c - reads, places and packs: pixels, prompts, boxes and masks of a batch. */
#include "train/sample.h"

#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_reduced.h"

#define MOST_OBJECTS 200

int sampler_open(sampler *s, const train_set *set, const config *c, samite_error *err)
{
    int context = c->context;
    size_t n = (size_t)set->prompt_count;
    *s = (sampler){.set = set, .side = c->image, .context = context, .most_objects = MOST_OBJECTS};
    s->ids = calloc(n * (size_t)context + 1, sizeof *s->ids);
    s->tokens = calloc(n + 1, sizeof *s->tokens);
    if (!s->ids || !s->tokens) {
        sampler_close(s);
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d prompts", set->prompt_count);
    }
    for (size_t i = 0; i < n; i++) {
        bool cut = false;
        int unknown = 0;
        s->tokens[i] = tokenize_reduced(s->ids + i * (size_t)context, c, set->prompts[i], strlen(set->prompts[i]), &cut,
                                        &unknown);
        s->unknown += unknown > 0;
        s->cut += cut;
    }
    return 0;
}

void sampler_close(sampler *s)
{
    free(s->ids), free(s->tokens);
    *s = (sampler){0};
}

int read_training_picture(pixels *out, bool *stretched, const train_set *set, int32_t image, samite_error *err)
{
    const train_image *im = &set->images[image];
    image_options o = IMAGE_OPTIONS_INIT;
    char *path = train_set_picture(set, image);
    *stretched = false;
    if (!path)
        return fail(err, SAMITE_RESOURCE, "not enough memory to read %s", im->file_name);
    o.apply_exif = false;
    int code = image_read(out, path, &o, err);
    bool known = im->width && im->height;
    if (!code && known && (out->width != im->width || out->height != im->height)) {
        pixels upright = {0};
        o.apply_exif = true;
        if (out->exif_orientation > 4 && image_read(&upright, path, &o, NULL) == 0 && upright.width == im->width &&
            upright.height == im->height) {
            pixels_free(out);
            *out = upright;
        } else {
            pixels_free(&upright);
            *stretched = true;
        }
    }
    free(path);
    return code;
}

/* ---- packing ---- */

/* A batch while it grows. */
typedef struct packing {
    batch         *b;
    const sampler *s;
    int            room;         /* objects */
    int            objects;
} packing;

static bool room_for_objects(packing *p, int more)
{
    targets *t = &p->b->t;
    if (p->objects + more <= p->room)
        return true;
    int room = p->objects + more + p->room;
    float *boxes = realloc(t->boxes, sizeof(float) * 4 * (size_t)room);
    if (boxes)
        t->boxes = boxes;
    uint8_t *valid = realloc(t->mask_valid, (size_t)room), *masks = NULL;
    if (valid)
        t->mask_valid = valid;
    if (p->s->set->masks) {
        masks = realloc(t->masks, (size_t)room * (size_t)p->s->side * (size_t)p->s->side);
        if (masks)
            t->masks = masks;
    }
    if (!boxes || !valid || (p->s->set->masks && !masks))
        return false;
    p->room = room;
    return true;
}

static int pack_object(packing *p, const train_object *x, const train_image *im, const pixels *px, placement at,
                       samite_error *err)
{
    targets *t = &p->b->t;
    int side = p->s->side, code = 0;
    bool valid = false;
    float box[4];
    if (place_box(box, side, x, im, px->width, px->height, at) < LEAST_AREA)
        return 0;
    if (!room_for_objects(p, 1))
        return fail(err, SAMITE_RESOURCE, "not enough memory for the objects of %s", im->file_name);
    if (p->s->set->masks)
        code = place_mask(t->masks + (size_t)p->objects * (size_t)side * (size_t)side, &valid, side, x, im, px->width,
                          px->height, at, err);
    memcpy(t->boxes + 4 * (size_t)p->objects, box, sizeof box);
    t->mask_valid[p->objects] = valid;
    p->objects += !code;
    return code;
}

/* The objects of one prompt in one picture. A prompt with too many is taken back. */
static int pack_prompt(packing *p, int32_t image, int prompt, const pixels *px, placement at, int *prompts,
                       samite_error *err)
{
    batch *b = p->b;
    const train_set *set = p->s->set;
    const train_image *im = &set->images[image];
    int before = p->objects, code = 0;
    for (int i = 0; i < im->count && !code; i++) {
        const train_object *x = &set->objects[im->first + i];
        if (x->prompt == prompt && !x->crowd)
            code = pack_object(p, x, im, px, at, err);
    }
    if (p->objects - before > p->s->most_objects) {
        p->objects = before;
        return code;
    }
    b->text_of[b->t.prompts] = prompt;
    b->t.count[b->t.prompts] = p->objects - before;
    b->t.first[++b->t.prompts] = p->objects;
    *prompts += 1;
    return code;
}

static int pack_picture(packing *p, int at_image, int32_t image, placement at, samite_error *err)
{
    int side = p->s->side;
    pixels px = {0};
    bool stretched;
    int code = read_training_picture(&px, &stretched, p->s->set, image, err);
    if (!code)
        code = place_picture(p->b->pixels + (size_t)at_image * (size_t)side * (size_t)side * 3, side, &px, at, err);
    for (int i = 0; i < p->s->set->prompt_count && !code; i++)
        code = pack_prompt(p, image, i, &px, at, &p->b->image_prompts[at_image], err);
    pixels_free(&px);
    return code;
}

static bool batch_new(batch *b, const sampler *s, int count)
{
    size_t prompts = (size_t)count * (size_t)s->set->prompt_count,
           ids = (size_t)s->set->prompt_count * (size_t)s->context;
    *b = (batch){.images = count, .side = s->side, .texts = s->set->prompt_count};
    b->pixels = malloc(sizeof(float) * 3 * (size_t)count * (size_t)s->side * (size_t)s->side);
    b->image_prompts = calloc((size_t)count + 1, sizeof *b->image_prompts);
    b->text_of = calloc(prompts + 1, sizeof *b->text_of);
    b->ids = malloc((ids + 1) * sizeof *b->ids);
    b->tokens = malloc(((size_t)b->texts + 1) * sizeof *b->tokens);
    b->t.count = calloc(prompts + 1, sizeof *b->t.count);
    b->t.first = calloc(prompts + 2, sizeof *b->t.first);
    b->t.side = s->side;
    if (!b->pixels || !b->image_prompts || !b->text_of || !b->ids || !b->tokens || !b->t.count || !b->t.first)
        return false;
    memcpy(b->ids, s->ids, ids * sizeof *b->ids);
    memcpy(b->tokens, s->tokens, (size_t)b->texts * sizeof *b->tokens);
    return true;
}

int sample_batch(batch *out, const sampler *s, const int32_t *image, const placement *at, int count, samite_error *err)
{
    packing p = {.b = out, .s = s};
    int code = 0;
    if (!batch_new(out, s, count) || !room_for_objects(&p, 1))
        code = fail(err, SAMITE_RESOURCE, "not enough memory for a batch of %d pictures of %d pixels", count, s->side);
    for (int i = 0; i < count && !code; i++)
        code = pack_picture(&p, i, image[i], at[i], err);
    if (code)
        batch_free(out);
    return code;
}
