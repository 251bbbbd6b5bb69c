/* ops_fused.c - ops that are fused where weights are packed, against the ops they stand for, in every arithmetic. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

#include <cmocka.h>

static const double loss[] = {[GEMM_F32] = 1e-10, [GEMM_BF16] = 1e-4, [GEMM_INT8] = 1e-3};   /* of the cosine */

static param random_param(int axes, int64_t a, int64_t b, int64_t c, int64_t d, float size)
{
    static uint32_t dice = 1;
    param p = {.name = "test", .t = {.axes = axes, .dim = {a, b, c, d}}};
    int64_t n = tensor_count(&p.t);
    p.t.stride = p.t.dim[axes - 1];
    p.t.data = malloc(sizeof(float) * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        p.t.data[i] = size * ((float)((dice = dice * 1664525 + 1013904223) >> 8) / 8388608.0f - 1);
    return p;
}

static double cosine_loss(const tensor *x, const tensor *y)
{
    double xy = 0, xx = 0, yy = 0;
    assert_int_equal(tensor_count(x), tensor_count(y));
    for (int64_t i = 0; i < tensor_count(x); i++) {
        xy += (double)x->data[i] * y->data[i];
        xx += (double)x->data[i] * x->data[i];
        yy += (double)y->data[i] * y->data[i];
    }
    return 1 - xy / sqrt(xx * yy);
}

static run *open_run(void)
{
    run_options o = {.mode = RUN};
    samite_error err;
    run *r = run_open(&o, &err);
    assert_non_null(r);
    return r;
}

static void check(const run *r, const tensor *fused, const tensor *plain, gemm_type type)
{
    samite_error err;
    if (run_status(r, &err))
        fail_msg("%s", err.text);
    if (!(cosine_loss(fused, plain) <= loss[type]))
        fail_msg("type %d: cosine is %g below 1", (int)type, cosine_loss(fused, plain));
}

/* More rows than are taken at a time, and few. */
static void test_feed_forward(void **state)
{
    enum { IN = 64, HIDDEN = 160 };
    (void)state;
    param p[] = {random_param(2, HIDDEN, IN, 0, 0, 0.2f), random_param(1, HIDDEN, 0, 0, 0, 0.2f),
                 random_param(2, IN, HIDDEN, 0, 0, 0.2f), random_param(1, IN, 0, 0, 0, 0.2f),
                 random_param(1, IN, 0, 0, 0, 1), random_param(1, IN, 0, 0, 0, 1), random_param(2, 1300, IN, 0, 0, 2)};
    norm_w n = {&p[4], &p[5], 1e-5f};
    for (int i = 0; i < 24; i++) {
        gemm_type type = (gemm_type)(i % 3);
        activation act = i / 3 % 2 ? ACT_GELU : ACT_RELU;
        int64_t dim[] = {i / 6 % 2 ? 1300 : 7, IN};
        const norm_w *normed = i / 12 ? &n : NULL;
        linear_w up = {&p[0], &p[1], 0, IN, HIDDEN, NULL, NULL}, down = {&p[2], &p[3], 0, HIDDEN, IN, NULL, NULL};
        run *r = open_run();
        tensor *x = run_input(r, p[6].t.data, 2, dim), *first = norm(r, x, &n);
        tensor *plain = feed_forward(r, x, normed, &up, &down, act), *plain_linear = linear(r, first, &up);
        assert_true(linear_pack(&up, type) && linear_pack(&down, type));
        check(r, feed_forward(r, x, normed, &up, &down, act), plain, type);
        check(r, norm_linear(r, x, &n, &up), plain_linear, type);
        gemm_weights_free(up.packed), gemm_weights_free(down.packed);
        run_close(r);
    }
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        free(p[i].t.data);
}

/* What is gathered and then projected, against what is projected and then gathered; narrow ones go to the reference. */
static void test_attention_linear(void **state)
{
    enum { BATCH = 2, QUERIES = 37, KEYS = 290, WIDTH = 64, MOST = 24 };
    (void)state;
    param p[] = {random_param(2, WIDTH, MOST, 0, 0, 0.3f), random_param(1, WIDTH, 0, 0, 0, 0.3f),
                 random_param(3, BATCH, QUERIES, WIDTH, 0, 1), random_param(3, BATCH, KEYS, WIDTH, 0, 1),
                 random_param(3, BATCH, KEYS, MOST, 0, 1)};
    for (int i = 0; i < 6; i++) {
        int64_t in = i % 2 ? MOST : MOST / 2;
        linear_w w = {&p[0], &p[1], 0, in, WIDTH, NULL, NULL};
        p[0].t.dim[1] = p[0].t.stride = in;
        run *r = open_run();
        tensor *q = run_input(r, p[2].t.data, 3, p[2].t.dim), *k = run_input(r, p[3].t.data, 3, p[3].t.dim);
        tensor *x = run_input(r, p[4].t.data, 3, (int64_t[]){i / 2 % 2 ? 1 : BATCH, KEYS, in});
        attend_options o = {.heads = i / 4 ? 2 : 1};       /* with two heads both ops are called */
        tensor *plain = attention(r, q, k, linear(r, x, &w), &o);
        check(r, attention_linear(r, q, k, x, &w, &o), plain, GEMM_F32);
        run_close(r);
    }
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        free(p[i].t.data);
}

static void test_up_linear(void **state)
{
    enum { IN = 32, MIDDLE = 24, OUT = 48 };
    (void)state;
    param p[] = {random_param(4, IN, MIDDLE, 2, 2, 0.2f), random_param(1, MIDDLE, 0, 0, 0, 1),
                 random_param(2, OUT, MIDDLE, 0, 0, 0.2f), random_param(1, OUT, 0, 0, 0, 1),
                 random_param(4, 2, 5, 7, IN, 1)};
    for (int type = GEMM_F32; type <= GEMM_INT8; type++) {
        linear_w then = {&p[2], &p[3], 0, MIDDLE, OUT, NULL, NULL};
        up_w up = {&p[0], &p[1], IN, MIDDLE, NULL, &then, NULL};
        run *r = open_run();
        tensor *x = run_input(r, p[4].t.data, 4, p[4].t.dim), *plain = conv_up2_linear(r, x, &up, &then);
        assert_true(up_w_pack(&up, (gemm_type)type));
        assert_non_null(up.folded);
        check(r, conv_up2_linear(r, x, &up, &then), plain, (gemm_type)type);
        gemm_weights_free(up.packed), gemm_weights_free(up.folded);
        run_close(r);
    }
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        free(p[i].t.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_feed_forward), cmocka_unit_test(test_attention_linear),
                                       cmocka_unit_test(test_up_linear)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
