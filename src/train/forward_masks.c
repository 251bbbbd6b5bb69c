/* forward_masks.c - the mask head and its losses, one prompt after the other on a tape that is walked at once: only one
 * prompt's maps are in memory, and nothing is computed twice. */
#include <stdlib.h>
#include <string.h>

#include "train/forward_inside.h"

/* Room for one prompt. */
typedef struct mask_room {
    float   *pixels;             /* two pictures of the targets' size */
    uint8_t *target;
    int32_t *index;              /* of the matches: rows of the prompt's queries, */
    match   *from;
    bool    *many;               /* and the half they are in */
} mask_room;

/* Matches of prompt b in both halves of the last layer; returns how many. */
static int chosen_rows(const picture *p, int b, mask_room *room)
{
    int n = 0, last = p->n->net->decoder.layers - 1;
    for (int half = 0; half < 2; half++) {
        const match_list *m = &p->match[half][last];
        for (int i = 0; i < m->count; i++) {
            if (m->item[i].prompt != b)
                continue;
            room->index[n] = half * p->queries + m->item[i].query;
            room->many[n] = half;
            room->from[n++] = m->item[i];
        }
    }
    return n;
}

static void mask_terms(picture *p, tensor *masks, int n, mask_room *room)
{
    int side = (int)masks->dim[2], to = p->t.side, last = p->n->net->decoder.layers - 1;
    const loss_weights *w = p->o->weights;
    float *seed = run_seed(p->masks, masks);
    for (int i = 0; seed && i < n; i++) {
        int object = room->from[i].object;
        if (!p->t.mask_valid[object])
            continue;
        loss_terms *sum = room->many[i] ? &p->losses->many[last] : &p->losses->one[last];
        double half = room->many[i] ? w->one_to_many : 1, mask = 0, dice = 0;
        loss_norms norms = p->norms;
        norms.scale *= half;
        int64_t at = (int64_t)i * side * side;
        loss_mask(&mask, &dice, seed + at, masks->data + at, side, p->t.masks + (int64_t)object * to * to, to, &norms, w,
                  room->pixels);
        sum->mask += half * mask;
        sum->dice += half * dice;
    }
}

/* Union of the masks of prompt b into out [side, side]; invalid ones are empty. */
static void union_of(const targets *t, int b, uint8_t *out)
{
    int64_t n = (int64_t)t->side * t->side;
    memset(out, 0, (size_t)n);
    for (int i = t->first[b]; i < t->first[b + 1]; i++)
        for (int64_t k = 0; k < n; k++)
            out[k] |= t->masks[(int64_t)i * n + k];
}

static void semantic_terms(picture *p, tensor *map, int b, mask_room *room)
{
    float *seed = run_seed(p->masks, map);
    union_of(&p->t, b, room->target);
    if (seed)
        loss_semantic(&p->losses->semantic, &p->losses->semantic_dice, &p->losses->semantic_iou, seed, map->data,
                      (int)map->dim[1], room->target,
                      p->t.side, p->present, p->norms.scale, p->o->weights, room->pixels);
}

/* Without a mask neither loss has a gradient, or a value. */
static bool has_mask(const targets *t, int b)
{
    for (int i = t->first[b]; i < t->first[b + 1]; i++)
        if (t->mask_valid[i])
            return true;
    return false;
}

/* Row b along axis 0 of a value of the prompts' tape. */
static tensor *show_row(picture *p, tensor *x, int b)
{
    int64_t dim[MAX_AXES], count = tensor_count(x) / x->dim[0];
    memcpy(dim, x->dim, sizeof dim);
    dim[0] = 1;
    return show_value(p->masks, p->r, x, b * count, x->axes, dim);
}

/* For those who look: copies of masks and map of prompt b, with their gradients, among the values of the prompts. */
static void keep_copies(picture *p, int b, tensor *masks, tensor *map)
{
    tensor *from[] = {masks, map}, *to[2] = {NULL, p->semantic};
    int64_t dim[MAX_AXES], count = tensor_count(map);
    memcpy(dim, map->dim, sizeof dim);
    dim[0] = p->prompts;
    if (!p->semantic)
        to[1] = p->semantic = run_constant(p->r, 4, dim);
    if (!p->semantic->grad)
        run_want_grad(p->r, p->semantic);
    if (masks) {
        to[0] = p->shown[b] = run_constant(p->r, masks->axes, masks->dim);
        run_want_grad(p->r, to[0]);
    }
    for (int i = masks ? 0 : 1; i < 2 && run_ok(p->r); i++) {
        const float *slope = run_seed(p->masks, from[i]);
        int64_t n = tensor_count(from[i]), at = i ? b * count : 0;
        memcpy(to[i]->data + at, from[i]->data, sizeof(float) * (size_t)n);
        if (slope)
            memcpy(to[i]->grad + at, slope, sizeof(float) * (size_t)n);
    }
}

static int one_prompt(picture *p, int b, mask_room *room, samite_error *err)
{
    const seghead *s = &p->n->net->seghead;
    run *r = p->masks;
    int n = chosen_rows(p, b, room);
    tensor *masks = NULL;
    run_reset(r);
    tensor *level[] = {show_row(p, p->seen.level[0], 0), show_row(p, p->seen.level[1], 0)};
    tensor *pixels = seghead_pixels(r, s, level, show_row(p, p->memory, b), show_row(p, p->prompt, b),
                                    p->mask ? show_row(p, p->mask, b) : NULL);
    if (n) {
        tensor *q = show_row(p, p->found.queries, b);
        q = gather_rows(r, reshape(r, q, 2, (int64_t[]){q->dim[1], q->dim[2]}), room->index, n);
        masks = seghead_masks(r, s, pixels, reshape(r, q, 3, (int64_t[]){1, n, tensor_cols(q)}));
        if (run_ok(r))
            mask_terms(p, masks, n, room);
    }
    tensor *map = seghead_semantic(r, s, pixels);
    if (run_ok(r))
        semantic_terms(p, map, b, room);
    int code = run_backward(r, NULL, err);
    if (!code && p->o->look)
        keep_copies(p, b, masks, map);
    return code ? code : run_status(p->r, err);
}

int mask_losses(picture *p, samite_error *err)
{
    size_t area = (size_t)p->t.side * (size_t)p->t.side,
           most = 2 * (size_t)p->queries * (size_t)(targets_objects(&p->t) + 1);
    mask_room room = {malloc(sizeof(float) * 2 * area), malloc(area + 1), malloc(sizeof *room.index * most),
                      malloc(sizeof *room.from * most), malloc(sizeof *room.many * most)};
    p->shown = p->o->look ? calloc((size_t)p->prompts + 1, sizeof *p->shown) : NULL;
    int code = (p->shown || !p->o->look) && room.pixels && room.target && room.index && room.from && room.many
                   ? 0
                   : fail(err, SAMITE_RESOURCE, "not enough memory for the mask losses");
    for (int b = 0; !code && b < p->prompts; b++)
        if (p->o->look || has_mask(&p->t, b))
            code = one_prompt(p, b, &room, err);
    free(room.pixels), free(room.target), free(room.index), free(room.from), free(room.many);
    return code;
}
