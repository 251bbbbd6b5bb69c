/* train_data.c - annotations of every kind and ailment, settings, placing, random choices. */
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

#include "train/augment.h"
#include "train/config.h"
#include "train/sample.h"
#include "train/tensorboard.h"

#include <cmocka.h>      /* last: it makes a macro of `fail` */

static char folder[64];

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "%s/samite-train-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static const char *file_with(const char *content)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/file", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(content, f);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* ---- rows ---- */

#define IMAGES                                                                                                         \
    "\"images\":[{\"id\":7,\"file_name\":\"a.png\",\"width\":100,\"height\":50},{\"id\":1,\"file_name\":\"b.png\"}]"
#define WORDS                                                                                                          \
    "\"categories\":[{\"id\":0,\"name\":\"cells\",\"supercategory\":\"none\"},{\"id\":3,\"name\":\"red\","             \
    "\"supercategory\":\"cells\"},"                                                                                    \
    "{\"id\":9,\"name\":\"white\",\"supercategory\":\"cells\"},{\"id\":40,\"name\":\"red\",\"supercategory\":"         \
    "\"cells\"}]"
#define ANN(id, image, category, rest) "{\"id\":" #id ",\"image_id\":" #image ",\"category_id\":" #category "," rest "}"
#define BOX "\"bbox\":[10,10,20,20]"

static void read_rows(train_set *s, const char *annotations, bool masks)
{
    char json[8192];
    samite_error e = {0};
    snprintf(json, sizeof json, "{" IMAGES "," WORDS ",\"annotations\":[%s]}", annotations);
    int code =
        train_set_read(s, &(train_options){.annotations = file_with(json), .pictures = folder, .masks = masks}, &e);
    if (code)
        fail_msg("%s", e.text);
}

static const train_row *row_of(const train_set *s, const char *annotation)
{
    for (size_t i = 0; i < s->row_count; i++)
        if (strcmp(s->rows[i].annotation, annotation) == 0)
            return &s->rows[i];
    return NULL;
}

static void expect_row(const train_set *s, const char *annotation, bool rejected, const char *why)
{
    const train_row *r = row_of(s, annotation);
    assert_non_null(r);
    assert_int_equal(r->rejected, rejected);
    if (!strstr(r->why, why))
        fail_msg("annotation %s: \"%s\", expected \"%s\"", annotation, r->why, why);
}

static void bad_rows_are_told(void **state)
{
    train_set s;
    static const char rows[] =
        ANN(1, 7, 3, "\"bbox\":[10,10,0,20]") ","
        ANN(2, 7, 3, "\"bbox\":[10,10,-5,20]") ","
        ANN(3, 7, 3, "\"bbox\":[1,NaN,5,20]") ","
        ANN(4, 7, 3, "\"bbox\":[100,10,5,20]") ","
        ANN(5, 7, 3, "\"bbox\":[1,2,3]") ","
        ANN(6, 7, 3, "\"bbox\":null") ","
        ANN(7, 99, 3, BOX) ","
        ANN(8, 7, 77, BOX) ","
        ANN(9, 7, 3, "\"bbox\":[90,10,30,20]") ","
        ANN(10, 7, 3, BOX) ","
        ANN(10, 7, 40, BOX) ","
        ANN(12, 7, 3, "\"bbox\":[1,1,Infinity,2]") ","
        ANN(13, 7, 3, "\"bbox\":[\"1\",1,2,2]") ","
        "{\"id\":14,\"category_id\":3," BOX "},"
        ANN(15, 1, 9, BOX ",\"iscrowd\":1,\"noun_phrase\":\"x\"") ","
        ANN(16, 7, 0, BOX);
    read_rows(&s, rows, false);
    expect_row(&s, "1", true, "no area");
    expect_row(&s, "2", true, "no area");
    expect_row(&s, "3", true, "not finite");
    expect_row(&s, "4", true, "outside");
    expect_row(&s, "5", true, "four numbers");
    expect_row(&s, "6", true, "four numbers");
    expect_row(&s, "7", true, "no image has this id");
    expect_row(&s, "8", true, "not among the categories");
    expect_row(&s, "9", false, "sticks out");
    expect_row(&s, "10", false, "two annotations");
    expect_row(&s, "12", true, "not finite");
    expect_row(&s, "13", true, "no number");
    expect_row(&s, "14", true, "image_id is missing");
    assert_int_equal(s.rejected, 11);
    assert_int_equal(train_set_objects(&s), 4);      /* 9, 10 twice, 16; the crowd does not count */
    assert_int_equal(s.prompt_count, 3);             /* cells has an object; both "red" are one */
    assert_string_equal(s.prompts[1], "red");
    assert_int_equal(s.chosen, 2);
    assert_string_equal(s.images[s.order[0]].file_name, "b.png");     /* ascending ids */
    train_set_free(&s);
}

static void group_name_is_no_prompt(void **state)
{
    train_set s;
    read_rows(&s, ANN(1, 7, 3, BOX), false);
    assert_int_equal(s.prompt_count, 2);
    assert_string_equal(s.prompts[0], "red");
    assert_int_equal(s.rejected, 0);
    long positive, negative;
    train_set_pairs(&s, &positive, &negative);
    assert_int_equal(positive, 1);
    assert_int_equal(negative, 3);
    train_set_free(&s);
}

static void missing_keys_are_named(void **state)
{
    static const struct { const char *json, *says;
    } bad[] = {{"{}", "nothing in \"images\""},
               {"[]", "nothing in \"images\""},
               {"{" IMAGES "}", "nothing in \"categories\""},
               {"", "empty"},
               {"{\"images\":[", "broken JSON"},
               {"{\"images\":[],\"categories\":[{\"id\":1,\"name\":\"a\"}]}", "nothing in"},
               {"{" IMAGES ",\"categories\":[{\"id\":1}]}", "no category"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        train_set s;
        samite_error e = {0};
        assert_int_equal(
            train_set_read(&s, &(train_options){.annotations = file_with(bad[i].json), .pictures = folder}, &e),
            SAMITE_INPUT);
        if (!strstr(e.text, bad[i].says))
            fail_msg("\"%s\": \"%s\", expected \"%s\"", bad[i].json, e.text, bad[i].says);
    }
}

static void annotations_may_come_first(void **state)
{
    train_set s;
    samite_error e = {0};
    const char *json = "{\"annotations\":[" ANN(1, 7, 9, BOX) "]," WORDS "," IMAGES "}";
    assert_int_equal(train_set_read(&s, &(train_options){.annotations = file_with(json), .pictures = folder}, &e), 0);
    assert_int_equal(train_set_objects(&s), 1);
    train_set_free(&s);
}

/* random.Random(10).shuffle(list(range(10))) in Python. */
static void images_are_chosen_as_officially(void **state)
{
    static const int expected[] = {5, 2, 7, 1};
    char json[2048] = "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"annotations\":[],\"images\":[";
    for (int i = 0; i < 10; i++)
        snprintf(json + strlen(json), sizeof json - strlen(json), "%s{\"id\":%d,\"file_name\":\"%d\"}", i ? "," : "",
                 100 - i, 9 - i);
    strcat(json, "]}");
    train_set s;
    assert_int_equal(
        train_set_read(&s, &(train_options){.annotations = file_with(json), .pictures = folder, .limit = 4}, NULL), 0);
    assert_int_equal(s.chosen, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(atoi(s.images[s.order[i]].file_name), expected[i]);
    train_set_free(&s);
}

/* ---- masks ---- */

/* The same rectangle as polygon, counts and text, and what is no mask at all. */
static void shapes_mean_the_same(void **state)
{
    static const char *const same[] = {"[[2,1,6,1,6,4,2,4]]", "{\"size\":[5,8],\"counts\":[11,3,2,3,2,3,2,3,11]}",
                                       "{\"size\":[5,8],\"counts\":\""};
    static const char *const none[] = {
        "[]", "null", "{}", "[[1,2,3,4]]", "[1,2,3,4,5,6]", "{\"size\":[5,8]}", "\"x\"", "[[1,2,3,4,5,null]]"};
    uint8_t first[64], other[64];
    bool valid;
    for (int i = 0; i < 3; i++) {
        char annotation[256], text[64] = "";
        if (i == 2) {
            rle r;
            char *counts;
            assert_int_equal(rle_from_counts(&r, (const uint32_t[]){11, 3, 2, 3, 2, 3, 2, 3, 11}, 9, 8, 5, "", NULL),
                             0);
            assert_int_equal(rle_to_string(&counts, &r, NULL), 0);
            snprintf(text, sizeof text, "%s\"}", counts);
            free(counts);
            rle_free(&r);
        }
        snprintf(annotation, sizeof annotation,
                 "{\"id\":1,\"image_id\":7,\"category_id\":3," BOX ",\"segmentation\":%s%s}", same[i], text);
        train_set s;
        read_rows(&s, annotation, true);
        train_image record = {.width = 8, .height = 5};
        assert_int_equal(
            place_mask(i ? other : first, &valid, 8, &s.objects[0], &record, 8, 5, (placement){8, 0, 0}, NULL), 0);
        assert_true(valid);
        if (i)
            assert_memory_equal(first, other, 64);
        train_set_free(&s);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char annotation[256];
        snprintf(annotation, sizeof annotation,
                 "{\"id\":1,\"image_id\":7,\"category_id\":3," BOX ",\"segmentation\":%s}", none[i]);
        train_set s;
        read_rows(&s, annotation, true);
        assert_null(s.objects[0].shape);
        assert_int_equal(s.noted, i < 3 ? 3 : 4);     /* three remarks on images and categories always */
        train_set_free(&s);
    }
}

static void damaged_run_lengths_become_rows(void **state)
{
#define SHAPE(size, counts) BOX ",\"segmentation\":{\"size\":" size ",\"counts\":" counts "}"
    train_set s;
    read_rows(&s, ANN(1, 7, 3, SHAPE("[50,100]", "\"!!!\"")) "," ANN(2, 7, 3, SHAPE("[50,100]", "[5,5]")) ","
                  ANN(3, 7, 3, SHAPE("[10,10]", "[50,50]")) "," ANN(4, 7, 3, SHAPE("[50,100]", "[4000,1000]")) ","
                  ANN(5, 7, 3, SHAPE("[1000000,1000000]", "[5,5]")), true);
    expect_row(&s, "1", false, "the run lengths are damaged");
    expect_row(&s, "2", false, "the run lengths are damaged");
    expect_row(&s, "3", false, "the mask has 10 x 10 pixels, the picture 100 x 50; it is stretched");
    expect_row(&s, "5", false, "the run lengths are damaged");
    assert_null(row_of(&s, "4"));
    assert_int_equal(s.rejected, 0);
    assert_int_equal(s.count, 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(s.objects[i].shape != NULL, i == 2 || i == 3);
    train_set_free(&s);
}

/* The record says whether boxes are meant on the picture as stored or upright. */
static void pictures_are_turned_as_their_record_says(void **state)
{
    static const struct { int width, height, found; bool stretched; } cases[] = {
        {37, 26, 37, false}, {26, 37, 26, false}, {0, 0, 37, false}, {74, 26, 37, true}};
    for (int i = 0; i < 4; i++) {
        train_image im = {.file_name = "exif6.jpg", .width = cases[i].width, .height = cases[i].height};
        train_set s = {.pictures = (char *)(uintptr_t)TEST_DATA "/io", .images = &im};
        pixels px;
        bool stretched;
        assert_int_equal(read_training_picture(&px, &stretched, &s, 0, NULL), 0);
        assert_int_equal(px.width, cases[i].found);
        assert_int_equal(stretched, cases[i].stretched);
        pixels_free(&px);
    }
}

static void empty_mask_becomes_its_box(void **state)
{
    uint8_t mask[100];
    bool valid;
    segment shape = {.kind = SEGMENT_COUNTS, .count = 1, .counts = (uint32_t[]){100}, .width = 10, .height = 10};
    train_object x = {.box = {2, 3, 4, 2}, .shape = &shape};
    train_image record = {.width = 10, .height = 10};
    assert_int_equal(place_mask(mask, &valid, 10, &x, &record, 10, 10, (placement){10, 0, 0}, NULL), 0);
    int sum = 0;
    for (int i = 0; i < 100; i++)
        sum += mask[i];
    assert_int_equal(sum, 8);
    assert_int_equal(mask[3 * 10 + 2], 1);
    assert_int_equal(mask[4 * 10 + 5], 1);
}

static void damaged_run_lengths_are_refused(void **state)
{
    uint8_t mask[100];
    bool valid;
    train_image record = {.width = 10, .height = 10};
    segment wrong = {.kind = SEGMENT_COUNTS, .count = 2, .counts = (uint32_t[]){50, 51}, .width = 10, .height = 10};
    train_object x = {.box = {2, 3, 4, 2}, .shape = &wrong};
    assert_int_equal(place_mask(mask, &valid, 10, &x, &record, 10, 10, (placement){10, 0, 0}, NULL), SAMITE_INPUT);
}

/* ---- placing ---- */

/* A box that begins left of the picture keeps its width, as officially. */
static void boxes_follow_the_official_order(void **state)
{
    float box[4];
    train_object x = {.box = {-5, 10, 30, 20}};
    train_image record = {.width = 100, .height = 50};
    double area = place_box(box, 200, &x, &record, 100, 50, (placement){100, 50, 20});
    assert_float_equal(box[0], (50 + 15) / 200.0, 1e-6);
    assert_float_equal(box[1], (20 + 40) / 200.0, 1e-6);
    assert_float_equal(box[2], 30 / 200.0, 1e-6);
    assert_float_equal(box[3], 40 / 200.0, 1e-6);
    assert_float_equal(area, 0.3 * 0.4 * 2, 1e-6);
}

static void draws_depend_on_nothing_else(void **state)
{
    bool sizes[1009] = {false};
    int kinds = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        placement a = placement_draw(123, i % 7, i, 1008), b = placement_draw(123, i % 7, i, 1008);
        assert_memory_equal(&a, &b, sizeof a);
        assert_true(a.size >= 480 && a.size <= 992 && a.size % 32 == 0);
        assert_true(a.left >= 0 && a.top >= 0 && a.left + a.size <= 1008 && a.top + a.size <= 1008);
        kinds += !sizes[a.size];
        sizes[a.size] = true;
    }
    assert_int_equal(kinds, 17);
    placement tiny = placement_draw(1, 2, 3, 56);
    assert_int_equal(tiny.size, 32);
}

static void white_stays_white(void **state)
{
    uint8_t rgb[7 * 5 * 3], out[12 * 12 * 3];
    memset(rgb, 255, sizeof rgb);
    pixels in = {.width = 7, .height = 5, .rgb = rgb};
    assert_int_equal(resize_as_pil(out, 12, &in, NULL), 0);
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(out[i], 255);
}

/* ---- settings ---- */

static void settings_are_checked(void **state)
{
    static const struct { const char *key, *value, *says;
    } bad[] = {{"trainer.max_epoch", "3", "trainer.max_epochs"},
               {"max_epochs", "0", "whole number"},
               {"max_epochs", "1.5", "whole number"},
               {"optim.wd", "x", "a number"},
               {"strict", "maybe", "true or false"},
               {"backend", "nccl", "auto|mpi|none"},
               {"", "1", "no setting"}};
    train_config c;
    assert_true(train_config_init(&c));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        samite_error e = {0};
        assert_int_equal(train_config_set(&c, bad[i].key, bad[i].value, NULL, &e), SAMITE_USAGE);
        if (!strstr(e.text, bad[i].says))
            fail_msg("%s: \"%s\", expected \"%s\"", bad[i].key, e.text, bad[i].says);
    }
    assert_int_equal(c.epochs, 20);
    train_config_free(&c);
}

static void settings_survive_being_written(void **state)
{
    train_config a, b;
    text first = {0}, second = {0};
    assert_true(train_config_init(&a) && train_config_init(&b));
    const char *yaml = "# a run\npaths:\n  data: 'my \"data\"'\ntrainer: {max_epochs: 7, freeze: [trunk, "
                       "text]}\noptim:\n  lr_transformer: 1e-4\n"
                       "  wd: 0\nlogging:\n  report: no\n";
    samite_error e = {0};
    if (train_config_read(&a, file_with(yaml), &e))
        fail_msg("%s", e.text);
    assert_int_equal(a.epochs, 7);
    assert_string_equal(a.freeze, "trunk,text");
    assert_string_equal(a.data, "my \"data\"");
    assert_true(a.lr == 1e-4 && a.weight_decay == 0 && !a.report);
    train_config_print(&a, &first);
    assert_int_equal(train_config_read(&b, file_with(first.data), &e), 0);
    train_config_print(&b, &second);
    assert_string_equal(first.data, second.data);
    text_free(&first);
    text_free(&second);
    train_config_free(&a);
    train_config_free(&b);
}

static void broken_yaml_is_told(void **state)
{
    static const char *const bad[] = {
        "a: [", "word", "trainer: {max_epochs: {a: b}}", "trainer: [1, [2]]", "trainer: *x", "a:\n\tb: 1", "- 1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        train_config c;
        samite_error e = {0};
        assert_true(train_config_init(&c));
        assert_int_equal(train_config_read(&c, file_with(bad[i]), &e), SAMITE_USAGE);
        assert_non_null(strstr(e.text, "line"));
        train_config_free(&c);
    }
}

/* ---- event files ---- */

static void checksums_are_those_of_tensorboard(void **state)
{
    uint32_t plain = 0xe3069283u;      /* CRC-32C of these nine digits, from its definition */
    assert_int_equal(tensorboard_checksum("123456789", 9), (uint32_t)((plain >> 15 | plain << 17) + 0xa282ead8u));
    text out = {0};
    tensorboard_scalar(&out, 1.5, 42, "loss", 0.25f);
    uint64_t size = 0;
    memcpy(&size, out.data, 8);
    assert_int_equal(out.size, size + 16);
    text_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bad_rows_are_told),
                                       cmocka_unit_test(group_name_is_no_prompt),
                                       cmocka_unit_test(missing_keys_are_named),
                                       cmocka_unit_test(annotations_may_come_first),
                                       cmocka_unit_test(images_are_chosen_as_officially),
                                       cmocka_unit_test(shapes_mean_the_same),
                                       cmocka_unit_test(damaged_run_lengths_become_rows),
                                       cmocka_unit_test(pictures_are_turned_as_their_record_says),
                                       cmocka_unit_test(empty_mask_becomes_its_box),
                                       cmocka_unit_test(damaged_run_lengths_are_refused),
                                       cmocka_unit_test(boxes_follow_the_official_order),
                                       cmocka_unit_test(draws_depend_on_nothing_else),
                                       cmocka_unit_test(white_stays_white),
                                       cmocka_unit_test(settings_are_checked),
                                       cmocka_unit_test(settings_survive_being_written),
                                       cmocka_unit_test(broken_yaml_is_told),
                                       cmocka_unit_test(checksums_are_those_of_tensorboard)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
