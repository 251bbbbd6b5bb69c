/* session.h - what the sub-commands share: the model, messages, the progress line, Ctrl-C. */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "options.h"

/* Exit status besides the positive error codes of samite.h. */
#define EXIT_OK 0

/* Settings of every command that runs a model; rows for an option table whose settings hold them as `engine`. */
typedef struct engine_settings {
    const char *model, *cpu, *precision;
    const char *name, *parts, *library, *settings;   /* of another engine, see ENGINE_CHOICE */
    int         threads, side;
    uint64_t    memory_limit;
    bool        quiet, no_cache, low_memory;
} engine_settings;

#define MODEL_OPTION(T) \
    {"--model", 'm', OPTION_TEXT, offsetof(T, engine.model), "MODEL", \
     .help = "sam3.pt, .safetensors, a folder, or formula:tiny|small|full (default: $SAMITE_MODEL, else the demo model)"}
#define QUIET_OPTION(T) \
    {"--quiet", 'q', OPTION_FLAG, offsetof(T, engine.quiet), NULL, .help = "no progress and no warnings"}
#define PROCESSOR_OPTIONS(T) \
    {"--threads", 'j', OPTION_INT, offsetof(T, engine.threads), "N", .help = "threads (default: all physical cores)", \
     .least = 1, .most = 4096}, \
    {"--cpu", 0, OPTION_CHOICE, offsetof(T, engine.cpu), "LEVEL", \
     .help = "highest instruction set: ref, avx2 or avx512", .choices = "ref|avx2|avx512"}
#define ENGINE_OPTIONS(T) \
    MODEL_OPTION(T), \
    {"--size", 0, OPTION_INT, offsetof(T, engine.side), "PIXELS", \
     .help = "side of the square the network sees (default: the model's own)", .least = 1, .most = 65536}, \
    PROCESSOR_OPTIONS(T), \
    {"--precision", 0, OPTION_CHOICE, offsetof(T, engine.precision), "TYPE", \
     .help = "arithmetic: f32, bf16, int8 or auto (default: f32; for files made with convert --dtype int8: auto)", .choices = "f32|bf16|int8|auto"}, \
    {"--memory-limit", 0, OPTION_BYTES, offsetof(T, engine.memory_limit), "SIZE", \
     .help = "most memory for activations, such as 2G (default: no limit)"}, \
    {"--low-memory", 0, OPTION_FLAG, offsetof(T, engine.low_memory), NULL, \
     .help = "give weights back once they were used: less memory, slower when more follows"}, \
    {"--no-cache", 0, OPTION_FLAG, offsetof(T, engine.no_cache), NULL, \
     .help = "keep no packed weights in the cache folder, and use none"}, \
    QUIET_OPTION(T)

/* For commands that can leave the computing to another engine. */
#define ENGINE_CHOICE(T) \
    {"--engine", 0, OPTION_TEXT, offsetof(T, engine.name), "NAME", \
     .help = "who computes: native, or with --parts onnxruntime[:cuda|tensorrt|openvino|cann], openvino[:GPU|NPU]"}, \
    {"--parts", 0, OPTION_TEXT, offsetof(T, engine.parts), "DIR", \
     .help = "folder written by samite export, for --engine"}, \
    {"--engine-library", 0, OPTION_TEXT, offsetof(T, engine.library), "FILE", \
     .help = "library of that engine (default: looked for)"}, \
    {"--engine-settings", 0, OPTION_TEXT, offsetof(T, engine.settings), "LIST", \
     .help = "key=value,key=value for its provider or device"}

/* A sub-command. `run` gets the words behind its name and returns the exit status. */
typedef struct command {
    const char   *name, *summary, *usage, *details;   /* details: printed below the options, with examples */
    const option *options;
    int         (*run)(int argc, char **argv);
} command;
extern const command segment_command, everything_command, track_command, info_command, convert_command, align_command, bench_command,
                     convert_annotations_command,
                     eval_command, doctor_command, export_command, import_command,
                     train_command, merge_command, encode_command, start_command, scenes_command;

/* Reads the words of `c` into `settings`, and the rest, of which `least` to `most` must be there, into `rest`.
 * Returns true when the command should go on; otherwise *status is its exit status (help was printed, or an error). */
bool command_parse(const command *c, void *settings, int argc, char **argv, words *rest, int least, int most,
                   int *status);
void command_help(const command *c);

/* One line on standard error, "samite: ...", without control characters; the progress line makes way. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Says an error and returns the exit status that goes with it. An interruption is said once, in the same words. */
int  report(const samite_error *err);
int  exit_status(int code);
/* Flushes standard output; when what was printed could not be written: says so and returns the status for it, else
 * `status`. */
int  finish_output(int status);

/* The path of the model: the option, else SAMITE_MODEL, else the one that comes with samite, else an error that tells
 * where to get one. */
int model_path(const char **path, const engine_settings *s, samite_error *err);
/* Is there an option or SAMITE_MODEL? */
bool model_is_named(const engine_settings *s);
/* Opens the model with progress shown; says so when it is the one that comes with samite. */
int open_model(samite_model **out, const engine_settings *s, samite_error *err);
/* The options for the library that belong to these settings, callbacks included. */
samite_options library_options(const engine_settings *s);

/* Ctrl-C: the first asks all long work to stop, the second ends the process. */
void catch_interrupts(void);
bool interrupted(void);
int  check_interrupt(samite_error *err);      /* SAMITE_CANCELLED after Ctrl-C, else 0 */

/* The progress line. In a batch it counts pictures: item `at` of `total` (from 0), `step` of `steps` prompts in it. */
void progress_begin(bool quiet);
void progress_item(int at, int total);
void progress_prompt(int step, int steps);
void progress_end(void);
/* Takes the line away before something is printed on standard output; it comes back with the next step. */
void progress_make_way(void);

#endif
