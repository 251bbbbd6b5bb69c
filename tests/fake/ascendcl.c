/* ascendcl.c - a stand-in for the Ascend runtime on the host: keeps account of everything, and lets our own network
 * compute.
 *
 * An .om file of it holds one line, "MODEL PART [open]": the model to open, the part to be, and whether its outputs
 * have an unknown size (0). FAKE_ACL_FAIL="FUNCTION CODE [N]" lets the N-th call of a function fail. What is wrong in
 * the order of calls, and what is left over at the end, goes to the file FAKE_ACL_REPORT.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/ascend_api.h"
#include "runtime/engine.h"
#include "runtime/native.h"

#define EXPORT __attribute__((visibility("default")))
enum { MOST = 32, ERROR = 500001, INVALID = 100000 };

static struct {
    int  initialised, device, context, current;
    int  memory, models, descriptions, sets, buffers, tensors;    /* alive */
    int  calls_to_fail, to_device;
    char complaints[2048];
} state;

typedef struct fake_model {
    native      *n;
    engine      *e;
    engine_part *part;
    int          open, inputs, outputs;
    engine_tensor in[MOST], out[MOST];
} fake_model;

static fake_model models[8];

typedef struct fake_buffer { void *data; size_t size; } fake_buffer;
typedef struct fake_tensor { size_t axes, bytes; int64_t dim[8]; } fake_tensor;
typedef struct fake_set { fake_buffer *buffer[MOST]; fake_tensor *tensor[MOST]; size_t count; } fake_set;

static void complain(const char *format, ...)
{
    size_t n = strlen(state.complaints);
    va_list list;
    va_start(list, format);
    vsnprintf(state.complaints + n, sizeof state.complaints - n, format, list);
    va_end(list);
}

/* The code that a call shall return: 0, or the one asked for. */
static int fate(const char *function, int needs_context)
{
    char name[64];
    int code, nth = 1;
    const char *wish = getenv("FAKE_ACL_FAIL");
    static char last[128];
    if (wish && strcmp(wish, last) != 0) {
        snprintf(last, sizeof last, "%s", wish);
        state.calls_to_fail = 0;
    }
    if (needs_context && !state.current)
        complain("%s without a context\n", function);
    if (wish && sscanf(wish, "%63s %d %d", name, &code, &nth) >= 2 && !strcmp(name, function) &&
        ++state.calls_to_fail == nth)
        return code;
    return 0;
}

static int64_t known(const char *name, const config *c, int64_t *dim, int *axes)
{
    int64_t t = config_tokens(c), d = c->d, s = c->image, q = c->queries, n = c->context, l = c->dec_layers;
    const struct { const char *name; int axes; int64_t dim[4];
    } all[] = {{"image", 4, {1, 3, s, s}},
               {"token_ids", 2, {1, n}},
               {"vision_features", 4, {1, d, t, t}},
               {"vision_pos_enc_0", 4, {1, d, 4 * t, 4 * t}},
               {"vision_pos_enc_1", 4, {1, d, 2 * t, 2 * t}},
               {"vision_pos_enc_2", 4, {1, d, t, t}},
               {"backbone_fpn_0", 4, {1, d, 4 * t, 4 * t}},
               {"backbone_fpn_1", 4, {1, d, 2 * t, 2 * t}},
               {"backbone_fpn_2", 4, {1, d, t, t}},
               {"text_attention_mask", 2, {1, n}},
               {"text_attention_mask_float", 2, {1, n}},
               {"text_memory_resized", 3, {n, 1, d}},
               {"pred_logits", 4, {l, 1, q, 1}},
               {"pred_boxes", 4, {l, 1, q, 4}},
               {"pred_masks", 4, {1, q, 4 * t, 4 * t}},
               {"presence_logit_dec", 3, {l, 1, 1}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) {
            *axes = all[i].axes;
            memcpy(dim, all[i].dim, sizeof all[i].dim);
            return 1;
        }
    return 0;
}

static int add_names(engine_tensor *t, const char *const *names, const config *c)
{
    int n = 0;
    for (; names[n]; n++) {
        t[n] = (engine_tensor){.name = names[n], .type = !strcmp(names[n], "token_ids") ? DT_I64 : DT_F32};
        known(names[n], c, t[n].dim, &t[n].axes);
    }
    return n;
}

static int set_up(fake_model *m, const char *part)
{
    static const char *const image_out[] = {
        "vision_features", "vision_pos_enc_0", "vision_pos_enc_1", "vision_pos_enc_2",
        "backbone_fpn_0",  "backbone_fpn_1",   "backbone_fpn_2",   NULL};
    static const char *const head_in[] = {"text_memory_resized", "backbone_fpn_1", "backbone_fpn_0", "backbone_fpn_2",
                                          "vision_pos_enc_2", "text_attention_mask_float", NULL};
    static const char *const head_out[] = {"pred_logits", "pred_boxes", "pred_masks", "presence_logit_dec", NULL};
    static const char *const one[][2] = {{"image", NULL}, {"token_ids", NULL}};
    static const char *const text_out[] = {"text_memory_resized", "text_attention_mask", NULL};
    const config *c = &m->n->net->c;
    int image = !strcmp(part, "image_encoder"), head = !strcmp(part, "grounding_head");
    m->inputs = add_names(m->in, head ? head_in : one[!image], c);
    m->outputs = add_names(m->out, head ? head_out : image ? image_out : text_out, c);
    return engine_load(&m->part, m->e, part, NULL);
}

/* ---- start and end ---- */

EXPORT int aclInit(const char *config)
{
    int code = fate("aclInit", 0);
    if (code)
        return code;
    return state.initialised++ ? ACL_REPEAT_INITIALIZE : 0;
}

EXPORT int aclFinalize(void)
{
    const char *path = getenv("FAKE_ACL_REPORT");
    if (state.context || state.device || state.memory || state.models || state.descriptions || state.sets ||
        state.buffers)
        complain("left over: %d contexts, %d devices, %d blocks, %d models, %d descriptions, %d sets, %d buffers\n",
                 state.context, state.device, state.memory, state.models, state.descriptions, state.sets,
                 state.buffers);
    if (!state.initialised)
        complain("aclFinalize twice\n");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (f) {
        fprintf(f, "%sto device: %d\n", state.complaints, state.to_device);
        fclose(f);
    }
    memset(&state, 0, sizeof state);
    return 0;
}

EXPORT int aclrtGetDeviceCount(uint32_t *count)
{
    *count = 2;
    return fate("aclrtGetDeviceCount", 0);
}

EXPORT int aclrtSetDevice(int32_t device)
{
    int code = fate("aclrtSetDevice", 0);
    if (!state.initialised)
        complain("aclrtSetDevice before aclInit\n");
    state.device += !code;
    return code;
}

EXPORT int aclrtResetDevice(int32_t device)
{
    state.device--;
    return 0;
}

EXPORT int aclrtCreateContext(void **context, int32_t device)
{
    int code = fate("aclrtCreateContext", 0);
    if (!state.device)
        complain("aclrtCreateContext before aclrtSetDevice\n");
    *context = code ? NULL : &state;
    state.context += !code;
    state.current = !code;
    return code;
}

EXPORT int aclrtDestroyContext(void *context)
{
    state.context--;
    state.current = 0;
    return 0;
}

EXPORT int aclrtSetCurrentContext(void *context)
{
    state.current = context != NULL;
    return fate("aclrtSetCurrentContext", 0);
}

EXPORT const char *aclrtGetSocName(void)
{
    return "Ascend310P3";
}

EXPORT const char *aclGetRecentErrMsg(void)
{
    return "told by the stand-in";
}

/* ---- memory ---- */

EXPORT int aclrtMalloc(void **at, size_t size, int policy)
{
    int code = fate("aclrtMalloc", 1);
    *at = code ? NULL : malloc(size);
    state.memory += *at != NULL;
    return code;
}

EXPORT int aclrtFree(void *at)
{
    if (!at)
        complain("aclrtFree of nothing\n");
    state.memory -= at != NULL;
    free(at);
    return 0;
}

EXPORT int aclrtMemcpy(void *to, size_t room, const void *from, size_t count, int kind)
{
    int code = fate("aclrtMemcpy", 1);
    if (count > room)
        complain("aclrtMemcpy of %zu bytes into %zu\n", count, room);
    else if (!code)
        memcpy(to, from, count);
    state.to_device += kind == ACL_TO_DEVICE;
    return code;
}

/* ---- models ---- */

EXPORT int aclmdlLoadFromFile(const char *path, uint32_t *id)
{
    char spec[128], part[64], kind[16] = "";
    int code = fate("aclmdlLoadFromFile", 1);
    FILE *f = fopen(path, "r");
    if (!f)
        return 100003;
    int got = fscanf(f, "%127s %63s %15s", spec, part, kind);
    fclose(f);
    if (code || got < 2)
        return code ? code : 100012;
    for (uint32_t i = 0; i < 8; i++) {
        fake_model *m = &models[i];
        if (m->n)
            continue;
        *m = (fake_model){.open = !strcmp(kind, "open")};
        if (native_open(&m->n, spec, &(native_options){0}, NULL) || native_engine_open(&m->e, m->n, NULL) ||
            set_up(m, part))
            return 545001;
        *id = i;
        state.models++;
        return 0;
    }
    return ERROR;
}

EXPORT int aclmdlUnload(uint32_t id)
{
    engine_unload(models[id].part);
    engine_close(models[id].e);
    native_close(models[id].n);
    models[id].n = NULL;
    state.models--;
    return fate("aclmdlUnload", 1);
}

EXPORT void *aclmdlCreateDesc(void)
{
    state.descriptions++;
    return calloc(1, sizeof(fake_model *));
}

EXPORT int aclmdlDestroyDesc(void *desc)
{
    state.descriptions--;
    free(desc);
    return 0;
}

EXPORT int aclmdlGetDesc(void *desc, uint32_t id)
{
    *(fake_model **)desc = &models[id];
    return fate("aclmdlGetDesc", 1);
}

static const fake_model *of(const void *desc)
{
    return *(fake_model *const *)desc;
}

EXPORT size_t aclmdlGetNumInputs(void *desc)
{
    return (size_t)of(desc)->inputs;
}

EXPORT size_t aclmdlGetNumOutputs(void *desc)
{
    return (size_t)of(desc)->outputs;
}

EXPORT size_t aclmdlGetInputSizeByIndex(void *desc, size_t i)
{
    return engine_bytes(&of(desc)->in[i]);
}

EXPORT size_t aclmdlGetOutputSizeByIndex(void *desc, size_t i)
{
    return of(desc)->open ? 0 : engine_bytes(&of(desc)->out[i]);
}

EXPORT const char *aclmdlGetInputNameByIndex(const void *desc, size_t i)
{
    return of(desc)->in[i].name;
}

EXPORT const char *aclmdlGetOutputNameByIndex(const void *desc, size_t i)
{
    static char name[128];
    snprintf(name, sizeof name, "Node_%zu:0:%s", i, of(desc)->out[i].name);
    return name;
}

EXPORT int aclmdlGetOutputDims(const void *desc, size_t i, acl_dims *dims)
{
    const engine_tensor *t = &of(desc)->out[i];
    dims->count = (size_t)t->axes;
    for (int k = 0; k < t->axes; k++)
        dims->dim[k] = of(desc)->open ? -1 : t->dim[k];
    return fate("aclmdlGetOutputDims", 0);
}

EXPORT int aclmdlGetOutputDataType(const void *desc, size_t i)
{
    return ACL_FLOAT;
}

/* ---- data sets ---- */

EXPORT void *aclmdlCreateDataset(void)
{
    state.sets++;
    return calloc(1, sizeof(fake_set));
}

EXPORT int aclmdlDestroyDataset(const void *set)
{
    const fake_set *s = set;
    for (size_t i = 0; i < s->count; i++)
        free(s->tensor[i]);
    state.sets--;
    free((void *)(uintptr_t)set);
    return 0;
}

EXPORT void *aclCreateDataBuffer(void *data, size_t size)
{
    fake_buffer *b = malloc(sizeof *b);
    *b = (fake_buffer){data, size};
    state.buffers++;
    return b;
}

EXPORT int aclDestroyDataBuffer(const void *buffer)
{
    state.buffers--;
    free((void *)(uintptr_t)buffer);
    return 0;
}

EXPORT void *aclGetDataBufferAddr(const void *buffer)
{
    return ((const fake_buffer *)buffer)->data;
}

EXPORT int aclmdlAddDatasetBuffer(void *set, void *buffer)
{
    fake_set *s = set;
    s->buffer[s->count++] = buffer;
    return fate("aclmdlAddDatasetBuffer", 0);
}

EXPORT void *aclmdlGetDatasetTensorDesc(const void *set, size_t i)
{
    return ((const fake_set *)set)->tensor[i];
}

EXPORT size_t aclGetTensorDescSize(const void *desc)
{
    return ((const fake_tensor *)desc)->bytes;
}

EXPORT size_t aclGetTensorDescNumDims(const void *desc)
{
    return ((const fake_tensor *)desc)->axes;
}

EXPORT int aclGetTensorDescDimV2(const void *desc, size_t i, int64_t *dim)
{
    *dim = ((const fake_tensor *)desc)->dim[i];
    return 0;
}

/* An output without memory gets some, which then belongs to the caller. */
static int give_back(fake_set *s, size_t i, const engine_tensor *t)
{
    fake_buffer *b = s->buffer[i];
    fake_tensor *d = calloc(1, sizeof *d);
    *d = (fake_tensor){.axes = (size_t)t->axes, .bytes = engine_bytes(t)};
    memcpy(d->dim, t->dim, sizeof d->dim);
    s->tensor[i] = d;
    if (!b->data) {
        b->data = malloc(engine_bytes(t));
        b->size = engine_bytes(t);
        state.memory++;
    }
    if (b->size < engine_bytes(t))
        return 145006;
    memcpy(b->data, t->data, engine_bytes(t));
    return 0;
}

EXPORT int aclmdlExecute(uint32_t id, const void *in, void *out)
{
    fake_model *m = &models[id];
    const fake_set *given = in;
    fake_set *made = out;
    int code = fate("aclmdlExecute", 1);
    if (code)
        return code;
    if (given->count != (size_t)m->inputs || made->count != (size_t)m->outputs)
        return 100017;
    for (int i = 0; i < m->inputs; i++) {
        if (given->buffer[i]->size != engine_bytes(&m->in[i]))
            return 145006;
        m->in[i].data = given->buffer[i]->data;
    }
    if (engine_run(m->part, m->in, m->inputs, m->out, m->outputs, NULL))
        return 507011;
    for (int i = 0; i < m->outputs && !code; i++)
        code = give_back(made, (size_t)i, &m->out[i]);
    for (int i = 0; i < m->outputs; i++)
        engine_tensor_free(&m->out[i]);
    return code;
}
