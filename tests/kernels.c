/* kernels.c - every slot of every level of this CPU against the reference level; `--bench [LEVEL]` measures instead. */
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
            fail_msg("%s, level %s, output %d: error %g, allowed %g (n %ld rows %ld cols %ld variant %d)", c->name,
                     k->level, i, error, c->tolerance, (long)c->n, (long)c->rows, (long)c->cols, c->variant);
        if (!guards_hold(out[i], c->out_size[i]))
            fail_msg("%s, level %s, output %d: wrote outside (n %ld rows %ld cols %ld variant %d)", c->name, k->level,
                     i, (long)c->n, (long)c->rows, (long)c->cols, c->variant);
        if (memcmp(out[i], once[i], (size_t)c->out_size[i] * sizeof(float)))
            fail_msg("%s, level %s, output %d: other bits with %d threads (n %ld rows %ld cols %ld variant %d)",
                     c->name, k->level, i, threads, (long)c->n, (long)c->rows, (long)c->cols, c->variant);
    }
}

/* Every level, output alignment and number of threads; the reference only once more, as it is slow. */
static void check(const call *c)
{
    for (int offset = 0; offset < 2; offset++) {
        float *expected[OUTPUTS];
        outputs_make(expected, c, offset);
        omp_set_num_threads(1);
        c->run(levels[0], c, expected);
        for (int l = 0; l < level_count; l++) {
            float *once[OUTPUTS], *out[OUTPUTS];
            outputs_make(once, c, offset);
            for (int threads = l ? 1 : 3; threads <= 3; threads++) {
                omp_set_num_threads(threads);
                outputs_make(out, c, offset);
                c->run(levels[l], c, out);
                for (int i = 0; threads == 1 && i < c->outputs; i++)
                    memcpy(once[i], out[i], (size_t)c->out_size[i] * sizeof(float));
                compare(levels[l], c, out, expected, l ? once : expected, threads);
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

/* A row of every size; every seventh value is masked. */
static void run_softmax(const kernels *k, const call *c, float **out)
{
    for (int64_t i = 0; i < c->n; i++)
        out[0][i] = i % 7 == 3 ? -INFINITY : 8 * c->in[0][i];
    k->softmax(out[0], out[0], 1, c->n);
}

static void test_softmax(void **state)
{
    float nothing[5] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    check_sizes((call){.run = run_softmax, .name = "softmax", .tolerance = 1e-6, .outputs = 1});
    for (int i = 0; i < level_count; i++) {
        float y[5];
        levels[i]->softmax(y, nothing, 1, 5);
        for (int k = 0; k < 5; k++)
            assert_true(y[k] == 0);
    }
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
    assert_true(expected[0x3c00] == 1 && expected[0xc500] == -5 && expected[1] == 0x1p-24f &&
                expected[0x7bff] == 65504);
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
    k->norm(out[0], c->variant == 2 ? NULL : out[1], c->variant == 2 ? NULL : out[2],
            c->variant == 1 ? out[0] : c->in[0], c->in[1], c->in[2], c->rows, c->cols, 1e-5f);
}

static void run_norm_backward(const kernels *k, const call *c, float **out)
{
    float *y = random_floats(c->rows * c->cols, 0, 0), *mean = random_floats(c->rows, 0, 0),
          *rstd = random_floats(c->rows, 0, 0);

    levels[0]->norm(y, mean, rstd, c->in[0], c->in[1], c->in[2], c->rows, c->cols, 1e-5f);
    k->norm_backward(c->variant == 1 ? NULL : out[0], c->variant == 2 ? NULL : out[1], c->variant == 3 ? NULL : out[2],
                     c->in[3], c->in[0], mean, rstd, c->in[1], c->rows, c->cols);
    drop(y, 0), drop(mean, 0), drop(rstd, 0);
}

static void test_norm(void **state)
{
    const int64_t shapes[][2] = {{1, 1},  {3, 2},   {5, 7},  {4, 8},     {33, 9},
                                 {7, 31}, {65, 64}, {9, 65}, {201, 256}, {130, 1024}};

    for (int i = 0; i < 10; i++) {
        int64_t rows = shapes[i][0], cols = shapes[i][1], n = rows * cols;
        float *x = random_floats(rows * (cols + 3), 1, 4), *gain = random_floats(cols, 1, 5),
              *shift = random_floats(cols, 1, 6), *dy = random_floats(n, 1, 7);
        call c = {run_column_sums, "column_sums", 1e-6,         1,
                  {cols},          .rows = rows,  .cols = cols, .in = {x, gain, shift, dy}};
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
    k->group_norm(out[0], in_place ? NULL : out[1], in_place ? NULL : out[2], in_place ? out[0] : c->in[0], c->in[1],
                  c->in[2], c->batch, c->rows, c->cols, c->groups, 1e-5f, c->variant & 1);
}

static void test_group_norm(void **state)
{
    const int64_t shapes[][4] = {{1, 2, 1, 1},     {1, 1, 8, 2},     {2, 5, 6, 3},      {3, 33, 16, 8},
                                 {1, 4097, 40, 1}, {2, 700, 256, 8}, {1, 100, 132, 33}, {1, 64, 17, 1}};

    for (int i = 0; i < 8; i++) {
        int64_t batch = shapes[i][0], pixels = shapes[i][1], channels = shapes[i][2], groups = shapes[i][3];
        int64_t n = batch * pixels * channels;
        float *x = random_floats(n, 1, 8), *gain = random_floats(channels, 1, 9),
              *shift = random_floats(channels, 1, 10);
        call c = {run_group_norm,
                  "group_norm",
                  1e-5,
                  3,
                  {n, batch * groups, batch * groups},
                  .batch = batch,
                  .rows = pixels,
                  .cols = channels,
                  .groups = groups,
                  .in = {x, gain, shift}};
        for (int64_t j = 0; j < n; j++)
            x[j] += 5;
        for (c.variant = 0; c.variant < 4; c.variant++)
            check(&c);
        drop(x, 1), drop(gain, 1), drop(shift, 1);
    }
}

/* A shape of attention and what it is combined with. */
typedef struct attention_case {
    int64_t batch, heads, dim, nq, nk;
    enum { ROPE = 1, CAUSAL = 2, MASK = 4, BIAS = 8, SHARED = 16, LOOSE = 32, ALL_MASKED = 64, NARROW = 128 } with;
    int64_t rope_keys;
} attention_case;

static const attention_case attention_cases[] = {
    {2, 2, 32, 50, 192, ROPE, 192}, {1, 3, 64, 49, 320, 0, 0},
    {1, 1, 8, 1, 1, 0, 0},
    {1, 2, 16, 5, 3, LOOSE, 0},
    {2, 3, 24, 7, 17, MASK, 0},
    {1, 2, 32, 47, 63, ROPE | LOOSE, 63},
    {2, 2, 32, 48, 64, SHARED, 0},
    {1, 1, 64, 49, 65, MASK | ROPE, 65},
    {1, 2, 40, 97, 256, 0, 0},
    {1, 1, 64, 53, 257, ROPE, 200},
    {2, 2, 64, 31, 31, CAUSAL, 0},
    {1, 1, 32, 300, 300, CAUSAL | MASK, 0},
    {1, 2, 32, 21, 36, BIAS, 0},
    {2, 3, 32, 21, 77, BIAS | MASK, 0},
    {1, 2, 48, 9, 530, BIAS | LOOSE, 0},
    {1, 1, 256, 13, 70, ROPE | LOOSE, 50},
    {1, 1, 136, 50, 519, 0, 0},
    {3, 2, 16, 19, 40, MASK | ALL_MASKED | SHARED, 0},
    {1, 4, 32, 3, 1, 0, 0},
    {1, 2, 64, 6, 0, 0, 0},
    {40, 8, 64, 8, 9, ROPE, 9},
    {1, 1, 8, 700, 9, 0, 0},
    {1, 1, 256, 53, 300, ROPE | NARROW, 290},
    {1, 1, 256, 50, 321, ROPE | NARROW, 257},
    {1, 2, 64, 49, 575, NARROW, 0},
    {1, 1, 256, 17, 127, NARROW | SHARED, 0},
    {2, 2, 64, 31, 77, MASK | LOOSE | NARROW, 0},
    {1, 2, 40, 9, 40, NARROW, 0},
};
enum { ATTENTION_CASES = sizeof attention_cases / sizeof *attention_cases };

typedef struct attention_setup {
    attention_args a;
    float *q, *k, *v, *rope, *mask, *bias_x, *bias_y;
} attention_setup;

/* Mask: every third key; with ALL_MASKED the first batch item has no key left. */
static float *case_mask(const attention_case *s)
{
    float *mask = random_floats(s->batch * s->nk, 1, 0);

    for (int64_t i = 0; i < s->batch * s->nk; i++)
        mask[i] = i % 3 == 1 || (i < s->nk && s->with & ALL_MASKED) ? 1.0f : 0.0f;
    return mask;
}

static attention_setup case_setup(const attention_case *s)
{
    int64_t gap = s->with & LOOSE ? 5 : 0, cols = s->heads * s->dim, grid_w = 7, grid_h = (s->nk + 6) / 7;
    int64_t items = s->with & SHARED ? 1 : s->batch;
    attention_setup t = {.q = random_floats(s->batch * s->nq * (cols + gap), 1, 21),
                         .k = random_floats(items * s->nk * (cols + gap), 1, 22),
                         .v = random_floats(items * s->nk * (cols + 2 * gap), 1, 23),
                         .rope = random_floats(40 * s->dim, 1, 24)};

    if (s->with & MASK)
        t.mask = case_mask(s);
    if (s->with & BIAS) {
        t.bias_x = random_floats(s->batch * s->nq * grid_w * s->heads, 1, 25);
        t.bias_y = random_floats(s->batch * s->nq * grid_h * s->heads, 1, 26);
    }
    t.a = (attention_args){.q = t.q,
                           .k = t.k,
                           .v = t.v,
                           .batch = s->batch,
                           .heads = s->heads,
                           .dim = s->dim,
                           .nq = s->nq,
                           .nk = s->nk,
                           .q_stride = cols + gap,
                           .k_stride = cols + gap,
                           .v_dim = s->with & NARROW ? s->dim / 32 * 8 : 0,
                           .v_stride = cols + 2 * gap,
                           .y_stride = cols + gap,
                           .q_batch = s->nq * (cols + gap),
                           .k_batch = s->with & SHARED ? 0 : s->nk * (cols + gap),
                           .v_batch = s->with & SHARED ? 0 : s->nk * (cols + 2 * gap),
                           .y_batch = s->nq * (cols + gap),
                           .scale = 1 / sqrtf((float)s->dim),
                           .causal = s->with & CAUSAL,
                           .key_mask = t.mask,
                           .bias_x = t.bias_x,
                           .bias_y = t.bias_y,
                           .grid_w = grid_w,
                           .grid_h = grid_h,
                           .rope = s->with & ROPE ? t.rope : NULL,
                           .rope_rows = 40,
                           .rope_keys = s->rope_keys};
    return t;
}

static void case_drop(attention_setup *t)
{
    drop(t->q, 1), drop(t->k, 1), drop(t->v, 1), drop(t->rope, 1);
    drop(t->mask, 1), drop(t->bias_x, 1), drop(t->bias_y, 1);
}

/* Scratch of exactly the size asked for. */
static void *scratch_make(size_t bytes)
{
    void *p = NULL;

    if (posix_memalign(&p, 64, bytes + 1))
        abort();
    memset(p, 0xff, bytes);     /* NaNs: nothing may be taken from there unwritten */
    return p;
}

static void run_attention(const kernels *k, const call *c, float **out)
{
    attention_args a = *c->attention;

    a.y = out[0];
    a.lse = out[1];
    a.scratch = scratch_make(attention_scratch(&a));
    void (*const kinds[])(const attention_args *) = {k->attention, k->attention_bf16, k->attention_int8};
    kinds[c->variant](&a);
    free(a.scratch);
}

/* Variant 1: in bf16, where rounded inputs cost two digits; 2: scores in 8 bits. */
static void check_attention(int variant, double tolerance)
{
    for (int i = 0; i < ATTENTION_CASES; i++) {
        attention_setup t = case_setup(&attention_cases[i]);
        const attention_args *a = &t.a;
        static const char *const names[] = {"attention", "attention_bf16", "attention_int8"};
        call c = {run_attention, names[variant], tolerance, 2,
                  {a->batch * a->y_batch, a->batch * a->heads * a->nq}, .n = i, .rows = a->nq, .cols = a->nk,
                  .variant = variant, .attention = a};
        check(&c);
        case_drop(&t);
    }
}

static void test_attention(void **state)
{
    check_attention(0, 3e-6);
}

static void test_attention_bf16(void **state)
{
    check_attention(1, 1.5e-2);
}

static void test_attention_int8(void **state)
{
    check_attention(2, 3e-2);
}

/* Gradients: y and lse come from the reference. Variant bits leave gradients out. */
static void run_attention_backward(const kernels *k, const call *c, float **out)
{
    attention_args a = *c->attention;
    int64_t size = a.batch * a.y_batch;
    float *y = random_floats(size, 0, 0), *lse = random_floats(a.batch * a.heads * a.nq, 0, 0),
          *dy = random_floats(size, 1, 31);
    attention_grads g = {dy, y, lse, out[0], out[1], out[2], a.bias_x ? out[3] : NULL, a.bias_x ? out[4] : NULL, NULL};

    a.y = y;
    a.lse = lse;
    a.scratch = scratch_make(attention_scratch(&a));
    levels[0]->attention(&a);
    g.scratch = scratch_make(attention_backward_scratch(&a));
    if (c->variant & 1)
        g.dq = NULL;
    if (c->variant & 2)
        g.dk = NULL;
    if (c->variant & 4)
        g.dv = g.dbias_x = NULL;
    k->attention_backward(&a, &g);
    free(a.scratch), free(g.scratch);
    drop(y, 0), drop(lse, 0), drop(dy, 1);
}

static void test_attention_backward(void **state)
{
    for (int i = 0; i < ATTENTION_CASES; i++) {
        const attention_case *s = &attention_cases[i];
        if (s->with & NARROW)
            continue;
        attention_setup t = case_setup(s);
        const attention_args *a = &t.a;
        int64_t items = s->with & SHARED ? 1 : a->batch;
        call c = {run_attention_backward,
                  "attention_backward",
                  1e-5,
                  5,
                  {a->batch * a->q_batch, items * a->nk * a->k_stride, items * a->nk * a->v_stride,
                   a->bias_x ? a->batch * a->nq * a->grid_w * a->heads : 0,
                   a->bias_x ? a->batch * a->nq * a->grid_h * a->heads : 0},
                  .n = i,
                  .rows = a->nq,
                  .cols = a->nk,
                  .attention = a};
        check(&c);
        if (i == 2 || i == 10)
            for (c.variant = 1; c.variant < 8; c.variant++)
                check(&c);
        case_drop(&t);
    }
}

static double attention_loss(const attention_args *a, const float *dy)
{
    double sum = 0;

    levels[0]->attention(a);
    for (int64_t i = 0; i < a->batch * a->y_batch; i++)
        sum += (double)a->y[i] * dy[i];
    return sum;
}

/* The reference backward itself, against differences of the reference forward in every input. */
static void test_attention_differences(void **state)
{
    attention_case s = {2, 2, 8, 4, 9, ROPE | MASK | BIAS, 6};
    attention_setup t = case_setup(&s);
    attention_args a = t.a;
    float *inputs[5] = {t.q, t.k, t.v, t.bias_x, t.bias_y}, *grads[5];
    int64_t size = a.batch * a.y_batch, sizes_of[5] = {size, a.batch * a.k_batch, a.batch * a.v_batch,
                                                       2 * 4 * 2 * a.grid_w, 2 * 4 * 2 * a.grid_h};
    float *y = random_floats(size, 0, 0), *dy = random_floats(size, 0, 41), lse[2 * 2 * 4];

    a.y = y;
    a.lse = lse;
    a.scratch = scratch_make(attention_scratch(&a));
    for (int i = 0; i < 5; i++)
        grads[i] = calloc((size_t)sizes_of[i], sizeof(float));
    attention_grads g = {dy, y, lse, grads[0], grads[1], grads[2], grads[3], grads[4], NULL};
    levels[0]->attention(&a);
    levels[0]->attention_backward(&a, &g);
    for (int i = 0; i < 5; i++)
        for (int64_t j = 0; j < sizes_of[i]; j++) {
            float old = inputs[i][j], step = 1.0f / 64;
            inputs[i][j] = old + step;
            double high = attention_loss(&a, dy);
            inputs[i][j] = old - step;
            double slope = (high - attention_loss(&a, dy)) / (2 * step);
            inputs[i][j] = old;
            if (fabs(slope - grads[i][j]) > 2e-3 * fmax(1, fabs(slope)))
                fail_msg("input %d, value %ld: gradient %g, difference %g", i, (long)j, grads[i][j], slope);
        }
    for (int i = 0; i < 5; i++)
        free(grads[i]);
    free(a.scratch);
    drop(y, 0), drop(dy, 0);
    case_drop(&t);
}

/* A fully masked row gives 0 and -infinity; masked keys may hold anything; NaN in a query stays in its row. */
static void check_special(void (*attend)(const attention_args *))
{
    enum { NQ = 20, NK = 300, DIM = 32 };
    attention_case s = {1, 1, DIM, NQ, NK, MASK, 0};
    attention_setup t = case_setup(&s);
    attention_args a = t.a;
    float y[NQ * DIM], lse[NQ];

    a.y = y;
    a.lse = lse;
    a.scratch = scratch_make(attention_scratch(&a));
    for (int j = 0; j < NK; j++)
        t.mask[j] = 1;
    attend(&a);
    for (int i = 0; i < NQ; i++)
        assert_true(lse[i] == -INFINITY && y[i * DIM] == 0 && y[i * DIM + DIM - 1] == 0);
    for (int d = 0; d < DIM; d++)
        t.k[7 * DIM + d] = t.v[7 * DIM + d] = NAN;
    t.mask[5] = t.mask[299] = 0;
    t.q[3 * DIM] = NAN;
    attend(&a);
    for (int i = 0; i < NQ; i++)
        assert_true(isnan(lse[i]) == (i == 3) && isnan(y[i * DIM]) == (i == 3));
    t.q[3 * DIM] = 0;
    for (int i = 0; i < NQ * DIM; i++)
        t.q[i] *= 1e4f;         /* scores far beyond what an exponential can hold */
    attend(&a);
    for (int i = 0; i < NQ; i++)
        assert_true(isfinite(lse[i]) && isfinite(y[i * DIM]));
    for (int i = 0; i < NQ * DIM; i++)
        t.q[i] *= 1e-4f;
    free(a.scratch);
    case_drop(&t);
}

/* Scores far below |q| |k|, the largest that they could be, and scores that reach it: rows of both kinds and of neither. */
static void check_bounds(void (*attend)(const attention_args *), const char *name, float size, double tolerance)
{
    enum { NQ = 20, NK = 320, DIM = 32 };
    attention_case s = {1, 1, DIM, NQ, NK, 0, 0};
    attention_setup t = case_setup(&s);
    attention_args a = t.a;
    float y[NQ * DIM], lse[NQ], expected[NQ * DIM], expected_lse[NQ];

    for (int i = 0; i < NQ * DIM; i++)
        t.q[i] = i % DIM == i / DIM % 4 ? size : 0;
    for (int i = 0; i < NK * DIM; i++)      /* powers of two: bf16 loses nothing */
        t.k[i] = i % DIM == 0 ? -size : i % DIM == 1 ? 1.0f / (float)(1 << i / DIM % 4) : i % DIM == 3 ? size : 0;
    a.scratch = scratch_make(attention_scratch(&a));
    a.y = expected;
    a.lse = expected_lse;
    levels[0]->attention(&a);
    a.y = y;
    a.lse = lse;
    attend(&a);
    if (relative_error(y, expected, NQ * DIM) > tolerance || relative_error(lse, expected_lse, NQ) > tolerance)
        fail_msg("attention %s: size %g, errors %g and %g", name, (double)size,
                 relative_error(y, expected, NQ * DIM), relative_error(lse, expected_lse, NQ));
    t.q[5 * DIM] = NAN;
    attend(&a);
    for (int i = 0; i < NQ; i++)
        assert_true(isnan(lse[i]) == (i == 5) && isnan(y[i * DIM]) == (i == 5));
    free(a.scratch);
    case_drop(&t);
}

static void test_attention_bounds(void **state)
{
    for (int l = 0; l < level_count; l++)
        for (float size = 0.25f; size < 100; size *= 2)
            check_bounds(levels[l]->attention_bf16, "bf16", size, 1.5e-2);
    for (int l = 0; l < level_count; l++)
        for (float size = 0.25f; size < 100; size *= 2)
            check_bounds(levels[l]->attention_int8, "int8", size, 3e-2);
}

static void test_attention_special(void **state)
{
    for (int l = 0; l < level_count; l++) {
        check_special(levels[l]->attention);
        if (levels[l]->attention_bf16 != levels[l]->attention)
            check_special(levels[l]->attention_bf16);
        if (levels[l]->attention_int8 != levels[l]->attention_bf16)
            check_special(levels[l]->attention_int8);
    }
}

/* Out: the bytes as numbers, zeros and scales. */
static void run_quantize(const kernels *k, const call *c, float **out)
{
    int64_t ldy = (c->cols + 3) / 4 * 4, n = c->rows * ldy;
    uint8_t *y = malloc((size_t)n + 1);
    int32_t *zero = malloc((size_t)c->rows * sizeof *zero);

    y[n] = 77;
    k->quantize(y, ldy, out[1], zero, c->in[0], c->cols + 3, c->rows, c->cols);
    assert_int_equal(y[n], 77);
    for (int64_t i = 0; i < n; i++)
        out[0][i] = y[i];
    for (int64_t r = 0; r < c->rows; r++)
        out[2][r] = (float)zero[r];
    free(y), free(zero);
}

static void test_quantize(void **state)
{
    const int64_t shapes[][2] = {{1, 1}, {3, 7}, {2, 16}, {5, 37}, {70, 64}, {9, 1024}};

    for (int i = 0; i < 6; i++) {
        int64_t rows = shapes[i][0], cols = shapes[i][1], padded = (cols + 3) / 4 * 4;
        float *x = random_floats(rows * (cols + 3), 1, 41);
        call c = {run_quantize, "quantize", 0, 3, {rows * padded, rows, rows}, .rows = rows, .cols = cols, .in = {x}};
        for (int64_t j = 0; j < cols + 3; j++)
            x[j] = rows > 2 ? 0 : fabsf(x[j]);      /* a row of zeros, or one without negative values */
        check(&c);
        drop(x, 1);
    }
}

/* Half a step at most is lost, zero is exact, and what is not finite can be seen. */
static void test_quantize_values(void **state)
{
    enum { N = 50 };
    float *x = random_floats(N, 1, 42), scale;
    uint8_t y[52];
    int32_t zero;

    x[7] = 0;
    for (int l = 0; l < level_count; l++) {
        levels[l]->quantize(y, 52, &scale, &zero, x, N, 1, N);
        for (int i = 0; i < N; i++)
            assert_true(fabsf(scale * (float)(y[i] - zero) - x[i]) <= scale * 1.001f);
        assert_true(y[7] == zero && y[50] == 0 && y[51] == 0);
        for (int i = 0; i < N; i += 9) {
            float kept = x[i];
            x[i] = i % 2 ? NAN : INFINITY;
            levels[l]->quantize(y, 52, &scale, &zero, x, N, 1, N);
            assert_true(isnan(scale));
            x[i] = kept;
        }
    }
    drop(x, 1);
}

typedef struct int8_case { int64_t rows, in, out, gap; activation act; enum { ALONE, ADDED, IN_PLACE } residual; } int8_case;

static void run_product_int8(const kernels *k, const call *c, float **out)
{
    const int8_case *s = (const int8_case *)(const void *)c->in[3];
    int64_t ldy = s->out + s->gap, panels = (s->out + INT8_PANEL - 1) / INT8_PANEL * INT8_PANEL;
    float *numbers = random_floats(panels * 2, 0, 51), *scale = random_floats(s->rows, 0, 52);
    uint8_t *x = malloc((size_t)(s->rows * s->in));
    int8_t *w = malloc((size_t)(panels * s->in));
    int32_t *zero = malloc((size_t)s->rows * sizeof *zero), *sum = calloc((size_t)panels, sizeof *sum);
    uint32_t dice = 1;

    for (int64_t i = 0; i < s->rows * s->in; i++)
        x[i] = (uint8_t)((dice = dice * 1664525 + 1013904223) >> 24 | (i % 5 ? 0 : 255));
    for (int64_t i = 0; i < panels * s->in; i++) {
        w[i] = (int8_t)((int)((dice = dice * 1664525 + 1013904223) >> 25) - 63);
        w[i] = i % 3 && w[i] < 64 ? w[i] : 63;      /* many of the largest: sums in 16 bits must not overflow */
        sum[i / (INT8_PANEL * s->in) * INT8_PANEL + i / 4 % INT8_PANEL] += w[i];
    }
    for (int64_t r = 0; r < s->rows; r++)
        zero[r] = (int32_t)(r * 37 % 256);
    for (int64_t i = 0; i < s->rows * ldy && s->residual == IN_PLACE; i++)
        out[0][i] = c->in[0][i];
    k->product_int8(&(int8_product){.y = out[0], .ldy = ldy, .x = x, .x_scale = scale, .x_zero = zero, .w = w,
                                    .residual = s->residual == ALONE ? NULL : s->residual == ADDED ? c->in[0] : out[0],
                                    .w_scale = numbers, .bias = numbers + panels, .w_sum = sum, .rows = s->rows,
                                    .in = s->in, .out = s->out, .act = s->act});
    free(x), free(w), free(zero), free(sum);
    drop(numbers, 0), drop(scale, 0);
}

static void test_product_int8(void **state)
{
    static const int8_case cases[] = {
        {1, 4, 1, 0, ACT_NONE, ALONE},      {5, 12, 17, 3, ACT_RELU, ADDED},   {6, 64, 64, 0, ACT_NONE, IN_PLACE},
        {7, 100, 65, 1, ACT_GELU, ALONE},   {13, 256, 130, 0, ACT_NONE, ADDED}, {300, 36, 96, 5, ACT_SIGMOID, ALONE},
        {61, 4736, 40, 0, ACT_NONE, IN_PLACE},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t size = cases[i].rows * (cases[i].out + cases[i].gap);
        float *residual = random_floats(size, 1, 53);
        call c = {run_product_int8, "product_int8", cases[i].act == ACT_GELU ? 1e-4 : 2e-6, 1, {size}, .rows = cases[i].rows, .cols = cases[i].out,
                  .n = (int64_t)i, .in = {residual, NULL, NULL, (const float *)(const void *)&cases[i]}};
        check(&c);
        drop(residual, 1);
    }
}

typedef struct winograd_case { int64_t batch, height, width, in, out; } winograd_case;

/* Any numbers will do for the weights; they are laid out alike at every level. variant 1: in bf16. */
static void run_winograd(const kernels *k, const call *c, float **out)
{
    const winograd_case *s = (const winograd_case *)(const void *)c->in[3];
    int64_t whole = (s->out + WINOGRAD_PANEL - 1) / WINOGRAD_PANEL * WINOGRAD_PANEL, n = 16 * whole * s->in;
    bool bf16 = c->variant && k->winograd_bf16;
    winograd_args a = {.y = out[0], .x = c->in[0], .w = c->in[1], .bias = c->in[2], .batch = s->batch, .in = s->in,
                       .height = s->height, .width = s->width, .out = s->out};
    uint16_t *pairs = malloc((size_t)n * sizeof *pairs);

    for (int64_t i = 0; i < n; i++) {
        int64_t panel = i / (s->in * WINOGRAD_PANEL), row = i / WINOGRAD_PANEL % s->in, at = i % WINOGRAD_PANEL;
        k->to_bf16(pairs + ((panel * s->in + row - row % 2) * WINOGRAD_PANEL + 2 * at + row % 2), c->in[1] + i, 1);
    }
    a.scratch = aligned_alloc(64, (size_t)omp_get_max_threads() * winograd_scratch(s->in));
    if (bf16)
        a.w = pairs;
    (bf16 ? k->winograd_bf16 : k->winograd)(&a);
    free(a.scratch);
    free(pairs);
}

static void test_winograd(void **state)
{
    static const winograd_case cases[] = {
        {1, 1, 1, 16, 16}, {2, 3, 8, 32, 80}, {1, 21, 16, 48, 64}, {3, 2, 5, 16, 144}, {1, 14, 30, 16, 16},
    };

    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        const winograd_case *s = &cases[i / 2];
        int64_t size = s->batch * s->height * s->width;
        float *x = random_floats(size * s->in, 1, 61), *w = random_floats(16 * s->in * ((s->out + 63) / 64 * 64), 1, 62),
              *bias = random_floats(s->out + 63, 1, 63);
        call c = {run_winograd, "winograd", i % 2 ? 2e-2 : 1e-5, 1, {size * s->out}, .n = (int64_t)i, .rows = s->height,
                  .cols = s->width, .variant = (int)(i % 2),
                  .in = {x, w, bias, (const float *)(const void *)s}};
        check(&c);
        drop(x, 1), drop(w, 1), drop(bias, 1);
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
        cmocka_unit_test(test_add),       cmocka_unit_test(test_axpy),           cmocka_unit_test(test_softmax),
                  cmocka_unit_test(test_activate),
        cmocka_unit_test(test_bf16),      cmocka_unit_test(test_activate_range), cmocka_unit_test(test_norm),
        cmocka_unit_test(test_group_norm), cmocka_unit_test(test_attention), cmocka_unit_test(test_attention_bf16),
        cmocka_unit_test(test_attention_int8),
        cmocka_unit_test(test_attention_special),  cmocka_unit_test(test_attention_bounds),
        cmocka_unit_test(test_attention_backward), cmocka_unit_test(test_attention_differences),
        cmocka_unit_test(test_quantize),           cmocka_unit_test(test_quantize_values),
        cmocka_unit_test(test_product_int8),       cmocka_unit_test(test_winograd),
        cmocka_unit_test(test_levels),
    };

    level_count = kernels_levels(levels, 8);
    if (argc > 1 && !strcmp(argv[1], "--bench"))
        return argc > 2 && !kernels_cap(argv[2]) ? 2 : kernels_bench();
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
