/* bits.h - masks as rows of bits: areas and overlaps of many pairs are cheap. */
#ifndef TRACK_BITS_H
#define TRACK_BITS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bit_masks {
    int       count;
    int64_t   pixels, words;   /* of each */
    uint64_t *bits;            /* [count, words] */
    int64_t  *area;            /* [count] */
} bit_masks;

/* Where `count` planes [count, pixels] of logits are positive. false: out of memory, and *m is empty. */
bool  bits_of_logits(bit_masks *m, const float *planes, int count, int64_t pixels);
void  bits_free(bit_masks *m);
/* Intersection over union, at least one pixel in the denominator; as the original computes it in f32. */
float bits_iou(const bit_masks *a, int i, const bit_masks *b, int j);

#endif
