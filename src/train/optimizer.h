/* optimizer.h - which tensors learn, how fast, and the step: AdamW with clipping, layer decay and the official
 * schedule. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "runtime/native.h"

typedef struct learn_rates {
    double rest, vision, language;     /* base rates: everything else, trunk and neck, text encoder */
    double weight_decay;               /* not for biases and LayerNorm */
    double layer_decay;                /* of the trunk, towards its input */
    double timescale, warmup, cooldown;/* steps of the inverse square root schedule */
    double beta1, beta2, eps, clip;    /* clip: L2 norm of the whole gradient */
    double average;                    /* decay of the running mean of the weights; 0: none is kept */
} learn_rates;
extern const learn_rates official_rates;   /* 8e-5, 2.5e-5, 5e-6; 0.1; 0.9; 20, 20, 20; 0.9, 0.999, 1e-8, 0.1 */

/* One tensor that learns. */
typedef struct learner {
    entry  *e;
    double  base_rate;                 /* with layer decay, before the schedule */
    double  decay;
    bool    aside;                     /* no tensor of the model: its values are kept with the moments */
    bool    touched;                   /* false: gets no gradient at all in this kind of training, and is left alone */
    float  *m, *v;                     /* AdamW's moments */
    float  *mean;                      /* running mean of the values, or NULL */
    int64_t steps;
} learner;

typedef struct optimizer {
    learn_rates rates;
    learner    *item;
    int         count, room;
} optimizer;

/* Makes the tensors of `parts` (1 << PART_..) trainable: own f32 copies and gradients. masks: the mask head takes part.
 */
int  optimizer_open(optimizer *o, native *n, unsigned parts, bool masks, const learn_rates *rates, samite_error *err);
/* One more tensor that learns, with values and room of its own (an adapter); the rates are those of the part it names.
 */
int  optimizer_add(optimizer *o, native *n, entry *e, samite_error *err);
/* The same for a tensor that helps training and is no part of any model. */
int  optimizer_add_aside(optimizer *o, native *n, entry *e, samite_error *err);
void optimizer_close(optimizer *o);    /* tensors keep their values */
void optimizer_zero(optimizer *o);     /* gradients to 0 */
double optimizer_norm(const optimizer *o);
/* Clips by the norm and steps with every rate multiplied by `factor` (see schedule_factor). */
void optimizer_step(optimizer *o, double norm, double factor);

/* Exchanges the values of all tensors with their running means, where these are kept; again: back. */
void optimizer_exchange_means(optimizer *o);

/* Rates that differ, ascending by place of first use; at most `room`; returns how many. For logs. */
typedef struct rate_group { const char *name; double rate; } rate_group;
int optimizer_groups(const optimizer *o, rate_group *out, int room);

/* The official schedule as a factor of the base rate: step = int(epochs done x steps per epoch), where = share of the
 * whole training done. The first step gets 0. */
double schedule_factor(const learn_rates *r, int64_t step, double where);

#endif
