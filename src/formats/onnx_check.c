/* onnx_check.c - what must hold for every ONNX file of ours. */
#include <stdlib.h>
#include <string.h>

#include "formats/onnx.h"

typedef struct checking {
    const onnx_file *f;
    const char      *path;
    name_map        *made, *nodes;    /* names of values, of nodes */
    char           **copy;            /* terminated names that the maps borrow */
    size_t           copies;
    samite_error    *err;
} checking;

static int bad(const checking *c, onnx_name n, const char *what)
{
    return fail(c->err, SAMITE_FAILED, "%s: %.*s %s", c->path, (int)(n.n < 200 ? n.n : 200), n.s, what);
}

/* NULL: out of memory. */
static char *keep(checking *c, onnx_name n)
{
    text t = {0};
    text_add(&t, n.s, n.n);
    if (!t.failed)
        c->copy[c->copies++] = t.data;
    return t.failed ? NULL : t.data;
}

static int make(checking *c, name_map *m, onnx_name n, const char *what)
{
    char *name = keep(c, n);
    if (!n.n)
        return bad(c, n, "there is a value or node without a name");
    return name && name_map_put(m, name, 1) ? 0 : bad(c, n, what);
}

static int check_node(checking *c, const onnx_node_info *n)
{
    int code = make(c, c->nodes, n->name, "is the name of two nodes");
    for (int i = 0; i < n->inputs && !code; i++) {
        char *name = keep(c, n->in[i]);
        if (!name || (n->in[i].n && name_map_get(c->made, name) < 0))
            code = bad(c, n->in[i], "is used before it is made");
    }
    for (int i = 0; i < n->outputs && !code; i++)
        code = make(c, c->made, n->out[i], "is made twice");
    return code;
}

static int check_values(checking *c, const onnx_value_info *v, size_t count, bool dynamic)
{
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < v[i].axes; k++)
            if (v[i].dim[k] < 0 ? !dynamic : v[i].dim[k] == 0)
                return bad(c, v[i].name, "has a dimension that is no number above 0");
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const onnx_tensor_info *x = *(const onnx_tensor_info *const *)a, *y = *(const onnx_tensor_info *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int check_external(checking *c)
{
    const onnx_tensor_info **t = calloc(c->f->tensors + 1, sizeof *t);
    size_t count = 0;
    int code = t ? 0 : fail(c->err, SAMITE_RESOURCE, "not enough memory to check %s", c->path);
    for (size_t i = 0; t && i < c->f->tensors; i++)
        if (c->f->tensor[i].external)
            t[count++] = &c->f->tensor[i];
    if (count)
        qsort(t, count, sizeof *t, by_offset);
    for (size_t i = 0; i < count && !code; i++) {
        if (t[i]->offset % (t[i]->bytes >= (size_t)1 << 20 ? ONNX_ALIGN : 64))
            code = bad(c, t[i]->name, "is not aligned in the data file");
        else if (i && t[i]->offset < t[i - 1]->offset + t[i - 1]->bytes)
            code = bad(c, t[i]->name, "overlaps another tensor in the data file");
    }
    free(t);
    return code;
}

static int check_all(checking *c, bool dynamic)
{
    const onnx_file *f = c->f;
    int code = 0;
    if (f->ir != ONNX_IR || f->opset != ONNX_OPSET)
        return fail(c->err, SAMITE_FAILED, "%s: IR %lld, opset %lld; expected %d and %d", c->path, (long long)f->ir,
                    (long long)f->opset, ONNX_IR, ONNX_OPSET);
    for (size_t i = 0; i < f->inputs && !code; i++)
        code = make(c, c->made, f->input[i].name, "is made twice");
    for (size_t i = 0; i < f->tensors && !code; i++)
        code = f->tensor[i].data || !f->tensor[i].bytes ? make(c, c->made, f->tensor[i].name, "is made twice")
                                                        : bad(c, f->tensor[i].name, "has no numbers");
    for (size_t i = 0; i < f->nodes && !code; i++)
        code = check_node(c, &f->node[i]);
    for (size_t i = 0; i < f->outputs && !code; i++) {
        char *name = keep(c, f->output[i].name);
        code =
            name && name_map_get(c->made, name) >= 0 ? 0 : bad(c, f->output[i].name, "is an output that nothing makes");
    }
    if (!code)
        code = check_values(c, f->input, f->inputs, dynamic);
    if (!code)
        code = check_values(c, f->output, f->outputs, dynamic);
    return code ? code : check_external(c);
}

static size_t names_in(const onnx_file *f)
{
    size_t n = f->inputs + f->outputs + f->tensors;
    for (size_t i = 0; i < f->nodes; i++)
        n += 1 + (size_t)f->node[i].inputs + (size_t)f->node[i].outputs;
    return n;
}

int onnx_check(const char *path, bool dynamic, samite_error *err)
{
    onnx_file f;
    int code = onnx_open(&f, path, err);
    if (code)
        return code;
    checking c = {.f = &f, .path = path, .made = name_map_new(4096), .nodes = name_map_new(4096),
                  .copy = calloc(names_in(&f) + 1, sizeof *c.copy), .err = err};
    if (c.made && c.nodes && c.copy)
        code = check_all(&c, dynamic);
    else
        code = fail(err, SAMITE_RESOURCE, "not enough memory to check %s", path);
    for (size_t i = 0; i < c.copies; i++)
        free(c.copy[i]);
    free(c.copy);
    name_map_free(c.made);
    name_map_free(c.nodes);
    onnx_close(&f);
    return code;
}
