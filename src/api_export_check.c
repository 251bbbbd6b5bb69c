/* api_export_check.c - exported parts beside our own network: the same inputs, all outputs compared. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_export.h"
#include "base/text.h"
#include "model/tokenizer_reduced.h"
#include "runtime/engine.h"

#define MOST_VALUES      48
#define SCORE_DIFFERENCE 0.02     /* of scores, in whatever precision */

typedef struct checking {
    samite_model *m;
    const samite_export_options *o;
    check_request *q;
    engine       *ours, *theirs;
    engine_tensor kept[MOST_VALUES];   /* our outputs of earlier parts, the inputs of later ones */
    int           kept_count;
    int           pictures;            /* that the part at hand takes at once */
    samite_error *err;
} checking;

/* ---- pictures side by side ---- */

/* The axis that counts pictures or prompts; -1: the same for all. */
static int batch_axis(const char *name)
{
    static const char *const second[] = {"text_memory_resized", "pred_logits", "pred_boxes", "presence_logit_dec"};
    for (size_t i = 0; i < sizeof second / sizeof *second; i++)
        if (!strcmp(name, second[i]))
            return 1;
    return starts_with(name, "vision_pos_enc_") ? -1 : 0;
}

/* Bytes of what lies behind the axis for one picture, and how often that comes. */
static size_t stretch(const engine_tensor *t, int axis, int64_t *times)
{
    size_t bytes = dtype_size(t->type);
    *times = 1;
    for (int i = 0; i < t->axes; i++) {
        if (i < axis)
            *times *= t->dim[i];
        else if (i > axis)
            bytes *= (size_t)t->dim[i];
    }
    return bytes;
}

/* What belongs to picture `k`; borrowed where all is the same for every picture. */
static int take_picture(checking *c, const engine_tensor *all, int64_t k, engine_tensor *one)
{
    int axis = batch_axis(all->name);
    *one = *all;
    one->owned = false;
    if (axis < 0 || all->dim[axis] < 2)
        return 0;
    int64_t dim[ENGINE_AXES], times;
    memcpy(dim, all->dim, sizeof dim);
    dim[axis] = 1;
    size_t bytes = stretch(all, axis, &times);
    *one = (engine_tensor){.name = all->name};
    int code = engine_make(one, all->type, all->axes, dim, c->err);
    for (int64_t i = 0; !code && i < times; i++)
        memcpy((char *)one->data + (size_t)i * bytes,
               (const char *)all->data + (size_t)(i * all->dim[axis] + k) * bytes, bytes);
    return code;
}

/* Puts what belongs to picture `k` in its place; the first one makes room for all. */
static int put_picture(checking *c, engine_tensor *all, int64_t k, const engine_tensor *one)
{
    int axis = batch_axis(one->name), code = 0;
    int64_t dim[ENGINE_AXES], times;
    memcpy(dim, one->dim, sizeof dim);
    if (axis >= 0)
        dim[axis] = c->pictures;
    if (!all->data)
        code = engine_make(all, one->type, one->axes, dim, c->err);
    size_t bytes = stretch(one, axis, &times), n = axis < 0 ? 1 : (size_t)c->pictures;
    for (int64_t i = 0; !code && axis >= 0 && i < times; i++)
        memcpy((char *)all->data + ((size_t)i * n + (size_t)k) * bytes, (const char *)one->data + (size_t)i * bytes,
               bytes);
    if (!code && axis < 0)
        memcpy(all->data, one->data, engine_bytes(one));
    return code;
}

/* ---- comparing ---- */

static void tell(checking *c, const samite_compared *row)
{
    c->q->compared++;
    c->q->outside += !row->within;
    if (c->o->each)
        c->o->each(c->o->user, row);
}

static double score_of(float logit, float presence)
{
    return 1 / (1 + exp(-(double)logit)) / (1 + exp(-(double)presence));
}

static void compare(checking *c, const char *part, const engine_tensor *a, const engine_tensor *b)
{
    const float *x = a->data, *y = b->data;
    double most = 0, largest = 0, ab = 0, aa = 0, bb = 0;
    char name[128];
    bool same = a->type == b->type && engine_count(a) == engine_count(b) && a->axes == b->axes;
    for (int i = 0; i < a->axes && same; i++)
        same = a->dim[i] == b->dim[i];
    for (int64_t i = 0; same && i < engine_count(a); i++) {
        double d = fabs((double)x[i] - (double)y[i]);
        most = d > most || isnan(d) ? d : most;
        largest = fmax(largest, fabs((double)x[i]));
        ab += (double)x[i] * y[i];
        aa += (double)x[i] * x[i];
        bb += (double)y[i] * y[i];
    }
    double cosine = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : most == 0;
    snprintf(name, sizeof name, "%s %s", part, a->name);
    samite_compared row = {.name = name, .max_difference = most, .relative = most / fmax(largest, 1), .cosine = cosine,
                           .note = same ? "" : "another type or shape"};
    row.within = same && row.relative <= c->q->most && cosine >= c->q->least;
    tell(c, &row);
}

/* Scores as people see them: the last layer's, with presence. Half the numbers of f16 still mean the same scores. */
static void compare_scores(checking *c, const engine_tensor *ours, const engine_tensor *theirs)
{
    const float *x = ours[0].data, *y = theirs[0].data, *px = ours[3].data, *py = theirs[3].data;
    int64_t layers = ours[3].dim[0], n = engine_count(&ours[0]) / layers, from = (layers - 1) * n;
    double most = 0;
    if (engine_count(&theirs[0]) != layers * n || engine_count(&theirs[3]) != layers)
        return;
    for (int64_t i = from; i < from + n; i++) {
        double a = score_of(x[i], px[layers - 1]), b = score_of(y[i], py[layers - 1]);
        most = fabs(a - b) > most || isnan(b) ? fabs(a - b) : most;
    }
    tell(c, &(samite_compared){.name = "scores", .max_difference = most, .relative = most, .cosine = 1, .note = "",
                               .within = most < SCORE_DIFFERENCE});
}

/* ---- inputs ---- */

static int picture(checking *c, engine_tensor *t)
{
    int64_t side = c->m->n->net->c.image, pixels = side * side;
    int code = engine_make(t, DT_F32, 4, (int64_t[]){c->pictures, 3, side, side}, c->err);
    float *p = t->data;
    uint32_t noise = 1;
    for (int64_t i = 0; !code && c->q->picture && i < 3 * pixels; i++)
        p[i] = c->q->picture[i % pixels * 3 + i / pixels];
    for (int64_t i = 0; !code && !c->q->picture && i < 3 * pixels * c->pictures; i++) {
        int64_t channel = i / pixels % 3, y = i / side % side, x = i % side, k = i / (3 * pixels);
        noise = noise * 1664525u + 1013904223u;
        p[i] = 0.6f * sinf((float)(x * (channel + 1 + k)) * 0.03f) * cosf((float)y * 0.05f) +
               0.3f * (float)(noise >> 8) / 16777216.0f;
    }
    return code;
}

static int words_of(checking *c, engine_tensor *t)
{
    static const char *const phrases[] = {"a brown dog", "red car", "the person on the left", "tree"};
    int n = c->o->prompt_length ? c->o->prompt_length : c->m->n->net->c.context;
    int32_t ids[256];
    bool cut;
    config reduced = c->m->n->net->c;
    reduced.context = n < 256 ? n : 256;
    int code = engine_make(t, DT_I64, 2, (int64_t[]){c->pictures, n}, c->err);
    for (int k = 0; !code && k < c->pictures; k++) {
        const char *said = c->q->said ? c->q->said : phrases[k % 4];
        int count = tokenize_reduced(ids, &reduced, said, strlen(said), &cut, NULL);
        for (int i = 0; i < n; i++)
            ((int64_t *)t->data)[k * n + i] = i < count ? ids[i] : 0;
    }
    return code;
}

/* Two boxes, one of each kind, and the rest not there; the last of several pictures has only the first. */
static int boxes_of(checking *c, engine_tensor *boxes, engine_tensor *labels)
{
    int64_t n = c->o->boxes, all = n * c->pictures;
    int code = engine_make(boxes, DT_F32, 3, (int64_t[]){c->pictures, n, 4}, c->err);
    if (!code)
        code = engine_make(labels, DT_I64, 2, (int64_t[]){c->pictures, n}, c->err);
    for (int64_t i = 0; !code && i < all; i++) {
        bool second = i % n % 2;
        const float box[] = {0.4f + 0.1f * second, 0.5f - 0.05f * (float)(i / n % 4), 0.3f, 0.2f + 0.2f * second};
        memcpy((float *)boxes->data + 4 * i, box, sizeof box);
        ((int64_t *)labels->data)[i] = i % n == 0 ? 1 : i % n == 1 && (i < n || i / n + 1 < c->pictures) ? 0 : -1;
    }
    return code;
}

/* A point, the corners of a box, and the rest missing; a mask that is half inside. */
static int click_of(checking *c, const char *name, engine_tensor *t)
{
    int64_t n = c->o->points > 0 ? c->o->points : 4, side = 4 * config_tokens(&c->m->n->net->c);
    float s = (float)c->m->n->net->c.image;
    const float xy[] = {0.2f * s, 0.3f * s, 0.7f * s, 0.8f * s, 0.5f * s, 0.4f * s};
    const int64_t kinds[] = {2, 3, 1};
    int code;
    if (!strcmp(name, "point_coords")) {
        if (!(code = engine_make(t, DT_F32, 3, (int64_t[]){1, n, 2}, c->err)))
            for (int64_t i = 0; i < 2 * n; i++)
                ((float *)t->data)[i] = i < 6 ? xy[i] : 0;
    } else if (!strcmp(name, "point_labels")) {
        if (!(code = engine_make(t, DT_I64, 2, (int64_t[]){1, n}, c->err)))
            for (int64_t i = 0; i < n; i++)
                ((int64_t *)t->data)[i] = i < 3 ? kinds[i] : -1;
    } else if (!strcmp(name, "mask_input")) {
        if (!(code = engine_make(t, DT_F32, 4, (int64_t[]){1, 1, side, side}, c->err)))
            for (int64_t i = 0; i < side * side; i++)
                ((float *)t->data)[i] = i % side < side / 2 ? 6.0f : -6.0f;
    } else if (!(code = engine_make(t, DT_F32, 1, (int64_t[]){1}, c->err))) {
        ((float *)t->data)[0] = 1;
    }
    return code;
}

/* Made-up numbers in -1..1 that do not repeat; `seed` tells them apart. */
static int noise(checking *c, engine_tensor *t, int axes, const int64_t *dim, uint32_t seed)
{
    int code = engine_make(t, DT_F32, axes, dim, c->err);
    for (int64_t i = 0; !code && i < engine_count(t); i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)t->data)[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    return code;
}

/* What is remembered: some of the places are used, a prompted frame and some before this one. */
static int memory_of(checking *c, const char *name, engine_tensor *t)
{
    const config *k = &c->m->n->net->c;
    int64_t maps = EXPORT_MAPS, pointers = EXPORT_POINTERS_KEPT, side = config_tokens(k), one = 1, big = 16 * side;
    int code;
    if (!strcmp(name, "memory_maps"))
        return noise(c, t, 3, (int64_t[]){1, maps * side * side, k->mem_dim}, 5);
    if (!strcmp(name, "memory_pointers"))
        return noise(c, t, 3, (int64_t[]){1, pointers, k->d}, 6);
    if (!strcmp(name, "memory_ages")) {
        if (!(code = engine_make(t, DT_I64, 1, &maps, c->err)))
            for (int64_t i = 0; i < maps; i++)
                ((int64_t *)t->data)[i] = i == 0 ? 6 : i < 4 ? 4 - i : -1;
    } else if (!strcmp(name, "pointer_distances")) {
        if (!(code = engine_make(t, DT_F32, 1, &pointers, c->err)))
            for (int64_t i = 0; i < pointers; i++)
                ((float *)t->data)[i] = i < 5 ? (float)i / 16.0f : -1;
    } else if (!strcmp(name, "object_hidden")) {
        if (!(code = engine_make(t, DT_F32, 1, &one, c->err)))
            ((float *)t->data)[0] = 1;
    } else if (!(code = engine_make(t, DT_F32, 4, (int64_t[]){1, 1, big, big}, c->err))) {
        for (int64_t i = 0; i < big * big; i++)
            ((float *)t->data)[i] = i % big < big / 3 && i / big > big / 4 ? 10.0f : -10.0f;
    }
    return code;
}

/* Takes an output of an earlier part, of the first picture where this part takes one; the mask has another name in the
 * head. */
static int earlier(checking *c, const char *name, engine_tensor *t)
{
    bool mask = !strcmp(name, "text_attention_mask_float");
    engine_tensor *k = engine_find(c->kept, c->kept_count, mask ? "text_attention_mask" : name);
    if (!k)
        return fail(c->err, SAMITE_USAGE, "the check of a part needs those that make its inputs, too: %s", name);
    int code = 0;
    if (c->pictures == 1) {
        code = take_picture(c, k, 0, t);
    } else {
        *t = *k;
        t->owned = false;
    }
    t->name = name;
    return code;
}

static int make_inputs(checking *c, const part_io *io, engine_tensor *in)
{
    int code = 0;
    for (int i = 0; io->in[i] && !code; i++) {
        in[i] = (engine_tensor){.name = io->in[i]};
        if (!strcmp(io->in[i], "image"))
            code = picture(c, &in[i]);
        else if (!strcmp(io->in[i], "token_ids"))
            code = words_of(c, &in[i]);
        else if (starts_with(io->in[i], "memory_") || starts_with(io->in[i], "pointer_d") || strstr(io->in[i], "_hidden") ||
                 !strcmp(io->in[i], "mask"))
            code = memory_of(c, io->in[i], &in[i]);
        else if (strstr(io->in[i], "point_") || strstr(io->in[i], "mask_input"))
            code = click_of(c, io->in[i], &in[i]);
        else
            code = earlier(c, io->in[i], &in[i]);
    }
    return code;
}

/* ---- parts ---- */

static int count_names(const char *const *names)
{
    int n = 0;
    while (names[n])
        n++;
    return n;
}

/* The trunk's map is the image encoder's last output, if it is there. */
static int outputs_of(const checking *c, const part_io *io)
{
    return count_names(io->out) - (io == export_io(EXPORT_IMAGE) && !export_trunk(c->o));
}

static void name_outputs(engine_tensor *out, const part_io *io, int outputs)
{
    for (int i = 0; i < outputs; i++)
        out[i] = (engine_tensor){.name = io->out[i]};
}

static int compute_theirs(checking *c, const char *path, const engine_tensor *in, int inputs, engine_tensor *out,
                          const part_io *io)
{
    engine_part *p;
    int outputs = outputs_of(c, io);
    name_outputs(out, io, outputs);
    int code = engine_load(&p, c->theirs, path, c->err);
    if (!code) {
        code = engine_run(p, in, inputs, out, outputs, c->err);
        engine_unload(p);
    }
    return code;
}

/* Our answer about one picture, put beside those about the others. */
static int compute_picture(checking *c, engine_part *p, int64_t k, const engine_tensor *in, int inputs,
                           engine_tensor *out, const part_io *io)
{
    engine_tensor own[MOST_VALUES] = {{0}}, one[MOST_VALUES] = {{0}};
    int outputs = outputs_of(c, io), code = 0;
    name_outputs(one, io, outputs);
    for (int i = 0; i < inputs && !code; i++)
        code = take_picture(c, &in[i], k, &own[i]);
    if (!code)
        code = engine_run(p, own, inputs, one, outputs, c->err);
    for (int i = 0; i < outputs && !code; i++)
        code = put_picture(c, &out[i], k, &one[i]);
    for (int i = 0; i < inputs; i++)
        engine_tensor_free(&own[i]);
    for (int i = 0; i < outputs; i++)
        engine_tensor_free(&one[i]);
    return code;
}

/* Our network takes the pictures one by one. */
static int compute_ours(checking *c, const engine_tensor *in, int inputs, engine_tensor *out, const part_io *io)
{
    engine_part *p;
    int outputs = outputs_of(c, io);
    name_outputs(out, io, outputs);
    int code = engine_load(&p, c->ours, io->name, c->err);
    if (code)
        return code;
    if (c->pictures == 1)
        code = engine_run(p, in, inputs, out, outputs, c->err);
    for (int64_t k = 0; c->pictures > 1 && k < c->pictures && !code; k++)
        code = compute_picture(c, p, k, in, inputs, out, io);
    engine_unload(p);
    return code;
}

static void keep(checking *c, engine_tensor *t)
{
    if (c->kept_count < MOST_VALUES)
        c->kept[c->kept_count++] = *t;
    else
        engine_tensor_free(t);
}

static int check_part(checking *c, const part_io *io, const char *path)
{
    bool boxes = c->o->boxes && io == export_io(EXPORT_HEAD);
    engine_tensor in[MOST_VALUES] = {{0}}, ours[MOST_VALUES] = {{0}}, theirs[MOST_VALUES] = {{0}};
    int inputs = count_names(io->in), outputs = outputs_of(c, io);
    int code = make_inputs(c, io, in);
    if (!code && boxes) {
        in[inputs] = (engine_tensor){.name = "boxes"};
        in[inputs + 1] = (engine_tensor){.name = "box_labels"};
        code = boxes_of(c, &in[inputs], &in[inputs + 1]);
        inputs += 2;
    }
    if (!code)
        code = compute_theirs(c, path, in, inputs, theirs, io);
    if (!code)
        code = compute_ours(c, in, inputs, ours, io);
    for (int i = 0; i < outputs; i++) {
        if (!code)
            compare(c, io->name, &ours[i], &theirs[i]);
    }
    if (!code && c->q->folder && io == export_io(EXPORT_HEAD))
        compare_scores(c, ours, theirs);
    for (int i = 0; i < outputs; i++) {
        engine_tensor_free(&theirs[i]);
        keep(c, &ours[i]);
    }
    for (int i = 0; i < inputs; i++)
        engine_tensor_free(&in[i]);
    return code;
}

static int check_parts(checking *c)
{
    int code = 0;
    for (int p = 0; p < EXPORT_PARTS && !code; p++) {
        if (!export_wanted(c->o, p))
            continue;
        c->pictures = p >= EXPORT_DETECTOR ? 1 : c->o->batch < 0 ? 2 : c->o->batch ? c->o->batch : 1;
        char *path = c->q->folder ? engine_part_path(c->q->folder, (export_part)p)
                                  : export_path(c->o->folder, (export_part)p);
        code =
            path ? check_part(c, export_io((export_part)p), path) : fail(c->err, SAMITE_RESOURCE, "not enough memory");
        free(path);
    }
    return code;
}

int export_compare(samite_model *m, check_request *q, samite_error *err)
{
    checking c = {.m = m, .o = q->o, .q = q, .theirs = q->theirs, .err = err};
    int code = native_engine_open(&c.ours, m->n, err);
    if (!code)
        code = check_parts(&c);
    for (int i = 0; i < c.kept_count; i++)
        engine_tensor_free(&c.kept[i]);
    engine_close(c.ours);
    return code;
}

int samite_export_check(samite_model *m, const samite_export_options *options, samite_error *err)
{
    if (!m || !options || !options->folder)
        return fail(err, SAMITE_USAGE, "samite_export_check: no model or no folder given");
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    options_copy(&o, sizeof o, options, options->size);
    check_request q = {.o = &o, .most = o.half ? 0.05 : 1e-3, .least = o.half ? 0.999 : 0.9999};
    engine_options e = {.threads = m->options.threads, .library = o.library};
    int code = engine_open(&q.theirs, o.engine ? o.engine : "onnxruntime", &e, err);
    if (!code)
        code = export_compare(m, &q, err);
    engine_close(q.theirs);
    if (!code && q.outside)
        code = fail(err, SAMITE_FAILED, "%d of %d outputs are out of tolerance (%g of the largest value, cosine %g)",
                    q.outside, q.compared, q.most, q.least);
    return code;
}
