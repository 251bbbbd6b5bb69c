/* shape.c - views, and values put together from others. */
#include <string.h>

#include "ops/op.h"

/* ---- views ---- */

static const op_info reshape_op = {"reshape", NULL, true};
static const op_info columns_op = {"columns", NULL, true};
static const op_info rows_op = {"rows", NULL, true};

tensor *reshape(run *r, tensor *x, int axes, const int64_t *dim)
{
    op_call c = {.op = &reshape_op, .in = {x}, .inputs = 1};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (axes < 1 || axes > MAX_AXES)
        return op_mismatch(r, &c, x, NULL, "the new shape must have 1 to 4 axes");
    tensor *y = op_view(r, &c, x, axes, dim, dim[axes - 1], 0);
    if (run_ok(r) && (!is_contiguous(x) || tensor_count(x) != tensor_count(y)))
        return op_mismatch(r, &c, x, y, "the new shape must have as many elements, the old one no gaps");
    return op_finish(r, &c, y);
}

tensor *columns(run *r, tensor *x, int64_t first, int64_t count)
{
    slice_attributes a = {x->axes - 1, first, count};
    op_call c = {.op = &columns_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};
    int64_t dim[MAX_AXES];

    if (!op_begin(r, &c))
        return run_bad(r);
    if (first < 0 || count < 0 || first > last_dim(x) || count > last_dim(x) - first)
        return op_mismatch(r, &c, x, NULL, "the columns asked for are not there");
    memcpy(dim, x->dim, sizeof dim);
    dim[x->axes - 1] = count;
    return op_finish(r, &c, op_view(r, &c, x, x->axes, dim, x->stride, first));
}

tensor *rows(run *r, tensor *x, int64_t first, int64_t count)
{
    slice_attributes a = {0, first, count};
    op_call c = {.op = &rows_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};
    int64_t dim[MAX_AXES], step = 1;

    if (!op_begin(r, &c))
        return run_bad(r);
    if (first < 0 || count < 0 || first > x->dim[0] || count > x->dim[0] - first)
        return op_mismatch(r, &c, x, NULL, "the rows asked for are not there");
    memcpy(dim, x->dim, sizeof dim);
    dim[0] = count;
    for (int i = 1; i < x->axes - 1; i++)
        step *= x->dim[i];
    if (x->axes > 1)
        step *= x->stride;
    return op_finish(r, &c, op_view(r, &c, x, x->axes, dim, x->axes > 1 ? x->stride : count, first * step));
}

/* ---- concat ----
 *
 * Every input is `outer` blocks of `lines` rows. Along the last axis a block is one row and the rows sit side by side;
 * along another one the blocks of a and b take turns.
 */

typedef struct part_layout {
    int64_t lines;         /* rows of a block of this input */
    int64_t cols, stride;
    int64_t block;         /* elements from one block to the next */
    int64_t at;            /* where in a block of the output it starts, in elements */
} part_layout;

typedef struct joint { int64_t outer, out_block, out_stride; part_layout p[2]; } joint;

static joint joint_of(const tensor *a, const tensor *b, const tensor *y, int axis)
{
    const tensor *in[2] = {a, b};
    bool last = axis == y->axes - 1;
    joint j = {.outer = 1, .out_stride = last_dim(y)};
    int64_t at = 0;

    for (int i = 0; i < axis; i++)
        j.outer *= y->dim[i];
    for (int k = 0; k < 2; k++) {
        part_layout *p = &j.p[k];
        int64_t blocks = 1;
        for (int i = 0; i < axis; i++)
            blocks *= in[k]->dim[i];
        p->cols = last_dim(in[k]);
        p->stride = in[k]->stride;
        p->lines = blocks ? tensor_rows(in[k]) / blocks : 0;
        p->block = p->lines * p->stride;
        p->at = at;
        at += last ? p->cols : p->lines * p->cols;
    }
    j.out_block = at;
    return j;
}

/* Fewer than the output's when b's batch is 1: item i of the output then uses block i modulo this number. */
static int64_t blocks_of(const tensor *t, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < axis; i++)
        n *= t->dim[i];
    return n;
}

static void concat_copy(float *y, const tensor *x, const part_layout *p, const joint *j, int64_t blocks)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < j->outer; i++)
        for (int64_t l = 0; l < p->lines; l++)
            memcpy(y + i * j->out_block + p->at + l * j->out_stride, x->data + i % blocks * p->block + l * p->stride,
                   (size_t)p->cols * sizeof *y);
}

/* Sums over repeated blocks run in order inside one thread. */
static void concat_collect(float *dx, const float *dy, const part_layout *p, const joint *j, int64_t blocks)
{
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < blocks; k++)
        for (int64_t i = k; i < j->outer; i += blocks)
            for (int64_t l = 0; l < p->lines; l++)
                for (int64_t c = 0; c < p->cols; c++)
                    dx[k * p->block + l * p->stride + c] += dy[i * j->out_block + p->at + l * j->out_stride + c];
}

static void concat_backward(run *r, const op_node *n)
{
    int axis = ((const concat_attributes *)n->attributes)->axis;
    joint j = joint_of(n->in[0], n->in[1], n->out, axis);

    for (int k = 0; k < 2; k++) {
        float *dx = op_grad(r, n->in[k]);
        if (dx)
            concat_collect(dx, n->out->grad, &j.p[k], &j, blocks_of(n->in[k], axis));
    }
}

static const op_info concat_op = {"concat", concat_backward, false};

static bool joins(const tensor *a, const tensor *b, int axis)
{
    if (a->axes != b->axes || axis < 0 || axis >= a->axes)
        return false;
    for (int i = 0; i < a->axes; i++)
        if (i != axis && a->dim[i] != b->dim[i] && !(i == 0 && b->dim[0] == 1))
            return false;
    return true;
}

tensor *concat(run *r, tensor *a, tensor *b, int axis)
{
    concat_attributes attributes = {axis};
    op_call c = {.op = &concat_op, .in = {a, b}, .inputs = 2, .attributes = &attributes,
                 .attribute_bytes = sizeof attributes};
    int64_t dim[MAX_AXES];

    if (!op_begin(r, &c))
        return run_bad(r);
    if (!joins(a, b, axis))
        return op_mismatch(r, &c, a, b, "all axes but the joined one must be equal");
    memcpy(dim, a->dim, sizeof dim);
    dim[axis] += b->dim[axis];
    tensor *y = op_output(r, &c, a->axes, dim);
    if (op_computes(r, y)) {
        joint j = joint_of(a, b, y, axis);
        concat_copy(y->data, a, &j.p[0], &j, blocks_of(a, axis));
        concat_copy(y->data, b, &j.p[1], &j, blocks_of(b, axis));
    }
    return op_finish(r, &c, y);
}

/* ---- copies ---- */

/* Adds the rows of dy, `dy_lines` per item from row `skip` on, to x's. */
static void add_lines(float *dx, const tensor *x, const float *dy, int64_t lines, int64_t dy_lines, int64_t skip)
{
    int64_t cols = last_dim(x), all = tensor_rows(x);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < all; i++)
        for (int64_t c = 0; c < cols; c++)
            dx[i * x->stride + c] += dy[(i / lines * dy_lines + skip + i % lines) * cols + c];
}

static void copy_lines(float *y, const tensor *x, int64_t lines, int64_t y_lines, int64_t skip)
{
    int64_t cols = last_dim(x), all = tensor_rows(x);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < all; i++)
        memcpy(y + (i / lines * y_lines + skip + i % lines) * cols, x->data + i * x->stride, (size_t)cols * sizeof *y);
}

static void pad_front_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0];
    float *dx = op_grad(r, x);

    if (dx && x->dim[1] > 0)
        add_lines(dx, x, n->out->grad, x->dim[1], n->out->dim[1], n->out->dim[1] - x->dim[1]);
}

static const op_info pad_front_op = {"pad_front", pad_front_backward, false};

tensor *pad_front(run *r, tensor *x, int64_t n)
{
    op_call c = {.op = &pad_front_op, .in = {x}, .inputs = 1};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 3 || n < 0 || n > INT64_MAX - x->dim[1])
        return op_mismatch(r, &c, x, NULL, "wants [B, m, C] and a number of rows to put before axis 1");
    tensor *y = op_output(r, &c, 3, (int64_t[]){x->dim[0], n + x->dim[1], x->dim[2]});
    if (op_computes(r, y)) {
        int64_t item = y->dim[1] * y->dim[2];
        for (int64_t b = 0; b < y->dim[0]; b++)
            memset(y->data + b * item, 0, (size_t)(n * y->dim[2]) * sizeof *y->data);
        if (x->dim[1] > 0)
            copy_lines(y->data, x, x->dim[1], y->dim[1], n);
    }
    return op_finish(r, &c, y);
}

static void copy_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0];
    float *dx = op_grad(r, x);

    if (dx)
        add_lines(dx, x, n->out->grad, tensor_rows(x), tensor_rows(x), 0);
}

static const op_info copy_op = {"copy", copy_backward, false};

tensor *copy(run *r, tensor *x)
{
    op_call c = {.op = &copy_op, .in = {x}, .inputs = 1};

    if (!op_begin(r, &c))
        return run_bad(r);
    tensor *y = op_output_like(r, &c, x);
    if (op_computes(r, y))
        copy_lines(y->data, x, tensor_rows(x), tensor_rows(x), 0);
    return op_finish(r, &c, y);
}

/* ---- repeat ---- */

static void repeat_backward(run *r, const op_node *n)
{
    int64_t size = tensor_count(n->in[0]);
    float *dx = op_grad(r, n->in[0]);

    if (dx)
        kernels_get()->column_sums(dx, n->out->grad, n->out->dim[0], size, size);
}

static const op_info repeat_op = {"repeat", repeat_backward, false};

tensor *repeat(run *r, tensor *x, int64_t times)
{
    op_call c = {.op = &repeat_op, .in = {x}, .inputs = 1};
    int64_t dim[MAX_AXES];

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->dim[0] != 1 || !is_contiguous(x))
        return op_mismatch(r, &c, x, NULL, "only a batch of 1 without gaps can be repeated");
    memcpy(dim, x->dim, sizeof dim);
    dim[0] = times;
    tensor *y = op_output(r, &c, x->axes, dim);
    int64_t size = tensor_count(x);
    if (op_computes(r, y)) {
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < times; i++)
            memcpy(y->data + i * size, x->data, (size_t)size * sizeof *y->data);
    }
    return op_finish(r, &c, y);
}

/* ---- gather ---- */

/* The same row may be wanted several times: one after the other, the columns shared out. */
static void gather_rows_backward(run *r, const op_node *n)
{
    const gather_attributes *a = n->attributes;
    tensor *x = n->in[0];
    int64_t lines = a->n ? tensor_rows(n->out) / a->n : 0, cols = last_dim(x);
    float *dx = op_grad(r, x);

    for (int64_t i = 0; dx && i < a->n; i++)
        for (int64_t l = 0; l < lines; l++)
            for (int64_t c = 0; c < cols; c++)
                dx[(a->index[i] * lines + l) * x->stride + c] += n->out->grad[(i * lines + l) * cols + c];
}

static const op_info gather_rows_op = {"gather_rows", gather_rows_backward, false};

static bool in_range(const int32_t *index, int64_t n, int64_t limit)
{
    for (int64_t i = 0; i < n; i++)
        if (index[i] < 0 || index[i] >= limit)
            return false;
    return true;
}

/* The record keeps the indices behind the number of them. */
static bool keep_indices(run *r, op_call *c, const int32_t *index, int64_t n)
{
    if (!c->saves && run_mode_of(r) != TRACE)
        return true;
    size_t bytes = sizeof(gather_attributes) + (size_t)n * sizeof *index;
    gather_attributes *a = op_record(r, bytes);
    if (!a)
        return false;
    a->n = n;
    if (n > 0)
        memcpy(a->index, index, (size_t)n * sizeof *index);
    c->attributes = a;
    c->attribute_bytes = bytes;
    return true;
}

tensor *gather_rows(run *r, tensor *x, const int32_t *index, int64_t n)
{
    op_call c = {.op = &gather_rows_op, .in = {x}, .inputs = 1};
    int64_t dim[MAX_AXES];

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes < 2 || n < 0 || !in_range(index, n, x->dim[0]))
        return op_mismatch(r, &c, x, NULL, "wants [rows, C] and indices of rows that are there");
    memcpy(dim, x->dim, sizeof dim);
    dim[0] = n;
    tensor *y = op_output(r, &c, x->axes, dim);
    if (!keep_indices(r, &c, index, n))
        return run_bad(r);
    if (op_computes(r, y)) {
        int64_t lines = tensor_rows(y) / n, cols = last_dim(x);
        for (int64_t i = 0; i < n; i++)
            for (int64_t l = 0; l < lines; l++)
                memcpy(y->data + (i * lines + l) * cols, x->data + (index[i] * lines + l) * x->stride,
                       (size_t)cols * sizeof *y->data);
    }
    return op_finish(r, &c, y);
}

/* ---- embed ---- */

static void embed_backward(run *r, const op_node *n)
{
    const tensor *ids = n->in[0];
    float *dtable = param_grad(((const embed_attributes *)n->attributes)->table);
    int64_t cols = last_dim(n->out), count = tensor_count(ids);

    for (int64_t i = 0; dtable && i < count; i++)
        kernels_get()->axpy(dtable + ids->index[i] * cols, n->out->grad + i * cols, 1, cols);
}

static const op_info embed_op = {"embed", embed_backward, false};

static void copy_entry(float *y, const param *table, int64_t from, int64_t cols)
{
    if (table->t.data)
        memcpy(y, table->t.data + from, (size_t)cols * sizeof *y);
    else
        kernels_get()->from_bf16(y, table->narrow + from, cols);
}

tensor *embed(run *r, param *table, tensor *ids)
{
    embed_attributes a = {table};
    op_call c = {.op = &embed_op, .in = {ids}, .inputs = 1, .params = {table}, .attributes = &a,
                 .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    bool trace = run_mode_of(r) == TRACE;
    if (table->t.axes != 2 || ids->axes != 2 || !is_contiguous(ids) || (!trace && !ids->index && tensor_count(ids)))
        return op_mismatch_param(r, &c, ids, table, "wants indices [B, n] and a table [words, C]");
    int64_t count = tensor_count(ids), cols = last_dim(&table->t);
    if (!trace && !in_range(ids->index, count, table->t.dim[0]))
        return op_mismatch_param(r, &c, ids, table, "an index lies outside the table");
    tensor *y = op_output(r, &c, 3, (int64_t[]){ids->dim[0], ids->dim[1], cols});
    if (op_computes(r, y))
        for (int64_t i = 0; i < count; i++)
            copy_entry(y->data + i * cols, table, ids->index[i] * cols, cols);
    return op_finish(r, &c, y);
}

/* ---- masked mean ---- */

/* 1 / number of rows that count, at least one. */
static double share_of(const float *mask, int64_t n)
{
    int64_t valid = 0;
    for (int64_t i = 0; i < n; i++)
        valid += !mask || mask[i] == 0.0f;
    return 1.0 / (double)(valid > 0 ? valid : 1);
}

static void masked_mean_backward(run *r, const op_node *node)
{
    tensor *x = node->in[0], *mask = node->in[1];
    int64_t n = x->dim[1], cols = x->dim[2];
    float *dx = op_grad(r, x);

    for (int64_t b = 0; dx && b < x->dim[0]; b++) {
        const float *m = mask ? mask->data + b * n : NULL;
        float share = (float)share_of(m, n);
        for (int64_t i = 0; i < n; i++)
            if (!m || m[i] == 0.0f)
                kernels_get()->axpy(dx + (b * n + i) * x->stride, node->out->grad + b * cols, share, cols);
    }
}

static const op_info masked_mean_op = {"masked_mean", masked_mean_backward, false};

tensor *masked_mean(run *r, tensor *x, tensor *mask)
{
    op_call c = {.op = &masked_mean_op, .in = {x, mask}, .inputs = mask ? 2 : 1};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 3 || (mask && (mask->axes != 2 || mask->dim[0] != x->dim[0] || mask->dim[1] != x->dim[1] ||
                                  !is_contiguous(mask))))
        return op_mismatch(r, &c, x, mask, "wants [B, n, C] and a mask [B, n]");
    tensor *y = op_output(r, &c, 2, (int64_t[]){x->dim[0], x->dim[2]});
    int64_t n = x->dim[1], cols = x->dim[2];
    c.flops = (double)tensor_count(x);
    if (op_computes(r, y))
        for (int64_t b = 0; b < x->dim[0]; b++) {
            const float *m = mask ? mask->data + b * n : NULL;
            double share = share_of(m, n);
            for (int64_t j = 0; j < cols; j++) {
                double sum = 0;
                for (int64_t i = 0; i < n; i++)
                    if (!m || m[i] == 0.0f)
                        sum += x->data[(b * n + i) * x->stride + j];
                y->data[b * cols + j] = (float)(sum * share);
            }
        }
    return op_finish(r, &c, y);
}
