/* sam3.c - the parts put together. */
#include "model/sam3.h"

#include <stdlib.h>

static bool open_parts(sam3 *m)
{
    registry *g = &m->all;
    const config *c = &m->c;
    if (!vit_open(&m->trunk, g, c))
        return false;
    neck_declare(&m->neck, g, "convs", PART_NECK, c);
    neck_declare(&m->tracker_neck, g, "sam2_convs", PART_TRACKER_NECK, c);
    if (!text_open(&m->text, g, c) || !geometry_open(&m->geometry, g, c) || !fusion_open(&m->fusion, g, c) ||
        !decoder_open(&m->decoder, g, c))
        return false;
    seghead_declare(&m->seghead, g, c);
    prompt_declare(&m->prompt, g, c);
    mask_decoder_declare(&m->mask_decoder, g, c);
    m->no_memory = declare(g, "tracker.no_mem_embed", 3, (int64_t[]){1, 1, c->d});
    return memory_declare(&m->memory, g, c) && !g->failed;
}

int sam3_open(sam3 **out, const config *c, samite_error *err)
{
    sam3 *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the network's description");
    m->c = *c;
    if (!open_parts(m)) {
        sam3_close(m);
        return fail(err, SAMITE_RESOURCE, "the network's description could not be built (out of memory, %d decoder "
                    "layers where at most %d work, or memories of width %d that do not divide %d)", c->dec_layers,
                    DECODER_MAX_LAYERS, c->mem_dim, c->d);
    }
    *out = m;
    return 0;
}

void sam3_close(sam3 *m)
{
    if (!m)
        return;
    registry_free(&m->all);
    vit_close(&m->trunk);
    text_close(&m->text);
    geometry_close(&m->geometry);
    fusion_close(&m->fusion);
    free(m);
}

static tensor *position_codes(run *r, int64_t side, int64_t d)
{
    tensor *t = run_constant(r, 3, (int64_t[]){side, side, d});
    if (t->data && run_ok(r))
        grid_codes(t->data, side, side, d);
    return t;
}

/* The codes of all levels, and the coarsest level, exist only for those who listen. */
static void note_extras(run *r, const sam3 *m)
{
    int64_t side = config_tokens(&m->c) * 4;
    for (int i = 0; i < NECK_LEVELS; i++, side /= 2) {
        size_t mark = run_mark(r);
        tensor *codes = position_codes(r, side, m->c.d);
        note(r, reshape(r, codes, 4, (int64_t[]){1, side, side, m->c.d}), "neck_pos.%d", i);
        run_drop(r, mark);
    }
}

void sam3_encode_levels(run *r, const sam3 *m, encoded_image *out)
{
    out->codes = position_codes(r, config_tokens(&m->c), m->c.d);
    out->begun = fusion_begin(r, &m->fusion, out->level[2], out->codes);
}

/* All behind the trunk, of which map `x` is kept if asked for; the scope began at `mark`. */
static void encode_behind(run *r, const sam3 *m, tensor *x, size_t mark, bool keep_trunk, encoded_image *out)
{
    *out = (encoded_image){0};
    neck_forward(r, &m->neck, x, out->level, run_observed(r) ? NECK_LEVELS : NECK_LEVELS - 1, "neck");
    if (run_observed(r))
        note_extras(r, m);
    sam3_encode_levels(r, m, out);
    tensor *keep[] = {x, out->level[0], out->level[1], out->level[2], out->codes, out->begun};
    if (keep_trunk)
        out->trunk = x;
    run_keep_all(r, mark, keep + (keep_trunk ? 0 : 1), keep_trunk ? 6 : 5);
    out->level[3] = NULL;
}

void sam3_encode_image(run *r, const sam3 *m, tensor *pixels, bool keep_trunk, encoded_image *out)
{
    size_t mark = run_mark(r);
    note(r, pixels, "input");
    encode_behind(r, m, vit_forward(r, &m->trunk, pixels), mark, keep_trunk, out);
}

void sam3_encode_map(run *r, const sam3 *m, tensor *map, encoded_image *out)
{
    encode_behind(r, m, map, run_mark(r), false, out);
}

void sam3_tracker_levels(run *r, const sam3 *m, const encoded_image *im, tensor **level)
{
    if (!im->trunk) {
        run_fail(r, SAMITE_FAILED, "the trunk's map was not kept");
        return;
    }
    neck_forward(r, &m->tracker_neck, im->trunk, level, run_observed(r) ? NECK_LEVELS : NECK_LEVELS - 1, "tracker_neck");
}

/* The examples' tokens belong to every prompt of the batch; they are all valid unless `unused` says otherwise. */
static tensor *extended_mask(run *r, tensor *mask, int64_t more, tensor *unused)
{
    if (!mask)
        return NULL;
    if (unused)
        return concat(r, mask, unused, 1);
    tensor *valid = run_constant(r, 2, (int64_t[]){1, more});
    for (int64_t i = 0; valid->data && run_ok(r) && i < more; i++)
        valid->data[i] = 0;
    return concat(r, mask, valid, 1);
}

void sam3_ground_with(run *r, const sam3 *m, const encoded_image *im, tensor *words, tensor *mask, const examples *x,
                      const decoder_options *o, grounded *out)
{
    tensor *tokens = geometry_forward(r, &m->geometry, x, im->level[2], im->codes,
                                      run_drop_rate(r) > 0 ? words->dim[0] : 1);
    out->mask = extended_mask(r, mask, tokens->dim[1], x && x->values ? x->values->unused : NULL);
    out->prompt = concat(r, words, tokens, 1);
    out->memory = fusion_forward_each(r, &m->fusion, im->begun, im->codes, out->prompt, out->mask, o ? o->fused : NULL);
    decoder_forward(r, &m->decoder, out->memory, im->codes, out->prompt, out->mask, o, &out->found);
}

void sam3_ground(run *r, const sam3 *m, const encoded_image *im, tensor *words, tensor *mask, const examples *x,
                 grounded *out)
{
    sam3_ground_with(r, m, im, words, mask, x, NULL, out);
}

tensor *sam3_masks(run *r, const sam3 *m, const encoded_image *im, const grounded *g, const int32_t *query, int count)
{
    size_t mark = run_mark(r);
    tensor *pixels = seghead_pixels(r, &m->seghead, im->level, g->memory, g->prompt, g->mask);
    if (run_observed(r))
        seghead_semantic(r, &m->seghead, pixels);
    tensor *q = g->found.queries;
    q = gather_rows(r, reshape(r, q, 2, (int64_t[]){tensor_rows(q), tensor_cols(q)}), query, count);
    q = reshape(r, q, 3, (int64_t[]){1, count, tensor_cols(q)});
    return run_keep(r, mark, seghead_masks(r, &m->seghead, pixels, q));
}

void sam3_click_image(run *r, const sam3 *m, const encoded_image *im, click_image *out)
{
    tensor *level[NECK_LEVELS];
    *out = (click_image){.codes = reshape(r, im->codes, 2, (int64_t[]){tensor_rows(im->codes), m->c.d})};
    size_t mark = run_mark(r);
    sam3_tracker_levels(r, m, im, level);
    if (!run_ok(r))
        return;
    run_part(r, "click.image");
    out->image = level[2];
    out->fine0 = mask_decoder_fine0(r, &m->mask_decoder, level[0]);
    out->fine1 = mask_decoder_fine1(r, &m->mask_decoder, level[1]);
    out->places = prompt_grid(r, &m->prompt, config_tokens(&m->c));
    run_keep_all(r, mark, (tensor *[]){out->image, out->fine0, out->fine1, out->places}, 4);
}

tensor *sam3_unseen(run *r, const sam3 *m, const click_image *im)
{
    tensor *x = reshape(r, im->image, 3, (int64_t[]){1, im->image->dim[1] * im->image->dim[2], m->c.d});
    return add(r, x, reshape(r, run_param(r, m->no_memory), 1, (int64_t[]){m->c.d}));
}

void sam3_click(run *r, const sam3 *m, const click_image *im, tensor *seen, const clicks *points, tensor *mask,
                guesses *out)
{
    size_t mark = run_mark(r);
    tensor *image = seen ? seen : sam3_unseen(r, m, im);
    tensor *tokens = points ? prompt_points(r, &m->prompt, points) : NULL;
    tensor *rough = mask ? prompt_mask(r, &m->prompt, mask) : prompt_no_mask(r, &m->prompt);
    if (mask && mask->dim[0] > image->dim[0])
        image = repeat(r, image, mask->dim[0]);
    image = add(r, image, rough);
    mask_decoder_forward(r, &m->mask_decoder, image, im->places, tokens, im->fine0, im->fine1, out);
    run_keep_all(r, mark, (tensor *[]){out->object, out->overlap, out->tokens, out->masks}, 4);
}
