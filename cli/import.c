/* import.c - `samite import`: weights back from files for other engines. */
#include <stdio.h>

#include "base/error.h"
#include "session.h"

typedef struct import_settings {
    engine_settings engine;
    const char     *out, *base;
} import_settings;

static const option options[] = {
    {"--out", 'o', OPTION_TEXT, offsetof(import_settings, out), "FILE", .help = "what to write: .safetensors or .pt"},
    {"--base", 0, OPTION_TEXT, offsetof(import_settings, base), "MODEL",
     .help = "gives the tensors that the files do not hold (default: they are left out)"},
    QUIET_OPTION(import_settings),
    {0}};

static void tell(const import_settings *s, const samite_imported *t)
{
    printf("%s: %d tensors from %d file%s", s->out, t->tensors, t->files, t->files == 1 ? "" : "s");
    if (t->from_base)
        printf(", %d from %s", t->from_base, s->base);
    if (t->rounded)
        printf(", %d of them rounded to f16", t->rounded);
    printf("\n");
    if (t->missing && !s->engine.quiet)
        say("%d tensors of the network are in none of the files (%s%s): --base MODEL gives them", t->missing,
            t->first_missing, t->missing > 1 ? ", ..." : "");
}

static int import(const import_settings *s, const char *path, samite_error *err)
{
    samite_import_options o = SAMITE_IMPORT_OPTIONS_INIT;
    samite_imported told;
    if (!s->out)
        return fail(err, SAMITE_USAGE, "say what to write: --out FILE.safetensors");
    o.path = path;
    o.out = s->out;
    o.base = s->base;
    o.progress = library_options(&s->engine).progress;
    int code = samite_import(&o, &told, err);
    if (!code)
        code = check_interrupt(err);
    progress_end();
    if (!code)
        tell(s, &told);
    return code;
}

static int run(int argc, char **argv)
{
    import_settings s = {0};
    samite_error err = {0};
    words rest = {0};
    int status;
    if (command_parse(&import_command, &s, argc, argv, &rest, 1, 1, &status)) {
        progress_begin(s.engine.quiet);
        int code = import(&s, rest.item[0], &err);
        progress_end();
        status = finish_output(code ? report(&err) : EXIT_OK);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "PATH is a folder that samite export wrote, or one of its files: PART.onnx, PART.json (with PART.pdiparams), or\n"
    "sam3.pdparams. The weights are those that were exported, bit by bit; f16 files give rounded ones.\n"
    "\n"
    "Examples:\n"
    "  samite import parts --out back.safetensors\n"
    "  samite import parts --out back.safetensors --base sam3.pt\n"
    "  samite import paddle/sam3.pdparams --out back.pt\n";

const command import_command = {
    "import", "read weights back from exported files", "import PATH --out FILE [--base MODEL]", details, options, run,
};
