/* run.c - what holds around every op: errors that stick, scopes, limits, names. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    assert_string_equal(err.text, "not enough memory: the part fusion.layer.2 needs 1 MB more; raise --memory-limit "
                                  "or use a smaller --size");
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
    assert_int_equal(run_mark(r), mark + 320);                               /* 7 * 11 numbers, to the next 64 bytes */
    counting(r, 1, DIMS(100), 0);
    tensor *whole = counting(r, 2, DIMS(4, 6), 0);
    tensor *c = run_keep(r, mark, columns(r, whole, 2, 2));             /* a view takes its whole value along; b goes */
    used[n++] = run_mark(r);
    assert_int_equal(run_mark(r), mark + 128);
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
    assert_int_equal(run_mark(r), inner + 128 + 64);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_sticks), cmocka_unit_test(test_refusals), cmocka_unit_test(test_impossible_sizes),
        cmocka_unit_test(test_empty_values), cmocka_unit_test(test_memory_limit), cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_scopes), cmocka_unit_test(test_save_and_restore), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
