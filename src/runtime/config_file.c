/* config_file.c - reads the sizes of a network off a checkpoint. */
#include "runtime/config_file.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRUNK "detector.backbone.vision_backbone.trunk."
#define WORDS "detector.backbone.language_backbone.encoder."

/* Axis `axis` of tensor `name`, or `other` when there is no such tensor or axis. */
static int size_of(const weights *w, const char *name, int axis, int other)
{
    const weight *t = weights_find(w, name);
    return t && axis < t->axes && t->dim[axis] > 0 && t->dim[axis] < 1 << 24 ? (int)t->dim[axis] : other;
}

/* How many of FORMAT % 0, 1, 2, .. exist, at most `limit`. */
static int count_of(const weights *w, const char *before, const char *after, int limit)
{
    int n = 0;
    for (; n < limit; n++) {
        char name[256];
        snprintf(name, sizeof name, "%s%d%s", before, n, after);
        if (!weights_find(w, name))
            break;
    }
    return n;
}

static int square_side(int64_t rows)
{
    int side = (int)lround(sqrt((double)rows));
    return (int64_t)side * side == rows ? side : 0;
}

/* Everything that shapes tell. Fields that they do not tell keep the official values already in *c. */
static void sizes_from_tensors(config *c, const weights *w)
{
    c->vit_dim = size_of(w, TRUNK "patch_embed.proj.weight", 0, c->vit_dim);
    c->patch = size_of(w, TRUNK "patch_embed.proj.weight", 2, c->patch);
    int grid = square_side(size_of(w, TRUNK "pos_embed", 1, 1 + 24 * 24) - 1);
    c->pretrain = grid * c->patch;
    c->vit_depth = count_of(w, TRUNK "blocks.", ".norm1.weight", MAX_TRUNK_DEPTH);
    c->vit_mlp = size_of(w, TRUNK "blocks.0.mlp.fc1.weight", 0, c->vit_mlp);
    c->vocabulary = size_of(w, WORDS "token_embedding.weight", 0, c->vocabulary);
    c->text_dim = size_of(w, WORDS "token_embedding.weight", 1, c->text_dim);
    c->context = size_of(w, WORDS "positional_embedding", 0, c->context);
    c->text_projection = size_of(w, WORDS "text_projection", 1, c->text_projection);
    c->text_layers = count_of(w, WORDS "transformer.resblocks.", ".ln_1.weight", 256);
    c->d = size_of(w, "detector.transformer.decoder.query_embed.weight", 1, c->d);
    c->queries = size_of(w, "detector.transformer.decoder.query_embed.weight", 0, c->queries);
    c->heads = size_of(w, "detector.transformer.decoder.boxRPB_embed_x.layers.1.weight", 0, c->heads);
    c->ffn = size_of(w, "detector.transformer.encoder.layers.0.linear1.weight", 0, c->ffn);
    c->enc_layers = count_of(w, "detector.transformer.encoder.layers.", ".norm1.weight", 64);
    c->dec_layers = count_of(w, "detector.transformer.decoder.layers.", ".norm1.weight", 64);
    c->geo_layers = count_of(w, "detector.geometry_encoder.encode.", ".norm1.weight", 64);
    c->mem_dim = size_of(w, "tracker.maskmem_tpos_enc", 3, c->mem_dim);
}

static bool same_sizes(const config *a, const config *b)
{
    return a->vit_dim == b->vit_dim && a->vit_depth == b->vit_depth && a->vit_mlp == b->vit_mlp &&
           a->pretrain == b->pretrain && a->patch == b->patch && a->text_dim == b->text_dim &&
           a->text_layers == b->text_layers && a->d == b->d && a->heads == b->heads;
}

/* Heads, window, global blocks and side of the preset whose sizes these are, else the official ratios. */
static void fill_untold(config *c)
{
    static const char *const names[] = {"full", "small", "tiny"};
    for (int i = 0; i < 3; i++) {
        config p;
        if (!config_preset(&p, names[i]) || !same_sizes(c, &p))
            continue;
        c->vit_heads = p.vit_heads;
        c->text_heads = p.text_heads;
        c->vit_window = p.vit_window;
        c->image = p.image;
        memcpy(c->vit_global, p.vit_global, sizeof c->vit_global);
        return;
    }
    c->vit_heads = c->vit_dim / 64;         /* official head width */
    c->text_heads = c->text_dim / 64;
}

/* The rotary tables: [window^2 or tokens^2, head width / 2] of each block. */
static void read_rotary_tables(config *c, const weights *w)
{
    int64_t least = 0, most = 0, cols = 0, rows[MAX_TRUNK_DEPTH] = {0};
    for (int i = 0; i < c->vit_depth; i++) {
        char name[256];
        snprintf(name, sizeof name, TRUNK "blocks.%d.attn.freqs_cis", i);
        const weight *t = weights_find(w, name);
        if (!t || t->axes != 2 || t->dim[0] < 1 || t->dim[1] < 1 || !square_side(t->dim[0]))
            return;
        rows[i] = t->dim[0];
        cols = t->dim[1];
        least = !least || rows[i] < least ? rows[i] : least;
        most = rows[i] > most ? rows[i] : most;
    }
    if (!cols || c->vit_dim % (2 * cols) || square_side(most) > 4096)
        return;
    c->vit_heads = (int)(c->vit_dim / (2 * cols));
    c->vit_window = square_side(least);
    c->image = square_side(most) * c->patch;
    for (int i = 0; i < c->vit_depth && most > least; i++)
        c->vit_global[i] = rows[i] == most;
}

static void json_field(const json_t *o, const char *key, int *value)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_integer(v) && json_integer_value(v) > 0 && json_integer_value(v) < 1 << 20)
        *value = (int)json_integer_value(v);
}

/* A token table that holds only some tokens. */
static int read_kept(config *c, const json_t *ids, const char *path, samite_error *err)
{
    json_t *v;
    size_t i;
    json_int_t before = -1;
    if (!ids)
        return SAMITE_OK;
    if (!json_is_array(ids) || json_array_size(ids) != (size_t)c->vocabulary || c->vocabulary > MAX_KEPT_TOKENS)
        return fail(err, SAMITE_INPUT, "%s: token_ids in its metadata lists %zu tokens, the token table has %d (at most %d "
                    "can be listed); the file is damaged", path, json_array_size(ids), c->vocabulary, MAX_KEPT_TOKENS);
    json_array_foreach(ids, i, v) {
        json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id <= before || id > UINT16_MAX)
            return fail(err, SAMITE_INPUT, "%s: token_ids in its metadata are not ascending from 0; the file is damaged",
                        path);
        c->kept_ids[i] = (uint16_t)id;
        before = id;
    }
    c->kept = c->vocabulary;
    return SAMITE_OK;
}

/* What samite wrote beside the tensors, if it did: never guessed at when it is damaged. */
static int read_metadata(config *c, const char *text, const char *path, samite_error *err)
{
    if (!text)
        return SAMITE_OK;
    json_t *o = json_loads(text, 0, NULL);
    if (!json_is_object(o)) {
        json_decref(o);
        return fail(err, SAMITE_INPUT, "%s: the %s entry in its metadata is no JSON object; the file is damaged, write "
                    "it again with samite convert", path, CONFIG_KEY);
    }
    json_field(o, "image", &c->image);
    json_field(o, "vit_heads", &c->vit_heads);
    json_field(o, "vit_window", &c->vit_window);
    json_field(o, "text_heads", &c->text_heads);
    double nms = json_number_value(json_object_get(o, "nms"));
    c->nms = nms > 0 && nms <= 1 ? (float)nms : 0;
    json_t *blocks = json_object_get(o, "vit_global"), *v;
    size_t i;
    if (json_is_array(blocks))
        memset(c->vit_global, 0, sizeof c->vit_global);
    json_array_foreach(blocks, i, v) {
        json_int_t k = json_integer_value(v);
        if (json_is_integer(v) && k >= 0 && k < MAX_TRUNK_DEPTH)
            c->vit_global[k] = true;
    }
    int code = read_kept(c, json_object_get(o, "token_ids"), path, err);
    json_decref(o);
    return code;
}

static int check(const config *c, const char *path, samite_error *err)
{
    if (!c->pretrain)
        return fail(err, SAMITE_INPUT, "%s: the position table has no square number of rows", path);
    if (c->vit_heads < 1 || c->text_heads < 1 || c->heads < 1 || c->vit_dim % c->vit_heads || c->d % c->heads ||
        c->text_dim % c->text_heads || c->vit_dim / c->vit_heads % 4)
        return fail(err, SAMITE_INPUT, "%s: %d heads do not divide width %d; the file needs a %s entry in its metadata",
                    path, c->vit_heads, c->vit_dim, CONFIG_KEY);
    if (c->d % 8 || c->vit_dim % 8)
        return fail(err, SAMITE_INPUT, "%s: widths %d and %d are no multiples of 8", path, c->d, c->vit_dim);
    if (c->text_layers > 256 || c->enc_layers > 64 || c->dec_layers > 64 || c->geo_layers > 64)
        return fail(err, SAMITE_INPUT, "%s: more layers than SAM 3 can have (%d for text, %d, %d and %d in the detector)",
                    path, c->text_layers, c->enc_layers, c->dec_layers, c->geo_layers);
    if (c->context > 256 || c->queries > 4096)
        return fail(err, SAMITE_INPUT, "%s: %d text positions and %d queries are more than SAM 3 has", path, c->context,
                    c->queries);
    if (!config_side_valid(c, c->image))
        return fail(err, SAMITE_INPUT, "%s: an input side of %d does not fit windows of %d patches of %d pixels", path,
                    c->image, c->vit_window, c->patch);
    return 0;
}

int config_from_weights(config *c, const weights *w, samite_error *err)
{
    config_preset(c, "full");
    sizes_from_tensors(c, w);
    fill_untold(c);
    read_rotary_tables(c, w);
    const char *path = weights_path(w);
    int code = read_metadata(c, weights_metadata(w, CONFIG_KEY), path, err);
    if (code)
        return code;
    if (!c->vit_depth || !c->text_layers || !c->enc_layers || !c->dec_layers)
        return fail(err, SAMITE_INPUT, "%s: no %s in it, so this is no complete SAM 3 checkpoint; it looks like %s. Give "
                    "the official sam3.pt or a complete fine-tuned file; an adapter is added to its base by samite merge", path,
                    !c->vit_depth ? "image trunk" : !c->text_layers ? "text encoder" : "detector", weights_guess(w));
    return check(c, path, err);
}

/* Sizes that a file with tensors shows by itself. */
static void read_sizes(config *c, const json_t *o)
{
    const struct { const char *key; int *value; } sizes[] = {
        {"pretrain", &c->pretrain}, {"patch", &c->patch}, {"vit_dim", &c->vit_dim}, {"vit_depth", &c->vit_depth},
        {"text_dim", &c->text_dim}, {"text_layers", &c->text_layers}, {"d", &c->d}, {"heads", &c->heads}, {"ffn", &c->ffn},
        {"enc_layers", &c->enc_layers}, {"dec_layers", &c->dec_layers}, {"geo_layers", &c->geo_layers},
        {"queries", &c->queries}, {"mem_dim", &c->mem_dim}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        json_field(o, sizes[i].key, sizes[i].value);
    if (json_is_array(json_object_get(o, "token_ids")))
        c->vocabulary = (int)json_array_size(json_object_get(o, "token_ids"));
    double ratio = json_number_value(json_object_get(o, "vit_mlp"));
    if (ratio > 0 && ratio < 64)
        c->vit_mlp = (int)(c->vit_dim * ratio + 0.5);
}

int config_from_json(config *c, const char *json, const char *path, samite_error *err)
{
    json_t *o = json ? json_loads(json, 0, NULL) : NULL;
    config_preset(c, "full");
    if (json_is_object(o))
        read_sizes(c, o);
    bool told = json_is_object(o) && c->vit_depth <= MAX_TRUNK_DEPTH;
    json_decref(o);
    if (!told)
        return fail(err, SAMITE_INPUT, "%s: it does not say what sizes the network has (no %s in its metadata): export it "
                    "with samite", path, CONFIG_KEY);
    int code = read_metadata(c, json, path, err);
    return code ? code : check(c, path, err);
}

char *config_to_json(const config *c)
{
    json_t *global = json_array();
    for (int i = 0; i < c->vit_depth; i++)
        if (c->vit_global[i])
            json_array_append_new(global, json_integer(i));
    json_t *o = json_pack("{s:i s:i s:i s:i s:i s:i s:f s:i s:o s:i s:i s:i s:i s:i s:i s:i s:i s:i s:i s:i s:i}",
        "image", c->image, "pretrain", c->pretrain, "patch", c->patch, "vit_dim", c->vit_dim, "vit_depth", c->vit_depth,
        "vit_heads", c->vit_heads, "vit_mlp", (double)c->vit_mlp / c->vit_dim, "vit_window", c->vit_window,
        "vit_global", global, "text_dim", c->text_dim, "text_heads", c->text_heads, "text_layers", c->text_layers,
        "d", c->d, "heads", c->heads, "ffn", c->ffn, "enc_layers", c->enc_layers, "dec_layers", c->dec_layers,
        "geo_layers", c->geo_layers, "queries", c->queries, "mem_dim", c->mem_dim, "mask_interp",
        16 * config_tokens(c));
    json_t *kept = o && c->kept ? json_array() : NULL;
    for (int i = 0; i < c->kept; i++)
        json_array_append_new(kept, json_integer(c->kept_ids[i]));
    if (kept)
        json_object_set_new(o, "token_ids", kept);
    if (o && c->nms > 0)
        json_object_set_new(o, "nms", json_real((double)c->nms));
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    return text;
}
