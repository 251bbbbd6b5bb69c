/* result.c - what is shown of a record: who is hidden, who owns a pixel, boxes around what is left. */
#include <stdlib.h>
#include <string.h>

#include "track/session.h"

void track_result_free(track_result *r)
{
    for (int i = 0; i < r->count; i++)
        rle_free(&r->item[i].mask);
    free(r->item);
    *r = (track_result){0};
}

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const track_instance *)a)->id, y = ((const track_instance *)b)->id;
    return x < y ? -1 : x > y;
}

static bool stays(const session *s, const shown *x, const hiding *h)
{
    if (!x->has_mask || !rle_area(&x->mask) || (h->by_rule && x->hidden) || (h->gone && session_is_gone(s, x->id)))
        return false;
    for (int i = 0; i < h->unconfirmed_count; i++)
        if (h->unconfirmed[i] == x->id)
            return false;
    return true;
}

/* Corners as shares of the picture. Official boxes end on the last pixel instead of behind it. */
static void set_box(track_instance *t, int width, int height, bool official)
{
    double b[4];
    rle_bbox(b, &t->mask);
    double less = official && b[2] > 0 ? 1 : 0;
    t->box[0] = (float)b[0] / (float)width;
    t->box[1] = (float)b[1] / (float)height;
    t->box[2] = (float)(b[2] - less) / (float)width;
    t->box[3] = (float)(b[3] - less) / (float)height;
}

/* ---- overlap ---- */

/* owner [height, width] gets the index of the surest object that covers a pixel, the first on ties; -1: nobody. */
static void find_owners(int32_t *owner, uint8_t *inside, const track_result *r)
{
    size_t n = (size_t)r->width * (size_t)r->height;
    for (size_t k = 0; k < n; k++)
        owner[k] = -1;
    for (int i = 0; i < r->count; i++) {
        if (!(r->item[i].presence > 0))
            continue;
        rle_decode(inside, &r->item[i].mask);
        for (size_t k = 0; k < n; k++)
            if (inside[k] && (owner[k] < 0 || r->item[i].presence > r->item[owner[k]].presence))
                owner[k] = i;
    }
}

static int separate(track_result *r, samite_error *err)
{
    size_t n = (size_t)r->width * (size_t)r->height;
    int32_t *owner = malloc(sizeof *owner * n);
    uint8_t *inside = malloc(n);
    int code = owner && inside ? 0
             : fail(err, SAMITE_RESOURCE, "not enough memory for masks of %d x %d pixels", r->width, r->height);
    if (!code)
        find_owners(owner, inside, r);
    for (int i = 0; i < r->count && !code; i++) {
        rle own;
        for (size_t k = 0; k < n; k++)
            inside[k] = owner[k] == i;
        code = rle_encode(&own, inside, r->width, r->height, err);
        if (code)
            break;
        rle_free(&r->item[i].mask);
        r->item[i].mask = own;
    }
    free(owner);
    free(inside);
    return code;
}

/* What others took whole is not shown. */
static void drop_empty(track_result *r)
{
    int kept = 0;
    for (int i = 0; i < r->count; i++) {
        if (rle_area(&r->item[i].mask))
            r->item[kept++] = r->item[i];
        else
            rle_free(&r->item[i].mask);
    }
    r->count = kept;
}

static int collect(const session *s, const record *r, const hiding *h, track_result *out, samite_error *err)
{
    for (int i = 0; i < r->count; i++) {
        const shown *x = &r->item[i];
        if (!stays(s, x, h))
            continue;
        track_instance *t = &out->item[out->count];
        *t = (track_instance){.id = x->id, .score = x->score, .presence = x->presence};
        int code = rle_copy(&t->mask, &x->mask, err);
        if (code)
            return code;
        out->count++;
    }
    if (out->count)
        qsort(out->item, (size_t)out->count, sizeof *out->item, by_id);
    return 0;
}

int session_result(const session *s, const record *r, int width, int height, const hiding *h, track_result *out,
                   samite_error *err)
{
    *out = (track_result){.frame = r->frame, .time = r->time, .width = width, .height = height, .tracked = r->tracked,
                          .dropped = r->dropped, .has_counts = r->has_counts,
                          .item = calloc((size_t)r->count + 1, sizeof *out->item)};
    bool official = s->o.official;
    int code = out->item ? collect(s, r, h, out, err) : fail(err, SAMITE_RESOURCE, "not enough memory for results");
    for (int i = 0; official && i < out->count; i++)
        set_box(&out->item[i], width, height, true);
    if (!code && out->count > 1)
        code = separate(out, err);
    if (!code && !official)
        drop_empty(out);
    for (int i = 0; !official && i < out->count; i++)
        set_box(&out->item[i], width, height, false);
    if (code)
        track_result_free(out);
    return code;
}
