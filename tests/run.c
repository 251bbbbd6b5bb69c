/* run.c - what holds around every op: errors that stick, scopes, limits, names, the tape, checkpoints. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "ops/ops.h"

#include <cmocka.h>

#define DIMS(...) (int64_t[]){__VA_ARGS__}

static run *open_run(run_mode mode, size_t limit)
{
    run *r = run_open(&(run_options){.mode = mode, .memory_limit = limit}, NULL);
    assert_non_null(r);
    return r;
}

/* Numbers that look random and are the same everywhere. */
static void fill(float *out, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static tensor *numbers(run *r, float *data, int axes, const int64_t *dim, uint32_t seed)
{
    tensor *t = run_input(r, data, axes, dim);
    fill(data, tensor_count(t), seed);
    return t;
}

/* ---- errors ---- */

static param matrix(int64_t rows, int64_t cols)
{
    return (param){.name = "a.weight", .t = {.axes = 2, .dim = {rows, cols}, .stride = cols,
                                             .data = calloc((size_t)(rows * cols), sizeof(float))}};
}

static void test_error_sticks(void **state)
{
    (void)state;
    run *r = open_run(RUN, 0);
    float data[24];
    param p = matrix(5, 8);
    linear_w w = {&p, NULL, 0, 8, 5, NULL};
    samite_error err;
    tensor *x = numbers(r, data, 3, DIMS(2, 3, 4), 1);
    run_part(r, "trunk.block.%d", 3);
    tensor *bad = linear(r, x, &w);
    assert_int_equal(bad->axes, 1);
    assert_int_equal(bad->dim[0], 1);
    assert_null(bad->data);
    assert_false(run_ok(r));
    assert_int_equal(run_status(r, &err), SAMITE_FAILED);
    assert_non_null(strstr(err.text, "linear in trunk.block.3: [2, 3, 4] with a.weight [5, 8] does not fit"));
    assert_null(strchr(err.text, '\n'));

    size_t used = run_mark(r);
    assert_ptr_equal(activate(r, x, ACT_RELU), bad);
    assert_ptr_equal(run_constant(r, 1, DIMS(1000)), bad);
    assert_ptr_equal(run_input(r, data, 1, DIMS(3)), bad);
    assert_ptr_equal(note(r, bad, "name"), bad);
    run_part(r, "elsewhere");
    run_fail(r, SAMITE_USAGE, "a second one");
    assert_int_equal(run_mark(r), used);
    assert_int_equal(run_status(r, &err), SAMITE_FAILED);
    assert_non_null(strstr(err.text, "trunk.block.3"));

    run_reset(r);
    x = numbers(r, data, 2, DIMS(3, 8), 1);
    assert_ptr_not_equal(linear(r, x, &w), bad);
    assert_int_equal(run_status(r, &err), 0);
    run_close(r);
    free(p.t.data);
}

/* Every op refuses what does not fit, under its own name. */
static void test_refusals(void **state)
{
    (void)state;
    static float data[4096];
    static int32_t ids[4] = {0, 1, 7, 2};
    param p = matrix(4, 8), four = {.t = {.axes = 1, .dim = {4}, .stride = 4, .data = data}}, *m = &p;
    linear_w lin = {m, NULL, 0, 8, 4, NULL}, past = {m, NULL, 2, 8, 4, NULL};
    norm_w n = {&four, &four, 1e-5f};
    conv_w c = {m, NULL, {8, 4, 1, 1, 0, 1}, NULL}, wide = {m, NULL, {8, 4, 3, 1, 0, 1}, NULL};
    up_w u = {m, NULL, 4, 2, NULL};
    attend_options one = {.heads = 1}, three = {.heads = 3};
    enum { CALLS = 41 };
    for (int i = 0; i < CALLS; i++) {
        run *r = open_run(RUN, 0);
        tensor *a = run_input(r, data, 3, DIMS(2, 3, 8)), *b = run_input(r, data, 3, DIMS(2, 5, 16));
        tensor *image = run_input(r, data, 4, DIMS(2, 3, 5, 8)), *flat = run_input(r, data, 2, DIMS(6, 8));
        tensor *index = run_indices(r, ids, 2, DIMS(2, 2)), *view = columns(r, image, 1, 4);
        attend_options mask = {.heads = 1, .key_mask = run_input(r, data, 2, DIMS(2, 4))};
        attend_options half = {.heads = 1, .bias_x = run_input(r, data, 4, DIMS(2, 3, 3, 1))};
        attend_options turn = {.heads = 1, .rope = data, .rope_rows = 3, .rope_keys = 9};
        float nan_box[4] = {0, 0, NAN, 1};
        const char *name = NULL;
        switch (i) {
#define CALL(number, op_name, call) case number: name = op_name; call; break
        CALL(0, "linear", linear(r, b, &lin));
        CALL(1, "linear", linear(r, a, &past));
        CALL(2, "linear", linear_add(r, a, &lin, a));
        CALL(3, "product", product(r, a, b));
        CALL(4, "product", product(r, flat, flat));
        CALL(5, "attention", attention(r, a, b, b, &one));
        CALL(6, "attention", attention(r, a, a, a, &three));
        CALL(7, "attention", attention(r, a, a, a, &mask));
        CALL(8, "attention", attention(r, a, a, a, &half));
        CALL(9, "attention", attention(r, a, a, a, &turn));
        CALL(10, "attention", attention(r, a, run_input(r, data, 3, DIMS(2, 0, 8)), a, &one));
        CALL(11, "norm", norm(r, a, &n));
        CALL(12, "group_norm", group_norm(r, image, &n, 2, false));
        CALL(13, "conv", conv(r, view, &c, ACT_NONE));
        CALL(14, "conv", conv(r, image, &wide, ACT_NONE));
        CALL(15, "conv_up2", conv_up2(r, image, &u, ACT_NONE));
        CALL(16, "patches", patches(r, image, 3));
        CALL(17, "window_partition", window_partition(r, image, 2));
        CALL(18, "window_merge", window_merge(r, a, 1, 4, 4, 2));
        CALL(19, "max_pool2", max_pool2(r, view));
        CALL(20, "add", add(r, a, b));
        CALL(21, "add", add(r, image, view));
        CALL(22, "multiply", multiply(r, flat, a));
        CALL(23, "reshape", reshape(r, a, 2, DIMS(7, 7)));
        CALL(24, "reshape", reshape(r, view, 1, DIMS(2 * 3 * 5 * 4)));
        CALL(25, "columns", columns(r, a, 5, 4));
        CALL(26, "columns", columns(r, a, -1, 2));
        CALL(27, "rows", rows(r, a, 1, 2));
        CALL(28, "concat", concat(r, a, b, 1));
        CALL(29, "concat", concat(r, a, a, 3));
        CALL(30, "repeat", repeat(r, a, 2));
        CALL(31, "gather_rows", gather_rows(r, flat, (int32_t[]){0, 6}, 2));
        CALL(32, "gather_rows", gather_rows(r, flat, (int32_t[]){-1}, 1));
        CALL(33, "embed", embed(r, m, index));
        CALL(34, "masked_mean", masked_mean(r, a, flat));
        CALL(35, "upsample_add", upsample_add(r, image, view));
        CALL(36, "resize_bilinear", resize_bilinear(r, image, 0, 4));
        CALL(37, "roi_align", roi_align(r, run_input(r, data, 4, DIMS(1, 3, 5, 8)),
                                        run_input(r, nan_box, 2, DIMS(1, 4)), 7));
        CALL(38, "point_sample", point_sample(r, image, flat));
        CALL(39, "sine_embed", sine_embed(r, a, (int[]){8}, 1, 4));
        CALL(40, "box_distances", box_distances(r, a, 0, 4));
#undef CALL
        default: break;
        }
        samite_error err;
        if (run_status(r, &err) != SAMITE_FAILED || strncmp(err.text, name, strlen(name)) || !strchr(err.text, '['))
            fail_msg("call %d of %s: %s", i, name, run_ok(r) ? "accepted" : err.text);
        run_close(r);
    }
    free(p.t.data);
}

static void test_impossible_sizes(void **state)
{
    (void)state;
    run *r = open_run(RUN, 0);
    float one = 1;
    run_constant(r, 3, DIMS(INT64_MAX / 2, 8, 8));
    assert_int_equal(run_status(r, NULL), SAMITE_FAILED);
    run_reset(r);
    repeat(r, run_input(r, &one, 1, DIMS(1)), INT64_MAX / 2);
    assert_false(run_ok(r));
    run_reset(r);
    pad_front(r, run_input(r, &one, 3, DIMS(1, 1, 1)), INT64_MAX);
    assert_false(run_ok(r));
    run_reset(r);
    run_constant(r, 1, DIMS(-1));
    assert_false(run_ok(r));
    run_reset(r);
    run_constant(r, 5, DIMS(1, 1, 1, 1, 1));
    assert_false(run_ok(r));
    run_close(r);
}

/* Nothing in, nothing out: no failure. */
static void test_empty_values(void **state)
{
    (void)state;
    run *r = open_run(RUN, 0);
    float data[8];
    param p = matrix(4, 8);
    linear_w w = {&p, NULL, 0, 8, 4, NULL};
    tensor *x = run_input(r, data, 2, DIMS(0, 8));
    assert_int_equal(linear(r, x, &w)->dim[0], 0);
    assert_int_equal(concat(r, x, x, 0)->dim[0], 0);
    assert_int_equal(activate(r, x, ACT_GELU)->dim[0], 0);
    assert_int_equal(gather_rows(r, run_input(r, data, 2, DIMS(1, 8)), NULL, 0)->dim[0], 0);
    assert_int_equal(masked_mean(r, run_input(r, data, 3, DIMS(1, 0, 8)), NULL)->dim[0], 1);
    assert_true(run_ok(r));
    run_close(r);
    free(p.t.data);
}

static void test_memory_limit(void **state)
{
    (void)state;
    run *r = open_run(RUN, (size_t)1 << 20);
    samite_error err;
    run_part(r, "fusion.layer.2");
    tensor *x = run_constant(r, 2, DIMS(128, 1024));
    assert_true(run_ok(r));
    memset(x->data, 0, 128 * 1024 * sizeof(float));
    scale(r, x, 2);
    assert_true(run_ok(r));
    scale(r, x, 2);
    assert_int_equal(run_status(r, &err), SAMITE_RESOURCE);
    assert_string_equal(err.text, "not enough memory: the part fusion.layer.2 needs 1 MB more; raise --memory-limit or use a "
                                  "smaller --size");
    run_reset(r);
    assert_non_null(run_constant(r, 2, DIMS(256, 1024))->data);
    run_close(r);

    /* temporaries count as well: this op needs one of the size of its output */
    float data[64], weights[64 * 64 * 4] = {0};
    param p = {.t = {.axes = 4, .dim = {64, 64, 2, 2}, .stride = 2, .data = weights}};
    up_w w = {&p, NULL, 64, 64, NULL};
    for (size_t limit = 60; limit <= 70; limit += 10) {
        r = open_run(RUN, limit << 10);
        conv_up2(r, numbers(r, data, 4, DIMS(1, 1, 1, 64), 3), &w, ACT_NONE);
        assert_int_equal(run_status(r, &err), limit == 60 ? SAMITE_RESOURCE : 0);
        run_close(r);
    }
}

static int count_down(void *user)
{
    return --*(int *)user < 0;
}

static void test_cancel(void **state)
{
    (void)state;
    int left = 3;
    samite_error err;
    float data[4];
    run *r = run_open(&(run_options){.mode = RUN, .cancelled = count_down, .cancel_user = &left}, NULL);
    run_part(r, "neck");
    tensor *x = numbers(r, data, 1, DIMS(4), 1);
    int done = 0;
    while (run_ok(r) && done < 10)
        x = scale(r, x, 2), done++;
    assert_int_equal(done, 3);
    assert_int_equal(run_status(r, &err), SAMITE_CANCELLED);
    assert_string_equal(err.text, "cancelled in neck");
    run_close(r);
}

/* ---- scopes ---- */

static void assert_numbers(const tensor *t, float first, float step)
{
    int64_t cols = tensor_cols(t), n = tensor_count(t);
    for (int64_t i = 0; i < n; i++)
        assert_true(t->data[i / cols * t->stride + i % cols] == first + step * (float)i);
}

static tensor *counting(run *r, int axes, const int64_t *dim, float first)
{
    tensor *t = run_constant(r, axes, dim);
    for (int64_t i = 0; t->data && i < tensor_count(t); i++)
        t->data[i] = first + (float)i;
    return t;
}

/* The same sequence in RUN and TRACE: numbers must survive every move, sizes must agree after every step. */
static size_t walk_scopes(run_mode mode, size_t *used)
{
    run *r = open_run(mode, 0);
    bool real = mode == RUN;
    size_t n = 0;
    tensor *a = counting(r, 2, DIMS(3, 5), 100);
    size_t mark = run_mark(r);
    counting(r, 1, DIMS(1000), 0);
    tensor *b = run_keep(r, mark, counting(r, 2, DIMS(7, 11), 1));           /* moves down */
    used[n++] = run_mark(r);
    counting(r, 1, DIMS(100), 0);
    tensor *whole = counting(r, 2, DIMS(4, 6), 0);
    tensor *c = run_keep(r, mark, columns(r, whole, 2, 2));                  /* a view takes its whole value along; b goes */
    used[n++] = run_mark(r);
    if (real)
        for (int64_t i = 0; i < 4; i++)
            assert_true(c->data[i * c->stride] == (float)(6 * i + 2));
    assert_int_equal(c->stride, 6);
    size_t inner = run_mark(r);
    counting(r, 1, DIMS(64), 0);
    assert_ptr_equal(run_keep(r, inner, a), a);                              /* older than the scope: stays */
    assert_int_equal(run_mark(r), inner);
    tensor *several[4];
    counting(r, 1, DIMS(50), 0);
    several[0] = counting(r, 1, DIMS(20), 500);
    counting(r, 1, DIMS(30), 0);
    several[1] = counting(r, 2, DIMS(2, 8), 700);
    several[2] = reshape(r, several[1], 1, DIMS(16));                        /* shares memory with the one before */
    several[3] = a;
    run_keep_all(r, inner, several, 4);
    used[n++] = run_mark(r);
    if (real) {
        assert_numbers(a, 100, 1);
        assert_numbers(several[0], 500, 1);
        assert_numbers(several[1], 700, 1);
        assert_numbers(several[2], 700, 1);
        assert_ptr_equal(several[1]->data, several[2]->data);
    }
    run_drop(r, mark);
    used[n++] = run_mark(r);
    assert_int_equal(run_mark(r), mark);
    assert_true(run_ok(r));
    (void)b;
    size_t peak = run_peak(r);
    run_close(r);
    return peak;
}

static void test_scopes(void **state)
{
    (void)state;
    size_t real[8] = {0}, traced[8] = {0};
    size_t peak = walk_scopes(RUN, real);
    assert_int_equal(peak, walk_scopes(TRACE, traced));
    assert_memory_equal(real, traced, sizeof real);
    assert_true(peak >= 4000 && peak < 6000);
}

static void test_save_and_restore(void **state)
{
    (void)state;
    run *r = open_run(RUN, 0);
    tensor *a = counting(r, 1, DIMS(10), 3);
    run_point p = run_save(r);
    size_t used = run_mark(r);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2000; i++)
            scale(r, a, 2);
        run_fail(r, SAMITE_INPUT, "some error");
        run_restore(r, p);
        assert_true(run_ok(r));
        assert_int_equal(run_mark(r), used);
        assert_numbers(a, 3, 1);
    }
    run_close(r);
}

/* ---- names ---- */

typedef struct heard { int count; char last[64]; float value; } heard;

static void hear(void *user, const char *name, const tensor *t)
{
    heard *h = user;
    h->count++;
    snprintf(h->last, sizeof h->last, "%s", name);
    h->value = t->data[0];
}

static void test_names(void **state)
{
    (void)state;
    heard h = {0};
    float data[4];
    run *r = open_run(RUN, 0);
    assert_false(run_observed(r));
    run_set_observer(r, hear, &h);
    assert_true(run_observed(r));
    tensor *x = numbers(r, data, 1, DIMS(4), 1);
    assert_ptr_equal(note(r, x, "hs.%d", 5), x);
    assert_int_equal(h.count, 1);
    assert_string_equal(h.last, "hs.5");
    assert_true(h.value == data[0]);
    run_close(r);

    r = open_run(TRACE, 0);
    run_set_observer(r, hear, &h);
    x = run_input(r, NULL, 1, DIMS(4));
    run_part(r, "one");
    tensor *y = note(r, scale(r, x, 2), "twice");
    run_part(r, "two");
    tensor *z = scale(r, y, 2);
    assert_int_equal(h.count, 1);
    assert_string_equal(run_name_of(r, y), "twice");
    assert_null(run_name_of(r, z));
    assert_int_equal(run_nodes(r), 2);
    assert_string_equal(run_node(r, 0)->part, "one");
    assert_string_equal(run_node(r, 1)->part, "two");
    assert_string_equal(run_node(r, 1)->op->name, "scale");
    assert_ptr_equal(run_node(r, 1)->in[0], y);
    assert_true(y->id > x->id && z->id > y->id);
    assert_int_equal(run_constant(r, 1, DIMS(3))->id, 0);
    run_close(r);
}

/* ---- the tape ---- */

/* A small network: two layers with a norm between them, used by the tests below. */
typedef struct net {
    param p[6];
    linear_w up, down;
    norm_w norm;
} net;

enum { WIDTH = 16, HIDDEN = 24, ROWS = 10 };

static void net_open(net *n, bool trainable)
{
    static const int64_t size[6][2] = {{HIDDEN, WIDTH}, {HIDDEN, 0}, {WIDTH, HIDDEN}, {WIDTH, 0}, {WIDTH, 0}, {WIDTH, 0}};
    for (int i = 0; i < 6; i++) {
        int64_t rows = size[i][0], cols = size[i][1], count = rows * (cols ? cols : 1);
        param *p = &n->p[i];
        *p = (param){.name = "net", .t = {.axes = cols ? 2 : 1, .dim = {rows, cols}, .stride = cols ? cols : rows}};
        p->t.data = malloc((size_t)count * sizeof(float));
        fill(p->t.data, count, 77 + (uint32_t)i);
        p->t.grad = trainable ? calloc((size_t)count, sizeof(float)) : NULL;
        p->trainable = trainable;
    }
    n->up = (linear_w){&n->p[0], &n->p[1], 0, WIDTH, HIDDEN, NULL};
    n->down = (linear_w){&n->p[2], &n->p[3], 0, HIDDEN, WIDTH, NULL};
    n->norm = (norm_w){&n->p[4], &n->p[5], 1e-5f};
}

static void net_close(net *n)
{
    for (int i = 0; i < 6; i++) {
        free(n->p[i].t.data);
        free(n->p[i].t.grad);
    }
}

/* Uses in[0] twice, through a column view and a scope of its own. */
static tensor *net_block(run *r, void *ctx, tensor **in)
{
    net *n = ctx;
    size_t mark = run_mark(r);
    tensor *x = in[0], *h = linear_act(r, norm(r, x, &n->norm), &n->up, ACT_GELU);
    x = run_keep(r, mark, linear_add(r, h, &n->down, x));
    tensor *swapped = concat(r, columns(r, x, WIDTH / 2, WIDTH / 2), columns(r, x, 0, WIDTH / 2), 1);
    return run_keep(r, mark, add(r, multiply(r, swapped, in[1]), x));
}

/* Two blocks, together checkpointed once more. */
static tensor *net_pair(run *r, void *ctx, tensor **in)
{
    tensor *x = run_checkpoint(r, net_block, ctx, in, 2);
    return run_checkpoint(r, net_block, ctx, (tensor *[]){x, in[1]}, 2);
}

typedef enum style { PLAIN, CHECKPOINTED, NESTED } style;

static tensor *net_forward(run *r, net *n, tensor *x, tensor *gate, style how)
{
    for (int i = 0; i < 2; i++) {
        if (how == NESTED) {
            x = run_checkpoint(r, net_pair, n, (tensor *[]){x, gate}, 2);
            continue;
        }
        for (int k = 0; k < 2; k++)
            x = how == PLAIN ? net_block(r, n, (tensor *[]){x, gate})
                             : run_checkpoint(r, net_block, n, (tensor *[]){x, gate}, 2);
    }
    return x;
}

/* One number from all: a b^T of the whole value with weights. */
static tensor *sum_of(run *r, tensor *x, float *weights)
{
    int64_t n = tensor_count(x);
    tensor *w = numbers(r, weights, 3, DIMS(1, 1, n), 5);
    return product(r, reshape(r, x, 3, DIMS(1, 1, n)), w);
}

typedef struct outcome {
    float dx[ROWS * WIDTH], dgate[ROWS * WIDTH], loss;
    size_t nodes, held, peak;
    int    heard;
} outcome;

static void train_once(net *n, style how, outcome *o)
{
    static float data[ROWS * WIDTH], gate_data[ROWS * WIDTH], weights[ROWS * WIDTH];
    heard h = {0};
    run *r = open_run(TAPE, 0);
    tensor *x = numbers(r, data, 2, DIMS(ROWS, WIDTH), 1), *gate = numbers(r, gate_data, 2, DIMS(ROWS, WIDTH), 2);
    samite_error err;
    for (int i = 0; i < 6; i++)
        if (n->p[i].t.grad)
            memset(n->p[i].t.grad, 0, (size_t)tensor_count(&n->p[i].t) * sizeof(float));
    run_want_grad(r, x);
    run_want_grad(r, gate);
    run_set_observer(r, hear, &h);
    tensor *y = net_forward(r, n, x, gate, how), *loss = sum_of(r, y, weights);
    o->nodes = run_nodes(r);
    o->held = run_mark(r);
    if (run_backward(r, loss, &err))
        fail_msg("%s", err.text);
    assert_int_equal(run_mark(r), o->held);
    o->loss = loss->data[0];
    o->peak = run_peak(r);
    o->heard = h.count;
    memcpy(o->dx, x->grad, sizeof o->dx);
    memcpy(o->dgate, gate->grad, sizeof o->dgate);
    run_close(r);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double off = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        off = fmax(off, fabs((double)a[i] - b[i]));
        most = fmax(most, fabs((double)b[i]));
    }
    return off / most;
}

static void test_checkpoint(void **state)
{
    (void)state;
    static outcome plain, other;
    net a, b;
    net_open(&a, true);
    net_open(&b, true);
    train_once(&a, PLAIN, &plain);
    for (style how = CHECKPOINTED; how <= NESTED; how++) {
        train_once(&b, how, &other);
        assert_true(other.loss == plain.loss);
        assert_true(distance(other.dx, plain.dx, ROWS * WIDTH) < 1e-6);
        assert_true(distance(other.dgate, plain.dgate, ROWS * WIDTH) < 1e-6);
        for (int i = 0; i < 6; i++)
            assert_true(distance(b.p[i].t.grad, a.p[i].t.grad, tensor_count(&a.p[i].t)) < 1e-6);
        assert_int_equal(other.nodes, (how == CHECKPOINTED ? 4 : 2) + 1);
        assert_true(other.held < plain.held / 3);
        assert_true(other.peak < plain.peak);
    }
    net_close(&a);
    net_close(&b);
}

/* Frozen weights, but an input that wants a gradient: the same gradient, none at the weights. */
static void test_frozen_weights(void **state)
{
    (void)state;
    static outcome trained, frozen;
    net a, b;
    net_open(&a, true);
    net_open(&b, false);
    train_once(&a, PLAIN, &trained);
    train_once(&b, CHECKPOINTED, &frozen);
    assert_true(distance(frozen.dx, trained.dx, ROWS * WIDTH) < 1e-6);
    net_close(&a);
    net_close(&b);
}

/* A frozen part in TAPE takes no more than in RUN and records nothing. */
static void test_frozen_part(void **state)
{
    (void)state;
    float data[ROWS * WIDTH], gate_data[ROWS * WIDTH];
    size_t peak[2], used[2];
    net n;
    net_open(&n, false);
    for (int i = 0; i < 2; i++) {
        run *r = open_run(i ? TAPE : RUN, 0);
        tensor *x = numbers(r, data, 2, DIMS(ROWS, WIDTH), 1), *gate = numbers(r, gate_data, 2, DIMS(ROWS, WIDTH), 2);
        tensor *y = net_forward(r, &n, x, gate, i ? CHECKPOINTED : PLAIN);
        assert_true(run_ok(r));
        assert_null(run_seed(r, y));
        assert_int_equal(run_nodes(r), 0);
        peak[i] = run_peak(r);
        used[i] = run_mark(r);
        run_close(r);
    }
    assert_int_equal(peak[0], peak[1]);
    assert_int_equal(used[0], used[1]);
    net_close(&n);
}

static tensor *through_ctx(run *r, void *ctx, tensor **in)
{
    return multiply(r, in[0], ctx);
}

static void test_checkpoint_wants_its_inputs(void **state)
{
    (void)state;
    float data[4], other[4], weights[4];
    run *r = open_run(TAPE, 0);
    tensor *x = numbers(r, data, 1, DIMS(4), 1), *z = numbers(r, other, 1, DIMS(4), 2);
    run_want_grad(r, x);
    tensor *hidden = scale(r, x, 2);
    samite_error err;
    tensor *y = run_checkpoint(r, through_ctx, hidden, &z, 1);
    assert_int_equal(run_backward(r, sum_of(r, y, weights), &err), SAMITE_FAILED);
    assert_non_null(strstr(err.text, "checkpoint"));
    run_close(r);
}

static void test_backward_refuses(void **state)
{
    (void)state;
    float data[4];
    samite_error err;
    run *r = open_run(RUN, 0);
    assert_int_equal(run_backward(r, numbers(r, data, 1, DIMS(1), 1), &err), SAMITE_FAILED);
    run_close(r);
    r = open_run(TAPE, 0);
    assert_int_equal(run_backward(r, numbers(r, data, 1, DIMS(4), 1), &err), SAMITE_FAILED);
    run_reset(r);
    assert_int_equal(run_backward(r, numbers(r, data, 1, DIMS(1), 1), &err), 0);    /* nothing depends on anything */
    run_close(r);
}

/* Parameters count the gradients of all ops and of several backward passes until somebody clears them. */
static void test_gradients_add_up(void **state)
{
    (void)state;
    float data[2] = {3, 4}, w[2] = {10, 20}, dw[2] = {0}, ones[2] = {1, 1};
    param p = {.name = "w", .t = {.axes = 1, .dim = {2}, .stride = 2, .data = w, .grad = dw}, .trainable = true};
    for (int pass = 1; pass <= 2; pass++) {
        run *r = open_run(TAPE, 0);
        tensor *x = run_input(r, data, 1, DIMS(2));
        tensor *y = add(r, multiply(r, x, run_param(r, &p)), scale(r, run_param(r, &p), 2));
        memcpy(run_seed(r, y), ones, sizeof ones);
        assert_int_equal(run_backward(r, NULL, NULL), 0);
        assert_true(dw[0] == (float)pass * 5 && dw[1] == (float)pass * 6);
        run_close(r);
    }
}

/* ---- threads ---- */

static void many_ops(float *out, float *dx, const float *data, const float *weights, int64_t side)
{
    static float gain[32], shift[32];
    static const float boxes[] = {1, 2, 17, 13, 0, 0, 23, 23, 5, 5, 6, 6};
    run *r = open_run(TAPE, 0);
    param g = {.t = {.axes = 1, .dim = {32}, .stride = 32, .data = gain}};
    param s = {.t = {.axes = 1, .dim = {32}, .stride = 32, .data = shift}};
    norm_w n = {&g, &s, 1e-5f};
    fill(gain, 32, 1);
    fill(shift, 32, 2);
    tensor *x = run_input(r, data, 4, DIMS(1, side, side, 32));
    run_want_grad(r, x);
    tensor *y = resize_bilinear(r, group_norm(r, x, &n, 4, true), side - 3, side + 5);
    y = resize_bilinear(r, upsample_add(r, max_pool2(r, y), y), side, side);
    y = multiply(r, y, rows(r, y, 0, 1));
    tensor *z = roi_align(r, y, run_input(r, boxes, 2, DIMS(3, 4)), 5);
    memcpy(out, z->data, (size_t)tensor_count(z) * sizeof *out);
    memcpy(run_seed(r, z), weights, (size_t)tensor_count(z) * sizeof *weights);
    assert_int_equal(run_backward(r, NULL, NULL), 0);
    memcpy(dx, x->grad, (size_t)tensor_count(x) * sizeof *dx);
    run_close(r);
}

static void test_threads(void **state)
{
    (void)state;
    enum { SIDE = 24, OUT = 3 * 25 * 32, IN = SIDE * SIDE * 32 };
    static float data[IN], weights[OUT], out[2][OUT], dx[2][IN];
    fill(data, IN, 3);
    fill(weights, OUT, 4);
    for (int i = 0; i < 2; i++) {
        threads_set(i ? 3 : 1);
        many_ops(out[i], dx[i], data, weights, SIDE);
    }
    threads_set(0);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_sticks), cmocka_unit_test(test_refusals), cmocka_unit_test(test_impossible_sizes),
        cmocka_unit_test(test_empty_values), cmocka_unit_test(test_memory_limit), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_scopes), cmocka_unit_test(test_save_and_restore), cmocka_unit_test(test_names),
        cmocka_unit_test(test_checkpoint), cmocka_unit_test(test_frozen_weights), cmocka_unit_test(test_frozen_part),
        cmocka_unit_test(test_checkpoint_wants_its_inputs), cmocka_unit_test(test_backward_refuses),
        cmocka_unit_test(test_gradients_add_up), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
