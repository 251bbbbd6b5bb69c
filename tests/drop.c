/* drop.c - numbers, branches and attention weights left out while learning: how many, which, and their gradients. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

#include <cmocka.h>

enum { B = 2, N = 5, M = 6, C = 16, HEADS = 2 };

typedef struct inputs {
    float q[B * N * C], k[B * M * C], v[B * M * C], mask[B * M], x[B * N * 3 * HEADS], y[B * N * 2 * HEADS];
} inputs;

static void fill(float *out, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static inputs some_inputs(void)
{
    inputs in = {0};
    fill(in.q, B * N * C, 1), fill(in.k, B * M * C, 2), fill(in.v, B * M * C, 3);
    fill(in.x, B * N * 3 * HEADS, 4), fill(in.y, B * N * 2 * HEADS, 5);
    in.mask[1] = in.mask[M + 4] = 1;
    return in;
}

static run *open_run(float rate, int64_t first)
{
    run *r = run_open(&(run_options){.mode = TAPE}, NULL);
    assert_non_null(r);
    run_set_drop(r, (drop_options){.rate = rate, .path_rate = rate, .seed = 7, .first = first});
    return r;
}

typedef struct wired { tensor *in[5], *out; } wired;

static wired attend(run *r, const inputs *in)
{
    static const int64_t dims[5][4] = {{B, N, C}, {B, M, C}, {B, M, C}, {B, N, 3, HEADS}, {B, N, 2, HEADS}};
    const float *data[5] = {in->q, in->k, in->v, in->x, in->y};
    wired w;
    for (int i = 0; i < 5; i++) {
        w.in[i] = run_input(r, data[i], i < 3 ? 3 : 4, dims[i]);
        run_want_grad(r, w.in[i]);
    }
    attend_options o = {.heads = HEADS, .key_mask = run_input(r, in->mask, 2, (int64_t[]){B, M}), .bias_x = w.in[3],
                        .bias_y = w.in[4]};
    w.out = attention_drop(r, w.in[0], w.in[1], w.in[2], &o);
    return w;
}

/* Gradients of the sum of out, number i times i. */
static void walk_back(run *r, tensor *out)
{
    float *seed = run_seed(r, out);
    assert_non_null(seed);
    for (int64_t i = 0; i < tensor_count(out); i++)
        seed[i] = (float)(i % 7) - 3;
    assert_int_equal(run_backward(r, NULL, NULL), 0);
}

static double weighed(const inputs *in, float rate)
{
    run *r = open_run(rate, 0);
    tensor *out = attend(r, in).out;
    double sum = 0;
    for (int64_t i = 0; i < tensor_count(out); i++)
        sum += ((double)(i % 7) - 3) * out->data[i];
    run_close(r);
    return sum;
}

/* With a rate of almost nothing it is attention itself. */
static void test_attention_stays(void **state)
{
    inputs in = some_inputs();
    run *plain = open_run(0, 0), *dropping = open_run(1e-30f, 0);
    wired a = attend(plain, &in), b = attend(dropping, &in);
    (void)state;
    walk_back(plain, a.out);
    walk_back(dropping, b.out);
    for (int64_t i = 0; i < tensor_count(a.out); i++)
        assert_float_equal(a.out->data[i], b.out->data[i], 1e-5);
    for (int i = 0; i < 5; i++)
        for (int64_t k = 0; k < tensor_count(a.in[i]); k++)
            assert_float_equal(a.in[i]->grad[k], b.in[i]->grad[k], 1e-4);
    run_close(plain);
    run_close(dropping);
}

static void test_attention_differences(void **state)
{
    inputs in = some_inputs();
    run *r = open_run(0.3f, 0);
    wired w = attend(r, &in);
    float *at[5] = {in.q, in.k, in.v, in.x, in.y};
    const float step = 1e-2f;
    (void)state;
    walk_back(r, w.out);
    for (int i = 0; i < 5; i++)
        for (int64_t k = 0; k < tensor_count(w.in[i]); k += 3) {
            float kept = at[i][k];
            at[i][k] = kept + step;
            double more = weighed(&in, 0.3f);
            at[i][k] = kept - step;
            double less = weighed(&in, 0.3f);
            at[i][k] = kept;
            assert_float_equal(w.in[i]->grad[k], (more - less) / (2 * step), 2e-2);
        }
    run_close(r);
}

static void test_share_and_gradient(void **state)
{
    enum { COUNT = 40000 };
    float *x = malloc(sizeof *x * COUNT);
    run *r = open_run(0.1f, 0);
    int gone = 0;
    (void)state;
    fill(x, COUNT, 9);
    tensor *t = run_input(r, x, 2, (int64_t[]){4, COUNT / 4});
    run_want_grad(r, t);
    tensor *y = drop(r, t), *other = drop(r, t);
    walk_back(r, y);
    for (int i = 0; i < COUNT; i++) {
        float by = y->data[i] == 0 ? 0 : 1 / 0.9f;
        gone += by == 0;
        assert_float_equal(y->data[i], x[i] * by, 1e-6);
        assert_float_equal(t->grad[i], ((float)(i % 7) - 3) * by, 1e-6);
    }
    assert_in_range(gone, COUNT / 10 - 300, COUNT / 10 + 300);
    assert_int_not_equal(memcmp(y->data, other->data, sizeof *x * COUNT), 0);       /* every op draws anew */
    run_close(r);
    free(x);
}

/* The last rows of a batch by themselves lose what they lose in the batch. */
static void test_batch_may_be_cut(void **state)
{
    float x[4 * 8], *tail = x + 2 * 8;
    run *r = open_run(0.5f, 0), *s = open_run(0.5f, 2);
    (void)state;
    fill(x, 32, 3);
    tensor *whole = drop(r, run_input(r, x, 2, (int64_t[]){4, 8}));
    tensor *part = drop(s, run_input(s, tail, 2, (int64_t[]){2, 8}));
    assert_memory_equal(whole->data + 16, part->data, sizeof(float) * 16);
    run_close(r);
    run_close(s);
}

static void test_branches(void **state)
{
    enum { PARTS = 64, SIZE = 6 };
    float x[PARTS * SIZE];
    run *r = open_run(0.5f, 0);
    int gone = 0;
    (void)state;
    for (int i = 0; i < PARTS * SIZE; i++)
        x[i] = 1;
    tensor *y = drop_path(r, run_input(r, x, 2, (int64_t[]){2 * PARTS, SIZE / 2}), 0.5f, PARTS);
    for (int i = 0; i < PARTS; i++) {
        gone += y->data[i * SIZE] == 0;
        for (int k = 0; k < SIZE; k++)
            assert_float_equal(y->data[i * SIZE + k], y->data[i * SIZE], 0);
    }
    assert_in_range(gone, PARTS / 4, 3 * PARTS / 4);
    run_close(r);
}

static tensor *dropping_part(run *r, void *ctx, tensor **in)
{
    (void)ctx;
    return drop(r, drop(r, in[0]));
}

/* A part that is computed a second time loses the same numbers. */
static void test_checkpoint(void **state)
{
    float x[64];
    (void)state;
    fill(x, 64, 6);
    run *r = open_run(0.3f, 0);
    tensor *t = run_input(r, x, 2, (int64_t[]){4, 16});
    run_want_grad(r, t);
    tensor *y = run_checkpoint(r, dropping_part, NULL, &t, 1);
    y = run_checkpoint(r, dropping_part, NULL, &y, 1);
    walk_back(r, y);
    for (int i = 0; i < 64; i++)
        assert_float_equal(t->grad[i], ((float)(i % 7) - 3) * (y->data[i] / x[i]), 1e-4);
    run_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_stays), cmocka_unit_test(test_attention_differences),
        cmocka_unit_test(test_share_and_gradient), cmocka_unit_test(test_batch_may_be_cut),
        cmocka_unit_test(test_branches), cmocka_unit_test(test_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
