/* tape.c - records of a TAPE or TRACE, gradients, the walk backwards, checkpoints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/run_state.h"

/* ---- recording ---- */

static const char *part_name(run *r)
{
    if (!r->part_copy) {
        size_t n = strlen(r->part) + 1;
        char *copy = run_record(r, n);
        if (copy)
            memcpy(copy, r->part, n);
        r->part_copy = copy;
    }
    return r->part_copy;
}

static bool node_room(run *r)
{
    if (r->node_count < r->node_room)
        return true;
    size_t room = r->node_room ? 2 * r->node_room : 1024;
    op_node **p = realloc(r->nodes, room * sizeof *p);
    if (!p) {
        run_fail(r, SAMITE_RESOURCE, "out of memory for the records of a run");
        return false;
    }
    r->nodes = p;
    r->node_room = room;
    return true;
}

bool record_node(run *r, const op_call *c, tensor *y)
{
    op_node *n = node_room(r) ? run_record(r, sizeof *n) : NULL;
    void *attributes = n && c->attribute_bytes ? run_record(r, c->attribute_bytes) : NULL;
    const char *part = n ? part_name(r) : NULL;
    if (r->failed)
        return false;
    if (attributes)
        memcpy(attributes, c->attributes, c->attribute_bytes);
    *n = (op_node){.op = c->op, .inputs = c->inputs, .out = y, .attributes = attributes, .part = part,
                   .flops = c->flops};
    memcpy(n->in, c->in, sizeof n->in);
    memcpy(n->saved, c->saved, sizeof n->saved);
    r->nodes[r->node_count++] = n;
    r->taped_until = r->values.used;
    return true;
}

size_t run_nodes(const run *r)
{
    return r->node_count;
}

const op_node *run_node(const run *r, size_t i)
{
    return r->nodes[i];
}

/* ---- gradients ----
 *
 * A gradient belongs to a root; views add to their part of it. It comes into being when the first consumer adds to it
 * and its memory is free again once the op that made the value has been walked.
 */

/* The smallest free block that fits without wasting more than half of itself; its index, or free_count. */
static size_t best_free(const run *r, size_t bytes)
{
    size_t best = r->free_count;
    for (size_t i = 0; i < r->free_count; i++) {
        size_t b = r->free_grads[i].bytes;
        if (b >= bytes && b / 2 <= bytes && (best == r->free_count || b < r->free_grads[best].bytes))
            best = i;
    }
    return best;
}

static float *grad_take(run *r, size_t bytes, size_t *got)
{
    size_t i = best_free(r, bytes), offset;
    if (i == r->free_count) {
        *got = bytes;
        return value_take(r, bytes, &offset);
    }
    grad_block b = r->free_grads[i];
    r->free_grads[i] = r->free_grads[--r->free_count];
    *got = b.bytes;
    return (float *)(r->values.base + b.offset);
}

/* A block that finds no room in the list is only lost until the end of the walk. */
static void grad_give(run *r, value *root)
{
    if (r->free_count == r->free_room) {
        size_t room = r->free_room ? 2 * r->free_room : 64;
        grad_block *p = realloc(r->free_grads, room * sizeof *p);
        if (p) {
            r->free_grads = p;
            r->free_room = room;
        }
    }
    if (r->free_count < r->free_room)
        r->free_grads[r->free_count++] =
            (grad_block){(size_t)((char *)root->t.grad - r->values.base), root->grad_bytes};
    root->t.grad = NULL;
    root->grad_bytes = 0;
}

/* Forgets free blocks at and above `mark`, which is about to be released. */
static void grads_release(run *r, size_t mark)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->free_count; i++)
        if (r->free_grads[i].offset < mark)
            r->free_grads[kept++] = r->free_grads[i];
    r->free_count = kept;
}

/* Elements from a root's first to its last one, gaps of a column view included. */
static size_t span(const tensor *t)
{
    return padded((size_t)(tensor_rows(t) * t->stride) * sizeof(float));
}

float *op_grad(run *r, tensor *t)
{
    value *v = value_of(t), *root = v->root;
    if (r->failed || !v->wants)
        return NULL;
    if (!root->t.grad) {
        if (root->section != r->section) {
            run_fail(r, SAMITE_FAILED, "checkpoint in %s: a value that takes part in the gradient has to be one of its "
                     "inputs", r->part);
            return NULL;
        }
        size_t bytes = span(&root->t);
        root->t.grad = grad_take(r, bytes, &root->grad_bytes);
        if (root->t.grad)
            memset(root->t.grad, 0, bytes);
        else
            return NULL;
    }
    return root->t.grad + v->shift;
}

/* A gradient that outlives the walk. */
static float *lasting_grad(run *r, tensor *t)
{
    value *root = value_of(t)->root;
    size_t bytes = span(&root->t), offset;
    if (!root->t.grad) {
        root->t.grad = value_take(r, bytes, &offset);
        if (!root->t.grad)
            return NULL;
        memset(root->t.grad, 0, bytes);
        r->taped_until = r->values.used;
    }
    return root->t.grad + value_of(t)->shift;
}

void run_want_grad(run *r, tensor *t)
{
    if (r->failed || r->options.mode != TAPE || !t->data)
        return;
    value_of(t)->wants = value_of(t)->root->wants = true;
    t->grad = lasting_grad(r, t);
}

void run_grad_into(run *r, tensor *t, float *grad)
{
    if (r->failed || r->options.mode != TAPE || !t->data)
        return;
    value_of(t)->wants = true;
    t->grad = grad;
}

float *run_seed(run *r, tensor *t)
{
    if (r->failed || r->options.mode != TAPE || !value_of(t)->wants)
        return NULL;
    return lasting_grad(r, t);
}

/* ---- backward ---- */

/* Nodes whose output nobody used for the loss have no gradient and are passed over. */
static void walk(run *r, size_t first)
{
    for (size_t i = r->node_count; i > first && run_polled(r); i--) {
        const op_node *n = r->nodes[i - 1];
        value *out = value_of(n->out);
        size_t scratch = op_scratch_mark(r);
        if (!out->t.grad)
            continue;
        snprintf(r->part, sizeof r->part, "%s", n->part);
        r->part_copy = NULL;
        if (tensor_count(&out->t) > 0)
            n->op->backward(r, n);
        op_scratch_release(r, scratch);
        if (out->grad_bytes)
            grad_give(r, out);
    }
}

int run_backward(run *r, tensor *loss, samite_error *err)
{
    size_t mark = run_mark(r);

    if (!r->failed && r->options.mode != TAPE)
        run_fail(r, SAMITE_FAILED, "backward needs a run in TAPE mode");
    if (!r->failed && loss && tensor_count(loss) != 1)
        run_fail(r, SAMITE_FAILED, "backward starts at one number, not at %lld", (long long)tensor_count(loss));
    float *seed = loss ? op_grad(r, loss) : NULL;
    if (seed)
        *seed += 1.0f;
    if (!r->failed && (seed || !loss))
        walk(r, 0);
    if (seed && !r->failed && value_of(loss)->root->grad_bytes)
        grad_give(r, value_of(loss)->root);
    r->free_count = 0;
    if (!r->failed)
        arena_release(&r->values, mark);
    return run_status(r, err);
}

/* ---- checkpoint ---- */

typedef struct checkpoint_attributes {
    run_part_fn fn;
    void       *ctx;
    uint64_t    drops;           /* when it began */
} checkpoint_attributes;

/* A value with x's memory that starts a tape of its own; its gradient is x's. */
static tensor *leaf(run *r, tensor *x)
{
    value *v = value_new(r, x->axes, x->dim);
    if (!v)
        return run_bad(r);
    v->t.stride = x->stride;
    v->t.data = x->data;
    v->t.index = x->index;
    v->wants = value_of(x)->wants;
    v->t.grad = op_grad(r, x);
    v->t.id = ++r->last_id;
    return &v->t;
}

/* Computes the part again on a tape of its own, walks that, and forgets it. */
static void checkpoint_backward(run *r, const op_node *n)
{
    const checkpoint_attributes *a = n->attributes;
    size_t first = r->node_count, until = r->taped_until;
    bool quiet = r->quiet;
    uint64_t drops = r->drops;
    tensor *in[OP_INPUTS];
    record_mark records = run_record_mark(r);

    for (int i = 0; i < n->inputs; i++)
        in[i] = n->in[i] ? leaf(r, n->in[i]) : NULL;
    size_t mark = run_mark(r);
    r->section++;
    r->quiet = true;
    r->drops = a->drops;
    for (int i = 0; i < n->inputs; i++)
        if (in[i])
            value_of(in[i])->section = r->section;
    tensor *out = a->fn(r, a->ctx, in);
    if (!r->failed) {
        value_of(out)->root->t.grad = n->out->grad;
        walk(r, first);
    }
    r->section--;
    r->quiet = quiet;
    r->drops = drops;
    if (r->failed)
        return;
    r->node_count = first;
    r->taped_until = until;
    grads_release(r, mark);
    arena_release(&r->values, mark);
    run_record_release(r, records);
}

static const op_info checkpoint_op = {"checkpoint", checkpoint_backward, false};

tensor *run_checkpoint(run *r, run_part_fn fn, void *ctx, tensor **in, int count)
{
    checkpoint_attributes a = {fn, ctx, r->drops};
    op_call c = {.op = &checkpoint_op, .inputs = count, .attributes = &a, .attribute_bytes = sizeof a};

    if (r->failed)
        return run_bad(r);
    if (r->options.mode == TAPE && r->options.keep_all)
        return fn(r, ctx, in);
    if (count < 0 || count > OP_INPUTS)
        return run_fail(r, SAMITE_FAILED, "checkpoint in %s: %d inputs, at most %d", r->part, count, OP_INPUTS);
    if (count > 0)
        memcpy(c.in, in, (size_t)count * sizeof *in);
    size_t mark = run_mark(r);
    bool recording = r->recording;
    r->recording = recording && r->options.mode == TRACE;
    tensor *y = run_keep(r, mark, fn(r, ctx, c.in));
    r->recording = recording;
    if (r->failed)
        return run_bad(r);
    value *root = value_of(y)->root;
    bool made_here = root->offset != NOT_OURS && root->offset >= mark;
    if (r->options.mode == TAPE && recording && made_here && value_of(y)->wants && !record_node(r, &c, &root->t))
        return run_bad(r);
    return y;
}
