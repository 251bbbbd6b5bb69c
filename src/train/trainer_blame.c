/* trainer_blame.c - which picture and prompt a gradient that is no number comes from. */
#include <math.h>

#include "train/trainer.h"

typedef struct search {
    const optimizer *o;
    step_losses     *losses;
} search;

static void look(void *user, run *r, const picture_answers *a)
{
    search *s = user;
    (void)r;
    if (s->losses->bad_image >= 0 || isfinite(optimizer_norm(s->o)))
        return;
    s->losses->bad_image = a->image;
    s->losses->bad_prompt = a->first_prompt;
}

static void look_encoded(void *user, int image, const encoded_image *e)
{
    search *s = user;
    (void)e;
    if (s->losses->bad_image < 0 && !isfinite(optimizer_norm(s->o)))
        s->losses->bad_image = image;
}

void trainer_blame(trainer *t, const batch *b, const forward_options *o, step_losses *l)
{
    step_losses again;
    search s = {&t->o, l};
    forward_options own = *o;
    own.chunk = 1;
    own.recall = NULL;
    own.keep = NULL;
    own.heads_done = NULL;
    own.look = look;
    own.look_encoded = look_encoded;
    own.user = &s;
    optimizer_zero(&t->o);
    l->bad_image = l->bad_prompt = -1;
    if (batch_gradients(&t->tapes, t->n, b, &own, &again, NULL) && l->bad_image < 0) {
        l->bad_image = again.bad_image;
        l->bad_prompt = again.bad_prompt;
    }
}
