/* two_way.c - tokens attend to themselves, then to the picture; the picture attends back. Norms come after. */
#include "model/two_way.h"

#define NORM_EPS 1e-5f

void declare_attend_projected(registry *g, const char *name, attend_w *w, int64_t d, int64_t from, int64_t inner,
                              int heads)
{
    size_t mark = registry_enter(g, "%s", name);
    declare_linear(g, "q_proj", &w->q, d, inner);
    declare_linear(g, "k_proj", &w->k, from, inner);
    declare_linear(g, "v_proj", &w->v, from, inner);
    declare_linear(g, "out_proj", &w->out, inner, d);
    w->heads = heads;
    registry_leave(g, mark);
}

static void declare_layer(registry *g, two_way_layer *l, int64_t d, int heads, int64_t hidden)
{
    declare_attend_projected(g, "self_attn", &l->self, d, d, d, heads);
    declare_norm(g, "norm1", &l->norm1, d, NORM_EPS);
    declare_attend_projected(g, "cross_attn_token_to_image", &l->to_image, d, d, d / 2, heads);
    declare_norm(g, "norm2", &l->norm2, d, NORM_EPS);
    declare_linear(g, "mlp.lin1", &l->fc1, d, hidden);
    declare_linear(g, "mlp.lin2", &l->fc2, hidden, d);
    declare_norm(g, "norm3", &l->norm3, d, NORM_EPS);
    declare_norm(g, "norm4", &l->norm4, d, NORM_EPS);
    declare_attend_projected(g, "cross_attn_image_to_token", &l->to_token, d, d, d / 2, heads);
}

void two_way_declare(two_way *w, registry *g, int64_t d, int heads, int64_t hidden)
{
    size_t mark = registry_enter(g, "transformer");
    for (int i = 0; i < TWO_WAY_LAYERS; i++) {
        size_t inner = registry_enter(g, "layers.%d", i);
        declare_layer(g, &w->layer[i], d, heads, hidden);
        registry_leave(g, inner);
    }
    declare_attend_projected(g, "final_attn_token_to_image", &w->last, d, d, d / 2, heads);
    declare_norm(g, "norm_final_attn", &w->norm, d, NORM_EPS);
    registry_leave(g, mark);
}

/* In the first layer the tokens are their own position codes already. */
static tensor *look_around(run *r, const two_way_layer *l, tensor *x, tensor *codes, bool first)
{
    tensor *q = first ? x : add(r, x, codes);
    x = attend_add(r, first ? NULL : x, &l->self, q, q, x, NULL);
    return norm(r, x, &l->norm1);
}

void two_way_forward(run *r, const two_way *w, tensor **tokens, tensor **image, tensor *places)
{
    tensor *x = *tokens, *codes = *tokens, *y = *image, *y_at = add(r, y, places);
    for (int i = 0; i < TWO_WAY_LAYERS; i++) {
        const two_way_layer *l = &w->layer[i];
        run_part(r, "two_way.%d", i);
        x = look_around(r, l, x, codes, i == 0);
        x = norm(r, attend_add(r, x, &l->to_image, add(r, x, codes), y_at, y, NULL), &l->norm2);
        x = norm(r, feed_forward(r, x, NULL, &l->fc1, &l->fc2, ACT_RELU), &l->norm3);
        if (y->dim[0] < x->dim[0]) {
            y = repeat(r, y, x->dim[0]);
            y_at = repeat(r, y_at, x->dim[0]);
        }
        y = norm(r, attend_add(r, y, &l->to_token, y_at, add(r, x, codes), x, NULL), &l->norm4);
        y_at = add(r, y, places);
    }
    run_part(r, "two_way.last");
    x = attend_add(r, x, &w->last, add(r, x, codes), y_at, y, NULL);
    *tokens = norm(r, x, &w->norm);
    *image = y;
}
