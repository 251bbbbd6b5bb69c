/* mask_decoder.c - output tokens and prompt look at the picture; each mask token becomes a filter over the enlarged map. */
#include "model/mask_decoder.h"

#include <stdio.h>

#define NORM_EPS        1e-6f
#define HEADS           8
#define HIDDEN          2048       /* of the two-way transformer */
#define OVERLAP_HIDDEN  256
#define OWN_TOKENS      (2 + MASK_GUESSES)

void mask_decoder_declare(mask_decoder *w, registry *g, const config *c)
{
    int64_t d = c->d;
    size_t mark = registry_enter(g, "tracker.sam_mask_decoder");
    g->part = PART_CLICK;
    two_way_declare(&w->transformer, g, d, HEADS, HIDDEN);
    w->overlap_token = declare_matrix(g, "iou_token.weight", 1, d);
    w->mask_token = declare_matrix(g, "mask_tokens.weight", MASK_GUESSES, d);
    w->object_token = declare_matrix(g, "obj_score_token.weight", 1, d);
    declare_up(g, "output_upscaling.0", &w->up1, d, d / 4);
    declare_norm(g, "output_upscaling.1", &w->up_norm, d / 4, NORM_EPS);
    declare_up(g, "output_upscaling.3", &w->up2, d / 4, d / 8);
    declare_conv1(g, "conv_s0", &w->fine0, d, d / 8);
    declare_conv1(g, "conv_s1", &w->fine1, d, d / 4);
    for (int i = 0; i < MASK_GUESSES; i++) {
        char name[40];
        snprintf(name, sizeof name, "output_hypernetworks_mlps.%d", i);
        declare_mlp(g, name, &w->hyper[i], d, d, d / 8, 3);
    }
    declare_mlp(g, "iou_prediction_head", &w->overlap, d, OVERLAP_HIDDEN, MASK_GUESSES, 3);
    declare_mlp(g, "pred_obj_score_head", &w->object, d, d, 1, 3);
    registry_leave(g, mark);
}

static tensor *fine(run *r, const linear_w *w, tensor *level)
{
    tensor *y = linear(r, level, w);
    return reshape(r, y, 3, (int64_t[]){level->dim[1], level->dim[2], tensor_cols(y)});
}

tensor *mask_decoder_fine0(run *r, const mask_decoder *w, tensor *level)
{
    return fine(r, &w->fine0, level);
}

tensor *mask_decoder_fine1(run *r, const mask_decoder *w, tensor *level)
{
    return fine(r, &w->fine1, level);
}

/* The decoder's own tokens in front of the prompt's: [B, 6 + k, d]. */
static tensor *all_tokens(run *r, const mask_decoder *w, tensor *prompt)
{
    tensor *own = concat(r, run_param(r, w->object_token), run_param(r, w->overlap_token), 0);
    own = concat(r, own, run_param(r, w->mask_token), 0);
    own = reshape(r, own, 3, (int64_t[]){1, OWN_TOKENS, tensor_cols(own)});
    return prompt ? concat(r, repeat(r, own, prompt->dim[0]), prompt, 1) : own;
}

/* [B, t * t, d] -> [B, 16 t * t, d / 8] */
static tensor *enlarge(run *r, const mask_decoder *w, tensor *image, tensor *fine0, tensor *fine1)
{
    run_part(r, "mask_decoder.enlarge");
    int64_t batch = image->dim[0], side = fine1->dim[0] / 2;
    tensor *x = reshape(r, image, 4, (int64_t[]){batch, side, side, tensor_cols(image)});
    x = add(r, conv_up2(r, x, &w->up1, ACT_NONE), fine1);
    x = activate(r, norm(r, x, &w->up_norm), ACT_GELU);
    x = activate(r, add(r, conv_up2(r, x, &w->up2, ACT_NONE), fine0), ACT_GELU);
    return reshape(r, x, 3, (int64_t[]){batch, x->dim[1] * x->dim[2], tensor_cols(x)});
}

/* Token `i` of every prompt: [B, d]. flat is [B, tokens * d]. */
static tensor *token(run *r, tensor *flat, int i, int64_t d)
{
    return copy(r, columns(r, flat, i * d, d));
}

/* One filter for each guess: [B, 4, d / 8]. */
static tensor *filters(run *r, const mask_decoder *w, tensor *flat, int64_t d)
{
    tensor *all = NULL;
    for (int i = 0; i < MASK_GUESSES; i++) {
        tensor *f = mlp(r, token(r, flat, 2 + i, d), &w->hyper[i]);
        f = reshape(r, f, 3, (int64_t[]){flat->dim[0], 1, tensor_cols(f)});
        all = all ? concat(r, all, f, 1) : f;
    }
    return all;
}

void mask_decoder_forward(run *r, const mask_decoder *w, tensor *image, tensor *places, tensor *prompt, tensor *fine0,
                          tensor *fine1, guesses *out)
{
    run_part(r, "mask_decoder");
    size_t mark = run_mark(r);
    int64_t d = tensor_cols(image);
    tensor *x = all_tokens(r, w, prompt);
    if (image->dim[0] > x->dim[0])
        x = repeat(r, x, image->dim[0]);
    two_way_forward(r, &w->transformer, &x, &image, places);
    run_part(r, "mask_decoder.heads");
    tensor *flat = reshape(r, x, 2, (int64_t[]){x->dim[0], x->dim[1] * d});
    out->object = mlp(r, token(r, flat, 0, d), &w->object);
    out->overlap = activate(r, mlp(r, token(r, flat, 1, d), &w->overlap), ACT_SIGMOID);
    out->tokens = reshape(r, copy(r, columns(r, flat, 2 * d, MASK_GUESSES * d)), 3,
                          (int64_t[]){x->dim[0], MASK_GUESSES, d});
    tensor *f = filters(r, w, flat, d);
    out->masks = product(r, f, enlarge(r, w, image, fine0, fine1));
    run_keep_all(r, mark, (tensor *[]){out->object, out->overlap, out->tokens, out->masks}, 4);
}
