/* decoder.c - 200 queries and a presence token; each layer refines the boxes that steer where the next one looks. */
#include "model/decoder.h"

#include <math.h>

#define NORM_EPS    1e-5f
#define LOGIT_LIMIT 12.0f     /* class logits are clamped to +-12 */

static void declare_layer(registry *g, decoder_layer *l, const config *c)
{
    declare_attend(g, "cross_attn", &l->image, c->d, c->heads);
    declare_norm(g, "norm1", &l->norm_image, c->d, NORM_EPS);
    declare_attend(g, "ca_text", &l->text, c->d, c->heads);
    declare_norm(g, "catext_norm", &l->norm_text, c->d, NORM_EPS);
    declare_attend(g, "self_attn", &l->self, c->d, c->heads);
    declare_norm(g, "norm2", &l->norm_self, c->d, NORM_EPS);
    declare_linear(g, "linear1", &l->fc1, c->d, c->ffn);
    declare_linear(g, "linear2", &l->fc2, c->ffn, c->d);
    declare_norm(g, "norm3", &l->norm_mlp, c->d, NORM_EPS);
}

static void declare_scoring(registry *g, decoder *w, const config *c)
{
    size_t mark = registry_enter(g, "detector.dot_prod_scoring");
    declare_mlp(g, "prompt_mlp", &w->prompt_mlp, c->d, c->ffn, c->d, 2);
    declare_norm(g, "prompt_mlp.out_norm", &w->prompt_norm, c->d, NORM_EPS);
    declare_linear(g, "prompt_proj", &w->prompt_proj, c->d, c->d);
    declare_linear(g, "hs_proj", &w->query_proj, c->d, c->d);
    registry_leave(g, mark);
}

bool decoder_open(decoder *w, registry *g, const config *c)
{
    if (c->dec_layers > DECODER_MAX_LAYERS)
        return false;
    *w = (decoder){.layers = c->dec_layers, .queries = c->queries};
    size_t mark = registry_enter(g, "detector.transformer.decoder");
    g->part = PART_DECODER;
    for (int i = 0; i < w->layers; i++) {
        size_t inner = registry_enter(g, "layers.%d", i);
        w->layer[i].all = w;
        declare_layer(g, &w->layer[i], c);
        registry_leave(g, inner);
    }
    declare_norm(g, "norm", &w->norm, c->d, NORM_EPS);
    declare_mlp(g, "bbox_embed", &w->box, c->d, c->d, 4, 3);
    w->query = declare_matrix(g, "query_embed.weight", c->queries, c->d);
    w->reference = declare_matrix(g, "reference_points.weight", c->queries, 4);
    declare_mlp(g, "boxRPB_embed_x", &w->bias_x, 2, c->d, c->heads, 2);
    declare_mlp(g, "boxRPB_embed_y", &w->bias_y, 2, c->d, c->heads, 2);
    w->presence_token = declare_matrix(g, "presence_token.weight", 1, c->d);
    declare_mlp(g, "presence_token_head", &w->presence, c->d, c->d, 1, 3);
    declare_norm(g, "presence_token_out_norm", &w->presence_norm, c->d, NORM_EPS);
    declare_mlp(g, "ref_point_head", &w->place, 2 * c->d, c->d, c->d, 2);
    registry_leave(g, mark);
    declare_scoring(g, w, c);
    return !g->failed;
}

/* Tokens first..first+count of [B, n, d] as a value of their own. */
static tensor *tokens_of(run *r, tensor *x, int64_t first, int64_t count)
{
    int64_t batch = x->dim[0], n = x->dim[1], d = tensor_cols(x);
    tensor *flat = reshape(r, x, 2, (int64_t[]){batch, n * d});
    return reshape(r, copy(r, columns(r, flat, first * d, count * d)), 3, (int64_t[]){batch, count, d});
}

/* Position of each query from its box, with a zero row in front for the presence token: [B, 1 + Q, d]. */
static tensor *query_place(run *r, const decoder *w, tensor *boxes, int64_t d)
{
    static const int order[] = {1, 0, 2, 3};    /* y x w h */
    return pad_front(r, mlp(r, sine_embed(r, boxes, order, 4, (int)(d / 2)), &w->place), 1);
}

/* Attention bias along one axis of the picture; the presence token has none: [B, 1 + Q, n, heads]. */
static tensor *box_bias(run *r, const mlp_w *w, tensor *boxes, int axis, int64_t n, int heads)
{
    int64_t batch = boxes->dim[0], q = boxes->dim[1];
    tensor *bias = mlp(r, box_distances(r, boxes, axis, n), w);
    bias = pad_front(r, reshape(r, bias, 3, (int64_t[]){batch, q, n * heads}), 1);
    return reshape(r, bias, 4, (int64_t[]){batch, 1 + q, n, heads});
}

typedef struct looking_at {
    tensor *memory, *keys;      /* [B, t * t, d]; keys = memory + codes */
    tensor *prompt, *mask;
    int64_t height, width;
} looking_at;

/* The presence token and the first `alone` queries attend to each other; the others pass by. */
static tensor *look_at_each_other(run *r, const decoder_layer *l, tensor *x, tensor *place, int64_t alone)
{
    if (x->dim[1] == 1 + alone) {
        tensor *q = add(r, x, place);
        return norm(r, attend_drop_add(r, x, &l->self, q, q, x, NULL), &l->norm_self);
    }
    tensor *own = tokens_of(r, x, 0, 1 + alone), *others = tokens_of(r, x, 1 + alone, x->dim[1] - 1 - alone);
    tensor *q = add(r, own, tokens_of(r, place, 0, 1 + alone));
    own = attend_drop_add(r, own, &l->self, q, q, own, NULL);
    return norm(r, concat(r, own, others, 1), &l->norm_self);
}

/* A checkpoint: in = {x, boxes, memory, keys, prompt, mask, codes}. */
static tensor *layer_forward(run *r, void *layer, tensor **in)
{
    const decoder_layer *l = layer;
    const decoder *w = l->all;
    tensor *x = in[0], *boxes = in[1];
    const looking_at of = {in[2], in[3], in[4], in[5], in[6]->dim[0], in[6]->dim[1]}, *at = &of;
    tensor *place = query_place(r, w, boxes, tensor_cols(x));
    x = look_at_each_other(r, l, x, place, w->queries);
    attend_options text = {.key_mask = at->mask};
    x = norm(r, attend_drop_add(r, x, &l->text, add(r, x, place), at->prompt, at->prompt, &text), &l->norm_text);
    attend_options image = {.bias_x = box_bias(r, &w->bias_x, boxes, 0, at->width, l->image.heads),
                            .bias_y = box_bias(r, &w->bias_y, boxes, 1, at->height, l->image.heads)};
    x = norm(r, attend_drop_add(r, x, &l->image, add(r, x, place), at->keys, at->memory, &image), &l->norm_image);
    return norm(r, feed_forward_drop(r, x, NULL, &l->fc1, &l->fc2, ACT_RELU), &l->norm_mlp);
}

/* What the queries are compared with: the mean of the prompt's tokens, [B, 1, d]. */
static tensor *prompt_mean(run *r, const decoder *w, tensor *prompt, tensor *mask)
{
    tensor *words = norm(r, add(r, mlp_drop(r, prompt, &w->prompt_mlp), prompt), &w->prompt_norm);
    tensor *mean = linear(r, masked_mean(r, words, mask), &w->prompt_proj);
    return reshape(r, mean, 3, (int64_t[]){prompt->dim[0], 1, tensor_cols(prompt)});
}

/* [B, Q, 1] */
static tensor *scores(run *r, const decoder *w, tensor *queries, tensor *mean)
{
    int64_t d = tensor_cols(queries);
    tensor *s = product(r, linear(r, queries, &w->query_proj), mean);
    return clamp(r, scale(r, s, 1.0f / sqrtf((float)d)), -LOGIT_LIMIT, LOGIT_LIMIT);
}

static tensor *refine(run *r, tensor *step, tensor *boxes)
{
    return activate(r, add(r, step, inverse_sigmoid(r, boxes)), ACT_SIGMOID);
}

/* [1, n, cols] of a parameter [n, cols], twice along axis 1 when asked, for every prompt of the batch. */
static tensor *starting_rows(run *r, tensor *x, bool twice, int64_t batch)
{
    x = twice ? concat(r, x, x, 0) : x;
    return repeat(r, reshape(r, x, 3, (int64_t[]){1, x->dim[0], tensor_cols(x)}), batch);
}

void decoder_forward(run *r, const decoder *w, tensor *memory, tensor *codes, tensor *prompt, tensor *mask,
                     const decoder_options *o, decoder_output *out)
{
    decoder_options options = o ? *o : (decoder_options){0};
    int64_t batch = memory->dim[0], d = tensor_cols(memory);
    tensor *places = reshape(r, codes, 2, (int64_t[]){tensor_rows(codes), d});
    tensor *keys = add(r, memory, places);
    tensor *x = starting_rows(r, run_param(r, w->query), options.one_to_many, batch);
    x = concat(r, starting_rows(r, run_param(r, w->presence_token), false, batch), x, 1);
    tensor *reference = activate(r, run_param(r, w->reference), ACT_SIGMOID);
    reference = starting_rows(r, reference, options.one_to_many, batch);
    tensor *mean = prompt_mean(r, w, prompt, mask);
    for (int i = 0; i < w->layers; i++) {
        run_part(r, "decoder.layer.%d", i);
        decoder_layer_output *y = &out->layer[i];
        *y = (decoder_layer_output){.reference = note(r, reference, "refs.%d", i)};
        tensor *fixed = i ? detach(r, reference) : reference;
        tensor *in[] = {x, fixed, memory, keys, prompt, mask, codes};
        x = run_checkpoint(r, layer_forward, (void *)(uintptr_t)&w->layer[i], in, 7);
        y->queries = note(r, norm(r, tokens_of(r, x, 1, x->dim[1] - 1), &w->norm), "hs.%d", i);
        tensor *step = mlp(r, y->queries, &w->box);
        y->boxes = refine(r, step, reference);
        reference = run_mode_of(r) == TAPE ? refine(r, step, fixed) : y->boxes;
        if (!options.every_layer && i + 1 < w->layers)
            continue;
        tensor *token = reshape(r, tokens_of(r, x, 0, 1), 2, (int64_t[]){batch, d});
        y->presence = mlp(r, norm(r, token, &w->presence_norm), &w->presence);
        y->logits = scores(r, w, y->queries, mean);
    }
    decoder_layer_output *last = &out->layer[w->layers - 1];
    out->queries = last->queries;
    out->boxes = note(r, last->boxes, "boxes");
    out->presence = note(r, last->presence, "presence");
    out->logits = note(r, last->logits, "logits");
}
