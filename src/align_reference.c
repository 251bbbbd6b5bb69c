/* align_reference.c - runs what a reference folder asked the original for, and compares every tensor on the way. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "base/text.h"
#include "io/mask.h"
#include "io/preprocess.h"
#include "model/tokenizer_reduced.h"

#define STACKED 2      /* hs and refs: one tensor per layer here, one with a leading layer axis there */

typedef struct listener {
    aligner *a;
    char     prefix[96];            /* of the reference's names: "text.0.", "case.text_box.", "" */
    struct stack { float *values; int64_t count, rows, cols, layers; } stack[STACKED];
} listener;

static const struct { const char *name; layout how; } layouts[] = {
    {"input", CHANNELS_FIRST}, {"trunk.out", CHANNELS_FIRST}, {"neck.", CHANNELS_FIRST}, {"neck_pos.", CHANNELS_FIRST},
    {"tracker_neck.", CHANNELS_FIRST},
};

static layout layout_of(const char *name)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (starts_with(name, layouts[i].name))
            return layouts[i].how;
    return AS_IS;
}

static void stack_add(listener *l, struct stack *s, const tensor *t)
{
    int64_t n = tensor_count(t);
    float *more = realloc(s->values, sizeof(float) * (size_t)(s->count + n));
    if (!more) {
        l->a->out_of_memory = true;
        return;
    }
    memcpy(more + s->count, t->data, sizeof(float) * (size_t)n);
    s->values = more;
    s->count += n;
    s->rows = t->dim[1];
    s->cols = t->dim[2];
    s->layers++;
}

static void compare_stacks(listener *l)
{
    static const char *const names[STACKED] = {"hs", "refs"};
    for (int i = 0; i < STACKED; i++) {
        struct stack *s = &l->stack[i];
        char name[160];
        snprintf(name, sizeof name, "%s%s", l->prefix, names[i]);
        if (s->layers)
            align_tensor(l->a, name, s->values, 3, (int64_t[]){s->layers, s->rows, s->cols}, AS_IS);
        free(s->values);
        *s = (struct stack){0};
    }
}

static void listen(void *user, const char *name, const tensor *t)
{
    listener *l = user;
    if (!t->data)
        return;
    if (starts_with(name, "hs.") || starts_with(name, "refs.")) {
        stack_add(l, &l->stack[*name == 'r'], t);
        return;
    }
    char full[192];
    snprintf(full, sizeof full, "%s%s", l->prefix, starts_with(name, "text.") ? name + 5 : name);
    align_tensor(l->a, full, t->data, t->axes, t->dim, layout_of(name));
}

/* ---- text ---- */

static void compare_tokens(aligner *a, int number, const int32_t *ids, int context)
{
    float tokens[256], mask[256];
    char name[64];
    for (int i = 0; i < context; i++) {
        tokens[i] = (float)ids[i];
        mask[i] = ids[i] == 0;
    }
    snprintf(name, sizeof name, "text.%d.tokens", number);
    align_tensor(a, name, tokens, 2, (int64_t[]){1, context}, AS_IS);
    snprintf(name, sizeof name, "text.%d.mask", number);
    align_tensor(a, name, mask, 2, (int64_t[]){1, context}, AS_IS);
}

/* All positions, padding included, as the original computes them. */
static int run_text(listener *l, samite_image *im, int number, const char *text, samite_error *err)
{
    const sam3 *net = im->model->n->net;
    int32_t ids[256];
    bool cut;
    int code = image_prepare(im, PARTS_TEXT, err);
    if (code)
        return code;
    tokenize_reduced(ids, &net->c, text, strlen(text), &cut, NULL);
    compare_tokens(l->a, number, ids, net->c.context);
    snprintf(l->prefix, sizeof l->prefix, "text.%d.", number);
    run_point before = run_save(im->r);
    text_forward(im->r, &net->text, run_indices(im->r, ids, 2, (int64_t[]){1, net->c.context}));
    code = run_status(im->r, err);
    run_restore(im->r, before);
    return code;
}

/* ---- grounding ---- */

/* What the official processor returns for all queries: boxes and scores in pixels of the picture. */
static void compare_final(listener *l, const samite_image *im, const decoder_output *found)
{
    int64_t n = found->logits->dim[1];
    float *boxes = malloc(sizeof(float) * 5 * (size_t)n), *scores = boxes + 4 * n, w = (float)im->width,
          h = (float)im->height;
    if (!boxes) {
        l->a->out_of_memory = true;
        return;
    }
    float presence = 1.0f / (1.0f + expf(-found->presence->data[0]));
    for (int64_t i = 0; i < n; i++) {
        const float *b = found->boxes->data + 4 * i;
        memcpy(boxes + 4 * i, (float[]){(b[0] - 0.5f * b[2]) * w, (b[1] - 0.5f * b[3]) * h, (b[0] + 0.5f * b[2]) * w,
                                        (b[1] + 0.5f * b[3]) * h}, 4 * sizeof(float));
        scores[i] = presence / (1.0f + expf(-found->logits->data[i]));
    }
    char name[160];
    snprintf(name, sizeof name, "%sfinal_boxes", l->prefix);
    align_tensor(l->a, name, boxes, 2, (int64_t[]){n, 4}, AS_IS);
    snprintf(name, sizeof name, "%sfinal_scores", l->prefix);
    align_tensor(l->a, name, scores, 1, &n, AS_IS);
    free(boxes);
}

#define FINAL_MASKS 4      /* the reference keeps the first four enlarged masks */

static int compare_final_masks(listener *l, const samite_image *im, const tensor *masks, samite_error *err)
{
    int side = (int)im->encoded.level[0]->dim[1], code = 0;
    int64_t n = masks->dim[1] < FINAL_MASKS ? masks->dim[1] : FINAL_MASKS, area = (int64_t)im->width * im->height;
    float *all = malloc(sizeof(float) * (size_t)(n * area));
    if (!all)
        return fail(err, SAMITE_RESOURCE, "not enough memory to compare %d masks", FINAL_MASKS);
    for (int64_t i = 0; i < n && !code; i++)
        code = mask_resize_bilinear(all + i * area, im->width, im->height, masks->data + i * side * side, side, side, err);
    for (int64_t i = 0; i < n * area; i++)
        all[i] = 1.0f / (1.0f + expf(-all[i]));
    char name[160];
    snprintf(name, sizeof name, "%sfinal_mask_logits", l->prefix);
    if (!code)
        align_tensor(l->a, name, all, 3, (int64_t[]){n, im->height, im->width}, AS_IS);
    free(all);
    return code;
}

static int ground_all(listener *l, samite_image *im, tensor *said, const examples *x, samite_error *err)
{
    const sam3 *net = im->model->n->net;
    grounded g;
    sam3_ground(im->r, net, &im->encoded, said, NULL, x, &g);
    int code = run_status(im->r, err);
    if (code)
        return code;
    compare_final(l, im, &g.found);
    if (!im->model->n->available[PART_MASK_HEAD])
        return 0;
    if ((code = image_prepare(im, PARTS_MASKS, err)))
        return code;
    int32_t query[4096];
    int count = (int)g.found.logits->dim[1];
    for (int i = 0; i < count; i++)
        query[i] = i;
    tensor *masks = sam3_masks(im->r, net, &im->encoded, &g, query, count);
    code = run_status(im->r, err);
    return code ? code : compare_final_masks(l, im, masks, err);
}

#define MAX_EXAMPLES 64

/* {"text": .., "boxes": [[cx, cy, w, h, positive], ..]} */
static int run_case(listener *l, samite_image *im, const char *title, const json_t *o, samite_error *err)
{
    const json_t *boxes = json_object_get(o, "boxes");
    const char *text = json_string_value(json_object_get(o, "text"));
    float box[4 * MAX_EXAMPLES];
    int positive[MAX_EXAMPLES], n = (int)json_array_size(boxes), tokens;
    if (n > MAX_EXAMPLES)
        return fail(err, SAMITE_INPUT, "case %s has %d boxes, at most %d work", title, n, MAX_EXAMPLES);
    for (int i = 0; i < n; i++) {
        const json_t *b = json_array_get(boxes, (size_t)i);
        for (int k = 0; k < 4; k++)
            box[4 * i + k] = (float)json_number_value(json_array_get(b, (size_t)k));
        positive[i] = json_number_value(json_array_get(b, 4)) != 0;
    }
    examples x = {.boxes = box, .box_positive = positive, .box_count = n};
    snprintf(l->prefix, sizeof l->prefix, "unnamed.");
    run_point before = run_save(im->r);
    tensor *said;
    bool cut;
    int code = image_prepare(im, PARTS_GROUND, err);
    if (!code)
        code = image_words(im, text ? text : "visual", &said, &tokens, &cut, err);
    snprintf(l->prefix, sizeof l->prefix, "case.%.80s.", title);
    if (!code)
        code = ground_all(l, im, said, &x, err);
    compare_stacks(l);
    run_restore(im->r, before);
    return code;
}

/* ---- the folder ---- */

static int read_picture(samite_image *im, aligner *a, samite_error *err)
{
    char *path = path_join(a->o->reference, "scene.png");
    pixels p;
    image_options o = IMAGE_OPTIONS_INIT;
    int code = path ? image_read(&p, path, &o, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
    free(path);
    if (code)
        return code;
    im->width = p.width;
    im->height = p.height;
    a->side = p.width > p.height ? p.width : p.height;
    code = preprocess(im->input, &p, im->model->n->net->c.image, err);
    pixels_free(&p);
    return code;
}

static int encode(samite_image *im, bool tracker, samite_error *err)
{
    int code = image_encode(im, tracker, err);
    if (code || !tracker || (code = image_prepare(im, 1u << PART_TRACKER_NECK, err)))
        return code;
    tensor *level[NECK_LEVELS];
    run_point before = run_save(im->r);
    sam3_tracker_levels(im->r, im->model->n->net, &im->encoded, level);
    code = run_status(im->r, err);
    run_restore(im->r, before);
    return code;
}

static int run_all(listener *l, samite_image *im, const json_t *asked, samite_error *err)
{
    const json_t *prompts = json_object_get(asked, "prompts"), *o;
    json_t *cases = json_object_get(asked, "cases");
    const char *title;
    size_t i;
    int code = encode(im, im->model->n->available[PART_TRACKER_NECK], err);
    json_array_foreach(prompts, i, o)
        if (!code)
            code = run_text(l, im, (int)i, json_string_value(o) ? json_string_value(o) : "", err);
    json_object_foreach(cases, title, o)
        if (!code)
            code = run_case(l, im, title, o, err);
    run_set_observer(im->r, NULL, NULL);
    if (!code && native_has(im->model->n, PARTS_CLICK))
        code = align_clicks(l->a, im, asked, err);
    if (!code && native_has(im->model->n, PARTS_TRACK))
        code = align_track(l->a, im, asked, err);
    return code;
}

int align_reference(aligner *a, samite_model *m, samite_error *err)
{
    char *path = path_join(a->o->reference, "prompts.json");
    json_error_t where;
    json_t *asked = path ? json_load_file(path, 0, &where) : NULL;
    if (!asked) {
        int code = fail(err, SAMITE_INPUT, "%s: %s (line %d)", path ? path : "prompts.json", where.text, where.line);
        free(path);
        return code;
    }
    free(path);
    listener l = {.a = a};
    samite_image *im;
    int code = image_new(&im, m, err);
    if (!code) {
        run_set_observer(im->r, listen, &l);
        if (!(code = read_picture(im, a, err)))
            code = run_all(&l, im, asked, err);
        samite_image_free(im);
    }
    json_decref(asked);
    if (!native_has(m->n, PARTS_CLICK))
        align_skip(a, "click.");
    if (!native_has(m->n, PARTS_TRACK))
        align_skip(a, "track.");
    if (!m->n->available[PART_TRACKER_NECK])
        align_skip(a, "tracker_neck.");
    return code;
}
