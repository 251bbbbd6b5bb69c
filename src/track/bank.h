/* bank.h - what is remembered of a batch of objects, frame by frame, and which of it the next frame looks at. */
#ifndef TRACK_BANK_H
#define TRACK_BANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define BANK_MAPS      6       /* frames before this one, besides the prompted ones */
#define BANK_PROMPTED  4       /* prompted frames looked at */
#define BANK_POINTERS  16      /* most frames counted for pointers */
#define AGE_PROMPTED   BANK_MAPS       /* temporal code of a prompted frame; r frames back have code r - 1 */

/* Everything about the objects of a batch on one frame. */
typedef struct moment {
    int64_t   frame;
    uint16_t *memory;          /* [B, t * t, width] as bf16; NULL: not written, or given back */
    float    *pointer;         /* [B, d] */
    float    *mask;            /* [B, 4t * 4t] logits; NULL: given back */
    float    *score;           /* [B] logit: is it there? */
    float    *overlap;         /* [B] expected IoU */
    float     quality;         /* of the whole batch, for the selection of memories; < 0: none */
    bool      veiled;          /* tracked close to a prompt: later clicks do not start from it */
} moment;

typedef struct bank {
    int      objects;
    int64_t  tokens, width, d, pixels;     /* t * t, mem_dim, model width, 4t * 4t */
    bool     select;           /* only moments above a least quality are remembered */
    moment **prompted;         /* in the order they came */
    int      prompted_count;
    moment **tracked;          /* in the order they came */
    int      tracked_count;
    int      room;
} bank;

void bank_init(bank *b, int objects, int64_t tokens, int64_t width, int64_t d, int64_t side);
void bank_free(bank *b);

/* A moment of this bank's size, zeroed, with room for a memory. NULL: out of memory. */
moment *moment_new(const bank *b, int64_t frame);
void    moment_free(moment *m);
/* The batch's quality: mean presence times mean expected overlap. */
float   moment_quality(const moment *m, int objects);

/* The moment of a frame, or NULL. */
moment *bank_prompted(const bank *b, int64_t frame);
moment *bank_tracked(const bank *b, int64_t frame);
/* Takes over *m in place of an older one of that frame; a prompted moment also displaces a tracked one.
 * SAMITE_RESOURCE: *m still belongs to the caller. */
int     bank_put(bank *b, moment *m, bool is_prompted, samite_error *err);
/* The prompted moment of a frame becomes one that was only tracked. */
void    bank_demote(bank *b, int64_t frame);
/* Takes object `i` out of every moment; there must be another one. */
void    bank_remove(bank *b, int i);
/* Gives back what no later frame in this direction looks at; with `turn`, nothing that one in the other direction
 * would.
 * Only `frame` keeps its masks. */
void    bank_trim(bank *b, int64_t frame, bool backward, bool turn);
size_t  bank_bytes(const bank *b);

/* What a frame looks at, oldest first where time matters. */
typedef struct recall {
    const moment *map[BANK_PROMPTED + BANK_MAPS];
    int           age[BANK_PROMPTED + BANK_MAPS];          /* temporal code */
    int           maps;
    const moment *pointer[BANK_PROMPTED + BANK_POINTERS];
    float         distance[BANK_PROMPTED + BANK_POINTERS]; /* share of the longest distance */
    int           pointers;
} recall;

/* frames: of the whole video, 0 = not known. backward: time runs towards frame 0. false: out of memory. */
bool bank_recall(const bank *b, int64_t frame, bool backward, int64_t frames, recall *out);

#endif
