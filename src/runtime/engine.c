/* engine.c - chooses an engine, finds its library, and keeps its tensors. */
#define _GNU_SOURCE
#include "runtime/engine.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const struct {
    const char *name;
    int (*open)(engine **out, const char *device, const engine_options *o, samite_error *err);
} engines[] = {
    {"onnxruntime", onnxruntime_open},
    {"openvino", openvino_open},
    {"ascend", ascend_open},
};

int engine_open(engine **out, const char *name, const engine_options *o, samite_error *err)
{
    size_t n = strcspn(name, ":");
    *out = NULL;
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        if (strlen(engines[i].name) == n && !strncmp(engines[i].name, name, n))
            return engines[i].open(out, name[n] ? name + n + 1 : "", o, err);
    return fail(err, SAMITE_USAGE,
                "there is no engine \"%s\": native, onnxruntime[:PROVIDER], openvino[:DEVICE], ascend[:NUMBER]", name);
}

void engine_close(engine *e)
{
    if (e)
        e->driver->close(e);
}

int engine_load(engine_part **out, engine *e, const char *path, samite_error *err)
{
    *out = NULL;
    int code = e->driver->load(out, e, path, err);
    if (!code)
        (*out)->e = e;
    return code;
}

void engine_unload(engine_part *p)
{
    if (p)
        p->e->driver->unload(p);
}

int engine_run(engine_part *p, const engine_tensor *in, int inputs, engine_tensor *out, int outputs, samite_error *err)
{
    for (int i = 0; i < outputs; i++)
        out[i].data = NULL;
    int code = p->e->driver->run(p, in, inputs, out, outputs, err);
    for (int i = 0; code && i < outputs; i++)
        engine_tensor_free(&out[i]);
    return code;
}

int64_t engine_count(const engine_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->axes; i++)
        n *= t->dim[i];
    return n;
}

size_t engine_bytes(const engine_tensor *t)
{
    return (size_t)engine_count(t) * dtype_size(t->type);
}

int engine_make(engine_tensor *t, dtype type, int axes, const int64_t *dim, samite_error *err)
{
    t->type = type;
    t->axes = axes;
    t->resident = 0;
    for (int i = 0; i < axes; i++)
        t->dim[i] = dim[i];
    size_t bytes = engine_bytes(t);
    t->data = malloc(bytes ? bytes : 1);
    t->owned = t->data != NULL;
    return t->data ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %s (%zu bytes)", t->name, bytes);
}

void engine_tensor_free(engine_tensor *t)
{
    if (t->owned)
        free(t->data);
    t->data = NULL;
    t->owned = false;
}

engine_tensor *engine_find(engine_tensor *t, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(t[i].name, name))
            return &t[i];
    return NULL;
}

/* ---- libraries ---- */

static void *open_named(const char *name, char *path, size_t room)
{
    void *h = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (h)
        snprintf(path, room, "%s", name);
    return h;
}

/* The newest match of a pattern below a folder of python packages. */
static void *open_in_packages(const char *root, const char *packages, const char *pattern, char *path, size_t room)
{
    char full[1024];
    glob_t found;
    void *h = NULL;
    int n = snprintf(full, sizeof full, "%s/lib/python3*/%s/%s", root, packages, pattern);
    if (n < 0 || (size_t)n >= sizeof full || glob(full, 0, NULL, &found))
        return NULL;
    for (size_t i = found.gl_pathc; i-- > 0 && !h;)
        h = open_named(found.gl_pathv[i], path, room);
    globfree(&found);
    return h;
}

static void *search_packages(const char *pattern, char *path, size_t room)
{
    char local[512];
    const char *home = getenv("HOME"), *environment = getenv("VIRTUAL_ENV");
    snprintf(local, sizeof local, "%s/.local", home ? home : "");
    const char *const roots[] = {environment && *environment ? environment : NULL, home && *home ? local : NULL,
                                 "/usr/local", "/usr"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++) {
        void *h = roots[i] ? open_in_packages(roots[i], "site-packages", pattern, path, room) : NULL;
        if (!h && roots[i])
            h = open_in_packages(roots[i], "dist-packages", pattern, path, room);
        if (h)
            return h;
    }
    return NULL;
}

int engine_library(void **handle, char *path, size_t room, const char *given, const char *env, const char *const *names,
                   const char *pattern, const char *what, samite_error *err)
{
    const char *chosen = given ? given : getenv(env);
    *handle = NULL;
    if (chosen && *chosen) {
        *handle = open_named(chosen, path, room);
        const char *why = *handle ? NULL : dlerror();
        return *handle ? 0
                       : fail(err, SAMITE_INPUT, "%s: cannot be loaded as %s: %s", chosen, what, why ? why : "unknown");
    }
    for (int i = 0; names[i] && !*handle; i++)
        *handle = open_named(names[i], path, room);
    if (!*handle)
        *handle = search_packages(pattern, path, room);
    return *handle ? 0
                   : fail(err, SAMITE_INPUT,
                          "%s was not found: install it%s%s%s, or give the path of its library, or set %s", what,
                          strchr(what, ' ') ? "" : " (pip install ", strchr(what, ' ') ? "" : what,
                          strchr(what, ' ') ? "" : ")", env);
}
