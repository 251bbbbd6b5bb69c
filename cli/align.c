/* align.c - `samite align`: every tensor on the way, compared with reference numbers or with another model. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report.h"
#include "session.h"

typedef struct align_settings {
    engine_settings engine;
    const char     *reference, *photos, *against, *against_precision, *image, *text;
    double          tolerance, cosine;
    bool            json, all;
} align_settings;

#define AT(member) offsetof(align_settings, member)
static const option options[] = {
    {"--reference", 0, OPTION_TEXT, AT(reference), "DIR",
     .help = "prompts.json with *.safetensors, or an inputs folder"},
    {"--photos", 0, OPTION_TEXT, AT(photos), "DIR", .help = "the pictures that DIR/pixels.safetensors speaks of"},
    {"--against", 0, OPTION_TEXT, AT(against), "MODEL",
     .help = "compare with this model instead, on --image and --text"},
    {"--against-precision", 0, OPTION_CHOICE, AT(against_precision), "TYPE",
     .help = "arithmetic of the other model (default: f32)",
     .choices = "f32|bf16|int8|auto"},
    {"--image", 0, OPTION_TEXT, AT(image), "FILE", .help = "picture for --against"},
    {"--text", 't', OPTION_TEXT, AT(text), "WORDS", .help = "prompt for --against"},
    {"--tolerance", 0, OPTION_REAL, AT(tolerance), "X",
     .help = "largest max |d| / max |ref| that passes (default: by model size)",
     .least = 0, .most = 1e9},
    {"--cosine", 0, OPTION_REAL, AT(cosine), "X",
     .help = "least cosine that passes (default: by model size)", .least = -1, .most = 1},
    {"--all", 'a', OPTION_FLAG, AT(all), NULL, .help = "list every tensor, not only those that fail and the worst"},
    {"--json", 0, OPTION_FLAG, AT(json), NULL, .help = "JSON on standard output"},
    ENGINE_OPTIONS(align_settings),
    ENGINE_CHOICE(align_settings),
    {0}
};

typedef struct row {
    char  *name, *note;
    double difference, relative, cosine;
    bool   within;
} row;

typedef struct rows {
    row   *item;
    size_t count, room;
    bool   failed;
} rows;

static void collect(void *user, const samite_compared *c)
{
    rows *r = user;
    if (r->count == r->room && !r->failed) {
        size_t room = r->room ? 2 * r->room : 128;
        row *item = realloc(r->item, room * sizeof *item);
        r->failed = !item;
        r->item = item ? item : r->item;
        r->room = item ? room : r->room;
    }
    if (r->failed)
        return;
    row *one = &r->item[r->count];
    *one = (row){strdup(c->name), strdup(c->note ? c->note : ""), c->max_difference, c->relative, c->cosine, c->within};
    r->count++;
    r->failed = !one->name || !one->note;
}

static void free_rows(rows *r)
{
    for (size_t i = 0; i < r->count; i++) {
        free(r->item[i].name);
        free(r->item[i].note);
    }
    free(r->item);
}

static void print_rows(const rows *r, const samite_align_summary *sum, bool all)
{
    bool head = false;
    for (size_t i = 0; i < r->count; i++) {
        const row *o = &r->item[i];
        if (!all && o->within && strcmp(o->name, sum->worst) != 0)
            continue;
        if (!head)
            printf("%-48s %10s %10s %12s  %s\n", "tensor", "max |d|", "relative", "cosine", "verdict");
        head = true;
        printf("%-48s %10.3g %10.3g %12.9f  %s%s%s\n", o->name, o->difference, o->relative, o->cosine,
               o->within ? "ok" : "OUTSIDE", o->note[0] ? ", " : "", o->note);
    }
}

static json_t *row_json(const row *o)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:b, s:o}", "name", json_name(o->name), "max_difference",
                     json_number(o->difference), "relative", json_number(o->relative), "cosine",
                     json_number(o->cosine), "within", o->within, "note", json_name(o->note));
}

static json_t *summary_json(const samite_align_summary *sum)
{
    return json_pack("{s:i, s:i, s:i, s:o, s:o, s:o, s:b}", "compared", sum->compared, "outside", sum->outside,
                     "skipped", sum->skipped, "worst", json_name(sum->worst), "worst_relative",
                     json_number(sum->worst_relative), "least_cosine", json_number(sum->least_cosine), "passed",
                     sum->outside == 0);
}

static json_t *rows_json(const rows *r, const samite_align_summary *sum)
{
    json_t *list = json_array();
    bool bad = !list;
    for (size_t i = 0; i < r->count && !bad; i++)
        bad = json_array_append_new(list, row_json(&r->item[i])) != 0;
    if (bad) {
        json_decref(list);
        return NULL;
    }
    return json_pack("{s:o, s:o}", "tensors", list, "summary", summary_json(sum));
}

static void print_summary(const samite_align_summary *sum)
{
    printf("%s: %d tensors compared, %d outside the tolerance, %d skipped", sum->outside ? "FAILED" : "passed",
           sum->compared, sum->outside, sum->skipped);
    if (sum->worst[0])
        printf("; worst %s, relative %.3g; least cosine %.9f", sum->worst, sum->worst_relative, sum->least_cosine);
    putchar('\n');
}

static int check_settings(const align_settings *s, samite_error *err)
{
    if (!!s->reference + !!s->against + !!s->engine.name != 1)
        return fail(err, SAMITE_USAGE, "give --reference DIR, --against MODEL or --engine NAME --parts DIR, one of them");
    if (s->engine.name && (strcmp(s->engine.name, "native") == 0 || s->against_precision))
        return fail(err, SAMITE_USAGE, "--engine wants another engine than native, and no --against-precision");
    if (s->against && (!s->image || !s->text))
        return fail(err, SAMITE_USAGE, "--against needs a picture and a prompt: --image FILE --text WORDS");
    if (s->reference && (s->image || s->text || s->against_precision))
        return fail(err, SAMITE_USAGE,
                    "--image, --text and --against-precision go with --against, not with --reference");
    return SAMITE_OK;
}

/* Opens what is to be compared. With --reference no model is a valid choice: an inputs folder needs none. */
static int open_models(samite_model **m, samite_model **other, const align_settings *s, samite_error *err)
{
    engine_settings first = s->engine, second = s->engine;
    int code = SAMITE_OK;
    first.name = first.parts = first.library = first.settings = NULL;
    if (s->against || s->engine.name || model_is_named(&first))
        code = open_model(m, &first, err);
    if (!code && s->engine.name)
        return open_model(other, &s->engine, err);
    second.model = s->against;
    second.precision = s->against_precision;
    if (!code && s->against)
        code = open_model(other, &second, err);
    return code;
}

static int show(const rows *r, const samite_align_summary *sum, const align_settings *s, samite_error *err)
{
    if (r->failed)
        return fail(err, SAMITE_RESOURCE, "out of memory for the list of tensors");
    if (s->json)
        return print_document(rows_json(r, sum), err);
    if (!s->engine.quiet || s->all)
        print_rows(r, sum, s->all);
    print_summary(sum);
    return SAMITE_OK;
}

static int align(const align_settings *s, samite_error *err)
{
    samite_model *m = NULL, *other = NULL;
    samite_align_summary sum = {0};
    rows r = {0};
    int code = check_settings(s, err);
    if (!code)
        code = open_models(&m, &other, s, err);
    samite_align_options o = {
        .size = sizeof o, .reference = s->reference, .photos = s->photos, .against = other, .image = s->image,
        .text = s->text, .max_relative = s->tolerance, .min_cosine = s->cosine, .each = collect, .user = &r,
    };
    if (!code)
        code = samite_align(m, &o, &sum, err);
    progress_end();
    if (code == SAMITE_OK || (code == SAMITE_FAILED && sum.compared)) {
        samite_error trouble = {0};
        int bad = show(&r, &sum, s, &trouble);
        if (bad)
            *err = trouble;
        code = bad ? bad : code;
    }
    free_rows(&r);
    samite_model_free(other);
    samite_model_free(m);
    return code;
}

static int run(int argc, char **argv)
{
    align_settings s = {0};
    samite_error err = {0};
    words rest = {0};
    int status;
    if (command_parse(&align_command, &s, argc, argv, &rest, 0, 0, &status)) {
        progress_begin(s.engine.quiet);
        int code = align(&s, &err);
        status = finish_output(EXIT_OK);
        if (code)
            status = report(&err);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "DIR holds prompts.json and *.safetensors from a reference run, or is an inputs folder with tokens.jsonl and\n"
    "pixels.safetensors, which needs no model. Every tensor is compared by name; the last line is a summary; exit\n"
    "status 1 when one is outside the tolerance. --quiet prints the summary alone.\n"
    "\n"
    "Examples:\n"
    "  samite align -m formula:tiny --reference golden/tiny\n"
    "  samite align --reference golden/inputs --photos photos\n"
    "  samite align -m sam3.pt --against sam3-bf16.safetensors --image photo.jpg --text dog --all\n"
    "  samite align -m sam3.pt --against sam3.pt --against-precision bf16 --image photo.jpg --text dog\n"
    "  samite align -m sam3.pt --engine ascend --parts npu --image photo.jpg --text dog\n";

const command align_command = {
    "align", "compare every tensor with reference numbers or another model",
    "align -m MODEL --reference DIR | align -m A --against B --image FILE --text WORDS | align -m A --engine E --parts DIR", details, options, run,
};
