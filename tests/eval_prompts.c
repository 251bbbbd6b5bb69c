/* eval_prompts.c - sets whose images say what is asked: only that takes part; presence, pooled numbers, doubles. */
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

#include "eval/evaluation.h"

#include <cmocka.h>

static char folder[] = "/tmp/samite-prompts-XXXXXX";
static char gt[64], dt[64], presence[64];

/* Image 1 asks for cat (there) and dog (not there), by id and name; image 2 only for dog (there, also a cat unasked). */
static const char truth[] =
    "{\"categories\":[{\"id\":1,\"name\":\"cat\"},{\"id\":7,\"name\":\"dog\"}],\"images\":["
    "{\"id\":1,\"width\":40,\"height\":30,\"prompts\":[1,\"dog\"]},{\"prompts\":[7],\"id\":2,\"width\":40,\"height\":30}],"
    "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[2,3,10,10],\"area\":100,\"iscrowd\":0},"
    "{\"id\":2,\"image_id\":2,\"category_id\":7,\"bbox\":[5,5,20,10],\"area\":200,\"iscrowd\":0},"
    "{\"id\":3,\"image_id\":2,\"category_id\":1,\"bbox\":[5,5,20,10],\"area\":200,\"iscrowd\":0}]}";
/* The cat twice, the wrong dog surest of all, the right one, a result that was not asked for. */
static const char results[] =
    "[{\"image_id\":1,\"category_id\":1,\"bbox\":[2,3,10,10],\"score\":0.8},"
    "{\"image_id\":1,\"category_id\":1,\"bbox\":[2,3,10,9],\"score\":0.7},"
    "{\"image_id\":1,\"category_id\":7,\"bbox\":[1,1,5,5],\"score\":0.9},"
    "{\"image_id\":2,\"category_id\":7,\"bbox\":[5,5,20,10],\"score\":0.6},"
    "{\"image_id\":2,\"category_id\":1,\"bbox\":[5,5,20,10],\"score\":0.95}]";
static const char said[] =
    "[{\"image_id\":1,\"category_id\":1,\"presence\":0.9},{\"image_id\":1,\"category_id\":7,\"presence\":0.6},"
    "{\"image_id\":2,\"category_id\":7,\"presence\":0.51},{\"image_id\":2,\"category_id\":1,\"presence\":0.1},"
    "{\"image_id\":3,\"category_id\":1,\"presence\":0.1}]";

static void write_text(const char *path, const char *s)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(s, f);
    assert_int_equal(fclose(f), 0);
}

static int set_up(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    snprintf(gt, sizeof gt, "%s/gt.json", folder);
    snprintf(dt, sizeof dt, "%s/dt.json", folder);
    snprintf(presence, sizeof presence, "%s/presence.json", folder);
    write_text(gt, truth);
    write_text(dt, results);
    write_text(presence, said);
    return 0;
}

static int clean_up(void **state)
{
    return unlink(gt) || unlink(dt) || unlink(presence) || rmdir(folder);
}

static samite_evaluation *evaluate(double nms, int all, double threshold)
{
    const char *path = gt;
    samite_eval_options o = SAMITE_EVAL_OPTIONS_INIT;
    samite_evaluation *e;
    samite_error err = {0};
    o.gt = &path;
    o.gt_count = 1;
    o.dt = dt;
    o.presence = presence;
    o.nms = nms;
    o.all_prompts = all;
    o.threshold = threshold;
    int code = samite_evaluate(&e, &o, &err);
    if (code)
        print_error("%s\n", err.text);
    assert_int_equal(code, SAMITE_OK);
    return e;
}

/* -2: not there. */
static double number(const samite_evaluation *e, const char *group, const char *name)
{
    for (int i = 0; i < e->count; i++)
        if (strcmp(e->metric[i].group, group) == 0 && strcmp(e->metric[i].name, name) == 0)
            return e->metric[i].value;
    return -2;
}

static void near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-9);
}

static void only_what_was_asked_counts(void **state)
{
    samite_evaluation *e = evaluate(0, 0, 0.5);
    near(number(e, "bbox", "AP50"), (1 + 0.5) / 2);             /* cat; dog: one wrong before the right one */
    near(number(e, "bbox/category", "7 dog"), 0.5);
    near(number(e, "bbox_nms", "AP50"), -2);
    assert_int_equal(e->notes, 3);
    samite_evaluation_free(e);
    e = evaluate(0, 1, 0.5);
    assert_true(number(e, "bbox", "AP50") > 0.7 && number(e, "bbox/pairs", "AP50") == -2);
    samite_evaluation_free(e);
}

/* Over all pairs, by score: wrong dog, cat, its double, dog. */
static void pairs_are_ranked_together(void **state)
{
    samite_evaluation *e = evaluate(0.5, 0, 0.5);
    near(number(e, "bbox/pairs", "AP50"), 0.5);
    near(number(e, "bbox_nms/pairs", "AP50"), 2.0 / 3);
    near(number(e, "bbox_nms", "AP50"), number(e, "bbox", "AP50"));
    assert_non_null(strstr(e->json, "\"nms\": 0.5"));
    samite_evaluation_free(e);
    e = evaluate(0.95, 0, 0.5);                                 /* the two cats overlap by 0.9 */
    near(number(e, "bbox_nms/pairs", "AP50"), 0.5);
    samite_evaluation_free(e);
}

static void presence_is_counted_on_asked_pairs(void **state)
{
    samite_evaluation *e = evaluate(0, 0, 0.5);
    near(number(e, "presence", "accuracy"), 2.0 / 3);
    near(number(e, "presence", "present_right"), 1);
    near(number(e, "presence", "absent_right"), 0);
    near(number(e, "presence", "present"), 2);
    samite_evaluation_free(e);
    e = evaluate(0, 0, 0.61);
    near(number(e, "presence", "present_right"), 0.5);
    near(number(e, "presence", "absent_right"), 1);
    samite_evaluation_free(e);
}

static void refuse(const char *text, const char *said_text, const char *needle)
{
    const char *path = gt;
    samite_eval_options o = SAMITE_EVAL_OPTIONS_INIT;
    samite_evaluation *e;
    samite_error err = {0};
    write_text(gt, text);
    write_text(presence, said_text);
    o.gt = &path;
    o.gt_count = 1;
    o.dt = dt;
    o.presence = presence;
    assert_int_equal(samite_evaluate(&e, &o, &err), SAMITE_INPUT);
    if (!strstr(err.text, needle))
        print_error("\"%s\" does not say \"%s\"\n", err.text, needle);
    assert_non_null(strstr(err.text, needle));
    write_text(gt, truth);
    write_text(presence, said);
}

static void bad_files_are_refused(void **state)
{
    char unknown[sizeof truth];
    memcpy(unknown, truth, sizeof truth);
    memcpy(strstr(unknown, "\"dog\"]"), "\"cow\"]", 6);
    refuse(unknown, said, "\"cow\", which is no category");
    refuse(truth, "{}", "expected a JSON list");
    refuse(truth, "[{\"image_id\":1,\"category_id\":1}]", "entry 1 has no number");
    refuse(truth, "[1", "line 1");
}

/* Odd lists: empty, nested, repeated; two of a key. */
static void lists_are_read_as_they_come(void **state)
{
    static const char *const lists[] = {"[]", "[[1],7,{\"a\":1}]", "[7,7]", "[1],\"prompts\":[7]", "7"};
    static const int asked[][2] = {{0, 0}, {0, 1}, {0, 1}, {0, 1}, {1, 1}};
    for (int i = 0; i < 5; i++) {
        char text[512];
        eval_set s;
        snprintf(text, sizeof text, "{\"categories\":[{\"id\":1,\"name\":\"cat\"},{\"id\":7,\"name\":\"dog\"}],\"images\":"
                 "[{\"id\":1,\"prompts\":%s}],\"annotations\":[]}", lists[i]);
        assert_int_equal(eval_set_parse(&s, text, strlen(text), "gt", false, NULL), SAMITE_OK);
        for (int32_t c = 0; c < 2; c++)
            assert_int_equal(eval_asked(&s, 0, c), asked[i][c]);
        eval_set_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_was_asked_counts), cmocka_unit_test(pairs_are_ranked_together),
        cmocka_unit_test(presence_is_counted_on_asked_pairs), cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(lists_are_read_as_they_come),
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
