/* features.c - encoded pictures in files: the same answers, files of others and damaged ones refused; remembered answers. */
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

#include <cmocka.h>

#include "samite.h"

static samite_model *model;
static samite_image *picture;
static samite_pixels scene;
static char path[] = "/tmp/samite-features-XXXXXX.safetensors";

static int open_picture(void **state)
{
    samite_error e = {0};
    int fd = mkstemps(path, (int)strlen(".safetensors"));
    if (fd >= 0 && !close(fd) && !samite_model_open(&model, "formula:tiny", NULL, &e) &&
        !samite_pixels_read(&scene, TEST_DATA "/tiny/scene.png", 0, &e) &&
        !samite_image_open(&picture, model, &scene, &e))
        return 0;
    print_error("%s\n", e.text);
    return -1;
}

static int close_picture(void **state)
{
    unlink(path);
    samite_image_free(picture);
    samite_pixels_free(&scene);
    samite_model_free(model);
    return 0;
}

static samite_prompt any_prompt(const char *text)
{
    samite_prompt p = SAMITE_PROMPT_INIT;
    p.text = text;
    p.score = 0;
    p.max_results = 5;
    return p;
}

static samite_result *ask(samite_image *im, const samite_prompt *p)
{
    samite_result *res = NULL;
    samite_error e = {0};
    if (samite_image_segment(im, p, &res, &e))
        print_error("%s\n", e.text);
    assert_non_null(res);
    return res;
}

static void assert_close(const samite_result *a, const samite_result *b, double score, double pixels)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const samite_instance *x = &a->instance[i], *y = &b->instance[i];
        assert_true(fabs((double)x->score - (double)y->score) <= score);
        for (int k = 0; k < 4; k++)
            assert_true(fabs((double)x->box[k] - (double)y->box[k]) <= pixels);
        if (score == 0) {
            assert_int_equal(x->mask.runs, y->mask.runs);
            assert_memory_equal(x->mask.counts, y->mask.counts, x->mask.runs * sizeof *x->mask.counts);
        }
    }
}

/* ---- round trip ---- */

static void answers_like_the_picture(void **state)
{
    static const struct { const char *type; double score, pixels; } types[] = {
        {"f32", 0, 0}, {"f16", 1e-3, 0.5}, {"bf16", 1e-2, 4}};
    samite_prompt p = any_prompt("dog");
    samite_result *expected = ask(picture, &p);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        samite_image *im;
        samite_pixels px;
        samite_error e = {0};
        assert_int_equal(samite_image_save(picture, path, types[i].type, &scene, &e), 0);
        assert_int_equal(samite_image_load(&im, model, path, &px, &e), 0);
        assert_int_equal(px.width, scene.width);
        assert_int_equal(px.height, scene.height);
        assert_memory_equal(px.rgb, scene.rgb, (size_t)px.width * (size_t)px.height * 3);
        samite_result *res = ask(im, &p);
        assert_close(res, expected, types[i].score, types[i].pixels);
        samite_result_free(res);
        samite_pixels_free(&px);
        samite_image_free(im);
    }
    samite_result_free(expected);
}

static void clicks_and_goes_on(void **state)
{
    samite_image *im;
    samite_pixels px;
    samite_answer *a, *b;
    samite_error e = {0};
    samite_point at = {60, 50, 0};
    samite_click c = SAMITE_CLICK_INIT;
    c.points = &at;
    c.point_count = 1;
    assert_int_equal(samite_image_save(picture, path, "f32", NULL, &e), 0);
    assert_int_equal(samite_image_load(&im, model, path, &px, &e), 0);
    assert_null(px.rgb);
    assert_int_equal(px.width, scene.width);
    assert_int_equal(samite_image_click(im, &c, &a, &e), 0);
    assert_int_equal(samite_image_click(picture, &c, &b, &e), 0);
    assert_true(a->instance[0].score == b->instance[0].score);
    assert_int_equal(samite_image_replace(im, &scene, &e), 0);
    samite_prompt p = any_prompt("cat");
    samite_result *x = ask(im, &p), *y = ask(picture, &p);
    assert_close(x, y, 0, 0);
    samite_result_free(x);
    samite_result_free(y);
    samite_answer_free(a);
    samite_answer_free(b);
    samite_image_free(im);
}

/* ---- files that do not fit ---- */

static void refuse(samite_model *m, const char *file, const char *say)
{
    samite_image *im;
    samite_error e = {0};
    assert_int_equal(samite_image_load(&im, m, file, NULL, &e), SAMITE_INPUT);
    assert_null(im);
    if (!strstr(e.text, say))
        print_error("%s\n", e.text);
    assert_non_null(strstr(e.text, say));
}

static void refuses_what_does_not_fit(void **state)
{
    samite_model *other;
    samite_image *im;
    samite_error e = {0};
    samite_options o = SAMITE_OPTIONS_INIT;
    assert_int_equal(samite_image_save(picture, path, NULL, NULL, &e), 0);
    assert_int_equal(samite_model_open(&other, "formula:tiny,seed=7", NULL, &e), 0);
    refuse(other, path, "another model");
    samite_model_free(other);
    o.input_side = 224;
    assert_int_equal(samite_model_open(&other, "formula:tiny", &o, &e), 0);
    refuse(other, path, "--size 112");
    samite_model_free(other);
    refuse(model, TEST_DATA "/tiny/scene.png", "no .safetensors file");
    refuse(model, "/no/such/file.safetensors", "no such file");
    assert_int_equal(samite_image_save(picture, path, "int8", NULL, &e), SAMITE_USAGE);
    samite_pixels wrong = scene;
    wrong.width--;
    assert_int_equal(samite_image_save(picture, path, NULL, &wrong, &e), SAMITE_USAGE);
    assert_int_equal(samite_image_load(&im, NULL, path, NULL, &e), SAMITE_USAGE);
}

static uint8_t *read_all(const char *file, size_t *size)
{
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static void write_all(const char *file, const uint8_t *data, size_t size)
{
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* The first occurrence of `from` becomes `to`, of the same length. */
static void damage(const uint8_t *whole, size_t size, const char *from, const char *to)
{
    uint8_t *data = malloc(size);
    size_t n = strlen(from), at = 0;
    memcpy(data, whole, size);
    while (at + n <= size && memcmp(data + at, from, n))
        at++;
    assert_true(at + n <= size);
    memcpy(data + at, to, n);
    write_all(path, data, size);
    free(data);
}

static void refuses_damage(void **state)
{
    samite_error e = {0};
    size_t size;
    assert_int_equal(samite_image_save(picture, path, "f16", NULL, &e), 0);
    uint8_t *whole = read_all(path, &size);
    damage(whole, size, "\"level.1\"", "\"level.9\"");
    refuse(model, path, "level.1 is missing");
    damage(whole, size, "\"samite.features\":\"1\"", "\"samite.features\":\"2\"");
    refuse(model, path, "version 2");
    damage(whole, size, "\"samite.features\"", "\"samite.creature\"");
    refuse(model, path, "no encoded picture");
    damage(whole, size, "\"samite.width\":\"1", "\"samite.width\":\"-");
    refuse(model, path, "damaged");
    damage(whole, size, "[1,32,32,", "[32,1,32,");
    refuse(model, path, "expected f16, bf16 or f32");
    write_all(path, whole, size - 1);
    refuse(model, path, "cut short");
    uint8_t *data = malloc(size);
    memcpy(data, whole, size);
    memset(data + size - 2, 0xFF, 2);                   /* the last f16: no number */
    write_all(path, data, size);
    refuse(model, path, "no numbers");
    free(data);
    free(whole);
}

/* Any single byte of the header may be anything: refused or loaded, nothing worse. */
static void survives_any_header(void **state)
{
    samite_error e = {0};
    size_t size;
    unsigned seed = 5;
    assert_int_equal(samite_image_save(picture, path, "f16", NULL, &e), 0);
    uint8_t *whole = read_all(path, &size);
    for (int i = 0; i < 60; i++) {
        samite_image *im;
        size_t at = (seed = seed * 1664525u + 1013904223u) % 900;
        uint8_t kept = whole[at];
        whole[at] = (uint8_t)(seed >> 24);
        write_all(path, whole, size);
        samite_image_load(&im, model, path, NULL, &e);
        samite_image_free(im);
        whole[at] = kept;
    }
    free(whole);
}

/* ---- remembered answers ---- */

static int tick(void *user, const char *stage, uint64_t done, uint64_t total)
{
    ++*(int *)user;
    return 0;
}

static void remembers_answers(void **state)
{
    int steps = 0;
    samite_model *m;
    samite_image *im;
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    o.progress = tick;
    o.user = &steps;
    assert_int_equal(samite_model_open(&m, "formula:tiny", &o, &e), 0);
    assert_int_equal(samite_image_open(&im, m, &scene, &e), 0);
    samite_box box = {10, 10, 60, 60, 0};
    samite_prompt p = any_prompt("dog"), q = any_prompt("dog");
    q.boxes = &box;
    q.box_count = 1;
    samite_result *first = ask(im, &p), *other = ask(im, &q);
    int before = steps;
    samite_result *again = ask(im, &p), *more = ask(im, &q);
    assert_int_equal(steps, before);                    /* nothing was computed */
    assert_close(again, first, 0, 0);
    assert_close(more, other, 0, 0);
    p.max_results = 1;
    samite_result *fewer = ask(im, &p);
    assert_int_equal(fewer->count, 1);
    assert_true(steps > before);
    samite_pixels flipped = scene;
    flipped.rgb = malloc((size_t)scene.width * (size_t)scene.height * 3);
    for (int i = 0; i < scene.width * scene.height * 3; i++)
        flipped.rgb[i] = (uint8_t)~scene.rgb[i];
    assert_int_equal(samite_image_replace(im, &flipped, &e), 0);
    p.max_results = 5;
    samite_result *new = ask(im, &p);
    assert_true(new->instance[0].score != first->instance[0].score);
    for (int i = 0; i < 17; i++) {                      /* more than are remembered */
        q.score = 0.001f * (float)i;
        samite_result_free(ask(im, &q));
    }
    samite_result *all[] = {first, other, again, more, fewer, new};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        samite_result_free(all[i]);
    free(flipped.rgb);
    samite_image_free(im);
    samite_model_free(m);
}

static void low_memory_answers_alike(void **state)
{
    samite_model *m;
    samite_image *im;
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    o.low_memory = 1;
    assert_int_equal(samite_model_open(&m, "formula:tiny", &o, &e), 0);
    assert_int_equal(samite_image_open(&im, m, &scene, &e), 0);
    for (int i = 0; i < 2; i++) {
        samite_prompt p = any_prompt(i ? "cat" : "dog");
        samite_result *a = ask(im, &p), *b = ask(picture, &p);
        assert_int_equal(samite_image_replace(picture, &scene, &e), 0);
        assert_close(a, b, 0, 0);
        samite_result_free(a);
        samite_result_free(b);
        assert_int_equal(samite_image_replace(im, &scene, &e), 0);
    }
    samite_image_free(im);
    samite_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_like_the_picture),
        cmocka_unit_test(clicks_and_goes_on),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(refuses_damage),
        cmocka_unit_test(survives_any_header),
        cmocka_unit_test(remembers_answers),
        cmocka_unit_test(low_memory_answers_alike),
    };
    return cmocka_run_group_tests(tests, open_picture, close_picture);
}
