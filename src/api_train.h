/* api_train.h - shared by the two files of training in the public API. */
#ifndef API_TRAIN_H
#define API_TRAIN_H

#include "samite.h"
#include "train/trainer.h"

struct samite_training {
    train_config            c;
    trainer                 trainer;      /* of the last check */
    bool                    checked;
    samite_training_row    *rows;
    samite_training_prompt *prompts;
};

/* What the trainer's hooks work with. */
typedef struct training_run {
    const samite_training_options *o;
    const train_config            *c;
} training_run;

/* A train_hooks.validate; `user` is a training_run. */
int training_validate(void *user, const char *model, const char *adapter, const char *title, train_scores *out,
                      samite_error *err);

#endif
