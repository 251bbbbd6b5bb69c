/* progress.c - the progress line. */
#include "base/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BEFORE_FIRST_DRAW 2.0
#define BETWEEN_DRAWS 0.1

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_open(progress *p, bool quiet)
{
    memset(p, 0, sizeof *p);
    p->shown = !quiet && isatty(STDERR_FILENO);
    p->started = seconds_now();
}

/* "4 s", "3:05", "2:10:00" */
static void format_time(char *out, size_t room, double seconds)
{
    if (!(seconds < 359999))
        seconds = 359999;
    unsigned s = (unsigned)(seconds + 0.5);
    if (s < 60)
        snprintf(out, room, "%u s", s);
    else if (s < 3600)
        snprintf(out, room, "%u:%02u", s / 60, s % 60);
    else
        snprintf(out, room, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
}

static void draw(progress *p, double now)
{
    double share = p->total ? (double)p->done / (double)p->total : 0;
    double spent = now - p->started;
    const char *name = p->label[0] ? p->label : p->stage;
    if (share > 1)
        share = 1;
    if (share > 0) {
        char left[32];
        format_time(left, sizeof left, spent / share - spent);
        fprintf(stderr, "\r\033[K%s %3.0f %%, %s left", name, share * 100, left);
    } else {
        char so_far[32];
        format_time(so_far, sizeof so_far, spent);
        fprintf(stderr, "\r\033[K%s, %s", name, so_far);
    }
    fflush(stderr);
    p->last_draw = now;
}

void progress_update(progress *p, const char *stage, uint64_t done, uint64_t total)
{
    double now = seconds_now();
    if (strncmp(p->stage, stage, sizeof p->stage - 1) != 0) {
        snprintf(p->stage, sizeof p->stage, "%s", stage);
        p->started = now;
    }
    p->done = done;
    p->total = total;
    if (p->shown && now - p->started > BEFORE_FIRST_DRAW && now - p->last_draw > BETWEEN_DRAWS)
        draw(p, now);
}

void progress_label(progress *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(p->label, sizeof p->label, format, args);
    va_end(args);
}

void progress_hide(progress *p)
{
    if (p->shown && p->last_draw > 0) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        p->last_draw = 0;
    }
}

void progress_close(progress *p)
{
    progress_hide(p);
    memset(p, 0, sizeof *p);
}
