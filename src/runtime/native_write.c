/* native_write.c - plans which tensors a file gets and in which type, then hands their bytes over. */
#include "runtime/native_write.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/config_file.h"

/* A tensor to write: learnt (e, trainable), from the file (w) or by formula. */
typedef struct item {
    const weight *w;
    const entry  *e;         /* of the network, or NULL */
} item;

typedef struct plan {
    weight *out;             /* name, type and shape as they shall be written */
    item   *from;
    size_t  count;
} plan;

static void plan_free(plan *p)
{
    free(p->out);
    free(p->from);
}

static bool is_float(dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_F64;
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
    if (learnt || (type >= 0 && is_float(w.type)))
        w.type = learnt ? DT_F32 : (dtype)type;
    weight_set_strides(&w);
    w.data = NULL;
    w.parts = 0;
    p->out[p->count] = w;
    p->from[p->count++] = from;
}

static int make_plan(plan *p, const native *n, int type, bool tables, samite_error *err)
{
    size_t room = n->file ? weights_count(n->file) : n->net->all.count;
    *p = (plan){.out = calloc(room + 1, sizeof *p->out), .from = calloc(room + 1, sizeof *p->from)};
    if (!p->out || !p->from) {
        plan_free(p);
        return fail(err, SAMITE_RESOURCE, "not enough memory to list %zu tensors", room);
    }
    for (size_t i = 0; i < room; i++)
        plan_add(p, (item){.w = n->file ? weights_at(n->file, i) : NULL,
                           .e = n->file ? registry_find(&n->net->all, weights_at(n->file, i)->name) : n->net->all.entries[i]},
                 type, tables);
    return 0;
}

/* Hands one tensor's bytes to the writer, converted as planned. false: out of memory. */
static bool put(weights_writer *out, const native *n, const item *from, const weight *as)
{
    size_t elements = (size_t)weight_count(as), bytes = elements * dtype_size(as->type);
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

static int write_all(const native *n, const plan *p, const char *path, native_progress step, void *user, samite_error *err)
{
    char *json = config_to_json(&n->net->c);
    text_pair meta[] = {{(char *)(uintptr_t)CONFIG_KEY, json}, {(char *)(uintptr_t)"format", (char *)(uintptr_t)"pt"}};
    weights_writer *out;
    int code = json ? weights_create(&out, path, p->out, p->count, meta, 2, err)
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

int native_write(const native *n, const char *path, const char *type, native_progress step, void *user, samite_error *err)
{
    int as = type_of(type);
    if (as == -2)
        return fail(err, SAMITE_USAGE, "type '%s' is unknown: f32, f16 or bf16", type);
    if (!ends_with(path, ".safetensors") && !ends_with(path, ".pt") && !ends_with(path, ".pth"))
        return fail(err, SAMITE_USAGE, "%s: the name must end in .safetensors or .pt", path);
    plan p;
    int code = make_plan(&p, n, as, ends_with(path, ".pt") || ends_with(path, ".pth"), err);
    if (code)
        return code;
    code = write_all(n, &p, path, step, user, err);
    plan_free(&p);
    return code;
}

uint64_t native_write_bytes(const native *n)
{
    plan p;
    uint64_t bytes = 0;
    if (make_plan(&p, n, -1, true, NULL))
        return 0;
    for (size_t i = 0; i < p.count; i++)
        bytes += (uint64_t)weight_count(&p.out[i]) * dtype_size(p.out[i].type) + 256;
    plan_free(&p);
    return bytes;
}
