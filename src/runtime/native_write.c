/* native_write.c - plans which tensors a file gets and in which type, then hands their bytes over. */
#include "runtime/native_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/config_file.h"

/* A tensor to write: learnt (e, trainable), from the file (w) or by formula. */
typedef struct item {
    const weight *w;
    const entry  *e;         /* of the network, or NULL */
    enum { CONVERTED, ROWS8, SCALES } how;      /* the last two: of a tensor that is brought into 8 bits */
} item;

typedef struct plan {
    weight *out;             /* name, type and shape as they shall be written */
    item   *from;
    size_t  count;
    char  **names;           /* of scales, owned */
    size_t  name_count;
} plan;

static void plan_free(plan *p)
{
    for (size_t i = 0; i < p->name_count; i++)
        free(p->names[i]);
    free(p->names);
    free(p->out);
    free(p->from);
}

static bool is_float(dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_F64;
}

/* Scales go with a tensor that stays in 8 bits. */
static bool scale_is_left_out(const native *n, const weight *w, int type)
{
    char base[512];
    size_t size = strlen(w->name) - strlen("_scale");
    if (!weights_is_scale(n->file, w))
        return false;
    snprintf(base, sizeof base, "%.*s", (int)size, w->name);
    const entry *e = registry_find(&n->net->all, base);
    return type >= 0 || (e && e->p.trainable);
}

static void plan_add(plan *p, item from, int type, bool tables)
{
    weight w = {0};
    bool learnt = from.e && from.e->p.trainable;
    if (from.w) {
        w = *from.w;
        if (w.type == DT_C64 && !tables)
            return;          /* computed tables: only a .pt for the official code keeps them */
    } else if (from.e) {
        w = (weight){.name = from.e->p.name, .type = DT_F32, .axes = from.e->p.t.axes};
        memcpy(w.dim, from.e->p.t.dim, sizeof from.e->p.t.dim);
    }
    if (learnt || (type >= 0 && (is_float(w.type) || w.scale)))
        w.type = learnt ? DT_F32 : (dtype)type;
    w.scale = NULL;
    weight_set_strides(&w);
    w.data = NULL;
    w.parts = 0;
    p->out[p->count] = w;
    p->from[p->count++] = from;
}

/* Tensor `i` of the file, or of the formula. */
static item source_of(const native *n, size_t i)
{
    if (!n->file)
        return (item){.e = n->net->all.entries[i]};
    const weight *w = weights_at(n->file, i);
    return (item){.w = w, .e = registry_find(&n->net->all, w->name)};
}

/* Files hold tensors that the network has no use for, too. */
static bool is_of_detector(const item *from)
{
    return from->e ? from->e->part < PART_TRACKER_NECK : !starts_with(from->w->name, "tracker.");
}

static int make_plan(plan *p, const native *n, int type, bool tables, bool detector_only, samite_error *err)
{
    size_t room = n->file ? weights_count(n->file) : n->net->all.count;
    *p = (plan){.out = calloc(room + 1, sizeof *p->out), .from = calloc(room + 1, sizeof *p->from)};
    if (!p->out || !p->from) {
        plan_free(p);
        return fail(err, SAMITE_RESOURCE, "not enough memory to list %zu tensors", room);
    }
    for (size_t i = 0; i < room; i++) {
        item from = source_of(n, i);
        if ((!detector_only || is_of_detector(&from)) && (!from.w || !scale_is_left_out(n, from.w, type)))
            plan_add(p, from, type, tables);
    }
    return 0;
}

/* ---- 8 bits ---- */

/* Products that are computed in bf16 lose nothing by being stored so; the words' embedding is large and read as it is. */
static bool is_narrowed(const native *n, const entry *e)
{
    const registry *g = &n->net->all;
    if (&e->p == n->net->text.tokens)
        return true;
    for (size_t i = 0; i < g->layer_count; i++)
        if (g->layers[i].kind == LAYER_LINEAR && g->layers[i].linear->w == &e->p)
            return native_layer_type(n, &g->layers[i], GEMM_INT8) == GEMM_INT8 ||
                   g->layers[i].linear == &n->net->trunk.patch_embed;
    return false;
}

/* The two tensors that an 8-bit one becomes. false: out of memory. */
static bool plan_add_narrow(plan *p, item from, int pass)
{
    weight w = from.w ? *from.w : (weight){.name = from.e->p.name, .axes = from.e->p.t.axes};
    text name = {0};
    if (!from.w)
        memcpy(w.dim, from.e->p.t.dim, sizeof from.e->p.t.dim);
    w.data = w.scale = NULL;
    w.parts = 0;
    w.type = pass == 1 ? DT_I8 : DT_F32;
    from.how = pass == 1 ? ROWS8 : SCALES;
    if (pass != 1) {
        text_printf(&name, "%s_scale", w.name);
        if (name.failed)
            return false;
        p->names[p->name_count++] = name.data;
        w.name = name.data;
        w.axes = 1;
    }
    weight_set_strides(&w);
    p->out[p->count] = w;
    p->from[p->count++] = from;
    return true;
}

/* By falling element size, so that all tensors are aligned in the file. */
static int make_narrow_plan(plan *p, const native *n, bool detector_only, samite_error *err)
{
    size_t room = n->file ? weights_count(n->file) : n->net->all.count;
    *p = (plan){.out = calloc(2 * room + 1, sizeof *p->out), .from = calloc(2 * room + 1, sizeof *p->from),
                .names = calloc(room + 1, sizeof *p->names)};
    bool ok = p->out && p->from && p->names;
    for (int pass = 8; ok && pass > 0; pass /= 2)
        for (size_t i = 0; ok && i < room; i++) {
            item from = source_of(n, i);
            size_t before = p->count;
            if (detector_only && !is_of_detector(&from))
                continue;
            if (from.e && from.e->eight) {
                ok = (pass != 4 && pass != 1) || plan_add_narrow(p, from, pass);
                continue;
            }
            if (!from.w || !scale_is_left_out(n, from.w, DT_F32))
                plan_add(p, from, from.e && is_narrowed(n, from.e) ? DT_BF16 : -1, false);
            if (p->count > before && dtype_size(p->out[before].type) != (size_t)pass)
                p->count = before;
        }
    if (ok)
        return 0;
    plan_free(p);
    return fail(err, SAMITE_RESOURCE, "not enough memory to list %zu tensors", room);
}

/* false: out of memory. */
static bool put_narrow(weights_writer *out, const native *n, const item *from)
{
    const tensor *t = &from->e->p.t;
    int64_t rows = t->dim[0], cols = tensor_count(t) / rows;
    float *values = native_values(n, from->e), *scale = malloc(sizeof *scale * (size_t)rows);
    int8_t *q = malloc((size_t)(rows * cols));
    bool ok = values && scale && q;
    if (ok) {
        gemm_quantize_rows(q, scale, values, rows, cols);
        if (from->how == SCALES)
            weights_put(out, scale, sizeof *scale * (size_t)rows);
        else
            weights_put(out, q, (size_t)(rows * cols));
    }
    free(values);
    free(scale);
    free(q);
    return ok;
}

/* Hands one tensor's bytes to the writer, converted as planned. false: out of memory. */
static bool put(weights_writer *out, const native *n, const item *from, const weight *as)
{
    size_t elements = (size_t)weight_count(as), bytes = elements * dtype_size(as->type);
    if (from->how != CONVERTED)
        return put_narrow(out, n, from);
    if (from->e && from->e->p.trainable) {
        weights_put(out, from->e->p.t.data, bytes);
        return true;
    }
    if (from->w && from->w->type == as->type) {
        void *plain = weight_contiguous(from->w) ? NULL : malloc(bytes + 1);
        if (plain)
            weight_copy(plain, from->w);
        else if (!weight_contiguous(from->w))
            return false;
        weights_put(out, plain ? plain : from->w->data, bytes);
        free(plain);
        return true;
    }
    float *values = from->w ? malloc(sizeof(float) * (elements + 1)) : native_values(n, from->e);
    void *stored = malloc(bytes + 1);
    if (values && stored) {
        if (from->w)
            weight_to_f32(values, from->w);
        dtype_from_f32(stored, as->type, values, elements);
        weights_put(out, stored, bytes);
    }
    bool ok = values && stored;
    free(values);
    free(stored);
    return ok;
}

/* `note`: the text for CALIBRATION_KEY, or NULL. */
static int write_all(const native *n, const plan *p, const write_choice *how, const char *note, const char *path, native_progress step,
                     void *user, samite_error *err)
{
    config c = n->net->c;
    c.nms = how->nms >= 0 ? how->nms : c.nms;
    char *json = config_to_json(&c);
    text_pair meta[] = {{(char *)(uintptr_t)CONFIG_KEY, json}, {(char *)(uintptr_t)"format", (char *)(uintptr_t)"pt"},
                        {(char *)(uintptr_t)CALIBRATION_KEY, (char *)(uintptr_t)note}};
    weights_writer *out;
    int code = json ? weights_create(&out, path, p->out, p->count, meta, note ? 3 : 2, err)
                    : fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    free(json);
    if (code)
        return code;
    for (size_t i = 0; i < p->count; i++) {
        if (step && step(user, i, p->count))
            code = fail(err, SAMITE_CANCELLED, "stopped; %s was not written", path);
        else if (!put(out, n, &p->from[i], &p->out[i]))
            code = fail(err, SAMITE_RESOURCE, "not enough memory for tensor %s", p->out[i].name);
        if (code) {
            weights_abort(out);
            return code;
        }
    }
    return weights_commit(out, err);
}

/* -1: as stored; -2: unknown. */
static int type_of(const char *name)
{
    if (!name)
        return -1;
    static const dtype known[] = {DT_F32, DT_F16, DT_BF16};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, dtype_name(known[i])) == 0)
            return (int)known[i];
    return -2;
}

int native_write(const native *n, const char *path, const write_choice *how, native_progress step, void *user,
                 samite_error *err)
{
    int as = type_of(how->type);
    if (as == -2)
        return fail(err, SAMITE_USAGE, "type '%s' is unknown: f32, f16 or bf16", how->type);
    if (!ends_with(path, ".safetensors") && !ends_with(path, ".pt") && !ends_with(path, ".pth"))
        return fail(err, SAMITE_USAGE, "%s: the name must end in .safetensors or .pt", path);
    plan p;
    int code = make_plan(&p, n, as, ends_with(path, ".pt") || ends_with(path, ".pth"), how->detector_only, err);
    if (code)
        return code;
    const char *note = n->file && as < 0 ? weights_metadata(n->file, CALIBRATION_KEY) : NULL;
    code = write_all(n, &p, how, note, path, step, user, err);
    plan_free(&p);
    return code;
}

int native_write_int8(const native *n, const char *path, const write_choice *how, const char *note, native_progress step,
                      void *user, samite_error *err)
{
    plan p;
    if (!ends_with(path, ".safetensors"))
        return fail(err, SAMITE_USAGE, "%s: a file in 8 bits must end in .safetensors", path);
    int code = make_narrow_plan(&p, n, how->detector_only, err);
    if (code)
        return code;
    code = write_all(n, &p, how, note, path, step, user, err);
    plan_free(&p);
    return code;
}

uint64_t native_write_bytes(const native *n)
{
    plan p;
    uint64_t bytes = 0;
    if (make_plan(&p, n, -1, true, false, NULL))
        return 0;
    for (size_t i = 0; i < p.count; i++)
        bytes += (uint64_t)weight_count(&p.out[i]) * dtype_size(p.out[i].type) + 256;
    plan_free(&p);
    return bytes;
}
