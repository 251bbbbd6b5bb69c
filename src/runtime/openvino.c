/* openvino.c - OpenVINO through its C interface, loaded at run time. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/engine.h"

typedef struct ov_shape { int64_t rank, *dims; } ov_shape;

/* Its functions; element types are never named, since their numbers differ between versions. */
typedef struct ov_functions {
    int  (*core_create)(void **core);
    void (*core_free)(void *core);
    int  (*core_set_property)(const void *core, const char *device, ...);
    int  (*compile)(const void *core, const char *path, const char *device, size_t pairs, void **model, ...);
    void (*compiled_free)(void *model);
    int  (*request_create)(const void *model, void **request);
    void (*request_free)(void *request);
    int  (*get_tensor)(const void *request, const char *name, void **tensor);
    int  (*infer)(void *request);
    int  (*shape)(const void *tensor, ov_shape *shape);
    int  (*shape_free)(ov_shape *shape);
    int  (*set_shape)(void *tensor, ov_shape shape);
    int  (*bytes)(const void *tensor, size_t *bytes);
    int  (*data)(const void *tensor, void **data);
    void (*tensor_free)(void *tensor);
    const char *(*error_info)(int status);
    const char *(*last_error)(void);        /* may be missing */
} ov_functions;

typedef struct ov_engine {
    engine       base;
    void        *handle, *core;
    ov_functions f;
    char         library[512], device[64];
} ov_engine;

typedef struct ov_part {
    engine_part base;
    void       *model;
    char       *path;
} ov_part;

static int check(const ov_engine *o, int status, const char *doing, const char *what, int code, samite_error *err)
{
    if (!status)
        return 0;
    const char *text = o->f.last_error ? o->f.last_error() : NULL;
    if (!text || !*text)
        text = o->f.error_info(status);
    return fail(err, code, "OpenVINO, %s %s: %s", doing, what, text ? text : "no reason given");
}

static int find_functions(ov_engine *o, samite_error *err)
{
    struct { const char *name; void *at; bool needed;
    } table[] = {
        {"ov_core_create", &o->f.core_create, true},
        {"ov_core_free", &o->f.core_free, true},
        {"ov_core_set_property", &o->f.core_set_property, true},
        {"ov_core_compile_model_from_file", &o->f.compile, true},
        {"ov_compiled_model_free", &o->f.compiled_free, true},
        {"ov_compiled_model_create_infer_request", &o->f.request_create, true},
        {"ov_infer_request_free", &o->f.request_free, true},
        {"ov_infer_request_get_tensor", &o->f.get_tensor, true},
        {"ov_infer_request_infer", &o->f.infer, true},
        {"ov_tensor_get_shape", &o->f.shape, true},
        {"ov_shape_free", &o->f.shape_free, true},
        {"ov_tensor_set_shape", &o->f.set_shape, true},
        {"ov_tensor_get_byte_size", &o->f.bytes, true},
        {"ov_tensor_data", &o->f.data, true},
        {"ov_tensor_free", &o->f.tensor_free, true},
        {"ov_get_error_info", &o->f.error_info, true},
        {"ov_get_last_err_msg", &o->f.last_error, false},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        void *symbol = dlsym(o->handle, table[i].name);
        if (!symbol && table[i].needed)
            return fail(err, SAMITE_INPUT, "%s is no OpenVINO C library, or an old one: it has no %s", o->library,
                        table[i].name);
        memcpy(table[i].at, &symbol, sizeof symbol);
    }
    return 0;
}

static int set_property(ov_engine *o, const char *key, const char *value, samite_error *err)
{
    char what[256];
    snprintf(what, sizeof what, "%s=%s on %s", key, value, o->device);
    return check(o, o->f.core_set_property(o->core, o->device, key, value), "setting", what, SAMITE_USAGE, err);
}

/* f32 arithmetic unless the settings say otherwise: some CPUs would take bf16 by themselves. */
static int set_up(ov_engine *o, const engine_options *e, samite_error *err)
{
    char number[16];
    int code = find_functions(o, err);
    if (!code)
        code = check(o, o->f.core_create(&o->core), "starting", "", SAMITE_FAILED, err);
    bool cpu = !strcmp(o->device, "CPU");
    snprintf(number, sizeof number, "%d", e->threads);
    if (!code && cpu)
        code = set_property(o, "INFERENCE_PRECISION_HINT", "f32", err);
    if (!code && cpu && e->threads)
        code = set_property(o, "INFERENCE_NUM_THREADS", number, err);
    for (int i = 0; i < e->settings && !code; i++) {
        char key[128];
        const char *sign = strchr(e->setting[i], '=');
        snprintf(key, sizeof key, "%.*s", (int)(sign ? sign - e->setting[i] : (long)strlen(e->setting[i])),
                 e->setting[i]);
        code = set_property(o, key, sign ? sign + 1 : "YES", err);
    }
    return code;
}

static void ov_close(engine *e)
{
    ov_engine *o = (ov_engine *)e;
    if (o->core)
        o->f.core_free(o->core);
    free(o);      /* the library stays loaded: its threads outlive what we can see */
}

static int ov_load(engine_part **out, engine *e, const char *path, samite_error *err)
{
    ov_engine *o = (ov_engine *)e;
    ov_part *p = calloc(1, sizeof *p);
    if (!p || !(p->path = text_copy(path))) {
        free(p);
        return fail(err, SAMITE_RESOURCE, "not enough memory to load %s", path);
    }
    int code = check(o, o->f.compile(o->core, path, o->device, 0, &p->model), "loading", path, SAMITE_INPUT, err);
    if (code) {
        free(p->path);
        free(p);
        return code;
    }
    *out = &p->base;
    return 0;
}

static void ov_unload(engine_part *part)
{
    ov_part *p = (ov_part *)part;
    ((ov_engine *)part->e)->f.compiled_free(p->model);
    free(p->path);
    free(p);
}

static int give_input(ov_engine *o, void *request, const engine_tensor *t, samite_error *err)
{
    void *tensor = NULL, *data = NULL;
    size_t bytes = 0;
    int code = check(o, o->f.get_tensor(request, t->name, &tensor), "giving", t->name, SAMITE_FAILED, err);
    if (code)
        return code;
    int64_t dim[ENGINE_AXES];
    memcpy(dim, t->dim, sizeof dim);
    code = check(o, o->f.bytes(tensor, &bytes), "giving", t->name, SAMITE_FAILED, err);
    if (!code && !bytes) {         /* a free shape */
        code = check(o, o->f.set_shape(tensor, (ov_shape){t->axes, dim}), "giving", t->name, SAMITE_INPUT, err);
        if (!code)
            code = check(o, o->f.bytes(tensor, &bytes), "giving", t->name, SAMITE_FAILED, err);
    }
    if (!code && bytes != engine_bytes(t))
        code = fail(err, SAMITE_INPUT, "input %s: the part takes %zu bytes, %zu were to be given", t->name, bytes,
                    engine_bytes(t));
    if (!code)
        code = check(o, o->f.data(tensor, &data), "giving", t->name, SAMITE_FAILED, err);
    if (!code)
        memcpy(data, t->data, bytes);
    o->f.tensor_free(tensor);
    return code;
}

static int copy_output(ov_engine *o, void *tensor, engine_tensor *t, samite_error *err)
{
    ov_shape shape = {0, NULL};
    void *data = NULL;
    size_t bytes = 0;
    int64_t n = 1;
    int code = check(o, o->f.shape(tensor, &shape), "reading", t->name, SAMITE_FAILED, err);
    if (code)
        return code;
    for (int64_t i = 0; i < shape.rank; i++)
        n *= shape.dims[i];
    code = check(o, o->f.bytes(tensor, &bytes), "reading", t->name, SAMITE_FAILED, err);
    if (!code && (shape.rank > ENGINE_AXES || bytes != (size_t)n * sizeof(float)))
        code = fail(err, SAMITE_FAILED, "output %s is not f32, or has more than %d axes", t->name, ENGINE_AXES);
    if (!code)
        code = engine_make(t, DT_F32, (int)shape.rank, shape.dims, err);
    if (!code)
        code = check(o, o->f.data(tensor, &data), "reading", t->name, SAMITE_FAILED, err);
    if (!code)
        memcpy(t->data, data, bytes);
    o->f.shape_free(&shape);
    return code;
}

static int take_output(ov_engine *o, void *request, engine_tensor *t, samite_error *err)
{
    void *tensor = NULL;
    int code = check(o, o->f.get_tensor(request, t->name, &tensor), "reading", t->name, SAMITE_FAILED, err);
    if (code)
        return code;
    code = copy_output(o, tensor, t, err);
    o->f.tensor_free(tensor);
    return code;
}

static int ov_run(engine_part *part, const engine_tensor *in, int inputs, engine_tensor *out, int outputs,
                  samite_error *err)
{
    ov_engine *o = (ov_engine *)part->e;
    ov_part *p = (ov_part *)part;
    void *request = NULL;
    int code = check(o, o->f.request_create(p->model, &request), "running", p->path, SAMITE_RESOURCE, err);
    for (int i = 0; i < inputs && !code; i++)
        code = give_input(o, request, &in[i], err);
    if (!code)
        code = check(o, o->f.infer(request), "running", p->path, SAMITE_FAILED, err);
    for (int i = 0; i < outputs && !code; i++)
        code = take_output(o, request, &out[i], err);
    if (request)
        o->f.request_free(request);
    return code;
}

static const engine_driver driver = {"openvino", ov_load, ov_run, ov_unload, ov_close};

int openvino_open(engine **out, const char *device, const engine_options *e, samite_error *err)
{
    static const char *const names[] = {"libopenvino_c.so", NULL};
    ov_engine *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o)
        return fail(err, SAMITE_RESOURCE, "not enough memory for OpenVINO");
    o->base.driver = &driver;
    snprintf(o->device, sizeof o->device, "%s", *device ? device : "CPU");
    int code = engine_library(&o->handle, o->library, sizeof o->library, e->library, "SAMITE_OPENVINO", names,
                              "openvino/libs/libopenvino_c.so*", "openvino", err);
    if (!code)
        code = set_up(o, e, err);
    if (code) {
        ov_close(&o->base);
        return code;
    }
    *out = &o->base;
    return 0;
}
