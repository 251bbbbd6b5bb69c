/* kernels.c - every slot of every level of this CPU against the reference level; `--bench` measures instead. */
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/kernels.h"
#include "numbers.h"

int kernels_bench(void);

enum { OUTPUTS = 5 };

static const kernels *levels[8];
static int level_count;

/* A call of one slot: sizes and inputs; run() writes out[0..outputs-1], which hold out_size values to begin with. */
typedef struct call {
    void (*run)(const kernels *k, const struct call *c, float **out);
    const char *name;
    double tolerance;
    int outputs;
    int64_t out_size[OUTPUTS];
    int64_t n, rows, cols, groups, batch;
    int variant;
    const float *in[4];
    const attention_args *attention;
} call;

static void outputs_make(float **out, const call *c, int offset)
{
    for (int i = 0; i < c->outputs; i++)
        out[i] = guarded_floats(c->out_size[i], offset, 100 + (uint64_t)i);
}

static void outputs_drop(float **out, const call *c, int offset)
{
    for (int i = 0; i < c->outputs; i++)
        guarded_drop(out[i], offset);
}

static void compare(const kernels *k, const call *c, float **out, float **expected, float **once, int threads)
{
    for (int i = 0; i < c->outputs; i++) {
        double error = relative_error(out[i], expected[i], c->out_size[i]);
        if (!(error <= c->tolerance))
            fail_msg("%s, level %s, output %d: error %g, allowed %g (n %ld rows %ld cols %ld variant %d)", c->name, k->level, i,
                     error, c->tolerance, (long)c->n, (long)c->rows, (long)c->cols, c->variant);
        if (!guards_hold(out[i], c->out_size[i]))
            fail_msg("%s, level %s, output %d: wrote outside (n %ld rows %ld cols %ld variant %d)", c->name, k->level, i,
                     (long)c->n, (long)c->rows, (long)c->cols, c->variant);
        if (memcmp(out[i], once[i], (size_t)c->out_size[i] * sizeof(float)))
            fail_msg("%s, level %s, output %d: other bits with %d threads (n %ld rows %ld cols %ld variant %d)", c->name,
                     k->level, i, threads, (long)c->n, (long)c->rows, (long)c->cols, c->variant);
    }
}

/* Every level, output alignment and number of threads. */
static void check(const call *c)
{
    for (int offset = 0; offset < 2; offset++) {
        float *expected[OUTPUTS];
        outputs_make(expected, c, offset);
        c->run(levels[0], c, expected);
        for (int l = 0; l < level_count; l++) {
            float *once[OUTPUTS], *out[OUTPUTS];
            omp_set_num_threads(1);
            outputs_make(once, c, offset);
            c->run(levels[l], c, once);
            for (int threads = 1; threads <= 3; threads++) {
                omp_set_num_threads(threads);
                outputs_make(out, c, offset);
                c->run(levels[l], c, out);
                compare(levels[l], c, out, expected, once, threads);
                outputs_drop(out, c, offset);
            }
            outputs_drop(once, c, offset);
        }
        outputs_drop(expected, c, offset);
    }
}

static const int64_t sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 16383, 16384, 16385, 40001};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Runs the call for every size, with inputs of that size that are not aligned. */
static void check_sizes(call c)
{
    for (int i = 0; i < SIZES; i++) {
        float *a = random_floats(sizes[i], 1, 1), *b = random_floats(sizes[i], 1, 2);
        for (int64_t j = 0; j < sizes[i]; j += 3)
            a[j] *= 10;     /* reach the flat parts of activations */
        c.n = c.out_size[0] = sizes[i];
        c.in[0] = a;
        c.in[1] = b;
        check(&c);
        drop(a, 1);
        drop(b, 1);
    }
}

static void run_add(const kernels *k, const call *c, float **out)
{
    int64_t period = c->variant == 0 || c->variant > c->n ? c->n : c->variant;

    k->add(out[0], c->in[0], c->in[1], c->n, period);
}

static void run_add_in_place(const kernels *k, const call *c, float **out)
{
    k->add(out[0], out[0], c->in[1], c->n, c->n);
    k->add(out[0], c->in[0], out[0], c->n, c->n);
}

static void test_add(void **state)
{
    const int periods[] = {0, 1, 3, 16, 100, 1000};

    for (int i = 0; i < 6; i++)
        check_sizes((call){run_add, "add", 0, 1, .variant = periods[i]});
    check_sizes((call){.run = run_add_in_place, .name = "add in place", .outputs = 1});
}

static void run_axpy(const kernels *k, const call *c, float **out)
{
    k->axpy(out[0], c->in[0], -0.37f, c->n);
}

static void test_axpy(void **state)
{
    check_sizes((call){.run = run_axpy, .name = "axpy", .tolerance = 1e-7, .outputs = 1});
}

static void run_activate(const kernels *k, const call *c, float **out)
{
    k->activate(out[0], c->in[0], (activation)c->variant, c->n);
}

static void run_activate_in_place(const kernels *k, const call *c, float **out)
{
    k->activate(out[0], out[0], (activation)c->variant, c->n);
}

static void run_activate_backward(const kernels *k, const call *c, float **out)
{
    k->activate_backward(out[0], c->in[1], c->in[0], (activation)c->variant, c->n);
}

static void test_activate(void **state)
{
    for (int act = ACT_NONE; act <= ACT_SIGMOID; act++) {
        check_sizes((call){run_activate, "activate", 3e-7, 1, .variant = act});
        check_sizes((call){run_activate_in_place, "activate in place", 3e-7, 1, .variant = act});
        check_sizes((call){run_activate_backward, "activate_backward", 1e-6, 1, .variant = act});
    }
}

/* Over the whole range: absolute error near zero, exact ends, NaN stays. */
static void test_activate_range(void **state)
{
    enum { N = 40000 };
    float *x = random_floats(N, 0, 0), *y = random_floats(N, 0, 0), *r = random_floats(N, 0, 0);

    for (int i = 0; i < N; i++)
        x[i] = (float)(i - N / 2) * 1e-3f;
    for (int l = 1; l < level_count; l++)
        for (int act = ACT_RELU; act <= ACT_SIGMOID; act++) {
            levels[0]->activate(r, x, (activation)act, N);
            levels[l]->activate(y, x, (activation)act, N);
            for (int i = 0; i < N; i++)
                assert_true(fabsf(y[i] - r[i]) <= 2e-7f * fmaxf(1, fabsf(r[i])));
            float odd[4] = {INFINITY, NAN, 1e30f, -1e30f}, z[4], s[4];
            levels[l]->activate(z, odd, (activation)act, 4);
            levels[0]->activate(s, odd, (activation)act, 4);
            assert_true(relative_error(z, s, 4) == 0);
        }
    drop(x, 0), drop(y, 0), drop(r, 0);
}

static void test_bf16(void **state)
{
    enum { N = 1 << 17 };
    uint32_t *bits = malloc(N * sizeof *bits);
    uint16_t *r = malloc(N * sizeof *r), *y = malloc(N * sizeof *y);
    float *wide = malloc(N * sizeof *wide), *expected = malloc(N * sizeof *expected);

    for (uint32_t i = 0; i < N; i++) {      /* every upper half, with remainders below, at and above one half */
        uint32_t odd = i % 3 == 0 ? 0x8000 : i * 2654435761u >> 16;
        bits[i] = (i >> 1) << 16 | (i & 1 ? odd : i % 5 * 0x3fff);
    }
    for (int l = 0; l < level_count; l++) {
        levels[0]->to_bf16(r, (const float *)bits, N - 1);
        levels[l]->to_bf16(y, (const float *)bits, N - 1);
        assert_memory_equal(y, r, (N - 1) * sizeof *y);
        for (int i = 0; i < 65536; i++)
            y[i] = (uint16_t)i;
        levels[0]->from_bf16(expected, y, 65535);
        levels[l]->from_bf16(wide, y, 65535);
        assert_memory_equal(wide, expected, 65535 * sizeof *wide);
        levels[0]->from_f16(expected, y, 65535);
        levels[l]->from_f16(wide, y, 65535);
        assert_memory_equal(wide, expected, 65535 * sizeof *wide);
    }
    assert_true(expected[0x3c00] == 1 && expected[0xc500] == -5 && expected[1] == 0x1p-24f && expected[0x7bff] == 65504);
    free(bits), free(r), free(y), free(wide), free(expected);
}

static void run_column_sums(const kernels *k, const call *c, float **out)
{
    k->column_sums(out[0], c->in[0], c->rows, c->cols, c->cols + 3);
}

static void run_norm(const kernels *k, const call *c, float **out)
{
    if (c->variant == 1)
        memcpy(out[0], c->in[0], (size_t)(c->rows * c->cols) * sizeof(float));
    k->norm(out[0], c->variant == 2 ? NULL : out[1], c->variant == 2 ? NULL : out[2], c->variant == 1 ? out[0] : c->in[0],
            c->in[1], c->in[2], c->rows, c->cols, 1e-5f);
}

static void run_norm_backward(const kernels *k, const call *c, float **out)
{
    float *y = random_floats(c->rows * c->cols, 0, 0), *mean = random_floats(c->rows, 0, 0), *rstd = random_floats(c->rows, 0, 0);

    levels[0]->norm(y, mean, rstd, c->in[0], c->in[1], c->in[2], c->rows, c->cols, 1e-5f);
    k->norm_backward(c->variant == 1 ? NULL : out[0], c->variant == 2 ? NULL : out[1], c->variant == 3 ? NULL : out[2], c->in[3],
                     c->in[0], mean, rstd, c->in[1], c->rows, c->cols);
    drop(y, 0), drop(mean, 0), drop(rstd, 0);
}

static void test_norm(void **state)
{
    const int64_t shapes[][2] = {{1, 1}, {3, 2}, {5, 7}, {4, 8}, {33, 9}, {7, 31}, {65, 64}, {9, 65}, {201, 256}, {130, 1024}};

    for (int i = 0; i < 10; i++) {
        int64_t rows = shapes[i][0], cols = shapes[i][1], n = rows * cols;
        float *x = random_floats(rows * (cols + 3), 1, 4), *gain = random_floats(cols, 1, 5), *shift = random_floats(cols, 1, 6),
              *dy = random_floats(n, 1, 7);
        call c = {run_column_sums, "column_sums", 1e-6, 1, {cols}, .rows = rows, .cols = cols, .in = {x, gain, shift, dy}};
        check(&c);
        for (int64_t j = 0; j < n; j++)
            x[j] = x[j] * 3 + 20;       /* a mean far from zero */
        /* mean 20, spread 3: the rounding of x - mean alone is 20 / 3 parts in 2^24 */
        c = (call){run_norm, "norm", 3e-6, 3, {n, rows, rows}, .rows = rows, .cols = cols, .in = {x, gain, shift}};
        for (c.variant = 0; c.variant < 3 && cols > 1; c.variant++)
            check(&c);
        c = (call){run_norm_backward, "norm_backward", 1e-5, 3, {n, cols, cols}, .rows = rows, .cols = cols,
                   .in = {x, gain, shift, dy}};
        for (c.variant = 0; c.variant < 4 && cols > 1; c.variant++)
            check(&c);
        drop(x, 1), drop(gain, 1), drop(shift, 1), drop(dy, 1);
    }
}

static void run_group_norm(const kernels *k, const call *c, float **out)
{
    bool in_place = c->variant & 2;

    if (in_place)
        memcpy(out[0], c->in[0], (size_t)c->out_size[0] * sizeof(float));
    k->group_norm(out[0], in_place ? NULL : out[1], in_place ? NULL : out[2], in_place ? out[0] : c->in[0], c->in[1], c->in[2],
                  c->batch, c->rows, c->cols, c->groups, 1e-5f, c->variant & 1);
}

static void test_group_norm(void **state)
{
    const int64_t shapes[][4] = {{1, 2, 1, 1}, {1, 1, 8, 2}, {2, 5, 6, 3}, {3, 33, 16, 8}, {1, 4097, 40, 1}, {2, 700, 256, 8},
                                 {1, 100, 132, 33}, {1, 64, 17, 1}};

    for (int i = 0; i < 8; i++) {
        int64_t batch = shapes[i][0], pixels = shapes[i][1], channels = shapes[i][2], groups = shapes[i][3];
        int64_t n = batch * pixels * channels;
        float *x = random_floats(n, 1, 8), *gain = random_floats(channels, 1, 9), *shift = random_floats(channels, 1, 10);
        call c = {run_group_norm, "group_norm", 1e-5, 3, {n, batch * groups, batch * groups}, .batch = batch, .rows = pixels,
                  .cols = channels, .groups = groups, .in = {x, gain, shift}};
        for (int64_t j = 0; j < n; j++)
            x[j] += 5;
        for (c.variant = 0; c.variant < 4; c.variant++)
            check(&c);
        drop(x, 1), drop(gain, 1), drop(shift, 1);
    }
}

static void test_levels(void **state)
{
    assert_string_equal(levels[0]->level, "ref");
    assert_false(kernels_cap("no such level"));
    assert_true(kernels_cap(levels[level_count - 1]->level));
    assert_ptr_equal(kernels_get(), levels[level_count - 1]);
    assert_ptr_equal(kernels_get(), levels[level_count - 1]);
    assert_false(kernels_cap("ref") && level_count > 1);    /* too late */
    assert_true(kernels_cap(levels[level_count - 1]->level));
    assert_true(level_count < 2 || strstr(kernels_cpu_features(), "AVX2"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),       cmocka_unit_test(test_axpy),           cmocka_unit_test(test_activate),
        cmocka_unit_test(test_bf16),      cmocka_unit_test(test_activate_range), cmocka_unit_test(test_norm),
        cmocka_unit_test(test_group_norm), cmocka_unit_test(test_levels),
    };

    level_count = kernels_levels(levels, 8);
    if (argc > 1 && !strcmp(argv[1], "--bench"))
        return kernels_bench();
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
