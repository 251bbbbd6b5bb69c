/* trainer.h - a whole training: data, model, steps, states, validation. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/aids.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/loader.h"
#include "train/log.h"
#include "train/scene_batch.h"
#include "train/team.h"
#include "runtime/native_write.h"

/* What is known about how it goes, once per step. */
typedef struct train_tick {
    int     epoch, epochs, iter, iters;
    int64_t step, steps;
    double  loss, grad_norm, rate;          /* rate: of all behind the encoders */
    double  images_per_s, left;             /* seconds */
    uint64_t memory;                        /* largest resident size so far */
} train_tick;

typedef struct train_scores {
    double  ap, ap50;                       /* of boxes */
    int     pictures;                       /* that were scored, one after the other */
    json_t *all; /* numbers by official name without prefix, "coco_eval_bbox_AP"; owned by the taker */
} train_scores;

/* Calls from the trainer, on rank 0 only but for stop. Members may be NULL. */
typedef struct train_hooks {
    void (*tick)(void *user, const train_tick *t);
    bool (*stop)(void *user);               /* finish the step, save, and end with SAMITE_CANCELLED */
    void (*log)(void *user, const char *line);
    /* Scores the model (or base + adapter) in a file. */
    int (*validate)(void *user, const char *model, const char *adapter, const char *title, train_scores *out,
                    samite_error *err);
    void *user;
} train_hooks;

typedef struct trainer {
    const train_config *c;
    const train_hooks  *h;
    team        *team;
    native      *n;
    unsigned     parts;                     /* that learn */
    optimizer    o;
    adapters     a;
    train_set    set;
    scene_source *scenes;                   /* NULL: pictures come from files */
    aids        *aids;                      /* losses on patches, or NULL */
    sampler      sampler;
    loader       loader;
    tapes        tapes;
    loss_weights weights;
    train_state  state;
    train_log   *log;                       /* rank 0 */
    char        *checkpoints;               /* folder */
    int32_t     *order;                     /* [chosen] of the epoch */
    int          iters;                     /* steps per epoch */
    int          share;                     /* pictures per step of this process */
    char        *features;                  /* folder of cached trunk maps, or NULL */
    double       started, first_loss;
    int64_t      first_step;                /* of this process's life */
    double       base_ap;                   /* -1: not scored */
    const int32_t *images;                  /* of the batch at hand, for the cache */
    uint64_t    *drop_seeds;                /* [share] of the batch at hand */
} trainer;

/* Reads the data and checks it against the settings (strict, nothing usable, no step in an epoch). */
int  trainer_data(trainer *t, samite_error *err);
/* The model and everything that learns, tapes included; after trainer_data. */
int  trainer_model(trainer *t, samite_error *err);
int  trainer_open(trainer *t, const train_config *c, const train_hooks *h, samite_error *err);
void trainer_close(trainer *t);
/* All epochs that are left. resume: go on with what is in the folder; without it a folder with a training is refused.
 */
int  trainer_run(trainer *t, bool resume, samite_error *err);

/* trainer_step.c: one optimizer step on a batch. *applied = false: it was not finite and left out. */
typedef struct step_result {
    step_losses losses;
    double      grad_norm, factor;
    bool        applied;
} step_result;
int trainer_step(trainer *t, const batch *b, step_result *out, samite_error *err);
/* Goes through the batch prompt by prompt, as `o` says, until the gradient is no number: l->bad_image, l->bad_prompt; -1
 * where it is never this process's. Leaves the gradients in any state. */
void trainer_blame(trainer *t, const batch *b, const forward_options *o, step_losses *l);

/* trainer_scenes.c: made-up pictures instead of a data set, the losses on patches that go with them, and a start in which
 * picture and words have one scale. */
int  trainer_scenes(trainer *t, samite_error *err);
int  trainer_aids(trainer *t, samite_error *err);
int  trainer_align(trainer *t, samite_error *err);
void trainer_scenes_close(trainer *t);

void trainer_say(const trainer *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same from any process: of several, it says which one it is. */
void trainer_tell(const trainer *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
checkpoint_files trainer_files(const trainer *t);
uint64_t trainer_memory(void);              /* largest resident size of the process */

/* trainer_cost.c: what a training will need, from a trace. */
typedef struct train_cost {
    uint64_t weights, packed, learning, activations, batch;    /* bytes; learning: gradients and moments */
    double   flops;                         /* of one picture, forward, backward and what is computed twice */
    int64_t  learners, frozen;              /* numbers */
} train_cost;
int trainer_cost(const trainer *t, train_cost *out, samite_error *err);
uint64_t train_cost_bytes(const train_cost *c);

#endif
