/* bench_profile.h - what `samite bench` tells beyond the stages: op by op, and against an earlier run. */
#ifndef CLI_BENCH_PROFILE_H
#define CLI_BENCH_PROFILE_H

#include "report.h"

/* Profiles one pass; prints a table, and writes a timeline (HTML, one file) unless `timeline` is NULL. `rate`: GFLOP/s
 * of a plain product. */
int bench_profile(samite_model *m, const samite_pixels *pixels, const char *text, double rate, const char *timeline,
                  samite_error *err);

/* Prints the stages of two documents of `samite bench --json` beside each other. */
int bench_compare(const json_t *now, const char *old_path, samite_error *err);

#endif
