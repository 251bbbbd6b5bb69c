/* evaluation.h - from file names to numbers: what samite_evaluate does. */
#ifndef EVAL_EVALUATION_H
#define EVAL_EVALUATION_H

#include <jansson.h>

#include "eval/coco.h"

/* Numbers and remarks of an evaluation while it grows. */
typedef struct findings {
    samite_metric *metric;
    size_t         metrics, metric_room;
    char         **note;
    size_t         notes, note_room;
    json_t        *json;           /* what is printed with --json, in the order of its keys */
    pool           texts;
    bool           failed;         /* out of memory somewhere */
} findings;

void findings_free(findings *f);
void findings_number(findings *f, const char *group, const char *name, double value);
void findings_note(findings *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* json[group][name] = value as a number with all its digits; not finite: null. */
void findings_put(findings *f, const char *group, const char *name, double value);

/* COCO or SA-Co numbers from files. */
int evaluate_files(findings *f, const samite_eval_options *o, samite_error *err);
/* Video numbers, video.c. */
int evaluate_videos(findings *f, const samite_eval_options *o, samite_error *err);

/* Images and categories that take part, one byte each; NULL: all. Yours to free. `limit` images are chosen as the
 * official loader chooses them; `list` is a JSON file of ids or NULL; an unknown name is SAMITE_USAGE. */
int evaluation_images(uint8_t **keep, const eval_set *truth, int limit, const char *list, samite_error *err);
int evaluation_categories(uint8_t **keep, const eval_set *truth, const char *const *classes, int count,
                          samite_error *err);

#endif
