/* convert.c - `samite convert`: writes a model under the official names, in 8 bits too. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "inputs.h"
#include "report.h"
#include "session.h"

typedef struct convert_settings {
    engine_settings engine;
    const char     *type, *pictures;
    words           texts;
    int             count;
    double          bound, nms;
    bool            json, detector_only;
} convert_settings;

#define AT(member) offsetof(convert_settings, member)
static const option options[] = {
    {"--dtype", 0, OPTION_CHOICE, AT(type), "TYPE",
     .help = "f32, f16, bf16 or, with --calibrate, int8 (default: as stored)", .choices = "f32|f16|bf16|int8"},
    {"--calibrate", 0, OPTION_TEXT, AT(pictures), "DIR",
     .help = "int8: pictures on which the loss of every layer is measured"},
    {"--count", 0, OPTION_INT, AT(count), "N", .help = "pictures of DIR to use, spread over it (default: 4)",
     .least = 1, .most = 100000},
    {"--text", 't', OPTION_LIST, AT(texts), "WORDS",
     .help = "prompt for all pictures, may be repeated (default: two common ones for each, in turns)"},
    {"--bound", 0, OPTION_REAL, AT(bound), "X",
     .help = "largest relative error of a layer's output in 8 bits (default: 0.05)", .least = 1e-9, .most = 1e9},
    {"--detector", 0, OPTION_FLAG, AT(detector_only), NULL, .help = "leave out the tracker and the head for clicks"},
    {"--nms", 0, OPTION_REAL, AT(nms), "IOU",
     .help = "what samite segment takes for --nms with OUT (default: as in IN, which is 0 for the official weights)",
     .least = 0, .most = 1},
    {"--json", 0, OPTION_FLAG, AT(json), NULL, .help = "int8: the table of layers as JSON"},
    PROCESSOR_OPTIONS(convert_settings),
    QUIET_OPTION(convert_settings),
    {0}
};

/* ---- the table ---- */

typedef struct table { json_t *rows; int eight; } table;

static void collect(void *user, const samite_calibrated *c)
{
    table *t = user;
    t->eight += c->eight;
    json_t *error = json_number(c->error < 0 ? NAN : c->error);
    json_array_append_new(t->rows, json_pack("{s:s, s:o, s:s, s:s}", "name", c->name, "error", error, "type",
                                             c->eight ? "int8" : "bf16", "why", c->why));
}

static void print_table(const table *t)
{
    size_t i;
    json_t *row;
    printf("%-9s %-5s %-72s %s\n", "error", "type", "tensor", "why");
    json_array_foreach(t->rows, i, row) {
        json_t *error = json_object_get(row, "error");
        const char *why = json_string_value(json_object_get(row, "why"));
        if (json_is_real(error))
            printf("%-9.2e", json_real_value(error));
        else
            printf("%-9s", "-");
        printf(" %-5s %s%s%s\n", json_string_value(json_object_get(row, "type")),
               json_string_value(json_object_get(row, "name")), *why ? ": " : "", why);
    }
    printf("%d of %zu tensors in 8 bits\n", t->eight, json_array_size(t->rows));
}

/* ---- pictures ---- */

/* --count of them, evenly spread; the array is yours, the paths are borrowed. */
static const char **choose(const inputs *all, int *count)
{
    int n = all->count < *count ? all->count : *count;
    const char **list = malloc(sizeof *list * (size_t)(n ? n : 1));
    for (int i = 0; list && i < n; i++)
        list[i] = all->item[(int)((int64_t)i * all->count / n)].path;
    *count = n;
    return list;
}

static int write_int8(samite_model *m, const convert_settings *s, const char *out, samite_error *err)
{
    words folder = {0};
    inputs all = {0};
    table t = {.rows = json_array()};
    samite_calibrate_options o = SAMITE_CALIBRATE_OPTIONS_INIT;
    int count = s->count ? s->count : 4;
    int code = words_add(&folder, s->pictures, err);
    if (!code)
        code = inputs_collect(&all, &folder, false, NULL, err);
    const char **list = code ? NULL : choose(&all, &count);
    if (!code && (!list || !t.rows))
        code = fail(err, SAMITE_RESOURCE, "out of memory for the list of pictures");
    o.pictures = list;
    o.picture_count = count;
    o.texts = s->texts.item;
    o.text_count = s->texts.count;
    o.bound = s->bound;
    o.detector_only = s->detector_only;
    o.nms = (float)s->nms;
    o.each = collect;
    o.user = &t;
    if (!code)
        code = samite_model_calibrate(m, out, &o, err);
    progress_end();
    if (!code && s->json)
        code = print_document(json_pack("{s:i, s:i, s:O}", "pictures", count, "int8", t.eight, "tensors", t.rows), err);
    else if (!code && !s->engine.quiet)
        print_table(&t);
    json_decref(t.rows);
    free(list);
    inputs_free(&all);
    words_free(&folder);
    return code;
}

static int check_settings(const convert_settings *s, const char *out, samite_error *err)
{
    bool eight = s->type && strcmp(s->type, "int8") == 0;
    if (!ends_with(out, ".safetensors") && (eight || !ends_with(out, ".pt")))
        return fail(err, SAMITE_USAGE, "%s: the name to write must end in .safetensors%s", out, eight ? "" : " or .pt");
    if (eight && !s->pictures)
        return fail(err, SAMITE_USAGE, "--dtype int8 needs --calibrate DIR, a folder with a few typical pictures");
    if (!eight && (s->pictures || s->texts.count || s->count || s->bound > 0 || s->json))
        return fail(err, SAMITE_USAGE, "--calibrate, --count, --text, --bound and --json go with --dtype int8");
    return SAMITE_OK;
}

/* Weights are read once: there is nothing to keep. */
static int convert(const convert_settings *s, const char *in, const char *out, samite_error *err)
{
    engine_settings engine = s->engine;
    samite_model *m = NULL;
    samite_write_options o = SAMITE_WRITE_OPTIONS_INIT;
    engine.model = in;
    engine.precision = "f32";
    engine.no_cache = true;
    o.type = s->type;
    o.detector_only = s->detector_only;
    o.nms = (float)s->nms;
    int code = check_settings(s, out, err);
    if (!code)
        code = open_model(&m, &engine, err);
    if (!code)
        code = s->pictures ? write_int8(m, s, out, err) : samite_model_write_with(m, out, &o, err);
    if (!code)
        code = check_interrupt(err);
    samite_model_free(m);
    return code;
}

static int run(int argc, char **argv)
{
    convert_settings s = {.nms = -1};
    samite_error err = {0};
    words rest = {0};
    int status;
    if (command_parse(&convert_command, &s, argc, argv, &rest, 2, 2, &status)) {
        progress_begin(s.engine.quiet);
        int code = convert(&s, rest.item[0], rest.item[1], &err);
        progress_end();
        status = finish_output(code ? report(&err) : EXIT_OK);
    }
    words_free(&s.texts);
    words_free(&rest);
    return status;
}

static const char details[] =
    "OUT ends in .safetensors (sizes are kept in its metadata) or .pt (loads in PyTorch with weights_only=True and in\n"
    "the official code). Tensors have the official names. OUT appears whole or not at all.\n"
    "\n"
    "--dtype int8 computes pictures and prompts in f32, measures for every big product how far its output in 8 bits is\n"
    "off, and keeps those above --bound in bf16; the table says which and why, and so does OUT. Every command opens\n"
    "OUT and computes it in 8 bits where the processor can, unless --precision says otherwise.\n"
    "\n"
    "Examples:\n"
    "  samite convert sam3.pt sam3-bf16.safetensors --dtype bf16\n"
    "  samite convert sam3.pt sam3-int8.safetensors --dtype int8 --calibrate photos\n"
    "  samite convert hf-folder sam3.pt\n"
    "  samite convert formula:tiny tiny.safetensors\n";

const command convert_command = {
    "convert", "write a model as .safetensors or .pt",
    "convert IN OUT [--dtype f32|f16|bf16 | --dtype int8 --calibrate DIR] [options]", details, options, run,
};
