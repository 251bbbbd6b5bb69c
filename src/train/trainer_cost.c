/* trainer_cost.c - memory and work of a training, from a trace of the network. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "train/trainer.h"

/* Parts that are computed again in backward instead of kept. */
static bool is_block(const char *part)
{
    return starts_with(part, "trunk.block.") || starts_with(part, "text.block.") ||
           starts_with(part, "fusion.layer.") || starts_with(part, "decoder.layer.");
}

typedef struct tally {
    uint64_t kept, block, largest,
        last; /* bytes: for backward; of the block at hand; of the largest block; last output */
    double   flops, again;                  /* again: of what is computed twice */
    char     part[96];
} tally;

static void end_block(tally *a, bool checkpoints)
{
    if (checkpoints && is_block(a->part)) {
        a->kept += a->last;
        a->largest = a->block > a->largest ? a->block : a->largest;
    } else {
        a->kept += a->block;
    }
    a->block = a->last = 0;
}

/* Values and, twice where an activation is inside, what backward needs of them. */
static void add_nodes(tally *a, const run *r, bool checkpoints)
{
    for (size_t i = 0; i < run_nodes(r); i++) {
        const op_node *n = run_node(r, i);
        if (strcmp(a->part, n->part) != 0) {
            end_block(a, checkpoints);
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
    end_block(a, checkpoints);
}

static int trace(tally *a, const trainer *t, bool picture, int prompts, samite_error *err)
{
    const sam3 *net = t->n->net;
    int64_t side = net->c.image, n = net->c.context < 8 ? net->c.context : 8;
    run *r = run_open(&(run_options){.mode = TRACE}, err);
    encoded_image e;
    grounded g;
    if (!r)
        return SAMITE_RESOURCE;
    run_set_drop(r, (drop_options){.rate = (float)t->c->dropout,
                                   .path_rate = t->parts >> PART_TRUNK & 1 ? (float)t->c->drop_path : 0});
    sam3_encode_image(r, net, run_input(r, NULL, 4, (int64_t[]){1, side, side, 3}), false, &e);
    size_t before = run_nodes(r);
    if (!picture) {
        tensor *words = text_forward(r, &net->text, run_indices(r, NULL, 2, (int64_t[]){prompts, n}));
        tensor *mask = run_constant(r, 2, (int64_t[]){prompts, n});
        sam3_ground_with(r, net, &e, words, mask, NULL, &(decoder_options){true, true}, &g);
        if (t->c->masks)
            seghead_semantic(r, &net->seghead, seghead_pixels(r, &net->seghead, e.level, g.memory, g.prompt, g.mask));
    }
    int code = run_status(r, err);
    tally all = {0}, head = {0};
    if (!code)
        add_nodes(&all, r, t->c->checkpointing);
    run_close(r);
    if (picture || code) {
        *a = all;
        return code;
    }
    (void)before;
    code = trace(&head, t, true, 0, err);
    *a = (tally){.kept = all.kept - head.kept,
                 .largest = all.largest,
                 .flops = all.flops - head.flops,
                 .again = all.again - head.again};
    return code;
}

int trainer_cost(const trainer *t, train_cost *out, samite_error *err)
{
    tally picture, head;
    int prompts = t->set.prompt_count, chunk = t->c->prompts_per_pass;
    chunk = chunk > 0 && chunk < prompts ? chunk : prompts;
    *out = (train_cost){0};
    for (int i = 0; i < t->o.count; i++)
        out->learners += tensor_count(&t->o.item[i].e->p.t);
    for (size_t i = 0; i < t->n->net->all.count; i++) {
        const entry *e = t->n->net->all.entries[i];
        if (!e->missing && !e->p.trainable && e->part <= (t->c->masks ? PART_MASK_HEAD : PART_DECODER))
            out->frozen += tensor_count(&e->p.t);
    }
    int code = trace(&picture, t, true, 0, err);
    if (!code)
        code = trace(&head, t, false, chunk, err);
    if (code)
        return code;
    bool trunk_learns = t->parts >> PART_TRUNK & 1;
    double twice = t->c->checkpointing ? 1 : 0;
    out->weights = sizeof(float) * (uint64_t)(out->learners + out->frozen);
    out->learning = 3 * sizeof(float) * (uint64_t)out->learners;
    out->activations = (trunk_learns ? picture.kept : picture.kept / 8) + head.kept +
                       2 * (picture.largest > head.largest ? picture.largest : head.largest);
    out->batch = (uint64_t)t->share * 3 * sizeof(float) * (uint64_t)t->sampler.side * (uint64_t)t->sampler.side;
    if (t->c->masks)
        out->batch += (uint64_t)t->share * (uint64_t)t->set.count / (uint64_t)t->set.chosen *
                      (uint64_t)t->sampler.side * (uint64_t)t->sampler.side;
    double chunks = (double)prompts / chunk;
    out->flops = picture.flops * (trunk_learns ? 3 : 1) + twice * (trunk_learns ? picture.again : 0) +
                 chunks * (3 * head.flops + twice * head.again);
    return 0;
}

uint64_t train_cost_bytes(const train_cost *c)
{
    return c->weights + c->learning + c->activations + 2 * c->batch;
}
