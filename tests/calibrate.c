/* calibrate.c - files in 8 bits: the same bits as --precision int8, outliers stay bf16, damaged ones are refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/native.h"

#include <cmocka.h>

#define QKV "detector.backbone.vision_backbone.trunk.blocks.1.attn.qkv.weight"
#define NORM "detector.backbone.vision_backbone.trunk.blocks.1.norm1.bias"

static char folder[] = "/tmp/samite-eight-XXXXXX";
static char plain[64], outlier[64], eight[64], eight_outlier[64], picture[64], other[64];

static bool whole(void)                  /* 8 bits are multiplied whole, not in 7 */
{
    return gemm_has(GEMM_INT8) && kernels_get()->int8_limit == INT8_MAX;
}

/* ---- files to work on ---- */

static void write_picture(void)
{
    FILE *f = fopen(picture, "wb");
    assert_non_null(f);
    fprintf(f, "P6 96 80 255\n");
    for (int i = 0; i < 96 * 80; i++) {
        int x = i % 96, y = i / 96, inside = (x - 40) * (x - 40) + (y - 30) * (y - 30) < 500;
        fputc(inside ? 230 : x * 2, f);
        fputc(inside ? 190 : y * 3, f);
        fputc((x / 8 + y / 8) % 2 * 200, f);
    }
    fclose(f);
}

/* Copies a model file tensor by tensor; `change` may alter a tensor's bytes, shape and type, or leave it out. */
typedef bool change_fn(weight *t, void *data);

static void copy_file(const char *to, const char *from, change_fn *change)
{
    weights *w;
    weights_writer *out;
    samite_error e;
    assert_int_equal(weights_open(&w, from, &e), 0);
    size_t count = weights_count(w), kept = 0;
    weight *plan = calloc(count, sizeof *plan);
    void **data = calloc(count, sizeof *data);
    for (size_t i = 0; i < count; i++) {
        weight t = *weights_at(w, i);
        size_t bytes = weight_bytes(&t);
        void *copy = malloc(bytes + 8);
        weight_copy(copy, &t);
        if (!change(&t, copy)) {
            free(copy);
            continue;
        }
        weight_set_strides(&t);
        plan[kept] = t;
        data[kept++] = copy;
    }
    text_pair config = {"samite.config", (char *)(uintptr_t)weights_metadata(w, "samite.config")};
    assert_int_equal(weights_create(&out, to, plan, kept, &config, 1, &e), 0);
    for (size_t i = 0; i < kept; i++) {
        weights_put(out, data[i], weight_bytes(&plan[i]));
        free(data[i]);
    }
    assert_int_equal(weights_commit(out, &e), 0);
    free(plan);
    free(data);
    weights_close(w);
}

/* One channel of what block 1 multiplies has the same large value in every row, as trained networks do: in 8 bits its rows
 * lose all else. */
static bool blow_up(weight *t, void *data)
{
    if (strcmp(t->name, NORM) == 0)
        ((float *)data)[5] = 300;
    return true;
}

typedef struct tally { int eight, narrow; bool qkv_kept; char why[128]; } tally;

static void count_row(void *user, const samite_calibrated *c)
{
    tally *t = user;
    t->eight += c->eight;
    t->narrow += !c->eight;
    if (!c->eight) {
        t->qkv_kept |= strcmp(c->name, QKV) == 0;
        snprintf(t->why, sizeof t->why, "%s", c->why);
    }
}

static void calibrate(tally *t, const char *to, const char *from)
{
    samite_model *m;
    samite_error e = {0};
    const char *list[] = {picture};
    samite_calibrate_options o = SAMITE_CALIBRATE_OPTIONS_INIT;
    *t = (tally){0};
    o.pictures = list;
    o.picture_count = 1;
    o.each = count_row;
    o.user = t;
    assert_int_equal(samite_model_open(&m, from, NULL, &e), 0);
    int code = samite_model_calibrate(m, to, &o, &e);
    samite_model_free(m);
    if (code)
        print_error("%s\n", e.text);
    assert_int_equal(code, 0);
}

static int set_up(void **state)
{
    samite_model *m;
    samite_error e;
    if (!mkdtemp(folder))
        return -1;
    snprintf(plain, sizeof plain, "%s/plain.safetensors", folder);
    snprintf(outlier, sizeof outlier, "%s/outlier.safetensors", folder);
    snprintf(eight, sizeof eight, "%s/eight.safetensors", folder);
    snprintf(eight_outlier, sizeof eight_outlier, "%s/eight_outlier.safetensors", folder);
    snprintf(other, sizeof other, "%s/other.safetensors", folder);
    snprintf(picture, sizeof picture, "%s/picture.ppm", folder);
    write_picture();
    if (samite_model_open(&m, "formula:tiny", NULL, &e))
        return -1;
    int code = samite_model_write(m, plain, NULL, &e);
    samite_model_free(m);
    if (!code)
        copy_file(outlier, plain, blow_up);
    return code;
}

static int clean_up(void **state)
{
    char line[128];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return system(line);
}

static native *open_native(const char *path, const char *precision)
{
    native *n;
    samite_error e = {0};
    if (native_open(&n, path, &(native_options){.precision = precision}, &e))
        print_error("%s\n", e.text);
    assert_non_null(n);
    assert_int_equal(native_prepare(n, PARTS_IMAGE | PARTS_TEXT | PARTS_GROUND, NULL, NULL, &e), 0);
    return n;
}

/* ---- tests ---- */

static void same_bits_as_packing_the_original(void **state)
{
    tally t;
    calibrate(&t, eight, plain);
    assert_int_equal(t.narrow, 0);
    assert_true(t.eight > 30);
    native *a = open_native(plain, "int8"), *b = open_native(eight, NULL);
    assert_true(b->calibrated && !a->calibrated);
    assert_int_equal(b->type, gemm_fastest(true));
    const registry *g = &a->net->all, *h = &b->net->all;
    for (size_t i = 0; whole() && i < g->layer_count; i++) {
        gemm_piece x[GEMM_PIECES], y[GEMM_PIECES];
        if (g->layers[i].kind != LAYER_LINEAR || !g->layers[i].linear->packed ||
            gemm_type_of(g->layers[i].linear->packed) != GEMM_INT8)
            continue;
        assert_int_equal(gemm_pieces(g->layers[i].linear->packed, x), 1);
        assert_int_equal(gemm_pieces(h->layers[i].linear->packed, y), 1);
        assert_int_equal(x[0].bytes, y[0].bytes);
        assert_memory_equal(x[0].data, y[0].data, x[0].bytes);
    }
    assert_int_equal(a->loaded, b->loaded);
    assert_int_equal(b->ignored, 0);
    native_close(a);
    native_close(b);
}

/* Features of the picture in one precision; yours to free. */
static float *look(const char *path, const char *precision, int64_t *count)
{
    samite_error e = {0};
    native *n = open_native(path, precision);
    int64_t side = n->net->c.image;
    float *pixels = malloc(sizeof *pixels * (size_t)(3 * side * side));
    for (int64_t i = 0; i < 3 * side * side; i++)
        pixels[i] = (float)(i * 7919 % 2017) / 1008 - 1;
    run *r = run_open(&(run_options){.mode = RUN, .type = n->type}, &e);
    encoded_image im;
    sam3_encode_image(r, n->net, run_input(r, pixels, 4, (int64_t[]){1, side, side, 3}), false, &im);
    assert_int_equal(run_status(r, &e), 0);
    *count = tensor_count(im.level[2]);
    float *y = malloc(sizeof *y * (size_t)*count);
    memcpy(y, im.level[2]->data, sizeof *y * (size_t)*count);
    run_close(r);
    native_close(n);
    free(pixels);
    return y;
}

static double error_of(const float *a, const float *exact, int64_t n)
{
    double d = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        d += (a[i] - exact[i]) * (a[i] - exact[i]);
        all += exact[i] * exact[i];
    }
    return sqrt(d / all);
}

static void a_layer_with_outliers_stays_bf16(void **state)
{
    tally t;
    int64_t n;
    calibrate(&t, eight_outlier, outlier);
    assert_true(t.narrow >= 1 && t.narrow < t.eight);
    assert_true(t.qkv_kept);
    assert_non_null(strstr(t.why, "above 0.05"));
    native *m = open_native(eight_outlier, "int8");
    assert_false(registry_find(&m->net->all, QKV)->eight);
    assert_non_null(strstr(weights_metadata(m->file, "samite.int8"), QKV "\":{\"error\":"));
    native_close(m);
    float *exact = look(outlier, "f32", &n), *all = look(outlier, "int8", &n);
    float *chosen = look(eight_outlier, "int8", &n);
    assert_true(error_of(chosen, exact, n) < error_of(all, exact, n) / 2);
    free(exact);
    free(all);
    free(chosen);
}

static void the_same_features_from_the_file(void **state)
{
    int64_t n;
    float *a = look(plain, "int8", &n), *b = look(eight, "int8", &n);
    if (whole())
        assert_memory_equal(a, b, sizeof *a * (size_t)n);
    assert_true(error_of(b, a, n) < 0.03);
    free(b);
    b = look(eight, "f32", &n);
    assert_true(error_of(b, a, n) < 0.03);
    free(a);
    free(b);
}

/* As stored: the same tensors and notes. In another type: no 8 bits, no scales. */
static void written_again(void **state)
{
    samite_model *m;
    samite_error e = {0};
    assert_int_equal(samite_model_open(&m, eight, NULL, &e), 0);
    assert_int_equal(samite_model_write(m, other, NULL, &e), 0);
    native *n = open_native(other, NULL);
    assert_true(n->calibrated && n->ignored == 0);
    assert_non_null(weights_metadata(n->file, "samite.int8"));
    native_close(n);
    assert_int_equal(samite_model_write(m, other, "f32", &e), 0);
    n = open_native(other, NULL);
    assert_false(n->calibrated);
    assert_int_equal(n->ignored, 0);
    assert_null(weights_metadata(n->file, "samite.int8"));
    const weight *w = weights_find(n->file, QKV);
    assert_int_equal(w->type, DT_F32);
    assert_null(weights_find(n->file, QKV "_scale"));
    native_close(n);
    assert_int_equal(samite_model_calibrate(m, other, &(samite_calibrate_options)SAMITE_CALIBRATE_OPTIONS_INIT, &e),
                     SAMITE_USAGE);
    samite_model_free(m);
}

static bool drop_scale(weight *t, void *data)
{
    return strcmp(t->name, QKV "_scale") != 0;
}

static bool short_scale(weight *t, void *data)
{
    t->dim[0] -= strcmp(t->name, QKV "_scale") == 0;
    return true;
}

static bool two_axes(weight *t, void *data)
{
    if (strcmp(t->name, QKV "_scale") == 0) {
        t->axes = 2;
        t->dim[1] = 1;
    }
    return true;
}

static bool other_type(weight *t, void *data)
{
    if (strcmp(t->name, QKV "_scale") == 0)
        t->type = DT_I32;
    return true;
}

static bool put_scale(weight *t, void *data, float v)
{
    if (strcmp(t->name, QKV "_scale") == 0)
        ((float *)data)[3] = v;
    return true;
}

static bool zero_scale(weight *t, void *data) { return put_scale(t, data, 0); }
static bool negative_scale(weight *t, void *data) { return put_scale(t, data, -1); }
static bool nan_scale(weight *t, void *data) { return put_scale(t, data, NAN); }
static bool infinite_scale(weight *t, void *data) { return put_scale(t, data, INFINITY); }

static bool narrow_norm(weight *t, void *data)           /* 8 bits where nobody expects them, and no scale */
{
    if (strcmp(t->name, NORM) == 0)
        t->type = DT_I8;
    return true;
}

static void damaged_files_are_refused(void **state)
{
    static const struct { change_fn *change; const char *says; } cases[] = {
        {drop_scale, "scales are missing"}, {short_scale, "cannot be the scales of " QKV},
        {two_axes, "cannot be the scales"}, {other_type, "cannot be the scales"}, {zero_scale, "scale 3 is 0"},
        {negative_scale, "scale 3 is -1"}, {nan_scale, "scale 3 is "}, {infinite_scale, "scale 3 is inf"},
        {narrow_norm, NORM " is in 8 bits"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        samite_model *m;
        samite_error e = {0};
        copy_file(other, eight, cases[i].change);
        assert_int_equal(samite_model_open(&m, other, NULL, &e), SAMITE_INPUT);
        assert_non_null(strstr(e.text, other));
        if (!strstr(e.text, cases[i].says))
            print_error("%s\n", e.text);
        assert_non_null(strstr(e.text, cases[i].says));
    }
}

/* -128, which we never write, and scales at odd addresses: still numbers. */
static void rows_that_fit_stay_as_they_are(void **state)
{
    enum { OUT = 3, IN = 10 };
    int8_t q[OUT * IN];
    float scale[OUT] = {0.5f, 2, 1}, x[IN], y[OUT], scratch[256];
    if (!gemm_has(GEMM_INT8))
        skip();
    for (int i = 0; i < OUT * IN; i++)
        q[i] = (int8_t)(i * 37 % 120 - 60);
    q[2 * IN] = -128;
    for (int i = 0; i < IN; i++)
        x[i] = (float)i;
    gemm_weights *w = gemm_pack_rows8(q, scale, NULL, OUT, IN);
    assert_non_null(w);
    assert_true(gemm_scratch(w, 1) <= sizeof scratch);
    assert_true(gemm_run(w, y, OUT, x, IN, 1, ACT_NONE, NULL, scratch));
    for (int o = 0; o < OUT; o++) {
        double sum = 0, size = 0;
        for (int i = 0; i < IN; i++) {
            sum += q[o * IN + i] * scale[o] * x[i];
            size += fabs(q[o * IN + i] * scale[o] * x[i]);
        }
        assert_true(fabs(y[o] - sum) < 0.02 * size);
    }
    gemm_weights_free(w);
}

int main(void)
{
    if (!gemm_has(GEMM_INT8)) {
        print_message("no 8-bit products here: nothing to calibrate\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_packing_the_original),
        cmocka_unit_test(the_same_features_from_the_file),
        cmocka_unit_test(a_layer_with_outliers_stays_bf16),
        cmocka_unit_test(written_again),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(rows_that_fit_stay_as_they_are),
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
