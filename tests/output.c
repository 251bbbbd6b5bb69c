/* output.c - result files from the public functions: what they hold, and what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "samite.h"

#define W 6
#define H 4

static char folder[64];

/* Two columns, then a hole of background, then one pixel: 8 + 9 + 1 + 6 = 24 of 6 x 4. */
static const uint32_t runs_a[] = {0, 8, 9, 1, 6};
/* All but the first two columns. */
static const uint32_t runs_b[] = {8, 16};

typedef struct scene {
    uint8_t         rgb[W * H * 3];
    samite_pixels   pixels;
    samite_instance a, b;
    samite_object   object[2];
    const char     *names[3];
    samite_page     page;
} scene;

static void make_scene(scene *s)
{
    memset(s, 0, sizeof *s);
    memset(s->rgb, 100, sizeof s->rgb);
    s->pixels = (samite_pixels){W, H, s->rgb, 6, 1};
    s->a = (samite_instance){0.75f, {0, 0, 4.5f, 4}, 9, {W, H, runs_a, 5}};
    s->b = (samite_instance){0.5f, {2, 0, 6, 4}, 16, {W, H, runs_b, 2}};
    s->object[0] = (samite_object){&s->a, 0};
    s->object[1] = (samite_object){&s->b, 2};
    s->names[0] = "dog";
    s->names[1] = "cat";
    s->names[2] = "dog";
    s->page = (samite_page)SAMITE_PAGE_INIT;
    s->page.file = "a\xff.jpg";
    s->page.pixels = &s->pixels;
    s->page.names = s->names;
    s->page.name_count = 3;
    s->page.object = s->object;
    s->page.object_count = 2;
}

static const char *in_folder(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Reads a picture that was just written. */
static void read_back(samite_pixels *p, const char *name)
{
    samite_error err;
    assert_int_equal(samite_pixels_read(p, in_folder(name), 0, &err), SAMITE_OK);
    assert_int_equal(p->width, W);
    assert_int_equal(p->height, H);
}

static void test_mask(void **state)
{
    (void)state;
    scene s;
    samite_error err;
    samite_pixels p;
    uint8_t painted[W * H];
    make_scene(&s);
    assert_int_equal(samite_write_mask(&s.a.mask, in_folder("mask.png"), &err), SAMITE_OK);
    read_back(&p, "mask.png");
    samite_mask_paint(&s.a.mask, painted);
    for (int i = 0; i < W * H; i++) {
        int x = i % W, y = i / W, column_major = x * H + y;
        assert_int_equal(painted[i], column_major < 8 || column_major == 17);
        assert_int_equal(p.rgb[3 * i], 255 * painted[i]);
    }
    samite_pixels_free(&p);
}

static void test_string(void **state)
{
    (void)state;
    scene s;
    char *text;
    make_scene(&s);
    assert_int_equal(samite_mask_string(&text, &s.b.mask, NULL), SAMITE_OK);
    assert_string_equal(text, "8`0");
    samite_free(text);
    samite_free(NULL);
}

static void test_coco(void **state)
{
    (void)state;
    scene s;
    samite_error err;
    make_scene(&s);
    assert_int_equal(samite_write_coco(&s.page, "{\"made\": 1}", in_folder("a.json"), &err), SAMITE_OK);
    json_t *o = json_load_file(in_folder("a.json"), 0, NULL);
    assert_non_null(o);
    const char *file, *hex, *first, *second, *counts;
    json_t *annotations, *polygons;
    int width, height, made, size[2], category, area;
    double box[4], score;
    assert_int_equal(json_unpack(o, "{s:{s:i}, s:[{s:s, s:s, s:i, s:i}], s:[{s:s}, {s:s}], s:o}", "info", "made", &made,
                                 "images", "file_name", &file, "file_name_hex", &hex, "width", &width, "height",
                                 &height, "categories", "name", &first, "name", &second, "annotations", &annotations),
                     0);
    assert_string_equal(file, "a\\xFF.jpg");
    assert_string_equal(hex, "61ff2e6a7067");
    assert_string_equal(first, "dog");
    assert_string_equal(second, "cat");
    assert_int_equal(json_array_size(annotations), 2);
    assert_int_equal(json_unpack(json_array_get(annotations, 1),
                                 "{s:[F,F,F,F], s:F, s:i, s:i, s:{s:[i,i], s:s}, s:o}", "bbox", &box[0], &box[1],
                                 &box[2], &box[3], "score", &score, "area", &area, "category_id", &category,
                                 "segmentation", "size", &size[0], &size[1], "counts", &counts, "polygons", &polygons),
                     0);
    assert_true(box[0] == 2 && box[1] == 0 && box[2] == 4 && box[3] == 4 && score == 0.5);
    assert_int_equal(area, 16);
    assert_int_equal(category, 1);      /* the second "dog" is the first category */
    assert_true(size[0] == H && size[1] == W);
    assert_string_equal(counts, "8`0");
    assert_int_equal(json_array_size(polygons), 1);
    json_decref(o);
}

static void test_overlay_and_labels(void **state)
{
    (void)state;
    scene s;
    samite_error err;
    samite_pixels p;
    samite_overlay_options none = SAMITE_OVERLAY_OPTIONS_INIT;
    make_scene(&s);
    assert_int_equal(samite_write_overlay(&s.page, NULL, in_folder("o.png"), &err), SAMITE_OK);
    read_back(&p, "o.png");
    assert_memory_not_equal(p.rgb, s.rgb, sizeof s.rgb);
    samite_pixels_free(&p);
    none.no_masks = none.no_boxes = none.no_names = 1;
    assert_int_equal(samite_write_overlay(&s.page, &none, in_folder("o.png"), &err), SAMITE_OK);
    read_back(&p, "o.png");
    assert_memory_equal(p.rgb, s.rgb, sizeof s.rgb);
    samite_pixels_free(&p);
    assert_int_equal(samite_write_overlay(&s.page, NULL, in_folder("o.jpg"), &err), SAMITE_OK);
    read_back(&p, "o.jpg");
    samite_pixels_free(&p);
    assert_int_equal(samite_write_label_map(&s.page, in_folder("l.png"), &err), SAMITE_OK);
    assert_int_equal(access(in_folder("l.png"), R_OK), 0);
}

/* The page is refused by all writers, and none leaves a file. */
static void refused(const scene *s, const char *says)
{
    samite_error err;
    const char *path = in_folder("none.png");
    assert_int_equal(samite_write_coco(&s->page, NULL, path, &err), SAMITE_USAGE);
    assert_non_null(strstr(err.text, says));
    assert_int_equal(samite_write_label_map(&s->page, path, &err), SAMITE_USAGE);
    assert_int_equal(samite_write_overlay(&s->page, NULL, path, &err), SAMITE_USAGE);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_refusals(void **state)
{
    (void)state;
    static const uint32_t huge[] = {0xFFFFFFFFu, 0xFFFFFFFFu, 24};
    scene s;
    samite_error err;
    make_scene(&s);
    s.a.mask.runs = 4;
    refused(&s, "add up to 18 pixels");
    s.a.mask = (samite_mask){W, H, huge, 3};
    refused(&s, "add up to 8589934614 pixels");
    s.a.mask = (samite_mask){H, W, runs_a, 5};
    refused(&s, "the picture 6 x 4");
    s.a.mask = (samite_mask){-6, -4, runs_a, 5};
    refused(&s, "no mask");
    make_scene(&s);
    s.object[1].name = 3;
    refused(&s, "object 2");
    make_scene(&s);
    s.pixels.rgb = NULL;               /* only overlays need it */
    assert_int_equal(samite_write_overlay(&s.page, NULL, in_folder("none.png"), &err), SAMITE_USAGE);
    assert_non_null(strstr(err.text, "needs the pixels"));
    s.page.pixels = NULL;
    refused(&s, "no picture");
    make_scene(&s);
    s.page.object_count = -1;
    refused(&s, "negative");
    make_scene(&s);
    assert_int_equal(samite_write_coco(&s.page, "[1]", in_folder("x.json"), &err), SAMITE_USAGE);
    assert_int_equal(samite_write_coco(&s.page, NULL, in_folder("no/folder.json"), &err), SAMITE_INPUT);
    assert_int_equal(access(in_folder("x.json"), F_OK), -1);
}

/* Objects without masks, and more objects than a label map has numbers. */
static void test_without_masks(void **state)
{
    (void)state;
    scene s;
    samite_error err;
    make_scene(&s);
    s.a.mask = s.b.mask = (samite_mask){0};
    assert_int_equal(samite_write_mask(&s.a.mask, in_folder("m.png"), &err), SAMITE_USAGE);
    assert_int_equal(samite_write_coco(&s.page, NULL, in_folder("b.json"), &err), SAMITE_OK);
    assert_int_equal(samite_write_overlay(&s.page, NULL, in_folder("b.png"), &err), SAMITE_OK);
    samite_object *many = calloc(65536, sizeof *many);
    assert_non_null(many);
    for (int i = 0; i < 65536; i++)
        many[i] = s.object[0];
    s.page.object = many;
    s.page.object_count = 65536;
    assert_int_equal(samite_write_label_map(&s.page, in_folder("b.png"), &err), SAMITE_USAGE);
    s.page.object_count = 65535;
    assert_int_equal(samite_write_label_map(&s.page, in_folder("b.png"), &err), SAMITE_OK);
    free(many);
}

/* A caller built against an older header knows fewer fields: the rest counts as zero. */
static void test_older_page(void **state)
{
    (void)state;
    scene s;
    samite_error err;
    make_scene(&s);
    s.page.size = offsetof(samite_page, object);
    assert_int_equal(samite_write_coco(&s.page, NULL, in_folder("old.json"), &err), SAMITE_OK);
    json_t *o = json_load_file(in_folder("old.json"), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(o, "annotations")), 0);
    json_decref(o);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/samite-output-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

/* Missing arguments are refused, never followed; run lengths that do not fill a mask write nothing outside of it. */
static void test_misuse(void **state)
{
    (void)state;
    samite_page page = SAMITE_PAGE_INIT;
    samite_training *t = NULL;
    char *text = NULL;
    int side;
    uint32_t runs[] = {4000000000u, 4000000000u};
    uint8_t out[7] = {9, 9, 9, 9, 9, 9, 9};
    samite_mask bad = {3, 2, runs, 2}, none = {3, 2, NULL, 2};
    samite_mask_paint(&bad, out);
    for (int i = 0; i < 7; i++)
        assert_int_equal(out[i], i < 6 ? 0 : 9);
    samite_mask_paint(&none, out);
    samite_mask_paint(NULL, out);
    samite_mask_paint(&bad, NULL);
    samite_machine_describe(NULL);
    assert_int_equal(samite_is_picture_name(NULL), 0);
    assert_int_equal(samite_model_sides(NULL, &side, 1), 0);
    assert_int_equal(samite_mask_string(NULL, &bad, NULL), SAMITE_USAGE);
    assert_int_equal(samite_mask_string(&text, NULL, NULL), SAMITE_USAGE);
    assert_int_equal(samite_write_mask(&bad, NULL, NULL), SAMITE_USAGE);
    assert_int_equal(samite_write_coco(NULL, NULL, "x", NULL), SAMITE_USAGE);
    assert_int_equal(samite_write_coco(&page, NULL, NULL, NULL), SAMITE_USAGE);
    assert_int_equal(samite_training_new(NULL, NULL), SAMITE_USAGE);
    assert_int_equal(samite_training_help(NULL, NULL), SAMITE_USAGE);
    assert_int_equal(samite_training_print(NULL, &text, NULL), SAMITE_USAGE);
    assert_int_equal(samite_training_new(&t, NULL), SAMITE_OK);
    assert_int_equal(samite_training_read(t, NULL, NULL), SAMITE_USAGE);
    assert_int_equal(samite_training_set(t, NULL, "1", NULL), SAMITE_USAGE);
    assert_int_equal(samite_training_set(t, "trainer.max_epochs", NULL, NULL), SAMITE_USAGE);
    samite_training_free(t);
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"mask.png", "a.json", "o.png", "o.jpg", "l.png", "b.json", "b.png", "old.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(in_folder(names[i]));
    return rmdir(folder);      /* fails when anything else was left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mask), cmocka_unit_test(test_string), cmocka_unit_test(test_coco),
        cmocka_unit_test(test_overlay_and_labels), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_without_masks), cmocka_unit_test(test_older_page),
        cmocka_unit_test(test_misuse),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
