/* segment.c - `samite segment`: what the words name, in one picture or many. */
#define _GNU_SOURCE
#include "segment.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define LARGEST_COORDINATE 16777216.0      /* whole pixels beyond it have no float of their own */
#define FAILURES_NAMED 10
#define MUCH_LARGER 3          /* times the side that the network sees */
#define SMALLEST_MODEL 224     /* pixels; smaller pictures need no look at the model */

/* The picture's size is checked when it is known. */
int parse_corners(double *v, const char *name, const char *value, samite_error *err)
{
    const char *s = value;
    for (int i = 0; i < 4; i++) {
        char number[64];
        size_t n = strcspn(s, ",");
        snprintf(number, sizeof number, "%.*s", (int)(n < 63 ? n : 63), s);
        if (n > 63 || !parse_number(&v[i], number) || (s[n] == ',') != (i < 3))
            return fail(err, SAMITE_USAGE, "%s wants four numbers X0,Y0,X1,Y1 in pixels, not \"%s\"", name, value);
        s += n + (i < 3);
    }
    if (v[0] >= v[2] || v[1] >= v[3])
        return fail(err, SAMITE_USAGE, "%s %s: X0 must be less than X1, and Y0 less than Y1 (top left, bottom right)",
                    name, value);
    if (v[0] < 0 || v[1] < 0 || v[2] > LARGEST_COORDINATE || v[3] > LARGEST_COORDINATE)
        return fail(err, SAMITE_USAGE, "%s %s reaches outside every picture: pixels count from 0", name, value);
    return SAMITE_OK;
}

static int parse_box(void *to, const char *name, const char *value, samite_error *err)
{
    box_list *list = to;
    double v[4];
    int code = parse_corners(v, name, value, err);
    if (code)
        return code;
    samite_box *item = realloc(list->item, ((size_t)list->count + 1) * sizeof *item);
    if (!item)
        return fail(err, SAMITE_RESOURCE, "out of memory for boxes");
    list->item = item;
    item[list->count++] = (samite_box){(float)v[0], (float)v[1], (float)v[2], (float)v[3], strcmp(name,
                                                                                                  "--unlike") == 0};
    return SAMITE_OK;
}

#define AT(member) offsetof(segment_settings, member)
static const option options[] = {
    {"--text", 't', OPTION_LIST, AT(texts), "WORDS",
     .help = "what to look for; repeat it: every text is a prompt of its own"},
    {"--like", 0, OPTION_CALL, AT(boxes), "X0,Y0,X1,Y1",
     .help = "example box in pixels: find all like this", .parse = parse_box},
    {"--unlike", 0, OPTION_CALL, AT(boxes), "X0,Y0,X1,Y1",
     .help = "example box in pixels: nothing like this", .parse = parse_box},
    {"--point", 0, OPTION_CALL, AT(click), "X,Y[,neg]",
     .help = "this one object: a point in it, or with ,neg beside it; repeatable", .parse = parse_point},
    {"--box", 0, OPTION_CALL, AT(click), "X0,Y0,X1,Y1", .help = "this one object: a box around it",
     .parse = parse_click_box},
    {"--mask", 0, OPTION_TEXT, AT(click.mask), "FILE",
     .help = "this one object: a rough mask, a picture of the same size, bright inside"},
    {"--multimask", 0, OPTION_FLAG, AT(click.several), NULL, .help = "three alternatives for the one object"},
    {"--pick", 0, OPTION_INT, AT(click.pick), "K",
     .help = "the points and the box refine the K-th best result of the words", .least = 1, .most = 1e6},
    {"--save-logits", 0, OPTION_TEXT, AT(click.save), "FILE",
     .help = "keep the logits of the one object's mask (.safetensors), to be refined later"},
    {"--logits", 0, OPTION_TEXT, AT(click.logits), "FILE",
     .help = "go on from kept logits; of alternatives the best, or with --pick the K-th"},
    {"--tile", 0, OPTION_INT, AT(tile), "PIXELS",
     .help = "large pictures: look at windows of this size too, and join what they cut", .least = 32, .most = 16384},
    {"--overlap", 0, OPTION_INT, AT(overlap), "PIXELS",
     .help = "what neighbouring windows share (default: an eighth of --tile)", .least = 0, .most = 8192},
    {"--score", 0, OPTION_REAL, AT(score), "X",
     .help = "least score of a result, 0 to 1 (default: 0.5)", .least = 0, .most = 1},
    {"--nms", 0, OPTION_REAL, AT(nms), "IOU",
     .help = "drop results whose box overlaps a better one of the same prompt more; 0: none (default: the model's own)",
     .least = 0, .most = 1},
    {"--max-det", 0, OPTION_INT, AT(most), "N",
     .help = "at most N results per prompt (default: all)", .least = 1, .most = 1e6},
    {"--json", 0, OPTION_FLAG, AT(json), NULL,
     .help = "JSON on standard output: an object for one file, else an array"},
    {"--jsonl", 0, OPTION_FLAG, AT(jsonl), NULL, .help = "JSON on standard output: one line per picture, as they come"},
    {"--out", 'o', OPTION_TEXT, AT(out), "DIR", .help = "write COCO JSON, masks, label maps and overlays into DIR"},
    FORMAT_OPTION(segment_settings),
    {"--resume", 0, OPTION_FLAG, AT(resume), NULL,
     .help = "skip pictures that are finished in DIR with the same settings"},
    {"--shard", 0, OPTION_CALL, AT(part), "I/N",
     .help = "take every N-th picture, starting with the I-th", .parse = parse_shard},
    {"--recursive", 'r', OPTION_FLAG, AT(recursive), NULL, .help = "look into folders below the given ones"},
    {"--no-exif", 0, OPTION_FLAG, AT(no_exif), NULL, .help = "do not turn pictures upright by their EXIF orientation"},
    ENGINE_OPTIONS(segment_settings),
    ENGINE_CHOICE(segment_settings),
    {0}
};

/* The work on all pictures. */
typedef struct batch {
    const segment_settings *settings;
    prompts       ask;
    inputs        in;
    results       results;
    samite_model *model;
    samite_image *image;
    const char   *model_name;
    bool          hinted;          /* --tile was recommended */
    int           printed, failed, skipped, worst;
} batch;

static int check_settings(const segment_settings *s, samite_error *err)
{
    if (s->resume && !s->out)
        return fail(err, SAMITE_USAGE, "--resume needs --out DIR, where the finished pictures are");
    if (s->formats && !s->out)
        return fail(err, SAMITE_USAGE, "--format needs --out DIR, where the files go");
    if (s->overlap >= 0 && !s->tile)
        return fail(err, SAMITE_USAGE, "--overlap goes with --tile PIXELS");
    if (s->tile && s->overlap > s->tile / 2)
        return fail(err, SAMITE_USAGE, "--overlap %d: at most half of --tile %d", s->overlap, s->tile);
    if (s->tile && (s->boxes.count || click_wanted(&s->click)))
        return fail(err, SAMITE_USAGE, "--tile goes with --text only: example boxes and points lie in one window");
    if (s->json && s->jsonl)
        return fail(err, SAMITE_USAGE, "--json and --jsonl exclude each other; take one");
    return click_check(&s->click, s->texts.count || s->boxes.count, err);
}

/* Prints one JSON value in its place: alone, in the array, or on its line. Takes `o` over. */
static int print_json(batch *b, json_t *o, samite_error *err)
{
    bool array = b->settings->json && !b->in.single;
    if (!o)
        return fail(err, SAMITE_RESOURCE, "out of memory for the JSON of a picture");
    if (array)
        fputs(b->printed ? ",\n" : "[\n", stdout);
    int bad = json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(o);
    if (!array)
        putchar('\n');
    b->printed++;
    if (ferror(stdout))
        return fail(err, SAMITE_RESOURCE, "cannot write standard output: is the disk full?");
    return bad ? fail(err, SAMITE_RESOURCE, "out of memory for the JSON of a picture") : SAMITE_OK;
}

static bool wants_json(const batch *b)
{
    return b->settings->json || b->settings->jsonl;
}

static int print_picture(batch *b, const picture *p, samite_error *err)
{
    int code = SAMITE_OK;
    progress_make_way();
    if (wants_json(b))
        code = print_json(b, picture_json(p, &b->ask, b->model_name), err);
    else if (!b->settings->engine.quiet)
        print_table(p, &b->ask, !b->in.single);
    if (b->settings->jsonl)
        fflush(stdout);
    return code;
}

static int print_skipped(batch *b, const input *in, samite_error *err)
{
    b->skipped++;
    if (!wants_json(b))
        return SAMITE_OK;
    json_t *o = json_object();
    if (o && !json_set_path(o, "file", in->path))
        json_object_set_new(o, "skipped", json_true());
    return print_json(b, o, err);
}

/* A picture that cannot be used: said on standard error, noted in the JSON of several; the batch goes on. */
static int picture_failed(batch *b, input *in, const samite_error *what, samite_error *err)
{
    in->failed = true;
    b->failed++;
    int status = report(what), usual = exit_status(SAMITE_INPUT);
    if (b->in.count > 1 && status != exit_status(SAMITE_RESOURCE))
        status = usual;
    b->worst = b->worst == 0 || b->worst == status ? status : usual;
    if (!wants_json(b) || (b->settings->json && b->in.single))
        return SAMITE_OK;
    json_t *o = json_object();
    if (o && !json_set_path(o, "file", in->path)) {
        json_object_set_new(o, "error", json_name(what->text));
        json_object_set_new(o, "code", json_integer(status));
    }
    return print_json(b, o, err);
}

/* Small things get lost when a picture is made much smaller for the network. Said once. */
static void hint_at_tiles(batch *b, const picture *p)
{
    int longer = p->pixels.width > p->pixels.height ? p->pixels.width : p->pixels.height;
    samite_model_info info = {.size = sizeof info};
    if (b->settings->tile || b->hinted || b->settings->engine.quiet || b->settings->everything.on ||
        longer < MUCH_LARGER * SMALLEST_MODEL || samite_model_describe(b->model, &info, NULL) ||
        longer < MUCH_LARGER * info.input_side)
        return;
    b->hinted = true;
    say("%s has %d x %d pixels and is seen as %d x %d: small objects may be missed; --tile %d looks closer",
        p->in->path, p->pixels.width, p->pixels.height, info.input_side, info.input_side, info.input_side);
}

/* One picture from file to results. *fatal: what went wrong would go wrong for every picture. */
static int segment_one(batch *b, picture *p, bool *fatal, samite_error *err)
{
    *fatal = false;
    int code = picture_read(p, b->settings, err);
    if (code)
        return code;
    *fatal = true;
    if (!b->model)
        code = open_model(&b->model, &b->settings->engine, err);
    if (code)
        return code;
    *fatal = false;
    if (p->encoded)
        code = picture_load(p, &b->image, b->model, b->settings, err);
    else
        hint_at_tiles(b, p);
    if (code)
        return code;
    code = picture_segment(p, &b->image, b->model, &b->ask, err);
    if (code)
        return code;
    *fatal = true;
    if (b->settings->out)
        code = results_write(&b->results, p, &b->ask, err);
    return code ? code : print_picture(b, p, err);
}

/* Marks the pictures that --resume skips; returns how many are left. */
static int mark_finished(batch *b)
{
    int left = 0;
    for (int i = 0; i < b->in.count; i++) {
        input *in = &b->in.item[i];
        in->finished = b->settings->resume && results_complete(&b->results, in);
        left += !in->finished;
    }
    return left;
}

/* All pictures in order. Returns an error only when the batch had to end. */
static int segment_all(batch *b, samite_error *err)
{
    int left = mark_finished(b), at = 0;
    for (int i = 0; i < b->in.count; i++) {
        input *in = &b->in.item[i];
        int code = check_interrupt(err);
        if (code)
            return code;
        if (in->finished) {
            code = print_skipped(b, in, err);
        } else {
            progress_item(at++, left);
            picture p = {.in = in};
            samite_error what = {0};
            bool fatal;
            code = segment_one(b, &p, &fatal, &what);
            picture_free(&p, &b->ask);
            if (code && (fatal || code == SAMITE_CANCELLED || interrupted())) {
                *err = what;
                return code;
            }
            if (code)
                code = picture_failed(b, in, &what, err);
        }
        if (code)
            return code;
    }
    return SAMITE_OK;
}

/* "3 of 120 pictures failed: a.jpg, b.jpg, c.jpg" */
static void say_failures(const batch *b)
{
    text names = {0};
    int named = 0;
    for (int i = 0; i < b->in.count && named < FAILURES_NAMED; i++)
        if (b->in.item[i].failed)
            text_printf(&names, "%s%s", named++ ? ", " : "", b->in.item[i].path);
    if (named < b->failed)
        text_printf(&names, " and %d more", b->failed - named);
    say("%d of %d pictures failed: %s", b->failed, b->in.count, names.failed ? "" : names.data);
    text_free(&names);
}

static void say_ending(const batch *b)
{
    if (b->failed && b->in.count > 1)
        say_failures(b);
    if (b->settings->engine.quiet)
        return;
    if (b->skipped)
        say("%d of %d pictures were finished already", b->skipped, b->in.count);
    progress_make_way();
    if (b->settings->out && !wants_json(b) && b->failed < b->in.count)
        printf("results: %s\n", b->results.merged);
}

static int prepare(batch *b, const words *paths, samite_error *err)
{
    const segment_settings *s = b->settings;
    int code = check_settings(s, err);
    if (!code)
        code = prompts_make(&b->ask, s, err);
    if (!code)
        code = model_path(&b->model_name, &s->engine, err);
    if (!code)
        code = inputs_collect(&b->in, paths, s->recursive, s->out, err);
    if (!code && b->in.count > 1 && (s->click.save || s->click.logits))
        code = fail(err, SAMITE_USAGE, "--save-logits and --logits are about one picture, not %d", b->in.count);
    if (!code && s->part.of)
        inputs_take_shard(&b->in, s->part.at, s->part.of);
    if (!code && s->out)
        code = results_open(&b->results, s, &b->ask, err);
    return code;
}

static int run_batch(batch *b, const words *paths)
{
    samite_error err = {0};
    int code = prepare(b, paths, &err);
    if (!code) {
        code = segment_all(b, &err);
        if (b->settings->json && !b->in.single)
            fputs(b->printed ? "\n]\n" : "[]\n", stdout);
        if (!code && b->settings->out)
            code = results_merge(&b->results, &b->in, &err);
        if (!code)
            say_ending(b);
    }
    if (code)
        return report(&err);
    return b->worst;
}

int segment_run(const command *c, segment_settings *s, int argc, char **argv)
{
    words paths = {0};
    int status;
    if (command_parse(c, s, argc, argv, &paths, 1, INT_MAX, &status)) {
        batch b = {.settings = s};
        progress_begin(s->engine.quiet);
        status = run_batch(&b, &paths);
        progress_end();
        samite_image_free(b.image);
        samite_model_free(b.model);
        if (s->out)
            results_free(&b.results);
        inputs_free(&b.in);
        prompts_free(&b.ask);
        status = finish_output(status);
    }
    words_free(&paths);
    words_free(&s->texts);
    free(s->boxes.item);
    free(s->click.point);
    return status;
}

static int run(int argc, char **argv)
{
    return segment_run(&segment_command, &(segment_settings){.score = 0.5, .nms = -1, .overlap = -1}, argc, argv);
}

static const char details[] =
    "PICTURE is a file (JPEG, PNG, WebP, TIFF, PNM, BMP), a folder of such files, - for standard input, or a\n"
    ".safetensors file of samite encode, which needs no encoding.\n"
    "Boxes are X0,Y0,X1,Y1 in pixels of the upright picture. Example boxes go with one --text or with none.\n"
    "--tile looks at windows of large pictures and joins what they cut; TIFFs are then read in parts.\n"
    "--like finds all objects like the one in the box; --point, --box and --mask mean one object and nothing else.\n"
    "Files in DIR: result.json (COCO; with --shard result-IofN.json), NAME_overlay.png, NAME_labels.png,\n"
    "masks/NAME_1.png ..., records/NAME.json; --format chooses others, see docs/formats.md.\n"
    "Pictures that fail are named at the end, with exit status 3.\n"
    "\n"
    "Examples:\n"
    "  samite segment photo.jpg -m sam3.pt --text dog --text \"red car\" --out results\n"
    "  samite segment photo.jpg -m sam3.pt --like 120,80,260,210 --json\n"
    "  samite segment photo.jpg -m sam3.pt --point 210,140 --point 215,90,neg --out results\n"
    "  samite segment photo.jpg -m sam3.pt --text dog --pick 2 --point 88,120 --out results\n"
    "  samite segment photos -m sam3.pt --text person --out results --resume\n"
    "  samite segment photos -m sam3.pt --text person --out results --shard 2/8\n";

const command segment_command = {
    "segment", "find and outline what words or example boxes name",
    "segment PICTURE... -m MODEL --text WORDS [--text WORDS ...] [options]", details, options, run,
};
