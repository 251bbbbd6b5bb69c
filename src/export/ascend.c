/* ascend.c - scripts and settings for ATC, the converter of Ascend NPUs, made from the ONNX files themselves. */
#include "export/ascend.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/onnx.h"

static const struct { const char *name, *flag; bool lists; } precisions[] = {
    {"fast", "force_fp16", false},
    {"mixed", "allow_mix_precision", true},
    {"exact", "must_keep_origin_dtype", false},
};

bool ascend_precision(const char *precision)
{
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (!strcmp(precisions[i].name, precision))
            return true;
    return false;
}

/* Operations whose results suffer from f16: norms, softmax, position codes, boxes. */
static bool is_delicate(onnx_name op)
{
    static const char *const names[] = {
        "ReduceMean", "Sqrt", "LayerNormalization", "InstanceNormalization", "Softmax", "Sin", "Cos", "Log", "Sigmoid",
        "Sign",       "Div"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (onnx_is(op, names[i]))
            return true;
    return false;
}

static int write_text(const char *folder, const char *name, const text *t, bool program, samite_error *err)
{
    char *path = path_join(folder, name);
    file_writer w;
    int code = path && !t->failed ? file_writer_open(&w, path, err)
                                  : fail(err, SAMITE_RESOURCE, "not enough memory to write %s", name);
    if (!code) {
        file_write(&w, t->data ? t->data : "", t->size);
        code = file_writer_commit(&w, err);
    }
    if (!code && program)
        chmod(path, 0755);
    free(path);
    return code;
}

/* "a:1,3,1008,1008;b:1,32" */
static void add_shapes(text *t, const onnx_file *f)
{
    for (size_t i = 0; i < f->inputs; i++) {
        text_printf(t, "%s%.*s:", i ? ";" : "", (int)f->input[i].name.n, f->input[i].name.s);
        for (int k = 0; k < f->input[i].axes; k++)
            text_printf(t, "%s%lld", k ? "," : "", (long long)f->input[i].dim[k]);
    }
}

static void add_command(text *t, const onnx_file *f, const char *part, const ascend_options *o, bool image)
{
    const char *flag = "";
    bool lists = false;
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++)
        if (!strcmp(precisions[i].name, o->precision)) {
            flag = precisions[i].flag;
            lists = precisions[i].lists;
        }
    text_printf(
        t,
        "\necho \"%s\"\natc --framework=5 --model=%s.onnx --output=%s --soc_version=\"$soc\" \\\n    --input_shape=\"",
        part, part, part);
    add_shapes(t, f);
    text_printf(t, "\" --input_format=%s \\\n    --precision_mode=%s --log=error", image ? "NCHW" : "ND", flag);
    if (lists)
        text_printf(t, " --keep_dtype=keep_dtype_%s.txt", part);
    if (image && o->aipp)
        text_printf(t, " --insert_op_conf=aipp.cfg");
    text_printf(t, "\n");
}

static int add_part(text *script, json_t *parts, const char *folder, export_part p, const ascend_options *o,
                    samite_error *err)
{
    char name[80], listing[80];
    text keep = {0};
    onnx_file f;
    snprintf(name, sizeof name, "%s.onnx", export_part_name(p));
    snprintf(listing, sizeof listing, "keep_dtype_%s.txt", export_part_name(p));
    char *path = path_join(folder, name);
    int code = path ? onnx_open(&f, path, err) : fail(err, SAMITE_RESOURCE, "not enough memory to read %s", name);
    free(path);
    if (code)
        return code;
    add_command(script, &f, export_part_name(p), o, p == EXPORT_IMAGE);
    for (size_t i = 0; i < f.nodes; i++)
        if (is_delicate(f.node[i].op))
            text_printf(&keep, "%.*s\n", (int)f.node[i].name.n, f.node[i].name.s);
    json_t *inputs = json_array();
    for (size_t i = 0; i < f.inputs; i++) {
        json_t *dims = json_array();
        for (int k = 0; k < f.input[i].axes; k++)
            json_array_append_new(dims, json_integer(f.input[i].dim[k]));
        json_array_append_new(inputs,
                              json_pack("{s:s%, s:o}", "name", f.input[i].name.s, f.input[i].name.n, "shape", dims));
    }
    json_object_set_new(parts, export_part_name(p), inputs);
    onnx_close(&f);
    code = write_text(folder, listing, &keep, false, err);
    text_free(&keep);
    return code;
}

static int write_script(const char *folder, unsigned parts, const ascend_options *o, json_t *listing, samite_error *err)
{
    text t = {0};
    int code = 0;
    text_printf(
        &t,
        "#!/bin/sh\n# Converts the parts for Ascend NPUs. Usage: ./convert.sh [SOC]   SOC as npu-smi info shows the "
        "chip, with\n# \"Ascend\" in front. Set up CANN before: . /usr/local/Ascend/ascend-toolkit/set_env.sh\n"
        "set -eu\ncd \"$(dirname \"$0\")\"\nsoc=${1:-%s}\n"
        "command -v atc >/dev/null || { echo \"atc is not there: run set_env.sh of CANN first\" >&2; exit 1; }\n",
        o->soc);
    for (int p = 0; p < EXPORT_PARTS && !code; p++)
        if (parts >> p & 1)
            code = add_part(&t, listing, folder, (export_part)p, o, err);
    if (!code)
        code = write_text(folder, "convert.sh", &t, true, err);
    text_free(&t);
    return code;
}

/* (x - 127.5) / 127.5: the same as (x / 255 - 0.5) / 0.5. */
static int write_aipp(const char *folder, const ascend_options *o, samite_error *err)
{
    text t = {0};
    text_printf(
        &t,
        "aipp_op {\n    aipp_mode: static\n    related_input_rank: 0\n    input_format: RGB888_U8\n"
        "    src_image_size_w: %d\n    src_image_size_h: %d\n    csc_switch: false\n    rbuv_swap_switch: false\n",
        o->side, o->side);
    for (int i = 0; i < 3; i++)
        text_printf(&t, "    min_chn_%d: 127.5\n    var_reci_chn_%d: 0.00784313725490196\n", i, i);
    text_printf(&t, "}\n");
    int code = write_text(folder, "aipp.cfg", &t, false, err);
    text_free(&t);
    return code;
}

static int write_listing(const char *folder, const ascend_options *o, json_t *parts, samite_error *err)
{
    text t = {0};
    json_t *all = json_pack("{s:s, s:s, s:i, s:i, s:O}", "samite.config", o->config, "samite.source", o->source, "side",
                            o->side, "prompt", o->prompt, "parts", parts);
    char *json = all ? json_dumps(all, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    text_printf(&t, "%s\n", json ? json : "");
    int code =
        json ? write_text(folder, "parts.json", &t, false, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
    free(json);
    json_decref(all);
    text_free(&t);
    return code;
}

static int write_readme(const char *folder, const ascend_options *o, samite_error *err)
{
    text t = {0};
    text_printf(&t,
                "# SAM 3 for Ascend NPUs\n\n"
                "Exported from %s for %s, precision %s.\n\n"
                "1. On a machine with CANN: `. /usr/local/Ascend/ascend-toolkit/set_env.sh`, then `./convert.sh` here. "
                "It makes one\n"
                "   .om file of each .onnx file. Another chip: `./convert.sh Ascend910B3` (the name that `npu-smi "
                "info` shows, with\n"
                "   Ascend in front). The .onnx files are no longer needed then; keep parts.json.\n"
                "2. On the machine with the NPU: `samite segment photo.jpg --engine ascend --parts . --text dog`. "
                "Another device than\n"
                "   the first: `--engine ascend:1`.\n"
                "3. To see whether it computes what it should: `samite align -m MODEL --engine ascend --parts . --image "
                "photo.jpg --text dog`\n"
                "   compares every output of every part with samite's own, on the same inputs. Expected in f16: cosines of "
                "at least 0.999,\n"
                "   differences of at most 0.05 of an output's largest value, scores that differ by less than 0.02; exit "
                "status 1 otherwise.\n\n"
                "Precision: `fast` computes in f16; `mixed` keeps norms, softmax and positions in f32 (lists "
                "keep_dtype_*.txt);\n"
                "`exact` keeps everything as it is. Pictures are RGB, resized to %d x %d without keeping the aspect "
                "ratio, and\n"
                "normalised with mean 0.5 and deviation 0.5%s.\n\n"
                "No NPU was at hand when this was written: the files follow the documentation of CANN, and the program "
                "was tested\n"
                "against a stand-in for its runtime.\n",
                o->source, o->soc, o->precision, o->side, o->side,
                o->aipp ? "; here the chip does the latter (aipp.cfg)" : "");
    int code = write_text(folder, "README.md", &t, false, err);
    text_free(&t);
    return code;
}

int ascend_write(const char *folder, unsigned parts, const ascend_options *o, samite_error *err)
{
    json_t *listing = json_object();
    int code = listing ? write_script(folder, parts, o, listing, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
    if (!code && o->aipp)
        code = write_aipp(folder, o, err);
    if (!code)
        code = write_listing(folder, o, listing, err);
    json_decref(listing);
    return code ? code : write_readme(folder, o, err);
}
