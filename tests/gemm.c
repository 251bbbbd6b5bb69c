/* gemm.c - matrix products and convolutions against plain loops; the same bits for any number of threads. */
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/gemm.h"
#include "numbers.h"

static double act_value(double x, activation act)
{
    switch (act) {
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_GELU: return 0.5 * x * (1 + erf(x * sqrt(0.5)));
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    default: return x;
    }
}

/* Precision of the inputs: nothing is lost in f32. */
static double tolerance(gemm_type type)
{
    return type == GEMM_INT8 ? 4e-2 : type == GEMM_BF16 ? 1.5e-2 : 5e-6;
}

typedef struct linear_case {
    int64_t rows, in, out, gap_x, gap_y;
    enum { NO_RESIDUAL, IN_PLACE, OTHER } residual;
    bool bias;
    activation act;
    gemm_type type;
} linear_case;

typedef struct linear { float *x, *w, *bias, *residual; int64_t ldx, ldy; } linear;

static linear linear_make(const linear_case *c)
{
    linear l = {.ldx = c->in + c->gap_x, .ldy = c->out + c->gap_y};

    l.x = random_floats(c->rows * l.ldx, 1, 1);
    l.w = random_floats(c->out * (c->in + 1), 1, 2);
    l.bias = random_floats(c->out, 1, 3);
    l.residual = random_floats(c->rows * l.ldy, 1, 4);
    for (int64_t i = 0; i < c->out * (c->in + 1); i++)
        l.w[i] /= sqrtf((float)c->in);
    return l;
}

static void linear_drop(linear *l)
{
    drop(l->x, 1), drop(l->w, 1), drop(l->bias, 1), drop(l->residual, 1);
}

/* The output of some rows (every row of small cases) by plain loops; other values stay. */
static void linear_expected(float *y, const linear_case *c, const linear *l, int64_t step)
{
#pragma omp parallel for
    for (int64_t r = 0; r < c->rows; r += step)
        for (int64_t o = 0; o < c->out; o++) {
            double sum = c->bias ? l->bias[o] : 0;
            for (int64_t i = 0; i < c->in; i++)
                sum += (double)l->x[r * l->ldx + i] * l->w[o * (c->in + 1) + i];
            sum = act_value(sum, c->act);
            if (c->residual != NO_RESIDUAL)
                sum += l->residual[r * l->ldy + o];
            y[r * l->ldy + o] = (float)sum;
        }
}

static void linear_run(float *y, const linear_case *c, const linear *l, gemm_weights *w)
{
    void *scratch = malloc(gemm_scratch(w, c->rows) + 1);
    const float *residual = c->residual == NO_RESIDUAL ? NULL : c->residual == IN_PLACE ? y : l->residual;

    for (int64_t i = 0; c->residual == IN_PLACE && i < c->rows; i++)
        memcpy(y + i * l->ldy, l->residual + i * l->ldy, (size_t)c->out * sizeof *y);
    assert_true(gemm_run(w, y, l->ldy, l->x, l->ldx, c->rows, c->act, residual, scratch));
    free(scratch);
}

/* Against loops on every `step`-th row, and bit for bit with 1 to 3 threads and weights packed anew. */
static void check_linear(const linear_case *c, int64_t step)
{
    linear l = linear_make(c);
    int64_t size = c->rows * l.ldy;
    float *expected = guarded_floats(size, 1, 5), *once = guarded_floats(size, 1, 5);

    linear_expected(expected, c, &l, step);
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        gemm_weights *w = gemm_pack(l.w, c->bias ? l.bias : NULL, c->out, c->in, c->in + 1, c->type);
        assert_non_null(w);
        assert_true(gemm_weights_bytes(w) >= (size_t)(c->out * c->in) * (c->type == GEMM_INT8 ? 1 : gemm_scratch(w, 1) ? 2 : 4));
        for (int again = 0; again < 2; again++) {
            float *y = guarded_floats(size, 1, 5);
            linear_run(y, c, &l, w);
            for (int64_t r = 0; r < c->rows; r += step)
                if (relative_error(y + r * l.ldy, expected + r * l.ldy, l.ldy) > tolerance(c->type))
                    fail_msg("%ld x %ld -> %ld, act %d, residual %d, row %ld: error %g", (long)c->rows, (long)c->in,
                             (long)c->out, c->act, c->residual, (long)r,
                             relative_error(y + r * l.ldy, expected + r * l.ldy, l.ldy));
            assert_true(guards_hold(y, size));
            if (threads == 1 && again == 0)
                memcpy(once, y, (size_t)size * sizeof *y);
            if (memcmp(y, once, (size_t)size * sizeof *y))
                fail_msg("%ld x %ld -> %ld: other bits with %d threads", (long)c->rows, (long)c->in, (long)c->out,
                         threads);
            guarded_drop(y, 1);
            omp_set_num_threads(threads % 3 + 1);       /* the same weights with another number of threads */
        }
        gemm_weights_free(w);
    }
    omp_set_num_threads(2);
    guarded_drop(expected, 1), guarded_drop(once, 1);
    linear_drop(&l);
}

static void test_linear(void **state)
{
    const int64_t shapes[][3] = {{1, 1, 1},    {1, 2, 256}, {3, 5, 7},    {16, 16, 16},
                                 {17, 33, 65}, {5, 256, 4}, {200, 31, 63}};

    for (int i = 0; i < 7; i++)
        for (int act = ACT_NONE; act <= ACT_SIGMOID; act++)
            for (int residual = NO_RESIDUAL; residual <= OTHER; residual++)
                for (int k = 0; k < 4; k++) {
                    linear_case c = {shapes[i][0], shapes[i][1], shapes[i][2], k & 1 ? 3 : 0, k & 2 ? 5 : 0,
                                     residual,     k != 1,       act,          GEMM_F32};
                    check_linear(&c, 1);
                    if (k % 3 == 0 && residual < OTHER) {
                        c.type = GEMM_BF16;
                        check_linear(&c, 1);
                    }
                    c.type = GEMM_INT8;
                    if (k % 3 == 0 && c.in > 2)
                        check_linear(&c, 1);
                }
}

static void test_linear_shapes(void **state)
{
    const int64_t rows[] = {1, 5, 32, 201, 576};
    const int64_t shapes[][2] = {{1024, 3072}, {256, 2048}, {4736, 1024}, {256, 4}, {2, 256}};

    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++) {
            linear_case c = {rows[i], shapes[j][0], shapes[j][1], 0, 0, IN_PLACE, true, ACT_NONE, GEMM_F32};
            if (rows[i] > 201 && shapes[j][0] > 256)
                continue;
            check_linear(&c, rows[i] > 5 ? 97 : 1);
            for (c.type = GEMM_BF16; i % 2 && c.type <= GEMM_INT8; c.type++)
                check_linear(&c, 97);
        }
    check_linear(&(linear_case){5184, 256, 64, 0, 0, NO_RESIDUAL, true, ACT_NONE, GEMM_F32}, 997);
    check_linear(&(linear_case){1301, 256, 512, 0, 0, OTHER, true, ACT_GELU, GEMM_F32}, 97);
    check_linear(&(linear_case){1301, 64, 80, 7, 9, OTHER, true, ACT_GELU, GEMM_F32}, 13);
}

/* More shapes at once than plans are kept, from several threads. */
static void test_linear_shared(void **state)
{
    enum { ROWS = 60, IN = 24, OUT = 40 };
    linear_case c = {ROWS, IN, OUT, 0, 0, NO_RESIDUAL, true, ACT_RELU, GEMM_F32};
    linear l = linear_make(&c);
    float *expected = random_floats(ROWS * OUT, 0, 1);
    gemm_weights *w = gemm_pack(l.w, l.bias, OUT, IN, IN + 1, GEMM_F32);
    int bad = 0;

    linear_expected(expected, &c, &l, 1);
#pragma omp parallel for num_threads(3) reduction(+ : bad)
    for (int i = 0; i < 400; i++) {
        int64_t rows = 1 + i * 7 % ROWS;
        float y[ROWS * OUT];
        bad += !gemm_run(w, y, OUT, l.x, IN, rows, ACT_RELU, NULL, NULL);
        bad += relative_error(y, expected, rows * OUT) > 5e-6;
    }
    assert_int_equal(bad, 0);
    assert_true(gemm_run(w, expected, OUT, l.x, IN, 0, ACT_NONE, NULL, NULL));
    assert_null(gemm_pack(l.w, NULL, 0, 4, 4, GEMM_F32));
    assert_null(gemm_pack(l.w, NULL, 4, 4, 3, GEMM_F32));
    assert_null(gemm_pack(l.w, NULL, INT64_MAX / 2, 4, 4, GEMM_F32));
    gemm_weights_free(w);
    gemm_weights_free(NULL);
    drop(expected, 0);
    linear_drop(&l);
}

static void check_product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, float beta)
{
    int64_t lda = (ta ? m : k) + 2, ldb = (tb ? k : n) + 3, ldc = n + 1;
    float *a = random_floats((ta ? k : m) * lda + 1, 1, 1), *b = random_floats((tb ? n : k) * ldb + 1, 1, 2);
    float *expected = guarded_floats(m * ldc, 1, 3), *once = guarded_floats(m * ldc, 1, 3);

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t p = 0; p < k; p++)
                sum += (double)a[ta ? p * lda + i : i * lda + p] * b[tb ? j * ldb + p : p * ldb + j];
            expected[i * ldc + j] = (float)(alpha * sum + (beta == 0 ? 0 : (double)beta * expected[i * ldc + j]));
        }
    for (int threads = 1; threads <= 3; threads++) {
        float *c = guarded_floats(m * ldc, 1, 3);
        omp_set_num_threads(threads);
        assert_true(gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc));
        if (relative_error(c, expected, m * ldc) > 5e-6)
            fail_msg("product %d %d, %ld x %ld x %ld: error %g", ta, tb, (long)m, (long)n, (long)k,
                     relative_error(c, expected, m * ldc));
        assert_true(guards_hold(c, m * ldc));
        if (threads == 1)
            memcpy(once, c, (size_t)(m * ldc) * sizeof *c);
        assert_memory_equal(c, once, (size_t)(m * ldc) * sizeof *c);
        guarded_drop(c, 1);
    }
    omp_set_num_threads(2);
    drop(a, 1), drop(b, 1);
    guarded_drop(expected, 1), guarded_drop(once, 1);
}

static void test_product(void **state)
{
    const int64_t shapes[][3] = {{1, 1, 1},      {3, 5, 7},     {1, 300, 64},   {300, 1, 64},
                                 {64, 64, 2000}, {201, 77, 33}, {130, 600, 40}, {4, 3, 0}};

    for (int i = 0; i < 8; i++)
        for (int t = 0; t < 4; t++) {
            check_product(t & 1, t & 2, shapes[i][0], shapes[i][1], shapes[i][2], 1, 0);
            check_product(t & 1, t & 2, shapes[i][0], shapes[i][1], shapes[i][2], -0.5f, 2);
        }
}

typedef struct conv_case {
    conv_shape s;
    int64_t batch, height, width;
    bool bias;
    activation act;
    gemm_type type;
} conv_case;

/* Calls visit for every product of the convolution: y index, x index, w index. */
static void conv_visit(const conv_case *c, void (*visit)(void *, int64_t y, int64_t x, int64_t w), void *data)
{
    const conv_shape *s = &c->s;
    int64_t oh = (c->height + 2 * s->pad - s->kernel) / s->stride + 1,
            ow = (c->width + 2 * s->pad - s->kernel) / s->stride + 1;
    int64_t in = s->in / s->groups, out = s->out / s->groups;

    for (int64_t p = 0; p < c->batch * oh * ow; p++)
        for (int64_t k = 0; k < s->kernel * s->kernel; k++) {
            int64_t y = p / ow % oh * s->stride + k / s->kernel - s->pad,
                    x = p % ow * s->stride + k % s->kernel - s->pad;
            if (y < 0 || y >= c->height || x < 0 || x >= c->width)
                continue;
            for (int64_t o = 0; o < s->out; o++)
                for (int64_t i = 0; i < in; i++)
                    visit(data, p * s->out + o,
                          ((p / (oh * ow) * c->height + y) * c->width + x) * s->in + o / out * in + i,
                          (o * in + i) * s->kernel * s->kernel + k);
        }
}

typedef struct conv_data { double *sum; const float *a, *b; } conv_data;

static void visit_forward(void *data, int64_t y, int64_t x, int64_t w)
{
    conv_data *d = data;
    d->sum[y] += (double)d->a[x] * d->b[w];
}

static void visit_input(void *data, int64_t y, int64_t x, int64_t w)
{
    conv_data *d = data;
    d->sum[x] += (double)d->a[y] * d->b[w];
}

static void visit_weights(void *data, int64_t y, int64_t x, int64_t w)
{
    conv_data *d = data;
    d->sum[w] += (double)d->a[y] * d->b[x];
}

/* What the sums of `visit` come to, in f32. */
static float *conv_sums(const conv_case *c, void (*visit)(void *, int64_t, int64_t, int64_t), const float *a,
                        const float *b, int64_t n)
{
    double *sum = calloc((size_t)n, sizeof *sum);
    float *f = random_floats(n, 0, 0);
    conv_data d = {sum, a, b};

    conv_visit(c, visit, &d);
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)sum[i];
    free(sum);
    return f;
}

static void check_conv_backward(const conv_case *c, const float *x, const float *w, int64_t nx, int64_t ny, int64_t nw)
{
    float *dy = random_floats(ny, 1, 9), *dx = conv_sums(c, visit_input, dy, w, nx),
          *dw = conv_sums(c, visit_weights, dy, x, nw);
    float *dbias = calloc((size_t)c->s.out, sizeof *dbias), *once[2] = {NULL, NULL};
    double bar = c->type == GEMM_F32 ? 5e-6 : tolerance(c->type);

    for (int64_t i = 0; i < ny; i++)
        dbias[i % c->s.out] += dy[i];
    for (int threads = 1; threads <= 3; threads++) {
        float *gx = guarded_floats(nx, 1, 1), *gw = guarded_floats(nw, 1, 2), *gb = guarded_floats(c->s.out, 1, 3);
        memset(gw, 0, (size_t)nw * sizeof *gw);
        memset(gb, 0, (size_t)c->s.out * sizeof *gb);
        omp_set_num_threads(threads);
        assert_true(conv_backward(gx, gw, gb, dy, x, w, &c->s, c->batch, c->height, c->width, c->type));
        assert_true(relative_error(gx, dx, nx) < bar && guards_hold(gx, nx));
        assert_true(relative_error(gw, dw, nw) < bar && guards_hold(gw, nw));
        assert_true(relative_error(gb, dbias, c->s.out) < 1e-5 && guards_hold(gb, c->s.out));
        if (threads == 1) {
            once[0] = gx;
            once[1] = gw;
            assert_true(conv_backward(NULL, NULL, NULL, dy, x, w, &c->s, c->batch, c->height, c->width, c->type));
        } else {
            assert_memory_equal(gx, once[0], (size_t)nx * sizeof *gx);
            assert_memory_equal(gw, once[1], (size_t)nw * sizeof *gw);
            guarded_drop(gx, 1), guarded_drop(gw, 1);
        }
        guarded_drop(gb, 1);
    }
    omp_set_num_threads(2);
    guarded_drop(once[0], 1), guarded_drop(once[1], 1);
    drop(dy, 1), drop(dx, 0), drop(dw, 0);
    free(dbias);
}

static void check_conv(const conv_case *c)
{
    const conv_shape *s = &c->s;
    int64_t oh = (c->height + 2 * s->pad - s->kernel) / s->stride + 1,
            ow = (c->width + 2 * s->pad - s->kernel) / s->stride + 1;
    int64_t nx = c->batch * c->height * c->width * s->in, ny = c->batch * oh * ow * s->out;
    int64_t nw = s->out * (s->in / s->groups) * s->kernel * s->kernel;
    float *x = random_floats(nx, 1, 6), *w = random_floats(nw, 1, 7), *bias = random_floats(s->out, 1, 8);
    float *expected, *once = NULL;

    for (int64_t i = 0; i < nw; i++)
        w[i] /= sqrtf((float)nw / (float)s->out);
    expected = conv_sums(c, visit_forward, x, w, ny);
    for (int64_t i = 0; i < ny; i++)
        expected[i] = (float)act_value(expected[i] + (c->bias ? bias[i % s->out] : 0), c->act);
    for (int threads = 1; threads <= 3; threads++) {
        float *y = guarded_floats(ny, 1, 1);
        omp_set_num_threads(threads);
        conv_weights *packed = conv_pack(w, c->bias ? bias : NULL, s, c->type);
        assert_non_null(packed);
        assert_true(conv_run(packed, y, x, c->batch, c->height, c->width, c->act));
        if (relative_error(y, expected, ny) > tolerance(c->type))
            fail_msg("convolution %ld -> %ld, %ld x %ld: error %g", (long)s->in, (long)s->out, (long)c->height,
                     (long)c->width, relative_error(y, expected, ny));
        assert_true(guards_hold(y, ny) && conv_weights_bytes(packed) >= (size_t)nw * 2);
        conv_weights_free(packed);
        if (!once)
            once = y;
        assert_memory_equal(y, once, (size_t)ny * sizeof *y);
        if (threads > 1)
            guarded_drop(y, 1);
    }
    if (c->type != GEMM_INT8)
        check_conv_backward(c, x, w, nx, ny, nw);
    omp_set_num_threads(2);
    guarded_drop(once, 1);
    drop(x, 1), drop(w, 1), drop(bias, 1), drop(expected, 0);
}

static void test_conv(void **state)
{
    const conv_case cases[] = {
        {{1, 1, 1, 1, 0, 1}, 1, 1, 1, false, ACT_NONE, GEMM_F32},
        {{3, 5, 3, 1, 1, 1}, 1, 7, 9, true, ACT_NONE, GEMM_F32},
        {{16, 32, 3, 1, 1, 1}, 2, 13, 11, true, ACT_RELU, GEMM_F32},
        {{32, 48, 3, 2, 1, 1}, 1, 16, 15, true, ACT_GELU, GEMM_F32},
        {{64, 64, 3, 1, 1, 1}, 1, 20, 18, true, ACT_SIGMOID, GEMM_F32},
        {{3, 64, 14, 14, 0, 1}, 1, 42, 56, false, ACT_NONE, GEMM_F32},
        {{24, 24, 7, 1, 3, 24}, 1, 12, 10, true, ACT_NONE, GEMM_F32},
        {{8, 16, 3, 1, 1, 4}, 1, 6, 5, true, ACT_NONE, GEMM_F32},
        {{4, 16, 2, 2, 0, 1}, 2, 9, 9, true, ACT_NONE, GEMM_F32},
        {{5, 3, 4, 3, 2, 1}, 1, 8, 10, true, ACT_NONE, GEMM_F32},
        {{64, 64, 7, 1, 0, 1}, 1, 7, 7, true, ACT_NONE, GEMM_F32},
        {{3, 5, 3, 1, 1, 1}, 1, 7, 9, true, ACT_RELU, GEMM_BF16},
        {{32, 64, 3, 1, 1, 1}, 2, 12, 13, true, ACT_NONE, GEMM_BF16},
        {{24, 24, 7, 1, 3, 24}, 1, 12, 10, true, ACT_NONE, GEMM_BF16},
        {{48, 80, 3, 1, 1, 1}, 3, 17, 12, false, ACT_NONE, GEMM_F32},       /* Winograd, panels and tiles with rests */
        {{16, 128, 3, 1, 1, 1}, 1, 1, 1, true, ACT_NONE, GEMM_F32},
        {{48, 80, 3, 1, 1, 1}, 3, 17, 12, false, ACT_GELU, GEMM_BF16},
        {{16, 128, 3, 1, 1, 1}, 1, 2, 3, true, ACT_NONE, GEMM_BF16},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_conv(&cases[i]);
}

/* One pack, many image sizes; shapes that cannot be. */
static void test_conv_sizes(void **state)
{
    conv_case c = {{16, 24, 3, 1, 1, 1}, 1, 0, 0, true, ACT_NONE, GEMM_F32};
    float *w = random_floats(16 * 24 * 9, 0, 1), *bias = random_floats(24, 0, 2),
          *x = random_floats(40 * 40 * 16, 0, 3);
    conv_weights *packed = conv_pack(w, bias, &c.s, GEMM_F32);

    assert_non_null(packed);
    for (c.height = 1; c.height < 40; c.height += 2) {
        c.width = 41 - c.height;
        int64_t n = c.height * c.width * 24;
        float *y = random_floats(n, 0, 0), *expected = conv_sums(&c, visit_forward, x, w, n);
        for (int64_t i = 0; i < n; i++)
            expected[i] += bias[i % 24];
        assert_true(conv_run(packed, y, x, 1, c.height, c.width, ACT_NONE));
        assert_true(relative_error(y, expected, n) < 5e-6);
        drop(y, 0), drop(expected, 0);
    }
    conv_weights_free(packed);
    conv_weights_free(NULL);
    assert_null(conv_pack(w, bias, &(conv_shape){16, 24, 3, 0, 1, 1}, GEMM_F32));
    assert_null(conv_pack(w, bias, &(conv_shape){16, 24, 3, 1, 1, 5}, GEMM_F32));
    drop(w, 0), drop(bias, 0), drop(x, 0);
}

/* `test_gemm LEVEL` caps the instruction set first, as --cpu does. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear), cmocka_unit_test(test_linear_shapes), cmocka_unit_test(test_linear_shared),
        cmocka_unit_test(test_product), cmocka_unit_test(test_conv), cmocka_unit_test(test_conv_sizes),
    };

    if (argc > 1 && !kernels_cap(argv[1]))
        return 2;
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
