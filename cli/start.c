/* start.c - `samite start`: a model that knows nothing, to be trained. */
#include <stdlib.h>

#include "base/error.h"
#include "session.h"

typedef struct start_settings {
    const char *out, *size, *sprites;
    int         seed;
} start_settings;

static const option options[] = {
    {"--out", 'o', OPTION_TEXT, offsetof(start_settings, out), "FILE", .help = "the model: .safetensors or .pt"},
    {"--size", 0, OPTION_TEXT, offsetof(start_settings, size), "NAME", .help = "demo (default), tiny, small or full"},
    {"--sprites", 0, OPTION_TEXT, offsetof(start_settings, sprites), "FILE",
     .help = "the model knows only the words of this sprite file (tools/make_sprites.py); else all words"},
    {"--seed", 0, OPTION_INT, offsetof(start_settings, seed), "N", .least = 0, .most = 1e9, .help = "other weights (default 1)"},
    {0}
};

static int run(int argc, char **argv)
{
    start_settings s = {.size = "demo", .seed = 1};
    words rest = {0};
    samite_error err = {0};
    int status;
    if (command_parse(&start_command, &s, argc, argv, &rest, 0, 0, &status)) {
        int code = s.out ? samite_start(s.size, s.sprites, (uint64_t)s.seed, s.out, &err)
                         : fail(&err, SAMITE_USAGE, "--out FILE is missing: samite start -o FILE");
        status = finish_output(code ? report(&err) : EXIT_OK);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "Random weights by seed; queries on a grid, fusion that compares features with words, box bias that sees edges.\n"
    "\n"
    "Example:\n"
    "  samite start --size tiny -o start.safetensors\n";

const command start_command = {
    "start", "make a model that knows nothing, to be trained", "start -o FILE", details, options, run,
};
