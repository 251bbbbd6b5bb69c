/* import.c - weights back from exported files: all of them bit by bit, and what happens with bad files. */
#include "export_help.h"

static char paddle[64];          /* formula:tiny for PaddlePaddle */

static int import(const char *path, const char *out, const char *base, samite_imported *told, samite_error *e)
{
    samite_import_options o = SAMITE_IMPORT_OPTIONS_INIT;
    o.path = path;
    o.out = out;
    o.base = base;
    return samite_import(&o, told, e);
}

static const char *back(void)
{
    return path_of(folder, "back.safetensors");
}

static void export_parts(char *where, const char *model, bool to_paddle, unsigned parts, int half)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = open_model(model, NULL);
    make_folder(where);
    o.folder = where;
    o.parts = parts;
    o.boxes = 2;
    o.half = half;
    if ((to_paddle ? samite_export_paddle : samite_export_onnx)(m, &o, &e))
        fail_msg("%s", e.text);
    samite_model_free(m);
}

static int prepare(void **state)
{
    int code = set_up(state);
    export_parts(paddle, "formula:tiny", true, 0, 0);
    return code;
}

/* Every tensor of the file equals the network's bit by bit; returns how many there are. */
static size_t equal_tensors(const char *path)
{
    native *n;
    weights *w;
    samite_error e = {0};
    assert_int_equal(native_open(&n, "formula:tiny", &(native_options){0}, &e), 0);
    if (weights_open(&w, path, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < weights_count(w); i++) {
        const weight *t = weights_at(w, i);
        const entry *own = registry_find(&n->net->all, t->name);
        assert_non_null(own);
        assert_int_equal(t->type, DT_F32);
        assert_int_equal(t->axes, own->p.t.axes);
        float *values = native_values(n, own);
        if (memcmp(t->dim, own->p.t.dim, sizeof(int64_t) * (size_t)t->axes) ||
            memcmp(values, t->data, weight_bytes(t)) != 0)
            fail_msg("%s came back changed", t->name);
        free(values);
    }
    size_t count = weights_count(w);
    weights_close(w);
    native_close(n);
    return count;
}

static void onnx_round_trip(void **state)
{
    samite_imported told;
    samite_error e = {0};
    char where[64];
    export_parts(where, "formula:tiny", false, SAMITE_PARTS_DETECTOR | SAMITE_PARTS_CLICK, 0);
    if (import(where, back(), NULL, &told, &e))
        fail_msg("%s", e.text);
    assert_int_equal(told.files, 5);
    assert_true(told.tensors > 400 && told.missing > 0 && told.first_missing[0] && !told.rounded);
    assert_int_equal(equal_tensors(back()), told.tensors);
    assert_int_equal(import(where, back(), "formula:tiny", &told, &e), 0);
    assert_true(told.from_base > 0 && !told.missing);
    assert_int_equal(equal_tensors(back()), told.tensors + told.from_base);
    samite_model_free(open_model(back(), NULL));
}

/* The state dictionary holds everything, programs what they use; a parameter file stands for its program. */
static void paddle_round_trip(void **state)
{
    static const char *const paths[] = {"", "sam3.pdparams", "image_encoder.json", "image_encoder.pdiparams"};
    samite_imported told;
    samite_error e = {0};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (import(path_of(paddle, paths[i]), back(), NULL, &told, &e))
            fail_msg("%s", e.text);
        assert_int_equal(equal_tensors(back()), told.tensors);
        assert_true(i < 2 ? told.missing == 0 : told.missing > 100);
    }
}

static void halves_are_told(void **state)
{
    samite_imported told;
    samite_error e = {0};
    char where[64];
    export_parts(where, "formula:tiny", false, SAMITE_PART_TEXT, 1);
    assert_int_equal(import(where, back(), "formula:tiny", &told, &e), 0);
    assert_true(told.rounded > 5 && told.tensors + told.from_base > 600);
}

/* ---- bad files ---- */

/* The import of `path` is refused, with `words` in the message, and nothing is written. */
static void refused(const char *path, const char *words)
{
    samite_imported told;
    samite_error e = {0};
    remove(back());
    int code = import(path, back(), NULL, &told, &e);
    if (code != SAMITE_INPUT || !strstr(e.text, words) || strchr(e.text, '\n'))
        fail_msg("%s: %d, %s", path, code, e.text);
    assert_int_not_equal(access(back(), F_OK), 0);
}

static void cut_and_mixed_files(void **state)
{
    char where[64];
    make_folder(where);
    refused(where, "no files that samite export wrote");
    refused(path_of(folder, "nothing.onnx"), "nothing.onnx");
    copy_file(path_of(where, "a.json"), path_of(paddle, "text_encoder.json"), SIZE_MAX);
    copy_file(path_of(where, "a.pdiparams"), path_of(paddle, "text_encoder.pdiparams"), 5000);
    refused(where, "cut off");
    copy_file(path_of(where, "a.pdiparams"), path_of(paddle, "image_encoder.pdiparams"), SIZE_MAX);
    refused(where, "belongs to another program");
    copy_file(path_of(where, "a.json"), path_of(paddle, "text_encoder.json"), 4000);
    refused(where, "no program of PaddlePaddle");
    remove(path_of(where, "a.json"));
    copy_file(path_of(where, "a.pdparams"), path_of(paddle, "sam3.pdparams"), 100000);
    refused(where, "damaged pickle");
    copy_file(path_of(where, "a.pdparams"), path_of(paddle, "text_encoder.pdiparams"), SIZE_MAX);
    refused(where, "damaged pickle");
}

/* Copies a file in which some bytes become others, as many. */
static void copy_changed(const char *to, const char *from, const char *old, const char *new)
{
    uint8_t *data;
    size_t size;
    assert_int_equal(file_read(&data, &size, from, (size_t)1 << 30, NULL), 0);
    uint8_t *at = memmem(data, size, old, strlen(old));
    assert_non_null(at);
    memcpy(at, new, strlen(old));
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
    free(data);
}

static void other_models(void **state)
{
    char where[64], small[64], third[64];
    make_folder(where);
    copy_file(path_of(where, "a.onnx"), path_of(folder, "text_encoder.onnx"), SIZE_MAX);
    copy_file(path_of(where, "b.onnx"), path_of(other, "text_encoder.onnx"), SIZE_MAX);
    refused(where, "different models");
    copy_file(path_of(where, "b.onnx"), path_of(other, "grounding_head.onnx"), SIZE_MAX);     /* nothing in common */
    refused(where, "different models");
    export_to(third, "formula:tiny,seed=6", 0);
    copy_file(path_of(where, "a.onnx"), path_of(other, "text_encoder.onnx"), SIZE_MAX);
    copy_changed(path_of(where, "b.onnx"), path_of(third, "text_encoder.onnx"), "tiny,seed=6", "tiny,seed=5");
    refused(where, "has other numbers");
    copy_file(path_of(where, "a.onnx"), path_of(folder, "text_encoder.onnx"), SIZE_MAX);
    make_folder(small);
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m;
    o.input_side = 168;
    assert_int_equal(samite_model_open(&m, "formula:tiny", &o, &e), 0);
    samite_export_options x = SAMITE_EXPORT_OPTIONS_INIT;
    x.folder = small;
    x.parts = SAMITE_PART_TEXT;
    assert_int_equal(samite_export_onnx(m, &x, &e), 0);
    samite_model_free(m);
    copy_file(path_of(where, "b.onnx"), path_of(small, "text_encoder.onnx"), SIZE_MAX);
    refused(where, "another model or size");
}

/* A state dictionary whose one array says of itself what `shape` and `bytes` say. */
static void write_state(const char *path, const char *name, int axes, const int64_t *dim, size_t bytes)
{
    text t = {0};
    static const char numbers[64 << 2];
    paddle_state_begin(&t);
    paddle_array_head(&t, name, DT_F32, axes, dim);
    text_add(&t, numbers, bytes);
    paddle_array_tail(&t);
    paddle_state_end(&t, &name, 1);
    FILE *f = fopen(path, "wb");
    fwrite(t.data, 1, t.size, f);
    fclose(f);
    text_free(&t);
}

static void arrays_that_lie(void **state)
{
    char where[64];
    char path[256];
    make_folder(where);
    strcpy(path, path_of(where, "a.pdparams"));
    write_state(path, "tracker.no_obj_ptr", 2, (int64_t[]){1, 64}, 256);
    samite_imported told;
    samite_error e = {0};
    assert_int_equal(import(path, back(), "formula:tiny", &told, &e), 0);
    assert_int_equal(told.tensors, 1);
    refused(path, "--base");
    write_state(path, "tracker.no_obj_ptr", 2, (int64_t[]){2, 32}, 256);
    assert_int_equal(import(path, back(), "formula:tiny", &told, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "[2, 32]"));
    write_state(path, "tracker.no_obj_ptr", 2, (int64_t[]){1, 64}, 200);
    refused(path, "damaged");
    write_state(path, "tracker.no_obj_ptr", 3, (int64_t[]){INT64_MAX, 4, 0}, 0);
    refused(path, "damaged");
    write_state(path, "a", 1, (int64_t[]){-4}, 0);
    refused(path, "damaged");
}

static void bad_requests(void **state)
{
    samite_imported told;
    samite_error e = {0};
    assert_int_equal(import(folder, path_of(folder, "back.onnx"), NULL, &told, &e), SAMITE_USAGE);
    assert_int_equal(import(folder, NULL, NULL, &told, &e), SAMITE_USAGE);
    assert_int_equal(import(folder, back(), "/no/such/model.pt", &told, &e), SAMITE_INPUT);
    assert_int_not_equal(import(folder, "/no/such/folder/a.safetensors", NULL, &told, &e), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(onnx_round_trip), cmocka_unit_test(paddle_round_trip), cmocka_unit_test(halves_are_told),
        cmocka_unit_test(cut_and_mixed_files), cmocka_unit_test(other_models), cmocka_unit_test(arrays_that_lie),
        cmocka_unit_test(bad_requests),
    };
    return cmocka_run_group_tests(tests, prepare, tear_down);
}
