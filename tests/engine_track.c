/* engine_track.c - evaluation, clicks and video through exported parts: the same answers as our own network's in every
 * engine that is there, and what is said when a part is missing. */
#include "export_help.h"

#include <math.h>

#define SIDE 96

static char whole[64];           /* all parts of formula:tiny, with any number of points */

static int prepare(void **state)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = open_model("formula:tiny", NULL);
    make_folder(whole);
    o.folder = whole;
    o.parts = SAMITE_PARTS_DETECTOR | SAMITE_PARTS_CLICK | SAMITE_PARTS_MEMORY;
    o.points = -1;
    if (samite_export_onnx(m, &o, &e))
        fail_msg("%s", e.text);
    samite_model_free(m);
    return 0;
}

/* A square that moves over a gradient. */
static void draw(samite_pixels *p, int frame)
{
    p->width = p->height = SIDE;
    p->rgb = malloc(3 * SIDE * SIDE);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            bool inside = x >= 20 + 6 * frame && x < 50 + 6 * frame && y >= 30 && y < 60;
            memcpy(p->rgb + 3 * (y * SIDE + x), (uint8_t[]){inside ? 230 : (uint8_t)(2 * x), (uint8_t)y, 60}, 3);
        }
}

/* Presence and area of every object of every frame, one after the other. */
typedef struct track { int count; double presence[256]; uint64_t area[256]; } track;

static void add_results(track *t, samite_video_results *r)
{
    for (int i = 0; r && i < r->count; i++)
        for (int k = 0; k < r->frame[i].count && t->count < 256; k++) {
            t->presence[t->count] = (double)r->frame[i].object[k].presence;
            t->area[t->count++] = r->frame[i].object[k].area;
        }
    samite_video_results_free(r);
}

static track follow(samite_model *m, bool by_click)
{
    samite_video_options o = SAMITE_VIDEO_OPTIONS_INIT;
    samite_error e = {0};
    samite_video *v;
    samite_video_results *r = NULL;
    track t = {0};
    o.score = o.new_score = 0.001f;
    o.max_objects = 3;
    o.delay = 0;
    if (samite_video_open(&v, m, &o, &e))
        fail_msg("%s", e.text);
    samite_prompt prompt = SAMITE_PROMPT_INIT;
    prompt.text = "car";
    if (!by_click && samite_video_prompt(v, &prompt, -1, &e))
        fail_msg("%s", e.text);
    for (int f = 0; f < 4; f++) {
        samite_pixels p = {0};
        draw(&p, f);
        if (samite_video_push(v, &p, f, f, &r, &e))
            fail_msg("%s", e.text);
        add_results(&t, r);
        if (by_click && f == 0) {
            samite_click c = SAMITE_CLICK_INIT;
            samite_point at = {35, 45, 0};
            samite_box box = {20, 30, 50, 60, 0};
            int64_t object = -1;
            c.points = &at;
            c.point_count = 1;
            c.box = &box;
            if (samite_video_click(v, &object, &c, &r, &e))
                fail_msg("%s", e.text);
            add_results(&t, r);
        }
        samite_pixels_free(&p);
    }
    if (samite_video_flush(v, &r, &e))
        fail_msg("%s", e.text);
    add_results(&t, r);
    samite_video_free(v);
    return t;
}

static void follow_in(const char *engine)
{
    samite_model *a = open_model("formula:tiny", NULL), *b = open_model(whole, engine);
    for (int by_click = 0; by_click < 2; by_click++) {
        track x = follow(a, by_click), y = follow(b, by_click);
        assert_true(x.count > 2);
        assert_int_equal(x.count, y.count);
        for (int i = 0; i < x.count; i++) {
            assert_true(fabs(x.presence[i] - y.presence[i]) < 1e-3);
            assert_true(llabs((long long)x.area[i] - (long long)y.area[i]) <= 20);
        }
    }
    samite_model_free(a);
    samite_model_free(b);
}

static void videos_come_out_the_same(void **state)
{
    int done = 0;
    for (int i = 0; i < RUNTIMES; i++)
        if (have_engine(runtimes[i]) && ++done)
            follow_in(runtimes[i]);
    if (!done)
        skip();
}

static samite_answer *click(samite_model *m, const float *logits)
{
    samite_error e = {0};
    samite_pixels p = {0};
    samite_image *im;
    samite_answer *a = NULL;
    samite_click c = SAMITE_CLICK_INIT;
    samite_point at = {35, 45, 0};
    draw(&p, 0);
    c.points = &at;
    c.point_count = 1;
    c.logits = logits;
    if (samite_image_open(&im, m, &p, &e) || samite_image_click(im, &c, &a, &e))
        fail_msg("%s", e.text);
    samite_pixels_free(&p);
    samite_image_free(im);
    return a;
}

static void click_in(const char *engine)
{
    samite_model *m = open_model("formula:tiny", NULL), *n = open_model(whole, engine);
    samite_answer *a = click(m, NULL), *b = click(n, NULL), *c = click(m, a->logits), *d = click(n, a->logits);
    assert_float_equal(a->instance[0].score, b->instance[0].score, 1e-4);
    assert_float_equal(a->presence, b->presence, 1e-4);
    assert_float_equal(c->instance[0].score, d->instance[0].score, 1e-4);
    for (int i = 0; i < a->side * a->side; i++)
        assert_float_equal(a->logits[i], b->logits[i], 1e-3);
    samite_answer_free(a);
    samite_answer_free(b);
    samite_answer_free(c);
    samite_answer_free(d);
    samite_model_free(m);
    samite_model_free(n);
}

static void clicks_come_out_the_same(void **state)
{
    int done = 0;
    for (int i = 0; i < RUNTIMES; i++)
        if (have_engine(runtimes[i]) && ++done)
            click_in(runtimes[i]);
    if (!done)
        skip();
}

/* Results of a picture with two words, as evaluation reads them. */
static json_t *predictions(samite_model *m, const char *where, const char *name)
{
    samite_predict_options o = SAMITE_PREDICT_OPTIONS_INIT;
    samite_predicted done;
    samite_error e = {0};
    o.gt = path_of(where, "gt.json");
    o.images = where;
    o.out = path_of(where, name);
    if (samite_predict(m, &o, &done, &e))
        fail_msg("%s", e.text);
    json_t *all = json_load_file(path_of(o.out, "predictions.json"), 0, NULL);
    assert_non_null(all);
    return all;
}

static void compare_predictions(const json_t *a, const json_t *b)
{
    static const char *const exact[] = {"image_id", "category_id"};
    assert_true(json_array_size(a) > 10);
    assert_int_equal(json_array_size(a), json_array_size(b));
    for (size_t i = 0; i < json_array_size(a); i++) {
        const json_t *x = json_array_get(a, i), *y = json_array_get(b, i);
        for (int k = 0; k < 2; k++)
            assert_int_equal(json_integer_value(json_object_get(x, exact[k])),
                             json_integer_value(json_object_get(y, exact[k])));
        assert_true(fabs(json_number_value(json_object_get(x, "score")) -
                         json_number_value(json_object_get(y, "score"))) < 2.5e-5);
        for (size_t k = 0; k < 4; k++)
            assert_true(fabs(json_number_value(json_array_get(json_object_get(x, "bbox"), k)) -
                             json_number_value(json_array_get(json_object_get(y, "bbox"), k))) < 0.01);
    }
}

static void evaluations_come_out_the_same(void **state)
{
    static const char gt[] = "{\"images\":[{\"id\":1,\"file_name\":\"scene.png\",\"width\":%d,\"height\":%d}],"
        "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[4,4,20,20],\"area\":400,\"iscrowd\":0}],"
        "\"categories\":[{\"id\":1,\"name\":\"red car\"},{\"id\":2,\"name\":\"dog\"}]}";
    samite_pixels p;
    char where[64];
    make_folder(where);
    copy_file(path_of(where, "scene.png"), TINY "/scene.png", SIZE_MAX);
    assert_int_equal(samite_pixels_read(&p, TINY "/scene.png", 0, NULL), 0);
    FILE *f = fopen(path_of(where, "gt.json"), "w");
    fprintf(f, gt, (int)p.width, (int)p.height);
    fclose(f);
    samite_pixels_free(&p);
    samite_model *m = open_model("formula:tiny", NULL);
    json_t *ours = predictions(m, where, "native");
    int done = 0;
    for (int i = 0; i < RUNTIMES; i++) {
        if (!have_engine(runtimes[i]))
            continue;
        done++;
        samite_model *n = open_model(whole, runtimes[i]);
        json_t *theirs = predictions(n, where, runtimes[i]);
        compare_predictions(ours, theirs);
        json_decref(theirs);
        samite_model_free(n);
    }
    json_decref(ours);
    samite_model_free(m);
    if (!done)
        skip();
}

/* What is missing is named, with the command that makes it. */
static void missing_parts_are_named(void **state)
{
    static const char *const needed[] = {"memory_attention.onnx", "tracked_head.onnx", "interactive_head.onnx"};
    samite_video_options o = SAMITE_VIDEO_OPTIONS_INIT;
    samite_error e = {0};
    samite_video *v;
    char some[64];
    if (!have_runtime())
        skip();
    export_to(some, "formula:tiny", 0);
    samite_model *m = open_model(some, "onnxruntime");
    assert_int_equal(samite_video_open(&v, m, &o, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "trunk_features"));
    assert_non_null(strstr(e.text, "samite export onnx"));
    samite_model_free(m);
    m = open_model(whole, "onnxruntime");
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        char kept[256];
        strcpy(kept, path_of(whole, "kept"));
        assert_int_equal(rename(path_of(whole, needed[i]), kept), 0);
        assert_int_equal(samite_video_open(&v, m, &o, &e), SAMITE_INPUT);
        assert_non_null(strstr(e.text, needed[i]));
        copy_file(path_of(whole, needed[i]), path_of(whole, "mask_prompt.onnx"), SIZE_MAX);
        assert_int_equal(samite_video_open(&v, m, &o, &e), SAMITE_INPUT);
        assert_non_null(strstr(e.text, "other inputs"));
        assert_int_equal(rename(kept, path_of(whole, needed[i])), 0);
    }
    samite_model_free(m);
}

/* samite align on parts: every output and the scores, made-up inputs or given ones. */
static void outputs_are_aligned(void **state)
{
    samite_error e = {0};
    samite_align_summary sum;
    char other_parts[64];
    if (!have_runtime())
        skip();
    samite_model *a = open_model("formula:tiny", NULL), *b = open_model(whole, "onnxruntime");
    samite_align_options o = {.size = sizeof o, .against = b};
    assert_int_equal(samite_align(a, &o, &sum, &e), 0);
    assert_int_equal(sum.compared, 8 + 2 + 4 + 1 + 3 + 4 + 4 + 1 + 4 + 3);
    o.image = TINY "/scene.png";
    o.text = "red car";
    assert_int_equal(samite_align(a, &o, &sum, &e), 0);
    samite_model_free(b);
    export_to(other_parts, "formula:tiny,seed=5", 0);
    o.against = b = open_model(other_parts, "onnxruntime");
    assert_int_equal(samite_align(a, &o, &sum, &e), SAMITE_FAILED);
    assert_int_equal(sum.compared, 7 + 2 + 4 + 1);
    samite_model_free(a);
    samite_model_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluations_come_out_the_same),
        cmocka_unit_test(videos_come_out_the_same),
        cmocka_unit_test(clicks_come_out_the_same),
        cmocka_unit_test(missing_parts_are_named),
        cmocka_unit_test(outputs_are_aligned),
    };
    return cmocka_run_group_tests(tests, prepare, tear_down);
}
