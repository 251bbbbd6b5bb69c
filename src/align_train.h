/* align_train.h - shared by the two files that compare training with the original. */
#ifndef ALIGN_TRAIN_H
#define ALIGN_TRAIN_H

#include "align.h"
#include "train/forward.h"
#include "train/optimizer.h"
#include "train/sample.h"

/* Bars of ../shared design: float32 noise of the original times a margin. */
#define LOSS_BAR   1e-5      /* relative */
#define NORM_BAR   5e-5      /* relative, gradient norm before clipping */
#define GRAD_BAR   2e-5      /* of the tensor's norm */
#define ZERO_BAR   1e-4      /* absolute, where the exact gradient is zero */

/* One variant's reference: tensors, and the JSON beside them. */
typedef struct train_reference {
    aligner     *a;
    const char  *variant;        /* "loss", "det", "seg", "brisk" */
    tensor_list  list;
    bool        *used;
    json_t      *info;
} train_reference;

const weight *train_find(train_reference *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Values of a reference tensor as f32 (yours to free), or NULL when it is absent; *count may be NULL. */
float *train_values(train_reference *t, int64_t *count, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* One row: ours beside theirs, relative to the larger of |theirs| and `floor`. */
void train_number(train_reference *t, const char *name, double ours, double theirs, double bar, double floor);
/* One row for a whole array: largest difference relative to `scale` (0: the largest reference value). */
void train_array(train_reference *t, const char *name, const float *ours, const float *theirs, int64_t n, double bar,
                 double scale);
/* Matches as the reference stores them: rows prompt, query[, object]. `prompts_before` is added to ours. */
void train_matches(train_reference *t, const char *name, const match *ours, int count, const targets *of);

/* Losses by their official names, behind TITLE"."; no_masks: but loss_mask and loss_dice. */
void train_losses(train_reference *t, const char *title, const step_losses *ours, const json_t *theirs, bool masks,
                  bool no_masks);
/* Values that have to be equal to the last bit. */
void train_exact(train_reference *t, const char *name, const float *ours, int64_t n);

/* Targets TAG"target.*" (TAG may be ""); false: not complete. Freed with batch_free of the batch that holds them. */
bool train_targets(train_reference *t, targets *out, const char *tag);
/* Compares PREFIX"target.boxes_xyxy" and "target.boxes_padded" with what the boxes say. */
void train_boxes(train_reference *t, const targets *of, const char *prefix);

/* The data set that the recorded steps were drawn from, when the folder has it. */
typedef struct train_data {
    bool      open;
    train_set set;
    sampler   sampler;
} train_data;
int align_train_data_open(train_data *d, const train_reference *t, int side, int context, bool masks,
                          samite_error *err);
void align_train_data_close(train_data *d);
/* Rows for the batch of a step made from files beside the recorded one. */
int align_train_data(train_reference *t, const train_data *d, int step, const json_t *info, const batch *theirs,
                     samite_error *err);

int align_train_losses(train_reference *t, samite_error *err);                      /* variant loss */
int align_train_steps(train_reference *t, samite_model *m, samite_error *err);      /* variants det, seg, brisk */

/* A model that learns as the reference did. */
typedef struct trainee {
    train_reference *t;
    native    *n;
    tapes      tapes;
    optimizer  o;
    bool       masks;
    train_data data;
    int        step;
    batch      b;
    match_list match[2][DECODER_MAX_LAYERS];    /* of the whole batch, prompts counted through */
    float *words;                               /* gradient of the texts [texts, longest, d], summed over pictures */
    int    longest;                             /* tokens */
} trainee;

const learner *train_learner(const optimizer *o, const char *name);      /* by the tensor's name, or NULL */
/* align_train_look.c: answers, their gradients, inner tensors and theirs; `user` is the trainee. */
void train_look(void *user, run *r, const picture_answers *a);
void train_look_encoded(void *user, int image, const encoded_image *e);
void train_compare_matches(trainee *x);
void train_compare_words(trainee *x);                                    /* after the batch */
/* align_train_state.c: what the step made of weights, moments and rates. */
void train_compare_rates(trainee *x, const json_t *step, double factor);
void train_compare_weights(trainee *x, const json_t *step);
void train_compare_moments(trainee *x);

#endif
