/* point.c - going back to an earlier point of a run. */
#include "ops/run_state.h"

run_point run_save(const run *r)
{
    record_mark m = run_record_mark(r);
    return (run_point){run_mark((run *)(uintptr_t)r), m.used, m.at, r->last_id};
}

void run_restore(run *r, run_point p)
{
    arena_release(&r->values, p.values);
    arena_release(&r->scratch, 0);
    run_record_release(r, (record_mark){p.chunk, p.used});
    r->part_copy = NULL;
    r->last_id = p.last_id;
    r->failed = false;
    r->error = (samite_error){0};
}
