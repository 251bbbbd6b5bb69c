/* align_train.c - compares training with the original's numbers: reading the reference, and the loss-only variant. */
#include "align_train.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "formats/safetensors.h"

/* ---- reading ---- */

static const weight *find_named(train_reference *t, const char *name)
{
    for (size_t i = 0; i < t->list.count; i++) {
        if (strcmp(t->list.items[i].name, name) != 0)
            continue;
        t->used[i] = true;
        return &t->list.items[i];
    }
    return NULL;
}

const weight *train_find(train_reference *t, const char *format, ...)
{
    char name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return find_named(t, name);
}

float *train_values(train_reference *t, int64_t *count, const char *format, ...)
{
    char name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    const weight *w = find_named(t, name);
    if (!w)
        return NULL;
    float *values = malloc(sizeof(float) * (size_t)(weight_count(w) + 1));
    if (values)
        weight_to_f32(values, w);
    if (count)
        *count = weight_count(w);
    t->a->out_of_memory |= !values;
    return values;
}

/* ---- rows ---- */

static void row(train_reference *t, const char *name, double difference, double relative, bool within, const char *note)
{
    char full[256];
    snprintf(full, sizeof full, "%s.%s", t->variant, name);
    align_row(t->a, &(samite_compared){.name = full, .max_difference = difference, .relative = relative, .cosine = 1,
                                       .within = within, .note = note});
}

void train_number(train_reference *t, const char *name, double ours, double theirs, double bar, double floor)
{
    double d = fabs(ours - theirs), relative = d / fmax(fabs(theirs), floor);
    row(t, name, d, relative, relative <= bar, "");
}

void train_array(train_reference *t, const char *name, const float *ours, const float *theirs, int64_t n, double bar,
                 double scale)
{
    double most = scale, difference = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)ours[i] - theirs[i]);
        difference = d > difference || isnan(d) ? d : difference;
        if (scale == 0 && fabs((double)theirs[i]) > most)
            most = fabs((double)theirs[i]);
    }
    double relative = most > 0 ? difference / most : difference;
    row(t, name, difference, relative, relative <= bar, "");
}

void train_matches(train_reference *t, const char *name, const match *ours, int count, const targets *of)
{
    const weight *w = train_find(t, "%s", name);
    if (!w)
        return;
    int64_t n = w->dim[1];
    float *rows = malloc(sizeof(float) * (size_t)(weight_count(w) + 1));
    int wrong = 0;
    if (!rows || n != count) {
        row(t, name, fabs((double)n - count), 1, false, "another number of matches");
        free(rows);
        return;
    }
    weight_to_f32(rows, w);
    for (int i = 0; i < count; i++) {
        wrong += rows[i] != (float)ours[i].prompt || rows[n + i] != (float)ours[i].query;
        if (w->dim[0] > 2)
            wrong += rows[2 * n + i] != (float)ours[i].object;
    }
    row(t, name, wrong, wrong, !wrong, wrong ? "other matches" : "");
    free(rows);
    (void)of;
}

static bool is_mask_loss(const char *name)
{
    return starts_with(name, "loss_mask") || starts_with(name, "loss_dice");
}

void train_losses(train_reference *t, const char *title, const step_losses *l, const json_t *theirs, bool masks,
                  bool no_masks)
{
    char full[128];
    named_loss *ours = malloc(sizeof *ours * LOSS_NAMES);
    int n = ours ? losses_by_name(ours, l, &official_weights, masks) : 0;
    for (int i = 0; i < n; i++) {
        const json_t *v = json_object_get(theirs, ours[i].name);
        if (!json_is_number(v) || (no_masks && is_mask_loss(ours[i].name)))
            continue;
        snprintf(full, sizeof full, "%s.%s", title, ours[i].name);
        train_number(t, full, ours[i].value, json_number_value(v), LOSS_BAR, 1e-2);
    }
    t->a->out_of_memory |= !ours;
    free(ours);
}

/* ---- targets ---- */

void train_exact(train_reference *t, const char *name, const float *ours, int64_t n)
{
    int64_t have = 0;
    float *theirs = train_values(t, &have, "%s", name);
    if (theirs && have == n)
        train_array(t, name, ours, theirs, n, 0, 1);
    else if (theirs)
        train_number(t, name, (double)n, (double)have, 0, 1);
    free(theirs);
}

/* The objects' boxes in the two other forms that the original hands over. */
void train_boxes(train_reference *t, const targets *of, const char *prefix)
{
    char name[48];
    int n = targets_objects(of), most = 0;
    corners *c = malloc(sizeof *c * (size_t)(n + 1));
    for (int i = 0; i < of->prompts; i++)
        most = of->count[i] > most ? of->count[i] : most;
    float *padded = calloc((size_t)of->prompts * (size_t)most * 4 + 1, sizeof *padded);
    for (int i = 0; c && i < n; i++)
        c[i] = box_corners_of(of->boxes + 4 * i);
    for (int p = 0; padded && p < of->prompts; p++)
        memcpy(padded + (int64_t)p * most * 4, of->boxes + (int64_t)of->first[p] * 4,
               sizeof *padded * 4 * (size_t)of->count[p]);
    snprintf(name, sizeof name, "%starget.boxes_xyxy", prefix);
    if (c)
        train_exact(t, name, &c->x0, 4 * n);
    snprintf(name, sizeof name, "%starget.boxes_padded", prefix);
    if (padded)
        train_exact(t, name, padded, (int64_t)of->prompts * most * 4);
    t->a->out_of_memory |= !c || !padded;
    free(c);
    free(padded);
}

static uint8_t *bytes_of(train_reference *t, int64_t *count, const char *tag, const char *name)
{
    const weight *w = train_find(t, "%starget.%s", tag, name);
    uint8_t *out = w && w->type == DT_U8 ? malloc((size_t)weight_count(w) + 1) : NULL;
    if (out)
        weight_copy(out, w);
    *count = out ? weight_count(w) : 0;
    return out;
}

bool train_targets(train_reference *t, targets *out, const char *tag)
{
    int64_t prompts = 0, bytes, pixels;
    float *count = train_values(t, &prompts, "%starget.num_boxes", tag);
    *out = (targets){.prompts = (int)prompts};
    out->boxes = train_values(t, NULL, "%starget.boxes", tag);
    out->count = calloc((size_t)prompts + 1, sizeof(int));
    out->first = calloc((size_t)prompts + 1, sizeof(int));
    if (!count || !out->boxes || !out->count || !out->first) {
        free(count);
        return false;
    }
    for (int i = 0; i < out->prompts; i++) {
        out->count[i] = (int)count[i];
        out->first[i + 1] = out->first[i] + out->count[i];
    }
    free(count);
    out->mask_valid = bytes_of(t, &bytes, tag, "is_valid_mask");
    out->masks = bytes_of(t, &pixels, tag, "masks");
    const weight *w = train_find(t, "%starget.masks", tag);
    out->side = w && w->axes == 3 ? (int)w->dim[1] : 0;
    if (out->masks && pixels != (int64_t)targets_objects(out) * out->side * out->side)
        return false;
    return true;
}

/* ---- variant loss ---- */

typedef struct half_of {
    answers      a;
    float       *logits, *boxes, *presence, *masks;
    answer_grads g;
    match_list   m;
    loss_terms   terms;
    int          side;
} half_of;

static void half_free(half_of *h)
{
    free(h->logits), free(h->boxes), free(h->presence), free(h->masks);
    free(h->g.logits), free(h->g.boxes), free(h->g.corners), free(h->g.presence);
    match_list_free(&h->m);
}

static bool read_half(train_reference *t, half_of *h, const char *title, const char *half, const char *layer,
                      int prompts)
{
    int64_t n = 0;
    *h = (half_of){0};
    h->logits = train_values(t, &n, "%s.out.pred_logits%s%s", title, half, layer);
    h->boxes = train_values(t, NULL, "%s.out.pred_boxes%s%s", title, half, layer);
    h->presence = *half ? NULL : train_values(t, NULL, "%s.out.presence_logit_dec%s", title, layer);
    h->g = (answer_grads){calloc((size_t)n + 1, sizeof(float)), calloc((size_t)n * 4 + 1, sizeof(float)),
                          calloc((size_t)n * 4 + 1, sizeof(float)), calloc((size_t)prompts + 1, sizeof(float))};
    if (!h->logits || !h->boxes || !h->g.logits || !h->g.boxes || !h->g.corners || !h->g.presence)
        return false;
    h->a = (answers){(int)(n / (prompts ? prompts : 1)), h->logits, h->boxes};
    return true;
}

static void compare_gradient(train_reference *t, const char *title, const char *name, const float *ours, int64_t n)
{
    char full[128];
    int64_t have = 0;
    snprintf(full, sizeof full, "%s.dout.%s", title, name);
    float *theirs = train_values(t, &have, "%s", full);
    if (theirs && have == n)
        train_array(t, full, ours, theirs, n, LOSS_BAR, 0);
    free(theirs);
}

static void compare_half(train_reference *t, const char *title, half_of *h, const char *half, const char *layer,
                         const targets *targets_of)
{
    char name[96];
    int64_t n = (int64_t)targets_of->prompts * h->a.queries;
    snprintf(name, sizeof name, "pred_logits%s%s", half, layer);
    compare_gradient(t, title, name, h->g.logits, n);
    corners_to_boxes(h->g.boxes, h->g.corners, n);
    snprintf(name, sizeof name, "pred_boxes%s%s", half, layer);
    compare_gradient(t, title, name, h->g.boxes, 4 * n);
    if (!*half) {
        snprintf(name, sizeof name, "presence_logit_dec%s", layer);
        compare_gradient(t, title, name, h->g.presence, targets_of->prompts);
    }
    snprintf(name, sizeof name, "%s.match.%s%s", title, *half ? "o2m" : "o2o", layer);
    train_matches(t, name, h->m.item, h->m.count, targets_of);
}

/* Mask losses of one half of the last layer, on given masks of all queries. */
static void half_masks(train_reference *t, const char *title, half_of *h, const char *half, const targets *of,
                       const loss_norms *norms, loss_terms *sum)
{
    int64_t n = 0, pixels = (int64_t)of->side * of->side;
    h->masks = train_values(t, &n, "%s.out.pred_masks%s", title, half);
    int side = h->masks ? (int)lround(sqrt((double)n / of->prompts / h->a.queries)) : 0;
    float *grad = calloc((size_t)n + 1, sizeof(float)), *room = malloc(sizeof(float) * 2 * (size_t)(pixels + 1));
    double weight = *half ? official_weights.one_to_many : 1, mask = 0, dice = 0;
    loss_norms own = *norms;
    own.scale *= weight;
    for (int i = 0; h->masks && grad && room && i < h->m.count; i++) {
        const match *m = &h->m.item[i];
        if (!of->mask_valid[m->object])
            continue;
        int64_t at = ((int64_t)m->prompt * h->a.queries + m->query) * side * side;
        loss_mask(&mask, &dice, grad + at, h->masks + at, side, of->masks + m->object * pixels, of->side, &own,
                  &official_weights, room);
    }
    sum->mask = weight * mask;
    sum->dice = weight * dice;
    char name[64];
    snprintf(name, sizeof name, "pred_masks%s", half);
    if (grad)
        compare_gradient(t, title, name, grad, n);
    free(grad);
    free(room);
}

static void semantic(train_reference *t, const char *title, const targets *of, double scale, step_losses *l)
{
    int64_t n = 0, pixels = (int64_t)of->side * of->side;
    float *map = train_values(t, &n, "%s.out.semantic_seg", title), *grad = calloc((size_t)n + 1, sizeof(float));
    float *room = malloc(sizeof(float) * 2 * (size_t)(pixels + 1));
    uint8_t *all = calloc((size_t)pixels * (size_t)of->prompts + 1, 1);
    int side = (int)lround(sqrt((double)n / of->prompts));
    double present = 0;
    for (int p = 0; all && p < of->prompts; p++) {
        bool any = false;
        for (int64_t k = of->first[p] * pixels; k < of->first[p + 1] * pixels; k++) {
            all[p * pixels + k % pixels] |= of->masks[k];
            any |= of->masks[k];
        }
        present += any;
    }
    l->present = present;
    for (int p = 0; map && grad && room && all && p < of->prompts; p++)
        loss_semantic(&l->semantic, &l->semantic_dice, &l->semantic_iou, grad + (int64_t)p * side * side, map + (int64_t)p * side * side,
                      side, all + p * pixels, of->side, present, scale, &official_weights, room);
    if (grad)
        compare_gradient(t, title, "semantic_seg", grad, n);
    free(map), free(grad), free(room), free(all);
}

static void add_half(loss_terms *out, const loss_terms *x, double weight)
{
    *out = *x;
    out->bbox *= weight;
    out->giou *= weight;
    out->ce *= weight;
}

/* The mask loss at sampled points is in no configuration, and not offered. */
static bool sampled(const json_t *info)
{
    return json_object_size(json_object_get(info, "sampling")) > 0;
}

/* Theirs stand in, so that the sum of all can be compared. */
static void take_mask_losses(step_losses *l, const json_t *theirs)
{
    l->one[1].mask = json_number_value(json_object_get(theirs, "loss_mask"));
    l->one[1].dice = json_number_value(json_object_get(theirs, "loss_dice"));
    l->many[1].mask = json_number_value(json_object_get(theirs, "loss_mask_o2m"));
    l->many[1].dice = json_number_value(json_object_get(theirs, "loss_dice_o2m"));
}

static int run_case(train_reference *t, const char *title, const json_t *info, samite_error *err)
{
    static const char *const layers[2] = {".aux.0", ""}, *const halves[2] = {"", "_o2m"};
    batch b = {0};
    step_losses l = {.layers = 2};
    char tag[64];
    int code = 0;
    snprintf(tag, sizeof tag, "%s.", title);
    if (!train_targets(t, &b.t, tag)) {
        batch_free(&b);
        return fail(err, SAMITE_INPUT, "the case %s lacks its targets", title);
    }
    train_boxes(t, &b.t, tag);
    loss_norms norms = {fmax(1, targets_objects(&b.t)), sqrt((double)b.t.prompts), b.t.prompts};
    for (int i = 0; i < 2 && !code; i++) {
        for (int k = 0; k < 2 && !code; k++) {
            half_of h;
            if (!read_half(t, &h, title, halves[k], layers[i], b.t.prompts))
                code = fail(err, SAMITE_INPUT, "the case %s lacks its answers", title);
            else
                code = k && i ? match_one_to_many(&h.m, &h.a, &b.t, err) : match_one_to_one(&h.m, &h.a, &b.t, err);
            if (!code) {
                loss_answers(&h.terms, &h.g, &h.a, h.presence, &b.t, &h.m, &norms, &official_weights);
                loss_terms *sum = k ? &l.many[i] : &l.one[i];
                add_half(sum, &h.terms, k ? official_weights.one_to_many : 1);
                if (i && b.t.side && !sampled(info))
                    half_masks(t, title, &h, halves[k], &b.t, &norms, sum);
                compare_half(t, title, &h, halves[k], layers[i], &b.t);
            }
            half_free(&h);
        }
    }
    if (!code && b.t.side)
        semantic(t, title, &b.t, norms.scale, &l);
    if (sampled(info))
        take_mask_losses(&l, json_object_get(info, "losses"));
    l.core = core_loss(&l, &official_weights, norms.scale);
    if (!code)
        train_losses(t, title, &l, json_object_get(info, "losses"), b.t.side > 0, sampled(info));
    batch_free(&b);
    return code;
}

int align_train_losses(train_reference *t, samite_error *err)
{
    json_t *cases = json_object_get(t->info, "cases"), *info;
    const char *title;
    int code = 0;
    json_object_foreach(cases, title, info) {
        if (!code)
            code = run_case(t, title, info, err);
    }
    return code;
}

/* ---- the folder ---- */

static int open_reference(train_reference *t, file_map *map, char *path, samite_error *err)
{
    json_error_t where;
    int code = file_map_open(map, path, err);
    if (code || (code = safetensors_read(&t->list, map->data, map->size, path, err)))
        return code;
    memcpy(path + strlen(path) - strlen(".safetensors"), ".json", sizeof ".json");
    if (!(t->info = json_load_file(path, 0, &where)))
        return fail(err, SAMITE_INPUT, "%s: %s (line %d)", path, where.text, where.line);
    t->used = calloc(t->list.count + 1, sizeof *t->used);
    return t->used ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for the comparison");
}

static int run_variant(aligner *a, samite_model *m, const char *variant, samite_error *err)
{
    char name[64];
    train_reference t = {.a = a, .variant = variant};
    file_map map = {0};
    snprintf(name, sizeof name, "train_%s.safetensors", variant);
    char *path = path_join(a->o->reference, name);
    FILE *f = path ? fopen(path, "rb") : NULL;
    if (!f) {
        free(path);
        return 0;          /* not every folder holds every variant */
    }
    fclose(f);
    int code = open_reference(&t, &map, path, err);
    if (!code)
        code = strcmp(variant, "loss") == 0 ? align_train_losses(&t, err) : align_train_steps(&t, m, err);
    for (size_t i = 0; t.used && i < t.list.count; i++)
        a->summary->skipped += !t.used[i];
    json_decref(t.info);
    tensor_list_free(&t.list);
    free(t.used);
    file_map_close(&map);
    free(path);
    return code;
}

int align_train(aligner *a, samite_model *m, samite_error *err)
{
    static const char *const variants[] = {"loss", "det", "seg", "brisk"};
    int code = 0;
    for (int i = 0; i < 4 && !code; i++)
        code = run_variant(a, m, variants[i], err);
    return code;
}
