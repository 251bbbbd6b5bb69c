/* options.c - reads the command line by a table and prints the table as help. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

#define MOST_OPTIONS 64

int words_add(words *w, const char *word, samite_error *err)
{
    if (w->count == w->room) {
        int room = w->room ? 2 * w->room : 8;
        const char **item = w->room > INT_MAX / 2 ? NULL : realloc(w->item, (size_t)room * sizeof *item);
        if (!item)
            return fail(err, SAMITE_RESOURCE, "out of memory for %d arguments", w->count);
        w->item = item;
        w->room = room;
    }
    w->item[w->count++] = word;
    return SAMITE_OK;
}

void words_free(words *w)
{
    free(w->item);
    *w = (words){0};
}

bool parse_number(double *out, const char *s)
{
    char *end;
    if (isspace((unsigned char)*s))
        return false;
    *out = strtod(s, &end);
    return end != s && *end == '\0' && isfinite(*out);
}

bool parse_bytes(uint64_t *out, const char *s)
{
    static const char units[] = "KMGT";
    char *end;
    double n = strtod(s, &end);
    if (end == s || !isfinite(n) || n < 0 || isspace((unsigned char)*s))
        return false;
    const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit) {
        n = ldexp(n, 10 * (int)(unit - units + 1));
        end++;
        if (*end == 'i')
            end++;
    }
    if (*end == 'B')
        end++;
    if (*end != '\0' || n >= 0x1p63)
        return false;
    *out = (uint64_t)n;
    return true;
}

#define MOST_SHARDS 1000000

int parse_shard(void *to, const char *name, const char *value, samite_error *err)
{
    shard *s = to;
    double at = 0, of = 0;
    char first[32];
    size_t n = strcspn(value, "/");
    snprintf(first, sizeof first, "%.*s", (int)(n < 31 ? n : 31), value);
    if (value[n] != '/' || !parse_number(&at, first) || !parse_number(&of, value + n + 1) || at != floor(at) ||
        of != floor(of) || of < 1 || of > MOST_SHARDS || at < 1 || at > of)
        return fail(err, SAMITE_USAGE, "%s wants I/N with I from 1 to N, such as 1/4, not \"%s\"", name, value);
    *s = (shard){(int)at, (int)of};
    return SAMITE_OK;
}

/* Is `value` one of the words of "a|b|c"? */
static bool among(const char *value, const char *choices)
{
    size_t n = strlen(value);
    for (const char *c = choices; n && *c; c += strcspn(c, "|"), c += *c == '|')
        if (strcspn(c, "|") == n && memcmp(c, value, n) == 0)
            return true;
    return false;
}

static int store_number(const option *o, void *to, const char *value, samite_error *err)
{
    double n;
    bool whole = o->kind == OPTION_INT;
    if (!parse_number(&n, value) || n < o->least || n > o->most || (whole && n != floor(n)))
        return fail(err, SAMITE_USAGE, "%s wants a %snumber from %.9g to %.9g, not \"%s\"", o->name,
                    whole ? "whole " : "", o->least, o->most, value);
    if (whole)
        *(int *)to = (int)n;
    else
        *(double *)to = n;
    return SAMITE_OK;
}

static int store(const option *o, void *settings, const char *value, samite_error *err)
{
    void *to = (char *)settings + o->at;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)to = true;
        return SAMITE_OK;
    case OPTION_CHOICE:
        if (!among(value, o->choices))
            return fail(err, SAMITE_USAGE, "%s takes one of %s, not \"%s\"", o->name, o->choices, value);
        *(const char **)to = value;
        return SAMITE_OK;
    case OPTION_INT:
    case OPTION_REAL:
        return store_number(o, to, value, err);
    case OPTION_BYTES:
        if (!parse_bytes(to, value))
            return fail(err, SAMITE_USAGE, "%s wants a size such as 800M or 8G, not \"%s\"", o->name, value);
        return SAMITE_OK;
    case OPTION_LIST:
        return words_add(to, value, err);
    case OPTION_CALL:
        return o->parse(to, o->name, value, err);
    default:
        *(const char **)to = value;
        return SAMITE_OK;
    }
}

/* The row whose long name is the first n characters of `name`. */
static const option *find_long(const option *table, const char *name, size_t n)
{
    for (const option *o = table; o->kind != OPTION_END; o++)
        if (strlen(o->name) == n && memcmp(o->name, name, n) == 0)
            return o;
    return NULL;
}

static const option *find_letter(const option *table, char letter)
{
    for (const option *o = table; o->kind != OPTION_END; o++)
        if (o->letter && o->letter == letter)
            return o;
    return NULL;
}

static int unknown(const option *table, const char *arg, samite_error *err)
{
    const char *names[MOST_OPTIONS];
    char given[64];
    size_t count = 0;
    for (const option *o = table; o->kind != OPTION_END && count < MOST_OPTIONS; o++)
        names[count++] = o->name;
    snprintf(given, sizeof given, "%.*s", (int)strcspn(arg, "="), arg);
    const char *near = arg[1] == '-' ? closest_word(given, names, count) : NULL;
    if (near)
        return fail(err, SAMITE_USAGE, "unknown option %s; did you mean %s?", given, near);
    return fail(err, SAMITE_USAGE, "unknown option %s; --help lists the options", given);
}

static bool looks_like_option(const option *table, const char *arg)
{
    return starts_with(arg, "--") && (arg[2] == '\0' || find_long(table, arg, strcspn(arg, "=")));
}

/* Reads the option at argv[*at] and its value, which may be the next word; *at moves to the last word used. */
static int parse_one(const option *table, void *settings, int argc, char **argv, int *at, samite_error *err)
{
    const char *arg = argv[*at], *value = NULL;
    bool is_long = arg[1] == '-';
    size_t n = is_long ? strcspn(arg, "=") : 2;
    const option *o = is_long ? find_long(table, arg, n) : find_letter(table, arg[1]);
    if (!o)
        return unknown(table, arg, err);
    if (arg[n] != '\0')
        value = arg + n + (arg[n] == '=');
    if (o->kind == OPTION_FLAG) {
        if (value)
            return fail(err, SAMITE_USAGE, "%s takes no value", o->name);
        return store(o, settings, NULL, err);
    }
    if (!value) {
        if (*at + 1 >= argc || looks_like_option(table, argv[*at + 1]))
            return fail(err, SAMITE_USAGE, "%s needs a value: %s %s", o->name, o->name, o->value);
        value = argv[++*at];
    }
    return store(o, settings, value, err);
}

int options_parse(const option *table, void *settings, int argc, char **argv, words *rest, bool *help,
                  samite_error *err)
{
    *help = false;
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        int code = SAMITE_OK;
        if (ended || arg[0] != '-' || arg[1] == '\0') {
            code = words_add(rest, arg, err);
        } else if (strcmp(arg, "--") == 0) {
            ended = true;
        } else if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            *help = true;
            return SAMITE_OK;
        } else {
            code = parse_one(table, settings, argc, argv, &i, err);
        }
        if (code)
            return code;
    }
    return SAMITE_OK;
}

#define HELP_COLUMN 30

void options_help(const option *table)
{
    for (const option *o = table; o->kind != OPTION_END; o++) {
        char left[80];
        int n = 0;
        if (o->letter)
            n = snprintf(left, sizeof left, "-%c, ", o->letter);
        snprintf(left + n, sizeof left - (size_t)n, "%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
        if (strlen(left) > HELP_COLUMN - 2)
            printf("  %s\n  %-*s%s\n", left, HELP_COLUMN, "", o->help);
        else
            printf("  %-*s%s\n", HELP_COLUMN, left, o->help);
    }
    printf("  %-*s%s\n", HELP_COLUMN, "-h, --help", "this text");
}
