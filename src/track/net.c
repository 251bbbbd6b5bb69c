/* net.c - calls of the network that may be answered elsewhere, object by object. */
#include "track/net.h"

/* The failure of a call becomes the run's. */
static bool good(run *r, int code, const samite_error *e)
{
    if (code)
        run_fail(r, code, "%s", e->text);
    return !code;
}

static void click_elsewhere(const elsewhere *e, run *r, const click_image *im, tensor *seen, const clicks *points,
                            tensor *mask, guesses *out)
{
    int64_t batch = points->batch, side = im->fine0->dim[0], n = side * side, d = im->codes->dim[1];
    samite_error err = {0};
    *out = (guesses){run_constant(r, 3, (int64_t[]){batch, MASK_GUESSES, n}),
                     run_constant(r, 2, (int64_t[]){batch, MASK_GUESSES}),
                     run_constant(r, 3, (int64_t[]){batch, MASK_GUESSES, d}), run_constant(r, 2, (int64_t[]){batch, 1})};
    seen_as how = !seen ? SEEN_NEVER : seen->data == im->image->data ? SEEN_PLAIN : SEEN_BY_MEMORY;
    for (int64_t b = 0; b < batch && run_ok(r); b++) {
        guessed to = {out->masks->data + b * MASK_GUESSES * n, out->overlap->data + b * MASK_GUESSES,
                      out->tokens->data + b * MASK_GUESSES * d, out->object->data + b};
        clicks one = {1, points->count, points->xy + 2 * b * points->count, points->kind + b * points->count};
        const float *own = how == SEEN_BY_MEMORY ? seen->data + b * (n / 16) * d : NULL;
        good(r, e->click(e->user, how, own, &one, mask ? mask->data + b * n : NULL, &to, &err), &err);
    }
}

void net_click(const elsewhere *e, run *r, const sam3 *net, const click_image *im, tensor *seen, const clicks *points,
               tensor *mask, guesses *out)
{
    if (!e)
        sam3_click(r, net, im, seen, points, mask, out);
    else
        click_elsewhere(e, r, im, seen, points, mask, out);
}

tensor *net_encode(const elsewhere *e, run *r, const sam3 *net, tensor *image, tensor *mask, const bool *hidden)
{
    if (!e)
        return memory_encode(r, &net->memory, image, mask, hidden);
    int64_t batch = mask->dim[0], t = config_tokens(&net->c), each = t * t * net->c.mem_dim, n = 256 * t * t;
    tensor *y = run_constant(r, 3, (int64_t[]){batch, t * t, net->c.mem_dim});
    samite_error err = {0};
    for (int64_t b = 0; b < batch && run_ok(r); b++)
        good(r, e->encode(e->user, mask->data + b * n, hidden && hidden[b], y->data + b * each, &err), &err);
    return y;
}

tensor *net_mask_prompt(const elsewhere *e, run *r, const sam3 *net, tensor *mask)
{
    if (!e)
        return memory_mask_prompt(r, &net->memory, mask);
    int64_t batch = mask->dim[0], side = mask->dim[1] / 4;
    tensor *y = run_constant(r, 4, (int64_t[]){batch, side, side, 1});
    samite_error err = {0};
    for (int64_t b = 0; b < batch && run_ok(r); b++)
        good(r, e->mask_prompt(e->user, mask->data + b * 16 * side * side, y->data + b * side * side, &err), &err);
    return y;
}

tensor *net_pointers(const elsewhere *e, run *r, const sam3 *net, const guesses *g, const int32_t *token,
                     const bool *hidden)
{
    int64_t batch = g->tokens->dim[0], d = g->tokens->dim[2];
    tensor *flat = reshape(r, g->tokens, 2, (int64_t[]){batch * MASK_GUESSES, d});
    if (!e)
        return memory_pointers(r, &net->memory, gather_rows(r, flat, token, batch), hidden);
    tensor *all = run_constant(r, 2, (int64_t[]){batch * MASK_GUESSES, d});
    samite_error err = {0};
    for (int64_t b = 0; b < batch && run_ok(r); b++)
        good(r, e->pointers(e->user, flat->data + b * MASK_GUESSES * d, hidden[b] ? -1.0f : 1.0f,
                            all->data + b * MASK_GUESSES * d, &err), &err);
    return gather_rows(r, all, token, batch);
}

const float *net_no_pointer(const elsewhere *e, const sam3 *net)
{
    return e ? e->no_pointer : net->memory.no_pointer->t.data;
}
