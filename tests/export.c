/* export.c - files for other engines: their structure, their weights, and what happens with bad ones. */
#include "export_help.h"

/* ---- wire format ---- */

static void protobuf_comes_back(void **state)
{
    text m = {0}, inner = {0};
    pb_varint(&inner, 7, UINT64_MAX);
    pb_varint(&m, 1, 300);
    pb_float(&m, 2, 1.5f);
    pb_message(&m, 3, &inner);
    pb_string(&m, 1000, "end");
    assert_memory_equal(m.data, "\x08\xac\x02", 3);
    pb_reader r = pb_read(m.data, m.size);
    pb_field f, g;
    assert_true(pb_next(&r, &f) && f.number == 1 && f.value == 300);
    assert_true(pb_next(&r, &f) && f.number == 2 && f.wire == 5 && f.value == 0x3FC00000);
    assert_true(pb_next(&r, &f) && f.number == 3);
    pb_reader in = pb_read(f.data, f.size);
    assert_true(pb_next(&in, &g) && g.value == UINT64_MAX && !pb_next(&in, &g) && !in.broken);
    assert_true(pb_next(&r, &f) && f.number == 1000 && f.size == 3 && !memcmp(f.data, "end", 3));
    assert_false(pb_next(&r, &f) || r.broken);
    for (size_t n = 1; n < m.size; n++) {
        r = pb_read(m.data, n);
        while (pb_next(&r, &f))
            assert_true(!f.data || f.data + f.size <= (uint8_t *)m.data + n);
    }
    text_free(&m);
}

static void integers_packed_or_not(void **state)
{
    int64_t v[3];
    int n = 0;
    pb_field f = {.wire = 2, .data = (const uint8_t *)"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", .size = 11};
    assert_true(pb_integers(&f, v, &n, 3));
    assert_int_equal(n, 2);
    assert_int_equal(v[1], -1);
    assert_true(pb_integers(&(pb_field){.wire = 0, .value = 9}, v, &n, 3));
    assert_int_equal(v[2], 9);
    assert_false(pb_integers(&(pb_field){.wire = 0, .value = 9}, v, &n, 3));
}

/* ---- structure ---- */

typedef struct expected {
    const char *name;
    int         type, axes;
    int64_t     dim[4];
} expected;

static void has_values(const onnx_value_info *v, size_t count, const expected *want)
{
    for (size_t i = 0; i < count; i++) {
        if (!want[i].name)
            fail_msg("more values than %s", i ? want[i - 1].name : "none");
        if (!onnx_is(v[i].name, want[i].name) || v[i].type != want[i].type || v[i].axes != want[i].axes ||
            memcmp(v[i].dim, want[i].dim, sizeof(int64_t) * (size_t)v[i].axes))
            fail_msg("%.*s where %s was expected, or another shape", (int)v[i].name.n, v[i].name.s, want[i].name);
    }
    assert_null(want[count].name);
}

/* Names, types, shapes and order of all three parts, as deployments know them. */
static void names_and_shapes(void **state)
{
    enum { F = 1, I = 7 };
    static const struct { const char *file; expected in[8], out[9];
    } parts[] = {
        {"image_encoder.onnx",
         {{"image", F, 4, {1, 3, 112, 112}}},
         {{"vision_features", F, 4, {1, 64, 8, 8}},
          {"vision_pos_enc_0", F, 4, {1, 64, 32, 32}},
          {"vision_pos_enc_1", F, 4, {1, 64, 16, 16}},
          {"vision_pos_enc_2", F, 4, {1, 64, 8, 8}},
          {"backbone_fpn_0", F, 4, {1, 64, 32, 32}},
          {"backbone_fpn_1", F, 4, {1, 64, 16, 16}},
          {"backbone_fpn_2", F, 4, {1, 64, 8, 8}}}},
        {"text_encoder.onnx",
         {{"token_ids", I, 2, {1, 32}}},
         {{"text_attention_mask", F, 2, {1, 32}}, {"text_memory_resized", F, 3, {32, 1, 64}}}},
        {"grounding_head.onnx",
         {{"backbone_fpn_0", F, 4, {1, 64, 32, 32}},
          {"backbone_fpn_1", F, 4, {1, 64, 16, 16}},
          {"backbone_fpn_2", F, 4, {1, 64, 8, 8}},
          {"vision_pos_enc_2", F, 4, {1, 64, 8, 8}},
          {"text_memory_resized", F, 3, {32, 1, 64}},
          {"text_attention_mask_float", F, 2, {1, 32}}},
         {{"pred_logits", F, 4, {2, 1, 12, 1}},
          {"pred_boxes", F, 4, {2, 1, 12, 4}},
          {"pred_masks", F, 4, {1, 12, 32, 32}},
          {"presence_logit_dec", F, 3, {2, 1, 1}}}},
    };
    for (size_t i = 0; i < 3; i++) {
        onnx_file f;
        samite_error e = {0};
        if (onnx_check(path_of(folder, parts[i].file), false, &e) || onnx_open(&f, path_of(folder, parts[i].file), &e))
            fail_msg("%s", e.text);
        assert_int_equal(f.opset, 17);
        has_values(f.input, f.inputs, parts[i].in);
        has_values(f.output, f.outputs, parts[i].out);
        char *meta = onnx_meta(&f, "samite.config");
        assert_non_null(meta);
        free(meta);
        onnx_close(&f);
    }
}

/* Names are made of what converters take, and say which layer they belong to. */
static void nodes_have_good_names(void **state)
{
    onnx_file f;
    bool found = false;
    assert_int_equal(onnx_open(&f, path_of(folder, "image_encoder.onnx"), NULL), 0);
    for (size_t i = 0; i < f.nodes; i++) {
        for (size_t k = 0; k < f.node[i].name.n; k++)
            if (!memchr("_./-", f.node[i].name.s[k], 4) &&
                !((f.node[i].name.s[k] | 32) >= 'a' && (f.node[i].name.s[k] | 32) <= 'z') &&
                !(f.node[i].name.s[k] >= '0' && f.node[i].name.s[k] <= '9'))
                fail_msg("node name %.*s", (int)f.node[i].name.n, f.node[i].name.s);
        found |= onnx_is(f.node[i].name, "detector.backbone.vision_backbone.trunk.blocks.1.attn.qkv/MatMul");
    }
    assert_true(found);
    onnx_close(&f);
}

/* Weights come back bit by bit: plain ones as they are, matrices transposed, rotated rows in their order. */
static void weights_come_back(void **state)
{
    native *n;
    onnx_file f;
    samite_error e = {0};
    int seen = 0, turned = 0;
    assert_int_equal(native_open(&n, "formula:tiny", &(native_options){0}, &e), 0);
    assert_int_equal(onnx_open(&f, path_of(folder, "image_encoder.onnx"), &e), 0);
    for (size_t i = 0; i < n->net->all.count; i++) {
        const entry *w = n->net->all.entries[i];
        const onnx_tensor_info *t = onnx_find_tensor(&f, w->p.name);
        char name[300];
        snprintf(name, sizeof name, "%s/T", w->p.name);
        const onnx_tensor_info *back = onnx_find_tensor(&f, name);
        if (!t && !back)
            continue;
        float *values = native_values(n, w);
        seen++;
        if (t) {
            assert_memory_equal(t->data, values, t->bytes);
        } else {
            int64_t rows = back->dim[1], cols = back->dim[0];
            turned++;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++)
                    if (memcmp((const float *)back->data + c * rows + r, values + r * cols + c, sizeof(float)))
                        fail_msg("%s differs at %d, %d", name, (int)r, (int)c);
        }
        free(values);
    }
    assert_true(seen > 40 && turned >= 4 * 3);
    onnx_close(&f);
    native_close(n);
}

/* Queries and keys of rotated attention: in each head first the even rows, then the odd ones. */
static void rotated_rows_are_in_order(void **state)
{
    float values[12 * 2], out[12 * 2];
    param p = {.name = "p", .t = {.axes = 2, .dim = {12, 2}, .stride = 2}};
    static const int order[12] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 9, 10, 11};
    for (int i = 0; i < 24; i++)
        values[i] = (float)i;
    view_fill(out, &(weight_view){.p = &p, .rows = 12, .halves = 4, .halves_to = 8}, values);
    for (int r = 0; r < 12; r++)
        for (int c = 0; c < 2; c++)
            assert_true(out[2 * r + c] == (float)(2 * order[r] + c));
    view_fill(out, &(weight_view){.p = &p, .first = 8, .rows = 4, .transpose = true}, values);
    for (int r = 0; r < 4; r++)
        assert_true(out[r] == (float)(2 * (8 + r)) && out[4 + r] == (float)(2 * (8 + r) + 1));
}

static void every_op_has_a_row(void **state)
{
    static const char *const ops[] = {"linear",        "product",         "attention",
                                      "norm",          "group_norm",      "conv",
                                      "conv_up2",      "patches",         "window_partition",
                                      "window_merge",  "max_pool2",       "add",
                                      "multiply",      "scale",           "activate",
                                      "clamp",         "inverse_sigmoid", "detach",
                                      "reshape",       "columns",         "rows",
                                      "concat",        "pad_front",       "copy",
                                      "repeat",        "gather_rows",     "embed",
                                      "masked_mean",   "upsample_add",    "resize_bilinear",
                                      "roi_align",     "point_sample",    "sine_embed",
                                      "box_distances", "fourier_embed"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!lower_knows(ops[i]))
            fail_msg("there is no row for %s", ops[i]);
    assert_false(lower_knows("no such op"));
}

/* Weights in a file of their own: the same numbers, aligned. */
static void weights_beside(void **state)
{
    char where[64];
    export_to(where, "formula:tiny", 1);
    onnx_file a, b;
    assert_int_equal(onnx_open(&a, path_of(folder, "text_encoder.onnx"), NULL), 0);
    assert_int_equal(onnx_open(&b, path_of(where, "text_encoder.onnx"), NULL), 0);
    assert_int_equal(a.tensors, b.tensors);
    int outside = 0;
    for (size_t i = 0; i < a.tensors; i++) {
        assert_int_equal(a.tensor[i].bytes, b.tensor[i].bytes);
        assert_memory_equal(a.tensor[i].data, b.tensor[i].data, a.tensor[i].bytes);
        outside += b.tensor[i].external;
        if (b.tensor[i].external && b.tensor[i].bytes >= 1 << 20)
            assert_int_equal(b.tensor[i].offset % ONNX_ALIGN, 0);
    }
    assert_true(outside > 10);
    onnx_close(&a);
    onnx_close(&b);

    samite_error e = {0};
    copy_file(path_of(where, "cut"), path_of(where, "text_encoder.onnx.data"), 5000);
    rename(path_of(where, "cut"), path_of(where, "text_encoder.onnx.data"));
    assert_int_equal(onnx_check(path_of(where, "text_encoder.onnx"), false, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "too short"));
}

/* ---- bad files ---- */

typedef struct odd { const char *what; void (*make)(onnx_writer *w); const char *said; } odd;

static bool fill_zeros(void *user, size_t index, void *out, size_t bytes)
{
    memset(out, 0, bytes);
    return true;
}

static void add_node(onnx_writer *w, const char *name, const char *in, const char *out)
{
    onnx_node(w, "Relu", name, &in, 1, &out, 1);
}

static void used_too_early(onnx_writer *w)
{
    add_node(w, "a", "y", "z");
    add_node(w, "b", "x", "y");
}

static void made_twice(onnx_writer *w)
{
    add_node(w, "a", "x", "z");
    add_node(w, "b", "x", "z");
}

static void named_twice(onnx_writer *w)
{
    add_node(w, "a", "x", "y");
    add_node(w, "a", "y", "z");
}

static void nothing_made(onnx_writer *w)
{
    add_node(w, "a", "x", "y");
}

static void free_dimension(onnx_writer *w)
{
    add_node(w, "a", "x", "z");
    onnx_value(w, ONNX_INPUT, "n", DT_F32, 1, (int64_t[]){-1}, "n");
}

static void check_finds(void **state)
{
    static const odd odds[] = {
        {"order", used_too_early, "used before it is made"}, {"values", made_twice, "made twice"},
        {"nodes", named_twice, "name of two nodes"}, {"outputs", nothing_made, "nothing makes"},
        {"dimensions", free_dimension, "no number above 0"},
    };
    for (size_t i = 0; i < sizeof odds / sizeof *odds; i++) {
        const char *path = path_of(folder, "odd.onnx");
        samite_error e = {0};
        onnx_writer *w = onnx_writer_new();
        odds[i].make(w);
        onnx_value(w, ONNX_INPUT, "x", DT_F32, 1, (int64_t[]){1}, NULL);
        onnx_value(w, ONNX_OUTPUT, "z", DT_F32, 1, (int64_t[]){1}, NULL);
        assert_int_equal(onnx_write(w, path, "odd", "0", false, fill_zeros, NULL, &e), 0);
        onnx_writer_free(w);
        assert_int_equal(onnx_check(path, false, &e), SAMITE_FAILED);
        if (!strstr(e.text, odds[i].said))
            fail_msg("%s: said %s", odds[i].what, e.text);
    }
}

/* A model whose tensor lies in a data file of the given name. */
static void write_external(const char *path, const char *location)
{
    text tensor = {0}, graph = {0}, model = {0};
    const char *const pairs[][2] = {{"location", location}, {"offset", "0"}, {"length", "4"}};
    pb_varint(&tensor, 1, 1);
    pb_varint(&tensor, 2, 1);
    pb_string(&tensor, 8, "t");
    for (int i = 0; i < 3; i++) {
        text pair = {0};
        pb_string(&pair, 1, pairs[i][0]);
        pb_string(&pair, 2, pairs[i][1]);
        pb_message(&tensor, 13, &pair);
    }
    pb_message(&graph, 5, &tensor);
    pb_message(&model, 7, &graph);
    FILE *f = fopen(path, "wb");
    fwrite(model.data, 1, model.size, f);
    fclose(f);
    text_free(&model);
}

static void data_stays_in_its_folder(void **state)
{
    static const char *const refused[] = {"/etc/passwd", "../x", "a/../../x", "..", "", "a\\b"};
    const char *path = path_of(folder, "odd.onnx");
    onnx_file f;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        samite_error e = {0};
        write_external(path, refused[i]);
        assert_int_equal(onnx_open(&f, path, &e), SAMITE_INPUT);
        assert_non_null(strstr(e.text, "allowed"));
    }
    copy_file(path_of(folder, "good.data"), path, 4);
    write_external(path, "good.data");
    assert_int_equal(onnx_open(&f, path, NULL), 0);
    assert_ptr_equal(f.tensor[0].data, f.data.data);
    onnx_close(&f);
}

/* Cut anywhere, a file is refused; nothing is read behind its end. */
static void cut_files_are_refused(void **state)
{
    uint8_t *data;
    size_t size;
    assert_int_equal(file_read(&data, &size, path_of(folder, "image_encoder.onnx"), 1 << 26, NULL), 0);
    free(data);
    for (size_t n = 0; n < size; n += size / 23 + 1) {
        onnx_file f;
        copy_file(path_of(folder, "odd.onnx"), path_of(folder, "image_encoder.onnx"), n);
        assert_int_equal(onnx_open(&f, path_of(folder, "odd.onnx"), NULL), SAMITE_INPUT);
    }
}

static void bad_requests(void **state)
{
    samite_error e = {0};
    samite_model *m = open_model("formula:tiny", NULL);
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    o.folder = folder;
    o.prompt_length = 33;
    assert_int_equal(samite_export_onnx(m, &o, &e), SAMITE_USAGE);
    assert_non_null(strstr(e.text, "3 to 32"));
    o.prompt_length = 0;
    o.folder = path_of(folder, "image_encoder.onnx");
    assert_int_not_equal(samite_export_onnx(m, &o, &e), 0);
    o.folder = folder;
    o.library = "/no/such/library.so";
    assert_int_equal(samite_export_check(m, &o, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "/no/such/library.so"));
    samite_model_free(m);
}

static int counted;

static int fail_at_text(void *user, const char *what, uint64_t done, uint64_t all)
{
    return done == EXPORT_TEXT;
}

static int count_one(const char *path, const struct stat *s, int kind, struct FTW *place)
{
    counted++;
    return 0;
}

static int files_in(const char *where)
{
    counted = 0;
    nftw(where, count_one, 8, FTW_PHYS);
    return counted;
}

/* Stopped after the first part: nothing of it stays, what was there stays as it was, and a new folder is gone again. */
static void all_parts_or_none(void **state)
{
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_options stop = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m;
    char where[64];
    make_folder(where);
    copy_file(path_of(where, "image_encoder.onnx"), path_of(folder, "image_encoder.onnx"), 100);
    int before = files_in(where);
    stop.progress = fail_at_text;
    assert_int_equal(samite_model_open(&m, "formula:tiny", &stop, &e), 0);
    o.folder = where;
    assert_int_equal(samite_export_onnx(m, &o, &e), SAMITE_CANCELLED);
    assert_int_equal(samite_export_paddle(m, &o, &e), SAMITE_CANCELLED);
    assert_int_equal(files_in(where), before);
    o.folder = path_of(where, "new");
    o.soc = "Ascend310P3";
    assert_int_equal(samite_export_ascend(m, &o, &e), SAMITE_CANCELLED);
    assert_int_equal(files_in(where), before);
    samite_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protobuf_comes_back), cmocka_unit_test(integers_packed_or_not),
        cmocka_unit_test(names_and_shapes), cmocka_unit_test(nodes_have_good_names),
        cmocka_unit_test(weights_come_back), cmocka_unit_test(rotated_rows_are_in_order),
        cmocka_unit_test(every_op_has_a_row), cmocka_unit_test(weights_beside), cmocka_unit_test(check_finds),
        cmocka_unit_test(data_stays_in_its_folder), cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(bad_requests), cmocka_unit_test(all_parts_or_none),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
