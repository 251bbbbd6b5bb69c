/* scenes.c - `samite scenes`: made-up pictures with their boxes and masks. */
#include "base/error.h"
#include "session.h"

typedef struct scenes_settings {
    const char *out, *sprites;
    int         count, seed, side;
    bool        held, crowded;
} scenes_settings;

static const option options[] = {
    {"--out", 'o', OPTION_TEXT, offsetof(scenes_settings, out), "DIR", .help = "folder for pictures/ and instances.json"},
    {"--sprites", 0, OPTION_TEXT, offsetof(scenes_settings, sprites), "FILE", .help = "made by tools/make_sprites.py"},
    {"--count", 0, OPTION_INT, offsetof(scenes_settings, count), "N", .least = 1, .most = 1e6,
     .help = "how many (default 100)"},
    {"--seed", 0, OPTION_INT, offsetof(scenes_settings, seed), "N", .least = 0, .most = 2e9,
     .help = "other scenes (default 1); training never sees any of these"},
    {"--side", 0, OPTION_INT, offsetof(scenes_settings, side), "N", .least = 32, .most = 4096,
     .help = "pixels (default 168)"},
    {"--held", 0, OPTION_FLAG, offsetof(scenes_settings, held),
     .help = "sprites that training does not see, of names that have some"},
    {"--crowded", 0, OPTION_FLAG, offsetof(scenes_settings, crowded), .help = "5 to 12 objects instead of 1 to 6"},
    {0}
};

static int run(int argc, char **argv)
{
    scenes_settings s = {.count = 100, .seed = 1, .side = 168};
    words rest = {0};
    samite_error err = {0};
    int status;
    if (command_parse(&scenes_command, &s, argc, argv, &rest, 0, 0, &status)) {
        samite_scenes_options o = SAMITE_SCENES_OPTIONS_INIT;
        o.sprites = s.sprites;
        o.count = s.count;
        o.side = s.side;
        o.seed = (uint64_t)s.seed;
        o.held = s.held;
        o.crowded = s.crowded;
        int code = s.out && s.sprites ? samite_scenes(&o, s.out, &err)
                                      : fail(&err, SAMITE_USAGE, "--out and --sprites are needed: samite scenes --sprites "
                                             "FILE -o DIR");
        status = finish_output(code ? report(&err) : EXIT_OK);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "instances.json is a COCO file for `samite eval`; its images say besides under \"prompts\" which categories to ask\n"
    "for: all that are there, and as many that are not.\n"
    "\n"
    "Example:\n"
    "  samite scenes --sprites sprites.safetensors --count 200 -o held\n";

const command scenes_command = {
    "scenes", "write made-up pictures with boxes and masks", "scenes --sprites FILE -o DIR", details, options, run,
};
