/* doctor.c - `samite doctor`: what this machine offers and whether the model can be used. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "report.h"
#include "session.h"

typedef struct doctor_settings {
    engine_settings engine;
    bool            json, clear;
} doctor_settings;

static const option options[] = {
    MODEL_OPTION(doctor_settings),
    {"--json", 0, OPTION_FLAG, offsetof(doctor_settings, json), NULL, .help = "JSON on standard output"},
    {"--clear-cache", 0, OPTION_FLAG, offsetof(doctor_settings, clear), NULL,
     .help = "remove the packed weights that are kept for a faster start"},
    PROCESSOR_OPTIONS(doctor_settings),
    QUIET_OPTION(doctor_settings),
    {0}
};

/* What opening the model told. */
typedef struct model_check {
    const char  *path;          /* NULL: none was named */
    int          code;
    char         kind[64];
    uint64_t     weight_bytes, activation_bytes;
    samite_error err;
} model_check;

/* Packed weights on the disk. */
typedef struct cache_check {
    char        *folder;         /* NULL: switched off */
    uint64_t     bytes;
    int          files, code;
    samite_error err;
} cache_check;

static void check_cache(cache_check *c, bool clear)
{
    *c = (cache_check){.folder = samite_cache_folder()};
    if (c->folder)
        c->code = samite_cache_survey(c->folder, clear, &c->bytes, &c->files, &c->err);
}

static void print_cache(const cache_check *c, bool clear)
{
    char size[32];
    format_bytes(size, sizeof size, c->bytes);
    if (!c->folder)
        print_line("cache", "off: SAMITE_NO_CACHE is set");
    else if (c->code)
        print_line("cache", "%s", c->err.text);
    else if (clear)
        print_line("cache", "%s, %s in %d files removed", c->folder, size, c->files);
    else
        print_line("cache", "%s, %s in %d files", c->folder, size, c->files);
}

static json_t *cache_json(const cache_check *c)
{
    json_t *o = json_pack("{s:I, s:i}", "bytes", (json_int_t)c->bytes, "files", c->files);
    if (o && c->folder)
        json_set_path(o, "folder", c->folder);
    return o;
}

static void check_model(model_check *c, const engine_settings *s)
{
    samite_model *m = NULL;
    samite_model_info i = {.size = sizeof i};
    *c = (model_check){0};
    if (model_path(&c->path, s, NULL) != SAMITE_OK) {
        c->path = NULL;
        return;
    }
    c->code = open_model(&m, s, &c->err);
    if (!c->code)
        c->code = samite_model_describe(m, &i, &c->err);
    if (!c->code) {
        snprintf(c->kind, sizeof c->kind, "%s", i.kind);
        c->weight_bytes = i.weight_bytes;
        c->activation_bytes = i.activation_bytes;
    }
    samite_model_free(m);
}

static json_t *doctor_json(const samite_machine *m, const model_check *c, const cache_check *kept)
{
    json_t *o = json_pack("{s:s, s:o, s:o, s:s, s:i, s:i, s:I, s:I, s:o}", "version", SAMITE_VERSION, "cpu",
                          json_name(m->cpu), "features", json_name(m->features), "kernels", m->kernels, "threads",
                          m->threads, "cores", m->cores, "memory_bytes", (json_int_t)m->memory_bytes,
                          "memory_free_bytes",
                          (json_int_t)m->memory_free, "libraries", json_name(m->libraries));
    if (o)
        json_object_set_new(o, "cache", cache_json(kept));
    if (!o || !c->path)
        return o;
    json_t *model = json_object();
    json_set_path(model, "path", c->path);
    json_object_set_new(model, "usable", json_boolean(c->code == SAMITE_OK));
    if (c->code == SAMITE_OK)
        json_object_update_new(model, json_pack("{s:s, s:I, s:I}", "kind", c->kind, "weight_bytes",
                                                (json_int_t)c->weight_bytes, "activation_bytes",
                                                (json_int_t)c->activation_bytes));
    else
        json_object_set_new(model, "error", json_name(c->err.text));
    json_object_set_new(o, "model", model);
    return o;
}

static void print_model(const samite_machine *m, const model_check *c)
{
    char need[32];
    if (!c->path) {
        print_line("model", "none named: use -m or set SAMITE_MODEL");
        return;
    }
    print_line("model", "%s", c->path);
    if (c->code) {
        print_line("", "cannot be used: %s", c->err.text);
        return;
    }
    uint64_t total = c->weight_bytes + c->activation_bytes;
    format_bytes(need, sizeof need, total);
    print_line("", "%s, needs about %s of memory%s", c->kind, need,
               total > m->memory_free ? ", more than is free now" : "");
}

static void print_doctor(const samite_machine *m, const model_check *c, const cache_check *kept, bool clear)
{
    char all[32], left[32];
    format_bytes(all, sizeof all, m->memory_bytes);
    format_bytes(left, sizeof left, m->memory_free);
    print_line("samite", "%s", SAMITE_VERSION);
    print_line("processor", "%s", m->cpu);
    print_line("features", "%s", m->features);
    print_line("kernels", "%s", m->kernels);
    print_line("threads", "%d of %d cores", m->threads, m->cores);
    print_line("memory", "%s, %s free", all, left);
    print_line("libraries", "%s", m->libraries);
    print_cache(kept, clear);
    print_model(m, c);
}

static int run(int argc, char **argv)
{
    doctor_settings s = {0};
    words rest = {0};
    int status;
    if (command_parse(&doctor_command, &s, argc, argv, &rest, 0, 0, &status)) {
        samite_machine machine;
        model_check check;
        cache_check kept;
        samite_error err = {0};
        progress_begin(s.engine.quiet);
        check_cache(&kept, s.clear);
        check_model(&check, &s.engine);
        progress_end();
        samite_machine_describe(&machine);
        status = check.code || kept.code ? exit_status(SAMITE_FAILED) : EXIT_OK;
        if (!s.json)
            print_doctor(&machine, &check, &kept, s.clear);
        else if (print_document(doctor_json(&machine, &check, &kept), &err))
            status = report(&err);
        status = finish_output(interrupted() ? report(&check.err) : status);
        samite_free(kept.folder);
    }
    words_free(&rest);
    return status;
}

static const char details[] =
    "Processor features and the kernels chosen for them, threads, memory, library versions, the cache of packed weights,\n"
    "whether the model opens.\n"
    "Exit status 1 when a model is named that cannot be used.\n"
    "\n"
    "Examples:\n"
    "  samite doctor\n"
    "  samite doctor -m sam3.pt --json\n";

const command doctor_command = {
    "doctor", "look at this machine and the model path", "doctor [-m MODEL] [options]", details, options, run,
};
