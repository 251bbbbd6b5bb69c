/* op.c - the steps that every op shares: start, output, temporaries, finish, and how it complains. */
#include "ops/op.h"

#include <stdio.h>
#include <string.h>

#include "base/progress.h"
#include "ops/run_state.h"

bool op_begin(run *r, op_call *c)
{
    if (!run_polled(r))
        return false;
    c->scratch = op_scratch_mark(r);
    c->began = r->options.timed ? seconds_now() : 0;
    if (r->options.mode != TAPE || (!c->op->backward && !c->op->view))
        return true;
    for (int i = 0; i < c->inputs; i++)
        c->grad |= c->in[i] && value_of(c->in[i])->wants;
    for (int i = 0; i < 2; i++)
        c->grad |= param_grad(c->params[i]) != NULL;
    c->saves = c->grad && r->recording;
    return true;
}

tensor *op_output(run *r, const op_call *c, int axes, const int64_t *dim)
{
    value *v = value_with_memory(r, axes, dim);
    if (!v)
        return run_bad(r);
    v->t.id = ++r->last_id;
    v->wants = c->grad;
    return &v->t;
}

tensor *op_output_like(run *r, const op_call *c, const tensor *x)
{
    return op_output(r, c, x->axes, x->dim);
}

tensor *op_view(run *r, const op_call *c, tensor *x, int axes, const int64_t *dim, int64_t stride, int64_t shift)
{
    value *v = value_new(r, axes, dim), *of = value_of(x);
    if (!v)
        return run_bad(r);
    v->root = of->root;
    v->shift = of->shift + shift;
    v->wants = c->grad;
    v->t.id = ++r->last_id;
    v->t.stride = stride;
    v->t.data = x->data ? x->data + shift : NULL;
    v->t.index = x->index ? x->index + shift : NULL;
    return &v->t;
}

void *op_scratch(run *r, size_t bytes)
{
    return r->failed ? NULL : scratch_take(r, padded(bytes));
}

float *op_scratch_floats(run *r, int64_t count)
{
    return op_scratch(r, (size_t)count * sizeof(float));
}

size_t op_scratch_mark(const run *r)
{
    return arena_mark(&r->scratch);
}

void op_scratch_release(run *r, size_t mark)
{
    arena_release(&r->scratch, mark);
}

float *op_save(run *r, op_call *c, int slot, int64_t count)
{
    size_t offset;
    if (!c->saves || r->failed)
        return NULL;
    return c->saved[slot] = value_take(r, padded((size_t)count * sizeof(float)), &offset);
}

void *op_record(run *r, size_t bytes)
{
    return r->failed ? NULL : run_record(r, bytes);
}

bool op_computes(const run *r, const tensor *y)
{
    return !r->failed && r->options.mode != TRACE && tensor_count(y) > 0;
}

tensor *op_finish(run *r, op_call *c, tensor *y)
{
    op_scratch_release(r, c->scratch);
    if (r->failed)
        return run_bad(r);
    if (r->options.timed && r->options.mode == RUN)
        r->options.timed(r->options.timed_user, r->part, c->op->name, c->began, seconds_now() - c->began, c->flops);
    bool tape = c->saves && !c->op->view;
    if ((r->options.mode == TRACE || tape) && !record_node(r, c, y))
        return run_bad(r);
    return y;
}

/* ---- errors ---- */

static void print_shape(char *out, size_t room, const tensor *t)
{
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; t && i < t->axes && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%lld", i ? ", " : "[", (long long)t->dim[i]);
    if (t && n < room)
        snprintf(out + n, room - n, "]");
}

static tensor *mismatch(run *r, const op_call *c, const tensor *a, const tensor *b, const char *name, const char *rule)
{
    char first[96], second[96];
    print_shape(first, sizeof first, a);
    print_shape(second, sizeof second, b);
    return run_fail(r, SAMITE_FAILED, "%s%s%s: %s%s%s%s%s does not fit: %s", c->op->name, r->part[0] ? " in " : "",
                    r->part, first, b ? " with " : "", name, *name ? " " : "", second, rule);
}

tensor *op_mismatch(run *r, const op_call *c, const tensor *a, const tensor *b, const char *rule)
{
    return mismatch(r, c, a, b, "", rule);
}

tensor *op_mismatch_param(run *r, const op_call *c, const tensor *a, const param *p, const char *rule)
{
    return mismatch(r, c, a, p ? &p->t : NULL, p && p->name ? p->name : "", rule);
}

tensor *op_engine_failed(run *r, const op_call *c)
{
    return run_fail(r, SAMITE_RESOURCE, "%s%s%s: the matrix engine refused the work, most likely for lack of memory; "
                    "use a smaller --size", c->op->name, r->part[0] ? " in " : "", r->part);
}

/* ---- shapes ---- */

bool is_contiguous(const tensor *t)
{
    return t->stride == last_dim(t) || tensor_rows(t) <= 1;
}

bool same_shape(const tensor *a, const tensor *b)
{
    return a->axes == b->axes && !memcmp(a->dim, b->dim, (size_t)a->axes * sizeof *a->dim);
}

int64_t last_dim(const tensor *t)
{
    return t->dim[t->axes - 1];
}

int64_t param_cols(const param *p)
{
    return p->t.dim[0] > 0 ? tensor_count(&p->t) / p->t.dim[0] : 0;
}

float *param_grad(const param *p)
{
    return p && p->trainable ? p->t.grad : NULL;
}

/* ---- factors ---- */

enum { LEAST_SIDE = 32 };      /* of a product in bf16 */

bool op_narrows(const run *r, int64_t m, int64_t n, int64_t k)
{
    return run_products(r) == GEMM_BF16 && m >= LEAST_SIDE && n >= LEAST_SIDE && k >= LEAST_SIDE;
}

factor op_factor(run *r, bool narrow, const float *x, int64_t ld, int64_t rows, int64_t cols)
{
    uint16_t *to = narrow ? op_scratch(r, (size_t)(rows * cols) * sizeof *to) : NULL;
    int64_t length = ld == cols ? rows * cols : cols;

    if (!to)
        return (factor){x, NULL, ld};
    for (int64_t i = 0; i * length < rows * cols; i++)
        kernels_get()->to_bf16(to + i * length, x + i * ld, length);
    return (factor){x, to, cols};
}

bool op_product(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, factor a, factor b, bool add,
                float *c, int64_t ldc)
{
    if (a.narrow && b.narrow)
        return gemm_bf16(transpose_a, transpose_b, m, n, k, a.narrow, a.ld, b.narrow, b.ld, add, c, ldc);
    return gemm(transpose_a, transpose_b, m, n, k, 1, a.wide, a.ld, b.wide, b.ld, add ? 1 : 0, c, ldc);
}

const float *activation_gradient(run *r, const float *dy, const float *pre, activation act, int64_t n)
{
    if (act == ACT_NONE)
        return dy;
    float *dx = op_scratch_floats(r, n);
    if (!dx)
        return NULL;
    memset(dx, 0, (size_t)n * sizeof *dx);
    kernels_get()->activate_backward(dx, dy, pre, act, n);
    return dx;
}
