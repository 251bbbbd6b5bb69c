/* team.c - one process alone, or MPI where the build has it. */
#include "train/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SAMITE_MPI
#include <mpi.h>
#endif

#define PIECE ((int64_t)1 << 26)      /* floats per message */

struct team {
    int rank, size;
#ifdef SAMITE_MPI
    MPI_Request *open;
    int          count, room;
    bool         ours;                /* we called MPI_Init */
#endif
};

/* Did a launcher start this process beside others? */
static bool launched(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *s = getenv(names[i]);
        if (s && atoi(s) > 1)
            return true;
    }
    return false;
}

int team_rank(const team *t)
{
    return t->rank;
}

int team_size(const team *t)
{
    return t->size;
}

#ifdef SAMITE_MPI

static int failed(int result, const char *what, samite_error *err)
{
    char line[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (result == MPI_SUCCESS)
        return 0;
    MPI_Error_string(result, line, &n);
    return fail(err, SAMITE_FAILED, "%s between processes failed: %s", what, line);
}

static int open_mpi(team *t, samite_error *err)
{
    int done = 0, level;
    MPI_Initialized(&done);
    if (!done && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return fail(err, SAMITE_FAILED, "MPI does not start");
    t->ours = !done;
    MPI_Comm_rank(MPI_COMM_WORLD, &t->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t->size);
    return 0;
}

int team_sum_doubles(team *t, double *x, int n, samite_error *err)
{
    if (t->size == 1)
        return 0;
    return failed(MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD), "a sum", err);
}

int team_begin_sum(team *t, float *x, int64_t n, samite_error *err)
{
    int code = 0;
    for (int64_t at = 0; at < n && t->size > 1 && !code; at += PIECE) {
        if (t->count == t->room) {
            MPI_Request *more = realloc(t->open, sizeof *more * (size_t)(2 * t->room + 64));
            if (!more)
                return fail(err, SAMITE_RESOURCE, "not enough memory to add gradients up");
            t->open = more;
            t->room = 2 * t->room + 64;
        }
        int count = (int)(n - at < PIECE ? n - at : PIECE);
        code =
            failed(MPI_Iallreduce(MPI_IN_PLACE, x + at, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &t->open[t->count]),
                   "a sum of gradients", err);
        t->count += !code;
    }
    return code;
}

int team_wait(team *t, samite_error *err)
{
    int code = t->count ? failed(MPI_Waitall(t->count, t->open, MPI_STATUSES_IGNORE), "a sum of gradients", err) : 0;
    t->count = 0;
    return code;
}

int team_share(team *t, void *data, int64_t bytes, samite_error *err)
{
    int code = 0;
    for (int64_t at = 0; at < bytes && t->size > 1 && !code; at += PIECE) {
        int count = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        code = failed(MPI_Bcast((char *)data + at, count, MPI_BYTE, 0, MPI_COMM_WORLD), "sharing", err);
    }
    return code;
}

void team_abort(team *t, int code)
{
    if (t && t->size > 1)
        MPI_Abort(MPI_COMM_WORLD, code < 0 ? -code : 1);
}

void team_close(team *t)
{
    int gone = 0;
    if (!t)
        return;
    MPI_Finalized(&gone);
    if (t->ours && !gone)
        MPI_Finalize();
    free(t->open);
    free(t);
}

const char *team_backend(void)
{
    static char line[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    if (!*line && MPI_Get_library_version(line, &n) == MPI_SUCCESS)
        line[strcspn(line, ",\n")] = '\0';
    return *line ? line : "MPI";
}

#else

static int open_mpi(team *t, samite_error *err)
{
    (void)t;
    return fail(err, SAMITE_USAGE,
                "this build has no MPI, which several processes need; build it with libopenmpi-dev installed, "
                "or start it once, without mpirun");
}

int team_sum_doubles(team *t, double *x, int n, samite_error *err)
{
    (void)t, (void)x, (void)n, (void)err;
    return 0;
}

int team_begin_sum(team *t, float *x, int64_t n, samite_error *err)
{
    (void)t, (void)x, (void)n, (void)err;
    return 0;
}

int team_wait(team *t, samite_error *err)
{
    (void)t, (void)err;
    return 0;
}

int team_share(team *t, void *data, int64_t bytes, samite_error *err)
{
    (void)t, (void)data, (void)bytes, (void)err;
    return 0;
}

void team_abort(team *t, int code)
{
    (void)t, (void)code;
}

void team_close(team *t)
{
    free(t);
}

const char *team_backend(void)
{
    return "none";
}

#endif

int team_open(team **out, const char *backend, samite_error *err)
{
    bool mpi = backend && strcmp(backend, "mpi") == 0, none = backend && strcmp(backend, "none") == 0;
    team *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return fail(err, SAMITE_RESOURCE, "out of memory");
    t->size = 1;
    int code = mpi || (!none && launched()) ? open_mpi(t, err) : 0;
    if (code)
        free(t);
    else
        *out = t;
    return code;
}
