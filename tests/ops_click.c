/* ops_click.c - what the click decoder and the memories ask of ops beyond the detector: Fourier codes, narrow heads,
 * shapes of convolutions; against plain loops in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

#include <cmocka.h>

static float value(int i)
{
    return sinf((float)(i * 37 % 101) * 0.7f + 0.3f);
}

static void fill(float *x, int n, int from)
{
    for (int i = 0; i < n; i++)
        x[i] = value(from + i);
}

static param matrix(float *data, int axes, const int64_t *dim)
{
    param p = {.name = "test", .t = {.axes = axes, .data = data, .stride = dim[axes - 1]}};
    memcpy(p.t.dim, dim, sizeof *dim * (size_t)axes);
    return p;
}

static run *open_run(run_mode mode)
{
    samite_error e;
    run *r = run_open(&(run_options){.mode = mode}, &e);
    assert_non_null(r);
    return r;
}

static void close_run(run *r)
{
    samite_error e = {0};
    if (run_status(r, &e))
        fail_msg("%s", e.text);
    run_close(r);
}

/* ---- Fourier codes ---- */

enum { POINTS = 5, AXES = 2, FEATURES = 3 };

static double code(const float *x, const float *m, int f)
{
    double angle = 0;
    for (int k = 0; k < AXES; k++)
        angle += (2.0 * x[k] - 1.0) * m[k * FEATURES + f % FEATURES];
    angle *= 2 * acos(-1.0);
    return f < FEATURES ? sin(angle) : cos(angle);
}

static double loss(const float *x, const float *m, const float *dy)
{
    double sum = 0;
    for (int i = 0; i < POINTS; i++)
        for (int f = 0; f < 2 * FEATURES; f++)
            sum += code(x + i * AXES, m, f) * dy[i * 2 * FEATURES + f];
    return sum;
}

static void fourier_codes(void **state)
{
    float x[POINTS * AXES], m[AXES * FEATURES], dy[POINTS * 2 * FEATURES];
    fill(x, POINTS * AXES, 1);
    fill(m, AXES * FEATURES, 50);
    fill(dy, POINTS * 2 * FEATURES, 90);
    param p = matrix(m, 2, (int64_t[]){AXES, FEATURES});
    run *r = open_run(TAPE);
    tensor *in = run_input(r, x, 2, (int64_t[]){POINTS, AXES});
    run_want_grad(r, in);
    tensor *y = fourier_embed(r, in, &p);
    assert_int_equal(y->axes, 2);
    assert_int_equal(y->dim[1], 2 * FEATURES);
    for (int i = 0; i < POINTS * 2 * FEATURES; i++)
        assert_float_equal(y->data[i], code(x + i / (2 * FEATURES) * AXES, m, i % (2 * FEATURES)), 1e-5);
    memcpy(run_seed(r, y), dy, sizeof dy);
    assert_int_equal(run_backward(r, NULL, NULL), 0);
    for (int i = 0; i < POINTS * AXES; i++) {
        float old = x[i], step = 1e-3f;
        x[i] = old + step;
        double above = x[i], up = loss(x, m, dy);
        x[i] = old - step;
        double slope = (up - loss(x, m, dy)) / (above - x[i]);
        x[i] = old;
        assert_float_equal(in->grad[i], slope, 5e-3 * fmax(1, fabs(slope)));
    }
    close_run(r);
}

static void fourier_refuses(void **state)
{
    float x[6] = {0}, m[6] = {0};
    param p = matrix(m, 2, (int64_t[]){AXES, FEATURES});
    run *r = open_run(RUN);
    samite_error e;
    fourier_embed(r, run_input(r, x, 2, (int64_t[]){2, 3}), &p);
    assert_int_not_equal(run_status(r, &e), 0);
    assert_non_null(strstr(e.text, "fourier_embed"));
    run_close(r);
    r = open_run(TRACE);
    tensor *y = fourier_embed(r, run_input(r, NULL, 3, (int64_t[]){4, 1, AXES}), &p);
    assert_int_equal(y->dim[0], 4);
    assert_int_equal(y->dim[2], 2 * FEATURES);
    assert_string_equal(run_node(r, 0)->op->name, "fourier_embed");
    close_run(r);
}

/* ---- heads of width 4 ---- */

enum { QUERIES = 3, KEYS = 6, HEADS = 2, WIDTH = 4, CHANNELS = HEADS * WIDTH, ROTATED = 4, ROWS = 2 };

static void turned(double *out, const float *x, const float *table, int row)
{
    for (int i = 0; i < WIDTH; i += 2) {
        const float *t = table + row % ROWS * WIDTH + i;
        out[i] = (double)x[i] * t[0] - (double)x[i + 1] * t[1];
        out[i + 1] = (double)x[i] * t[1] + (double)x[i + 1] * t[0];
    }
}

static double expected_attention(const float *q, const float *k, const float *v, const float *table, int i, int c)
{
    double weight[KEYS], sum = 0, y = 0, a[WIDTH], b[WIDTH];
    int head = c / WIDTH * WIDTH;
    turned(a, q + i * CHANNELS + head, table, i);
    for (int j = 0; j < KEYS; j++) {
        double s = 0;
        for (int n = 0; n < WIDTH; n++)
            b[n] = k[j * CHANNELS + head + n];
        if (j < ROTATED)
            turned(b, k + j * CHANNELS + head, table, j);
        for (int n = 0; n < WIDTH; n++)
            s += a[n] * b[n];
        weight[j] = exp(s / sqrt(WIDTH));
        sum += weight[j];
    }
    for (int j = 0; j < KEYS; j++)
        y += weight[j] / sum * v[j * CHANNELS + c];
    return y;
}

static void narrow_heads(void **state)
{
    float q[QUERIES * CHANNELS], k[KEYS * CHANNELS], v[KEYS * CHANNELS], table[ROWS * WIDTH];
    fill(q, QUERIES * CHANNELS, 3);
    fill(k, KEYS * CHANNELS, 40);
    fill(v, KEYS * CHANNELS, 70);
    for (int i = 0; i < ROWS * WIDTH; i++)
        table[i] = i % 2 ? sinf((float)(i / 2)) : cosf((float)(i / 2));
    run *r = open_run(RUN);
    attend_options o = {.heads = HEADS, .rope = table, .rope_rows = ROWS, .rope_keys = ROTATED};
    tensor *y = attention(r, run_input(r, q, 3, (int64_t[]){1, QUERIES, CHANNELS}),
                          run_input(r, k, 3, (int64_t[]){1, KEYS, CHANNELS}),
                          run_input(r, v, 3, (int64_t[]){1, KEYS, CHANNELS}), &o);
    for (int i = 0; y->data && i < QUERIES * CHANNELS; i++)
        assert_float_equal(y->data[i], expected_attention(q, k, v, table, i / CHANNELS, i % CHANNELS), 1e-5);
    close_run(r);
}

/* ---- convolutions ---- */

typedef struct form { int side, in, out, kernel, stride, pad, groups; } form;

static double expected_conv(const form *f, const float *x, const float *w, const float *b, int y0, int x0, int o)
{
    int per = f->in / f->groups, from = o / (f->out / f->groups) * per;
    double sum = b[o];
    for (int c = 0; c < per; c++)
        for (int i = 0; i < f->kernel; i++)
            for (int j = 0; j < f->kernel; j++) {
                int y = y0 * f->stride + i - f->pad, col = x0 * f->stride + j - f->pad;
                if (y >= 0 && y < f->side && col >= 0 && col < f->side)
                    sum += (double)x[(y * f->side + col) * f->in + from + c] *
                           w[((o * per + c) * f->kernel + i) * f->kernel + j];
            }
    return sum;
}

static void check_conv(const form *f, bool pack)
{
    int per = f->in / f->groups, weights = f->out * per * f->kernel * f->kernel, n = f->side * f->side * f->in;
    float *x = malloc(sizeof *x * (size_t)(n + weights + f->out)), *w = x + n, *b = w + weights;
    assert_non_null(x);
    fill(x, n + weights + f->out, 11);
    param pw = matrix(w, 4, (int64_t[]){f->out, per, f->kernel, f->kernel}), pb = matrix(b, 1, (int64_t[]){f->out});
    conv_w c = {&pw, &pb, {f->in, f->out, f->kernel, f->stride, f->pad, f->groups}, NULL};
    if (pack)
        assert_true(conv_w_pack(&c, GEMM_F32));
    run *r = open_run(RUN);
    tensor *y = conv(r, run_input(r, x, 4, (int64_t[]){1, f->side, f->side, f->in}), &c, ACT_NONE);
    int out = (f->side + 2 * f->pad - f->kernel) / f->stride + 1;
    assert_int_equal(y->dim[1], out);
    for (int i = 0; i < out * out * f->out; i++)
        assert_float_equal(y->data[i], expected_conv(f, x, w, b, i / f->out / out, i / f->out % out, i % f->out), 1e-4);
    close_run(r);
    conv_weights_free(c.packed);
    free(x);
}

static void mask_convolutions(void **state)
{
    static const form forms[] = {
        {8, 1, 4, 2, 2, 0, 1},      /* a mask prompt is halved */
        {8, 1, 1, 4, 4, 0, 1},      /* a given mask becomes a mask prompt */
        {9, 1, 4, 3, 2, 1, 1},      /* a mask on its way to memory */
        {8, 4, 16, 3, 2, 1, 1},
        {6, 8, 8, 7, 1, 3, 8},      /* each channel for itself */
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        check_conv(&forms[i], false);
        check_conv(&forms[i], true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fourier_codes), cmocka_unit_test(fourier_refuses), cmocka_unit_test(narrow_heads),
        cmocka_unit_test(mask_convolutions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
