/* report.h - an evaluation as one self-contained HTML page, CSV and JSON. */
#ifndef EVAL_REPORT_H
#define EVAL_REPORT_H

#include "eval/coco.h"
#include "eval/evaluation.h"
#include "io/image.h"

/* The page while it is written. */
typedef struct report {
    const char *folder;
    text        body;
} report;

/* Makes the folder, of which the name is borrowed. */
int  report_open(report **out, const char *folder, samite_error *err);
/* Adds the sections of one IoU type: bars per category, PR curves, sizes, confusion, galleries. */
int  report_coco(report *r, const char *kind, const coco_result *result, const eval_set *truth, const eval_set *results,
                 const samite_eval_options *o, samite_error *err);
/* Writes report.html, metrics.csv and metrics.json. */
int  report_write(report *r, const findings *f, const samite_eval_options *o, samite_error *err);
void report_free(report *r);

/* ---- between the files of the report ---- */

/* What the sections of one IoU type are made from. */
typedef struct report_data {
    const char                *kind;
    bool                       masks;
    const coco_result         *result;
    const eval_set            *truth, *results;
    const samite_eval_options *o;
} report_data;

/* Text that may stand in HTML. */
void html_escape(text *t, const char *s);
/* Name of a category, or its id. */
void html_category(text *t, const eval_set *truth, int32_t category);

/* The picture, smaller where it is large, inside the page: an <img> whose source is the JPEG itself. */
int html_picture(text *t, const pixels *px, samite_error *err);
/* A table cell with a bar, full at 1. */
void html_bar(text *t, double part);

void report_bars(text *t, const report_data *d);
void report_curves(text *t, const report_data *d);
void report_sizes(text *t, const report_data *d);
int  report_confusion(text *t, const report_data *d, samite_error *err);
int  report_galleries(text *t, const report_data *d, samite_error *err);

#endif
