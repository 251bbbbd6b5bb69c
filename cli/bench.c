/* bench.c - `samite bench`: time of each stage, beside what this machine's arithmetic allows. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "bench_profile.h"
#include "report.h"
#include "session.h"

typedef struct bench_settings {
    engine_settings engine;
    const char     *image, *text, *compare, *timeline;
    int             repeats;
    bool            json, profile, prompts;
} bench_settings;

#define AT(member) offsetof(bench_settings, member)
static const option options[] = {
    {"--image", 0, OPTION_TEXT, AT(image), "FILE", .help = "picture to encode (default: a made-up one)"},
    {"--text", 't', OPTION_TEXT, AT(text), "WORDS", .help = "prompt (default: dog)"},
    {"--repeats", 0, OPTION_INT, AT(repeats), "N",
     .help = "the best of N counts (default: 3)", .least = 1, .most = 10000},
    {"--dtype", 0, OPTION_CHOICE, AT(engine.precision), "TYPE",
     .help = "the same as --precision", .choices = "f32|bf16|int8|auto"},
    {"--profile", 0, OPTION_FLAG, AT(profile), NULL, .help = "also the time of every kind of op and layer"},
    {"--timeline", 0, OPTION_TEXT, AT(timeline), "FILE", .help = "the profile as an HTML page"},
    {"--prompts", 0, OPTION_FLAG, AT(prompts), NULL,
     .help = "instead: first, second, identical and vain prompts on one picture"},
    {"--compare", 0, OPTION_TEXT, AT(compare), "FILE", .help = "beside an earlier run's --json"},
    {"--json", 0, OPTION_FLAG, AT(json), NULL, .help = "JSON on standard output"},
    ENGINE_OPTIONS(bench_settings),
    {0}
};

typedef struct stage {
    const char *key, *name;
    double      seconds, slowest, gflops, roofline;   /* rate in GFLOP/s; share of the rate of a plain product */
} stage;

static stage make_stage(const char *key, const char *name, double seconds, double slowest, double work, double peak)
{
    double rate = seconds > 0 ? work / seconds : 0;
    return (stage){key, name, seconds, slowest, rate, peak > 0 ? rate / peak : 0};
}

#define STAGES 3

static void make_stages(stage *s, const samite_timing *t)
{
    s[0] = make_stage("image_encode", "image encode", t->image_encode, t->image_slowest, t->image_gflops, t->gemm_rate);
    s[1] = make_stage("text", "text", t->text, t->text_slowest, t->text_gflops, t->gemm_rate);
    s[2] = make_stage("ground", "ground", t->ground, t->ground_slowest, t->ground_gflops, t->gemm_rate);
}

static json_t *timing_json(const samite_timing *t, const char *model)
{
    stage stages[STAGES];
    samite_machine machine;
    samite_machine_describe(&machine);
    make_stages(stages, t);
    json_t *o = json_pack("{s:s, s:o, s:o, s:i, s:{s:o}, s:o, s:I}", "precision",
                          t->precision, "cpu", json_name(machine.cpu), "kernels",
                          json_name(machine.kernels), "threads", machine.threads, "load", "seconds",
                          json_number(t->load), "gemm_gflops", json_number(t->gemm_rate), "peak_rss_bytes",
                          (json_int_t)t->peak_bytes);
    bool bad = !o || json_set_path(o, "model", model) != 0;
    for (int i = 0; i < STAGES && !bad; i++)
        bad = json_object_set_new(o, stages[i].key,
                                  json_pack("{s:o, s:o, s:o, s:o}", "seconds", json_number(stages[i].seconds), "slowest",
                                            json_number(stages[i].slowest), "gflops",
                                            json_number(stages[i].gflops), "roofline",
                                            json_number(stages[i].roofline))) != 0;
    if (bad) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static void print_timing(const samite_timing *t, const char *model)
{
    stage stages[STAGES];
    char peak[32];
    samite_machine machine;
    samite_machine_describe(&machine);
    make_stages(stages, t);
    format_bytes(peak, sizeof peak, t->peak_bytes);
    print_line("model", "%s, %s", model, t->precision);
    print_line("machine", "%s, %s kernels, %d threads", machine.cpu, machine.kernels, machine.threads);
    print_line("matrix product", "%.1f GFLOP/s in the same run", t->gemm_rate);
    printf("\n  %-14s %10s %10s %10s\n", "stage", "seconds", "GFLOP/s", "roofline");
    printf("  %-14s %10.4f\n", "load", t->load);
    for (int i = 0; i < STAGES; i++)
        printf("  %-14s %10.4f %10.1f %9.0f %%\n", stages[i].name, stages[i].seconds, stages[i].gflops,
               100 * stages[i].roofline);
    printf("\n");
    print_line("peak memory", "%s", peak);
}

#define MADE_UP_SIDE 1008

/* Soft waves: no stage depends on what is in the picture. */
static int made_up_picture(samite_pixels *p, samite_error *err)
{
    *p = (samite_pixels){.width = MADE_UP_SIDE, .height = MADE_UP_SIDE, .exif_orientation = 1};
    p->rgb = malloc((size_t)MADE_UP_SIDE * MADE_UP_SIDE * 3);
    if (!p->rgb)
        return fail(err, SAMITE_RESOURCE, "out of memory for a picture");
    for (int y = 0; y < MADE_UP_SIDE; y++)
        for (int x = 0; x < MADE_UP_SIDE; x++) {
            uint8_t *c = p->rgb + 3 * ((size_t)y * MADE_UP_SIDE + (size_t)x);
            c[0] = (uint8_t)(x * 255 / MADE_UP_SIDE);
            c[1] = (uint8_t)(y * 255 / MADE_UP_SIDE);
            c[2] = (uint8_t)((x / 63 + y / 63) % 2 * 255);
        }
    return SAMITE_OK;
}

static int tell(const samite_timing *t, const bench_settings *s, const char *model, samite_error *err)
{
    json_t *document = timing_json(t, model);
    int code = 0;
    if (s->json)
        return print_document(document, err);
    print_timing(t, model);
    if (s->compare)
        code = document ? bench_compare(document, s->compare, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    json_decref(document);
    return code;
}

static json_t *prompts_json(const samite_prompt_timing *t, const char *precision)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "precision", precision, "first", json_number(t->first), "second",
                     json_number(t->second), "identical", json_number(t->identical), "found", json_number(t->found),
                     "nothing", json_number(t->nothing));
}

static int bench_prompts(samite_model *m, const samite_pixels *pixels, const bench_settings *s, samite_error *err)
{
    samite_prompt_timing t;
    int code = samite_bench_prompts(m, pixels, s->repeats, &t, err);
    progress_end();
    if (code)
        return code;
    if (s->json)
        return print_document(prompts_json(&t, s->engine.precision ? s->engine.precision : "default"), err);
    printf("  %-44s %10s\n", "prompt, best of the repeats", "seconds");
    printf("  %-44s %10.4f\n", "first: picture and words, to 5 masks", t.first);
    printf("  %-44s %10.4f %6.2f %% less than the first\n", "second: other new words", t.second,
           100 * (1 - t.second / t.first));
    printf("  %-44s %10.6f %6.2f %% less than the second\n", "identical to the second", t.identical,
           100 * (1 - t.identical / t.second));
    printf("  %-44s %10.4f\n", "known words, 5 masks", t.found);
    printf("  %-44s %10.4f %6.2f %% less than with masks\n", "known words, nothing found", t.nothing,
           100 * (1 - t.nothing / t.found));
    return SAMITE_OK;
}

static int bench(const bench_settings *s, samite_error *err)
{
    samite_pixels pixels = {0};
    samite_timing t = {0};
    samite_model *m = NULL;
    const char *model = NULL;
    int code = model_path(&model, &s->engine, err);
    if (!code)
        code = s->image ? samite_pixels_read(&pixels, s->image, 0, err) : made_up_picture(&pixels, err);
    bool made_up = !s->image;
    if (!code)
        code = open_model(&m, &s->engine, err);
    if (!code && s->prompts)
        code = bench_prompts(m, &pixels, s, err);
    else if (!code)
        code = samite_bench(m, &pixels, s->text, s->repeats, &t, err);
    progress_end();
    if (!code && !s->prompts)
        code = tell(&t, s, model, err);
    if (!code && !s->prompts && !s->json && (s->profile || s->timeline))
        code = bench_profile(m, &pixels, s->text, t.gemm_rate, s->timeline, err);
    progress_end();
    if (made_up)
        free(pixels.rgb);
    else
        samite_pixels_free(&pixels);
    samite_model_free(m);
    return code;
}

static int run(int argc, char **argv)
{
    bench_settings s = {.text = "dog", .repeats = 3};
    samite_error err = {0};
    words rest = {0};
    int status;
    if (command_parse(&bench_command, &s, argc, argv, &rest, 0, 0, &status)) {
        progress_begin(s.engine.quiet);
        int code = bench(&s, &err);
        status = finish_output(code ? report(&err) : EXIT_OK);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "Load, image encoding, text encoding and grounding of one prompt, each the best of --repeats. \"roofline\" is the\n"
    "rate of a stage as a share of a plain matrix product's, measured in the same run.\n"
    "\n"
    "--prompts asks as a caller does: a picture with a first prompt, a second one, the same again, and known words\n"
    "with and without results. --size makes all of it smaller.\n"
    "\n"
    "Examples:\n"
    "  samite bench -m formula:full\n"
    "  samite bench -m sam3.pt --precision int8 --prompts\n"
    "  samite bench -m sam3.pt --precision int8 --profile --timeline ops.html\n"
    "  samite bench -m sam3.pt --json > before.json; samite bench -m sam3.pt --compare before.json\n"
    "  samite bench -m sam3.pt --precision bf16 --image photo.jpg --text dog --json\n";

const command bench_command = {
    "bench", "time each stage on this machine", "bench -m MODEL [options]", details, options, run,
};
