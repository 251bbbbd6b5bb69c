/* ascend.c - export for Ascend NPUs, and the engine for them against a stand-in for their runtime. */
#define _GNU_SOURCE
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/onnx.h"
#include "runtime/ascend_api.h"
#include "runtime/engine.h"

#include <cmocka.h>

#define TINY TEST_DATA "/tiny"

static char folder[] = "/tmp/samite_ascend_XXXXXX";

static char *path_of(const char *file)
{
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, file);
    return path[turn];
}

static char *read_text(const char *file)
{
    uint8_t *data;
    size_t size;
    assert_int_equal(file_read(&data, &size, path_of(file), 1 << 24, NULL), 0);
    return (char *)data;
}

static void write_text(const char *file, const char *line)
{
    FILE *f = fopen(path_of(file), "w");
    assert_non_null(f);
    fputs(line, f);
    fclose(f);
}

static samite_model *open_model(const char *path, const char *engine)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = NULL;
    o.engine = engine;
    if (samite_model_open(&m, path, &o, &e))
        fail_msg("%s", e.text);
    return m;
}

static int export_with(const char *soc, const char *precision, int aipp, samite_error *e)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_model *m = open_model("formula:tiny", NULL);
    o.folder = folder;
    o.soc = soc;
    o.precision = precision;
    o.aipp = aipp;
    int code = samite_export_ascend(m, &o, e);
    samite_model_free(m);
    return code;
}

/* ---- what is written ---- */

static void command_lines(void **state)
{
    samite_error e = {0};
    assert_int_equal(export_with("Ascend910B3", "mixed", 1, &e), 0);
    char *s = read_text("convert.sh");
    assert_non_null(strstr(s, "soc=${1:-Ascend910B3}"));
    assert_non_null(strstr(s, "--input_shape=\"image:1,3,112,112\" --input_format=NCHW"));
    assert_non_null(strstr(s, "--insert_op_conf=aipp.cfg"));
    assert_non_null(strstr(s, "backbone_fpn_0:1,64,32,32;backbone_fpn_1:1,64,16,16;"));
    assert_non_null(strstr(s, "--precision_mode=allow_mix_precision"));
    assert_non_null(strstr(s, "--keep_dtype=keep_dtype_grounding_head.txt"));
    free(s);
    s = read_text("keep_dtype_text_encoder.txt");
    assert_non_null(strstr(s, "Softmax"));
    assert_non_null(strstr(s, "ln_1/LayerNorm/mean"));
    free(s);
    s = read_text("aipp.cfg");
    assert_non_null(strstr(s, "src_image_size_w: 112"));
    assert_non_null(strstr(s, "var_reci_chn_2: 0.00784313725490196"));
    free(s);
    assert_int_equal(system("sh -n /dev/null"), 0);
    struct stat about;
    assert_int_equal(stat(path_of("convert.sh"), &about), 0);
    assert_true(about.st_mode & S_IXUSR);
}

/* What converters dislike is not in the files. */
static void plain_operations(void **state)
{
    static const char *const files[] = {"image_encoder.onnx", "text_encoder.onnx", "grounding_head.onnx"};
    for (int i = 0; i < 3; i++) {
        onnx_file f;
        assert_int_equal(onnx_open(&f, path_of(files[i]), NULL), 0);
        for (size_t k = 0; k < f.nodes; k++)
            if (onnx_is(f.node[k].op, "LayerNormalization") || onnx_is(f.node[k].op, "Shape") ||
                onnx_is(f.node[k].op, "If"))
                fail_msg("%s has a node %.*s", files[i], (int)f.node[k].op.n, f.node[k].op.s);
        onnx_close(&f);
    }
}

static void wrong_requests(void **state)
{
    samite_error e = {0};
    assert_int_equal(export_with(NULL, NULL, 0, &e), SAMITE_USAGE);
    assert_non_null(strstr(e.text, "npu-smi"));
    assert_int_equal(export_with("Ascend310\"; rm -rf /", NULL, 0, &e), SAMITE_USAGE);
    assert_int_equal(export_with("Ascend310P3", "sloppy", 0, &e), SAMITE_USAGE);
}

/* ---- the engine ---- */

/* What the stand-in found wrong; also how often something was sent to the device. */
static int sent(void)
{
    char *s = read_text("report");
    int n = -1;
    if (sscanf(s, "to device: %d", &n) != 1)
        fail_msg("%s", s);
    free(s);
    unlink(path_of("report"));
    return n;
}

static samite_result *ask(samite_image *im, const char *said)
{
    samite_error e = {0};
    samite_result *r = NULL;
    samite_prompt prompt = SAMITE_PROMPT_INIT;
    prompt.text = said;
    prompt.score = 0.001f;
    if (samite_image_segment(im, &prompt, &r, &e))
        fail_msg("%s", e.text);
    return r;
}

static samite_image *encode(samite_model *m, samite_error *e)
{
    samite_pixels p;
    samite_image *im = NULL;
    assert_int_equal(samite_pixels_read(&p, TINY "/scene.png", 0, e), 0);
    samite_image_open(&im, m, &p, e);
    samite_pixels_free(&p);
    return im;
}

static void same_results(const samite_result *x, const samite_result *y)
{
    assert_int_equal(x->count, y->count);
    assert_true(x->count > 3);
    for (int i = 0; i < x->count; i++) {
        assert_float_equal(x->instance[i].score, y->instance[i].score, 1e-6);
        assert_int_equal(x->instance[i].area, y->instance[i].area);
    }
}

static void put_models(const char *kind)
{
    static const char *const parts[] = {"image_encoder", "text_encoder", "grounding_head"};
    for (int i = 0; i < 3; i++) {
        char file[64], line[96];
        snprintf(file, sizeof file, "%s.om", parts[i]);
        snprintf(line, sizeof line, "formula:tiny %s %s\n", parts[i], kind);
        write_text(file, line);
    }
}

/* Two prompts on a picture: the same answers as ours, nothing left over, and the features sent only once. */
static void computes_like_ours(const char *kind, int expected)
{
    samite_error e = {0};
    put_models(kind);
    samite_model *a = open_model("formula:tiny", NULL), *b = open_model(folder, "ascend:1");
    samite_image *x = encode(a, &e), *y = encode(b, &e);
    assert_string_equal(e.text, "");
    static const char *const said[] = {"red car", "dog"};
    for (int i = 0; i < 2; i++) {
        samite_result *p = ask(x, said[i]), *q = ask(y, said[i]);
        same_results(p, q);
        samite_result_free(p);
        samite_result_free(q);
    }
    samite_image_free(x);
    samite_image_free(y);
    samite_model_free(a);
    samite_model_free(b);
    assert_int_equal(sent(), expected);
}

static void fixed_sizes(void **state)
{
    /* A picture and two prompts; all that the head takes is on the device already. */
    computes_like_ours("", 3);
}

static int align(samite_align_summary *sum, samite_error *e)
{
    samite_model *a = open_model("formula:tiny", NULL), *b = open_model(folder, "ascend");
    samite_align_options o = {.size = sizeof o, .against = b};
    int code = samite_align(a, &o, sum, e);
    samite_model_free(a);
    samite_model_free(b);
    return code;
}

/* Every output of every part and the scores; parts of other weights are noticed. */
static void outputs_are_aligned(void **state)
{
    samite_align_summary sum;
    samite_error e = {0};
    put_models("");
    assert_int_equal(align(&sum, &e), 0);
    assert_int_equal(sum.compared, 7 + 2 + 4 + 1);
    write_text("text_encoder.om", "formula:tiny,seed=5 text_encoder\n");
    assert_int_equal(align(&sum, &e), SAMITE_FAILED);
    assert_true(sum.outside > 0);
}

static void outputs_of_unknown_size(void **state)
{
    computes_like_ours("open", 3);
}

/* Every call may fail: one clear line, and still nothing left over. */
static void failures_are_told(void **state)
{
    static const struct { const char *call, *said;
    } cases[] = {
        {"aclInit 500001", "aclInit"},
        {"aclrtSetDevice 207006", "no permission"},
        {"aclrtCreateContext 107001", "device"},
        {"aclmdlLoadFromFile 507008", "another chip"},
        {"aclmdlLoadFromFile 545001", "newer than the runtime"},
        {"aclmdlGetDesc 100011", "aclmdlGetDesc"},
        {"aclrtMalloc 207001", "out of memory"},
        {"aclrtMalloc 207001 3", "out of memory"},
        {"aclrtMemcpy 107000", "aclrtMemcpy"},
        {"aclrtMemcpy 107000 3", "aclrtMemcpy"},
        {"aclmdlAddDatasetBuffer 100000", "aclmdlAddDatasetBuffer"},
        {"aclmdlAddDatasetBuffer 100000 2", "aclmdlAddDatasetBuffer"},
        {"aclmdlExecute 507014", "kernel"},
        {"aclmdlGetOutputDims 100000", "aclmdlGetOutputDims"},
    };
    put_models("");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        samite_options o = SAMITE_OPTIONS_INIT;
        samite_error e = {0};
        samite_model *m = NULL;
        o.engine = "ascend";
        setenv("FAKE_ACL_FAIL", cases[i].call, 1);
        samite_image *im = samite_model_open(&m, folder, &o, &e) ? NULL : encode(m, &e);
        unsetenv("FAKE_ACL_FAIL");
        if (im)
            fail_msg("%s went unnoticed", cases[i].call);
        if (!strstr(e.text, cases[i].said) || !strstr(e.text, "told by the stand-in"))
            fail_msg("%s: said %s", cases[i].call, e.text);
        samite_image_free(im);
        bool opened = m != NULL;
        samite_model_free(m);
        if (opened)
            sent();
        unlink(path_of("report"));
    }
}

static void absent_devices(void **state)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m;
    o.engine = "ascend:7";
    assert_int_equal(samite_model_open(&m, folder, &o, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "no device 7, only 2"));
    o.engine = "ascend:x";
    assert_int_equal(samite_model_open(&m, folder, &o, &e), SAMITE_USAGE);
    o.engine = "ascend";
    o.engine_library = "libm.so.6";
    assert_int_equal(samite_model_open(&m, folder, &o, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "aclInit"));
}

static void missing_models(void **state)
{
    samite_error e = {0};
    unlink(path_of("image_encoder.om"));
    samite_model *m = open_model(folder, "ascend");
    assert_null(encode(m, &e));
    assert_non_null(strstr(e.text, "image_encoder.om"));
    assert_non_null(strstr(e.text, "cannot be read"));
    samite_model_free(m);
}

static void every_code_has_a_hint(void **state)
{
    assert_non_null(strstr(acl_hint(107002), "thread"));
    assert_non_null(strstr(acl_hint(507008), "chip"));
    assert_non_null(acl_hint(-1));
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *place)
{
    return remove(path);
}

static int set_up(void **state)
{
    assert_non_null(mkdtemp(folder));
    setenv("SAMITE_ASCENDCL", FAKE_ASCENDCL, 1);
    setenv("FAKE_ACL_REPORT", path_of("report"), 1);
    return 0;
}

static int tear_down(void **state)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_lines), cmocka_unit_test(plain_operations), cmocka_unit_test(wrong_requests),
        cmocka_unit_test(fixed_sizes), cmocka_unit_test(outputs_are_aligned),
        cmocka_unit_test(outputs_of_unknown_size), cmocka_unit_test(failures_are_told),
        cmocka_unit_test(absent_devices), cmocka_unit_test(missing_models), cmocka_unit_test(every_code_has_a_hint),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
