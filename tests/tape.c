/* tape.c - gradients through several ops: accumulation, frozen parts, checkpoints, numbers of threads. */
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

/* A small network: two layers with a norm between them, used by the tests below. */
typedef struct net {
    param p[6];
    linear_w up, down;
    norm_w norm;
} net;

enum { WIDTH = 16, HIDDEN = 24, ROWS = 10 };

static void net_open(net *n, bool trainable)
{
    static const int64_t size[6][2] = {{HIDDEN, WIDTH}, {HIDDEN, 0}, {WIDTH, HIDDEN},
                                       {WIDTH, 0}, {WIDTH, 0}, {WIDTH, 0}};
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
    return note(r, run_keep(r, mark, add(r, multiply(r, swapped, in[1]), x)), "block");
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

static void hear(void *user, const char *name, const tensor *t)
{
    assert_string_equal(name, "block");
    assert_non_null(t->data);
    ++*(int *)user;
}

static void train_once(net *n, style how, outcome *o)
{
    static float data[ROWS * WIDTH], gate_data[ROWS * WIDTH], weights[ROWS * WIDTH];
    run *r = open_run(TAPE, 0);
    tensor *x = numbers(r, data, 2, DIMS(ROWS, WIDTH), 1), *gate = numbers(r, gate_data, 2, DIMS(ROWS, WIDTH), 2);
    samite_error err;
    for (int i = 0; i < 6; i++)
        if (n->p[i].t.grad)
            memset(n->p[i].t.grad, 0, (size_t)tensor_count(&n->p[i].t) * sizeof(float));
    run_want_grad(r, x);
    run_want_grad(r, gate);
    o->heard = 0;
    run_set_observer(r, hear, &o->heard);
    tensor *y = net_forward(r, n, x, gate, how), *loss = sum_of(r, y, weights);
    o->nodes = run_nodes(r);
    o->held = run_mark(r);
    if (run_backward(r, loss, &err))
        fail_msg("%s", err.text);
    assert_int_equal(run_mark(r), o->held);
    o->loss = loss->data[0];
    o->peak = run_peak(r);
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
        assert_int_equal(other.heard, 4);    /* what is computed again is not announced again */
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

/* Gradients give their memory to those computed later. */
static void test_gradient_memory(void **state)
{
    (void)state;
    enum { LINKS = 40, SIZE = 1024 };
    static float data[SIZE];
    run *r = open_run(TAPE, 0);
    tensor *x = numbers(r, data, 1, DIMS(SIZE), 1), *y = x;
    run_want_grad(r, x);
    for (int i = 0; i < LINKS; i++)
        y = scale(r, y, -1);
    float *dy = run_seed(r, y);
    memcpy(dy, data, sizeof data);
    size_t held = run_mark(r);
    assert_int_equal(run_backward(r, NULL, NULL), 0);
    assert_true(run_peak(r) - held <= 2 * sizeof data);
    assert_memory_equal(x->grad, data, sizeof data);
    run_close(r);
}

/* Weights that learn are read afresh, packed or not. */
static void test_packed_weights_that_learn(void **state)
{
    (void)state;
    enum { SIDE = 8 };
    float data[SIDE], weights[SIDE * SIDE * 4];
    param p = {.name = "w", .t = {.axes = 4, .dim = {SIDE, SIDE, 1, 1}, .stride = 1, .data = weights}};
    param q = {.name = "q", .t = {.axes = 4, .dim = {SIDE, SIDE, 2, 2}, .stride = 2, .data = weights}};
    linear_w l = {&p, NULL, 0, SIDE, SIDE, NULL};
    conv_w c = {&p, NULL, {SIDE, SIDE, 1, 1, 0, 1}, NULL};
    up_w u = {&q, NULL, SIDE, SIDE, NULL};
    fill(weights, SIDE * SIDE * 4, 3);
    assert_true(linear_pack(&l, GEMM_F32) && conv_w_pack(&c, GEMM_F32) && up_w_pack(&u, GEMM_F32));
    memset(weights, 0, sizeof weights);
    for (int learns = 0; learns < 2; learns++) {
        run *r = open_run(TAPE, 0);
        tensor *x = numbers(r, data, 4, DIMS(1, 1, 1, SIDE), 1);
        p.trainable = q.trainable = learns;
        tensor *y[] = {linear(r, x, &l), conv(r, x, &c, ACT_NONE), conv_up2(r, x, &u, ACT_NONE)};
        assert_true(run_ok(r));
        for (int i = 0; i < 3; i++)
            assert_int_equal(y[i]->data[0] == 0.0f, learns);
        run_close(r);
    }
    gemm_weights_free(l.packed);
    conv_weights_free(c.packed);
    gemm_weights_free(u.packed);
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

/* Boxes of several maps: as those of each map alone, answers and gradients. */
static void roi_of(const float *data, int64_t maps, const float *boxes, float *out, float *dx)
{
    run *r = open_run(TAPE, 0);
    tensor *x = run_input(r, data, 4, DIMS(maps, 6, 7, 8));
    run_want_grad(r, x);
    tensor *y = roi_align(r, x, run_input(r, boxes, 2, DIMS(2 * maps, 4)), 3);
    memcpy(out, y->data, (size_t)tensor_count(y) * sizeof *out);
    fill(run_seed(r, y), (size_t)tensor_count(y), 9);
    assert_int_equal(run_backward(r, NULL, NULL), 0);
    memcpy(dx, x->grad, (size_t)tensor_count(x) * sizeof *dx);
    run_close(r);
}

static void test_boxes_of_maps(void **state)
{
    (void)state;
    enum { MAP = 6 * 7 * 8, OUT = 2 * 9 * 8 };
    static const float boxes[16] = {0, 0, 3, 4, 1, 2, 6, 5, 2, 1, 7, 6, 0.5f, 0.5f, 1, 1};
    static float data[2 * MAP], out[2 * OUT], one[OUT], dx[2 * MAP], done[MAP];
    fill(data, 2 * MAP, 3);
    roi_of(data, 2, boxes, out, dx);
    roi_of(data, 1, boxes, one, done);
    assert_memory_equal(out, one, sizeof one);
    assert_memory_equal(dx, done, sizeof done);
    roi_of(data + MAP, 1, boxes + 8, one, done);
    assert_memory_equal(out + OUT, one, sizeof one);
    samite_error e;
    run *r = open_run(RUN, 0);
    roi_align(r, run_input(r, data, 4, DIMS(2, 6, 7, 8)), run_input(r, boxes, 2, DIMS(3, 4)), 3);
    assert_int_equal(run_status(r, &e), SAMITE_FAILED);
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
        cmocka_unit_test(test_checkpoint), cmocka_unit_test(test_frozen_weights), cmocka_unit_test(test_frozen_part),
        cmocka_unit_test(test_checkpoint_wants_its_inputs), cmocka_unit_test(test_backward_refuses),
        cmocka_unit_test(test_gradients_add_up), cmocka_unit_test(test_gradient_memory),
        cmocka_unit_test(test_packed_weights_that_learn), cmocka_unit_test(test_boxes_of_maps), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("tape", tests, NULL, NULL);
}
