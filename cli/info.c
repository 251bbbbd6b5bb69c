/* info.c - `samite info`: what a model file holds and what running it takes. */
#include <jansson.h>
#include <stdio.h>

#include "base/error.h"
#include "report.h"
#include "session.h"

typedef struct info_settings {
    engine_settings engine;
    bool            json;
} info_settings;

static const option options[] = {
    {"--json", 0, OPTION_FLAG, offsetof(info_settings, json), NULL, .help = "JSON on standard output"},
    ENGINE_OPTIONS(info_settings),
    {0}
};

static json_t *parts_json(const samite_model_info *i)
{
    json_t *list = json_array();
    for (int k = 0; k < i->parts; k++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:f}", "name", i->part[k].name, "parameters",
                                              (json_int_t)i->part[k].parameters, "bytes", (json_int_t)i->part[k].bytes,
                                              "flops", i->part[k].flops));
    return list;
}

static json_t *sizes_json(const samite_model_info *i)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "patch", i->patch, "window", i->window,
                     "queries", i->queries, "context", i->context, "trunk_width", i->trunk_width, "trunk_depth",
                     i->trunk_depth, "trunk_heads", i->trunk_heads, "text_width", i->text_width, "text_layers",
                     i->text_layers, "width", i->width);
}

static json_t *tensors_json(const samite_model_info *i)
{
    return json_pack("{s:I, s:I, s:I, s:o}", "loaded", (json_int_t)i->loaded, "ignored", (json_int_t)i->ignored,
                     "missing", (json_int_t)i->missing, "types", json_name(i->types));
}

static json_t *info_json(const samite_model_info *i, const int *sides, int side_count)
{
    json_t *list = json_array();
    for (int k = 0; k < side_count; k++)
        json_array_append_new(list, json_integer(sides[k]));
    json_t *o = json_pack("{s:o, s:i, s:o, s:b, s:b, s:o, s:o, s:I, s:I, s:o}", "kind", json_name(i->kind),
                          "input_side", i->input_side, "input_sides", list, "masks", i->has_masks, "tracker",
                          i->has_tracker, "sizes", sizes_json(i), "tensors", tensors_json(i), "weight_bytes",
                          (json_int_t)i->weight_bytes, "activation_bytes", (json_int_t)i->activation_bytes, "parts",
                          parts_json(i));
    if (o && json_set_path(o, "source", i->source)) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static void print_parts(const samite_model_info *i)
{
    uint64_t parameters = 0, bytes = 0;
    double flops = 0;
    printf("\n  %-20s %12s %10s %12s\n", "part", "parameters", "stored", "GFLOP");
    for (int k = 0; k < i->parts; k++) {
        char size[32];
        format_bytes(size, sizeof size, i->part[k].bytes);
        printf("  %-20s %12llu %10s %12.3f\n", i->part[k].name, (unsigned long long)i->part[k].parameters, size,
               i->part[k].flops * 1e-9);
        parameters += i->part[k].parameters;
        bytes += i->part[k].bytes;
        flops += i->part[k].flops;
    }
    char size[32];
    format_bytes(size, sizeof size, bytes);
    printf("  %-20s %12llu %10s %12.3f\n", "all", (unsigned long long)parameters, size, flops * 1e-9);
}

static void print_info(const samite_model_info *i, const int *sides, int side_count)
{
    char weights[32], activations[32];
    format_bytes(weights, sizeof weights, i->weight_bytes);
    format_bytes(activations, sizeof activations, i->activation_bytes);
    print_line("model", "%s", i->source);
    print_line("kind", "%s%s%s", i->kind, i->has_masks ? ", masks" : ", no mask head",
               i->has_tracker ? ", tracker" : "");
    print_line("tensors", "%llu loaded, %llu ignored, %llu missing (%s)", (unsigned long long)i->loaded,
               (unsigned long long)i->ignored, (unsigned long long)i->missing, i->types);
    print_line("input", "%d pixels a side, patches of %d, windows of %d patches", i->input_side, i->patch, i->window);
    printf("%-16s", "input sides");
    for (int k = 0; k < side_count; k++)
        printf("%s%d", k ? " " : "", sides[k]);
    putchar('\n');
    print_line("image encoder", "%d wide, %d blocks, %d heads", i->trunk_width, i->trunk_depth, i->trunk_heads);
    print_line("text encoder", "%d wide, %d layers, %d tokens", i->text_width, i->text_layers, i->context);
    print_line("detector", "%d wide, %d queries", i->width, i->queries);
    print_line("memory", "%s weights, %s activations at most", weights, activations);
    print_parts(i);
}

#define MOST_SIDES 64

static int describe(const info_settings *s, samite_error *err)
{
    samite_model *m;
    samite_model_info i = {.size = sizeof i};
    int sides[MOST_SIDES];
    int code = open_model(&m, &s->engine, err);
    if (!code)
        code = samite_model_describe(m, &i, err);
    progress_end();
    if (!code) {
        int count = samite_model_sides(m, sides, MOST_SIDES);
        if (s->json)
            code = print_document(info_json(&i, sides, count), err);
        else
            print_info(&i, sides, count);
    }
    samite_model_free(m);
    return code;
}

static int run(int argc, char **argv)
{
    info_settings s = {0};
    samite_error err = {0};
    words rest = {0};
    int status;
    if (command_parse(&info_command, &s, argc, argv, &rest, 0, 1, &status)) {
        if (rest.count)
            s.engine.model = rest.item[0];
        progress_begin(s.engine.quiet);
        int code = describe(&s, &err);
        status = finish_output(code ? report(&err) : EXIT_OK);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "Parameters and stored bytes per part; operations per part from a trace at --size (of one picture for the image\n"
    "encoder, of one prompt for the rest); memory for the weights and the most that activations take.\n"
    "\n"
    "Examples:\n"
    "  samite info sam3.pt\n"
    "  samite info formula:full --size 672 --json\n";

const command info_command = {
    "info", "sizes, tensors, operations and memory of a model", "info [MODEL] [options]", details, options, run,
};
