/* convert.c - `samite convert`: writes a model under the official names. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "session.h"

typedef struct convert_settings {
    engine_settings engine;
    const char     *type;
} convert_settings;

static const option options[] = {
    {"--dtype", 0, OPTION_CHOICE, offsetof(convert_settings, type), "TYPE",
     .help = "f32, f16 or bf16 (default: as stored)",
     .choices = "f32|f16|bf16"},
    QUIET_OPTION(convert_settings),
    {0}
};

static int convert(const convert_settings *s, const char *in, const char *out, samite_error *err)
{
    if (!ends_with(out, ".safetensors") && !ends_with(out, ".pt"))
        return fail(err, SAMITE_USAGE, "%s: the name to write must end in .safetensors or .pt", out);
    engine_settings engine = s->engine;
    samite_model *m;
    engine.model = in;
    int code = open_model(&m, &engine, err);
    if (!code)
        code = samite_model_write(m, out, s->type, err);
    if (!code)
        code = check_interrupt(err);
    samite_model_free(m);
    return code;
}

static int run(int argc, char **argv)
{
    convert_settings s = {0};
    samite_error err = {0};
    words rest = {0};
    int status;
    if (command_parse(&convert_command, &s, argc, argv, &rest, 2, 2, &status)) {
        progress_begin(s.engine.quiet);
        int code = convert(&s, rest.item[0], rest.item[1], &err);
        progress_end();
        status = code ? report(&err) : EXIT_OK;
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "OUT ends in .safetensors (sizes are kept in its metadata) or .pt (loads in PyTorch with weights_only=True and in\n"
    "the official code). Tensors have the official names. OUT appears whole or not at all.\n"
    "\n"
    "Examples:\n"
    "  samite convert sam3.pt sam3-bf16.safetensors --dtype bf16\n"
    "  samite convert hf-folder sam3.pt\n"
    "  samite convert formula:tiny tiny.safetensors\n";

const command convert_command = {
    "convert", "write a model as .safetensors or .pt", "convert IN OUT [--dtype f32|f16|bf16]", details, options, run,
};
