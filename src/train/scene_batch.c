/* scene_batch.c - scenes with their prompts, boxes and masks packed into a batch. */
#include "train/scene_batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "train/random.h"

#define LEAST_AREA_SEEN 12        /* pixels; a smaller object is none */
#define FALSE_SHARE 0.34f

/* ---- prompts ---- */

static bool true_of_scene(const scene_world *w, const scene *s, int prompt)
{
    for (int i = 0; i < s->objects; i++)
        if (scene_true(w, s->class[i], prompt))
            return true;
    return false;
}

static bool among(const int *list, int count, int x)
{
    for (int i = 0; i < count; i++)
        if (list[i] == x)
            return true;
    return false;
}

/* Another colour of a shape that is there, or another shape of its colour; any name where there is no shape. */
static int nearly_true(const scene_world *w, const scene *s, dice *d)
{
    int first = dice_below(d, s->objects ? s->objects : 1);
    for (int i = 0; i < s->objects; i++) {
        int k = s->class[(first + i) % s->objects] - w->name_count;
        if (k < 0)
            continue;
        int colour = k / SCENE_SHAPES, shape = k % SCENE_SHAPES;
        bool keep = dice_below(d, 2);
        return w->name_count + (keep ? colour : dice_below(d, SCENE_COLOURS)) * SCENE_SHAPES +
               (keep ? dice_below(d, SCENE_SHAPES) : shape);
    }
    return dice_below(d, w->prompts);
}

int scene_prompts(const scene_world *w, const scene *s, dice *d, int *prompt, int room)
{
    int truth[2 * SCENE_MOST], known = 0, n = 0;
    for (int i = 0; i < w->prompts && known < 2 * SCENE_MOST; i++)
        if (true_of_scene(w, s, i))
            truth[known++] = i;
    for (int i = known - 1; i > 0; i--) {
        int k = dice_below(d, i + 1), keep = truth[i];
        truth[i] = truth[k];
        truth[k] = keep;
    }
    int wrong = dice_real(d, 0, 1) < 0.9f ? (int)((float)room * FALSE_SHARE + 0.5f) : 0;
    wrong = wrong < 1 && room > 1 ? 1 : wrong;
    for (int i = 0; i < known && n < room - wrong; i++)
        prompt[n++] = truth[i];
    return scene_false_prompts(w, s, d, prompt, n, room);
}

int scene_false_prompts(const scene_world *w, const scene *s, dice *d, int *prompt, int n, int room)
{
    for (int tries = 0; n < room && tries < 100 * room; tries++) {
        int one = dice_below(d, 2) ? nearly_true(w, s, d) : dice_below(d, w->prompts);
        if (!true_of_scene(w, s, one) && !among(prompt, n, one))
            prompt[n++] = one;
    }
    return n;
}

/* ---- packing ---- */

typedef struct scene_packing {
    batch              *b;
    const scene_source *from;
    bool                masks;
    int                 objects, room;
} scene_packing;

static bool room_for_one(scene_packing *p)
{
    targets *t = &p->b->t;
    if (p->objects < p->room)
        return true;
    int room = 2 * p->room + 32;
    size_t area = (size_t)t->side * (size_t)t->side;
    float *boxes = realloc(t->boxes, sizeof(float) * 4 * (size_t)room);
    t->boxes = boxes ? boxes : t->boxes;
    uint8_t *valid = realloc(t->mask_valid, (size_t)room);
    t->mask_valid = valid ? valid : t->mask_valid;
    uint8_t *masks = p->masks ? realloc(t->masks, (size_t)room * area) : NULL;
    t->masks = masks ? masks : t->masks;
    if (!boxes || !valid || (p->masks && !masks))
        return false;
    p->room = room;
    return true;
}

/* Box and mask of what is seen of object `which`. false: out of memory. */
static bool pack_one(scene_packing *p, const scene *s, int which)
{
    int x0 = s->side, y0 = s->side, x1 = 0, y1 = 0, seen = 0;
    for (int y = 0; y < s->side; y++)
        for (int x = 0; x < s->side; x++) {
            if (s->owner[y * s->side + x] != which + 1)
                continue;
            seen++;
            x0 = x < x0 ? x : x0, x1 = x + 1 > x1 ? x + 1 : x1;
            y0 = y < y0 ? y : y0, y1 = y + 1 > y1 ? y + 1 : y1;
        }
    if (seen < LEAST_AREA_SEEN)
        return true;
    if (!room_for_one(p))
        return false;
    float side = (float)s->side, *box = p->b->t.boxes + 4 * (int64_t)p->objects;
    box[0] = (float)(x0 + x1) / 2 / side;
    box[1] = (float)(y0 + y1) / 2 / side;
    box[2] = (float)(x1 - x0) / side;
    box[3] = (float)(y1 - y0) / side;
    p->b->t.mask_valid[p->objects] = true;
    int64_t area = (int64_t)s->side * s->side;
    for (int64_t i = 0; p->masks && i < area; i++)
        p->b->t.masks[p->objects * area + i] = s->owner[i] == which + 1;
    p->objects++;
    return true;
}

static int pack_scene(scene_packing *p, const scene *s, int image, dice *d, samite_error *err)
{
    batch *b = p->b;
    int prompt[64];
    int64_t area = (int64_t)s->side * s->side;
    for (int64_t i = 0; i < 3 * area; i++)
        b->pixels[image * 3 * area + i] = ((float)s->rgb[i] / 255.0f - 0.5f) / 0.5f;
    memcpy(b->owner + image * area, s->owner, (size_t)area);
    for (int i = 0; i < SCENE_MOST; i++)
        b->classes[image * SCENE_MOST + i] = i < s->objects ? s->class[i] : -1;
    int n = scene_prompts(&p->from->world, s, d, prompt, p->from->prompts < 64 ? p->from->prompts : 64);
    for (int i = 0; i < n; i++) {
        int before = p->objects;
        for (int k = 0; k < s->objects; k++)
            if (scene_true(&p->from->world, s->class[k], prompt[i]) && !pack_one(p, s, k))
                return fail(err, SAMITE_RESOURCE, "not enough memory for the objects of a scene");
        b->text_of[b->t.prompts] = prompt[i];
        b->t.count[b->t.prompts] = p->objects - before;
        b->t.first[++b->t.prompts] = p->objects;
        b->image_prompts[image]++;
    }
    return 0;
}

static bool batch_new(batch *b, const sampler *s, int count)
{
    const scene_source *from = s->set->scenes;
    size_t prompts = (size_t)count * (size_t)from->prompts, texts = (size_t)from->world.prompts, images = (size_t)count,
           area = (size_t)s->side * (size_t)s->side, ids = texts * (size_t)s->context;
    *b = (batch){.images = count, .side = s->side, .texts = (int)texts};
    b->pixels = malloc(sizeof(float) * 3 * images * area);
    b->owner = malloc(images * area);
    b->classes = malloc(sizeof(int) * images * SCENE_MOST);
    b->image_prompts = calloc(images + 1, sizeof *b->image_prompts);
    b->text_of = calloc(prompts + 1, sizeof *b->text_of);
    b->ids = malloc((ids + 1) * sizeof *b->ids);
    b->tokens = malloc((texts + 1) * sizeof *b->tokens);
    b->t.count = calloc(prompts + 1, sizeof *b->t.count);
    b->t.first = calloc(prompts + 2, sizeof *b->t.first);
    b->t.side = s->side;
    if (!b->pixels || !b->owner || !b->classes || !b->image_prompts || !b->text_of || !b->ids || !b->tokens ||
        !b->t.count || !b->t.first)
        return false;
    memcpy(b->ids, s->ids, ids * sizeof *b->ids);
    memcpy(b->tokens, s->tokens, texts * sizeof *b->tokens);
    return true;
}

int scene_batch(batch *out, const sampler *s, uint64_t epoch, const int32_t *image, int count, samite_error *err)
{
    const scene_source *from = s->set->scenes;
    scene_options o = from->options;
    o.side = s->side;
    scene_packing p = {out, from, s->set->masks, 0, 0};
    int code = batch_new(out, s, count) && room_for_one(&p) ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a batch");
    for (int i = 0; i < count && !code; i++) {
        scene made;
        uint64_t seed = random_at(from->seed, RANDOM_SCENE, epoch, (uint64_t)image[i]);
        dice d = {random_mix(seed + 1), 0};
        code = scene_make(&made, &from->world, &o, seed, err);
        if (!code) {
            code = pack_scene(&p, &made, i, &d, err);
            scene_free(&made);
        }
    }
    if (code)
        batch_free(out);
    return code;
}

int scene_set(train_set *out, const scene_source *from, int chosen, bool masks, samite_error *err)
{
    const scene_world *w = &from->world;
    *out = (train_set){.path = text_copy(w->path), .pictures = text_copy(""), .masks = masks, .scenes = from,
                       .chosen = chosen, .prompt_count = w->prompts};
    out->images = calloc((size_t)chosen + 1, sizeof *out->images);
    out->order = malloc(sizeof *out->order * ((size_t)chosen + 1));
    out->prompts = malloc(sizeof *out->prompts * ((size_t)w->prompts + 1));
    if (!out->path || !out->pictures || !out->images || !out->order || !out->prompts) {
        train_set_free(out);
        return fail(err, SAMITE_RESOURCE, "out of memory");
    }
    for (int i = 0; i < chosen; i++) {
        out->images[i].file_name = "a scene";
        out->order[i] = i;
    }
    for (int i = 0; i < w->prompts; i++)
        out->prompts[i] = w->prompt[i];
    return 0;
}
