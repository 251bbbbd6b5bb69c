/* seghead.c - upsamples the fused tokens along the pyramid and multiplies pixels with query embeddings. */
#include "model/seghead.h"

#include <stdio.h>

#define NORM_EPS 1e-5f
#define GROUPS   8

void seghead_declare(seghead *s, registry *g, const config *c)
{
    size_t mark = registry_enter(g, "detector.segmentation_head");
    g->part = PART_MASK_HEAD;
    declare_attend(g, "cross_attend_prompt", &s->prompt, c->d, c->heads);
    declare_norm(g, "cross_attn_norm", &s->prompt_norm, c->d, NORM_EPS);
    for (int i = 0; i < 3; i++) {
        char name[40];
        size_t from = g->count;
        snprintf(name, sizeof name, "pixel_decoder.conv_layers.%d", i);
        declare_conv(g, name, &s->conv[i], c->d, c->d, 3, 1, 1, 1);
        snprintf(name, sizeof name, "pixel_decoder.norms.%d", i);
        declare_norm(g, name, &s->group[i], c->d, NORM_EPS);
        if (i == 2)
            registry_unused(g, from);
    }
    declare_mlp(g, "mask_predictor.mask_embed", &s->mask_embed, c->d, c->d, c->d, 3);
    declare_conv1(g, "instance_seg_head", &s->instance, c->d, c->d);
    registry_keep(&s->instance);
    declare_conv1(g, "semantic_seg_head", &s->semantic, c->d, 1);
    registry_leave(g, mark);
}

tensor *seghead_pixels(run *r, const seghead *s, tensor *const *level, tensor *memory, tensor *prompt, tensor *mask)
{
    size_t mark = run_mark(r);
    run_part(r, "mask_head.prompt");
    int64_t batch = memory->dim[0], side = level[1]->dim[1] / 2, d = tensor_cols(memory);
    attend_options o = {.key_mask = mask};
    tensor *x = attend_add(r, memory, &s->prompt, norm(r, memory, &s->prompt_norm), prompt, prompt, &o);
    x = run_keep(r, mark, reshape(r, x, 4, (int64_t[]){batch, side, side, d}));
    for (int i = 0; i < 2; i++) {
        run_part(r, "mask_head.pixels.%d", i);
        x = conv(r, upsample_add(r, x, level[1 - i]), &s->conv[i], ACT_NONE);
        x = run_keep(r, mark, group_norm(r, x, &s->group[i], GROUPS, true));
    }
    return x;
}

tensor *seghead_masks(run *r, const seghead *s, tensor *pixels, tensor *queries)
{
    size_t mark = run_mark(r);
    run_part(r, "mask_head.masks");
    tensor *masks = product_linear(r, mlp(r, queries, &s->mask_embed), pixels, &s->instance);
    masks = reshape(r, masks, 4, (int64_t[]){masks->dim[0], queries->dim[1], pixels->dim[1], pixels->dim[2]});
    return run_keep(r, mark, note(r, masks, "masks"));
}

tensor *seghead_semantic(run *r, const seghead *s, tensor *pixels)
{
    run_part(r, "mask_head.semantic");
    return note(r, linear(r, pixels, &s->semantic), "semantic");
}
