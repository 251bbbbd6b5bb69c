/* to_paddle.c - one table row per operation: the PIR operations that do it. */
#include "export/to_paddle.h"

#include <stdlib.h>
#include <string.h>

#include "export/assemble.h"
#include "formats/paddle.h"

typedef struct emitter {
    graph *g;
    pir    p;
    int   *id;          /* of each value of the graph */
} emitter;

static const gvalue *value_of_node(const emitter *e, int v)
{
    return &e->g->value[v];
}

/* ---- short forms ---- */

static int end_as(emitter *e, const gnode *n, const char *op)
{
    const gvalue *y = value_of_node(e, n->out);
    return pir_end(&e->p, op, y->type, y->axes, y->dim);
}

static int as_is(emitter *e, const gnode *n, const char *op)
{
    for (int i = 0; i < n->inputs; i++)
        pir_in(&e->p, e->id[n->in[i]]);
    return end_as(e, n, op);
}

static int reshaped(emitter *e, int value, dtype type, int axes, const int64_t *dim)
{
    int shape = pir_integers(&e->p, dim, axes);
    pir_in(&e->p, value);
    pir_in(&e->p, shape);
    return pir_end(&e->p, "1.reshape", type, axes, dim);
}

static int axis_of(emitter *e, int64_t axis)
{
    return pir_full(&e->p, DT_I32, (double)axis, 1, (int64_t[]){1});
}

/* ---- rows ---- */

static int put_gelu(emitter *e, const gnode *n, const char *op)
{
    pir_bool(&e->p, "approximate", false);
    return as_is(e, n, op);
}

static int put_matmul(emitter *e, const gnode *n, const char *op)
{
    pir_bool(&e->p, "transpose_x", false);
    pir_bool(&e->p, "transpose_y", false);
    return as_is(e, n, op);
}

static int put_softmax(emitter *e, const gnode *n, const char *op)
{
    pir_i32(&e->p, "axis", -1);
    return as_is(e, n, op);
}

static int put_norm(emitter *e, const gnode *n, const char *op)
{
    const gvalue *y = value_of_node(e, n->out);
    for (int i = 0; i < n->inputs; i++)
        pir_in(&e->p, e->id[n->in[i]]);
    pir_f32(&e->p, "epsilon", (double)n->f);
    pir_i32(&e->p, "begin_norm_axis", y->axes - 1);
    return pir_end_with(&e->p, op, y->type, y->axes, y->dim, 2, y->axes - 1, y->dim);
}

static int put_group_norm(emitter *e, const gnode *n, const char *op)
{
    const gvalue *y = value_of_node(e, n->out);
    for (int i = 0; i < n->inputs; i++)
        pir_in(&e->p, e->id[n->in[i]]);
    pir_f32(&e->p, "epsilon", (double)n->f);
    pir_i32(&e->p, "groups", n->n[0]);
    pir_text(&e->p, "data_format", "NCHW");
    return pir_end_with(&e->p, op, y->type, y->axes, y->dim, 2, 2, (int64_t[]){y->dim[0], n->n[0]});
}

static void put_kernel(emitter *e, int64_t stride, int64_t pad, int64_t groups)
{
    pir_i32s(&e->p, "strides", (int64_t[]){stride, stride}, 2);
    pir_i32s(&e->p, "paddings", (int64_t[]){pad, pad}, 2);
    pir_i32s(&e->p, "dilations", (int64_t[]){1, 1}, 2);
    pir_text(&e->p, "padding_algorithm", "EXPLICIT");
    pir_i32(&e->p, "groups", groups);
    pir_text(&e->p, "data_format", "NCHW");
}

/* Paddle's convolutions have no bias. */
static int with_bias(emitter *e, const gnode *n, int y)
{
    const gvalue *v = value_of_node(e, n->out);
    if (n->inputs < 3)
        return y;
    int bias = reshaped(e, e->id[n->in[2]], v->type, 4, (int64_t[]){1, v->dim[1], 1, 1});
    pir_in(&e->p, y);
    pir_in(&e->p, bias);
    return end_as(e, n, "1.add");
}

static int put_conv(emitter *e, const gnode *n, const char *op)
{
    pir_in(&e->p, e->id[n->in[0]]);
    pir_in(&e->p, e->id[n->in[1]]);
    put_kernel(e, n->n[1], n->n[2], n->n[3]);
    return with_bias(e, n, end_as(e, n, op));
}

static int put_conv_up2(emitter *e, const gnode *n, const char *op)
{
    int size = pir_integers(&e->p, NULL, 0);
    pir_in(&e->p, e->id[n->in[0]]);
    pir_in(&e->p, e->id[n->in[1]]);
    pir_in(&e->p, size);
    pir_i32s(&e->p, "output_padding", NULL, 0);
    put_kernel(e, 2, 0, 1);
    return with_bias(e, n, end_as(e, n, op));
}

static int put_max_pool2(emitter *e, const gnode *n, const char *op)
{
    int size = pir_integers(&e->p, (int64_t[]){2, 2}, 2);
    pir_in(&e->p, e->id[n->in[0]]);
    pir_in(&e->p, size);
    pir_i32s(&e->p, "strides", (int64_t[]){2, 2}, 2);
    pir_i32s(&e->p, "paddings", (int64_t[]){0, 0}, 2);
    pir_bool(&e->p, "ceil_mode", false);
    pir_bool(&e->p, "exclusive", true);
    pir_text(&e->p, "data_format", "NCHW");
    pir_text(&e->p, "pooling_type", "max");
    pir_bool(&e->p, "global_pooling", false);
    pir_bool(&e->p, "adaptive", false);
    pir_text(&e->p, "padding_algorithm", "EXPLICIT");
    return end_as(e, n, op);
}

static int put_resize(emitter *e, const gnode *n, const char *op)
{
    pir_in(&e->p, e->id[n->in[0]]);
    for (int i = 0; i < 3; i++)
        pir_in(&e->p, 0);
    pir_text(&e->p, "data_format", "NCHW");
    pir_i32(&e->p, "out_d", -1);
    pir_i32(&e->p, "out_h", n->n[0]);
    pir_i32(&e->p, "out_w", n->n[1]);
    pir_i32s(&e->p, "scale", NULL, 0);
    pir_text(&e->p, "interp_method", n->op == P_RESIZE_NEAREST ? "nearest" : "bilinear");
    pir_bool(&e->p, "align_corners", false);
    pir_i32(&e->p, "align_mode", 0);
    return end_as(e, n, op);
}

static int put_shape(emitter *e, const gnode *n, const char *op)
{
    const gvalue *y = value_of_node(e, n->out);
    int shape = pir_integers(&e->p, y->dim, y->axes);
    pir_in(&e->p, e->id[n->in[0]]);
    pir_in(&e->p, shape);
    return end_as(e, n, op);
}

static int put_transpose(emitter *e, const gnode *n, const char *op)
{
    pir_i32s(&e->p, "perm", n->n, value_of_node(e, n->out)->axes);
    return as_is(e, n, op);
}

static int put_slice(emitter *e, const gnode *n, const char *op)
{
    int from = pir_integers(&e->p, &n->n[1], 1), to = pir_integers(&e->p, (int64_t[]){n->n[1] + n->n[2]}, 1);
    pir_in(&e->p, e->id[n->in[0]]);
    pir_in(&e->p, from);
    pir_in(&e->p, to);
    pir_i64s(&e->p, "axes", n->n, 1);
    pir_i64s(&e->p, "infer_flags", (int64_t[]){1}, 1);
    pir_i64s(&e->p, "decrease_axis", NULL, 0);
    return end_as(e, n, op);
}

static int joined(emitter *e, const gnode *n, const int *id, const int64_t (*dim)[PADDLE_AXES], int count)
{
    const gvalue *y = value_of_node(e, n->out);
    int list = pir_list(&e->p, id, count, y->type, y->axes, dim), axis = axis_of(e, n->n[0]);
    pir_in(&e->p, list);
    pir_in(&e->p, axis);
    return end_as(e, n, "1.concat");
}

static int put_concat(emitter *e, const gnode *n, const char *op)
{
    int id[GRAPH_INPUTS];
    int64_t dim[GRAPH_INPUTS][PADDLE_AXES];
    (void)op;
    for (int i = 0; i < n->inputs; i++) {
        id[i] = e->id[n->in[i]];
        memcpy(dim[i], value_of_node(e, n->in[i])->dim, sizeof dim[i]);
    }
    return joined(e, n, id, (const int64_t (*)[PADDLE_AXES])dim, n->inputs);
}

/* Zeros in front: a constant joined to the value. */
static int put_pad_front(emitter *e, const gnode *n, const char *op)
{
    const gvalue *x = value_of_node(e, n->in[0]);
    int64_t dim[2][PADDLE_AXES];
    (void)op;
    memcpy(dim[0], x->dim, sizeof dim[0]);
    memcpy(dim[1], x->dim, sizeof dim[1]);
    dim[0][n->n[0]] = n->n[1];
    int zeros = pir_full(&e->p, x->type, 0, x->axes, dim[0]);
    return joined(e, n, (int[]){zeros, e->id[n->in[0]]}, (const int64_t (*)[PADDLE_AXES])dim, 2);
}

static int put_gather(emitter *e, const gnode *n, const char *op)
{
    pir_in(&e->p, e->id[n->in[1]]);
    pir_in(&e->p, e->id[n->in[0]]);
    pir_i64(&e->p, "padding_idx", -1);
    pir_bool(&e->p, "sparse", false);
    return end_as(e, n, op);
}

static int put_sum(emitter *e, const gnode *n, const char *op)
{
    int axis = pir_integers(&e->p, n->n, 1);
    pir_in(&e->p, e->id[n->in[0]]);
    pir_in(&e->p, axis);
    pir_dtype(&e->p, "dtype", DT_COUNT);
    pir_bool(&e->p, "keepdim", true);
    return end_as(e, n, op);
}

static int put_cast(emitter *e, const gnode *n, const char *op)
{
    pir_dtype(&e->p, "dtype", value_of_node(e, n->out)->type);
    return as_is(e, n, op);
}

/* Boxes by picture: how many each has. */
static int put_roi_align(emitter *e, const gnode *n, const char *op)
{
    int count = pir_full(&e->p, DT_I32, (double)n->n[1], 1, value_of_node(e, n->in[0])->dim);
    pir_in(&e->p, e->id[n->in[0]]);
    pir_in(&e->p, e->id[n->in[1]]);
    pir_in(&e->p, count);
    pir_i32(&e->p, "pooled_height", n->n[0]);
    pir_i32(&e->p, "pooled_width", n->n[0]);
    pir_f32(&e->p, "spatial_scale", 1);
    pir_i32(&e->p, "sampling_ratio", -1);
    pir_bool(&e->p, "aligned", false);
    return end_as(e, n, op);
}

static int put_grid_sample(emitter *e, const gnode *n, const char *op)
{
    pir_text(&e->p, "mode", "bilinear");
    pir_text(&e->p, "padding_mode", "zeros");
    pir_bool(&e->p, "align_corners", false);
    return as_is(e, n, op);
}

static const struct {
    const char *op;
    int (*put)(emitter *e, const gnode *n, const char *op);
} table[P_COUNT] = {
    [P_ADD] = {"1.add", as_is},
    [P_SUB] = {"1.subtract", as_is},
    [P_MUL] = {"1.multiply", as_is},
    [P_DIV] = {"1.divide", as_is},
    [P_MAX] = {"1.maximum", as_is},
    [P_MIN] = {"1.minimum", as_is},
    [P_RELU] = {"1.relu", as_is},
    [P_SIGMOID] = {"1.sigmoid", as_is},
    [P_GELU] = {"1.gelu", put_gelu},
    [P_SIN] = {"1.sin", as_is},
    [P_COS] = {"1.cos", as_is},
    [P_LOG] = {"1.log", as_is},
    [P_ABS] = {"1.abs", as_is},
    [P_SIGN] = {"1.sign", as_is},
    [P_IDENTITY] = {"1.assign", as_is},
    [P_MATMUL] = {"1.matmul", put_matmul},
    [P_SOFTMAX] = {"1.softmax", put_softmax},
    [P_NORM] = {"1.layer_norm", put_norm},
    [P_GROUP_NORM] = {"1.group_norm", put_group_norm},
    [P_CONV] = {"1.conv2d", put_conv},
    [P_CONV_UP2] = {"1.conv2d_transpose", put_conv_up2},
    [P_MAX_POOL2] = {"1.pool2d", put_max_pool2},
    [P_RESIZE_NEAREST] = {"1.nearest_interp", put_resize},
    [P_RESIZE_LINEAR] = {"1.bilinear_interp", put_resize},
    [P_RESHAPE] = {"1.reshape", put_shape},
    [P_TRANSPOSE] = {"1.transpose", put_transpose},
    [P_SLICE] = {"1.slice", put_slice},
    [P_CONCAT] = {"1.concat", put_concat},
    [P_EXPAND] = {"1.expand", put_shape},
    [P_PAD_FRONT] = {"1.concat", put_pad_front},
    [P_GATHER] = {"1.embedding", put_gather},
    [P_SUM] = {"1.sum", put_sum},
    [P_EQUAL] = {"1.equal", as_is},
    [P_CAST] = {"1.cast", put_cast},
    [P_ROI_ALIGN] = {"1.roi_align", put_roi_align},
    [P_GRID_SAMPLE] = {"1.grid_sample", put_grid_sample},
};

/* ---- files ---- */

static bool is_parameter(const gvalue *v)
{
    return v->used && (v->from == FROM_PARAM || v->from == FROM_NUMBERS);
}

static void put_program(emitter *e)
{
    graph *g = e->g;
    for (int i = 0; i < g->values; i++)
        if (is_parameter(&g->value[i]))
            e->id[i] = pir_parameter(&e->p, g->value[i].name, g->value[i].type, g->value[i].axes, g->value[i].dim);
    for (int i = 0; i < g->inputs; i++) {
        const gvalue *v = &g->value[g->input[i]];
        e->id[g->input[i]] = pir_data(&e->p, v->name, v->type, v->axes, v->dim);
    }
    for (int i = 0; i < g->nodes; i++)
        if (g->node[i].used)
            e->id[g->node[i].out] = table[g->node[i].op].put(e, &g->node[i], table[g->node[i].op].op);
    for (int i = 0; i < g->outputs; i++) {
        const gvalue *v = &g->value[g->output[i]];
        pir_fetch(&e->p, e->id[g->output[i]], v->name, v->type, v->axes, v->dim);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const gvalue *const *)a)->name, (*(const gvalue *const *)b)->name);
}

/* false: out of memory. */
static bool put_numbers(file_writer *w, const gvalue *v, param_values values, void *user)
{
    size_t bytes = (size_t)graph_count(v) * dtype_size(v->type);
    text head = {0};
    paddle_tensor_head(&head, v->type, v->axes, v->dim);
    bool ok = !head.failed;
    if (ok)
        file_write(w, head.data, head.size);
    text_free(&head);
    if (!ok || v->from == FROM_NUMBERS) {
        file_write(w, v->numbers, ok ? bytes : 0);
        return ok;
    }
    float *from = values(user, v->view.p), *to = malloc(bytes ? bytes : 1);
    if (from && to) {
        view_fill(to, &v->view, from);
        file_write(w, to, bytes);
    }
    ok = from && to;
    free(from);
    free(to);
    return ok;
}

static int write_parameters(graph *g, const char *path, param_values values, void *user, samite_error *err)
{
    const gvalue **list = malloc(sizeof *list * (size_t)(g->values + 1));
    file_writer w;
    int count = 0, code = list ? file_writer_open(&w, path, err)
                               : fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    if (code) {
        free(list);
        return code;
    }
    for (int i = 0; i < g->values; i++)
        if (is_parameter(&g->value[i]))
            list[count++] = &g->value[i];
    qsort(list, (size_t)count, sizeof *list, by_name);
    for (int i = 0; i < count && !code; i++)
        if (!put_numbers(&w, list[i], values, user))
            code = fail(err, SAMITE_RESOURCE, "not enough memory for %s", list[i]->name);
    free(list);
    if (!code)
        return file_writer_commit(&w, err);
    file_writer_abort(&w);
    return code;
}

int graph_to_paddle(graph *g, const char *prefix, const char *const (*notes)[2], param_values values, void *user,
                    samite_error *err)
{
    text program = {0}, parameters = {0};
    if (g->error.code)
        return fail(err, g->error.code, "%s", g->error.text);
    emitter e = {.g = g, .id = calloc((size_t)g->values + 1, sizeof *e.id)};
    text_printf(&program, "%s.json", prefix);
    text_printf(&parameters, "%s.pdiparams", prefix);
    int code = e.id && !program.failed && !parameters.failed
                   ? 0
                   : fail(err, SAMITE_RESOURCE, "not enough memory to write %s", prefix);
    if (!code) {
        graph_prune(g);
        put_program(&e);
        code = write_parameters(g, parameters.data, values, user, err);
    }
    if (!code)
        code = pir_write(&e.p, program.data, notes, err);
    pir_free(&e.p);
    free(e.id);
    text_free(&program);
    text_free(&parameters);
    return code;
}

/* ---- all weights ---- */

/* One array; matrices of linear layers turned. false: out of memory. */
static bool put_array(file_writer *w, const sam3 *m, const param *p, param_values values, void *user)
{
    text part = {0};
    weight_view view = {.p = p, .rows = p->t.dim[0], .transpose = is_linear_matrix(m, p)};
    int64_t turned[2] = {p->t.dim[1], p->t.dim[0]};
    size_t bytes = (size_t)tensor_count(&p->t) * sizeof(float);
    float *from = values(user, p), *to = malloc(bytes ? bytes : 1);
    paddle_array_head(&part, p->name, DT_F32, p->t.axes, view.transpose ? turned : p->t.dim);
    bool ok = from && to && !part.failed;
    if (ok) {
        view_fill(to, &view, from);
        file_write(w, part.data, part.size);
        file_write(w, to, bytes);
        part.size = 0;
        paddle_array_tail(&part);
        file_write(w, part.data, part.size);
    }
    text_free(&part);
    free(from);
    free(to);
    return ok;
}

int model_to_pdparams(const sam3 *m, const char *path, param_values values, void *user, samite_error *err)
{
    const registry *g = &m->all;
    const char **name = calloc(g->count + 1, sizeof *name);
    file_writer w;
    text part = {0};
    size_t count = 0;
    int code =
        name ? file_writer_open(&w, path, err) : fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    if (code) {
        free(name);
        return code;
    }
    paddle_state_begin(&part);
    file_write(&w, part.data, part.size);
    for (size_t i = 0; i < g->count && !code; i++) {
        if (g->entries[i]->missing)
            continue;
        name[count++] = g->entries[i]->p.name;
        if (!put_array(&w, m, &g->entries[i]->p, values, user))
            code = fail(err, SAMITE_RESOURCE, "not enough memory for %s", g->entries[i]->p.name);
    }
    part.size = 0;
    paddle_state_end(&part, name, count);
    if (!code && part.failed)
        code = fail(err, SAMITE_RESOURCE, "not enough memory to write %s", path);
    file_write(&w, part.data, part.failed ? 0 : part.size);
    text_free(&part);
    free(name);
    if (!code)
        return file_writer_commit(&w, err);
    file_writer_abort(&w);
    return code;
}
