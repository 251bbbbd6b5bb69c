/* log.h - what a training tells: JSON lines, TensorBoard event files, a page with curves. */
#ifndef TRAIN_LOG_H
#define TRAIN_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"

typedef struct train_log train_log;

/* Folders logs/ and tensorboard/ in `folder`. Lines of steps after `step` (a run that was killed wrote them) are
 * dropped from logs/steps.jsonl, the others read back for the page. `title` is borrowed. */
int train_log_open(train_log **out, const char *folder, const char *title, int64_t step, bool tensorboard,
                   samite_error *err);
void train_log_close(train_log *l);

/* One step's numbers, {"step": .., name: number, ..}: to steps.jsonl, TensorBoard and the curves. Takes `numbers` over.
 */
void train_log_step(train_log *l, int64_t step, json_t *numbers);
/* One object to logs/NAME, and its numbers to TensorBoard and, below "val", to the curves. Takes it over. */
void train_log_object(train_log *l, const char *name, int64_t step, json_t *object);
/* Writes report.html. `facts` (name: text or number) stands on top. */
int  train_log_page(train_log *l, json_t *facts, samite_error *err);
/* What went wrong with writing since the last call, or 0. */
int  train_log_status(train_log *l, samite_error *err);

#endif
