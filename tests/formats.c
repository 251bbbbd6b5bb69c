/* formats.c - tests of the containers: torch zip, safetensors, names, formula weights, and writing them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "formats/formula.h"
#include "formats/pickle.h"
#include "formats/safetensors.h"
#include "formats/torch_file.h"
#include "formats/weights.h"

#include <cmocka.h>      /* last: it has a macro named fail */

#define FOLDER TEST_DATA "/formats/"

/* The tensors that every good fixture holds, with values of the formula. */
static const struct {
    const char *name;
    int axes;
    int64_t dim[4];
} fixture[] = {
    {"detector.backbone.vision_backbone.trunk.blocks.0.norm1.weight", 1, {6}},
    {"detector.backbone.vision_backbone.trunk.blocks.0.norm1.bias", 1, {6}},
    {"detector.backbone.vision_backbone.trunk.patch_embed.proj.weight", 4, {4, 3, 2, 2}},
    {"detector.geometry_encoder.label_embed.weight", 2, {2, 5}},
    {"tracker.sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix", 2, {2, 4}},
    {"tracker.maskmem_backbone.fuser.layers.0.gamma", 1, {7}},
};
#define FIXTURES (sizeof fixture / sizeof *fixture)

static weights *open_good(const char *path)
{
    samite_error e = {0};
    weights *w = NULL;
    if (weights_open(&w, path, &e) != SAMITE_OK)
        fail_msg("%s", e.text);
    return w;
}

/* Holds the formula's values, rounded to the type that the file has. */
static void check_values(const weight *w, dtype type)
{
    int64_t count = weight_count(w);
    float *got = malloc((size_t)count * 4 + 1), *want = malloc((size_t)count * 4 + 1);
    assert_int_equal(w->type, type);
    weight_to_f32(got, w);
    formula_fill(want, w->name, w->axes, w->dim, 0);
    if (type == DT_F16 || type == DT_BF16) {
        uint16_t *rounded = malloc((size_t)count * 2 + 1);
        dtype_from_f32(rounded, type, want, (size_t)count);
        dtype_to_f32(want, rounded, type, (size_t)count);
        free(rounded);
    }
    assert_memory_equal(got, want, (size_t)count * 4);
    free(got);
    free(want);
}

static void check_fixture(const weights *w, dtype type)
{
    for (size_t i = 0; i < FIXTURES; i++) {
        const weight *t = weights_find(w, fixture[i].name);
        assert_non_null(t);
        assert_string_equal(t->name, fixture[i].name);
        assert_int_equal(t->axes, fixture[i].axes);
        for (int a = 0; a < t->axes; a++)
            assert_int_equal(t->dim[a], fixture[i].dim[a]);
        check_values(t, type);
    }
}

static void test_good_files(void **state)
{
    static const struct {
        const char *file, *kind;
        dtype type;
        size_t count;
    } files[] = {
        {"flat.pt", "torch zip", DT_F32, 6},     {"nested.pt", "torch zip", DT_F32, 6},
        {"prefixes.pt", "torch zip", DT_F32, 6}, {"views.pt", "torch zip", DT_F32, 6},
        {"f16.pt", "torch zip", DT_F16, 6},      {"bf16.pt", "torch zip", DT_BF16, 6},
        {"f64.pt", "torch zip", DT_F64, 6},      {"plain.safetensors", "safetensors", DT_F32, 9},
        {"sharded", "safetensors, 2 shards", DT_F32, 6},
        {"sharded/model.safetensors.index.json", "safetensors, 2 shards", DT_F32, 6},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[512];
        snprintf(path, sizeof path, FOLDER "%s", files[i].file);
        weights *w = open_good(path);
        assert_int_equal(weights_count(w), files[i].count);
        assert_string_equal(weights_kind(w), files[i].kind);
        assert_string_equal(weights_path(w), path);
        check_fixture(w, files[i].type);
        assert_null(weights_find(w, "detector.absent"));
        assert_null(weights_at(w, files[i].count));
        weights_close(w);
    }
}

static void test_order_and_notes(void **state)
{
    weights *w = open_good(FOLDER "nested.pt");
    for (size_t i = 0; i < FIXTURES; i++)
        assert_string_equal(weights_at(w, i)->name, fixture[i].name);
    assert_string_equal(weights_metadata(w, "samite.config"), "{\"d\": 64}");
    assert_null(weights_metadata(w, "epoch"));
    weights_close(w);
    w = open_good(FOLDER "plain.safetensors");
    assert_string_equal(weights_metadata(w, "samite.config"), "{\"d\": 64}");
    assert_string_equal(weights_metadata(w, "format"), "pt");
    check_values(weights_find(w, "detector.half.weight"), DT_F16);
    check_values(weights_find(w, "detector.odd.bias"), DT_BF16);
    weights_close(w);
}

static void test_views_are_views(void **state)
{
    weights *w = open_good(FOLDER "views.pt");
    const weight *a = weights_find(w, fixture[0].name), *b = weights_find(w, fixture[1].name);
    assert_ptr_equal((const char *)b->data, (const char *)a->data + 24);      /* one storage */
    assert_true(weight_contiguous(a));
    const weight *t = weights_find(w, fixture[2].name);
    assert_false(weight_contiguous(t));
    assert_int_equal(t->stride[0], 1);
    assert_false(weight_contiguous(weights_find(w, fixture[3].name)));
    assert_false(weight_contiguous(weights_find(w, fixture[5].name)));
    float copy[48], converted[48];
    weight_copy(copy, t);
    weight_to_f32(converted, t);
    assert_memory_equal(copy, converted, sizeof copy);
    char shape[40];
    assert_string_equal(weight_shape(t, shape, sizeof shape), "[4, 3, 2, 2]");
    weights_close(w);
}

static void test_types(void **state)
{
    weights *w = open_good(FOLDER "types.pt");
    float v[3];
    const weight *t = weights_find(w, "detector.i64");
    weight_to_f32(v, t);
    assert_true(t->type == DT_I64 && v[0] == 1 && v[1] == -2 && v[2] == 1099511627776.0f);
    static const struct {
        const char *name;
        dtype type;
        float first, second;
    } small[] = {
        {"detector.i32", DT_I32, 1, -2}, {"detector.i16", DT_I16, 1, -2}, {"detector.i8", DT_I8, 1, -2},
        {"detector.u8", DT_U8, 1, 254},  {"detector.bool", DT_BOOL, 1, 0},
    };
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        t = weights_find(w, small[i].name);
        weight_to_f32(v, t);
        assert_true(t->type == small[i].type && v[0] == small[i].first && v[1] == small[i].second);
    }
    t = weights_find(w, "detector.scalar.weight");
    assert_true(t->axes == 0 && weight_count(t) == 1 && weight_contiguous(t));
    check_values(t, DT_F32);
    t = weights_find(w, "detector.empty");
    assert_true(weight_count(t) == 0 && weight_bytes(t) == 0);
    weight_to_f32(v, t);
    t = weights_find(w, "detector.blocks.0.attn.freqs_cis");
    float pair[2];
    assert_int_equal(t->type, DT_C64);
    memcpy(pair, t->data, sizeof pair);
    assert_true(fabsf(pair[0] - 0.5403023f) < 1e-6f && fabsf(pair[1] - 0.8414710f) < 1e-6f);
    weights_close(w);
}

static void test_refused_tensors(void **state)
{
    weights *w = open_good(FOLDER "quantized.pt");
    assert_non_null(weights_find(w, "detector.a.weight"));
    assert_null(weights_find(w, "detector.q.weight"));
    assert_non_null(strstr(weights_refusal(w, "detector.q.weight"), "quantized"));
    assert_null(weights_refusal(w, "detector.a.weight"));
    weights_close(w);
    w = open_good(FOLDER "float8.pt");
    assert_non_null(weights_refusal(w, "detector.f8.weight"));
    weights_close(w);
}

/* Each file is refused with the right code in one line that names it and says what is wrong. */
static void test_bad_files(void **state)
{
    static const struct { const char *file, *words; } bad[] = {
        {"cut_first.pt", "cut short"},          {"cut_half.pt", "cut short"},
        {"cut_last.pt", "cut short"},           {"legacy.pt", "old format"},
        {"big_endian.pt", "big-endian"},        {"evil.pt", "posix.system"},
        {"evil_beside.pt", "no tensors"},       {"torchscript.pt", "TorchScript"},
        {"module.pt", "__main__.Module"},       {"no_weights.pt", "\"optimizer\", \"epoch\""},
        {"size_huge.pt", "detector.x.weight"},  {"size_over.pt", "detector.x.weight"},
        {"stride_over.pt", "detector.x.weight"}, {"offset_negative.pt", "detector.x.weight"},
        {"stride_negative.pt", "detector.x.weight"}, {"no_data.pt", "no data"},
        {"compressed.pt", "compressed"},        {"other.zip", "no model in it"},
        {"twice.pt", "twice"},                  {"absent.pt", "no such file"},
        {"", "no sam3.pt"},                     {"sharded/absent", "no such file"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[512];
        samite_error e = {0};
        weights *w;
        snprintf(path, sizeof path, FOLDER "%s", bad[i].file);
        assert_int_equal(weights_open(&w, path, &e), SAMITE_INPUT);
        assert_null(w);
        assert_int_equal(e.code, SAMITE_INPUT);
        if (!strstr(e.text, bad[i].words) || !starts_with(e.text, i < 19 ? path : ""))
            fail_msg("%s: unexpected message: %s", bad[i].file, e.text);
    }
    assert_int_equal(access("samite_was_here", F_OK), -1);
}

/* Any cut of a good file is refused, or at least read without harm. */
static void test_every_cut(void **state)
{
    static const char *const files[] = {FOLDER "nested.pt", FOLDER "plain.safetensors"};
    for (size_t f = 0; f < 2; f++) {
        uint8_t *data;
        size_t size;
        samite_error e;
        assert_int_equal(file_read(&data, &size, files[f], 1 << 20, &e), 0);
        for (size_t n = 0; n < size; n++) {
            uint8_t *part = malloc(n + 1);               /* its own block, so that a sanitizer sees any overrun */
            tensor_list list = {0};
            memcpy(part, data, n);
            int code = f == 0 ? torch_file_read(&list, part, n, "x", &e) : safetensors_read(&list, part, n, "x", &e);
            assert_int_equal(code, SAMITE_INPUT);
            tensor_list_free(&list);
            free(part);
        }
        free(data);
    }
}

static int read_header(const char *json, size_t data_size, samite_error *e, size_t *count)
{
    size_t n = strlen(json);
    uint8_t *file = calloc(8 + n + data_size, 1);
    tensor_list list = {0};
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)(n >> (8 * i));
    memcpy(file + 8, json, n);
    int code = safetensors_read(&list, file, 8 + n + data_size, "x.safetensors", e);
    *count = list.count + 100 * list.refused_count;
    tensor_list_free(&list);
    free(file);
    return code;
}

static void test_safetensors_headers(void **state)
{
    static const struct { const char *json; int code; size_t count; const char *words; } cases[] = {
        {"{}", 0, 0, ""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 0, 1, ""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]}}   ", 0, 1, ""},
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}", 0, 100, ""},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,8],\"data_offsets\":[0,8]}}", 0, 100, ""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}", -3, 0, "cut short"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", -3, 0, "does not take"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}", -3, 0, "does not take"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", -3, 0, "does not take"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", -3, 0, "does not take"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", -3, 0, "does not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,9223372036854775807,3],\"data_offsets\":[0,0]}}", -3, 0, "does not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", -3, 0, "bytes 8 to 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", -3, 0, "bytes -8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", -3, 0, "data_offsets"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", -3, 0, "dtype"},
        {"{\"a\":7}", -3, 0, "\"a\""},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
         "\"data_offsets\":[0,1]}}", -3, 0, "duplicate"},
        {"{\"__metadata__\":{\"k\":1}}", -3, 0, "no string"},
        {"{\"__metadata__\":[]}", -3, 0, "__metadata__"},
        {"[]", -3, 0, "JSON object"},
        {"{\"a\"", -3, 0, "JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        samite_error e = {0};
        size_t count;
        int code = read_header(cases[i].json, 8, &e, &count);
        if (code != cases[i].code || !strstr(e.text, cases[i].words))
            fail_msg("%s: %d %s", cases[i].json, code, e.text);
        if (!code)
            assert_int_equal(count, cases[i].count);
    }
    samite_error e;
    tensor_list list = {0};
    uint8_t huge[16] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, '{'};
    assert_int_equal(safetensors_read(&list, huge, sizeof huge, "x", &e), SAMITE_INPUT);
    assert_int_equal(safetensors_read(&list, huge, 3, "x", &e), SAMITE_INPUT);
}

static void test_shard_index(void **state)
{
    static const struct { const char *json; int code; } cases[] = {
        {"{\"weight_map\":{\"a\":\"x\",\"b\":\"x\",\"c\":\"y\"}}", 0}, {"{\"weight_map\":{\"a\":\"../x\"}}", -3},
        {"{\"weight_map\":{\"a\":\"..\"}}", -3},                      {"{\"weight_map\":{\"a\":\"\"}}", -3},
        {"{\"weight_map\":{\"a\":1}}", -3},                           {"{\"weight_map\":{}}", -3},
        {"{}", -3},                                                   {"", -3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        samite_error e;
        shard_list s;
        const uint8_t *json = (const uint8_t *)cases[i].json;
        assert_int_equal(safetensors_index(&s, json, strlen(cases[i].json), "x", &e), cases[i].code);
        if (cases[i].code)
            continue;
        assert_int_equal(s.count, 2);
        assert_string_equal(s.names[0], "x");
        assert_string_equal(s.names[1], "y");
        shard_list_free(&s);
    }
}

static int read_pickle(const char *bytes, size_t size, char *what, size_t room)
{
    pickle *p;
    samite_error e;
    int code = pickle_open(&p, (const uint8_t *)bytes, size, "x", &e);
    snprintf(what, room, "%s", code ? e.text : "");
    if (!code)
        pickle_describe(pickle_root(p), what, room);
    pickle_close(code ? NULL : p);
    return code;
}

static void test_pickle(void **state)
{
#define P(s) s, sizeof s - 1
    static const struct { const char *bytes; size_t size; int code; const char *words; } cases[] = {
        {P("\x80\x02N."), 0, "None"},
        {P("\x80\x04\x95\x03\0\0\0\0\0\0\0K\x05."), 0, "an integer"},
        {P("\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\x01."), 0, "a large integer"},
        {P("\x80\x02}(X\1\0\0\0aK\1u."), 0, "a dict"},
        {P("\x80\x02]q\0h\0a."), 0, "a list"},                                /* holds itself */
        {P("\x80\x02" "cos\nsystem\nX\4\0\0\0true\x85R."), 0, "an object of os.system"},
        {P("\x80\x04\x8c\2os\x8c\6system\x93\x8c\4true\x85R."), 0, "an object of os.system"},
        {P("\x80\x02" "c__builtin__\neval\n(X\1\0\0\0xo."), 0, "an unknown object"},
        {P("\x80\x02(c__builtin__\neval\nX\1\0\0\0xo."), 0, "an object of __builtin__.eval"},
        {P("\x80\x02(X\1\0\0\0xios\nsystem\n."), 0, "an object of os.system"},
        {P("\x80\x02" "ccollections\nOrderedDict\n)R}X\1\0\0\0aNsb."), 0, "a dict"},
        {P("\x80\x02" "cdecimal\nDecimal\n)\x81}(NNub."), 0, "an object of decimal.Decimal"},
        {P("\x80\x02" "cx\ny\n)R(K\1K\2e."), 0, "an object of x.y"},
        {P("\x80\x02}(K\1u."), -3, "without a value"},
        {P("\x80\x02K\1(K\2u."), -3, "no container"},
        {P("\x80\x02."), -3, "missing"},
        {P("\x80\x02u."), -3, "mark"},
        {P("\x80\x02(u."), -3, "container"},
        {P("\x80\x02\x87."), -3, "missing"},
        {P("\x80\x02N(0."), 0, "None"},
        {P("\x80\x02(N0."), -3, "missing"},
        {P("\x80\x02h\x07."), -3, "reference"},
        {P("\x80\x02Nr\xff\xff\xff\xff."), -4, "memory"},
        {P("\x80\x02X\xff\xff\xff\x7f" "a."), -3, "too early"},
        {P("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff."), -3, "too early"},
        {P("\x80\x02" "cno newline"), -3, "too early"},
        {P("\x80\x02N"), -3, "too early"},
        {P("\x80\x02\x82\x01."), -3, "0x82"},
        {P("\x80\x06N."), -3, "protocol"},
        {P("N."), -3, "protocol"},
        {P(""), -3, "protocol"},
    };
#undef P
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char what[512];
        int code = read_pickle(cases[i].bytes, cases[i].size, what, sizeof what);
        if (code != cases[i].code || !strstr(what, cases[i].words))
            fail_msg("case %zu: %d %s", i, code, what);
    }
}

/* A small file must not become a large heap: doubled lists, deep marks. */
static void test_pickle_bombs(void **state)
{
    char what[512];
    size_t n = 100000;
    char *bytes = malloc(n + 2);
    memcpy(bytes, "\x80\x02", 2);
    memset(bytes + 2, '(', n);
    assert_int_equal(read_pickle(bytes, n + 2, what, sizeof what), SAMITE_INPUT);
    assert_non_null(strstr(what, "too deeply"));
    text t = {0};
    text_add(&t, "\x80\x02]", 3);
    for (int i = 0; i < 200; i++)               /* x = [x, x] over and over: 2^200 values for who walks it */
        text_add(&t, "2\x86", 2);
    text_add(&t, ".", 1);
    assert_int_equal(read_pickle(t.data, t.size, what, sizeof what), SAMITE_OK);
    text_free(&t);
    free(bytes);
}

/* Last elements as the reference computes them. */
static void test_formula_bits(void **state)
{
    static const struct { const char *name; int axes; int64_t dim[3]; uint64_t seed; uint32_t last; } cases[] = {
        {"tracker.sam_mask_decoder.pred_obj_score_head.layers.2.bias", 1, {1}, 0, 0x3f6f4863},
        {"tracker.sam_mask_decoder.pred_obj_score_head.layers.2.bias", 1, {1}, 12345678901234567890u, 0x3f87ebea},
        {"detector.\xC3\xA4.proj.weight", 3, {2, 3, 5}, 7, 0x3e715ffe},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float v[30];
        size_t count = cases[i].axes == 1 ? 1 : 30;
        formula_fill(v, cases[i].name, cases[i].axes, cases[i].dim, cases[i].seed);
        assert_memory_equal(&v[count - 1], &cases[i].last, 4);
    }
}

static void test_formula(void **state)
{
    static const int64_t big[2] = {300, 700}, one[1] = {5};
    float *all = malloc(sizeof *all * 300 * 700), v[5], again[5];
    formula_fill(all, "detector.a.weight", 2, big, 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < 300 * 700; i++) {
        sum += all[i];
        squares += (double)all[i] * all[i];
    }
    double n = 300 * 700;
    assert_true(fabs(sum / n) < 3e-4 && fabs(squares / n * 700 - 1) < 0.02);      /* mean 0, variance 1 / 700 */
    free(all);
    formula_fill(v, "tracker.sam_mask_decoder.pred_obj_score_head.layers.2.bias", 1, one, 0);
    for (int i = 0; i < 5; i++)
        assert_true(v[i] >= 0.9f && v[i] <= 1.1f);
    formula_fill(v, "detector.x.bias", 1, one, 0);
    formula_fill(again, "detector.x.bias", 1, one, 1);
    for (int i = 0; i < 5; i++)
        assert_true(fabsf(v[i]) <= 0.1f && v[i] != again[i]);
}

static void test_names(void **state)
{
    static const struct { const char *names[4], *official, *guess; } cases[] = {
        {{"detector.backbone.vision_backbone.trunk.blocks.0.x", "tracker.sam_mask_decoder.x"},
         "detector.backbone.vision_backbone.trunk.blocks.0.x", "SAM 3"},
        {{"backbone.vision_backbone.trunk.blocks.0.x", "inst_interactive_predictor.model.sam_mask_decoder.x"},
         "tracker.sam_mask_decoder.x", "SAM 3"},
        {{"module._orig_mod.backbone.vision_backbone.trunk.blocks.0.x"},
         "detector.backbone.vision_backbone.trunk.blocks.0.x", "a detector-only fine-tune"},
        {{"model.detector.backbone.vision_backbone.trunk.blocks.0.x"},
         "detector.backbone.vision_backbone.trunk.blocks.0.x", "a detector-only fine-tune"},
        {{"image_encoder.trunk.blocks.0.x", "sam_mask_decoder.x"}, "detector.sam_mask_decoder.x", "SAM 2"},
        {{"image_encoder.blocks.0.x"}, "detector.image_encoder.blocks.0.x", "SAM 1"},
        {{"detector.backbone.vision_backbone.trunk.blocks.0.x", "tracker.model.sam_mask_decoder.x"},
         "tracker.model.sam_mask_decoder.x", "SAM 3.1 multiplex"},
        {{"base.q.lora_A.weight", "base.q.lora_B.weight", "base.norm.weight"}, "detector.base.q.lora_A.weight",
         "a LoRA adapter"},
        {{"conv1.weight"}, "detector.conv1.weight", "something else than a SAM model"},
        {{"optimizer.exp_avg.0"}, "detector.optimizer.exp_avg.0", "a training checkpoint without weights"},
    };
    char path[] = "/tmp/samite-formats-XXXXXX";
    assert_true(close(mkstemp(path)) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        samite_error e;
        weights_writer *out;
        weight plan[4] = {0};
        size_t count = 0;
        for (; count < 4 && cases[i].names[count]; count++)
            plan[count] = (weight){.name = cases[i].names[count], .type = DT_U8, .axes = 1, .dim = {1}};
        assert_int_equal(weights_create(&out, path, plan, count, NULL, 0, &e), 0);
        weights_put(out, "abcd", count);
        assert_int_equal(weights_commit(out, &e), 0);
        weights *w = open_good(path);
        assert_non_null(weights_find(w, cases[i].official));
        assert_string_equal(weights_guess(w), cases[i].guess);
        weights_close(w);
    }
    unlink(path);
}

/* Written files of both kinds come back with the same tensors and texts. */
static void check_round_trip(const char *path)
{
    static const text_pair notes[] = {{"samite.config", "{\"text\": \"\xC3\xA4\"}"}, {"empty", ""}};
    samite_error e;
    weights *from = open_good(FOLDER "types.pt");
    size_t count = weights_count(from);
    weight *plan = calloc(count, sizeof *plan);
    for (size_t i = 0; i < count; i++)
        plan[i] = *weights_at(from, i);
    weights_writer *out;
    assert_int_equal(weights_create(&out, path, plan, count, notes, 2, &e), 0);
    for (size_t i = 0; i < count; i++) {
        char bytes[64];
        size_t size = weight_bytes(&plan[i]);
        weight_copy(bytes, &plan[i]);
        weights_put(out, bytes, size / 2);
        weights_put(out, bytes + size / 2, size - size / 2);
    }
    assert_int_equal(weights_commit(out, &e), 0);
    weights *back = open_good(path);
    assert_int_equal(weights_count(back), count);
    for (size_t i = 0; i < count; i++) {
        const weight *a = &plan[i], *b = weights_at(back, i);
        assert_string_equal(a->name, b->name);
        assert_true(a->type == b->type && a->axes == b->axes);
        assert_memory_equal(a->dim, b->dim, sizeof a->dim[0] * (size_t)a->axes);
        assert_memory_equal(a->data, b->data, weight_bytes(a));
    }
    assert_string_equal(weights_metadata(back, "samite.config"), notes[0].value);
    assert_string_equal(weights_metadata(back, "empty"), "");
    weights_close(back);
    weights_close(from);
    free(plan);
}

static void test_round_trip(void **state)
{
    char folder[] = "/tmp/samite-formats-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *pt = path_join(folder, "x.pt"), *st = path_join(folder, "x.safetensors");
    check_round_trip(pt);
    check_round_trip(st);
    file_map m;
    samite_error e;
    assert_int_equal(file_map_open(&m, st, &e), 0);
    assert_int_equal(m.data[0] % 8, 0);                  /* data starts at a multiple of 8 */
    file_map_close(&m);
    zip z;
    assert_int_equal(file_map_open(&m, pt, &e), 0);
    assert_int_equal(zip_open(&z, m.data, m.size, pt, &e), 0);
    for (size_t i = 0; i < z.count; i++)
        assert_int_equal((z.entries[i].data - m.data) % 64, 0);
    zip_close(&z);
    file_map_close(&m);

    weights_writer *out;                                 /* too few or too many bytes: no file, and the old one stays */
    weight plan = {.name = "a", .type = DT_F32, .axes = 1, .dim = {2}};
    for (int i = 0; i < 4; i++) {
        const char *path = i & 1 ? pt : st;
        assert_int_equal(weights_create(&out, path, &plan, 1, NULL, 0, &e), 0);
        weights_put(out, "0123456789", i & 2 ? 10 : 7);
        assert_int_equal(weights_commit(out, &e), SAMITE_FAILED);
    }
    assert_int_equal(weights_create(&out, pt, &plan, 1, NULL, 0, &e), 0);
    weights_abort(out);
    weights_abort(NULL);
    weights *w = open_good(pt);
    assert_int_equal(weights_count(w), 9);
    weights_close(w);
    unlink(pt);
    unlink(st);
    assert_int_equal(rmdir(folder), 0);
    free(pt);
    free(st);
}

/* Every official tensor that official.txt lists is there with its shape and the formula's values. */
static void check_hf(const char *path)
{
    char name[200];
    int64_t d[4];
    weights *w = open_good(path);
    FILE *f = fopen(FOLDER "hf/official.txt", "r");
    assert_non_null(f);
    size_t count = 0;
    for (char line[300]; fgets(line, sizeof line, f); count++) {
        int axes = sscanf(line, "%199s %ld %ld %ld %ld", name, &d[0], &d[1], &d[2], &d[3]) - 1;
        const weight *t = weights_find(w, name);
        if (!t)
            fail_msg("%s: %s is missing", path, name);
        assert_int_equal(t->axes, axes);
        for (int a = 0; a < axes; a++)
            assert_int_equal(t->dim[a], d[a]);
        if (!ends_with(name, "trunk.pos_embed")) {
            check_values(t, DT_BF16);
            continue;
        }
        float got[200], want[200];               /* all but the first row, which is zero */
        size_t row = (size_t)d[2], all = (size_t)weight_count(t);
        assert_true(all <= 200);
        weight_to_f32(got, t);
        formula_fill(want, name, axes, d, 0);
        for (size_t i = 0; i < all; i++)
            assert_true(i < row ? got[i] == 0 : fabsf(got[i] - want[i]) <= 0.005f * fabsf(want[i]));
    }
    fclose(f);
    assert_int_equal(count, 455);
    assert_int_equal(weights_count(w), count + 1);
    assert_string_equal(weights_guess(w), "a Hugging Face transformers SAM 3");
    weights_close(w);
}

/* Rewrites the transformers model with other names; a name that becomes "" is left out. */
static void rewrite_hf(const char *path, void (*rename)(char *out, size_t room, const char *name))
{
    static char names[600][200];
    file_map m;
    samite_error e;
    tensor_list list = {0};
    weights_writer *out;
    assert_int_equal(file_map_open(&m, FOLDER "hf/model.safetensors", &e), 0);
    assert_int_equal(safetensors_read(&list, m.data, m.size, m.path, &e), 0);
    assert_true(list.count <= 600);
    weight *plan = calloc(list.count, sizeof *plan);
    size_t count = 0;
    for (size_t i = 0; i < list.count; i++) {
        rename(names[count], sizeof names[count], list.items[i].name);
        plan[count] = list.items[i];
        plan[count].name = names[count];
        count += names[count][0] != '\0';
    }
    assert_int_equal(weights_create(&out, path, plan, count, NULL, 0, &e), 0);
    for (size_t i = 0; i < count; i++)
        weights_put(out, plan[i].data, weight_bytes(&plan[i]));
    assert_int_equal(weights_commit(out, &e), 0);
    free(plan);
    tensor_list_free(&list);
    file_map_close(&m);
}

/* What a lone Sam3Model and some versions of save_pretrained write. */
static void other_prefixes(char *out, size_t room, const char *name)
{
    const char *plain = starts_with(name, "detector_model.") ? name + strlen("detector_model.") : name;
    const char *text_model = strstr(plain, "text_model.");
    if (starts_with(plain, "tracker_model."))
        snprintf(out, room, "tracker_model.%s", plain);
    else if (text_model)
        snprintf(out, room, "%.*s%s", (int)(text_model - plain), plain, text_model + strlen("text_model."));
    else
        snprintf(out, room, "%s", plain);
}

static void without_one_key(char *out, size_t room, const char *name)
{
    snprintf(out, room, "%s", ends_with(name, "detr_encoder.layers.0.self_attn.k_proj.weight") ? "" : name);
}

static void test_hf(void **state)
{
    char path[] = "/tmp/samite-formats-XXXXXX";
    samite_error e;
    weights *w;
    check_hf(FOLDER "hf");
    w = open_good(FOLDER "hf");
    assert_non_null(strstr(weights_metadata(w, "config.json"), "\"global_attn_indexes\""));
    assert_string_equal(weights_kind(w), "safetensors, transformers naming");
    weights_close(w);
    assert_true(close(mkstemp(path)) == 0);
    rewrite_hf(path, other_prefixes);
    check_hf(path);
    rewrite_hf(path, without_one_key);
    assert_int_equal(weights_open(&w, path, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "detector.transformer.encoder.layers.0.self_attn.in_proj_weight"));
    unlink(path);
}

/* Pieces and strides together: two transposed pieces follow each other. */
static void test_parts(void **state)
{
    float data[12], got[12], want[12] = {0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11};
    for (int i = 0; i < 12; i++)
        data[i] = (float)i;
    weight pieces[2] = {{.type = DT_F32, .axes = 2, .dim = {3, 2}, .stride = {1, 3}, .data = data},
                        {.type = DT_F32, .axes = 2, .dim = {3, 2}, .stride = {1, 3}, .data = data + 6}};
    weight whole = {.name = "x", .type = DT_F32, .axes = 2, .dim = {6, 2}, .stride = {2, 1},
                    .parts = 2, .part = pieces};
    assert_false(weight_contiguous(&whole));
    weight_to_f32(got, &whole);
    assert_memory_equal(got, want, sizeof want);
    weight_copy(got, &whole);
    assert_memory_equal(got, want, sizeof want);
}

/* A large strided tensor is cut into chunks that start anywhere inside a row. */
static void test_large_strided(void **state)
{
    enum { ROWS = 777, COLUMNS = 1013 };
    float *data = malloc(sizeof *data * ROWS * COLUMNS), *got = malloc(sizeof *got * ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (float)i;
    weight w = {.type = DT_F32, .axes = 2, .dim = {COLUMNS, ROWS}, .stride = {1, COLUMNS}, .data = data};
    weight_to_f32(got, &w);
    for (int c = 0; c < COLUMNS; c++)
        for (int r = 0; r < ROWS; r++)
            if (got[c * ROWS + r] != data[r * COLUMNS + c])
                fail_msg("%d %d", c, r);
    free(data);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_files),  cmocka_unit_test(test_order_and_notes),
        cmocka_unit_test(test_types),       cmocka_unit_test(test_views_are_views),
        cmocka_unit_test(test_bad_files),   cmocka_unit_test(test_refused_tensors),
        cmocka_unit_test(test_every_cut),   cmocka_unit_test(test_safetensors_headers),
        cmocka_unit_test(test_shard_index), cmocka_unit_test(test_pickle),
        cmocka_unit_test(test_formula),     cmocka_unit_test(test_pickle_bombs),
        cmocka_unit_test(test_names),       cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_parts),       cmocka_unit_test(test_large_strided),
        cmocka_unit_test(test_hf),          cmocka_unit_test(test_formula_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
