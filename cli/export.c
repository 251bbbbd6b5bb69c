/* export.c - `samite export`: files for other engines. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "session.h"

typedef struct export_settings {
    engine_settings engine;
    const char     *out, *parts, *weights, *by, *library, *soc, *precision, *type;
    int             prompt, batch, boxes, points;
    bool            check, aipp;
} export_settings;

/* A number, or "dynamic". */
static int parse_count(void *to, const char *name, const char *value, samite_error *err)
{
    double n = -1;
    if (strcmp(value, "dynamic") != 0 && (!parse_number(&n, value) || n < 1 || n > 64 || n != (int)n))
        return fail(err, SAMITE_USAGE, "%s: \"%s\" is no number from 1 to 64, and not dynamic", name, value);
    *(int *)to = (int)n;
    return SAMITE_OK;
}

static const option options[] = {
    MODEL_OPTION(export_settings),
    {"--out", 'o', OPTION_TEXT, offsetof(export_settings, out), "DIR", .help = "folder for the files"},
    {"--parts", 0, OPTION_TEXT, offsetof(export_settings, parts), "LIST",
     .help = "image, text, grounding, click, memory, separated by commas (default: image,text,grounding)"},
    {"--size", 0, OPTION_INT, offsetof(export_settings, engine.side), "PIXELS",
     .help = "side of the square the network sees (default: the model's own)", .least = 1, .most = 65536},
    {"--prompt-len", 0, OPTION_INT, offsetof(export_settings, prompt), "N",
     .help = "tokens of a prompt, padding included (default: 32)", .least = 3, .most = 1024},
    {"--boxes", 0, OPTION_INT, offsetof(export_settings, boxes), "N",
     .help = "example boxes that the head takes besides words (default: none)", .least = 1, .most = 64},
    {"--points", 0, OPTION_CALL, offsetof(export_settings, points), "N",
     .help = "points of a click prompt, corners of a box included, or dynamic (default: 4)", .parse = parse_count},
    {"--dtype", 0, OPTION_CHOICE, offsetof(export_settings, type), "TYPE",
     .help = "onnx: f32, or f16 for weights and products (default: f32)", .choices = "f32|f16"},
    {"--batch", 0, OPTION_CALL, offsetof(export_settings, batch), "N",
     .help = "onnx: pictures at once, or dynamic (default: 1)", .parse = parse_count},
    {"--weights", 0, OPTION_CHOICE, offsetof(export_settings, weights), "PLACE",
     .help = "inside the .onnx file or in one beside it (default: beside from 1 GB on)", .choices = "inside|beside"},
    {"--soc", 0, OPTION_TEXT, offsetof(export_settings, soc), "CHIP", .help = "ascend: Ascend310P3, Ascend910B3, ..."},
    {"--precision", 0, OPTION_CHOICE, offsetof(export_settings, precision), "KIND",
     .help = "ascend: fast, mixed or exact (default: fast)", .choices = "fast|mixed|exact"},
    {"--aipp", 0, OPTION_FLAG, offsetof(export_settings, aipp), NULL,
     .help = "ascend: pictures as 8-bit RGB, normalised on the chip"},
    {"--check", 0, OPTION_FLAG, offsetof(export_settings, check), NULL,
     .help = "run the files in another engine and compare every output with this one's"},
    {"--by", 0, OPTION_TEXT, offsetof(export_settings, by), "ENGINE",
     .help = "engine of the check: onnxruntime[:PROVIDER], openvino[:DEVICE] (default: onnxruntime)"},
    {"--ort", 0, OPTION_TEXT, offsetof(export_settings, library), "FILE",
     .help = "its library (default: $SAMITE_ONNXRUNTIME, else the system's, else a python package's)"},
    {"--threads", 'j', OPTION_INT, offsetof(export_settings, engine.threads), "N", .help = "threads of the check",
     .least = 1, .most = 4096},
    QUIET_OPTION(export_settings),
    {0}};

static int parts_from(unsigned *parts, const char *list, samite_error *err)
{
    static const struct { const char *name; unsigned parts;
    } names[] = {{"image", SAMITE_PART_IMAGE},
                 {"text", SAMITE_PART_TEXT},
                 {"head", SAMITE_PART_HEAD},
                 {"grounding", SAMITE_PART_HEAD},
                 {"click", SAMITE_PARTS_CLICK},
                 {"memory", SAMITE_PARTS_MEMORY}};
    *parts = 0;
    while (list && *list) {
        size_t n = strcspn(list, ",");
        unsigned found = 0;
        for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
            if (strlen(names[i].name) == n && !strncmp(names[i].name, list, n))
                found = names[i].parts;
        if (!found)
            return fail(err, SAMITE_USAGE, "--parts: \"%.*s\" is none of image, text, grounding, click, memory", (int)n, list);
        *parts |= found;
        list += n + (list[n] == ',');
    }
    return SAMITE_OK;
}

/* One line per output; a heading first. */
static void print_compared(void *user, const samite_compared *c)
{
    bool *begun = user;
    if (!*begun)
        printf("%-46s %12s %12s\n", "output", "max |diff|", "cosine");
    *begun = true;
    printf("%-46s %12.3g %12.8f%s%s\n", c->name, c->max_difference, c->cosine, c->within ? "" : "  OUT OF TOLERANCE ",
           c->note);
    fflush(stdout);
}

typedef int (*export_fn)(samite_model *m, const samite_export_options *o, samite_error *err);

static const struct {
    const char *name;
    export_fn   run;
} formats[] = {{"onnx", samite_export_onnx}, {"paddle", samite_export_paddle}, {"ascend", samite_export_ascend}};

static export_fn format_of(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(formats[i].name, name))
            return formats[i].run;
    return NULL;
}

/* Options that mean nothing for this format are refused, not passed over. */
static int check_options(const export_settings *s, export_fn write, samite_error *err)
{
    bool onnx = write == samite_export_onnx;
    if (s->check && write == samite_export_paddle)
        return fail(err, SAMITE_USAGE, "--check does not work for paddle");
    if (s->points < 0 && !onnx)
        return fail(err, SAMITE_USAGE, "--points dynamic works for onnx: give a number");
    if (s->batch && !onnx)
        return fail(err, SAMITE_USAGE, "--batch works for onnx");
    if (s->type && !strcmp(s->type, "f16") && !onnx)
        return fail(err, SAMITE_USAGE, "--dtype f16 works for onnx%s",
                    write == samite_export_ascend ? "; for ascend --precision says what the chip computes in" : "");
    if (s->weights && write == samite_export_paddle)
        return fail(err, SAMITE_USAGE, "--weights works for onnx and ascend: parameters of paddle have their own file");
    if ((s->soc || s->precision || s->aipp) && write != samite_export_ascend)
        return fail(err, SAMITE_USAGE, "--soc, --precision and --aipp work for ascend");
    if ((s->by || s->library) && !s->check)
        return fail(err, SAMITE_USAGE, "--by and --ort go with --check");
    if (s->parts && !*s->parts)
        return fail(err, SAMITE_USAGE, "--parts names no part: image, text, grounding, click, memory");
    if (!s->out)
        return fail(err, SAMITE_USAGE, "say where the files shall go: --out DIR");
    return SAMITE_OK;
}

static int export_model(const export_settings *s, const char *format, samite_error *err)
{
    export_fn write = format_of(format);
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    samite_model *m;
    bool begun = false;
    if (!write)
        return fail(err, SAMITE_USAGE, "\"%s\" is no format: onnx, paddle or ascend", format);
    int code = check_options(s, write, err);
    if (code)
        return code;
    code = parts_from(&o.parts, s->parts, err);
    if (!code)
        code = open_model(&m, &s->engine, err);
    if (code)
        return code;
    o.folder = s->out;
    o.prompt_length = s->prompt;
    o.external = !s->weights ? 0 : !strcmp(s->weights, "beside") ? 1 : -1;
    o.engine = s->by;
    o.library = s->library;
    o.half = s->type && !strcmp(s->type, "f16");
    o.batch = s->batch;
    o.boxes = s->boxes;
    o.points = s->points;
    o.soc = s->soc;
    o.precision = s->precision;
    o.aipp = s->aipp;
    o.each = print_compared;
    o.user = &begun;
    code = write(m, &o, err);
    if (!code)
        code = check_interrupt(err);
    if (!code && s->check)
        code = samite_export_check(m, &o, err);
    samite_model_free(m);
    return code;
}

static int run(int argc, char **argv)
{
    export_settings s = {0};
    samite_error err = {0};
    words rest = {0};
    int status;
    if (command_parse(&export_command, &s, argc, argv, &rest, 1, 1, &status)) {
        progress_begin(s.engine.quiet);
        int code = export_model(&s, rest.item[0], &err);
        progress_end();
        status = finish_output(code ? report(&err) : EXIT_OK);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "onnx: image_encoder.onnx, text_encoder.onnx, grounding_head.onnx in DIR (opset 17, fixed shapes).\n"
    "paddle: the same parts as PART.json and PART.pdiparams, and all weights as sam3.pdparams (PaddlePaddle 3).\n"
    "ascend: the ONNX files, convert.sh for CANN's atc, and a README (Ascend NPUs; needs --soc).\n"
    "\n"
    "Examples:\n"
    "  samite export onnx -m sam3.pt --out parts\n"
    "  samite export onnx -m sam3.pt --out parts --check\n"
    "  samite export onnx -m sam3.pt --out parts --parts image --size 672\n"
    "  samite export paddle -m sam3.pt --out paddle\n"
    "  samite export ascend -m sam3.pt --out npu --soc Ascend310P3 --precision mixed\n";

const command export_command = {
    "export",
    "write a model as files for other engines",
    "export onnx|paddle|ascend -m MODEL --out DIR [options]",
    details,
    options,
    run,
};
