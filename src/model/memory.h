/* memory.h - what a tracked object looked like before: maps of past frames, pointers, a picture that looks at them. */
#ifndef MODEL_MEMORY_H
#define MODEL_MEMORY_H

#include "model/two_way.h"

#define MEMORY_LAYERS 4        /* of the attention to memories */
#define MEMORY_FRAMES 7        /* temporal codes: 0..5 = 1..6 frames back, 6 = a frame that was prompted */
#define MASK_HALVES   4        /* steps from a mask of 16t pixels per side to t tokens */
#define FUSE_LAYERS   2

typedef struct memory_layer {
    attend_w self, cross;      /* one head of width d; keys and values of `cross` come mem_dim wide */
    norm_w   norm1, norm2, norm3;
    linear_w fc1, fc2;
} memory_layer;

typedef struct fuse_layer {
    conv_w   spread;           /* 7x7, each channel for itself */
    norm_w   norm;
    linear_w fc1, fc2;         /* d -> 4d -> d */
    param   *gamma;            /* [d] */
} fuse_layer;

typedef struct memory {
    int64_t  d, width;         /* width: of a memory (mem_dim) */
    memory_layer layer[MEMORY_LAYERS];
    norm_w   norm;
    conv_w   halve[MASK_HALVES];    /* 1 -> 4 -> 16 -> 64 -> 256 channels */
    norm_w   halve_norm[MASK_HALVES];
    linear_w mask, image;      /* 256 -> d, d -> d */
    fuse_layer fuse[FUSE_LAYERS];
    linear_w narrow;           /* d -> mem_dim */
    mlp_w    pointer;          /* d -> d -> d -> d */
    linear_w distance;         /* d -> mem_dim: code of a pointer's distance in time */
    param   *age;              /* [7, 1, 1, mem_dim] temporal codes */
    param   *no_pointer;       /* [1, d] of an object that cannot be seen */
    param   *no_object;        /* [1, mem_dim] added to the memory of such an object */
    conv_w   mask_prompt;      /* 1 -> 1, 4x4, stride 4: from a mask as given to one that prompts the decoder */
} memory;

bool memory_declare(memory *m, registry *g, const config *c);      /* false: mem_dim does not divide d */

/* The table of rotations that memory_attend wants: [t * t, d] numbers that outlive the run. */
void memory_rotations(float *out, int64_t tokens, int64_t d);

/* What angle k of d / 2 of a pointer's distance is divided by. */
float memory_distance_divisor(int64_t k, int64_t d);

typedef struct memories {
    tensor *tokens;            /* [B, k, mem_dim]: maps (t * t rows each), then pointers (d / mem_dim rows each) */
    tensor *places;            /* [k, mem_dim], or [B, k, mem_dim] where objects look back at different times */
    int64_t pointer_rows;      /* of those at the end, which are not rotated */
    const float *rotations;    /* from memory_rotations */
    tensor *unused;            /* [B, k] 1: not there; NULL = all are */
} memories;

/* image [1, t, t, d], codes [t * t, d] -> [1, t * t, d]: what all objects of a frame begin with. */
tensor *memory_begin(run *r, const memory *m, tensor *image, tensor *codes, const float *rotations);
/* -> [B, t * t, d]: the picture as the tracked objects see it. */
tensor *memory_look(run *r, const memory *m, tensor *begun, const memories *past);
/* Both. */
tensor *memory_attend(run *r, const memory *m, tensor *image, tensor *codes, const memories *past);
/* Places of `maps` maps with ages 0..6 and of pointers at `distance`s (frames / most frames): as memories.places.
 * grid: codes of a map, [t * t, mem_dim]. */
tensor *memory_places(run *r, const memory *m, tensor *grid, const int *age, int maps, const float *distance,
                      int pointers);
/* The same for each of `batch` objects: age [batch, maps], distance [batch, pointers]. */
tensor *memory_places_each(run *r, const memory *m, tensor *grid, int64_t batch, const int *age, int maps,
                           const float *distance, int pointers);

/* image [1, t, t, d] and what was found in it, mask [B, 16t, 16t, 1] in -10..10 -> [B, t * t, mem_dim].
 * hidden [B]: objects that cannot be seen; NULL = none. */
tensor *memory_encode(run *r, const memory *m, tensor *image, tensor *mask, const bool *hidden);
/* A mask as given, [B, 16t, 16t, 1] of 0 and 1 -> logits that prompt the click decoder, [B, 4t, 4t, 1]. */
tensor *memory_mask_prompt(run *r, const memory *m, tensor *mask);
/* tokens [B, d] of the decoder's chosen guesses -> pointers [B, d]. */
tensor *memory_pointers(run *r, const memory *m, tensor *tokens, const bool *hidden);

#endif
