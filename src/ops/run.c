/* run.c - what a run owns: memory in scopes, values, names, the first error. */
#include "ops/run_state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)256 << 10)
#define MOST_ELEMENTS (INT64_MAX / 16)

int64_t tensor_rows(const tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->axes - 1; i++)
        n *= t->dim[i];
    return n;
}

int64_t tensor_cols(const tensor *t)
{
    return t->dim[t->axes - 1];
}

int64_t tensor_count(const tensor *t)
{
    return tensor_rows(t) * tensor_cols(t);
}

value *value_of(const tensor *t)
{
    return (value *)t;
}

size_t padded(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

/* ---- opening and closing ---- */

static void set_bad(run *r)
{
    r->bad = (value){.t = {.axes = 1, .dim = {1}, .stride = 1}, .offset = NOT_OURS};
    r->bad.root = &r->bad;
}

run *run_open(const run_options *o, samite_error *err)
{
    bool counting = o->mode == TRACE;
    run *r = calloc(1, sizeof *r);
    if (!r) {
        fail(err, SAMITE_RESOURCE, "out of memory for a run");
        return NULL;
    }
    r->options = *o;
    if (!arena_open(&r->values, o->memory_limit, counting) || !arena_open(&r->scratch, o->memory_limit, counting)) {
        fail(err, SAMITE_RESOURCE, "no address space for the values of a run; raise the limit (ulimit -v) or set "
             "--memory-limit");
        run_close(r);
        return NULL;
    }
    run_reset(r);
    return r;
}

void run_close(run *r)
{
    if (!r)
        return;
    arena_close(&r->values);
    arena_close(&r->scratch);
    while (r->first) {
        chunk *next = r->first->next;
        free(r->first);
        r->first = next;
    }
    free(r->nodes);
    free(r->free_grads);
    free(r);
}

void run_reset(run *r)
{
    arena_release(&r->values, 0);
    arena_release(&r->scratch, 0);
    run_record_release(r, (record_mark){NULL, 0});
    set_bad(r);
    r->failed = false;
    r->error = (samite_error){0};
    r->part[0] = '\0';
    r->part_copy = NULL;
    r->last_id = 0;
    r->node_count = r->free_count = 0;
    r->taped_until = 0;
    r->recording = r->options.mode != RUN;
    r->quiet = false;
    r->section = 0;
    r->drop = (drop_options){0};
    r->drops = 0;
}

void run_set_observer(run *r, void (*observe)(void *, const char *, const tensor *), void *user)
{
    r->options.observe = observe;
    r->options.observe_user = user;
}

void run_set_timer(run *r, void (*timed)(void *, const char *, const char *, double, double, double), void *user)
{
    r->options.timed = timed;
    r->options.timed_user = user;
}

void run_set_rows(run *r, void (*rows)(void *, const linear_w *, const float *, int64_t, int64_t), void *user)
{
    r->options.rows = rows;
    r->options.rows_user = user;
}

void op_tell_rows(const run *r, const linear_w *w, const float *x, int64_t ld, int64_t rows)
{
    if (r->options.rows && rows > 0 && w->packed && gemm_type_of(w->packed) == GEMM_F32)
        r->options.rows(r->options.rows_user, w, x, ld, rows);
}

void run_set_drop(run *r, drop_options o)
{
    r->drop = o;
}

float run_drop_rate(const run *r)
{
    return r->options.mode == RUN ? 0 : r->drop.rate;
}

float run_path_rate(const run *r)
{
    return r->options.mode == RUN ? 0 : r->drop.path_rate;
}

run_mode run_mode_of(const run *r)
{
    return r->options.mode;
}

gemm_type run_type(const run *r)
{
    return r->options.mode == RUN ? r->options.type : GEMM_F32;
}

gemm_type run_products(const run *r)
{
    return r->options.mode == TAPE && r->options.type == GEMM_BF16 && gemm_has(GEMM_BF16) ? GEMM_BF16 : GEMM_F32;
}

/* ---- the sticky error ---- */

int run_status(const run *r, samite_error *err)
{
    if (r->failed && err)
        *err = r->error;
    return r->failed ? r->error.code : SAMITE_OK;
}

bool run_ok(const run *r)
{
    return !r->failed;
}

tensor *run_bad(run *r)
{
    return &r->bad.t;
}

tensor *run_fail(run *r, int code, const char *format, ...)
{
    char line[sizeof r->error.text];
    va_list list;

    if (r->failed)
        return run_bad(r);
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    fail(&r->error, code, "%s", line);
    r->failed = true;
    return run_bad(r);
}

bool run_polled(run *r)
{
    if (!r->failed && r->options.cancelled && r->options.cancelled(r->options.cancel_user))
        run_fail(r, SAMITE_CANCELLED, "cancelled%s%s", r->part[0] ? " in " : "", r->part);
    return !r->failed;
}

void run_part(run *r, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    vsnprintf(r->part, sizeof r->part, format, list);
    va_end(list);
    r->part_copy = NULL;
    r->parts++;
    run_polled(r);
}

uint64_t run_parts(const run *r)
{
    return r->parts;
}

/* ---- records ---- */

/* The chunk after the current one if it is large enough, else a new one put there. */
static chunk *next_chunk(run *r, size_t bytes)
{
    chunk *next = r->chunk ? r->chunk->next : r->first;
    if (!next || next->size < bytes) {
        size_t size = bytes > CHUNK ? bytes : CHUNK;
        chunk *c = size > SIZE_MAX - sizeof *c ? NULL : malloc(sizeof *c + size);
        if (!c)
            return NULL;
        c->size = size;
        c->next = next;
        *(r->chunk ? &r->chunk->next : &r->first) = c;
        next = c;
    }
    next->used = 0;
    return next;
}

void *run_record(run *r, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        run_fail(r, SAMITE_RESOURCE, "out of memory for the records of a run");
        return NULL;
    }
    bytes = padded(bytes);
    if (!r->chunk || bytes > r->chunk->size - r->chunk->used) {
        chunk *c = next_chunk(r, bytes);
        if (!c) {
            run_fail(r, SAMITE_RESOURCE, "out of memory for the records of a run");
            return NULL;
        }
        r->chunk = c;
    }
    void *p = r->chunk->data + r->chunk->used;
    r->chunk->used += bytes;
    return p;
}

record_mark run_record_mark(const run *r)
{
    return (record_mark){r->chunk, r->chunk ? r->chunk->used : 0};
}

void run_record_release(run *r, record_mark mark)
{
    r->chunk = mark.at;
    if (mark.at)
        mark.at->used = mark.used;
    r->part_copy = NULL;
}

/* ---- memory ---- */

static void see_peak(run *r)
{
    if (r->values.used + r->scratch.used > r->peak)
        r->peak = r->values.used + r->scratch.used;
}

/* Both arenas share one limit. `bytes` is padded, so that no gap between values is out of bounds for run_keep. */
static void *take(run *r, arena *a, size_t bytes)
{
    size_t limit = r->options.memory_limit, used = r->values.used + r->scratch.used;
    size_t missing = bytes;
    bool tight = false;

    if (!a->counting && limit && bytes > limit - (used < limit ? used : limit)) {
        missing = bytes + used - limit;
        tight = true;
    }
    void *p = tight ? NULL : arena_take(a, bytes);
    if (!p && (!a->counting || a->full)) {
        run_fail(r, SAMITE_RESOURCE, "not enough memory: the part %s needs %zu MB more; raise --memory-limit or use a "
                 "smaller --size", r->part[0] ? r->part : "(unnamed)", (missing >> 20) + 1);
        return NULL;
    }
    see_peak(r);
    return p;
}

void *value_take(run *r, size_t bytes, size_t *offset)
{
    *offset = r->values.used;
    return take(r, &r->values, bytes);
}

void *scratch_take(run *r, size_t bytes)
{
    return take(r, &r->scratch, bytes);
}

size_t run_mark(run *r)
{
    return arena_mark(&r->values);
}

size_t run_peak(const run *r)
{
    return r->peak;
}

/* The lowest root at or above `from` among the tensors. */
static value *next_root(tensor *const *t, int count, size_t from)
{
    value *best = NULL;
    for (int i = 0; i < count; i++) {
        value *root = value_of(t[i])->root;
        if (root->offset != NOT_OURS && root->offset >= from && (!best || root->offset < best->offset))
            best = root;
    }
    return best;
}

/* Roots move in ascending order; one that has moved lies below every `from` that follows. */
void run_keep_all(run *r, size_t mark, tensor **t, int count)
{
    size_t at = mark, from = mark;
    value *root;

    if (r->failed || (r->options.mode == TAPE && r->taped_until > mark))
        return;
    while ((root = next_root(t, count, from)) != NULL) {
        from = root->offset + 1;
        if (r->values.base) {
            memmove(r->values.base + at, r->values.base + root->offset, root->bytes);
            root->t.data = (float *)(r->values.base + at);
        }
        root->offset = at;
        at += root->bytes;
    }
    arena_release(&r->values, at);
    for (int i = 0; i < count; i++) {
        value *v = value_of(t[i]);
        if (v->t.data && v->root != v)
            v->t.data = v->root->t.data + v->shift;
    }
}

tensor *run_keep(run *r, size_t mark, tensor *t)
{
    run_keep_all(r, mark, &t, 1);
    return r->failed ? run_bad(r) : t;
}

void run_drop(run *r, size_t mark)
{
    run_keep_all(r, mark, NULL, 0);
}

/* ---- values ---- */

/* false also when the number of elements would overflow. */
static bool shape_is_possible(int axes, const int64_t *dim)
{
    int64_t n = 1;
    if (axes < 1 || axes > MAX_AXES)
        return false;
    for (int i = 0; i < axes; i++) {
        if (dim[i] < 0 || dim[i] > MOST_ELEMENTS)
            return false;
        if (dim[i] > 0 && n > MOST_ELEMENTS / dim[i])
            return false;
        n *= dim[i] > 0 ? dim[i] : 1;
    }
    return true;
}

value *value_new(run *r, int axes, const int64_t *dim)
{
    if (r->failed)
        return NULL;
    if (!shape_is_possible(axes, dim)) {
        run_fail(r, SAMITE_FAILED, "%s: a value with %d axes of impossible size", r->part, axes);
        return NULL;
    }
    value *v = run_record(r, sizeof *v);
    if (!v)
        return NULL;
    *v = (value){.t = {.axes = axes, .stride = dim[axes - 1]}, .root = v, .offset = NOT_OURS, .section = r->section};
    for (int i = 0; i < axes; i++)
        v->t.dim[i] = dim[i];
    return v;
}

tensor *run_input(run *r, const float *data, int axes, const int64_t *dim)
{
    value *v = value_new(r, axes, dim);
    if (!v)
        return run_bad(r);
    v->t.id = ++r->last_id;
    v->t.data = r->options.mode == TRACE ? NULL : (float *)data;
    return &v->t;
}

tensor *run_indices(run *r, const int32_t *index, int axes, const int64_t *dim)
{
    value *v = value_new(r, axes, dim);
    if (!v)
        return run_bad(r);
    v->t.id = ++r->last_id;
    v->t.index = (int32_t *)index;
    return &v->t;
}

value *value_with_memory(run *r, int axes, const int64_t *dim)
{
    value *v = value_new(r, axes, dim);
    if (!v)
        return NULL;
    v->bytes = padded((size_t)tensor_count(&v->t) * sizeof(float));
    v->t.data = value_take(r, v->bytes, &v->offset);
    return r->failed ? NULL : v;
}

tensor *run_constant(run *r, int axes, const int64_t *dim)
{
    value *v = value_with_memory(r, axes, dim);
    if (v && r->options.mode == TRACE && r->options.keep_constants)
        v->t.data = run_record(r, v->bytes);
    return r->failed ? run_bad(r) : &v->t;
}

tensor *run_param(run *r, param *p)
{
    value *v = value_new(r, p->t.axes, p->t.dim);
    if (!v)
        return run_bad(r);
    v->t.data = r->options.mode == TRACE ? NULL : p->t.data;
    v->t.param = p;
    v->wants = r->options.mode == TAPE && param_grad(p) != NULL;
    v->t.grad = v->wants ? p->t.grad : NULL;
    return &v->t;
}

/* ---- names ---- */

bool run_observed(const run *r)
{
    return r->options.observe && r->options.mode != TRACE && !r->quiet;
}

tensor *note(run *r, tensor *t, const char *format, ...)
{
    char name[192];
    va_list list;

    if (r->failed || (r->options.mode != TRACE && !run_observed(r)))
        return t;
    va_start(list, format);
    int n = vsnprintf(name, sizeof name, format, list);
    va_end(list);
    if (n < 0)
        return t;
    if (r->options.mode != TRACE) {
        r->options.observe(r->options.observe_user, name, t);
        return t;
    }
    char *copy = run_record(r, strlen(name) + 1);
    if (copy)
        value_of(t)->name = strcpy(copy, name);
    return t;
}

const char *run_name_of(const run *r, const tensor *t)
{
    return t == &r->bad.t ? NULL : value_of(t)->name;
}
