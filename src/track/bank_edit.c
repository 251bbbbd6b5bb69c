/* bank_edit.c - takes objects out of what is remembered, and gives back what nobody will look at again. */
#include <stdlib.h>
#include <string.h>

#include "track/bank.h"

#define LEAST_QUALITY 0.01f

void bank_demote(bank *b, int64_t frame)
{
    for (int i = 0; i < b->prompted_count; i++) {
        if (b->prompted[i]->frame != frame)
            continue;
        /* both lists have the same room, and the frame is in one */
        b->tracked[b->tracked_count++] = b->prompted[i];
        b->prompted_count--;
        memmove(b->prompted + i, b->prompted + i + 1, sizeof *b->prompted * (size_t)(b->prompted_count - i));
        return;
    }
}

/* ---- removing an object ---- */

static void cut(void *values, size_t each, int object, int objects)
{
    char *at = values;
    if (at)
        memmove(at + each * (size_t)object, at + each * (size_t)(object + 1), each * (size_t)(objects - object - 1));
}

static void cut_moment(moment *m, const bank *b, int object)
{
    int n = b->objects;
    cut(m->memory, sizeof *m->memory * (size_t)(b->tokens * b->width), object, n);
    cut(m->mask, sizeof *m->mask * (size_t)b->pixels, object, n);
    cut(m->pointer, sizeof *m->pointer * (size_t)b->d, object, n);
    cut(m->score, sizeof *m->score, object, n);
    cut(m->overlap, sizeof *m->overlap, object, n);
    m->quality = moment_quality(m, n - 1);
    m->veiled = false;
}

/* Moments shrink in place; a smaller block is handed back where the allocator can. */
static void shrink_moment(moment *m, const bank *b, int objects)
{
    uint16_t *memory = m->memory ? realloc(m->memory, sizeof *memory * (size_t)(objects * b->tokens * b->width)) : NULL;
    float *mask = m->mask ? realloc(m->mask, sizeof *mask * (size_t)(objects * b->pixels)) : NULL;
    if (memory)
        m->memory = memory;
    if (mask)
        m->mask = mask;
}

void bank_remove(bank *b, int object)
{
    for (int i = 0; i < b->prompted_count + b->tracked_count; i++) {
        moment *m = i < b->prompted_count ? b->prompted[i] : b->tracked[i - b->prompted_count];
        cut_moment(m, b, object);
        shrink_moment(m, b, b->objects - 1);
    }
    b->objects--;
}

/* ---- trimming ---- */

static int by_frame(const void *a, const void *b)
{
    int64_t x = (*(moment *const *)a)->frame, y = (*(moment *const *)b)->frame;
    return x < y ? -1 : x > y;
}

/* Marks, of `count` moments sorted by frame, the last (or first) that are of use: 1 their pointers, 2 their maps
 * too. */
static void mark_useful(moment *const *sorted, int count, const bank *b, bool from_end, uint8_t *use)
{
    int good = 0;
    for (int k = 0; k < count && good < BANK_POINTERS; k++) {
        int i = from_end ? count - 1 - k : k;
        if (b->select && sorted[i]->quality <= LEAST_QUALITY && k)
            continue;
        use[i] |= good < BANK_MAPS + 1 ? 2 : 1;
        good++;
    }
}

static void trim_tracked(bank *b, bool backward, bool turn)
{
    int n = b->tracked_count, kept = 0;
    uint8_t *use = calloc((size_t)n + 1, 1);
    if (!use)
        return;                /* nothing is lost by keeping more */
    if (n)
        qsort(b->tracked, (size_t)n, sizeof *b->tracked, by_frame);
    mark_useful(b->tracked, n, b, !backward, use);
    if (turn)
        mark_useful(b->tracked, n, b, backward, use);
    for (int i = 0; i < n; i++) {
        if (!use[i]) {
            moment_free(b->tracked[i]);
            continue;
        }
        if (!(use[i] & 2)) {
            free(b->tracked[i]->memory);
            b->tracked[i]->memory = NULL;
        }
        b->tracked[kept++] = b->tracked[i];
    }
    b->tracked_count = kept;
    free(use);
}

/* How many prompted moments lie beyond `frame` in the direction of `sign`. */
static int beyond(const bank *b, int64_t frame, int sign)
{
    int n = 0;
    for (int i = 0; i < b->prompted_count; i++)
        n += sign > 0 ? b->prompted[i]->frame > frame : b->prompted[i]->frame < frame;
    return n;
}

static void trim_prompted(bank *b, bool backward, bool turn)
{
    for (int i = 0; i < b->prompted_count;) {
        int64_t f = b->prompted[i]->frame;
        bool near = beyond(b, f, backward ? -1 : 1) < BANK_PROMPTED;
        if (near || (turn && beyond(b, f, backward ? 1 : -1) < BANK_PROMPTED)) {
            i++;
            continue;
        }
        moment_free(b->prompted[i]);
        b->prompted_count--;
        memmove(b->prompted + i, b->prompted + i + 1, sizeof *b->prompted * (size_t)(b->prompted_count - i));
    }
}

void bank_trim(bank *b, int64_t frame, bool backward, bool turn)
{
    trim_tracked(b, backward, turn);
    trim_prompted(b, backward, turn);
    for (int i = 0; i < b->prompted_count + b->tracked_count; i++) {
        moment *m = i < b->prompted_count ? b->prompted[i] : b->tracked[i - b->prompted_count];
        if (m->frame == frame)
            continue;
        free(m->mask);
        m->mask = NULL;
    }
}

size_t bank_bytes(const bank *b)
{
    size_t bytes = 0, n = (size_t)b->objects;
    for (int i = 0; i < b->prompted_count + b->tracked_count; i++) {
        const moment *m = i < b->prompted_count ? b->prompted[i] : b->tracked[i - b->prompted_count];
        bytes += sizeof *m + sizeof(float) * n * (size_t)(b->d + 2);
        bytes += m->memory ? sizeof *m->memory * n * (size_t)(b->tokens * b->width) : 0;
        bytes += m->mask ? sizeof *m->mask * n * (size_t)b->pixels : 0;
    }
    return bytes + 2 * sizeof(moment *) * (size_t)b->room;
}
