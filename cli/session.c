/* session.c - model, messages, progress line and Ctrl-C for all sub-commands. */
#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "demo_model.h"

#define ENCODE_SHARE 0.8      /* of the time of one picture, for the estimate of a batch */
#define ITEM_STEPS 1000

/* There is one terminal and one Ctrl-C per process. */
static struct {
    progress line;
    bool     quiet;
    int      item, items, prompt, prompts;
} display;
static volatile sig_atomic_t stop_wanted;

static void on_signal(int number)
{
    stop_wanted = number;
}

void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN);    /* a write beyond ulimit -f fails like one on a full disk */
}

bool interrupted(void)
{
    return stop_wanted != 0;
}

int check_interrupt(samite_error *err)
{
    return interrupted() ? fail(err, SAMITE_CANCELLED, "interrupted") : SAMITE_OK;
}

void say(const char *format, ...)
{
    char *line = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&line, format, args) < 0)
        line = NULL;
    va_end(args);
    for (char *c = line; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = '?';
    progress_hide(&display.line);
    fprintf(stderr, "samite: %s\n", line ? line : "out of memory");
    free(line);
}

int exit_status(int code)
{
    return code < 0 && code >= -255 ? -code : code == 0 ? EXIT_OK : 1;
}

int report(const samite_error *err)
{
    if (interrupted() || err->code == SAMITE_CANCELLED) {
        say("interrupted; nothing half-written was left behind");
        return exit_status(SAMITE_CANCELLED);
    }
    say("%s", err->text);
    return exit_status(err->code);
}

int finish_output(int status)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    bool gone = errno == EPIPE || (poll(&out, 1, 0) > 0 && out.revents & POLLERR);
    if (!gone)                   /* a reader such as `head` that has seen enough is no news */
        say("cannot write standard output: %s", errno ? strerror(errno) : "an earlier write failed");
    return exit_status(SAMITE_RESOURCE);
}

/* How much of a picture's work is done when `share` of this stage is. */
static double share_of_picture(const char *stage, double share)
{
    if (strcmp(stage, "encode") == 0)
        return ENCODE_SHARE * share;
    return display.prompts ? ENCODE_SHARE + (1 - ENCODE_SHARE) * (display.prompt + share) / display.prompts : 0;
}

static int on_progress(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)user;
    double share = total ? (double)done / (double)total : 0;
    if (display.items > 1 && strcmp(stage, "load") != 0) {
        progress_label(&display.line, "photo %d/%d: %s", display.item + 1, display.items, stage);
        progress_update(&display.line, "photos", (uint64_t)((display.item + share_of_picture(stage,
                                                                                             share)) * ITEM_STEPS),
                        (uint64_t)display.items * ITEM_STEPS);
        return stop_wanted;
    }
    if (display.prompts > 1 && strcmp(stage, "ground") == 0)
        progress_label(&display.line, "ground, prompt %d/%d", display.prompt + 1, display.prompts);
    else
        progress_label(&display.line, "%s", "");
    progress_update(&display.line, stage, done, total);
    return stop_wanted;
}

static void on_log(void *user, const char *line)
{
    (void)user;
    if (!display.quiet)
        say("%s", line);
}

void progress_begin(bool quiet)
{
    display.quiet = quiet;
    progress_open(&display.line, quiet);
}

void progress_item(int at, int total)
{
    display.item = at;
    display.items = total;
    display.prompt = display.prompts = 0;
}

void progress_prompt(int step, int steps)
{
    display.prompt = step;
    display.prompts = steps;
}

void progress_make_way(void)
{
    progress_hide(&display.line);
}

void progress_end(void)
{
    progress_close(&display.line);
}

static const char *named_model(const engine_settings *s)
{
    const char *path = s->model ? s->model : getenv("SAMITE_MODEL");
    return path && *path ? path : NULL;
}

bool model_is_named(const engine_settings *s)
{
    return named_model(s) || s->name;
}

int model_path(const char **path, const engine_settings *s, samite_error *err)
{
    if (s->name && strcmp(s->name, "native") != 0) {
        *path = s->parts;
        return s->parts ? SAMITE_OK : fail(err, SAMITE_USAGE, "--engine %s needs --parts DIR, a folder that samite export "
                                           "wrote", s->name);
    }
    if (s->parts || s->library || s->settings)
        return fail(err, SAMITE_USAGE, "--parts, --engine-library and --engine-settings go with --engine NAME");
    *path = named_model(s);
    if (!*path)
        *path = demo_model_path();
    if (*path)
        return SAMITE_OK;
    return fail(err, SAMITE_USAGE, "no model given: use -m FILE or set SAMITE_MODEL; sam3.pt is on Hugging Face as "
                "facebook/sam3 (accept Meta's licence there first); -m formula:small tries samite out without weights");
}

samite_options library_options(const engine_settings *s)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    o.threads = s->threads;
    o.cpu = s->cpu;
    o.precision = s->precision;
    o.input_side = s->side;
    o.memory_limit = s->memory_limit;
    o.engine = s->name;
    o.engine_library = s->library;
    o.engine_settings = s->settings;
    o.low_memory = s->low_memory;
    o.progress = on_progress;
    o.log = on_log;
    return o;
}

int open_model(samite_model **out, const engine_settings *s, samite_error *err)
{
    const char *path = NULL;
    *out = NULL;
    int code = model_path(&path, s, err);
    if (code)
        return code;
    if (!model_is_named(s) && !s->quiet)
        say(DEMO_MODEL_NOTICE);
    samite_options o = library_options(s);
    char *folder = s->no_cache ? NULL : samite_cache_folder();
    o.cache_folder = folder;
    code = samite_model_open(out, path, &o, err);
    samite_free(folder);
    if (code)
        *out = NULL;
    return code;
}

void command_help(const command *c)
{
    printf("samite %s - %s\n\nUsage: samite %s\n\nOptions:\n", c->name, c->summary, c->usage);
    options_help(c->options);
    printf("\n%s", c->details);
}

bool command_parse(const command *c, void *settings, int argc, char **argv, words *rest, int least, int most,
                   int *status)
{
    samite_error err = {0};
    bool help;
    int code = options_parse(c->options, settings, argc, argv, rest, &help, &err);
    if (!code && help) {
        command_help(c);
        *status = finish_output(EXIT_OK);
        return false;
    }
    if (!code && rest->count < least)
        code = fail(&err, SAMITE_USAGE, "%s: something is missing; usage: samite %s", c->name, c->usage);
    if (!code && rest->count > most)
        code = fail(&err, SAMITE_USAGE, "%s: \"%s\" is one argument too many; usage: samite %s", c->name,
                    rest->item[most], c->usage);
    if (code)
        *status = report(&err);
    return code == SAMITE_OK;
}
