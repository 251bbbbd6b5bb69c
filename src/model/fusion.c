/* fusion.c - six layers: self-attention over the picture, attention to the prompt, feed-forward. */
#include "model/fusion.h"

#include <stdlib.h>

bool fusion_open(fusion *f, registry *g, const config *c)
{
    *f = (fusion){.layers = c->enc_layers};
    f->layer = calloc((size_t)f->layers, sizeof *f->layer);
    if (!f->layer)
        return false;
    g->part = PART_FUSION;
    for (int i = 0; i < f->layers; i++) {
        size_t mark = registry_enter(g, "detector.transformer.encoder.layers.%d", i);
        declare_encoder_layer(g, &f->layer[i], c->d, c->heads, c->ffn);
        registry_leave(g, mark);
    }
    return !g->failed;
}

void fusion_close(fusion *f)
{
    free(f->layer);
}

static tensor *flat_codes(run *r, tensor *codes)
{
    return reshape(r, codes, 2, (int64_t[]){tensor_rows(codes), tensor_cols(codes)});
}

static tensor *look_at_picture(run *r, const encoder_layer *l, tensor *x, tensor *codes)
{
    tensor *t = norm(r, x, &l->norm1), *place = add(r, t, codes);
    return attend_drop_add(r, x, &l->self, place, place, t, NULL);
}

static tensor *look_at_prompt(run *r, const encoder_layer *l, tensor *x, tensor *prompt, tensor *mask)
{
    attend_options o = {.key_mask = mask};
    x = attend_drop_add(r, x, &l->cross, norm(r, x, &l->norm2), prompt, prompt, &o);
    return feed_forward_drop(r, x, &l->norm3, &l->fc1, &l->fc2, ACT_RELU);
}

/* Checkpoints: in = {x, codes} and {x, codes, prompt, mask}; the whole layer, or only its second half. */
static tensor *begin_part(run *r, void *layer, tensor **in)
{
    return look_at_picture(r, layer, in[0], in[1]);
}

static tensor *rest_part(run *r, void *layer, tensor **in)
{
    return look_at_prompt(r, layer, in[0], in[2], in[3]);
}

static tensor *layer_part(run *r, void *layer, tensor **in)
{
    return look_at_prompt(r, layer, look_at_picture(r, layer, in[0], in[1]), in[2], in[3]);
}

tensor *fusion_begin(run *r, const fusion *f, tensor *image, tensor *codes)
{
    run_part(r, "fusion.layer.0");
    size_t mark = run_mark(r);
    tensor *x = reshape(r, image, 3, (int64_t[]){image->dim[0], image->dim[1] * image->dim[2], tensor_cols(image)});
    tensor *in[] = {x, flat_codes(r, codes)};
    return run_keep(r, mark, run_checkpoint(r, begin_part, &f->layer[0], in, 2));
}

tensor *fusion_forward(run *r, const fusion *f, tensor *begun, tensor *codes, tensor *prompt, tensor *mask)
{
    return fusion_forward_each(r, f, begun, codes, prompt, mask, NULL);
}

tensor *fusion_forward_each(run *r, const fusion *f, tensor *begun, tensor *codes, tensor *prompt, tensor *mask,
                            tensor **each)
{
    size_t mark = run_mark(r);
    codes = flat_codes(r, codes);
    tensor *x = begun->dim[0] < prompt->dim[0] ? repeat(r, begun, prompt->dim[0]) : begun;
    for (int i = 0; i < f->layers; i++) {
        run_part(r, "fusion.layer.%d", i);
        tensor *in[] = {x, codes, prompt, mask};
        x = run_keep(r, mark, run_checkpoint(r, i ? layer_part : rest_part, &f->layer[i], in, 4));
        if (each)
            each[i] = x;
    }
    return note(r, x, "memory");
}
