/* forward.c - a batch, one picture at a time: encode it and its prompts, match, seed the losses' gradients, walk back.
 */
#include "train/forward_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "train/aids.h"

void batch_free(batch *b)
{
    free(b->pixels), free(b->image_prompts), free(b->text_of), free(b->ids), free(b->tokens);
    free(b->t.count), free(b->t.first), free(b->t.boxes), free(b->t.masks), free(b->t.mask_valid);
    free(b->owner), free(b->classes);
    *b = (batch){0};
}

int tapes_open(tapes *t, const run_options *o, samite_error *err)
{
    run_options own = *o;
    own.mode = TAPE;
    *t = (tapes){.picture = run_open(&own, err)};
    t->prompts = t->picture ? run_open(&own, err) : NULL;
    t->masks = t->prompts ? run_open(&own, err) : NULL;
    if (t->masks)
        return 0;
    tapes_close(t);
    return SAMITE_RESOURCE;
}

void tapes_close(tapes *t)
{
    run_close(t->picture);
    run_close(t->prompts);
    run_close(t->masks);
    *t = (tapes){0};
}

/* ---- network ---- */

/* The map of a trunk that does not learn, as in inference: with its fused ops, and memory that is given back at once. */
static void frozen_map(run *r, const picture *p, const float *pixels, tensor *map)
{
    samite_error e = {0};
    int64_t side = p->b->side;
    run *plain = run_ok(r) ? run_open(&(run_options){.mode = RUN, .type = p->n->type}, &e) : NULL;
    tensor *x = plain ? vit_forward(plain, &p->n->net->trunk, run_input(plain, pixels, 4, (int64_t[]){1, side, side, 3}))
                      : NULL;
    if (!plain || run_status(plain, &e))
        run_fail(r, e.code ? e.code : SAMITE_RESOURCE, "%s", e.text);
    else
        memcpy(map->data, x->data, sizeof(float) * (size_t)tensor_count(map));
    run_close(plain);
}

/* The trunk's map may be known already. */
static void encode(run *r, const picture *p, encoded_image *out)
{
    const sam3 *net = p->n->net;
    const forward_options *o = p->o;
    int64_t side = p->b->side, t = config_tokens(&net->c), count = t * t * net->c.vit_dim;
    const float *pixels = p->b->pixels + (int64_t)p->image * side * side * 3;
    if (!o->frozen_trunk) {
        sam3_encode_image(r, net, run_input(r, pixels, 4, (int64_t[]){1, side, side, 3}), o->look_encoded != NULL, out);
        return;
    }
    tensor *map = run_constant(r, 4, (int64_t[]){1, t, t, net->c.vit_dim});
    if (run_ok(r) && !(o->recall && o->recall(o->user, p->image, map->data, count))) {
        frozen_map(r, p, pixels, map);
        if (o->keep && run_ok(r))
            o->keep(o->user, p->image, map->data, count);
    }
    sam3_encode_map(r, net, map, out);
}

tensor *show_value(run *to, run *from, tensor *x, int64_t at, int axes, const int64_t *dim)
{
    tensor *y = run_input(to, x->data + at, axes, dim);
    float *sum = run_seed(from, x);
    if (sum)
        run_grad_into(to, y, sum + at);
    return y;
}

static void show_features(picture *p, run *from, const encoded_image *e)
{
    tensor *const in[] = {e->level[0], e->level[1], e->level[2], e->begun, e->codes};
    tensor **out[] = {&p->seen.level[0], &p->seen.level[1], &p->seen.level[2], &p->seen.begun, &p->seen.codes};
    for (int i = 0; i < 5; i++)
        *out[i] = show_value(p->r, from, in[i], 0, in[i]->axes, in[i]->dim);
}

/* Token ids of these prompts, cut to the longest of all, so that places do not hang on who is computed together; and the
 * padding mask. */
static tensor *words_of(picture *p, tensor **mask)
{
    const batch *b = p->b;
    int context = p->n->net->c.context, most = 1;
    for (int i = 0; i < b->texts; i++)
        most = b->tokens[i] > most ? b->tokens[i] : most;
    p->ids = malloc(sizeof *p->ids * (size_t)p->prompts * (size_t)most);
    *mask = run_constant(p->r, 2, (int64_t[]){p->prompts, most});
    if (!p->ids)
        return run_fail(p->r, SAMITE_RESOURCE, "not enough memory for %d prompts", p->prompts);
    for (int i = 0; i < p->prompts; i++) {
        int text = b->text_of[p->first + i];
        memcpy(p->ids + (int64_t)i * most, b->ids + (int64_t)text * context, sizeof *p->ids * (size_t)most);
        for (int k = 0; (*mask)->data && run_ok(p->r) && k < most; k++)
            (*mask)->data[(int64_t)i * most + k] = k >= b->tokens[text];
    }
    return text_forward(p->r, &p->n->net->text, run_indices(p->r, p->ids, 2, (int64_t[]){p->prompts, most}));
}

static void compute(picture *p)
{
    tensor *mask;
    tensor *words = words_of(p, &mask);
    grounded g;
    sam3_ground_with(p->r, p->n->net, &p->seen, words, mask, NULL, &(decoder_options){true, true, p->fused}, &g);
    p->found = g.found;
    p->words = words;
    p->memory = g.memory;
    p->prompt = g.prompt;
    p->mask = g.mask;
}

/* ---- one half of one layer ---- */

/* Values of the half of [B, 2Q, width], packed. */
static void take_half(float *out, const tensor *x, int half, int prompts, int queries, int width)
{
    for (int b = 0; b < prompts; b++)
        memcpy(out + (int64_t)b * queries * width, x->data + ((int64_t)b * 2 + half) * queries * width,
               sizeof(float) * (size_t)queries * (size_t)width);
}

static void seed_half(run *r, tensor *x, const float *grad, int half, int prompts, int queries, int width)
{
    float *seed = run_seed(r, x);
    for (int b = 0; seed && b < prompts; b++)
        for (int64_t i = 0; i < (int64_t)queries * width; i++)
            seed[((int64_t)b * 2 + half) * queries * width + i] += grad[(int64_t)b * queries * width + i];
}

static int match_half(picture *p, int half, int layer, const answers *a, samite_error *err)
{
    bool last = layer + 1 == p->n->net->decoder.layers;
    match_list *m = &p->match[half][layer];
    return half && last ? match_one_to_many(m, a, &p->t, err) : match_one_to_one(m, a, &p->t, err);
}

static void add_terms(loss_terms *sum, const loss_terms *x, double weight)
{
    sum->bbox += weight * x->bbox;
    sum->giou += weight * x->giou;
    sum->ce += weight * x->ce;
    sum->hits += x->hits;
    sum->answered += x->answered;
    sum->meant += x->meant;
    sum->presence += weight * x->presence;
    sum->presence_accuracy += weight * x->presence_accuracy;
}

/* false: notes the image and the prompt. */
static bool finite_answers(picture *p, const decoder_layer_output *y)
{
    for (int b = 0; b < p->prompts; b++) {
        float sum = y->presence->data[b] * 0;
        for (int64_t i = (int64_t)b * p->queries; i < (int64_t)(b + 1) * p->queries; i++)
            sum += p->logits[i] * 0 +
                   (p->boxes[4 * i] + p->boxes[4 * i + 1] + p->boxes[4 * i + 2] + p->boxes[4 * i + 3]) * 0;
        if (sum == 0)
            continue;
        p->losses->bad_image = p->image;
        p->losses->bad_prompt = p->first + b;
        return false;
    }
    return true;
}

static int layer_half(picture *p, int half, int layer, samite_error *err)
{
    const decoder_layer_output *y = &p->found.layer[layer];
    answer_grads *g = &p->grads[half][layer];
    int64_t n = (int64_t)p->prompts * p->queries;
    *g = (answer_grads){calloc((size_t)n, sizeof(float)), calloc((size_t)n * 4, sizeof(float)),
                        calloc((size_t)n * 4, sizeof(float)), calloc((size_t)p->prompts, sizeof(float))};
    if (!g->logits || !g->boxes || !g->corners || !g->presence)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the gradients of %d answers", (int)n);
    take_half(p->logits, y->logits, half, p->prompts, p->queries, 1);
    take_half(p->boxes, y->boxes, half, p->prompts, p->queries, 4);
    answers a = {p->queries, p->logits, p->boxes};
    if (!finite_answers(p, y))
        return fail(err, SAMITE_FAILED, "an answer of layer %d to prompt %d is no finite number", layer,
                    p->losses->bad_prompt);
    int code = match_half(p, half, layer, &a, err);
    if (code)
        return code;
    loss_terms terms;
    const loss_weights *w = p->o->weights;
    loss_answers(&terms, g, &a, half ? NULL : y->presence->data, &p->t, &p->match[half][layer], &p->norms, w);
    add_terms(half ? &p->losses->many[layer] : &p->losses->one[layer], &terms, half ? w->one_to_many : 1);
    return 0;
}

static void seed_layer(picture *p, int layer)
{
    const decoder_layer_output *y = &p->found.layer[layer];
    int64_t n = (int64_t)p->prompts * p->queries;
    for (int half = 0; half < 2; half++) {
        const answer_grads *g = &p->grads[half][layer];
        memcpy(p->boxes, g->boxes, sizeof(float) * 4 * (size_t)n);
        corners_to_boxes(p->boxes, g->corners, n);
        seed_half(p->r, y->logits, g->logits, half, p->prompts, p->queries, 1);
        seed_half(p->r, y->boxes, p->boxes, half, p->prompts, p->queries, 4);
    }
    float *seed = run_seed(p->r, y->presence);
    for (int i = 0; seed && i < p->prompts; i++)
        seed[i] += p->grads[0][layer].presence[i];
}

/* ---- the batch ---- */

static void show(const picture *p)
{
    if (!p->o->look)
        return;
    picture_answers a = {p->image, p->first, p->prompts, p->queries, &p->found, p->words, p->memory, p->shown,
                         p->semantic, p->match[0], p->match[1], p->grads[0], p->grads[1]};
    p->o->look(p->o->user, p->r, &a);
}

/* Asks for gradients that the walk would not keep. */
static void watch(const picture *p)
{
    if (!p->o->look_encoded)
        return;
    (void)run_seed(p->r, p->words);
    (void)run_seed(p->r, p->memory);
    for (int i = 0; i < p->n->net->decoder.layers; i++) {
        (void)run_seed(p->r, p->found.layer[i].queries);
        (void)run_seed(p->r, p->found.layer[i].reference);
    }
}

static int chunk_gradients(picture *p, samite_error *err)
{
    int layers = p->n->net->decoder.layers, code;
    tensor *fused[MAX_FUSION_LAYERS];
    p->fused = p->o->aids ? fused : NULL;
    compute(p);
    if ((code = run_status(p->r, err)))
        return code;
    for (int i = 0; p->o->aids && i < p->n->net->c.enc_layers; i++)
        aids_match(p->o->aids, p->r, i, fused[i], p->b, p->image, p->first);
    for (int i = 0; i < layers && !code; i++)
        for (int half = 0; half < 2 && !code; half++)
            code = layer_half(p, half, i, err);
    if (!code && p->o->masks)
        code = mask_losses(p, err);
    for (int i = 0; i < layers && !code; i++)
        seed_layer(p, i);
    watch(p);
    if (!code)
        code = run_backward(p->r, NULL, err);
    if (!code)
        show(p);
    return code;
}

static void picture_free(picture *p)
{
    for (int i = 0; i < DECODER_MAX_LAYERS; i++) {
        for (int half = 0; half < 2; half++) {
            answer_grads *g = &p->grads[half][i];
            free(g->logits), free(g->boxes), free(g->corners), free(g->presence);
            match_list_free(&p->match[half][i]);
        }
    }
    free(p->shown), free(p->ids), free(p->logits), free(p->boxes);
}

/* The two tapes of a picture have sequences of their own; `first` is the first prompt's number. */
static void set_drop(run *r, const picture *p, uint64_t tape, int first)
{
    const forward_options *o = p->o;
    if (o->seeds)
        run_set_drop(r, (drop_options){o->drop_rate, o->path_rate, random_next(o->seeds[p->image], tape), first});
}

/* Some prompts of one picture: their slice of the batch's objects. */
static int one_chunk(const picture *p, run *from, const encoded_image *e, int first, int count, samite_error *err)
{
    picture own = *p;
    own.first = first;
    own.prompts = count;
    own.queries = p->n->net->c.queries;
    own.t = p->b->t;
    own.t.prompts = count;
    own.t.count += first;
    own.t.first += first;
    int64_t n = (int64_t)own.prompts * own.queries;
    own.logits = malloc(sizeof(float) * (size_t)(n + 1));
    own.boxes = malloc(sizeof(float) * 4 * (size_t)(n + 1));
    run_reset(own.r);
    set_drop(own.r, &own, 0, first - p->first);
    show_features(&own, from, e);
    int code = own.logits && own.boxes ? chunk_gradients(&own, err)
                                       : fail(err, SAMITE_RESOURCE, "not enough memory for a picture");
    picture_free(&own);
    return code;
}

/* Trunk, one level of the neck, and the loss of patches. */
static int patches_alone(run *r, const picture *p, bool last, samite_error *err)
{
    const sam3 *net = p->n->net;
    int64_t side = p->b->side;
    tensor *pixels = run_input(r, p->b->pixels + (int64_t)p->image * side * side * 3, 4, (int64_t[]){1, side, side, 3});
    tensor *level = neck_level(r, &net->neck, vit_forward(r, &net->trunk, pixels), 2, "neck");
    int code = run_status(r, err);
    if (!code)
        aids_picture(p->o->aids, r, level, p->b, p->image);
    if (!code && last)
        code = aids_end(p->o->aids, err);
    return code ? code : run_backward(r, NULL, err);
}

static int one_picture(tapes *t, const picture *p, int first, int prompts, bool last, samite_error *err)
{
    encoded_image e;
    int chunk = p->o->chunk > 0 ? p->o->chunk : prompts;
    run_reset(t->picture);
    set_drop(t->picture, p, 1, 0);
    if (p->o->aids && p->o->aids->only)
        return patches_alone(t->picture, p, last, err);
    encode(t->picture, p, &e);
    int code = run_status(t->picture, err);
    if (!code && p->o->aids)
        aids_picture(p->o->aids, t->picture, e.level[2], p->b, p->image);
    for (int at = 0; at < prompts && !code; at += chunk)
        code = one_chunk(p, t->picture, &e, first + at, prompts - at < chunk ? prompts - at : chunk, err);
    if (!code && last && p->o->aids)
        code = aids_end(p->o->aids, err);
    if (!code && last && p->o->heads_done)
        p->o->heads_done(p->o->user);
    run_reset(t->prompts);       /* its memory is not needed beside that of the walk */
    if (p->o->look_encoded) {
        (void)run_seed(t->picture, e.trunk);
        (void)run_seed(t->picture, e.level[2]);
    }
    if (!code)
        code = run_backward(t->picture, NULL, err);
    if (!code && p->o->look_encoded)
        p->o->look_encoded(p->o->user, p->image, &e);
    return code;
}

static double prompts_with_masks(const targets *t)
{
    double n = 0;
    for (int p = 0; t->masks && p < t->prompts; p++) {
        bool any = false;
        int64_t area = (int64_t)t->side * t->side;
        for (int64_t k = t->first[p] * area; k < t->first[p + 1] * area && !any; k++)
            any = t->masks[k];
        n += any;
    }
    return n;
}

double core_loss(const step_losses *l, const loss_weights *w, double scale)
{
    double sum = w->semantic * l->semantic + w->semantic_dice * l->semantic_dice;
    for (int i = 0; i < l->layers; i++) {
        const loss_terms *half[2] = {&l->one[i], &l->many[i]};
        for (int k = 0; k < 2; k++)
            sum += w->bbox * half[k]->bbox + w->giou * half[k]->giou + w->ce * half[k]->ce +
                   w->presence * half[k]->presence + w->mask * half[k]->mask + w->dice * half[k]->dice;
    }
    return scale * sum;
}

batch_counts batch_count(const batch *b)
{
    return (batch_counts){targets_objects(&b->t), b->t.prompts, prompts_with_masks(&b->t)};
}

int batch_gradients(tapes *t, native *n, const batch *b, const forward_options *o, step_losses *out, samite_error *err)
{
    *out = (step_losses){.layers = n->net->decoder.layers, .bad_image = -1, .bad_prompt = -1};
    batch_counts all = o->counts ? *o->counts : batch_count(b);
    out->present = all.present;
    picture p = {.r = t->prompts, .masks = t->masks, .n = n, .b = b, .o = o, .losses = out, .present = all.present,
                 .norms = {fmax(1, all.objects), sqrt(all.prompts), (int)all.prompts}};
    int code = o->aids ? aids_begin(o->aids, err) : 0;
    for (int i = 0, first = 0; i < b->images && !code; first += b->image_prompts[i++]) {
        p.image = i;
        p.first = first;
        code = one_picture(t, &p, first, b->image_prompts[i], i + 1 == b->images, err);
    }
    out->core = core_loss(out, o->weights, p.norms.scale) + (o->aids ? aids_loss(o->aids) : 0);
    return code;
}
