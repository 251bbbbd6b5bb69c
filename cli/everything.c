/* everything.c - `samite everything`: all objects of pictures, without being told what they are. */
#include <stddef.h>

#include "segment.h"

#define AT(member) offsetof(segment_settings, member)
static const option options[] = {
    {"--points", 0, OPTION_INT, AT(everything.points), "N",
     .help = "points per side of the grid that is clicked (default: 32)", .least = 1, .most = 256},
    {"--overlap", 0, OPTION_REAL, AT(everything.overlap), "X",
     .help = "least expected overlap of a mask with an object (default: 0.8)", .least = 0, .most = 1},
    {"--stability", 0, OPTION_REAL, AT(everything.stability), "X",
     .help = "least sharpness of a mask's edge (default: 0.95)", .least = 0, .most = 1},
    {"--duplicate", 0, OPTION_REAL, AT(everything.duplicate), "X",
     .help = "boxes that overlap more than this are one object (default: 0.7)", .least = 0, .most = 1},
    {"--crops", 0, OPTION_INT, AT(everything.crops), "LAYERS",
     .help = "look at 2 x 2, 4 x 4 ... parts too, for small objects (default: 0)", .least = 0, .most = 3},
    {"--max-det", 0, OPTION_INT, AT(most), "N", .help = "at most N results (default: all)", .least = 1, .most = 1e6},
    {"--json", 0, OPTION_FLAG, AT(json), NULL,
     .help = "JSON on standard output: an object for one file, else an array"},
    {"--jsonl", 0, OPTION_FLAG, AT(jsonl), NULL, .help = "JSON on standard output: one line per picture, as they come"},
    {"--out", 'o', OPTION_TEXT, AT(out), "DIR", .help = "write COCO JSON, masks, label maps and overlays into DIR"},
    FORMAT_OPTION(segment_settings),
    {"--resume", 0, OPTION_FLAG, AT(resume), NULL,
     .help = "skip pictures that are finished in DIR with the same settings"},
    {"--recursive", 'r', OPTION_FLAG, AT(recursive), NULL, .help = "look into folders below the given ones"},
    {"--no-exif", 0, OPTION_FLAG, AT(no_exif), NULL, .help = "do not turn pictures upright by their EXIF orientation"},
    ENGINE_OPTIONS(segment_settings),
    {0}
};

json_t *everything_json(const everything_settings *e)
{
    return json_pack("{s:i, s:i, s:o, s:o, s:o}", "points", e->points, "crops", e->crops, "overlap",
                     json_number(e->overlap), "stability", json_number(e->stability), "duplicate",
                     json_number(e->duplicate));
}

static int run(int argc, char **argv)
{
    segment_settings s = {.nms = -1, .overlap = -1, .everything = {.on = true, .points = 32, .overlap = 0.8, .stability = 0.95, .duplicate = 0.7}};
    return segment_run(&everything_command, &s, argc, argv);
}

static const char details[] =
    "PICTURE is a file, a folder of files, or - for standard input, as for samite segment. The score of a result is its\n"
    "expected overlap with an object. A grid of N x N points costs N x N clicks; each layer of crops encodes 4, 16 ...\n"
    "more pictures with half the points per side.\n"
    "\n"
    "Examples:\n"
    "  samite everything photo.jpg -m sam3.pt --out results\n"
    "  samite everything photo.jpg -m sam3.pt --points 16 --json\n";

const command everything_command = {
    "everything", "find and outline all objects, without a prompt", "everything PICTURE... -m MODEL [options]", details,
    options, run,
};
