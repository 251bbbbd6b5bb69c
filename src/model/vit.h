/* vit.h - the image trunk: patches, 32 blocks of windowed or global attention. */
#ifndef MODEL_VIT_H
#define MODEL_VIT_H

#include "model/blocks.h"

typedef struct vit_block {
    norm_w   norm1, norm2;        /* [D] */
    linear_w qkv, proj;           /* [3D, D], [D, D] */
    linear_w fc1, fc2;            /* [M, D], [D, M] */
    bool     global;
    const struct vit *trunk;      /* the trunk it belongs to */
} vit_block;

typedef struct vit {
    linear_w   patch_embed;       /* [D, 3, p, p], no bias */
    param     *pos_embed;         /* [1, 1 + g * g, D], first row unused */
    norm_w     ln_pre;
    vit_block *block;             /* [depth] */
    int        depth, heads, window, patch, grid;   /* grid: side of the position table */
    int32_t   *position;          /* [tokens^2] row of pos_embed for each token, in window order */
    float     *rope_window;       /* [window^2, D / heads] */
    float     *rope_global;       /* [tokens^2, D / heads], rows in window order */
    int        tokens;            /* per side, at the model's input side */
} vit;

bool vit_open(vit *v, registry *g, const config *c);     /* declares the tensors; false: out of memory */
void vit_close(vit *v);

/* image [B, S, S, 3], normalised -> [B, S/p, S/p, D]. Notes trunk.patch_embed, trunk.block.I, trunk.out. */
tensor *vit_forward(run *r, const vit *v, tensor *image);

#endif
