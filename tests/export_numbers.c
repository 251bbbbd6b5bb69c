/* export_numbers.c - what exported files compute, in f16, batches, with boxes and clicks, and what Paddle is given. */
#include "export_help.h"

/* ---- Paddle ---- */

/* The head of a tensor of [4, 8] in .pdiparams, byte by byte. */
static void paddle_tensor_bytes(void **state)
{
    text t = {0};
    paddle_tensor_head(&t, DT_F32, 2, (int64_t[]){4, 8});
    static const uint8_t expected[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 8, 5, 16, 4, 16, 8};
    assert_int_equal(t.size, sizeof expected);
    assert_memory_equal(t.data, expected, sizeof expected);
    text_free(&t);
}

/* Sum of the sizes of all "p" operations with their heads, as the parameter file must have them; also checks the order
 * of values. */
static size_t bytes_of_program(const char *path)
{
    uint8_t *data;
    size_t size, bytes = 0;
    int64_t made = 0;
    assert_int_equal(file_read(&data, &size, path, 1 << 26, NULL), 0);
    json_t *all = json_loadb((char *)data, size, 0, NULL), *op, *v;
    free(data);
    assert_non_null(all);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(all, "base_code"), "version")), 1);
    json_t *region = json_array_get(json_object_get(json_object_get(all, "program"), "regions"), 0);
    json_t *ops = json_object_get(json_array_get(json_object_get(region, "blocks"), 0), "ops");
    size_t i, k;
    assert_true(json_array_size(ops) > 20);
    json_array_foreach(ops, i, op) {
        json_t *out = json_object_get(op, "O");
        json_array_foreach(json_object_get(op, "I"), k, v)
            assert_true(json_integer_value(json_object_get(v, "%")) <= made);
        if (strcmp(json_string_value(json_object_get(op, "#")), "p") != 0) {
            json_array_foreach(out, k, v)
                assert_int_equal(json_integer_value(json_object_get(v, "%")), ++made);
            continue;
        }
        assert_int_equal(json_integer_value(json_object_get(out, "%")), ++made);
        json_t *type = json_object_get(json_object_get(out, "TT"), "D"), *dim;
        const char *element = json_string_value(json_object_get(json_array_get(type, 0), "#"));
        int64_t shape[4], count = 1;
        json_array_foreach(json_array_get(type, 1), k, dim)
            count *= shape[k] = json_integer_value(dim);
        text head = {0};
        paddle_tensor_head(&head, DT_F32, (int)json_array_size(json_array_get(type, 1)), shape);
        bytes += head.size + (size_t)count * (strcmp(element, "0.t_i64") ? 4 : 8);
        text_free(&head);
    }
    json_decref(all);
    return bytes;
}

static void paddle_files_fit_together(void **state)
{
    static const char *const parts[] = {"image_encoder", "text_encoder", "grounding_head"};
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_error e = {0};
    char where[64], name[64];
    samite_model *m = open_model("formula:tiny", NULL);
    make_folder(where);
    o.folder = where;
    assert_int_equal(samite_export_paddle(m, &o, &e), 0);
    for (int i = 0; i < 3; i++) {
        uint8_t *data;
        size_t size;
        snprintf(name, sizeof name, "%s.json", parts[i]);
        size_t expected = bytes_of_program(path_of(where, name));
        snprintf(name, sizeof name, "%s.pdiparams", parts[i]);
        assert_int_equal(file_read(&data, &size, path_of(where, name), 1 << 28, NULL), 0);
        assert_int_equal(size, expected);
        free(data);
    }
    samite_model_free(m);
}

/* ---- numbers, where ONNX Runtime is there ---- */

typedef struct seen { int count, outside; } seen;

static void note_compared(void *user, const samite_compared *c)
{
    seen *s = user;
    s->count++;
    s->outside += !c->within;
    if (!c->within)
        print_message("%s: %g, cosine %.8f %s\n", c->name, c->max_difference, c->cosine, c->note);
}

static int check_with(const char *model, const char *where, const char *engine, seen *s)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = open_model(model, NULL);
    o.folder = where;
    o.engine = engine;
    o.each = note_compared;
    o.user = s;
    int code = samite_export_check(m, &o, &e);
    if (code && code != SAMITE_FAILED)
        fail_msg("%s", e.text);
    samite_model_free(m);
    return code;
}

static void parts_compute_the_same(void **state)
{
    int done = 0;
    for (int i = 0; i < RUNTIMES; i++) {
        seen s = {0, 0};
        if (!have_engine(runtimes[i]))
            continue;
        done++;
        assert_int_equal(check_with("formula:tiny", folder, runtimes[i], &s), 0);
        assert_int_equal(s.count, 13);
        assert_int_equal(s.outside, 0);
    }
    if (!done)
        skip();
}

/* A head that takes example boxes finds the same as ours with the same boxes, whether all places are used or not. */
static void heads_with_boxes(void **state)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = open_model("formula:tiny", NULL);
    seen s = {0, 0};
    onnx_file f;
    char where[64];
    make_folder(where);
    o.folder = where;
    o.boxes = 65;
    assert_int_equal(samite_export_onnx(m, &o, &e), SAMITE_USAGE);
    o.boxes = 3;
    assert_int_equal(samite_export_onnx(m, &o, &e), 0);
    assert_int_equal(onnx_open(&f, path_of(where, "grounding_head.onnx"), &e), 0);
    assert_true(f.inputs == 8 && onnx_is(f.input[6].name, "boxes") && onnx_is(f.input[7].name, "box_labels"));
    assert_true(f.input[6].dim[1] == 3 && f.input[7].type == 7);
    onnx_close(&f);
    if (have_runtime()) {
        o.each = note_compared;
        o.user = &s;
        assert_int_equal(samite_export_check(m, &o, &e), 0);
        assert_int_equal(s.count, 13);
    }
    samite_model_free(m);
}

/* Several pictures at once, each with its own words and boxes: every one is answered as it would be alone. */
static void batches_with_boxes(void **state)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_options open = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = open_model("formula:tiny", NULL), *parts = NULL;
    onnx_file f;
    open.engine = "onnxruntime";
    for (int k = 0; k < 2; k++) {
        seen s = {0, 0};
        char where[64];
        make_folder(where);
        o.folder = where;
        o.boxes = 2 + k;
        o.batch = k ? -1 : 3;
        assert_int_equal(samite_export_onnx(m, &o, &e), 0);
        assert_int_equal(onnx_open(&f, path_of(where, "grounding_head.onnx"), &e), 0);
        assert_int_equal(f.input[6].dim[0], o.batch);
        assert_int_equal(f.input[6].dim[1], o.boxes);
        assert_int_equal(f.output[2].dim[0], o.batch);
        onnx_close(&f);
        if (!have_runtime())
            continue;
        o.each = note_compared;
        o.user = &s;
        assert_int_equal(samite_export_check(m, &o, &e), 0);
        assert_int_equal(s.count, 13);
        if (k) {          /* one file for every number of pictures: of one, too */
            o.batch = 0;
            assert_int_equal(samite_export_check(m, &o, &e), 0);
            assert_int_equal(samite_model_open(&parts, where, &open, &e), 0);
            samite_model_free(parts);
        } else {
            assert_int_equal(samite_model_open(&parts, where, &open, &e), SAMITE_INPUT);
            assert_non_null(strstr(e.text, "3 pictures at once"));
        }
    }
    samite_model_free(m);
}

/* The parts for clicks: points, a box and a mask, with and without places that are not used. */
static void parts_for_clicks(void **state)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = open_model("formula:tiny", NULL);
    seen s = {0, 0};
    onnx_file f;
    char where[64];
    make_folder(where);
    o.folder = where;
    o.parts = SAMITE_PARTS_CLICK;
    o.points = 3;
    assert_int_equal(samite_export_onnx(m, &o, &e), 0);
    assert_int_equal(onnx_open(&f, path_of(where, "interactive_head.onnx"), &e), 0);
    assert_true(f.inputs == 7 && onnx_is(f.input[3].name, "point_coords") && f.input[3].dim[1] == 3);
    assert_true(onnx_is(f.output[0].name, "masks") && f.output[0].dim[1] == 4 && f.output[0].dim[2] == 32);
    onnx_close(&f);
    if (have_runtime()) {
        o.each = note_compared;
        o.user = &s;
        assert_int_equal(samite_export_check(m, &o, &e), 0);
        o.points = 5;
        assert_int_equal(samite_export_onnx(m, &o, &e), 0);
        assert_int_equal(samite_export_check(m, &o, &e), 0);
        assert_int_equal(s.count, 14);
    }
    samite_model_free(m);
}

/* The parts for video, with places for memories that are used and others that are not. */
static void parts_for_video(void **state)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = open_model("formula:tiny", NULL);
    seen s = {0, 0};
    onnx_file f;
    char where[64];
    make_folder(where);
    o.folder = where;
    o.parts = SAMITE_PARTS_MEMORY | SAMITE_PART_IMAGE;
    assert_int_equal(samite_export_onnx(m, &o, &e), 0);
    assert_int_equal(onnx_open(&f, path_of(where, "image_encoder.onnx"), &e), 0);
    assert_true(f.outputs == 8 && onnx_is(f.output[7].name, "trunk_features") && f.output[7].dim[1] == 64);
    onnx_close(&f);
    assert_int_equal(onnx_open(&f, path_of(where, "memory_attention.onnx"), &e), 0);
    assert_true(f.inputs == 5 && f.input[1].dim[1] == 10 * 8 * 8 && f.input[3].dim[1] == 20 && f.outputs == 1);
    assert_true(onnx_is(f.output[0].name, "image_embed") && f.output[0].dim[1] == 64);
    onnx_close(&f);
    if (have_runtime()) {
        o.each = note_compared;
        o.user = &s;
        assert_int_equal(samite_export_check(m, &o, &e), 0);
        assert_int_equal(s.count, 8 + 4 + 1 + 4 + 3);
        o.parts = SAMITE_PARTS_MEMORY & ~0x20u;
        assert_int_equal(samite_export_check(m, &o, &e), SAMITE_USAGE);
        assert_non_null(strstr(e.text, "pix_feat"));
    }
    samite_model_free(m);
}

/* f16, and any number of pictures: still the same within what f16 can do, and one file for every batch. */
static void other_kinds(void **state)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = open_model("formula:tiny", NULL);
    onnx_file f;
    seen s = {0, 0};
    char half[64], any[64];
    make_folder(half);
    o.folder = half;
    o.half = 1;
    assert_int_equal(samite_export_onnx(m, &o, &e), 0);
    assert_int_equal(onnx_open(&f, path_of(half, "image_encoder.onnx"), &e), 0);
    const onnx_tensor_info *w =
        onnx_find_tensor(&f, "detector.backbone.vision_backbone.trunk.blocks.0.mlp.fc1.weight/T/f16");
    assert_true(w && w->type == 10);
    assert_int_equal(f.output[4].type, 1);
    onnx_close(&f);
    make_folder(any);
    o.folder = any;
    o.half = 0;
    o.batch = -1;
    assert_int_equal(samite_export_onnx(m, &o, &e), 0);
    assert_int_equal(onnx_check(path_of(any, "grounding_head.onnx"), false, &e), SAMITE_FAILED);
    assert_int_equal(onnx_open(&f, path_of(any, "grounding_head.onnx"), &e), 0);
    assert_true(f.output[2].dim[0] == -1 && f.output[2].dim[1] == 12);
    onnx_close(&f);
    o.batch = 65;
    assert_int_equal(samite_export_onnx(m, &o, &e), SAMITE_USAGE);
    if (have_runtime()) {
        o.batch = 0;
        o.each = note_compared;
        o.user = &s;
        assert_int_equal(samite_export_check(m, &o, &e), 0);
        o.folder = half;
        o.half = 1;
        assert_int_equal(samite_export_check(m, &o, &e), 0);
        assert_int_equal(s.count, 26);
    }
    samite_model_free(m);
}

static void check_notices_other_weights(void **state)
{
    seen s = {0, 0};
    if (!have_runtime())
        skip();
    assert_int_equal(check_with("formula:tiny,seed=3", folder, "onnxruntime", &s), SAMITE_FAILED);
    assert_true(s.outside > 5);
}

static samite_result *segment(samite_model *m)
{
    samite_pixels p;
    samite_error e = {0};
    samite_image *im = NULL;
    samite_result *r = NULL;
    samite_prompt prompt = SAMITE_PROMPT_INIT;
    prompt.text = "red car";
    prompt.score = 0.001f;
    if (samite_pixels_read(&p, TINY "/scene.png", 0, &e) || samite_image_open(&im, m, &p, &e) ||
        samite_image_segment(im, &prompt, &r, &e))
        fail_msg("%s", e.text);
    samite_pixels_free(&p);
    samite_image_free(im);
    return r;
}

static void pictures_come_out_the_same(void **state)
{
    if (!have_runtime())
        skip();
    samite_model *a = open_model("formula:tiny", NULL), *b = open_model(folder, "onnxruntime");
    samite_result *x = segment(a), *y = segment(b);
    assert_int_equal(x->count, y->count);
    assert_true(x->count > 3);
    assert_int_equal(x->tokens, y->tokens);
    for (int i = 0; i < x->count; i++) {
        const samite_instance *p = &x->instance[i], *q = &y->instance[i];
        assert_float_equal(p->score, q->score, 1e-5);
        for (int k = 0; k < 4; k++)
            assert_float_equal(p->box[k], q->box[k], 0.01);
        assert_true((double)(p->area > q->area ? p->area - q->area : q->area - p->area) <= 2 + 0.001 * (double)p->area);
    }
    samite_result_free(x);
    samite_result_free(y);
    samite_model_free(a);
    samite_model_free(b);
}

static void engines_are_not_replaced_silently(void **state)
{
    engine *e;
    samite_error err = {0};
    assert_int_equal(engine_open(&e, "abacus", &(engine_options){0}, &err), SAMITE_USAGE);
    if (!have_runtime())
        skip();
    assert_int_equal(engine_open(&e, "onnxruntime:abacus", &(engine_options){0}, &err), SAMITE_USAGE);
    assert_int_equal(engine_open(&e, "onnxruntime:dml", &(engine_options){0}, &err), SAMITE_INPUT);
    assert_non_null(strstr(err.text, "DmlExecutionProvider"));
}

/* Parts of two models, or not made by us, do not go together. */
static void parts_must_belong_together(void **state)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m;
    char mixed[64];
    make_folder(mixed);
    copy_file(path_of(mixed, "image_encoder.onnx"), path_of(folder, "image_encoder.onnx"), SIZE_MAX);
    copy_file(path_of(mixed, "text_encoder.onnx"), path_of(other, "text_encoder.onnx"), SIZE_MAX);
    copy_file(path_of(mixed, "grounding_head.onnx"), path_of(folder, "grounding_head.onnx"), SIZE_MAX);
    o.engine = "onnxruntime";
    assert_int_equal(samite_model_open(&m, mixed, &o, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "another model"));
    copy_file(path_of(mixed, "text_encoder.onnx"), path_of(folder, "grounding_head.onnx"), SIZE_MAX);
    assert_int_equal(samite_model_open(&m, mixed, &o, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "its inputs"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paddle_tensor_bytes), cmocka_unit_test(paddle_files_fit_together),
        cmocka_unit_test(parts_compute_the_same), cmocka_unit_test(other_kinds), cmocka_unit_test(heads_with_boxes),
        cmocka_unit_test(batches_with_boxes),
        cmocka_unit_test(parts_for_clicks), cmocka_unit_test(parts_for_video), cmocka_unit_test(check_notices_other_weights),
        cmocka_unit_test(pictures_come_out_the_same), cmocka_unit_test(engines_are_not_replaced_silently),
        cmocka_unit_test(parts_must_belong_together),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
