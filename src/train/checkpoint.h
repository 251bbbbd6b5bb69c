/* checkpoint.h - what a stopped training goes on from: weights, the optimizer's state, and how far it got.
 *
 * In the folder: NAME.pt (the whole model, official layout) or NAME.adapter.safetensors, NAME.optimizer.safetensors,
 * and latest.json, which names the files that belong together. It is written last and whole, and files that it does not
 * name any more go only after that: whenever the process dies, latest.json names a complete state.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <jansson.h>

#include "train/lora.h"
#include "train/optimizer.h"

typedef struct train_state {
    int     epoch, iter;         /* epochs done, steps done in the one at hand */
    int64_t step;                /* optimizer steps done */
    double  elapsed;             /* seconds */
    double  best;                /* validation AP; -1: none yet */
    double  weight;              /* pictures in the sums */
    json_t *sums;                /* losses of the epoch at hand by name, times pictures; owned */
    json_t *shape;               /* what has to stay the same for going on: pictures, batch, seed; owned */
} train_state;

typedef struct checkpoint_files {
    const native    *n;
    const optimizer *o;
    const adapters  *a;          /* NULL: the weights themselves learn */
    const char      *folder;
    int              keep;       /* that stay */
} checkpoint_files;

/* Writes a state. *path (may be NULL) gets the model's or adapter's file, yours to free. */
int checkpoint_save(const checkpoint_files *f, const train_state *s, char **path, samite_error *err);
/* Reads the latest one, if there is any. SAMITE_INPUT when it belongs to another training. */
int checkpoint_load(const checkpoint_files *f, train_state *s, bool *found, samite_error *err);
/* Bytes that one state takes. SAMITE_RESOURCE when the disk of the folder has less. */
int checkpoint_space(const checkpoint_files *f, samite_error *err);
/* `path` also under the name best.pt (best.adapter.safetensors). */
int checkpoint_mark_best(const checkpoint_files *f, const char *path, samite_error *err);
/* Removes what an interrupted write left behind. */
void checkpoint_clean(const char *folder);

#endif
