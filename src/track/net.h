/* net.h - the network as the tracker asks for it: computed here, or elsewhere, one object at a time.
 *
 * Values stay values of the run in both cases. What is computed elsewhere comes from functions that are given plain
 * numbers; their failures become failures of the run.
 */
#ifndef TRACK_NET_H
#define TRACK_NET_H

#include "model/sam3.h"

/* The picture that an object is looked for in. */
typedef enum seen_as { SEEN_NEVER, SEEN_PLAIN, SEEN_BY_MEMORY } seen_as;   /* without memories; as it is; remembered */

/* Of one object: masks [4, pixels], overlap [4], tokens [4, d], object [1]. */
typedef struct guessed { float *masks, *overlap, *tokens, *object; } guessed;

/* What the detector found: logits [Q], boxes [Q, 4] cx cy w h, masks [Q, pixels]; borrowed until the next call. */
typedef struct grounded_elsewhere {
    const float *logits, *boxes, *masks;
    float        presence;
    int          queries;
} grounded_elsewhere;

/* About the picture at hand. All return 0 or an error code with *err filled. */
typedef struct elsewhere {
    void *user;
    const float *no_pointer;       /* [d] of an object that cannot be seen */
    /* words [tokens, d], examples or NULL */
    int (*ground)(void *user, const float *words, int tokens, const examples *x, grounded_elsewhere *out,
                  samite_error *err);
    /* maps [maps, t * t, width] with ages, pointers [pointers, d] with distances -> out [t * t, d] */
    int (*look)(void *user, const float *maps, const int *age, int map_count, const float *pointers,
                const float *distance, int pointer_count, float *out, samite_error *err);
    /* seen [t * t, d] where it is SEEN_BY_MEMORY; mask [pixels] or NULL */
    int (*click)(void *user, seen_as how, const float *seen, const clicks *points, const float *mask, guessed *out,
                 samite_error *err);
    /* mask [16t, 16t] -> out [t * t, width] */
    int (*encode)(void *user, const float *mask, bool hidden, float *out, samite_error *err);
    /* mask [16t, 16t] -> out [4t, 4t] */
    int (*mask_prompt)(void *user, const float *mask, float *out, samite_error *err);
    /* tokens [4, d] -> out [4, d] */
    int (*pointers)(void *user, const float *tokens, float score, float *out, samite_error *err);
} elsewhere;

/* As sam3_click, memory_encode, memory_mask_prompt; `e` NULL: computed here. */
void    net_click(const elsewhere *e, run *r, const sam3 *net, const click_image *im, tensor *seen, const clicks *points,
                  tensor *mask, guesses *out);
tensor *net_encode(const elsewhere *e, run *r, const sam3 *net, tensor *image, tensor *mask, const bool *hidden);
tensor *net_mask_prompt(const elsewhere *e, run *r, const sam3 *net, tensor *mask);
/* Pointers [B, d] of guesses: token[b] counts over the guesses of all objects. */
tensor *net_pointers(const elsewhere *e, run *r, const sam3 *net, const guesses *g, const int32_t *token,
                     const bool *hidden);
const float *net_no_pointer(const elsewhere *e, const sam3 *net);

#endif
