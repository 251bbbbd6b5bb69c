/* options.h - a table of options, and the parser and help text that work from it. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "samite.h"

/* What stands at option.at inside the settings: */
typedef enum option_kind {
    OPTION_END,        /* closes the table */
    OPTION_FLAG,       /* bool, set to true; takes no value */
    OPTION_TEXT,       /* const char *, borrowed from argv */
    OPTION_CHOICE,     /* const char *, one of `choices` ("f32|bf16") */
    OPTION_INT,        /* int between least and most */
    OPTION_REAL,       /* double between least and most */
    OPTION_BYTES,      /* uint64_t, "1500M", "8G" */
    OPTION_LIST,       /* words: every use adds one */
    OPTION_CALL        /* anything: `parse` takes the value */
} option_kind;

/* Reads `value` into `to`; 0 or SAMITE_USAGE with a line that begins with the option's name. */
typedef int (*option_parse)(void *to, const char *name, const char *value, samite_error *err);

typedef struct option {
    const char  *name;       /* "--text" */
    char         letter;     /* 'm' for -m, or 0 */
    option_kind  kind;
    size_t       at;         /* offset in the settings */
    const char  *value;      /* how help calls the value: "FILE" */
    const char  *help;
    double       least, most;
    const char  *choices;
    option_parse parse;
} option;

/* Words that were given, borrowed from argv; the array is owned. */
typedef struct words {
    const char **item;
    int          count, room;
} words;
int  words_add(words *w, const char *word, samite_error *err);
void words_free(words *w);

/* Reads argv[0..argc) into `settings`; what is no option goes to `rest`. Options may stand anywhere; "--" ends them.
 * Forms: --name value, --name=value, -x value, -xvalue. *help is set when -h or --help was met; parsing ends there. */
int options_parse(const option *table, void *settings, int argc, char **argv, words *rest, bool *help,
                  samite_error *err);

/* Prints one line per option to standard output. */
void options_help(const option *table);

/* A finite number that fills the whole string; false otherwise. */
bool parse_number(double *out, const char *s);
/* "4096", "512K", "1.5M", "8G" (powers of 1024; "GiB" and "GB" are taken too). */
bool parse_bytes(uint64_t *out, const char *s);


/* "I/N": part I of N, from 1; of = 0: not given. */
typedef struct shard { int at, of; } shard;
int parse_shard(void *to, const char *name, const char *value, samite_error *err);

#endif
