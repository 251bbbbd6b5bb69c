/* predict.c - a model over a small data set: whole, stopped and gone on, in shards; missing and odd pictures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"
#include "base/text.h"
#include "io/image.h"
#include "samite.h"

#include <cmocka.h>

static char folder[] = "/tmp/samite-predict-XXXXXX";
static char gt[128], pictures[128];
static samite_model *model;

static void write_text(const char *path, const char *s)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(s, f);
    assert_int_equal(fclose(f), 0);
}

static void write_picture(const char *name, int width, int height, unsigned seed)
{
    uint8_t *rgb = malloc((size_t)width * (size_t)height * 3);
    for (int i = 0; i < width * height * 3; i++)
        rgb[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    char *path = path_join(pictures, name);
    png_image_data d = {.width = width, .height = height, .kind = PNG_RGB8, .data = rgb};
    assert_int_equal(image_write_png(path, &d, NULL), SAMITE_OK);
    free(path);
    free(rgb);
}

static int set_up(void **state)
{
    text t = {0};
    if (!mkdtemp(folder))
        return -1;
    snprintf(gt, sizeof gt, "%s/gt.json", folder);
    snprintf(pictures, sizeof pictures, "%s/pictures", folder);
    mkdir(pictures, 0777);
    text_printf(&t, "{\"categories\":[{\"id\":3,\"name\":\"cat\"},{\"id\":1,\"name\":\"red dog\"}],\"images\":[");
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.png", i);
        write_picture(name, 30 + 7 * i, 44 - 3 * i, (unsigned)i);
        text_printf(&t, "%s{\"id\":%d,\"file_name\":\"%s\",\"width\":%d,\"height\":%d}", i ? "," : "", 9 - i, name,
                    30 + 7 * i, 44 - 3 * i);
    }
    text_printf(&t, "],\"annotations\":[{\"id\":1,\"image_id\":8,\"category_id\":3,\"bbox\":[1,1,20,20]},"
                "{\"id\":2,\"image_id\":9,\"category_id\":1,\"bbox\":[4,1,20,20]}]}");
    write_text(gt, t.data);
    text_free(&t);
    return samite_model_open(&model, "formula:tiny", NULL, NULL);
}

static int clean_up(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    samite_model_free(model);
    return system(command);
}

static samite_predict_options options(const char *out)
{
    static char path[160];
    samite_predict_options o = SAMITE_PREDICT_OPTIONS_INIT;
    snprintf(path, sizeof path, "%s/%s", folder, out);
    o.gt = gt;
    o.images = pictures;
    o.out = path;
    o.iou = SAMITE_IOU_BBOX | SAMITE_IOU_SEGM;
    o.most = 5;
    return o;
}

static samite_predicted predict(const samite_predict_options *o)
{
    samite_predicted p;
    samite_error err = {0};
    int code = samite_predict(model, o, &p, &err);
    if (code)
        print_error("%s\n", err.text);
    assert_int_equal(code, SAMITE_OK);
    return p;
}

static char *contents(const char *out, const char *name)
{
    char path[200];
    uint8_t *data;
    size_t size;
    snprintf(path, sizeof path, "%s/%s/%s", folder, out, name);
    assert_int_equal(file_read(&data, &size, path, 1 << 24, NULL), SAMITE_OK);
    return (char *)data;
}

static int count(const char *s, const char *word)
{
    int n = 0;
    for (; (s = strstr(s, word)); s++)
        n++;
    return n;
}

static void whole_run_is_complete(void **state)
{
    samite_predict_options o = options("whole");
    samite_predicted p = predict(&o);
    assert_int_equal(p.images, 4);
    assert_int_equal(p.failed, 0);
    assert_true(p.complete);
    char *s = contents("whole", "predictions.json");
    assert_int_equal(count(s, "\"image_id\":6"), 5);
    assert_int_equal(count(s, "\"counts\""), 20);
    free(s);
    p = predict(&o);
    assert_int_equal(p.done_before, 4);
}

/* What is left out early because others are better would not have been kept anyway; boxes may leave the picture. */
static void best_are_kept(void **state)
{
    samite_predict_options o = options("all");
    size_t at = 0, i;
    int outside = 0;
    json_int_t image = -1;
    int kept = 0;
    json_t *one;
    o.most = 1000;
    predict(&o);
    char *s = contents("whole", "predictions.json"), *t = contents("all", "predictions.json");
    json_t *best = json_loads(s, 0, NULL), *all = json_loads(t, 0, NULL);
    assert_true(json_array_size(all) > json_array_size(best));
    json_array_foreach(all, i, one) {
        json_int_t id = json_integer_value(json_object_get(one, "image_id"));
        kept = id == image ? kept + 1 : 0;
        image = id;
        if (kept < 5)
            assert_true(json_equal(one, json_array_get(best, at++)));
        outside += json_number_value(json_array_get(json_object_get(one, "bbox"), 0)) < 0;
    }
    assert_int_equal(at, json_array_size(best));
    assert_true(outside > 0);
    json_decref(best);
    json_decref(all);
    free(s);
    free(t);
}

static void shards_give_the_same(void **state)
{
    for (int i = 3; i >= 1; i--) {
        samite_predict_options o = options("shards");
        o.shard = i;
        o.shards = 3;
        samite_predicted p = predict(&o);
        assert_int_equal(p.complete, i == 1);
    }
    char *a = contents("whole", "predictions.json"), *b = contents("shards", "predictions.json");
    assert_string_equal(a, b);
    free(a);
    free(b);
}

static int stop_after_two(void *user, const char *what, uint64_t at, uint64_t total)
{
    return strcmp(what, "image") == 0 && ++*(int *)user > 2;
}

static void stopped_run_goes_on(void **state)
{
    samite_predict_options o = options("stopped");
    samite_predicted p;
    int images = 0;
    o.each = stop_after_two;
    o.user = &images;
    assert_int_equal(samite_predict(model, &o, &p, NULL), SAMITE_CANCELLED);
    o.each = NULL;
    p = predict(&o);
    assert_int_equal(p.done_before, 2);
    assert_true(p.complete);
    char *a = contents("whole", "predictions.json"), *b = contents("stopped", "predictions.json");
    assert_string_equal(a, b);
    free(a);
    free(b);
    o.most = 4;                             /* other settings: nothing of it counts */
    p = predict(&o);
    assert_int_equal(p.done_before, 0);
}

static void fewer_images_and_prompts(void **state)
{
    const char *classes[] = {"cat"};
    samite_predict_options o = options("few");
    o.limit = 2;                            /* random.Random(4).shuffle([6, 7, 8, 9]) begins with 8, 6 */
    o.classes = classes;
    o.class_count = 1;
    o.positive_only = 1;
    samite_predicted p = predict(&o);
    assert_int_equal(p.images, 2);
    char *s = contents("few", "predictions.json"), *ids = contents("few", "images.json");
    assert_int_equal(count(s, "\"category_id\":1,"), 0);
    assert_int_equal(count(s, "\"image_id\":8"), 5);
    assert_int_equal(count(s, "\"image_id\""), 5);
    assert_string_equal(ids, "[8,\n6]\n");
    free(s);
    free(ids);
}

static void other_words_change_results(void **state)
{
    char words[160];
    samite_error err = {0};
    samite_predicted p;
    snprintf(words, sizeof words, "%s/words.txt", folder);
    write_text(words, "cat\ta small animal with whiskers\n");
    samite_predict_options o = options("words");
    o.prompts = words;
    predict(&o);
    char *a = contents("whole", "predictions.json"), *b = contents("words", "predictions.json");
    assert_string_not_equal(a, b);
    free(a);
    free(b);
    write_text(words, "{\"horse\": \"a horse\"}");
    assert_int_equal(samite_predict(model, &o, &p, &err), SAMITE_INPUT);
    assert_non_null(strstr(err.text, "horse"));
}

/* What images say themselves: only that is asked, 5 best of each, and presence goes to a file of its own. */
static void prompts_of_images_are_asked(void **state)
{
    char own[160], gone[160];
    uint8_t *data;
    size_t size;
    snprintf(own, sizeof own, "%s/own.json", folder);
    assert_int_equal(file_read(&data, &size, gt, 1 << 20, NULL), SAMITE_OK);
    char *at = strstr((char *)data, "\"id\":9,");
    text t = {0};
    text_printf(&t, "%.*s\"prompts\":[3,\"red dog\"],%s", (int)(at - (char *)data), (char *)data, at);
    write_text(own, t.data);
    samite_predict_options o = options("own");
    o.gt = own;
    predict(&o);
    char *s = contents("own", "predictions.json"), *p = contents("own", "presence.json");
    assert_int_equal(count(s, "\"image_id\":9"), 10);
    assert_int_equal(count(s, "\"image_id\":6"), 10);
    assert_int_equal(count(p, "\"presence\":0."), 8);
    free(s);
    free(p);
    text_free(&t);
    text_printf(&t, "%.*s\"prompts\":[3],%s", (int)(at - (char *)data), (char *)data, at);
    write_text(own, t.data);
    assert_int_equal(predict(&o).done_before, 0);       /* asking for less is another setting */
    s = contents("own", "predictions.json");
    assert_int_equal(count(s, "\"image_id\":9"), 5);
    free(s);
    o.all_prompts = 1;
    predict(&o);
    snprintf(gone, sizeof gone, "%s/own/presence.json", folder);
    assert_int_equal(access(gone, F_OK), -1);
    text_free(&t);
    free(data);
}

static void bad_pictures_are_left_out(void **state)
{
    char *gone = path_join(pictures, "1.png"), *kept = path_join(pictures, "kept.png");
    assert_int_equal(rename(gone, kept), 0);
    write_picture("2.png", 12, 13, 1);
    samite_predict_options o = options("bad");
    samite_predicted p = predict(&o);
    assert_int_equal(p.failed, 2);
    assert_true(p.complete);
    assert_non_null(strstr(p.failures, "1.png"));
    assert_non_null(strstr(p.failures, "12 x 13"));
    char list[200], dt[200];
    snprintf(list, sizeof list, "%s/images.json", o.out);
    snprintf(dt, sizeof dt, "%s/predictions.json", o.out);
    const char *truth = gt;
    samite_eval_options e = SAMITE_EVAL_OPTIONS_INIT;
    e.gt = &truth;
    e.gt_count = 1;
    e.dt = dt;
    e.image_list = list;
    samite_evaluation *found;
    assert_int_equal(samite_evaluate(&found, &e, NULL), SAMITE_OK);
    assert_non_null(strstr(found->json, "\"images\": 2"));
    samite_evaluation_free(found);
    assert_int_equal(rename(kept, gone), 0);
    p = predict(&o);                        /* failed pictures are tried again */
    assert_int_equal(p.done_before, 2);
    assert_int_equal(p.failed, 1);
    free(gone);
    free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_run_is_complete),     cmocka_unit_test(best_are_kept),
        cmocka_unit_test(shards_give_the_same),      cmocka_unit_test(stopped_run_goes_on),
        cmocka_unit_test(prompts_of_images_are_asked), cmocka_unit_test(fewer_images_and_prompts),  cmocka_unit_test(other_words_change_results),
        cmocka_unit_test(bad_pictures_are_left_out),
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
