/* engine_track.c - clicks and video through exported parts: the same answers as our own network's, and what is said when a
 * part is missing. */
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

static void videos_come_out_the_same(void **state)
{
    if (!have_runtime())
        skip();
    samite_model *a = open_model("formula:tiny", NULL), *b = open_model(whole, "onnxruntime");
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

static void clicks_come_out_the_same(void **state)
{
    if (!have_runtime())
        skip();
    samite_model *m = open_model("formula:tiny", NULL), *n = open_model(whole, "onnxruntime");
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
        cmocka_unit_test(videos_come_out_the_same),
        cmocka_unit_test(clicks_come_out_the_same),
        cmocka_unit_test(missing_parts_are_named),
        cmocka_unit_test(outputs_are_aligned),
    };
    return cmocka_run_group_tests(tests, prepare, tear_down);
}
