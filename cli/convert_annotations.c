/* convert_annotations.c - `samite convert-annotations`: labels from one tool's format to another's. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "report.h"
#include "session.h"

typedef struct convert_settings {
    const char *from, *to, *images, *classes;
    bool        json, quiet;
} convert_settings;

#define AT(member) offsetof(convert_settings, member)
static const option options[] = {
    {"--from", 0, OPTION_CHOICE, AT(from), "FORMAT", .help = "coco, yolo, labelme, voc, png or cvat",
     .choices = "coco|yolo|labelme|voc|png|cvat"},
    {"--to", 0, OPTION_CHOICE, AT(to), "FORMAT", .help = "coco, yolo, labelme, voc, png or cvat",
     .choices = "coco|yolo|labelme|voc|png|cvat"},
    {"--images", 0, OPTION_TEXT, AT(images), "DIR",
     .help = "from yolo: the pictures (default: images beside the labels)"},
    {"--classes", 0, OPTION_TEXT, AT(classes), "FILE",
     .help = "from yolo: data.yaml, or names line by line (default: looked for beside the labels)"},
    {"--json", 0, OPTION_FLAG, AT(json), NULL, .help = "the summary as JSON"},
    {"--quiet", 'q', OPTION_FLAG, AT(quiet), NULL, .help = "no progress and no summary"},
    {0}};

static int on_step(void *user, const char *stage, uint64_t at, uint64_t total)
{
    (void)user, (void)stage;
    progress_item((int)at, (int)total);
    return interrupted();
}

static void print_summary(const convert_settings *s, const samite_conversion *c, const char *to)
{
    printf("%s: %llu images, %llu categories, %llu objects (%s to %s)\n", to, (unsigned long long)c->images,
           (unsigned long long)c->categories, (unsigned long long)c->objects, s->from, s->to);
    for (int i = 0; i < c->drops; i++)
        printf("  left out: %llu x %s, the first: %s\n", (unsigned long long)c->drop[i].count, c->drop[i].why,
               c->drop[i].first);
}

static int print_summary_json(const samite_conversion *c, samite_error *err)
{
    json_t *list = json_array();
    for (int i = 0; i < c->drops; i++)
        json_array_append_new(list, json_pack("{s:I, s:s, s:o}", "count", (json_int_t)c->drop[i].count, "why",
                                              c->drop[i].why, "first", json_name(c->drop[i].first)));
    return print_document(json_pack("{s:I, s:I, s:I, s:o}", "images", (json_int_t)c->images, "categories",
                                    (json_int_t)c->categories, "objects", (json_int_t)c->objects, "left_out", list),
                          err);
}

static int convert(const convert_settings *s, const char *in, const char *out, samite_error *err)
{
    samite_convert_options o = SAMITE_CONVERT_OPTIONS_INIT;
    samite_conversion c;
    if (!s->from || !s->to)
        return fail(err, SAMITE_USAGE,
                    "%s is missing: samite convert-annotations instances.json labels --from coco --to yolo",
                    s->from ? "--to FORMAT" : "--from FORMAT");
    o.input = in;
    o.output = out;
    o.from = s->from;
    o.to = s->to;
    o.images = s->images;
    o.classes = s->classes;
    o.progress = on_step;
    int code = samite_convert_annotations(&o, &c, err);
    progress_end();
    if (!code && s->json)
        code = print_summary_json(&c, err);
    else if (!code && !s->quiet)
        print_summary(s, &c, out);
    return code;
}

static int run(int argc, char **argv)
{
    convert_settings s = {0};
    samite_error err = {0};
    words rest = {0};
    int status;
    if (command_parse(&convert_annotations_command, &s, argc, argv, &rest, 2, 2, &status)) {
        progress_begin(s.quiet);
        int code = convert(&s, rest.item[0], rest.item[1], &err);
        status = finish_output(code ? report(&err) : EXIT_OK);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "IN and OUT are a file for coco and cvat, a folder for the others (labelme and voc: also one file as IN).\n"
    "Polygons stay as drawn where both formats have them. What a format cannot hold is counted in the summary.\n"
    "\n"
    "Examples:\n"
    "  samite convert-annotations instances.json data --from coco --to yolo\n"
    "  samite convert-annotations data instances.json --from yolo --images photos --to coco\n"
    "  samite convert-annotations result.json annotations.xml --from coco --to cvat\n";

const command convert_annotations_command = {
    "convert-annotations", "labels from one tool's format to another's",
    "convert-annotations IN OUT --from FORMAT --to FORMAT [options]", details, options, run,
};
