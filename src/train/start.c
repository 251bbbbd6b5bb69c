/* start.c - first weights: spread by the width of a layer, queries on a grid, fusion that compares, box bias that sees
 * edges. */
#include "train/start.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/text.h"

#define DECODER "detector.transformer.decoder."
#define FUSION  "detector.transformer.encoder.layers."
#define EDGE_STRENGTH 8.0f
#define EDGE_MARGIN   0.14f

/* Number i of a sequence: nearly normal, of variance 1 (four uniform numbers). */
static float normal(uint64_t key, uint64_t i)
{
    uint64_t bits = random_next(key, i);
    float sum = 0;
    for (int k = 0; k < 4; k++)
        sum += (float)(bits >> (16 * k) & 0xFFFF) * 0x1p-16f;
    return (sum - 2) * 1.7320508f;
}

static uint64_t key_of(const char *name, uint64_t seed)
{
    uint64_t key = random_mix(seed + 1);
    for (const unsigned char *s = (const unsigned char *)name; *s; s++)
        key = random_mix(key ^ *s);
    return key;
}

/* Tables that are looked up rather than multiplied with; 0: a layer, spread by its width. */
static float table_spread(const char *name)
{
    static const struct { const char *part; float spread; } tables[] = {
        {"token_embedding", 0.3f}, {"positional_embedding", 0.1f}, {"trunk.pos_embed", 0.02f}, {"query_embed.weight", 1},
        {"presence_token.weight", 1}, {"gaussian_matrix", 1}, {"cls_embed", 1}, {"label_embed", 1}, {"_embed.weight", 1},
        {"point_embeddings", 1}, {"_token.weight", 0.5f}, {"_tokens.weight", 0.5f}, {"maskmem_tpos_enc", 0.02f}, {"no_mem", 0.02f}, {"no_obj", 0.02f}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strstr(name, tables[i].part))
            return tables[i].spread;
    return 0;
}

static float spread_of(const char *name, int axes, const int64_t *dim)
{
    double in = 1;
    float table = table_spread(name);
    for (int i = 1; i < axes; i++)
        in *= (double)dim[i];
    if (table > 0)
        return table;
    return (float)(axes == 2 ? sqrt(2 / (in + (double)dim[0])) : sqrt(1 / in));
}

static void fill(param *p, uint64_t seed)
{
    const char *name = p->name;
    int64_t n = tensor_count(&p->t);
    bool one_axis = p->t.axes == 1, gain = one_axis && (ends_with(name, ".weight") || ends_with(name, "gamma"));
    float spread = one_axis && !table_spread(name) ? 0 : spread_of(name, p->t.axes, p->t.dim);
    float centre = ends_with(name, "gamma") ? 0.1f : gain ? 1 : 0;
    uint64_t key = key_of(name, seed);
    if (strstr(name, "bbox_embed.layers.2."))      /* boxes begin where the queries are */
        spread = 0;
    for (int64_t i = 0; i < n; i++)
        p->t.data[i] = spread > 0 ? spread * normal(key, (uint64_t)i) : centre;
}

/* ---- on purpose ---- */

static float *values_of(native *n, const char *name)
{
    entry *e = registry_find(&n->net->all, name);
    return e ? e->p.t.data : NULL;
}

/* Queries begin on a grid of boxes of 0.3 x 0.3. */
static void place_queries(native *n)
{
    int count = n->net->c.queries, across = (int)ceil(sqrt(count)), down = (count + across - 1) / across;
    float *at = values_of(n, DECODER "reference_points.weight");
    for (int i = 0; at && i < count; i++) {
        float box[4] = {((float)(i % across) + 0.5f) / (float)across, ((float)(i / across) + 0.5f) / (float)down, 0.3f, 0.3f};
        for (int k = 0; k < 4; k++)
            at[4 * i + k] = logf(box[k] / (1 - box[k]));
    }
}

/* Queries and keys of the attention to the prompt are the features themselves: alike is what belongs together. */
static void compare_at_once(native *n)
{
    int d = n->net->c.d;
    for (int l = 0; l < n->net->c.enc_layers; l++) {
        char name[128];
        snprintf(name, sizeof name, FUSION "%d.cross_attn_image.in_proj_weight", l);
        float *w = values_of(n, name);
        for (int64_t i = 0; w && i < 2 * (int64_t)d * d; i++)
            w[i] = i % d == i / d % d;
    }
}

/* Heads 0 to 3 look at the left, right, upper and lower side of a query's box, and along the other axis inside it. The
 * perceptron gets the distances to both sides: four hidden units tell on which side of each a place is. */
static void look_at_edges(native *n, const char *axis, int low, int high)
{
    static const float hidden[4][3] = {{-1, 0, -1}, {0, 1, 1}, {1, 0, 1}, {0, -1, -1}};
    char name[128];
    const char *const ends[] = {"0.weight", "0.bias", "1.weight"};
    float *w[3];
    int d = n->net->c.d, heads = n->net->c.heads;
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, DECODER "boxRPB_embed_%s.layers.%s", axis, ends[i]);
        if (!(w[i] = values_of(n, name)))
            return;
    }
    for (int i = 0; i < 4; i++) {
        w[0][2 * i] = hidden[i][0];
        w[0][2 * i + 1] = hidden[i][1];
        w[1][i] = hidden[i][2] * EDGE_MARGIN;
    }
    for (int h = 0; h < heads; h++) {
        float *row = w[2] + (int64_t)h * d;
        bool at_low = h % 4 == low, at_high = h % 4 == high;
        for (int i = 0; i < d; i++)
            row[i] *= 0.3f;
        row[0] = at_high ? 0 : -EDGE_STRENGTH;
        row[1] = at_low ? 0 : -EDGE_STRENGTH;
        row[2] = at_low ? -EDGE_STRENGTH : 0;
        row[3] = at_high ? -EDGE_STRENGTH : 0;
    }
}

int start_weights(native *n, uint64_t seed, samite_error *err)
{
    registry *g = &n->net->all;
    for (size_t i = 0; i < g->count; i++) {
        param *p = &g->entries[i]->p;
        p->t.data = malloc(sizeof(float) * ((size_t)tensor_count(&p->t) + 1));
        if (!p->t.data)
            return fail(err, SAMITE_RESOURCE, "not enough memory for %s", p->name);
        p->owned = p->trainable = true;
        g->entries[i]->missing = false;
        fill(p, seed);
    }
    place_queries(n);
    compare_at_once(n);
    look_at_edges(n, "x", 0, 1);
    look_at_edges(n, "y", 2, 3);
    return 0;
}
