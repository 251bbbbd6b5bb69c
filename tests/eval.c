/* eval.c - evaluation against the numbers of pycocotools, the SA-Co evaluator and TrackEval; odd and bad files. */
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

#include "base/file.h"
#include "base/assign.h"
#include "eval/coco.h"
#include "eval/evaluation.h"
#include "eval/json_stream.h"
#include "eval/python_random.h"
#include "eval/video.h"

#include <cmocka.h>

#define GOLDEN TEST_DATA "/eval/"

static json_t *golden(const char *name)
{
    json_error_t e;
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s", name);
    json_t *o = json_load_file(path, 0, &e);
    if (!o)
        print_error("%s: %s\n", path, e.text);
    assert_non_null(o);
    return o;
}

static findings evaluate(const samite_eval_options *o)
{
    findings f = {0};
    samite_error err = {0};
    int code = evaluate_files(&f, o, &err);
    if (code)
        print_error("%s\n", err.text);
    assert_int_equal(code, SAMITE_OK);
    return f;
}

/* Every double of `want` stands at the same place in `have`; in arrays only every `step`-th of `have` does. */
static void assert_doubles(const json_t *have, const json_t *want, size_t step)
{
    size_t i;
    json_t *v;
    assert_int_equal((json_array_size(have) + step - 1) / step, json_array_size(want));
    json_array_foreach(want, i, v)
        assert_true(json_number_value(json_array_get(have, i * step)) == json_number_value(v));
}

static void assert_same_numbers(const json_t *have, json_t *want, double tolerance)
{
    const char *key;
    json_t *v;
    assert_non_null(have);
    json_object_foreach(want, key, v) {
        double a = json_number_value(json_object_get(have, key)), b = json_number_value(v);
        if (!json_object_get(have, key) || !(fabs(a - b) <= tolerance))
            print_error("%s: %.17g, expected %.17g\n", key, a, b);
        assert_non_null(json_object_get(have, key));
        assert_true(fabs(a - b) <= tolerance);
    }
}

/* ---- the originals' numbers ---- */

static void equals_pycocotools(void **state)
{
    const char *gt = GOLDEN "gt.json";
    samite_eval_options o = SAMITE_EVAL_OPTIONS_INIT;
    o.gt = &gt;
    o.gt_count = 1;
    o.dt = GOLDEN "dt.json";
    o.iou = SAMITE_IOU_BBOX | SAMITE_IOU_SEGM;
    o.arrays = 1;
    findings f = evaluate(&o);
    json_t *want = golden("expected.json");
    const char *const kinds[] = {"bbox", "segm"};
    for (int i = 0; i < 2; i++) {
        json_t *have = json_object_get(f.json, kinds[i]), *w = json_object_get(want, kinds[i]);
        assert_doubles(json_object_get(have, "stats"), json_object_get(w, "stats"), 1);
        assert_doubles(json_object_get(have, "precision"), json_object_get(w, "precision_every97"), 97);
        assert_doubles(json_object_get(have, "recall"), json_object_get(w, "recall_every7"), 7);
        assert_doubles(json_object_get(have, "scores"), json_object_get(w, "scores_every97"), 97);
        assert_same_numbers(json_object_get(have, "per_category_AP"), json_object_get(w, "per_category_AP"), 0);
    }
    json_decref(want);
    findings_free(&f);
}

static void empty_results_give_zeros(void **state)
{
    const char *gt = GOLDEN "gt.json";
    samite_eval_options o = SAMITE_EVAL_OPTIONS_INIT;
    o.gt = &gt;
    o.gt_count = 1;
    o.dt = GOLDEN "empty_dt.json";
    o.iou = SAMITE_IOU_BBOX | SAMITE_IOU_SEGM;
    findings f = evaluate(&o);
    for (size_t i = 0; i < COCO_STATS; i++)
        assert_true(json_number_value(json_array_get(json_object_get(json_object_get(f.json, "segm"), "stats"), i)) ==
                    0);
    assert_true(f.notes >= 1);
    findings_free(&f);
}

static void equals_official_phrases(void **state)
{
    const char *one[] = {GOLDEN "phrases_gt.json"}, *two[] = {GOLDEN "oracle_gt1.json", GOLDEN "oracle_gt2.json"};
    json_t *want = golden("expected.json"), *more = golden("more_expected.json");
    samite_eval_options o = SAMITE_EVAL_OPTIONS_INIT;
    o.kind = SAMITE_EVAL_CGF1;
    o.iou = SAMITE_IOU_BBOX | SAMITE_IOU_SEGM;
    o.gt = one;
    o.gt_count = 1;
    o.dt = GOLDEN "phrases_dt.json";
    findings f = evaluate(&o);
    assert_same_numbers(json_object_get(f.json, "cgf1_bbox"), json_object_get(want, "cgf1_bbox"), 0);
    assert_same_numbers(json_object_get(f.json, "cgf1_segm"), json_object_get(want, "cgf1_segm"), 0);
    findings_free(&f);
    o.gt = two;
    o.gt_count = 2;
    o.dt = GOLDEN "oracle_dt.json";
    f = evaluate(&o);
    json_t *oracle = json_object_get(more, "oracle");
    assert_same_numbers(json_object_get(f.json, "cgf1_bbox"), json_object_get(oracle, "cgf1_bbox"), 0);
    assert_same_numbers(json_object_get(f.json, "cgf1_segm"), json_object_get(oracle, "cgf1_segm"), 0);
    findings_free(&f);
    json_decref(want);
    json_decref(more);
}

static void equals_trackeval(void **state)
{
    const char *gt = GOLDEN "video_gt.json";
    json_t *more = golden("more_expected.json");
    samite_eval_options o = SAMITE_EVAL_OPTIONS_INIT;
    o.kind = SAMITE_EVAL_VIDEO;
    o.gt = &gt;
    o.gt_count = 1;
    o.dt = GOLDEN "video_dt.json";
    findings f = evaluate(&o);
    assert_same_numbers(json_object_get(f.json, "video"), json_object_get(more, "video"), 1e-12);
    findings_free(&f);
    json_decref(more);
}

/* ---- files made here ---- */

static const char objects[] =
    "{\"images\":[{\"id\":1,\"width\":40,\"height\":30},{\"id\":2,\"width\":40,\"height\":30}],"
    "\"categories\":[{\"id\":1,\"name\":\"cat\"},{\"id\":7,\"name\":\"dog\"}],"
    "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[2,3,10,10],\"area\":100,\"iscrowd\":0},"
    "{\"id\":2,\"image_id\":2,\"category_id\":7,\"bbox\":[5,5,20,10],\"area\":200,\"iscrowd\":0}]}";
static const char found[] =
    "[{\"image_id\":1,\"category_id\":1,\"bbox\":[2,3,10,10],\"score\":0.9},"
    "{\"image_id\":2,\"category_id\":7,\"bbox\":[5,5,20,10],\"score\":0.8}]";

/* Replaces the first `from` in `s`; the result is freed by the next call but three. */
static char *with(const char *s, const char *from, const char *to)
{
    static char *kept[4];
    static int turn;
    const char *at = strstr(s, from);
    assert_non_null(at);
    char *out = malloc(strlen(s) + strlen(to) + 1);
    sprintf(out, "%.*s%s%s", (int)(at - s), s, to, at + strlen(from));
    turn = (turn + 1) % 4;
    free(kept[turn]);
    return kept[turn] = out;
}

static coco_result run(const char *gt, const char *dt, bool masks, const coco_options *options)
{
    eval_set g, d;
    samite_error err = {0};
    coco_result r = {0};
    coco_options o = options ? *options : (coco_options){0};
    o.masks = masks;
    int code = eval_set_parse(&g, gt, strlen(gt), "gt", masks, &err);
    if (!code)
        code = eval_results_parse(&d, &g, dt, strlen(dt), "dt", masks, false, &err);
    if (!code)
        code = coco_evaluate(&r, &g, &d, &o, &err);
    if (code)
        print_error("%s\n", err.text);
    assert_int_equal(code, SAMITE_OK);
    eval_set_free(&d);
    eval_set_free(&g);
    return r;
}

static double ap(const char *gt, const char *dt, bool masks, const coco_options *o)
{
    coco_result r = run(gt, dt, masks, o);
    double v = r.stats[0];
    coco_result_free(&r);
    return v;
}

/* Reading has to fail with `needle` in the message. */
static void refused(const char *gt, const char *dt, bool masks, const char *needle)
{
    eval_set g, d = {0};
    samite_error err = {0};
    int code = eval_set_parse(&g, gt, strlen(gt), "gt.json", masks, &err);
    if (!code)
        code = eval_results_parse(&d, &g, dt, strlen(dt), "dt.json", masks, false, &err);
    eval_set_free(&d);
    eval_set_free(&g);
    assert_int_equal(code, SAMITE_INPUT);
    if (!strstr(err.text, needle))
        print_error("\"%s\" does not say \"%s\"\n", err.text, needle);
    assert_non_null(strstr(err.text, needle));
}

static void perfect_results_are_perfect(void **state)
{
    coco_result r = run(objects, found, false, NULL);
    assert_true(r.stats[0] > 0.9999 && r.stats[8] == 1 && r.categories == 2 && r.images == 2);
    coco_result_free(&r);
}

static void id_zero_counts_unless_asked(void **state)
{
    const char *gt = with(objects, "{\"id\":1,\"image_id\":1", "{\"id\":0,\"image_id\":1");
    coco_options compat = {.compat = true};
    assert_true(ap(gt, found, false, NULL) > 0.9999);
    assert_true(ap(gt, found, false, &compat) < 0.51);
}

static void ids_of_all_kinds_match(void **state)
{
    const char *numbers[] = {"1.0", "\"1\"", "1e0"};
    for (int i = 0; i < 3; i++) {
        char to[64];
        snprintf(to, sizeof to, "[{\"image_id\":%s", numbers[i]);
        assert_true(ap(objects, with(found, "[{\"image_id\":1", to), false, NULL) > 0.9999);
    }
    const char *gt = with(with(objects, "{\"id\":1,\"width\"", "{\"id\":\"a/b\",\"width\""), "\"image_id\":1",
                          "\"image_id\":\"a/b\"");
    assert_true(ap(gt, with(found, "\"image_id\":1", "\"image_id\":\"a\\/b\""), false, NULL) > 0.9999);
    refused(objects, with(found, "\"image_id\":1", "\"image_id\":\"one\""), false, "image id one");
    refused(objects, with(found, "\"image_id\":1", "\"image_id\":1.5"), false, "image id 1.5");
}

static void missing_keys_are_filled_or_named(void **state)
{
    assert_true(ap(with(objects, ",\"area\":100,\"iscrowd\":0", ""), found, false, NULL) > 0.9999);
    assert_true(ap(with(objects, "\"categories\":[{\"id\":1,\"name\":\"cat\"},{\"id\":7,\"name\":\"dog\"}],", ""),
                   found, false, NULL) > 0.9999);
    refused(with(objects, "\"images\"", "\"pictures\""), found, false, "\"images\"");
    refused(with(objects, "\"image_id\":1,", ""), found, false, "image_id");
    refused(with(objects, "\"bbox\":[2,3,10,10],", ""), found, false, "bbox");
    refused(objects, found, true, "segmentation");
    refused(objects, with(found, ",\"score\":0.8", ""), false, "result number 2 has no score");
    refused(objects, with(found, "\"score\":0.8", "\"score\":1e999"), false, "score");
    refused(objects, with(found, ",\"bbox\":[5,5,20,10]", ""), false, "bbox");
    refused(objects, with(found, "[5,5,20,10]", "[5,5,20]"), false, "4 numbers");
    refused(objects, "{}", false, "no results");
    refused(objects, "[1,2]", false, "list of objects");
    refused(found, found, false, "--dt");
}

static void broken_json_is_located(void **state)
{
    refused("{\n \"images\": [}\n", found, false, "line 2, column 13");
    refused(objects, with(found, "0.8", "NaN"), false, "NaN");
    refused(objects, "[{\"image_id\":1,", false, "ends too early");
    refused("", found, false, "empty");
    refused(objects, "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", false, "deep");
}

static void coco_files_match_by_name(void **state)
{
    const char *gt = with(with(objects, "{\"id\":1,\"width\"", "{\"id\":1,\"file_name\":\"val/a.jpg\",\"width\""),
                          "{\"id\":2,\"width\"", "{\"id\":2,\"file_name\":\"val/b.jpg\",\"width\"");
    const char *dt = "{\"annotations\":[{\"image_id\":1,\"category_id\":1,\"bbox\":[5,5,20,10],\"score\":0.8},"
                     "{\"image_id\":2,\"category_id\":2,\"bbox\":[2,3,10,10],\"score\":0.9}],"
                     "\"images\":[{\"id\":1,\"file_name\":\"b.jpg\"},{\"id\":2,\"file_name\":\"a.jpg\"}],"
                     "\"categories\":[{\"id\":1,\"name\":\"dog\"},{\"id\":2,\"name\":\"cat\"}]}";
    assert_true(ap(gt, dt, false, NULL) > 0.9999);
    refused(gt, with(dt, "\"a.jpg\"", "\"c.jpg\""), false, "image id 2");
    const char *plain = with(with(dt, ",\"file_name\":\"b.jpg\"", ""), ",\"file_name\":\"a.jpg\"", "");
    assert_true(ap(gt, plain, false, NULL) < 0.01);     /* without names, ids decide */
}

/* ---- masks ---- */

static const char square[] = "[[2,3,12,3,12,13,2,13]]";

static char *masked(const char *shape)
{
    char one[600], two[600];
    snprintf(one, sizeof one, "\"segmentation\":%s,\"bbox\":[2,3,10,10]", shape);
    snprintf(two, sizeof two, "\"segmentation\":[[5,5,25,5,25,15,5,15]],\"bbox\":[5,5,20,10]");
    return with(with(objects, "\"bbox\":[2,3,10,10]", one), "\"bbox\":[5,5,20,10]", two);
}

static void kinds_of_masks_are_equal(void **state)
{
    rle r;
    char *packed_text, list[400], packed[400];
    double xy[] = {2, 3, 12, 3, 12, 13, 2, 13};
    assert_int_equal(rle_from_polygon(&r, xy, 4, 40, 30, NULL), SAMITE_OK);
    assert_int_equal(rle_to_string(&packed_text, &r, NULL), SAMITE_OK);
    int n = snprintf(list, sizeof list, "{\"size\":[30,40],\"counts\":[");
    for (size_t i = 0; i < r.runs; i++)
        n += snprintf(list + n, sizeof list - (size_t)n, "%s%u", i ? "," : "", r.counts[i]);
    snprintf(list + n, sizeof list - (size_t)n, "]}");
    snprintf(packed, sizeof packed, "{\"counts\":\"%s\",\"size\":[30,40]}", packed_text);
    const char *shapes[] = {square, list, packed};
    double first = 0;
    for (int i = 0; i < 3; i++) {
        char *gt = masked(shapes[i]);
        for (int k = 0; k < 3; k++) {
            char dt[900];
            snprintf(dt, sizeof dt, "[{\"image_id\":1,\"category_id\":1,\"score\":1,\"segmentation\":%s}]", shapes[k]);
            double v = ap(gt, dt, true, NULL);
            first = i + k ? first : v;
            assert_true(v == first && v > 0.49);
        }
    }
    rle_free(&r);
    free(packed_text);
}

static void bad_masks_are_named(void **state)
{
    refused(masked("[[2,3,12,3]]"), found, true, "annotation 1 (image 1): polygon 1 has 2 points");
    refused(masked("[[2,3,12,3,12,13,2]]"), found, true, "7 numbers");
    refused(masked("[2,3,12,3,12,13]"), found, true, "list of polygons");
    refused(masked("[]"), found, true, "empty");
    refused(masked("[[2,3,12,3,12,1e999]]"), found, true, "far outside");
    refused(masked("{\"size\":[40,30],\"counts\":[1200]}"), found, true, "30 x 40 pixels");
    refused(masked("{\"size\":[30,40],\"counts\":[1199]}"), found, true, "add up");
    refused(masked("{\"size\":[30,40],\"counts\":[-1,1201]}"), found, true, "run length 1");
    refused(masked("{\"size\":[30,40],\"counts\":\"zz\"}"), found, true, "damaged");
    refused(masked("{\"counts\":\"zz\"}"), found, true, "size");
    refused(masked("{\"size\":[30,40],\"counts\":\"P1\",\"counts\":[9]}"), found, true, "add up");
}

static void annotations_may_come_first(void **state)
{
    const char *tail = strstr(objects, "\"annotations\"");
    char *turned = malloc(sizeof objects + 8);
    snprintf(turned, sizeof objects + 8, "{%.*s,%.*s}", (int)strlen(tail) - 1, tail, (int)(tail - objects) - 2,
             objects + 1);
    assert_true(ap(turned, found, false, NULL) > 0.9999);
    free(turned);
}

static void only_a_hundred_count(void **state)
{
    text t = {0};
    for (int i = 0; i < 150; i++)
        text_printf(&t, "%s{\"image_id\":1,\"category_id\":1,\"bbox\":[20,20,5,5],\"score\":%g}", i ? "," : "[",
                    1 - i * 0.001);
    text_printf(&t, ",{\"image_id\":1,\"category_id\":1,\"bbox\":[2,3,10,10],\"score\":0.1}]");
    coco_result r = run(objects, t.data, false, &(coco_options){.keep_matches = true});
    assert_true(r.category_ap[0] == 0);
    assert_int_equal(r.result_match[150], MATCH_OUT);
    assert_int_equal(r.result_match[0], MATCH_NONE);
    assert_int_equal(r.truth_match[0], MATCH_NONE);
    coco_result_free(&r);
    text_free(&t);
}

static void parts_can_be_chosen(void **state)
{
    uint8_t images[] = {1, 0}, categories[] = {0, 1};
    coco_result r = run(objects, found, false, &(coco_options){.images = images});
    assert_true(r.images == 1 && r.category_ap[1] == -1 && r.category_ap[0] > 0.99);
    coco_result_free(&r);
    r = run(objects, found, false, &(coco_options){.categories = categories});
    assert_true(r.categories == 1 && r.category_ap[0] > 0.99 && r.category[0] == 1);
    coco_result_free(&r);
    const char *more = with(found, "[{", "[{\"image_id\":2,\"category_id\":1,\"bbox\":[0,0,9,9],\"score\":1},{");
    assert_true(ap(objects, more, false, NULL) < 0.8);
    assert_true(ap(objects, more, false, &(coco_options){.positive_only = true}) > 0.99);
}

/* ---- pieces ---- */

static void shuffles_as_python(void **state)
{
    int32_t v[100];
    static const int32_t want[] = {57, 76, 27, 11, 17, 34, 83, 89};
    for (int32_t i = 0; i < 100; i++)
        v[i] = i;
    python_shuffle(v, 100, 100);
    assert_memory_equal(v, want, sizeof want);
}

static void reads_numbers_exactly(void **state)
{
    static const char *const numbers[] = {"0",
                                          "-0.0",
                                          "1",
                                          "123.456",
                                          "0.1",
                                          "1e-5",
                                          "9007199254740993",
                                          "1.7976931348623157e308",
                                          "0.30000000000000004",
                                          "-12345678901234567890",
                                          "4.9e-324",
                                          "0.000001234567"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_true(real_from_json(numbers[i], strlen(numbers[i])) == strtod(numbers[i], NULL));
}

static double best_sum(const double *cost, int rows, int columns, int row, unsigned used)
{
    double best = INFINITY;
    int left = columns - __builtin_popcount(used);
    if (row == rows)
        return 0;
    if (rows - row > left)
        best = best_sum(cost, rows, columns, row + 1, used);
    for (int j = 0; j < columns; j++)
        if (!(used >> j & 1))
            best = fmin(best, cost[row * columns + j] + best_sum(cost, rows, columns, row + 1, used | 1u << j));
    return best;
}

static void assigns_best(void **state)
{
    uint32_t seed = 1;
    for (int trial = 0; trial < 300; trial++) {
        int rows = 1 + trial % 5, columns = 1 + trial / 5 % 5;
        double cost[25], sum = 0;
        int32_t to[5];
        for (int i = 0; i < rows * columns; i++)
            cost[i] = (double)((seed = seed * 1664525u + 1013904223u) >> 24) / (trial % 3 ? 1 : 40) - 100;
        assert_int_equal(assign_least(to, cost, rows, columns, NULL), SAMITE_OK);
        for (int i = 0; i < rows; i++)
            sum += to[i] >= 0 ? cost[i * columns + to[i]] : 0;
        assert_true(fabs(sum - best_sum(cost, rows, columns, 0, 0)) < 1e-9);
    }
}

static void borders_agree(void **state)
{
    uint8_t a[200 * 150] = {0}, b[200 * 150] = {0};
    double f;
    for (int y = 40; y < 90; y++)
        for (int x = 30; x < 100; x++) {
            a[y * 200 + x] = 1;
            b[(y + 2) * 200 + x] = 1;
        }
    assert_int_equal(border_f(&f, a, a, 200, 150, NULL), SAMITE_OK);
    assert_true(f == 1);
    assert_int_equal(border_f(&f, a, b, 200, 150, NULL), SAMITE_OK);
    assert_true(f == 1);                    /* within 0.8 % of the diagonal */
    memset(b, 0, sizeof b);
    assert_int_equal(border_f(&f, a, b, 200, 150, NULL), SAMITE_OK);
    assert_true(f == 0);
    assert_int_equal(border_f(&f, b, b, 200, 150, NULL), SAMITE_OK);
    assert_true(f == 1);
}

/* ---- the report ---- */

static char *read_all(const char *folder, const char *name, size_t *size)
{
    char *path = path_join(folder, name);
    uint8_t *data;
    assert_int_equal(file_read(&data, size, path, 1 << 24, NULL), SAMITE_OK);
    unlink(path);
    free(path);
    return (char *)data;
}

static void report_is_complete(void **state)
{
    char folder[] = "/tmp/samite-report-XXXXXX";
    const char *gt = GOLDEN "gt.json";
    size_t size;
    assert_non_null(mkdtemp(folder));
    samite_eval_options o = SAMITE_EVAL_OPTIONS_INIT;
    o.gt = &gt;
    o.gt_count = 1;
    o.dt = GOLDEN "dt.json";
    o.iou = SAMITE_IOU_SEGM;
    o.report = folder;
    findings f = evaluate(&o);
    char *page = read_all(folder, "report.html", &size), *csv = read_all(folder, "metrics.csv", &size);
    assert_non_null(strstr(page, "</html>"));
    assert_non_null(strstr(page, "data:image/jpeg;base64,"));
    assert_non_null(strstr(page, "<polyline"));
    assert_non_null(strstr(page, "0.1338"));        /* AP */
    assert_null(strstr(page, "http"));
    assert_non_null(strstr(csv, "\"segm\",\"AP\",0.13379196135591"));
    free(page);
    free(csv);
    page = read_all(folder, "metrics.json", &size);
    json_t *j = json_loads(page, 0, NULL);
    assert_non_null(json_object_get(j, "segm"));
    json_decref(j);
    free(page);
    findings_free(&f);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_pycocotools), cmocka_unit_test(empty_results_give_zeros),
        cmocka_unit_test(equals_official_phrases), cmocka_unit_test(equals_trackeval),
        cmocka_unit_test(perfect_results_are_perfect), cmocka_unit_test(id_zero_counts_unless_asked),
        cmocka_unit_test(ids_of_all_kinds_match), cmocka_unit_test(missing_keys_are_filled_or_named),
        cmocka_unit_test(broken_json_is_located),
        cmocka_unit_test(coco_files_match_by_name), cmocka_unit_test(kinds_of_masks_are_equal),
        cmocka_unit_test(bad_masks_are_named), cmocka_unit_test(annotations_may_come_first),
        cmocka_unit_test(only_a_hundred_count), cmocka_unit_test(parts_can_be_chosen),
        cmocka_unit_test(shuffles_as_python), cmocka_unit_test(reads_numbers_exactly),
        cmocka_unit_test(assigns_best), cmocka_unit_test(borders_agree), cmocka_unit_test(report_is_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
