/* ascend.c - .om models on an Ascend NPU through its runtime, loaded at run time. Outputs stay on the device as well,
 * so that a picture's features are not sent back for every prompt. */
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/ascend_api.h"
#include "runtime/engine.h"

enum { MOST_VALUES = 32 };

typedef struct ascend_engine {
    engine        base;
    void         *handle, *context;
    acl_functions f;
    int32_t       device;
    bool          initialised, device_set;
    char          library[512];
    uint64_t      last_resident;
    struct ascend_part *parts;    /* all that are loaded */
    pthread_mutex_t lock;         /* one part runs at a time */
} ascend_engine;

/* A piece of device memory; `resident`: the number under which it may be asked for as an input, 0: none. */
typedef struct device_memory {
    void    *at;
    size_t   size;
    uint64_t resident;
} device_memory;

typedef struct ascend_part {
    engine_part   base;
    uint32_t      id;
    void         *desc;
    size_t        inputs, outputs;
    device_memory in[MOST_VALUES], out[MOST_VALUES];
    char         *path;
    struct ascend_part *next;
} ascend_part;

/* ---- errors ---- */

static int check(const ascend_engine *a, int code, const char *function, const char *what, samite_error *err)
{
    if (!code)
        return 0;
    const char *more = a->f.aclGetRecentErrMsg();
    return fail(err, code == 200000 || code == 207001 || code == 245000 ? SAMITE_RESOURCE : SAMITE_INPUT,
                "Ascend: %s failed with %d (%s), %s%s%s", function, code, acl_hint(code), what,
                more && *more ? ": " : "", more ? more : "");
}

#define TRY(a, what, function, ...) check(a, (a)->f.function(__VA_ARGS__), #function, what, err)

/* ---- memory ---- */

static int reserve(ascend_engine *a, device_memory *m, size_t size, const char *what, samite_error *err)
{
    if (m->size >= size && m->at)
        return 0;
    if (m->at)
        a->f.aclrtFree(m->at);
    *m = (device_memory){NULL, 0, 0};
    int code = TRY(a, what, aclrtMalloc, &m->at, size ? size : 1, ACL_HUGE_FIRST);
    if (code)
        m->at = NULL;
    else
        m->size = size;
    return code;
}

static void release(ascend_engine *a, device_memory *m)
{
    if (m->at)
        a->f.aclrtFree(m->at);
    *m = (device_memory){NULL, 0, 0};
}

/* ---- parts ---- */

static void part_unload(engine_part *part)
{
    ascend_part *p = (ascend_part *)part;
    ascend_engine *a = (ascend_engine *)part->e;
    a->f.aclrtSetCurrentContext(a->context);
    for (int i = 0; i < MOST_VALUES; i++) {
        release(a, &p->in[i]);
        release(a, &p->out[i]);
    }
    a->f.aclmdlUnload(p->id);
    if (p->desc)
        a->f.aclmdlDestroyDesc(p->desc);
    for (ascend_part **q = &a->parts; *q; q = &(*q)->next)
        if (*q == p) {
            *q = p->next;
            break;
        }
    free(p->path);
    free(p);
}

/* PART.onnx stands for PART.om beside it. */
static char *model_path(const char *path)
{
    text t = {0};
    size_t n = strlen(path);
    text_add(&t, path, ends_with(path, ".onnx") ? n - 5 : n);
    if (!ends_with(path, ".om"))
        text_add(&t, ".om", 3);
    return t.data;
}

static int describe(ascend_engine *a, ascend_part *p, samite_error *err)
{
    p->desc = a->f.aclmdlCreateDesc();
    if (!p->desc)
        return fail(err, SAMITE_RESOURCE, "Ascend: no memory for the description of %s", p->path);
    int code = TRY(a, p->path, aclmdlGetDesc, p->desc, p->id);
    if (code)
        return code;
    p->inputs = a->f.aclmdlGetNumInputs(p->desc);
    p->outputs = a->f.aclmdlGetNumOutputs(p->desc);
    if (p->inputs > MOST_VALUES || p->outputs > MOST_VALUES)
        return fail(err, SAMITE_INPUT, "%s has %zu inputs and %zu outputs: at most %d are supported", p->path,
                    p->inputs, p->outputs, MOST_VALUES);
    return 0;
}

static int part_load(engine_part **out, engine *e, const char *path, samite_error *err)
{
    ascend_engine *a = (ascend_engine *)e;
    ascend_part *p = calloc(1, sizeof *p);
    if (!p || !(p->path = model_path(path))) {
        free(p);
        return fail(err, SAMITE_RESOURCE, "not enough memory to load %s", path);
    }
    p->base.e = e;
    int code = TRY(a, p->path, aclrtSetCurrentContext, a->context);
    if (!code)
        code = TRY(a, p->path, aclmdlLoadFromFile, p->path, &p->id);
    if (code) {
        free(p->path);
        free(p);
        return code;
    }
    p->next = a->parts;
    a->parts = p;
    if ((code = describe(a, p, err))) {
        part_unload(&p->base);
        return code;
    }
    *out = &p->base;
    return 0;
}

/* ---- inputs ---- */

/* Names may come as "node:index:name": the last part counts. */
static bool is_named(const char *name, const char *wanted)
{
    const char *colon = name ? strrchr(name, ':') : NULL;
    return name && !strcmp(colon ? colon + 1 : name, wanted);
}

static const engine_tensor *find_input(const ascend_part *p, size_t i, const engine_tensor *in, int inputs)
{
    const char *name = ((ascend_engine *)p->base.e)->f.aclmdlGetInputNameByIndex(p->desc, i);
    for (int k = 0; k < inputs; k++)
        if (is_named(name, in[k].name))
            return &in[k];
    return NULL;
}

/* A picture as the pre-processing on the chip (AIPP) takes it: 8-bit RGB, channels last. */
static void picture_bytes(uint8_t *out, const engine_tensor *t)
{
    int64_t pixels = t->dim[2] * t->dim[3];
    const float *x = t->data;
    for (int64_t i = 0; i < pixels; i++)
        for (int c = 0; c < 3; c++) {
            float v = (x[c * pixels + i] * 0.5f + 0.5f) * 255.0f + 0.5f;
            out[3 * i + c] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
}

/* The bytes as the model wants them: as they are, as f16, or as 8-bit picture. *owned: to be freed. */
static const void *converted(const engine_tensor *t, size_t wanted, void **owned)
{
    size_t count = (size_t)engine_count(t);
    bool picture = t->axes == 4 && t->dim[0] == 1 && t->dim[1] == 3 && t->type == DT_F32;
    *owned = NULL;
    if (wanted == engine_bytes(t))
        return t->data;
    if (t->type == DT_F32 && wanted == 2 * count) {
        if ((*owned = malloc(wanted)))
            dtype_from_f32(*owned, DT_F16, t->data, count);
    } else if (picture && wanted == count) {
        if ((*owned = malloc(wanted)))
            picture_bytes(*owned, t);
    }
    return *owned;
}

/* Device memory of another part's output with the same values, or NULL. */
static const device_memory *resident(const ascend_engine *a, const engine_tensor *t, size_t wanted)
{
    for (const ascend_part *p = t->resident ? a->parts : NULL; p; p = p->next)
        for (size_t i = 0; i < p->outputs; i++)
            if (p->out[i].resident == t->resident && p->out[i].size == wanted)
                return &p->out[i];
    return NULL;
}

static int give_input(ascend_part *p, size_t i, const engine_tensor *t, void **at, samite_error *err)
{
    ascend_engine *a = (ascend_engine *)p->base.e;
    size_t wanted = a->f.aclmdlGetInputSizeByIndex(p->desc, i);
    const device_memory *there = resident(a, t, wanted);
    void *owned = NULL;
    if (there) {
        *at = there->at;
        return 0;
    }
    const void *bytes = converted(t, wanted, &owned);
    if (!bytes)
        return fail(err, SAMITE_INPUT,
                    "%s wants %zu bytes for %s, and %zu were to be given: was it converted from this export, "
                    "with fixed shapes?",
                    p->path, wanted, t->name, engine_bytes(t));
    int code = reserve(a, &p->in[i], wanted, t->name, err);
    if (!code)
        code = TRY(a, t->name, aclrtMemcpy, p->in[i].at, wanted, bytes, wanted, ACL_TO_DEVICE);
    free(owned);
    *at = p->in[i].at;
    return code;
}

/* ---- data sets: buffers belong to them until free_set ---- */

typedef struct data_set {
    void  *set;
    void  *buffer[MOST_VALUES];
    size_t count;
} data_set;

static int add_buffer(ascend_engine *a, data_set *s, void *at, size_t size, const char *what, samite_error *err)
{
    void *b = a->f.aclCreateDataBuffer(at, size);
    if (!b)
        return fail(err, SAMITE_RESOURCE, "Ascend: no memory for the buffer of %s", what);
    s->buffer[s->count++] = b;
    return TRY(a, what, aclmdlAddDatasetBuffer, s->set, b);
}

static void free_set(ascend_engine *a, data_set *s)
{
    for (size_t i = 0; i < s->count; i++)
        a->f.aclDestroyDataBuffer(s->buffer[i]);
    if (s->set)
        a->f.aclmdlDestroyDataset(s->set);
}

static int make_inputs(ascend_part *p, data_set *s, const engine_tensor *in, int inputs, samite_error *err)
{
    ascend_engine *a = (ascend_engine *)p->base.e;
    int code = 0;
    if (!(s->set = a->f.aclmdlCreateDataset()))
        return fail(err, SAMITE_RESOURCE, "Ascend: no memory for the inputs of %s", p->path);
    for (size_t i = 0; i < p->inputs && !code; i++) {
        const engine_tensor *t = find_input(p, i, in, inputs);
        void *at = NULL;
        if (!t)
            return fail(err, SAMITE_INPUT,
                        "%s has an input %s, which nothing is known of: it is no part of this export", p->path,
                        a->f.aclmdlGetInputNameByIndex(p->desc, i));
        code = give_input(p, i, t, &at, err);
        if (!code)
            code = add_buffer(a, s, at, a->f.aclmdlGetInputSizeByIndex(p->desc, i), t->name, err);
    }
    return code;
}

/* An output of unknown size (0) gets its memory from the runtime while the model runs. */
static int make_outputs(ascend_part *p, data_set *s, samite_error *err)
{
    ascend_engine *a = (ascend_engine *)p->base.e;
    int code = 0;
    if (!(s->set = a->f.aclmdlCreateDataset()))
        return fail(err, SAMITE_RESOURCE, "Ascend: no memory for the outputs of %s", p->path);
    for (size_t i = 0; i < p->outputs && !code; i++) {
        size_t size = a->f.aclmdlGetOutputSizeByIndex(p->desc, i);
        p->out[i].resident = 0;
        if (size)
            code = reserve(a, &p->out[i], size, p->path, err);
        else
            release(a, &p->out[i]);
        if (!code)
            code = add_buffer(a, s, p->out[i].at, size, p->path, err);
    }
    return code;
}

/* ---- outputs ---- */

typedef struct shape {
    int     axes;
    int64_t dim[ENGINE_AXES];
    size_t  count;
} shape;

static int shape_of(ascend_part *p, const data_set *s, size_t i, shape *out, samite_error *err)
{
    ascend_engine *a = (ascend_engine *)p->base.e;
    void *real = a->f.aclmdlGetOutputSizeByIndex(p->desc, i) ? NULL : a->f.aclmdlGetDatasetTensorDesc(s->set, i);
    acl_dims dims = {.count = 0};
    int code = 0;
    if (real) {
        dims.count = a->f.aclGetTensorDescNumDims(real);
        for (size_t k = 0; k < dims.count && k < ENGINE_AXES && !code; k++)
            code = TRY(a, p->path, aclGetTensorDescDimV2, real, k, &dims.dim[k]);
    } else {
        code = TRY(a, p->path, aclmdlGetOutputDims, p->desc, i, &dims);
    }
    if (code)
        return code;
    if (dims.count > ENGINE_AXES)
        return fail(err, SAMITE_INPUT, "an output of %s has %zu axes", p->path, dims.count);
    *out = (shape){.axes = (int)dims.count, .count = 1};
    for (size_t k = 0; k < dims.count; k++) {
        if (dims.dim[k] < 1 || out->count > INT_MAX / (size_t)dims.dim[k])
            return fail(err, SAMITE_INPUT, "an output of %s has the size %lld along an axis", p->path,
                        (long long)dims.dim[k]);
        out->dim[k] = dims.dim[k];
        out->count *= (size_t)dims.dim[k];
    }
    return 0;
}

/* Copies an output to the host as f32. */
static int take_output(ascend_part *p, const data_set *s, size_t i, engine_tensor *t, samite_error *err)
{
    ascend_engine *a = (ascend_engine *)p->base.e;
    int type = a->f.aclmdlGetOutputDataType(p->desc, i);
    size_t each = type == ACL_FLOAT ? 4 : type == ACL_FLOAT16 ? 2 : 0;
    shape form;
    int code = shape_of(p, s, i, &form, err);
    if (!code && !each)
        code = fail(err, SAMITE_INPUT, "output %s of %s is neither f32 nor f16", t->name, p->path);
    if (!code)
        code = engine_make(t, DT_F32, form.axes, form.dim, err);
    if (code)
        return code;
    if (p->out[i].size < form.count * each)
        return fail(err, SAMITE_INPUT, "output %s of %s has %zu bytes, less than its shape needs", t->name, p->path,
                    p->out[i].size);
    /* f16 lands in the upper half of the buffer and is widened from its start on. */
    char *to = (char *)t->data + (4 - each) * form.count;
    code = TRY(a, t->name, aclrtMemcpy, to, form.count * each, p->out[i].at, form.count * each, ACL_TO_HOST);
    if (!code && each == 2)
        dtype_to_f32(t->data, to, DT_F16, form.count);
    p->out[i].resident = t->resident = ++a->last_resident;
    return code;
}

/* Memory that the runtime took for an output of unknown size becomes ours. */
static void adopt_outputs(ascend_part *p, const data_set *s)
{
    ascend_engine *a = (ascend_engine *)p->base.e;
    for (size_t i = 0; i < s->count; i++) {
        if (p->out[i].at)
            continue;
        void *desc = a->f.aclmdlGetDatasetTensorDesc(s->set, i);
        p->out[i].at = a->f.aclGetDataBufferAddr(s->buffer[i]);
        p->out[i].size = p->out[i].at && desc ? a->f.aclGetTensorDescSize(desc) : 0;
    }
}

static int take_outputs(ascend_part *p, const data_set *s, engine_tensor *out, int outputs, samite_error *err)
{
    ascend_engine *a = (ascend_engine *)p->base.e;
    int code = 0;
    for (int k = 0; k < outputs && !code; k++) {
        size_t i = 0;
        while (i < p->outputs && !is_named(a->f.aclmdlGetOutputNameByIndex(p->desc, i), out[k].name))
            i++;
        code = i < p->outputs
                   ? take_output(p, s, i, &out[k], err)
                   : fail(err, SAMITE_INPUT, "%s has no output %s: it is no part of this export", p->path, out[k].name);
    }
    return code;
}

static int part_run(engine_part *part, const engine_tensor *in, int inputs, engine_tensor *out, int outputs,
                    samite_error *err)
{
    ascend_part *p = (ascend_part *)part;
    ascend_engine *a = (ascend_engine *)part->e;
    data_set given = {.set = NULL}, made = {.set = NULL};
    pthread_mutex_lock(&a->lock);
    int code = TRY(a, p->path, aclrtSetCurrentContext, a->context);
    if (!code)
        code = make_inputs(p, &given, in, inputs, err);
    if (!code)
        code = make_outputs(p, &made, err);
    if (!code)
        code = TRY(a, p->path, aclmdlExecute, p->id, given.set, made.set);
    if (!code) {
        adopt_outputs(p, &made);
        code = take_outputs(p, &made, out, outputs, err);
    }
    free_set(a, &made);
    free_set(a, &given);
    pthread_mutex_unlock(&a->lock);
    return code;
}

/* ---- the engine ---- */

static void ascend_close(engine *e)
{
    ascend_engine *a = (ascend_engine *)e;
    if (a->context)
        a->f.aclrtDestroyContext(a->context);
    if (a->device_set)
        a->f.aclrtResetDevice(a->device);
    if (a->initialised)
        a->f.aclFinalize();
    pthread_mutex_destroy(&a->lock);
    free(a);
}

static int start(ascend_engine *a, samite_error *err)
{
    char what[64];
    uint32_t count = 0;
    snprintf(what, sizeof what, "device %d", a->device);
    int code = acl_find(&a->f, a->handle, a->library, err);
    if (code)
        return code;
    code = a->f.aclInit(NULL);
    if (code && code != ACL_REPEAT_INITIALIZE)
        return check(a, code, "aclInit", "at the start", err);
    a->initialised = code == 0;
    if ((code = TRY(a, what, aclrtGetDeviceCount, &count)))
        return code;
    if (a->device < 0 || (uint32_t)a->device >= count)
        return fail(err, SAMITE_INPUT, "Ascend: there is no device %d, only %u: see npu-smi info", a->device, count);
    if ((code = TRY(a, what, aclrtSetDevice, a->device)))
        return code;
    a->device_set = true;
    return TRY(a, what, aclrtCreateContext, &a->context, a->device);
}

static const engine_driver driver = {"ascend", part_load, part_run, part_unload, ascend_close};

int ascend_open(engine **out, const char *device, const engine_options *e, samite_error *err)
{
    const char *home = getenv("ASCEND_TOOLKIT_HOME");
    char at_home[512];
    snprintf(at_home, sizeof at_home, "%s/lib64/libascendcl.so",
             home ? home : "/usr/local/Ascend/ascend-toolkit/latest");
    const char *const names[] = {"libascendcl.so", at_home, NULL};
    ascend_engine *a = calloc(1, sizeof *a);
    char *end = NULL;
    *out = NULL;
    if (!a)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the Ascend engine");
    a->base.driver = &driver;
    pthread_mutex_init(&a->lock, NULL);
    a->device = (int32_t)strtol(device, &end, 10);
    int code = *device && *end ? fail(err, SAMITE_USAGE, "ascend:%s: expected the number of a device", device) : 0;
    if (!code)
        code = engine_library(&a->handle, a->library, sizeof a->library, e->library, "SAMITE_ASCENDCL", names,
                              "ascendcl/libascendcl.so", "the Ascend runtime (CANN)", err);
    if (!code)
        code = start(a, err);
    if (code) {
        ascend_close(&a->base);
        return code;
    }
    *out = &a->base;
    return 0;
}
