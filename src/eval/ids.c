/* ids.c - a hash table over integers and texts. */
#include "eval/ids.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/json_stream.h"

/* Decimal digits without leading zeros that fit 18 places, so that the number prints as the same text. */
static bool whole_number(int64_t *out, const char *s, size_t size)
{
    size_t i = size > 0 && s[0] == '-';
    int64_t v = 0;
    if (size == i || size - i > 18 || (s[i] == '0' && size > 1))
        return false;
    for (; i < size; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        v = v * 10 + (s[i] - '0');
    }
    *out = s[0] == '-' ? -v : v;
    return true;
}

id_value id_from_string(const char *s, size_t size)
{
    id_value id = {ID_INTEGER, true, 0, s, size};
    if (!whole_number(&id.number, s, size))
        id.kind = ID_TEXT;
    return id;
}

id_value id_from_number(const char *s, size_t size)
{
    id_value id = {ID_INTEGER, false, 0, s, size};
    if (whole_number(&id.number, s, size))
        return id;
    double v = real_from_json(s, size);
    if (v == floor(v) && fabs(v) < 1e15)
        id.number = (int64_t)v;
    else
        id.kind = ID_TEXT;
    return id;
}

static uint64_t hash(const id_value *id)
{
    uint64_t h = 0xcbf29ce484222325u;
    if (id->kind == ID_INTEGER) {
        h = (uint64_t)id->number * 0x9e3779b97f4a7c15u;
        return h ^ h >> 32;
    }
    for (size_t i = 0; i < id->size; i++)
        h = (h ^ (uint8_t)id->text[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

static bool same(const id_value *a, const id_value *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == ID_INTEGER ? a->number == b->number
                                 : a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}

/* The slot where `id` is or would be. */
static size_t probe(const id_table *t, const id_value *id)
{
    size_t at = hash(id) & (t->slots - 1);
    while (t->slot[at] && !same(&t->item[t->slot[at] - 1], id))
        at = (at + 1) & (t->slots - 1);
    return at;
}

static bool make_room(id_table *t)
{
    if (t->count >= INT32_MAX - 1 || grow(&t->item, t->count, &t->room, sizeof *t->item))
        return false;
    if (t->count * 2 < t->slots)
        return true;
    size_t slots = t->slots ? t->slots * 2 : 256;
    int32_t *slot = calloc(slots, sizeof *slot);
    if (!slot)
        return false;
    free(t->slot);
    t->slot = slot;
    t->slots = slots;
    for (size_t i = 0; i < t->count; i++)
        t->slot[probe(t, &t->item[i])] = (int32_t)i + 1;
    return true;
}

int32_t ids_put(id_table *t, const id_value *id, bool *known)
{
    if (!make_room(t))
        return -1;
    size_t at = probe(t, id);
    *known = t->slot[at] != 0;
    if (*known)
        return t->slot[at] - 1;
    id_value *kept = &t->item[t->count];
    *kept = *id;
    if (id->kind == ID_TEXT && !(kept->text = pool_string(&t->texts, id->text, id->size)))
        return -1;
    if (id->kind == ID_INTEGER)
        kept->text = NULL;
    t->slot[at] = (int32_t)++t->count;
    return t->slot[at] - 1;
}

int32_t ids_find(const id_table *t, const id_value *id)
{
    return t->slots ? t->slot[probe(t, id)] - 1 : -1;
}

void ids_free(id_table *t)
{
    free(t->item);
    free(t->slot);
    pool_free(&t->texts);
    *t = (id_table){0};
}

const char *id_print(char *out, size_t room, const id_value *id)
{
    if (id->kind == ID_INTEGER)
        snprintf(out, room, "%" PRId64, id->number);
    else
        snprintf(out, room, "%.*s", (int)(id->size < room ? id->size : room), id->kind == ID_NONE ? "?" : id->text);
    return out;
}

typedef struct sortable {
    const id_value *id;
    int32_t         index;
} sortable;

static int by_number(const void *a, const void *b)
{
    const id_value *x = ((const sortable *)a)->id, *y = ((const sortable *)b)->id;
    if (x->kind == ID_INTEGER && y->kind == ID_INTEGER)
        return (x->number > y->number) - (x->number < y->number);
    double u = x->kind == ID_INTEGER ? (double)x->number : real_from_json(x->text, x->size);
    double v = y->kind == ID_INTEGER ? (double)y->number : real_from_json(y->text, y->size);
    return u != v ? (u > v) - (u < v) : ((const sortable *)a)->index - ((const sortable *)b)->index;
}

static int by_text(const void *a, const void *b)
{
    char one[32], two[32];
    const id_value *x = ((const sortable *)a)->id, *y = ((const sortable *)b)->id;
    const char *s = x->kind == ID_TEXT ? x->text : id_print(one, sizeof one, x);
    const char *t = y->kind == ID_TEXT ? y->text : id_print(two, sizeof two, y);
    return strcmp(s, t);
}

int32_t *ids_order(const id_table *t)
{
    int32_t *order = malloc((t->count + 1) * sizeof *order);
    sortable *s = malloc((t->count + 1) * sizeof *s);
    bool quoted = false;
    for (size_t i = 0; s && i < t->count; i++) {
        s[i] = (sortable){&t->item[i], (int32_t)i};
        quoted |= t->item[i].quoted;
    }
    if (s && order) {
        if (t->count)
            qsort(s, t->count, sizeof *s, quoted ? by_text : by_number);
        for (size_t i = 0; i < t->count; i++)
            order[i] = s[i].index;
    } else {
        free(order);
        order = NULL;
    }
    free(s);
    return order;
}
