/* report.h - an evaluation as one self-contained HTML page, CSV and JSON. */
#ifndef EVAL_REPORT_H
#define EVAL_REPORT_H

#include "eval/coco.h"
#include "eval/evaluation.h"

typedef struct report report;

/* Makes the folder. */
int  report_open(report **out, const char *folder, samite_error *err);
/* Adds the sections of one IoU type: bars per category, PR curves, sizes, confusion, galleries. */
int  report_coco(report *r, const char *kind, const coco_result *result, const eval_set *truth, const eval_set *results,
                 const samite_eval_options *o, samite_error *err);
/* Writes report.html, metrics.csv and metrics.json. */
int  report_write(report *r, const findings *f, const samite_eval_options *o, samite_error *err);
void report_free(report *r);

#endif
