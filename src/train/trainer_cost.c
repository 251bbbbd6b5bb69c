/* trainer_cost.c - memory and work of a training, from a trace of the network. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "train/trainer.h"

#define PROCESS 53000000   /* bytes of the program and its libraries, measured */
#define MATCHES 5          /* of an object: one query, and four in the one-to-many half */

/* Parts that are computed again in backward instead of kept. */
static bool is_block(const char *part)
{
    return starts_with(part, "trunk.block.") || starts_with(part, "text.block.") ||
           starts_with(part, "fusion.layer.") || starts_with(part, "decoder.layer.");
}

typedef struct tally {
    /* bytes: for backward; of the block at hand; of the largest block; last output */
    uint64_t kept, block, largest, last;
    double   flops, again;                  /* again: of what is computed twice */
    char     part[96];
} tally;

/* checkpoints: the block is computed again instead of kept; a trunk that does not learn is not kept either. */
static void end_block(tally *a, bool checkpoints, bool trunk_learns)
{
    if (!trunk_learns && starts_with(a->part, "trunk")) {
        a->largest = a->block > a->largest ? a->block : a->largest;
    } else if (checkpoints && is_block(a->part)) {
        a->kept += a->last;
        a->largest = a->block > a->largest ? a->block : a->largest;
    } else {
        a->kept += a->block;
    }
    a->block = a->last = 0;
}

/* Of the nodes from `first` on: values and, twice where an activation is inside, what backward needs of them. Returns
 * where the next nodes begin. */
static size_t add_nodes(tally *a, const run *r, size_t first, bool checkpoints, bool trunk_learns)
{
    for (size_t i = first; i < run_nodes(r); i++) {
        const op_node *n = run_node(r, i);
        if (strcmp(a->part, n->part) != 0) {
            end_block(a, checkpoints, trunk_learns);
            memset(a->part, 0, sizeof a->part);
            strncpy(a->part, n->part, sizeof a->part - 1);
        }
        uint64_t bytes = sizeof(float) * (uint64_t)tensor_count(n->out);
        const linear_attributes *l = strcmp(n->op->name, "linear") == 0 ? n->attributes : NULL;
        if (!n->op->view)
            a->block += l && l->act == ACT_GELU ? 2 * bytes : bytes;
        a->last = bytes;
        a->flops += n->flops;
        a->again += is_block(n->part) ? n->flops : 0;
    }
    end_block(a, checkpoints, trunk_learns);
    return run_nodes(r);
}

/* A value like the first row of x. */
static tensor *one_row(run *r, const tensor *x)
{
    int64_t dim[MAX_AXES];
    memcpy(dim, x->dim, sizeof dim);
    dim[0] = 1;
    return run_input(r, NULL, x->axes, dim);
}

/* The three tapes of a pass (forward.h): a picture, the prompts asked of it together, the mask of one of them. */
typedef struct traced { tally picture, prompts, mask; } traced;

static void trace_mask(run *r, const sam3 *net, const encoded_image *e, const grounded *g, int matches)
{
    tensor *level[] = {one_row(r, e->level[0]), one_row(r, e->level[1])};
    tensor *pixels = seghead_pixels(r, &net->seghead, level, one_row(r, g->memory), one_row(r, g->prompt),
                                    g->mask ? one_row(r, g->mask) : NULL);
    seghead_masks(r, &net->seghead, pixels, run_input(r, NULL, 3, (int64_t[]){1, matches, net->c.d}));
    seghead_semantic(r, &net->seghead, pixels);
}

static int trace(traced *out, const trainer *t, int prompts, int matches, samite_error *err)
{
    const sam3 *net = t->n->net;
    int64_t side = net->c.image, n = net->c.context < 8 ? net->c.context : 8;
    bool trunk_learns = t->parts >> PART_TRUNK & 1, twice = t->c->checkpointing;
    run *r = run_open(&(run_options){.mode = TRACE}, err);
    encoded_image e;
    grounded g;
    if (!r)
        return SAMITE_RESOURCE;
    run_set_drop(r, (drop_options){.rate = (float)t->c->dropout,
                                   .path_rate = trunk_learns ? (float)t->c->drop_path : 0});
    sam3_encode_image(r, net, run_input(r, NULL, 4, (int64_t[]){1, side, side, 3}), false, &e);
    size_t at = run_ok(r) ? add_nodes(&out->picture, r, 0, twice, trunk_learns) : 0;
    if (prompts && run_ok(r)) {
        tensor *words = text_forward(r, &net->text, run_indices(r, NULL, 2, (int64_t[]){prompts, n}));
        tensor *mask = run_constant(r, 2, (int64_t[]){prompts, n});
        sam3_ground_with(r, net, &e, words, mask, NULL, &(decoder_options){true, true}, &g);
        at = run_ok(r) ? add_nodes(&out->prompts, r, at, twice, trunk_learns) : at;
        if (t->c->masks && run_ok(r))
            trace_mask(r, net, &e, &g, matches);
        if (run_ok(r))
            add_nodes(&out->mask, r, at, false, trunk_learns);
    }
    int code = run_status(r, err);
    run_close(r);
    return code;
}

/* Numbers of the token table: rows that no prompt uses need neither gradient nor moments. */
static int64_t seldom_touched(const trainer *t)
{
    const param *tokens = t->n->net->text.tokens;
    for (int i = 0; tokens && i < t->o.count; i++)
        if (&t->o.item[i].e->p == tokens)
            return tensor_count(&tokens->t);
    return 0;
}

static void count_numbers(const trainer *t, train_cost *out)
{
    for (int i = 0; i < t->o.count; i++)
        out->learners += tensor_count(&t->o.item[i].e->p.t);
    for (size_t i = 0; i < t->n->net->all.count; i++) {
        const entry *e = t->n->net->all.entries[i];
        if (!e->missing && !e->p.trainable && e->part <= (t->c->masks ? PART_MASK_HEAD : PART_DECODER))
            out->frozen += tensor_count(&e->p.t);
    }
}

int trainer_cost(const trainer *t, train_cost *out, samite_error *err)
{
    traced tape = {0};
    int prompts = t->scenes ? t->scenes->prompts : t->set.prompt_count, chunk = t->c->prompts_per_pass;
    long positive = 0, negative = 0;
    chunk = chunk > 0 && chunk < prompts ? chunk : prompts;
    train_set_pairs(&t->set, &positive, &negative);
    double pictures = t->set.chosen > 0 ? t->set.chosen : 1;
    /* A scene shows about two thirds of what is asked for, once or twice. */
    double shown = t->scenes ? prompts * 2 / 3.0 : (double)positive / pictures;
    double objects = t->scenes || !positive ? 2 : (double)train_set_objects(&t->set) / (double)positive;
    *out = (train_cost){0};
    count_numbers(t, out);
    int code = trace(&tape, t, chunk, (int)ceil(objects * MATCHES), err);
    if (code)
        return code;
    bool trunk_learns = t->parts >> PART_TRUNK & 1;
    double twice = t->c->checkpointing ? 1 : 0;
    out->weights = sizeof(float) * (uint64_t)(out->learners + out->frozen);
    out->learning = 3 * sizeof(float) * (uint64_t)(out->learners - seldom_touched(t));
    out->packed = sizeof(float) * (uint64_t)out->frozen;
    /* Every tape keeps its room: values for backward, and those of a block with their gradients. */
    out->activations = tape.picture.kept + tape.prompts.kept +
                       2 * (tape.picture.largest + tape.prompts.largest + tape.mask.kept);
    out->batch = (uint64_t)t->share * 3 * sizeof(float) * (uint64_t)t->sampler.side * (uint64_t)t->sampler.side;
    if (t->c->masks)
        out->batch += (uint64_t)((double)t->share * shown * objects * t->sampler.side * t->sampler.side);
    double chunks = chunk ? (double)prompts / chunk : 0;
    out->flops = tape.picture.flops * (trunk_learns ? 3 : 1) + twice * (trunk_learns ? tape.picture.again : 0) +
                 chunks * (3 * tape.prompts.flops + twice * tape.prompts.again) + 3 * shown * tape.mask.flops;
    return 0;
}

uint64_t train_cost_bytes(const train_cost *c)
{
    return PROCESS + c->weights + c->packed + c->learning + c->activations + 2 * c->batch;
}
