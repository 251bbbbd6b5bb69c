/* onnxruntime.c - ONNX Runtime, loaded at run time; its functions are known by their places in its table. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "formats/onnx.h"
#include "runtime/engine.h"

#define API_VERSION 17

/* Places in the table; functions are only ever added at its end. */
enum {
    GET_ERROR_MESSAGE = 2,
    CREATE_ENV = 3,
    CREATE_SESSION = 7,
    RUN_SESSION = 9,
    CREATE_SESSION_OPTIONS = 10,
    SET_OPTIMIZATION = 23,
    SET_THREADS = 24,
    CREATE_TENSOR = 49,
    TENSOR_DATA = 51,
    ELEMENT_TYPE = 60,
    AXES_COUNT = 61,
    DIMENSIONS = 62,
    TYPE_AND_SHAPE = 65,
    CPU_MEMORY = 69,
    RELEASE_ENV = 92,
    RELEASE_STATUS = 93,
    RELEASE_MEMORY = 94,
    RELEASE_SESSION = 95,
    RELEASE_VALUE = 96,
    RELEASE_SHAPE = 99,
    RELEASE_OPTIONS = 100,
    PROVIDERS = 125,
    RELEASE_PROVIDERS = 126,
    TENSORRT_V2 = 170,
    TENSORRT_CREATE = 171,
    TENSORRT_UPDATE = 172,
    TENSORRT_RELEASE = 174,
    CUDA_V2 = 204,
    CUDA_CREATE = 205,
    CUDA_UPDATE = 206,
    CUDA_RELEASE = 208,
    APPEND = 216,
    CANN = 220,
    CANN_CREATE = 221,
    CANN_UPDATE = 222,
    CANN_RELEASE = 224
};

typedef void (*ort_fn)(void);

typedef struct ort_base {
    const ort_fn *(*api)(uint32_t version);
    const char   *(*version)(void);
} ort_base;

typedef struct ort_engine {
    engine        base;
    void         *handle;
    const ort_fn *api;
    void         *env, *memory, *options;
    char          library[512], version[32], provider[40];
} ort_engine;

typedef struct ort_part {
    engine_part base;
    void       *session;
    char       *path;
} ort_part;

/* Calls by place: every function of the table that can fail returns NULL or a status. */
#define CALL(o, place, types, ...) ((void *(*)types)(o)->api[place])(__VA_ARGS__)
#define RELEASE(o, place, object) ((void (*)(void *))(o)->api[place])(object)

/* Turns a status into an error; 0 for NULL. */
static int check(const ort_engine *o, void *status, const char *doing, const char *what, int code, samite_error *err)
{
    if (!status)
        return 0;
    const char *text = ((const char *(*)(const void *))o->api[GET_ERROR_MESSAGE])(status);
    fail(err, code, "ONNX Runtime %s, %s %s: %s", o->version, doing, what, text ? text : "no reason given");
    RELEASE(o, RELEASE_STATUS, status);
    return code;
}

/* ---- providers ---- */

static const struct {
    const char *name, *full;       /* as asked for; as ONNX Runtime calls it */
    int append, create, update, release;   /* places; create 0: by name */
} providers[] = {
    {"cuda", "CUDAExecutionProvider", CUDA_V2, CUDA_CREATE, CUDA_UPDATE, CUDA_RELEASE},
    {"tensorrt", "TensorrtExecutionProvider", TENSORRT_V2, TENSORRT_CREATE, TENSORRT_UPDATE, TENSORRT_RELEASE},
    {"cann", "CANNExecutionProvider", CANN, CANN_CREATE, CANN_UPDATE, CANN_RELEASE},
    {"openvino", "OpenVINOExecutionProvider", 0, 0, 0, 0},
    {"coreml", "CoreMLExecutionProvider", 0, 0, 0, 0},
    {"dml", "DmlExecutionProvider", 0, 0, 0, 0},
    {"xnnpack", "XnnpackExecutionProvider", 0, 0, 0, 0},
};
#define PROVIDERS_KNOWN (sizeof providers / sizeof *providers)

static int check_available(ort_engine *o, const char *full, samite_error *err)
{
    char **names = NULL;
    int count = 0, found = 0;
    text list = {0};
    int code =
        check(o, CALL(o, PROVIDERS, (char ***, int *), &names, &count), "listing", "providers", SAMITE_FAILED, err);
    if (code)
        return code;
    for (int i = 0; i < count; i++) {
        found |= !strcmp(names[i], full);
        text_printf(&list, "%s%s", i ? ", " : "", names[i]);
    }
    if (!found)
        code = fail(err, SAMITE_INPUT, "%s (ONNX Runtime %s) has no %s, only %s; install a build that has it",
                    o->library, o->version, full, list.data ? list.data : "none");
    CALL(o, RELEASE_PROVIDERS, (char **, int), names, count);
    text_free(&list);
    return code;
}

/* "key=value" strings taken apart; yours to free with free_pairs. */
static char **pairs_of(const engine_options *e)
{
    char **out = calloc(2 * (size_t)e->settings + 1, sizeof *out);
    for (int i = 0; out && i < e->settings; i++) {
        const char *sign = strchr(e->setting[i], '=');
        out[i] = text_copy(e->setting[i]);
        out[e->settings + i] = text_copy(sign ? sign + 1 : "1");
        if (out[i] && sign)
            out[i][sign - e->setting[i]] = 0;
    }
    return out;
}

static void free_pairs(char **pairs, int count)
{
    for (int i = 0; pairs && i < 2 * count; i++)
        free(pairs[i]);
    free(pairs);
}

static int append_provider(ort_engine *o, size_t p, char **pairs, int count, samite_error *err)
{
    const char *const *keys = (const char *const *)pairs, *const *values = keys + count;
    void *settings = NULL;
    const char *name = providers[p].full;
    if (!providers[p].create) {
        char plain[32];
        static const char *const known[][2] = {{"openvino", "OpenVINO"}, {"coreml", "CoreML"}, {"dml", "DML"},
                                               {"xnnpack", "XNNPACK"}};
        snprintf(plain, sizeof plain, "%s", providers[p].name);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (!strcmp(known[i][0], providers[p].name))
                snprintf(plain, sizeof plain, "%s", known[i][1]);
        return check(o,
                     CALL(o, APPEND, (void *, const char *, const char *const *, const char *const *, size_t),
                          o->options, plain, keys, values, (size_t)count),
                     "adding", name, SAMITE_INPUT, err);
    }
    int code = check(o, CALL(o, providers[p].create, (void **), &settings), "adding", name, SAMITE_INPUT, err);
    if (!code && count)
        code = check(o,
                     CALL(o, providers[p].update, (void *, const char *const *, const char *const *, size_t), settings,
                          keys, values, (size_t)count),
                     "setting up", name, SAMITE_USAGE, err);
    if (!code)
        code = check(o, CALL(o, providers[p].append, (void *, const void *), o->options, settings), "adding", name,
                     SAMITE_INPUT, err);
    if (settings)
        RELEASE(o, providers[p].release, settings);
    return code;
}

static int choose_provider(ort_engine *o, const char *name, const engine_options *e, samite_error *err)
{
    if (!*name || !strcmp(name, "cpu"))
        return e->settings ? fail(err, SAMITE_USAGE, "the cpu provider of ONNX Runtime takes no settings") : 0;
    for (size_t p = 0; p < PROVIDERS_KNOWN; p++) {
        if (strcmp(providers[p].name, name) != 0)
            continue;
        int code = check_available(o, providers[p].full, err);
        if (code)
            return code;
        char **pairs = pairs_of(e);
        code = pairs ? append_provider(o, p, pairs, e->settings, err)
                     : fail(err, SAMITE_RESOURCE, "not enough memory for the settings of %s", name);
        free_pairs(pairs, e->settings);
        return code;
    }
    return fail(err, SAMITE_USAGE,
                "\"%s\" is no provider of ONNX Runtime: cpu, cuda, tensorrt, openvino, cann, coreml, dml, "
                "xnnpack",
                name);
}

/* ---- opening ---- */

static void ort_close(engine *e)
{
    ort_engine *o = (ort_engine *)e;
    if (o->api && o->options)
        RELEASE(o, RELEASE_OPTIONS, o->options);
    if (o->api && o->memory)
        RELEASE(o, RELEASE_MEMORY, o->memory);
    if (o->api && o->env)
        RELEASE(o, RELEASE_ENV, o->env);
    /* The library stays loaded: its threads and thread-local destructors outlive what we can see. */
    free(o);
}

static int find_api(ort_engine *o, samite_error *err)
{
    ort_base *(*get)(void) = NULL;
    void *symbol = dlsym(o->handle, "OrtGetApiBase");
    memcpy(&get, &symbol, sizeof get);
    if (!get)
        return fail(err, SAMITE_INPUT, "%s is no ONNX Runtime: it has no OrtGetApiBase", o->library);
    const ort_base *base = get();
    snprintf(o->version, sizeof o->version, "%s", base->version());
    int major = 0, minor = 0;
    if (sscanf(o->version, "%d.%d", &major, &minor) != 2 || (major == 1 && minor < API_VERSION))
        return fail(err, SAMITE_INPUT, "%s is ONNX Runtime %s: 1.%d or newer is needed", o->library, o->version,
                    API_VERSION);
    o->api = base->api(API_VERSION);
    return o->api ? 0 : fail(err, SAMITE_INPUT, "%s (ONNX Runtime %s) no longer speaks version %d of its interface",
                             o->library, o->version, API_VERSION);
}

static int set_up(ort_engine *o, const char *provider, const engine_options *e, samite_error *err)
{
    enum { WARNING = 2, ALL_OPTIMIZATIONS = 99, ARENA = 1, DEFAULT_MEMORY = 0 };
    int code = find_api(o, err);
    if (code)
        return code;
    code = check(o, CALL(o, CREATE_ENV, (int, const char *, void **), WARNING + 1, "samite", &o->env), "starting", "",
                 SAMITE_FAILED, err);
    if (!code)
        code = check(o, CALL(o, CREATE_SESSION_OPTIONS, (void **), &o->options), "starting", "", SAMITE_FAILED, err);
    if (!code)
        code = check(o, CALL(o, CPU_MEMORY, (int, int, void **), ARENA, DEFAULT_MEMORY, &o->memory), "starting", "",
                     SAMITE_FAILED, err);
    if (!code)
        code = check(o, CALL(o, SET_OPTIMIZATION, (void *, int), o->options, ALL_OPTIMIZATIONS), "starting", "",
                     SAMITE_FAILED, err);
    if (!code && e->threads)
        code =
            check(o, CALL(o, SET_THREADS, (void *, int), o->options, e->threads), "starting", "", SAMITE_FAILED, err);
    return code ? code : choose_provider(o, provider, e, err);
}

/* ---- parts ---- */

static int ort_load(engine_part **out, engine *e, const char *path, samite_error *err)
{
    ort_engine *o = (ort_engine *)e;
    ort_part *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p || !(p->path = text_copy(path))) {
        free(p);
        return fail(err, SAMITE_RESOURCE, "not enough memory to load %s", path);
    }
    int code = check(
        o, CALL(o, CREATE_SESSION, (void *, const char *, void *, void **), o->env, path, o->options, &p->session),
        "loading", path, SAMITE_INPUT, err);
    if (code) {
        free(p->path);
        free(p);
        return code;
    }
    *out = &p->base;
    return 0;
}

static void ort_unload(engine_part *part)
{
    ort_part *p = (ort_part *)part;
    RELEASE((ort_engine *)part->e, RELEASE_SESSION, p->session);
    free(p->path);
    free(p);
}

static int give_input(ort_part *p, const engine_tensor *t, void **value, samite_error *err)
{
    ort_engine *o = (ort_engine *)p->base.e;
    return check(o,
                 CALL(o, CREATE_TENSOR, (void *, void *, size_t, const int64_t *, size_t, int, void **), o->memory,
                      t->data, engine_bytes(t), t->dim, (size_t)t->axes, onnx_type(t->type), value),
                 "giving", t->name, SAMITE_FAILED, err);
}

static int read_shape(ort_engine *o, void *shape, engine_tensor *t, samite_error *err)
{
    size_t axes = 0;
    int type = 0;
    int64_t dim[ENGINE_AXES];
    dtype d;
    int code = check(o, CALL(o, AXES_COUNT, (void *, size_t *), shape, &axes), "reading", t->name, SAMITE_FAILED, err);
    if (!code && axes > ENGINE_AXES)
        code = fail(err, SAMITE_FAILED, "output %s has %zu axes: at most %d are supported", t->name, axes, ENGINE_AXES);
    if (!code)
        code = check(o, CALL(o, DIMENSIONS, (void *, int64_t *, size_t), shape, dim, axes), "reading", t->name,
                     SAMITE_FAILED, err);
    if (!code)
        code = check(o, CALL(o, ELEMENT_TYPE, (void *, int *), shape, &type), "reading", t->name, SAMITE_FAILED, err);
    if (!code && !onnx_type_back(&d, type))
        code = fail(err, SAMITE_FAILED, "output %s has elements of type %d, which is not supported", t->name, type);
    return code ? code : engine_make(t, d, (int)axes, dim, err);
}

static int take_output(ort_part *p, void *value, engine_tensor *t, samite_error *err)
{
    ort_engine *o = (ort_engine *)p->base.e;
    void *shape = NULL, *data = NULL;
    int code =
        check(o, CALL(o, TYPE_AND_SHAPE, (void *, void **), value, &shape), "reading", t->name, SAMITE_FAILED, err);
    if (!code)
        code = read_shape(o, shape, t, err);
    if (!code)
        code = check(o, CALL(o, TENSOR_DATA, (void *, void **), value, &data), "reading", t->name, SAMITE_FAILED, err);
    if (!code)
        memcpy(t->data, data, engine_bytes(t));
    if (shape)
        RELEASE(o, RELEASE_SHAPE, shape);
    return code;
}

enum { MOST_VALUES = 32 };

static int ort_run(engine_part *part, const engine_tensor *in, int inputs, engine_tensor *out, int outputs,
                   samite_error *err)
{
    ort_part *p = (ort_part *)part;
    ort_engine *o = (ort_engine *)part->e;
    const char *in_name[MOST_VALUES], *out_name[MOST_VALUES];
    void *given[MOST_VALUES] = {NULL}, *made[MOST_VALUES] = {NULL};
    int code =
        inputs > MOST_VALUES || outputs > MOST_VALUES ? fail(err, SAMITE_FAILED, "too many inputs or outputs") : 0;
    for (int i = 0; i < inputs && !code; i++) {
        in_name[i] = in[i].name;
        code = give_input(p, &in[i], &given[i], err);
    }
    for (int i = 0; i < outputs && !code; i++)
        out_name[i] = out[i].name;
    if (!code)
        code = check(
            o,
            CALL(o, RUN_SESSION,
                 (void *, void *, const char *const *, void *const *, size_t, const char *const *, size_t, void **),
                 p->session, NULL, in_name, given, (size_t)inputs, out_name, (size_t)outputs, made),
            "running", p->path, SAMITE_INPUT, err);
    for (int i = 0; i < outputs && !code; i++)
        code = take_output(p, made[i], &out[i], err);
    for (int i = 0; i < MOST_VALUES; i++) {
        if (given[i])
            RELEASE(o, RELEASE_VALUE, given[i]);
        if (made[i])
            RELEASE(o, RELEASE_VALUE, made[i]);
    }
    return code;
}

static const engine_driver driver = {"onnxruntime", ort_load, ort_run, ort_unload, ort_close};

int onnxruntime_open(engine **out, const char *provider, const engine_options *e, samite_error *err)
{
    static const char *const names[] = {"libonnxruntime.so.1", "libonnxruntime.so", NULL};
    ort_engine *o = calloc(1, sizeof *o);
    *out = NULL;
    if (!o)
        return fail(err, SAMITE_RESOURCE, "not enough memory for ONNX Runtime");
    o->base.driver = &driver;
    int code = engine_library(&o->handle, o->library, sizeof o->library, e->library, "SAMITE_ONNXRUNTIME", names,
                              "onnxruntime/capi/libonnxruntime.so.*", "onnxruntime", err);
    if (!code)
        code = set_up(o, provider, e, err);
    if (code) {
        ort_close(&o->base);
        return code;
    }
    snprintf(o->provider, sizeof o->provider, "%s", *provider ? provider : "cpu");
    *out = &o->base;
    return 0;
}
