/* progress.h - one line on a terminal: stage, share done, time left. Silent when stderr is no terminal. */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool     shown;      /* stderr is a terminal and nobody asked for silence */
    char     stage[64];
    char     label[64];  /* shown instead of the stage when not empty */
    double   started, last_draw;   /* seconds, monotonic */
    uint64_t done, total;
} progress;

void   progress_open(progress *p, bool quiet);
/* Draws at most 10 times a second, and only once a stage has run longer than 2 s in all. */
void   progress_update(progress *p, const char *stage, uint64_t done, uint64_t total);
/* Text to show in place of the stage's name from now on (a count that must not restart the clock); "" = the name. */
void   progress_label(progress *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Clears the line; the next update draws it again. Call before printing anything else. */
void   progress_hide(progress *p);
void   progress_close(progress *p);      /* clears the line */
double seconds_now(void);                /* monotonic */

#endif
