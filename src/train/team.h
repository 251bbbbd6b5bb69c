/* team.h - several processes that learn together. Everything that is specific to MPI stands behind this. */
#ifndef TRAIN_TEAM_H
#define TRAIN_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct team team;

/* backend: "auto" (MPI where a launcher started us and this build has it, else alone), "mpi", "none". */
int  team_open(team **out, const char *backend, samite_error *err);
void team_close(team *t);
int  team_rank(const team *t);
int  team_size(const team *t);

/* Sums over all processes, in place. Every process has to call these in the same order. A process that is gone ends the
 * whole job through the launcher; SAMITE_FAILED otherwise. */
int team_sum_doubles(team *t, double *x, int n, samite_error *err);
/* Begins the sum of `n` floats at `x`, which stay untouched until team_wait. */
int team_begin_sum(team *t, float *x, int64_t n, samite_error *err);
int team_wait(team *t, samite_error *err);
/* Everyone gets what rank 0 has. */
int team_share(team *t, void *data, int64_t bytes, samite_error *err);
/* Ends all processes with a line on what happened: one of them cannot go on. */
void team_abort(team *t, int code);
/* "Open MPI 4.1.4" or "none". */
const char *team_backend(void);

#endif
