/* checkpoint.c - states of a training in files. */
#define _GNU_SOURCE
#include "train/checkpoint.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "runtime/native_write.h"

#define LATEST      "latest.json"
#define MODEL       ".pt"
#define ADAPTER     ".adapter.safetensors"
#define OPTIMIZER   ".optimizer.safetensors"
#define MEAN        ".ema"
#define LARGEST_LATEST ((size_t)16 << 20)

static int no_memory(samite_error *err)
{
    return fail(err, SAMITE_RESOURCE, "not enough memory for a checkpoint");
}

static char *file_of(const checkpoint_files *f, const char *name, const char *ending)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s%s", f->folder, name, ending) < 0 ? NULL : path;
}

static const char *weights_ending(const checkpoint_files *f)
{
    return f->a ? ADAPTER : MODEL;
}

/* ---- space ---- */

static uint64_t state_bytes(const checkpoint_files *f)
{
    uint64_t bytes = 1 << 20;
    for (int i = 0; i < f->o->count; i++)
        bytes += (f->o->item[i].mean ? 3 : 2) * sizeof(float) * (uint64_t)tensor_count(&f->o->item[i].e->p.t) + 512;
    return bytes + (f->a ? bytes / 2 : native_write_bytes(f->n)) * (f->o->rates.average > 0 ? 2 : 1);
}

int checkpoint_space(const checkpoint_files *f, samite_error *err)
{
    struct statvfs s;
    uint64_t needed = state_bytes(f);
    if (statvfs(f->folder, &s) != 0)
        return 0;                /* writing will tell */
    uint64_t there = (uint64_t)s.f_bavail * s.f_frsize;
    if (there >= needed)
        return 0;
    return fail(err, SAMITE_RESOURCE,
                "%s: a checkpoint takes %.2f GB, the disk has %.2f GB left; free some, choose another "
                "paths.output, or set checkpoint.skip_saving_ckpts",
                f->folder, (double)needed / 1e9, (double)there / 1e9);
}

/* ---- optimizer ---- */

static weight f32_like(const char *name, const tensor *t)
{
    weight w = {.name = name, .type = DT_F32, .axes = t->axes};
    memcpy(w.dim, t->dim, sizeof t->dim);
    weight_set_strides(&w);
    return w;
}

/* Steps, moments, means, and the values of what is no part of the model. */
static weight *plan_moments(const optimizer *o, text *names, size_t *count)
{
    weight *plan = calloc((size_t)o->count * 4 + 2, sizeof *plan);
    *count = 1 + 2 * (size_t)o->count;
    if (!plan)
        return NULL;
    plan[0] = (weight){.name = "steps", .type = DT_I64, .axes = 1, .dim = {o->count}};
    weight_set_strides(&plan[0]);
    for (int i = 0; i < o->count; i++)
        text_printf(names, "%s.exp_avg%c%s.exp_avg_sq%c", o->item[i].e->p.name, 0, o->item[i].e->p.name, 0);
    for (int i = 0; i < o->count; i++)
        if (o->item[i].mean)
            text_printf(names, "%s.ema%c", o->item[i].e->p.name, 0);
    const char *at = names->data;
    for (int i = 0; i < 2 * o->count && !names->failed; i++) {
        plan[1 + i] = f32_like(at, &o->item[i / 2].e->p.t);
        at += strlen(at) + 1;
    }
    for (int i = 0; i < o->count && !names->failed; i++) {
        if (!o->item[i].mean)
            continue;
        plan[(*count)++] = f32_like(at, &o->item[i].e->p.t);
        at += strlen(at) + 1;
    }
    for (int i = 0; i < o->count; i++)
        if (o->item[i].aside)
            plan[(*count)++] = f32_like(o->item[i].e->p.name, &o->item[i].e->p.t);
    return plan;
}

static int write_moments(const optimizer *o, const char *path, samite_error *err)
{
    text names = {0};
    safetensors_writer w;
    size_t count;
    weight *plan = plan_moments(o, &names, &count);
    int code = plan && !names.failed ? safetensors_create(&w, path, plan, count, NULL, 0, err)
                                     : no_memory(err);
    for (int i = 0; i < o->count && !code; i++)
        safetensors_put(&w, &o->item[i].steps, sizeof(int64_t));
    for (int i = 0; i < o->count && !code; i++) {
        size_t bytes = sizeof(float) * (size_t)tensor_count(&o->item[i].e->p.t);
        safetensors_put(&w, o->item[i].m, bytes);
        safetensors_put(&w, o->item[i].v, bytes);
    }
    for (int i = 0; i < o->count && !code; i++)
        if (o->item[i].mean)
            safetensors_put(&w, o->item[i].mean, sizeof(float) * (size_t)tensor_count(&o->item[i].e->p.t));
    for (int i = 0; i < o->count && !code; i++)
        if (o->item[i].aside)
            safetensors_put(&w, o->item[i].e->p.t.data, sizeof(float) * (size_t)tensor_count(&o->item[i].e->p.t));
    free(plan);
    text_free(&names);
    return code ? code : safetensors_commit(&w, err);
}

/* A file's tensors by name. */
typedef struct opened {
    file_map    map;
    tensor_list list;
    name_map   *names;
} opened;

static void opened_close(opened *x)
{
    name_map_free(x->names);
    tensor_list_free(&x->list);
    file_map_close(&x->map);
}

static int opened_open(opened *x, const char *path, samite_error *err)
{
    *x = (opened){0};
    int code = file_map_open(&x->map, path, err);
    if (code)
        return code;
    code = safetensors_read(&x->list, x->map.data, x->map.size, path, err);
    if (!code && !(x->names = name_map_new(x->list.count)))
        code = no_memory(err);
    for (size_t i = 0; i < x->list.count && !code; i++)
        name_map_put(x->names, x->list.items[i].name, (int64_t)i);
    if (code)
        opened_close(x);
    return code;
}

static int take(const opened *x, float *out, const tensor *t, const char *path, const char *format, const char *name,
                samite_error *err)
{
    char full[320];
    snprintf(full, sizeof full, format, name);
    int64_t at = name_map_get(x->names, full);
    const weight *w = at < 0 ? NULL : &x->list.items[at];
    if (!w || weight_count(w) != tensor_count(t))
        return fail(err, SAMITE_INPUT,
                    "%s %s %s; it belongs to a training with other parts. Go on with the settings of that one, "
                    "or start anew in another folder",
                    path, w ? "has another size of" : "lacks", full);
    weight_to_f32(out, w);
    return 0;
}

/* The mean of one tensor; where an earlier run kept none it begins at the weights, which are there already. */
static int read_mean(const opened *x, learner *l, const char *path, samite_error *err)
{
    char name[320];
    snprintf(name, sizeof name, "%s.ema", l->e->p.name);
    if (name_map_get(x->names, name) >= 0)
        return take(x, l->mean, &l->e->p.t, path, "%s.ema", l->e->p.name, err);
    memcpy(l->mean, l->e->p.t.data, sizeof(float) * (size_t)tensor_count(&l->e->p.t));
    return 0;
}

static int read_moments(optimizer *o, const char *path, samite_error *err)
{
    opened x;
    int code = opened_open(&x, path, err);
    if (code)
        return code;
    int64_t at = name_map_get(x.names, "steps");
    const weight *steps = at < 0 ? NULL : &x.list.items[at];
    if (!steps || steps->type != DT_I64 || weight_count(steps) != o->count)
        code = fail(err, SAMITE_INPUT, "%s was written with another choice of parts that learn", path);
    for (int i = 0; i < o->count && !code; i++) {
        learner *l = &o->item[i];
        memcpy(&l->steps, (const char *)steps->data + sizeof(int64_t) * (size_t)i, sizeof l->steps);
        code = take(&x, l->m, &l->e->p.t, path, "%s.exp_avg", l->e->p.name, err);
        if (!code)
            code = take(&x, l->v, &l->e->p.t, path, "%s.exp_avg_sq", l->e->p.name, err);
        if (!code && l->mean)
            code = read_mean(&x, l, path, err);
        if (!code && l->aside)
            code = take(&x, l->e->p.t.data, &l->e->p.t, path, "%s", l->e->p.name, err);
    }
    opened_close(&x);
    return code;
}

/* ---- weights ---- */

static int read_adapters(optimizer *o, const char *path, samite_error *err)
{
    opened x;
    int code = opened_open(&x, path, err);
    if (code)
        return code;
    for (int i = 0; i < o->count && !code; i++)
        code = take(&x, o->item[i].e->p.t.data, &o->item[i].e->p.t, path, "%s", o->item[i].e->p.name, err);
    opened_close(&x);
    return code;
}

static int read_weights(optimizer *o, const char *path, samite_error *err)
{
    weights *w;
    int code = weights_open(&w, path, err);
    if (code)
        return code;
    for (int i = 0; i < o->count && !code; i++) {
        const entry *e = o->item[i].e;
        const weight *from = weights_find(w, e->p.name);
        if (o->item[i].aside)
            continue;
        if (!from || weight_count(from) != tensor_count(&e->p.t))
            code = fail(err, SAMITE_INPUT, "%s lacks %s, which learns", path, e->p.name);
        else
            weight_to_f32(e->p.t.data, from);
    }
    weights_close(w);
    return code;
}

/* ---- latest.json ---- */

static json_t *read_latest(const checkpoint_files *f, bool *there)
{
    char *path = file_of(f, LATEST, "");
    uint8_t *data = NULL;
    size_t size;
    json_t *o = NULL;
    *there = path && access(path, F_OK) == 0;
    if (*there && file_read(&data, &size, path, LARGEST_LATEST, NULL) == 0)
        o = json_loadb((const char *)data, size, 0, NULL);
    free(data);
    free(path);
    return o;
}

static int write_latest(const checkpoint_files *f, const train_state *s, json_t *kept, samite_error *err)
{
    char *path = file_of(f, LATEST, "");
    json_t *o = json_pack("{s:i, s:i, s:I, s:f, s:f, s:f, s:O, s:O, s:O}", "epoch", s->epoch, "iter", s->iter, "step",
                          (json_int_t)s->step, "elapsed", s->elapsed, "best", s->best, "weight", s->weight, "sums",
                          s->sums, "shape", s->shape, "kept", kept);
    char *line = o ? json_dumps(o, JSON_REAL_PRECISION(17) | JSON_INDENT(1)) : NULL;
    file_writer w;
    int code = path && line ? file_writer_open(&w, path, err) : no_memory(err);
    if (!code) {
        file_write(&w, line, strlen(line));
        code = file_writer_commit(&w, err);
    }
    free(line);
    json_decref(o);
    free(path);
    return code;
}

static void remove_files(const checkpoint_files *f, const char *name)
{
    static const char *const endings[] = {MODEL, ADAPTER, OPTIMIZER, MEAN MODEL, MEAN ADAPTER};
    for (int i = 0; name && i < 5; i++) {
        char *path = file_of(f, name, endings[i]);
        if (path)
            unlink(path);
        free(path);
    }
}

/* The names that stay, newest first; `gone` gets the others. NULL: out of memory. */
static json_t *next_kept(const checkpoint_files *f, const char *name, json_t *gone)
{
    bool there;
    json_t *old = read_latest(f, &there), *kept = json_array(), *one;
    size_t i;
    json_array_append_new(kept, json_string(name));
    json_array_foreach(json_object_get(old, "kept"), i, one) {
        const char *s = json_string_value(one);
        if (s && strcmp(s, name) != 0)
            json_array_append(json_array_size(kept) < (size_t)f->keep ? kept : gone, one);
    }
    json_decref(old);
    return kept;
}

static int write_weights(const checkpoint_files *f, const char *path, samite_error *err)
{
    return f->a ? adapters_write(f->a, path, err) : native_write(f->n, path, &WRITE_AS_STORED, NULL, NULL, err);
}

/* The running means of the weights as a model of its own, where they are kept. */
static int write_means(const checkpoint_files *f, const char *name, samite_error *err)
{
    optimizer *o = (optimizer *)(uintptr_t)f->o;
    if (!(o->rates.average > 0))
        return 0;
    char *path = file_of(f, name, f->a ? MEAN ADAPTER : MEAN MODEL);
    int code = path ? 0 : no_memory(err);
    optimizer_exchange_means(o);
    if (!code)
        code = write_weights(f, path, err);
    optimizer_exchange_means(o);
    free(path);
    return code;
}

int checkpoint_save(const checkpoint_files *f, const train_state *s, char **path, samite_error *err)
{
    char name[64];
    size_t i;
    json_t *gone = json_array(), *one;
    if (s->iter)
        snprintf(name, sizeof name, "checkpoint_%d_%d", s->epoch, s->iter);
    else
        snprintf(name, sizeof name, "checkpoint_%d", s->epoch);
    char *model = file_of(f, name, weights_ending(f)), *moments = file_of(f, name, OPTIMIZER);
    json_t *kept = next_kept(f, name, gone);
    int code = model && moments && kept && gone ? checkpoint_space(f, err) : no_memory(err);
    if (!code)
        code = write_moments(f->o, moments, err);
    if (!code)
        code = write_weights(f, model, err);
    if (!code)
        code = write_means(f, name, err);
    if (!code)
        code = write_latest(f, s, kept, err);
    if (!code)
        json_array_foreach(gone, i, one)
            remove_files(f, json_string_value(one));
    json_decref(gone);
    json_decref(kept);
    free(moments);
    if (path && !code)
        *path = model;
    else
        free(model);
    return code;
}

static int read_state(train_state *s, const json_t *o, const char *folder, samite_error *err)
{
    const json_t *sums = json_object_get(o, "sums"), *shape = json_object_get(o, "shape");
    if (!json_is_object(sums) || !json_is_object(shape) || !json_is_integer(json_object_get(o, "epoch")))
        return fail(err, SAMITE_INPUT, "%s/" LATEST " is damaged; remove it to start anew", folder);
    if (!json_equal(s->shape, shape)) {
        char *then = json_dumps(shape, JSON_COMPACT | JSON_SORT_KEYS),
             *now = json_dumps(s->shape, JSON_COMPACT | JSON_SORT_KEYS);
        int code = fail(err, SAMITE_INPUT,
                        "%s was begun with %s, now it is %s; go on with the same, or choose another paths.output",
                        folder, then ? then : "?", now ? now : "?");
        free(then);
        free(now);
        return code;
    }
    s->epoch = (int)json_integer_value(json_object_get(o, "epoch"));
    s->iter = (int)json_integer_value(json_object_get(o, "iter"));
    s->step = json_integer_value(json_object_get(o, "step"));
    s->elapsed = json_number_value(json_object_get(o, "elapsed"));
    s->best = json_number_value(json_object_get(o, "best"));
    s->weight = json_number_value(json_object_get(o, "weight"));
    json_object_update(s->sums, (json_t *)(uintptr_t)sums);
    return 0;
}

int checkpoint_load(const checkpoint_files *f, train_state *s, bool *found, samite_error *err)
{
    json_t *o = read_latest(f, found);
    if (!*found)
        return 0;
    const char *name = json_string_value(json_array_get(json_object_get(o, "kept"), 0));
    int code = name ? read_state(s, o, f->folder, err)
                    : fail(err, SAMITE_INPUT, "%s/" LATEST " is damaged; remove it to start anew", f->folder);
    char *model = name ? file_of(f, name, weights_ending(f)) : NULL,
         *moments = name ? file_of(f, name, OPTIMIZER) : NULL;
    if (!code && (!model || !moments))
        code = no_memory(err);
    optimizer *into = (optimizer *)(uintptr_t)f->o;
    if (!code)
        code = f->a ? read_adapters(into, model, err) : read_weights(into, model, err);
    if (!code)
        code = read_moments(into, moments, err);
    free(model);
    free(moments);
    json_decref(o);
    return code;
}

int checkpoint_mark_best(const checkpoint_files *f, const char *path, samite_error *err)
{
    char *best = file_of(f, "best", weights_ending(f)), *temp = file_of(f, "best", ".tmp-link");
    int code = best && temp ? 0 : no_memory(err);
    if (!code) {
        unlink(temp);
        bool linked = link(path, temp) == 0 && rename(temp, best) == 0;
        if (!linked)
            code = write_weights(f, best, err);
        unlink(temp);
    }
    free(best);
    free(temp);
    return code;
}

void checkpoint_clean(const char *folder)
{
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char *path = strstr(e->d_name, ".tmp-") ? path_join(folder, e->d_name) : NULL;
        if (path)
            unlink(path);
        free(path);
    }
    if (d)
        closedir(d);
}
