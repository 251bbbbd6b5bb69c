/* io_mask.c - masks against pycocotools and torch, outlines, overlays, COCO JSON. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "io/coco.h"
#include "io/draw.h"
#include "io/mask.h"

#include <cmocka.h>

static json_t *fixtures;

static int load(void **state)
{
    (void)state;
    json_error_t e;
    fixtures = json_load_file(TEST_DATA "/io/masks.json", 0, &e);
    return fixtures ? 0 : -1;
}

static int unload(void **state)
{
    (void)state;
    json_decref(fixtures);
    return 0;
}

static const char *string_at(json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    assert_non_null(s);
    return s;
}

static double number_at(json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static void assert_counts(const rle *r, const char *expected)
{
    char *s;
    assert_int_equal(rle_to_string(&s, r, NULL), SAMITE_OK);
    assert_string_equal(s, expected);
    free(s);
}

static void from_string(rle *r, const char *s, int width, int height)
{
    samite_error err = {0};
    if (rle_from_string(r, s, strlen(s), width, height, "test", &err) != SAMITE_OK)
        fail_msg("%s", err.text);
}

/* Rows of '#' and '.' to bytes. */
static uint8_t *bytes_of(json_t *rows, int *width, int *height)
{
    *height = (int)json_array_size(rows);
    *width = (int)strlen(json_string_value(json_array_get(rows, 0)));
    uint8_t *m = malloc((size_t)*width * (size_t)*height);
    for (int y = 0; y < *height; y++) {
        const char *row = json_string_value(json_array_get(rows, (size_t)y));
        for (int x = 0; x < *width; x++)
            m[y * *width + x] = row[x] == '#';
    }
    return m;
}

static void check_basics(json_t *c, const uint8_t *mask, const rle *r)
{
    size_t n = (size_t)r->width * (size_t)r->height;
    uint8_t *back = malloc(n);
    double box[4];
    assert_counts(r, string_at(c, "counts"));
    rle_decode(back, r);
    assert_memory_equal(back, mask, n);
    free(back);
    assert_int_equal(rle_area(r), (uint64_t)number_at(c, "area"));
    rle_bbox(box, r);
    for (size_t i = 0; i < 4; i++)
        assert_true(box[i] == json_number_value(json_array_get(json_object_get(c, "box"), i)));
}

static void check_pair(json_t *c, const rle *a)
{
    rle pair[2] = {*a}, merged;
    from_string(&pair[1], string_at(c, "other"), a->width, a->height);
    assert_counts(&pair[1], string_at(c, "other"));
    assert_int_equal(rle_merge(&merged, pair, 2, false, NULL), SAMITE_OK);
    assert_counts(&merged, string_at(c, "union"));
    rle_free(&merged);
    assert_int_equal(rle_merge(&merged, pair, 2, true, NULL), SAMITE_OK);
    assert_counts(&merged, string_at(c, "common"));
    assert_int_equal(rle_area(&merged), rle_intersection(a, &pair[1]));
    rle_free(&merged);
    assert_true(fabs(rle_iou(a, &pair[1], false) - number_at(c, "iou")) < 1e-12);
    assert_true(fabs(rle_iou(a, &pair[1], true) - number_at(c, "iou_crowd")) < 1e-12);
    rle_free(&pair[1]);
}

static void check_parts(json_t *c, const uint8_t *mask, int width, int height)
{
    int32_t *labels = malloc((size_t)width * (size_t)height * sizeof *labels);
    int parts = mask_components(labels, mask, width, height);
    json_t *areas = json_object_get(c, "part_areas");
    assert_int_equal(parts, (int)number_at(c, "parts"));
    for (int k = 1; k <= parts; k++) {
        int area = 0;
        for (int i = 0; i < width * height; i++)
            area += labels[i] == k;
        assert_int_equal(area, (int)json_integer_value(json_array_get(areas, (size_t)k - 1)));
    }
    free(labels);
}

/* Every part becomes one polygon, and filling them gives the mask back, holes and all. */
static void check_outlines(json_t *c, const rle *r)
{
    polygons p, rough;
    rle *filled;
    assert_int_equal(mask_to_polygons(&p, r, 0, NULL), SAMITE_OK);
    assert_int_equal(p.count, (size_t)number_at(c, "parts"));
    filled = calloc(p.count + 1, sizeof *filled);
    uint64_t area = 0;
    for (size_t i = 0, at = 0; i < p.count; at = p.ends[i++]) {
        double *xy = malloc((p.ends[i] - at) * 2 * sizeof *xy);
        for (size_t k = 0; k < (p.ends[i] - at) * 2; k++)
            xy[k] = p.xy[2 * at + k];
        assert_int_equal(rle_from_polygon(&filled[i], xy, p.ends[i] - at, r->width, r->height, NULL), SAMITE_OK);
        area += rle_area(&filled[i]);
        free(xy);
    }
    assert_int_equal(area, rle_area(r));
    if (p.count) {
        rle all;
        assert_int_equal(rle_merge(&all, filled, p.count, false, NULL), SAMITE_OK);
        assert_counts(&all, string_at(c, "counts"));
        rle_free(&all);
    }
    assert_int_equal(mask_to_polygons(&rough, r, 1.0, NULL), SAMITE_OK);
    assert_int_equal(rough.count, p.count);
    assert_true(p.count == 0 || rough.ends[p.count - 1] <= p.ends[p.count - 1]);
    for (size_t i = 0; i < p.count; i++)
        rle_free(&filled[i]);
    free(filled);
    polygons_free(&p);
    polygons_free(&rough);
}

static void test_masks(void **state)
{
    (void)state;
    json_t *list = json_object_get(fixtures, "masks"), *c;
    size_t i;
    assert_int_equal(json_array_size(list), 60);
    json_array_foreach(list, i, c) {
        int width, height;
        rle r;
        uint8_t *mask = bytes_of(json_object_get(c, "rows"), &width, &height);
        assert_int_equal(rle_encode(&r, mask, width, height, NULL), SAMITE_OK);
        check_basics(c, mask, &r);
        check_pair(c, &r);
        check_parts(c, mask, width, height);
        check_outlines(c, &r);
        rle_free(&r);
        free(mask);
    }
}

static void test_polygons(void **state)
{
    (void)state;
    json_t *list = json_object_get(fixtures, "polygons"), *c, *v;
    size_t i, k;
    json_array_foreach(list, i, c) {
        double xy[64];
        rle r;
        json_array_foreach(json_object_get(c, "xy"), k, v)
            xy[k] = json_number_value(v);
        assert_int_equal(rle_from_polygon(&r, xy, k / 2, (int)number_at(c, "width"), (int)number_at(c, "height"), NULL),
                         SAMITE_OK);
        assert_counts(&r, string_at(c, "counts"));
        rle_free(&r);
    }
    const double bad[][6] = {{0, 0, 1, NAN, 2, 2}, {0, 0, 1e300, 0, 2, 2}, {0, 0, -INFINITY, 0, 2, 2}};
    for (i = 0; i < 3; i++) {
        rle r;
        assert_int_equal(rle_from_polygon(&r, bad[i], 3, 10, 10, NULL), SAMITE_INPUT);
        assert_null(r.counts);
    }
    rle box;
    assert_int_equal(rle_from_box(&box, (double[4]){2, 1, 3, 4}, 9, 7, NULL), SAMITE_OK);
    assert_int_equal(rle_area(&box), 12);
    rle_free(&box);
}

static void test_boxes(void **state)
{
    (void)state;
    json_t *list = json_object_get(fixtures, "boxes"), *c;
    size_t i;
    json_array_foreach(list, i, c) {
        double a[4], b[4];
        for (size_t k = 0; k < 4; k++) {
            a[k] = json_number_value(json_array_get(json_object_get(c, "a"), k));
            b[k] = json_number_value(json_array_get(json_object_get(c, "b"), k));
        }
        assert_true(fabs(box_iou(a, b, false) - number_at(c, "iou")) < 1e-12);
        assert_true(fabs(box_iou(a, b, true) - number_at(c, "iou_crowd")) < 1e-12);
    }
}

static void test_logits(void **state)
{
    (void)state;
    json_t *list = json_object_get(fixtures, "logits"), *c, *v;
    size_t i, k;
    json_array_foreach(list, i, c) {
        int w = (int)number_at(c, "w"), h = (int)number_at(c, "h"), width = (int)number_at(c, "width"),
            height = (int)number_at(c, "height");
        float *in = malloc((size_t)w * (size_t)h * sizeof *in),
              *out = malloc((size_t)width * (size_t)height * sizeof *out);
        json_array_foreach(json_object_get(c, "logits"), k, v)
            in[k] = (float)json_number_value(v);
        assert_int_equal(k, w * h);
        assert_int_equal(mask_resize_bilinear(out, width, height, in, w, h, NULL), SAMITE_OK);
        json_array_foreach(json_object_get(c, "every7"), k, v)
            assert_true(fabs(out[7 * k] - json_number_value(v)) < 1e-5);
        rle r, direct;
        assert_int_equal(mask_from_logits(&r, in, w, h, width, height, 0, NULL), SAMITE_OK);
        assert_counts(&r, string_at(c, "counts"));
        rle_free(&r);
        uint8_t *above = malloc((size_t)width * (size_t)height);
        for (int p = 0; p < width * height; p++)
            above[p] = out[p] > 0.75f;
        assert_int_equal(mask_from_logits(&direct, in, w, h, width, height, 0.75f, NULL), SAMITE_OK);
        assert_int_equal(rle_encode(&r, above, width, height, NULL), SAMITE_OK);
        assert_int_equal(rle_area(&direct), rle_area(&r));
        rle_free(&r);
        rle_free(&direct);
        free(above);
        free(in);
        free(out);
    }
}

static void test_hostile_strings(void **state)
{
    (void)state;
    const char *bad[] = {"",           "1",    "zzzzzzzzzzzzzzzz", "oooooooooooooooooooo", "0\x80", "\n", "5O",
                         "PPPPPPPPP8", "d1d1", "`P0000000"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rle r;
        samite_error err = {0};
        assert_int_equal(rle_from_string(&r, bad[i], strlen(bad[i]), 10, 10, "item 7", &err), SAMITE_INPUT);
        assert_null(r.counts);
        assert_int_equal(strncmp(err.text, "item 7: ", 8), 0);
    }
    rle r;
    const uint32_t over[] = {60, UINT32_MAX, 41}, exact[] = {0, 60, 0, 40};
    assert_int_equal(rle_from_counts(&r, over, 3, 10, 10, "x", NULL), SAMITE_INPUT);
    assert_int_equal(rle_from_string(&r, "1", 1, 1 << 20, 1 << 20, "x", NULL), SAMITE_INPUT);
    assert_int_equal(rle_from_string(&r, "1", 1, -1, 4, "x", NULL), SAMITE_INPUT);
    assert_int_equal(rle_from_counts(&r, exact, 4, 10, 10, "x", NULL), SAMITE_OK);
    assert_int_equal(rle_area(&r), 100);
    double box[4];
    rle_bbox(box, &r);
    assert_true(box[0] == 0 && box[1] == 0 && box[2] == 10 && box[3] == 10);
    rle_free(&r);
}

static void test_nms(void **state)
{
    (void)state;
    rle m[4];
    uint8_t keep[4];
    const double boxes[4][4] = {{0, 0, 10, 10}, {1, 0, 10, 10}, {20, 20, 5, 5}, {0, 6, 10, 10}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(rle_from_box(&m[i], boxes[i], 40, 40, NULL), SAMITE_OK);
    rle_nms(keep, m, 4, 0.5);
    assert_memory_equal(keep, ((uint8_t[]){1, 0, 1, 1}), 4);
    box_nms(keep, boxes, 4, 0.2);
    assert_memory_equal(keep, ((uint8_t[]){1, 0, 1, 0}), 4);
    for (int i = 0; i < 4; i++)
        rle_free(&m[i]);
}

static void test_colours(void **state)
{
    (void)state;
    uint8_t c[20][3];
    for (int i = 0; i < 20; i++)
        draw_colour(c[i], i);
    for (int i = 0; i < 20; i++) {
        for (int j = 0; j < i; j++) {
            int d = abs(c[i][0] - c[j][0]) + abs(c[i][1] - c[j][1]) + abs(c[i][2] - c[j][2]);
            assert_true(d > 40);
        }
    }
}

static void paint(uint8_t *rgb, int w, int h, const draw_instance *in, size_t n, bool labels, bool plain)
{
    draw_style style = DRAW_STYLE_INIT;
    style.labels = labels;
    style.plain_font = plain;
    style.scale = 2;
    memset(rgb, 90, (size_t)w * (size_t)h * 3);
    assert_int_equal(draw_overlay(rgb, w, h, in, n, &style, NULL), SAMITE_OK);
}

static void test_draw(void **state)
{
    (void)state;
    enum { W = 220, H = 140 };
    uint8_t *rgb = malloc(W * H * 3), *labelled = malloc(W * H * 3);
    rle m;
    assert_int_equal(rle_from_box(&m, (double[4]){60, 50, 80, 40}, W, H, NULL), SAMITE_OK);
    draw_instance in = {&m, {60, 50, 80, 40}, "dog", 0.5, 0};
    paint(rgb, W, H, &in, 1, false, true);
    uint8_t colour[3], *inside = rgb + (70 * W + 100) * 3, *edge = rgb + (70 * W + 60) * 3;
    draw_colour(colour, 0);
    assert_int_equal(abs(inside[0] - (int)lround(90 * .55 + colour[0] * .45)) <= 1, 1);
    assert_true(abs(edge[0] - colour[0]) < 25);
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            bool far = x < 55 || x >= 145 || y < 45 || y >= 95;
            if (far)
                assert_int_equal(rgb[(y * W + x) * 3], 90);
        }
    }
    for (int plain = 0; plain < 2; plain++) {
        int dark = 0;
        paint(labelled, W, H, &in, 1, true, plain);
        for (int i = 0; i < W * H; i++)
            dark += labelled[3 * i] < 60;
        assert_true(dark > 20);     /* letters on the tag */
    }
    rle_free(&m);
    free(rgb);
    free(labelled);
}

/* Tags at all borders, on tiny pictures, with odd names: nothing may be written outside (sanitizers watch). */
static void test_draw_extremes(void **state)
{
    (void)state;
    const char *names[] = {"", "a", "\xff\xfe bad", "é 犬 \xf0\x9f\x90\xb6",
                           "a very long name that does not fit into any picture of this size at all"};
    const int sizes[][2] = {{1, 1}, {3, 200}, {200, 3}, {40, 30}, {320, 240}};
    for (size_t s = 0; s < 5; s++) {
        int w = sizes[s][0], h = sizes[s][1];
        uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);
        rle m;
        assert_int_equal(rle_from_box(&m, (double[4]){0, 0, w, h}, w, h, NULL), SAMITE_OK);
        draw_instance in[8] = {0};
        for (int i = 0; i < 8; i++)
            in[i] =
                (draw_instance){i % 2 ? &m : NULL, {i * 9 - 20, i * 7 - 20, 30, 30}, names[i % 5], i < 4 ? .9 : -1, i};
        in[7].box[2] = NAN;
        paint(rgb, w, h, in, 8, true, false);
        paint(rgb, w, h, in, 8, true, true);
        rle_free(&m);
        free(rgb);
    }
    uint8_t one[3] = {0};
    rle wrong = {2, 2, (uint32_t[]){4}, 1};
    draw_instance in = {&wrong, {0}, NULL, 0, 0};
    assert_int_equal(draw_overlay(one, 1, 1, &in, 1, NULL, NULL), SAMITE_USAGE);
}

static void test_coco(void **state)
{
    (void)state;
    rle m;
    assert_int_equal(rle_from_box(&m, (double[4]){2, 3, 5, 4}, 20, 10, NULL), SAMITE_OK);
    coco_image image = {1, "dir/bl\xc3\xa9 \"x\".jpg", 20, 10, 6, true};
    coco_category category = {1, "犬\n\xe9"};
    coco_annotation a[2] = {{1, 1, 1, {2, 3, 5, 4}, 0.912345678, NULL, &m},
                            {2, 1, 1, {1.23456, 0, 2, 2}, 0.5, NULL, NULL}};
    coco_data data = {.description = "test",
                      .images = &image,
                      .image_count = 1,
                      .categories = &category,
                      .category_count = 1,
                      .annotations = a,
                      .annotation_count = 2,
                      .segmentation = COCO_BOTH};
    text t = {0};
    assert_int_equal(coco_format(&t, &data, NULL), SAMITE_OK);
    json_t *j = json_loads(t.data, 0, NULL), *first, *im;
    assert_non_null(j);
    im = json_array_get(json_object_get(j, "images"), 0);
    assert_string_equal(string_at(im, "file_name"), "dir/bl\xc3\xa9 \"x\".jpg");
    assert_int_equal((int)number_at(im, "exif_orientation"), 6);
    assert_string_equal(string_at(json_array_get(json_object_get(j, "categories"), 0), "name"), "犬\n\xef\xbf\xbd");
    first = json_array_get(json_object_get(j, "annotations"), 0);
    assert_int_equal((int)number_at(first, "area"), 20);
    assert_true(number_at(first, "score") == 0.912346);
    assert_counts(&m, string_at(json_object_get(first, "segmentation"), "counts"));
    json_t *ring = json_array_get(json_object_get(first, "polygons"), 0);
    assert_int_equal(json_array_size(ring), 8);
    json_t *second = json_array_get(json_object_get(j, "annotations"), 1);
    assert_null(json_object_get(second, "segmentation"));
    assert_true(json_number_value(json_array_get(json_object_get(second, "bbox"), 0)) == 1.235);
    json_decref(j);
    text_free(&t);
    char path[] = "/tmp/samite-coco-XXXXXX";
    close(mkstemp(path));
    data.segmentation = COCO_POLYGONS;
    assert_int_equal(coco_write(path, &data, NULL), SAMITE_OK);
    j = json_load_file(path, 0, NULL);
    assert_true(json_is_array(json_object_get(json_array_get(json_object_get(j, "annotations"), 0), "segmentation")));
    json_decref(j);
    unlink(path);
    rle_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_masks),           cmocka_unit_test(test_polygons),
        cmocka_unit_test(test_boxes),           cmocka_unit_test(test_logits),
        cmocka_unit_test(test_hostile_strings), cmocka_unit_test(test_nms),
        cmocka_unit_test(test_colours),         cmocka_unit_test(test_draw),
        cmocka_unit_test(test_draw_extremes),   cmocka_unit_test(test_coco),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
