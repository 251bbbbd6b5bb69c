/* merge.c - `samite merge`: an adapter's changes into the weights. */
#include "base/error.h"
#include "session.h"

typedef struct merge_settings {
    const char *out;
} merge_settings;

static const option options[] = {
    {"--out", 'o', OPTION_TEXT, offsetof(merge_settings, out), "FILE", .help = "the merged model: .safetensors or .pt"},
    {0}
};

static int run(int argc, char **argv)
{
    merge_settings s = {0};
    words rest = {0};
    samite_error err = {0};
    int status;
    if (command_parse(&merge_command, &s, argc, argv, &rest, 2, 2, &status)) {
        int code = s.out ? samite_merge(rest.item[0], rest.item[1], s.out, &err)
                         : fail(&err, SAMITE_USAGE, "--out FILE is missing: samite merge BASE ADAPTER -o FILE");
        status = finish_output(code ? report(&err) : EXIT_OK);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "The result loads wherever the base model does; nothing tells it from a model whose weights were trained.\n"
    "\n"
    "Example:\n"
    "  samite merge sam3.pt run1/checkpoints/best.adapter.safetensors -o tuned.safetensors\n";

const command merge_command = {
    "merge", "add a trained adapter to a model", "merge BASE ADAPTER -o FILE", details, options, run,
};
