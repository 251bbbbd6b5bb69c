/* runs.h - growing list of run lengths. Not for use outside src/io. */
#ifndef IO_RUNS_H
#define IO_RUNS_H

#include "io/mask.h"

typedef struct run_list {
    uint32_t *counts;
    size_t    runs, room;
    bool      on;       /* what the last run consists of; the first is background */
    bool      failed;   /* out of memory */
} run_list;

void runs_grow(run_list *l);

/* Adds `n` pixels of background or mask, joining them to the last run if it is of the same kind. */
static inline void runs_add(run_list *l, bool on, uint32_t n)
{
    if (n == 0)
        return;
    while (l->runs == 0 || l->on != on) {
        if (l->runs == l->room)
            runs_grow(l);
        if (l->failed)
            return;
        l->on = l->runs % 2 != 0;
        l->counts[l->runs++] = 0;
    }
    l->counts[l->runs - 1] += n;
}

/* Gives the list to *out, or frees it and fails. */
int runs_finish(rle *out, run_list *l, int width, int height, samite_error *err);
/* Sizes must be positive and their product must fit 32 bits. */
int runs_check_size(int width, int height, samite_error *err);

#endif
