/* to_onnx.c - one table row per operation: the ONNX nodes that do it. */
#include "export/half.h"
#include "export/to_onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/onnx.h"

/* Constants that are no plain lists: zeros with n[1] at n[0]; n[0] times 0, then n[0] times 1, .. */
enum { ONE_AT = -2, EACH_IN_TURN = -3 };

/* A tensor of the file: a value of the graph, or a small constant made here. */
typedef struct source {
    int     value;           /* -1, ONE_AT, EACH_IN_TURN: constant */
    int64_t n[MAX_AXES];     /* int64 constants */
    float   f;               /* f32 constants of one element */
    bool    is_float;
    bool    half;            /* stored as f16 */
} source;

typedef struct emitter {
    graph              *g;
    const onnx_options *o;
    onnx_writer        *w;
    source             *tensor;
    size_t              tensors, room, name_room;
    name_map           *made;        /* constants by name */
    char              **name;        /* of the constants; owned */
    size_t              names;
    bool               *half;        /* values in f16, or NULL */
    bool                batch_made;  /* the node that tells the size of the batch */
    bool                failed;
} emitter;

/* ---- constants ---- */

static bool remember(emitter *e, source s)
{
    if (e->tensors == e->room) {
        size_t room = e->room ? e->room * 2 : 512;
        source *more = realloc(e->tensor, room * sizeof *more);
        if (!more)
            return false;
        e->tensor = more;
        e->room = room;
    }
    e->tensor[e->tensors++] = s;
    return true;
}

/* A name that the emitter owns and finds again. */
static const char *own_name(emitter *e, const char *name)
{
    char *own = text_copy(name);
    if (e->names == e->name_room) {
        size_t room = e->name_room ? e->name_room * 2 : 512;
        char **more = realloc(e->name, room * sizeof *more);
        if (!more) {
            free(own);
            e->failed = true;
            return "";
        }
        e->name = more;
        e->name_room = room;
    }
    if (!own || !name_map_put(e->made, own, (int64_t)e->names)) {
        free(own);
        e->failed = true;
        return "";
    }
    return e->name[e->names++] = own;
}

/* A constant under a name that says what it is; the same name is the same constant. */
static const char *constant(emitter *e, const char *name, dtype type, int count, source s)
{
    int64_t at = name_map_get(e->made, name), dim = count;
    if (at >= 0)
        return e->name[at];
    const char *own = own_name(e, name);
    if (!remember(e, s)) {
        e->failed = true;
        return "";
    }
    onnx_tensor(e->w, own, type, count ? 1 : 0, &dim, true);
    return own;
}

/* A weight stored as f16. */
static const char *half_weight(emitter *e, int v, const char *name)
{
    const gvalue *x = &e->g->value[v];
    const char *own = own_name(e, name);
    if (!remember(e, (source){.value = v, .half = true}))
        e->failed = true;
    else
        onnx_tensor(e->w, own, DT_F16, x->axes, x->dim, false);
    return own;
}

static const char *integers(emitter *e, const int64_t *v, int count)
{
    char name[128];
    source s = {.value = -1};
    size_t n = (size_t)snprintf(name, sizeof name, "integers");
    for (int i = 0; i < count; i++) {
        s.n[i] = v[i];
        n += (size_t)snprintf(name + n, sizeof name - n, "_%lld", (long long)v[i]);
    }
    return constant(e, name, DT_I64, count, s);
}

/* `count` times the same number, in the type that the node computes in. */
static const char *numbers(emitter *e, const gnode *n, float v, int count)
{
    char name[80];
    bool half = half_node(e->half, n);
    snprintf(name, sizeof name, "%snumber_%.9g_%d", half ? "f16_" : "", (double)v, count);
    return constant(e, name, half ? DT_F16 : DT_F32, count,
                    (source){.value = -1, .f = v, .is_float = true, .half = half});
}

static const char *number(emitter *e, const gnode *n, float v)
{
    return numbers(e, n, v, 1);
}

/* ---- nodes ---- */

static const char *name_of(const emitter *e, int v)
{
    return e->g->value[v].name;
}

/* Input `k` of a node in the type that the node computes in; a node in between changes the type where needed. */
static const char *operand(emitter *e, const gnode *n, int k)
{
    int v = n->in[k];
    const gvalue *x = &e->g->value[v];
    bool half = half_node(e->half, n), given = x->from == FROM_PARAM || x->from == FROM_NUMBERS;
    char name[512];
    if (!e->half || x->type != DT_F32 || (!given && e->half[v] == half) || (given && !half))
        return x->name;
    snprintf(name, sizeof name, "%s/%s", x->name, half ? "f16" : "f32");
    int64_t at = name_map_get(e->made, name);
    if (at >= 0)
        return e->name[at];
    if (given)
        return half_weight(e, v, name);
    const char *own = own_name(e, name);
    onnx_node(e->w, "Cast", own, (const char *[]){x->name}, 1, &own, 1);
    onnx_attribute_int(e->w, "to", onnx_type(half ? DT_F16 : DT_F32));
    return own;
}

/* -1 where the dimension depends on the batch. */
static int64_t dim_of(const emitter *e, int v, int axis)
{
    int64_t d = e->g->value[v].dim[axis];
    return e->o->other && e->o->other->value[v].dim[axis] != d ? -1 : d;
}

static void dims_of(const emitter *e, int v, int64_t *dim)
{
    for (int i = 0; i < e->g->value[v].axes; i++)
        dim[i] = dim_of(e, v, i);
}

/* The node as it stands, with constants behind its inputs. */
static void node(emitter *e, const gnode *n, const char *op, const char *const *more, int count)
{
    const char *in[GRAPH_INPUTS + 4], *out = name_of(e, n->out);
    for (int i = 0; i < n->inputs; i++)
        in[i] = operand(e, n, i);
    for (int i = 0; i < count; i++)
        in[n->inputs + i] = more[i];
    onnx_node(e->w, op, n->name, in, n->inputs + count, &out, 1);
}

/* A helper node with a name made of the node's and `part`; its output has the same name, put into `out`. */
static const char *step(emitter *e, const gnode *n, const char *op, const char *part, const char *a, const char *b,
                        char *out, size_t room)
{
    const char *in[2] = {a, b}, *names[1] = {out};
    snprintf(out, room, "%s/%s", n->name, part);
    onnx_node(e->w, op, out, in, b ? 2 : 1, names, 1);
    return out;
}

static void as_is(emitter *e, const gnode *n, const char *op)
{
    node(e, n, op, NULL, 0);
}

static void put_gelu(emitter *e, const gnode *n, const char *op)
{
    char a[400], b[400], c[400], d[400];
    const char *x = operand(e, n, 0), *out = name_of(e, n->out);
    (void)op;
    step(e, n, "Div", "scaled", x, number(e, n, 1.41421356f), a, sizeof a);
    step(e, n, "Erf", "erf", a, NULL, b, sizeof b);
    step(e, n, "Add", "share", b, number(e, n, 1), c, sizeof c);
    step(e, n, "Mul", "double", x, c, d, sizeof d);
    onnx_node(e->w, "Mul", n->name, (const char *[]){d, number(e, n, 0.5f)}, 2, &out, 1);
}

static void put_softmax(emitter *e, const gnode *n, const char *op)
{
    as_is(e, n, op);
    onnx_attribute_int(e->w, "axis", -1);
}

/* mean, difference, its square's mean, root, quotient, gain, shift. */
static void put_plain_norm(emitter *e, const gnode *n)
{
    char mean[400], apart[400], square[400], spread[400], sum[400], root[400], normal[400], scaled[400];
    const char *x = operand(e, n, 0), *out = name_of(e, n->out);
    step(e, n, "ReduceMean", "mean", x, NULL, mean, sizeof mean);
    onnx_attribute_ints(e->w, "axes", (int64_t[]){-1}, 1);
    onnx_attribute_int(e->w, "keepdims", 1);
    step(e, n, "Sub", "apart", x, mean, apart, sizeof apart);
    step(e, n, "Mul", "square", apart, apart, square, sizeof square);
    step(e, n, "ReduceMean", "spread", square, NULL, spread, sizeof spread);
    onnx_attribute_ints(e->w, "axes", (int64_t[]){-1}, 1);
    onnx_attribute_int(e->w, "keepdims", 1);
    step(e, n, "Add", "sum", spread, number(e, n, n->f), sum, sizeof sum);
    step(e, n, "Sqrt", "root", sum, NULL, root, sizeof root);
    step(e, n, "Div", "normal", apart, root, normal, sizeof normal);
    step(e, n, "Mul", "scaled", normal, operand(e, n, 1), scaled, sizeof scaled);
    onnx_node(e->w, "Add", n->name, (const char *[]){scaled, operand(e, n, 2)}, 2, &out, 1);
}

static void put_norm(emitter *e, const gnode *n, const char *op)
{
    if (e->o->plain) {
        put_plain_norm(e, n);
        return;
    }
    as_is(e, n, op);
    onnx_attribute_int(e->w, "axis", -1);
    onnx_attribute_float(e->w, "epsilon", n->f);
}

/* Opset 17 has no group norm: groups become rows of an instance norm. */
static void put_group_norm(emitter *e, const gnode *n, const char *op)
{
    char grouped[400], normal[400], back[400], scaled[400], gain[400], shift[400];
    const gvalue *x = &e->g->value[n->in[0]];
    int64_t groups = n->n[0], dim[MAX_AXES];
    const char *out = name_of(e, n->out), *name = normal;
    (void)op;
    dims_of(e, n->in[0], dim);
    dim[0] = dim[0] < 0 ? 0 : dim[0];
    step(e, n, "Reshape", "groups", operand(e, n, 0), integers(e, (int64_t[]){0, groups, -1}, 3), grouped,
         sizeof grouped);
    const char *one = numbers(e, n, 1, (int)groups), *zero = numbers(e, n, 0, (int)groups);
    snprintf(normal, sizeof normal, "%s/normal", n->name);
    onnx_node(e->w, "InstanceNormalization", normal, (const char *[]){grouped, one, zero}, 3, &name, 1);
    onnx_attribute_float(e->w, "epsilon", n->f);
    step(e, n, "Reshape", "back", normal, integers(e, dim, 4), back, sizeof back);
    const char *channels = integers(e, (int64_t[]){1, x->dim[1], 1, 1}, 4);
    step(e, n, "Reshape", "gain", operand(e, n, 1), channels, gain, sizeof gain);
    step(e, n, "Reshape", "shift", operand(e, n, 2), channels, shift, sizeof shift);
    step(e, n, "Mul", "scaled", back, gain, scaled, sizeof scaled);
    onnx_node(e->w, "Add", n->name, (const char *[]){scaled, shift}, 2, &out, 1);
}

static void put_kernel(emitter *e, int64_t kernel, int64_t stride, int64_t pad, int64_t groups)
{
    onnx_attribute_ints(e->w, "dilations", (int64_t[]){1, 1}, 2);
    onnx_attribute_int(e->w, "group", groups);
    onnx_attribute_ints(e->w, "kernel_shape", (int64_t[]){kernel, kernel}, 2);
    onnx_attribute_ints(e->w, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
    onnx_attribute_ints(e->w, "strides", (int64_t[]){stride, stride}, 2);
}

static void put_conv(emitter *e, const gnode *n, const char *op)
{
    as_is(e, n, op);
    put_kernel(e, n->n[0], n->n[1], n->n[2], n->n[3]);
}

static void put_conv_up2(emitter *e, const gnode *n, const char *op)
{
    as_is(e, n, op);
    put_kernel(e, 2, 2, 0, 1);
}

static void put_max_pool2(emitter *e, const gnode *n, const char *op)
{
    as_is(e, n, op);
    onnx_attribute_ints(e->w, "kernel_shape", (int64_t[]){2, 2}, 2);
    onnx_attribute_ints(e->w, "strides", (int64_t[]){2, 2}, 2);
}

/* A free batch, as a list of one number: the first one of the first input's shape. */
static const char *batch_size(emitter *e)
{
    static const char batch[] = "batch/size", whole[] = "batch/shape";
    const char *out = whole;
    if (e->batch_made)
        return batch;
    onnx_node(e->w, "Shape", whole, (const char *[]){name_of(e, e->g->input[0])}, 1, &out, 1);
    out = batch;
    onnx_node(e->w, "Slice", batch,
              (const char *[]){whole, integers(e, (int64_t[]){0}, 1), integers(e, (int64_t[]){1}, 1)}, 3, &out, 1);
    e->batch_made = true;
    return batch;
}

/* The shape of a node's output where -1 is not allowed: with a free batch its first number comes from the first input. */
static const char *full_shape(emitter *e, const gnode *n)
{
    const gvalue *y = &e->g->value[n->out];
    char name[400];
    if (dim_of(e, n->out, 0) >= 0)
        return integers(e, y->dim, y->axes);
    snprintf(name, sizeof name, "%s/shape", n->name);
    const char *own = own_name(e, name);
    onnx_node(e->w, "Concat", own, (const char *[]){batch_size(e), integers(e, y->dim + 1, y->axes - 1)}, 2, &own, 1);
    onnx_attribute_int(e->w, "axis", 0);
    return own;
}

/* Always with sizes, which every converter reads; nearest in the one form that is right for all of them. */
static void put_resize(emitter *e, const gnode *n, const char *op)
{
    bool nearest = n->op == P_RESIZE_NEAREST;
    node(e, n, op, (const char *[]){"", "", full_shape(e, n)}, 3);
    onnx_attribute_text(e->w, "coordinate_transformation_mode", nearest ? "asymmetric" : "half_pixel");
    onnx_attribute_text(e->w, "mode", nearest ? "nearest" : "linear");
    if (nearest)
        onnx_attribute_text(e->w, "nearest_mode", "floor");
}

static void put_shape(emitter *e, const gnode *n, const char *op)
{
    int64_t dim[MAX_AXES];
    dims_of(e, n->out, dim);
    node(e, n, op, (const char *[]){integers(e, dim, e->g->value[n->out].axes)}, 1);
}

static void put_expand(emitter *e, const gnode *n, const char *op)
{
    node(e, n, op, (const char *[]){full_shape(e, n)}, 1);
}

static void put_transpose(emitter *e, const gnode *n, const char *op)
{
    as_is(e, n, op);
    onnx_attribute_ints(e->w, "perm", n->n, e->g->value[n->out].axes);
}

static void put_slice(emitter *e, const gnode *n, const char *op)
{
    const char *more[3] = {integers(e, &n->n[1], 1), integers(e, (int64_t[]){n->n[1] + n->n[2]}, 1),
                           integers(e, n->n, 1)};
    node(e, n, op, more, 3);
}

static void put_concat(emitter *e, const gnode *n, const char *op)
{
    as_is(e, n, op);
    onnx_attribute_int(e->w, "axis", n->n[0]);
}

/* Pads are counted for all axes: first before each, then behind each. */
static void put_pad_front(emitter *e, const gnode *n, const char *op)
{
    int64_t pads[2 * MAX_AXES] = {0};
    char name[96];
    size_t used = (size_t)snprintf(name, sizeof name, "pads");
    int axes = e->g->value[n->out].axes;
    pads[n->n[0]] = n->n[1];
    source s = {.value = ONE_AT, .n = {n->n[0], n->n[1]}};
    for (int i = 0; i < 2 * axes; i++)
        used += (size_t)snprintf(name + used, sizeof name - used, "_%lld", (long long)pads[i]);
    node(e, n, op, (const char *[]){constant(e, name, DT_I64, 2 * axes, s)}, 1);
    onnx_attribute_text(e->w, "mode", "constant");
}

static void put_gather(emitter *e, const gnode *n, const char *op)
{
    as_is(e, n, op);
    onnx_attribute_int(e->w, "axis", 0);
}

static void put_sum(emitter *e, const gnode *n, const char *op)
{
    node(e, n, op, (const char *[]){integers(e, n->n, 1)}, 1);
    onnx_attribute_int(e->w, "keepdims", 1);
}

static void put_cast(emitter *e, const gnode *n, const char *op)
{
    as_is(e, n, op);
    onnx_attribute_int(e->w, "to", onnx_type(e->g->value[n->out].type));
}

/* The number of its map for every box: 0 .., 1 .., as many times each as a map has boxes. */
static const char *map_numbers(emitter *e, const gnode *n)
{
    int64_t all = e->g->value[n->in[1]].dim[0], each = n->n[1];
    char name[400], maps[400], column[400], rows[400];
    const char *out = maps;
    if (dim_of(e, n->in[1], 0) >= 0) {
        snprintf(name, sizeof name, "map_numbers_%lld_%lld", (long long)all, (long long)each);
        return constant(e, name, DT_I64, (int)all, (source){.value = EACH_IN_TURN, .n = {each}});
    }
    step(e, n, "Squeeze", "size", batch_size(e), NULL, name, sizeof name);
    const char *from = constant(e, "integer_0", DT_I64, 0, (source){.value = -1});
    const char *by = constant(e, "integer_1", DT_I64, 0, (source){.value = -1, .n = {1}});
    snprintf(maps, sizeof maps, "%s/maps", n->name);
    onnx_node(e->w, "Range", maps, (const char *[]){from, name, by}, 3, &out, 1);
    step(e, n, "Reshape", "column", maps, integers(e, (int64_t[]){-1, 1}, 2), column, sizeof column);
    step(e, n, "Expand", "rows", column, integers(e, (int64_t[]){1, each}, 2), rows, sizeof rows);
    snprintf(name, sizeof name, "%s/numbers", n->name);
    out = own_name(e, name);
    onnx_node(e->w, "Reshape", out, (const char *[]){rows, integers(e, (int64_t[]){-1}, 1)}, 2, &out, 1);
    return out;
}

static void put_roi_align(emitter *e, const gnode *n, const char *op)
{
    node(e, n, op, (const char *[]){map_numbers(e, n)}, 1);
    onnx_attribute_text(e->w, "coordinate_transformation_mode", "output_half_pixel");
    onnx_attribute_text(e->w, "mode", "avg");
    onnx_attribute_int(e->w, "output_height", n->n[0]);
    onnx_attribute_int(e->w, "output_width", n->n[0]);
    onnx_attribute_int(e->w, "sampling_ratio", 0);
    onnx_attribute_float(e->w, "spatial_scale", 1);
}

static void put_grid_sample(emitter *e, const gnode *n, const char *op)
{
    as_is(e, n, op);
    onnx_attribute_int(e->w, "align_corners", 0);
    onnx_attribute_text(e->w, "mode", "bilinear");
    onnx_attribute_text(e->w, "padding_mode", "zeros");
}

static const struct {
    const char *op;
    void (*put)(emitter *e, const gnode *n, const char *op);
} table[P_COUNT] = {
    [P_ADD] = {"Add", as_is},
    [P_SUB] = {"Sub", as_is},
    [P_MUL] = {"Mul", as_is},
    [P_DIV] = {"Div", as_is},
    [P_MAX] = {"Max", as_is},
    [P_MIN] = {"Min", as_is},
    [P_RELU] = {"Relu", as_is},
    [P_SIGMOID] = {"Sigmoid", as_is},
    [P_GELU] = {"Gelu", put_gelu},
    [P_SIN] = {"Sin", as_is},
    [P_COS] = {"Cos", as_is},
    [P_LOG] = {"Log", as_is},
    [P_ABS] = {"Abs", as_is},
    [P_SIGN] = {"Sign", as_is},
    [P_IDENTITY] = {"Identity", as_is},
    [P_MATMUL] = {"MatMul", as_is},
    [P_SOFTMAX] = {"Softmax", put_softmax},
    [P_NORM] = {"LayerNormalization", put_norm},
    [P_GROUP_NORM] = {"GroupNormalization", put_group_norm},
    [P_CONV] = {"Conv", put_conv},
    [P_CONV_UP2] = {"ConvTranspose", put_conv_up2},
    [P_MAX_POOL2] = {"MaxPool", put_max_pool2},
    [P_RESIZE_NEAREST] = {"Resize", put_resize},
    [P_RESIZE_LINEAR] = {"Resize", put_resize},
    [P_RESHAPE] = {"Reshape", put_shape},
    [P_TRANSPOSE] = {"Transpose", put_transpose},
    [P_SLICE] = {"Slice", put_slice},
    [P_CONCAT] = {"Concat", put_concat},
    [P_EXPAND] = {"Expand", put_expand},
    [P_PAD_FRONT] = {"Pad", put_pad_front},
    [P_GATHER] = {"Gather", put_gather},
    [P_SUM] = {"ReduceSum", put_sum},
    [P_EQUAL] = {"Equal", as_is},
    [P_CAST] = {"Cast", put_cast},
    [P_ROI_ALIGN] = {"RoiAlign", put_roi_align},
    [P_GRID_SAMPLE] = {"GridSample", put_grid_sample},
};

/* ---- the file ---- */

static bool fill_constant(const source *s, void *out, size_t bytes)
{
    if (s->is_float && s->half) {
        for (size_t i = 0; i < bytes / 2; i++)
            dtype_from_f32((char *)out + 2 * i, DT_F16, &s->f, 1);
    } else if (s->is_float) {
        for (size_t i = 0; i < bytes / sizeof(float); i++)
            ((float *)out)[i] = s->f;
    } else if (s->value == ONE_AT) {
        memset(out, 0, bytes);
        ((int64_t *)out)[s->n[0]] = s->n[1];
    } else if (s->value == EACH_IN_TURN) {
        for (size_t i = 0; i < bytes / sizeof(int64_t); i++)
            ((int64_t *)out)[i] = (int64_t)i / s->n[0];
    } else {
        memcpy(out, s->n, bytes);
    }
    return true;
}

/* What f16 cannot hold ends at its limits. */
static void to_half(void *out, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        values[i] = values[i] > 65504.0f ? 65504.0f : values[i] < -65504.0f ? -65504.0f : values[i];
    dtype_from_f32(out, DT_F16, values, count);
}

static bool fill_value(emitter *e, const gvalue *v, void *out, size_t bytes)
{
    if (v->from == FROM_NUMBERS) {
        memcpy(out, v->numbers, bytes);
        return true;
    }
    float *values = e->o->values(e->o->user, v->view.p);
    if (!values)
        return false;
    view_fill(out, &v->view, values);
    free(values);
    return true;
}

static bool fill(void *user, size_t index, void *out, size_t bytes)
{
    emitter *e = user;
    const source *s = &e->tensor[index];
    if (s->value < 0)
        return fill_constant(s, out, bytes);
    const gvalue *v = &e->g->value[s->value];
    if (!s->half)
        return fill_value(e, v, out, bytes);
    float *full = malloc(2 * bytes + 1);
    bool ok = full && fill_value(e, v, full, 2 * bytes);
    if (ok)
        to_half(out, full, bytes / 2);
    free(full);
    return ok;
}

/* Does a node want this weight as it is? */
static bool needed_full(const emitter *e, int v)
{
    if (!e->half || e->g->value[v].type != DT_F32)
        return true;
    for (int i = 0; i < e->g->nodes; i++)
        for (int k = 0; e->g->node[i].used && k < e->g->node[i].inputs; k++)
            if (e->g->node[i].in[k] == v && !half_node(e->half, &e->g->node[i]))
                return true;
    return false;
}

static bool is_output(const graph *g, int v)
{
    for (int k = 0; k < g->outputs; k++)
        if (g->output[k] == v)
            return true;
    return false;
}

static void put_values(emitter *e)
{
    graph *g = e->g;
    int64_t dim[MAX_AXES];
    for (int i = 0; i < g->values; i++) {
        const gvalue *v = &g->value[i];
        if (!v->used || (v->from != FROM_PARAM && v->from != FROM_NUMBERS) || !needed_full(e, i))
            continue;
        if (!remember(e, (source){.value = i}))
            e->failed = true;
        else
            onnx_tensor(e->w, v->name, v->type, v->axes, v->dim, v->type == DT_I64 && graph_count(v) < 16);
    }
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].used)
            table[g->node[i].op].put(e, &g->node[i], table[g->node[i].op].op);
    for (int i = 0; i < g->inputs + g->outputs; i++) {
        int v = i < g->inputs ? g->input[i] : g->output[i - g->inputs];
        dims_of(e, v, dim);
        onnx_value(e->w, i < g->inputs ? ONNX_INPUT : ONNX_OUTPUT, name_of(e, v), g->value[v].type, g->value[v].axes,
                   dim, e->o->symbol);
    }
}

/* Is every free dimension just the batch, and not a multiple of it? */
static bool plain_shape(const emitter *e, int v)
{
    int64_t batch = e->g->value[e->g->input[0]].dim[0];
    for (int i = 0; i < e->g->value[v].axes; i++)
        if (dim_of(e, v, i) < 0 && e->g->value[v].dim[i] != batch)
            return false;
    return true;
}

/* Shapes of everything between, for tools that do not work them out themselves. */
static void put_shapes(emitter *e)
{
    int64_t dim[MAX_AXES];
    for (int i = 0; i < e->g->values; i++) {
        const gvalue *v = &e->g->value[i];
        if (is_output(e->g, i) || !v->used || v->from != FROM_NODE || !plain_shape(e, i))
            continue;
        dims_of(e, i, dim);
        onnx_value(e->w, ONNX_INNER, v->name, e->half && e->half[i] ? DT_F16 : v->type, v->axes, dim,
                   e->o->symbol);
    }
}

/* Outputs stay f32: those that would be f16 get a node of their own that changes the type. */
static bool *half_outputs(graph *g)
{
    bool *plan = half_plan(g);
    for (int i = 0; plan && i < g->outputs; i++)
        if (plan[g->output[i]])
            graph_output_apart(g, i);
    free(plan);
    return g->error.code ? NULL : half_plan(g);
}

int graph_to_onnx(graph *g, const char *path, const onnx_options *o, samite_error *err)
{
    emitter e = {.g = g, .o = o, .w = onnx_writer_new(), .made = name_map_new(256)};
    int code = 0;
    if (g->error.code) {
        code = fail(err, g->error.code, "%s", g->error.text);
    } else if (!e.w || !e.made) {
        code = fail(err, SAMITE_RESOURCE, "not enough memory to export %s", path);
    } else if (o->half && !(e.half = half_outputs(g))) {
        code = fail(err, SAMITE_RESOURCE, "not enough memory to export %s", path);
    } else {
        graph_prune(g);
        put_values(&e);
        put_shapes(&e);
        for (int i = 0; o->meta && o->meta[i][0]; i++)
            onnx_metadata(e.w, o->meta[i][0], o->meta[i][1]);
        code = e.failed ? fail(err, SAMITE_RESOURCE, "not enough memory to export %s", path)
                        : onnx_write(e.w, path, o->name, o->version, o->external, fill, &e, err);
    }
    for (size_t i = 0; i < e.names; i++)
        free(e.name[i]);
    free(e.name);
    free(e.half);
    free(e.tensor);
    name_map_free(e.made);
    onnx_writer_free(e.w);
    return code;
}
