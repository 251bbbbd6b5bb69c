/* onnx_reader.c - looks into an ONNX file and its data file without copying; every offset is checked. */
#include "formats/onnx.h"

#include <stdlib.h>
#include <string.h>

#include "formats/protobuf.h"

/* Lists grow one by one; counts are bounded by the size of the file. */
static void *add_item(void **list, size_t *count, size_t item)
{
    size_t n = *count;
    if ((n & (n - 1)) == 0) {
        void *more = realloc(*list, (n ? 2 * n : 1) * item);
        if (!more)
            return NULL;
        *list = more;
    }
    void *at = (char *)*list + n * item;
    memset(at, 0, item);
    ++*count;
    return at;
}

static onnx_name name_of(const pb_field *f)
{
    return f->wire == 2 ? (onnx_name){(const char *)f->data, f->size} : (onnx_name){"", 0};
}

bool onnx_is(onnx_name a, const char *s)
{
    return strlen(s) == a.n && !memcmp(a.s, s, a.n);
}

static uint64_t number_in(onnx_name s)
{
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.s[i] < '0' || s.s[i] > '9' || v > UINT64_MAX / 10 - 9)
            return UINT64_MAX;
        v = v * 10 + (uint64_t)(s.s[i] - '0');
    }
    return s.n ? v : UINT64_MAX;
}

typedef struct reading {
    onnx_file   *f;
    const char  *path;
    onnx_name    location;     /* of external data; all tensors must name the same file */
    samite_error *err;
} reading;

static int broken(const reading *r, const char *what)
{
    return fail(r->err, SAMITE_INPUT, "%s: %s", r->path, what);
}

static int no_memory(const reading *r)
{
    return fail(r->err, SAMITE_RESOURCE, "not enough memory to read %s", r->path);
}

static int broken_named(const reading *r, onnx_name n, const char *what)
{
    return fail(r->err, SAMITE_INPUT, "%s: %.*s %s", r->path, (int)(n.n < 200 ? n.n : 200), n.s, what);
}

/* ---- tensors ---- */

static bool bytes_of(const onnx_tensor_info *t, size_t *bytes)
{
    dtype d;
    uint64_t n = 1;
    if (!onnx_type_back(&d, t->type))
        return false;
    for (int i = 0; i < t->axes; i++) {
        if (t->dim[i] < 0 || (t->dim[i] && n > UINT64_MAX / 16 / (uint64_t)t->dim[i]))
            return false;
        n *= (uint64_t)t->dim[i];
    }
    *bytes = (size_t)n * dtype_size(d);
    return true;
}

static void read_entry(const pb_field *f, onnx_name *key, onnx_name *value)
{
    pb_reader r = pb_read(f->data, f->size);
    pb_field g;
    *key = *value = (onnx_name){"", 0};
    while (pb_next(&r, &g))
        *(g.number == 1 ? key : value) = name_of(&g);
}

static int read_external(reading *r, const pb_field *f, onnx_tensor_info *t, uint64_t *length)
{
    onnx_name key, value;
    read_entry(f, &key, &value);
    t->external = true;
    if (onnx_is(key, "offset"))
        t->offset = number_in(value);
    else if (onnx_is(key, "length"))
        *length = number_in(value);
    if (!onnx_is(key, "location"))
        return 0;
    if (r->location.s && (r->location.n != value.n || memcmp(r->location.s, value.s, value.n) != 0))
        return broken(r, "weights in more than one data file are not supported");
    r->location = value;
    return 0;
}

static int read_tensor(reading *r, const pb_field *f)
{
    onnx_tensor_info *t = add_item((void **)&r->f->tensor, &r->f->tensors, sizeof *t);
    pb_reader in = pb_read(f->data, f->size);
    pb_field g;
    uint64_t length = UINT64_MAX;
    size_t raw = 0;
    int code = 0;
    if (!t)
        return no_memory(r);
    while (!code && pb_next(&in, &g)) {
        if (g.number == 1 && !pb_integers(&g, t->dim, &t->axes, ONNX_AXES))
            code = broken(r, "a tensor with too many axes");
        else if (g.number == 2)
            t->type = (int)g.value;
        else if (g.number == 8)
            t->name = name_of(&g);
        else if (g.number == 9 && g.wire == 2)
            t->data = g.data, raw = g.size;
        else if (g.number == 13 && g.wire == 2)
            code = read_external(r, &g, t, &length);
    }
    if (code || in.broken)
        return code ? code : broken(r, "a tensor is cut off");
    if (!bytes_of(t, &t->bytes))
        return broken_named(r, t->name, "has a type or a shape that is not supported");
    if (t->external ? length != t->bytes || t->offset == UINT64_MAX : t->data && raw != t->bytes)
        return broken_named(r, t->name, "has another number of bytes than its shape needs");
    return 0;
}

/* Relative, below the model's folder, and long enough for every tensor. */
static int open_data(reading *r)
{
    onnx_name l = r->location;
    char name[512];
    if (!l.s)
        return 0;
    if (l.n == 0 || l.n >= sizeof name || l.s[0] == '/' || memchr(l.s, 0, l.n) || memchr(l.s, '\\', l.n))
        return broken(r, "its data file has a name that is not allowed");
    memcpy(name, l.s, l.n);
    name[l.n] = 0;
    if (!strncmp(name, "..", 2) || strstr(name, "/.."))
        return fail(r->err, SAMITE_INPUT, "%s: its data file \"%s\" lies outside its folder, which is not allowed",
                    r->path, name);
    const char *slash = strrchr(r->path, '/');
    text path = {0};
    text_add(&path, r->path, slash ? (size_t)(slash + 1 - r->path) : 0);
    text_add(&path, name, l.n);
    int code = path.failed ? no_memory(r) : file_map_open(&r->f->data, path.data, r->err);
    text_free(&path);
    for (size_t i = 0; i < r->f->tensors && !code; i++) {
        onnx_tensor_info *t = &r->f->tensor[i];
        if (!t->external)
            continue;
        if (t->offset > r->f->data.size || t->bytes > r->f->data.size - t->offset)
            code = fail(r->err, SAMITE_INPUT,
                        "%s is too short: %.*s of %s ends at byte %llu, the file has %zu; copy it again",
                        r->f->data.path, (int)(t->name.n < 120 ? t->name.n : 120), t->name.s, r->path,
                        (unsigned long long)(t->offset + t->bytes), r->f->data.size);
        else
            t->data = r->f->data.data + t->offset;
    }
    return code;
}

/* ---- values and nodes ---- */

static void read_dimension(const pb_field *f, onnx_value_info *v)
{
    pb_reader r = pb_read(f->data, f->size);
    pb_field g;
    int64_t d = -1;
    while (pb_next(&r, &g))
        if (g.number == 1 && g.wire == 0)
            d = (int64_t)g.value;
    if (v->axes < ONNX_AXES)
        v->dim[v->axes++] = d;
}

/* ValueInfo: name 1, type 2; type: tensor 1; tensor: element 1, shape 2; shape: dim 1 ... */
static void read_value(const pb_field *f, onnx_value_info *v, int depth)
{
    pb_reader r = pb_read(f->data, f->size);
    pb_field g;
    while (pb_next(&r, &g)) {
        if (depth == 0 && g.number == 1)
            v->name = name_of(&g);
        else if (depth == 2 && g.number == 1 && g.wire == 0)
            v->type = (int)g.value;
        else if (depth == 3 && g.number == 1 && g.wire == 2)
            read_dimension(&g, v);
        else if (g.wire == 2 && g.number == (depth == 1 ? 1 : 2) && depth < 3)
            read_value(&g, v, depth + 1);
    }
}

static int read_node(reading *r, const pb_field *f)
{
    onnx_node_info *n = add_item((void **)&r->f->node, &r->f->nodes, sizeof *n);
    pb_reader in = pb_read(f->data, f->size);
    pb_field g;
    if (!n)
        return no_memory(r);
    while (pb_next(&in, &g)) {
        if (g.number == 1 && n->inputs < 16)
            n->in[n->inputs++] = name_of(&g);
        else if (g.number == 2 && n->outputs < 4)
            n->out[n->outputs++] = name_of(&g);
        else if (g.number <= 2)
            return broken(r, "a node with more inputs or outputs than are supported");
        else if (g.number == 3)
            n->name = name_of(&g);
        else if (g.number == 4)
            n->op = name_of(&g);
    }
    return in.broken ? broken(r, "a node is cut off") : 0;
}

static int read_graph(reading *r, const pb_field *f)
{
    pb_reader in = pb_read(f->data, f->size);
    pb_field g;
    int code = 0;
    while (!code && pb_next(&in, &g)) {
        if (g.wire != 2)
            continue;
        if (g.number == 1) {
            code = read_node(r, &g);
        } else if (g.number == 5) {
            code = read_tensor(r, &g);
        } else if (g.number == 11 || g.number == 12) {
            onnx_value_info *v = g.number == 11 ? add_item((void **)&r->f->input, &r->f->inputs, sizeof *v)
                                                : add_item((void **)&r->f->output, &r->f->outputs, sizeof *v);
            if (!v)
                return no_memory(r);
            read_value(&g, v, 0);
        }
    }
    return code ? code : in.broken ? broken(r, "the graph is cut off") : 0;
}

static int read_model(reading *r)
{
    pb_reader in = pb_read(r->f->map.data, r->f->map.size);
    pb_field g;
    int code = 0;
    bool graph = false;
    while (!code && pb_next(&in, &g)) {
        if (g.number == 1 && g.wire == 0)
            r->f->ir = (int64_t)g.value;
        if (g.wire != 2)
            continue;
        if (g.number == 7) {
            graph = true;
            code = read_graph(r, &g);
        } else if (g.number == 8) {
            pb_reader set = pb_read(g.data, g.size);
            pb_field h;
            while (pb_next(&set, &h))
                if (h.number == 2 && h.wire == 0)
                    r->f->opset = (int64_t)h.value;
        } else if (g.number == 14) {
            onnx_name *pair[2];
            for (int i = 0; i < 2; i++)
                if (!(pair[i] = add_item((void **)&r->f->meta, &r->f->metas, sizeof **pair)))
                    return no_memory(r);
            read_entry(&g, &r->f->meta[r->f->metas - 2], &r->f->meta[r->f->metas - 1]);
        }
    }
    return code ? code : in.broken || !graph ? broken(r, "this is no ONNX model, or it is cut off") : 0;
}

int onnx_open(onnx_file *out, const char *path, samite_error *err)
{
    reading r = {.f = out, .path = path, .err = err};
    *out = (onnx_file){.ir = 0};
    int code = file_map_open(&out->map, path, err);
    if (!code)
        code = read_model(&r);
    if (!code)
        code = open_data(&r);
    if (code)
        onnx_close(out);
    return code;
}

void onnx_close(onnx_file *f)
{
    file_map_close(&f->map);
    file_map_close(&f->data);
    free(f->node);
    free(f->tensor);
    free(f->input);
    free(f->output);
    free(f->meta);
    *f = (onnx_file){.ir = 0};
}

const onnx_tensor_info *onnx_find_tensor(const onnx_file *f, const char *name)
{
    for (size_t i = 0; i < f->tensors; i++)
        if (onnx_is(f->tensor[i].name, name))
            return &f->tensor[i];
    return NULL;
}

/* A name with its end; yours to free. NULL: out of memory. */
static char *name_copy(onnx_name n)
{
    text copy = {0};
    text_add(&copy, n.s, n.n);
    return copy.data;
}

static int list_one(tensor_list *list, const onnx_tensor_info *t, samite_error *err)
{
    char *name = name_copy(t->name);
    weight w = {.name = name, .axes = t->axes, .data = t->data};
    for (int i = 0; i < t->axes; i++)
        w.dim[i] = t->dim[i];
    int code = name && onnx_type_back(&w.type, t->type) ? 0 : fail(err, SAMITE_RESOURCE, "out of memory");
    if (!code && t->data) {
        weight_set_strides(&w);
        code = tensor_list_add(list, &w, err);
    }
    free(name);
    return code;
}

int onnx_list_weights(const onnx_file *f, tensor_list *list, samite_error *err)
{
    int code = 0;
    for (size_t i = 0; i < f->tensors && !code; i++)
        code = list_one(list, &f->tensor[i], err);
    for (size_t i = 0; i + 1 < f->metas && !code; i += 2) {
        char *key = name_copy(f->meta[i]), *value = name_copy(f->meta[i + 1]);
        code = key && value ? tensor_list_note(list, key, value, err) : fail(err, SAMITE_RESOURCE, "out of memory");
        free(key);
        free(value);
    }
    return code;
}

char *onnx_meta(const onnx_file *f, const char *key)
{
    for (size_t i = 0; i + 1 < f->metas; i += 2)
        if (onnx_is(f->meta[i], key))
            return name_copy(f->meta[i + 1]);
    return NULL;
}
