/* patch_loss.h - what every patch of a picture shows, as a loss: which of the named classes, and whether it belongs to a
 * prompt. For training from nothing, where the official losses alone do not get off the ground.
 *
 * Gradients are added to, and are those of  weight x loss.
 */
#ifndef TRAIN_PATCH_LOSS_H
#define TRAIN_PATCH_LOSS_H

#include <stdbool.h>
#include <stdint.h>

/* Class vectors: means of the words' tokens, minus the mean over all classes, of length 1. */
typedef struct class_vectors {
    int    classes, d;
    float *unit, *dunit;         /* [classes, d] */
    float *length;               /* [classes] before it became 1 */
} class_vectors;

bool class_vectors_open(class_vectors *v, int classes, int d);      /* false: out of memory */
void class_vectors_close(class_vectors *v);
/* words [classes, n, d], of which the first tokens[c] count. dunit becomes 0. */
void class_vectors_make(class_vectors *v, const float *words, int n, const int *tokens);
/* From dunit: adds to dwords. */
void class_vectors_back(class_vectors *v, float *dwords, int n, const int *tokens);

/* Learnt besides: a vector and an offset of the background, and the logarithm of the logits' scale. */
typedef struct patch_head {
    const float *background;     /* [d] */
    float        offset, log_scale;
    float       *dbackground, doffset, dlog_scale;
} patch_head;

typedef struct patch_result {
    double loss, hits, objects;  /* objects: patches that mostly show one; hits: those whose class was the likeliest */
} patch_result;

/* Softmax over the classes and the background of  scale x cosine(feature, class). f [patches, d]; share
 * [patches, classes] how much of a patch a class covers, the rest is background. A patch counts 0.15 + what is covered;
 * the mean over the patches is multiplied by `weight`. room: classes + 1 + 2 d floats. */
void patch_loss(patch_result *out, float *df, class_vectors *v, patch_head *h, const float *f, const float *share,
                int patches, double weight, float *room);

/* Does a patch belong to the prompt: cross-entropy of gain . layer_norm(x) + bias. gain [d + 1], its last number is the
 * bias. belongs, counts [patches]: targets from 0 to 1, weights. room: 2 d floats. Returns the weighted mean. */
double match_loss(float *dx, float *dgain, const float *x, const float *gain, const float *belongs, const float *counts,
                  int patches, int d, double weight, float *room);

#endif
