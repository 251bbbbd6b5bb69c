/* fingerprint.c - hashes what a model is made of, without reading all of it. */
#include "runtime/fingerprint.h"

#include <string.h>

#define SAMPLE 64

/* Bytes from the middle of the tensor, or of its middle piece; of one with gaps, its first element. */
static uint64_t hash_sample(uint64_t h, const weight *w)
{
    const weight *piece = w->parts ? &w->part[w->parts / 2] : w;
    if (!piece->data || !weight_count(piece))
        return h;
    if (!weight_contiguous(piece))
        return hash_bytes(h, piece->data, dtype_size(piece->type));
    size_t bytes = weight_bytes(piece), take = bytes < SAMPLE ? bytes : SAMPLE;
    return hash_bytes(h, (const char *)piece->data + (bytes - take) / 2, take);
}

uint64_t native_fingerprint(const native *n)
{
    const registry *g = &n->net->all;
    uint64_t h = HASH_START;
    if (!n->file)
        h = hash_bytes(h, &n->seed, sizeof n->seed);
    for (size_t i = 0; i < g->count; i++) {
        const entry *e = g->entries[i];
        const weight *w = n->file && !e->missing ? weights_find(n->file, e->p.name) : NULL;
        uint8_t type = w ? (uint8_t)w->type : (uint8_t)(DT_COUNT + e->missing);
        h = hash_bytes(h, e->p.name, strlen(e->p.name) + 1);
        h = hash_bytes(h, &type, 1);
        h = hash_bytes(h, e->p.t.dim, sizeof *e->p.t.dim * (size_t)e->p.t.axes);
        if (w)
            h = hash_sample(h, w);
    }
    return h;
}
