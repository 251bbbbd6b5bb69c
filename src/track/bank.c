/* bank.c - keeps moments by frame and chooses among them as the original does. */
#include "track/bank.h"

#include <math.h>
#include <stdlib.h>

#define LEAST_QUALITY 0.01f

void bank_init(bank *b, int objects, int64_t tokens, int64_t width, int64_t d, int64_t side)
{
    *b = (bank){.objects = objects, .tokens = tokens, .width = width, .d = d, .pixels = side * side};
}

void moment_free(moment *m)
{
    if (!m)
        return;
    free(m->memory);
    free(m->mask);
    free(m->pointer);
    free(m);
}

void bank_free(bank *b)
{
    for (int i = 0; i < b->prompted_count; i++)
        moment_free(b->prompted[i]);
    for (int i = 0; i < b->tracked_count; i++)
        moment_free(b->tracked[i]);
    free(b->prompted);
    free(b->tracked);
    *b = (bank){0};
}

moment *moment_new(const bank *b, int64_t frame)
{
    moment *m = calloc(1, sizeof *m);
    size_t n = (size_t)b->objects, pointers = n * (size_t)b->d, pixels = n * (size_t)b->pixels;
    if (!m)
        return NULL;
    m->frame = frame;
    m->quality = -1;
    m->memory = calloc(n * (size_t)(b->tokens * b->width), sizeof *m->memory);
    m->mask = calloc(pixels, sizeof *m->mask);
    m->pointer = calloc(pointers + 2 * n, sizeof *m->pointer);
    if (!m->memory || !m->mask || !m->pointer) {
        moment_free(m);
        return NULL;
    }
    m->score = m->pointer + pointers;
    m->overlap = m->score + n;
    return m;
}

float moment_quality(const moment *m, int objects)
{
    float presence = 0, overlap = 0;
    for (int i = 0; i < objects; i++) {
        if (m->score[i] > 0)
            presence += 2.0f / (1.0f + expf(-m->score[i])) - 1.0f;
        overlap += m->overlap[i];
    }
    return presence / (float)objects * (overlap / (float)objects);
}

static int find(moment *const *list, int count, int64_t frame)
{
    for (int i = 0; i < count; i++)
        if (list[i]->frame == frame)
            return i;
    return -1;
}

moment *bank_prompted(const bank *b, int64_t frame)
{
    int i = find(b->prompted, b->prompted_count, frame);
    return i < 0 ? NULL : b->prompted[i];
}

moment *bank_tracked(const bank *b, int64_t frame)
{
    int i = find(b->tracked, b->tracked_count, frame);
    return i < 0 ? NULL : b->tracked[i];
}

static bool make_room(bank *b)
{
    if (b->prompted_count + b->tracked_count < b->room)        /* moments may change lists */
        return true;
    int room = b->room ? 2 * b->room : 32;
    moment **prompted = realloc(b->prompted, sizeof *prompted * (size_t)room);
    if (!prompted)
        return false;
    b->prompted = prompted;
    moment **tracked = realloc(b->tracked, sizeof *tracked * (size_t)room);
    if (!tracked)
        return false;
    b->tracked = tracked;
    b->room = room;
    return true;
}

static void remove_at(moment **list, int *count, int i)
{
    moment_free(list[i]);
    for (--*count; i < *count; i++)
        list[i] = list[i + 1];
}

int bank_put(bank *b, moment *m, bool is_prompted, samite_error *err)
{
    if (!make_room(b))
        return fail(err, SAMITE_RESOURCE, "not enough memory to remember frame %lld", (long long)m->frame);
    moment **list = is_prompted ? b->prompted : b->tracked;
    int *count = is_prompted ? &b->prompted_count : &b->tracked_count, i = find(list, *count, m->frame);
    if (i >= 0) {
        moment_free(list[i]);
        list[i] = m;
    } else {
        list[(*count)++] = m;
    }
    i = is_prompted ? find(b->tracked, b->tracked_count, m->frame) : -1;
    if (i >= 0)
        remove_at(b->tracked, &b->tracked_count, i);
    return 0;
}

/* ---- recall ---- */

static int64_t distance(int64_t a, int64_t b)
{
    return a < b ? b - a : a - b;
}

/* Index of the prompted moment nearest to `frame` among those not yet taken, on one side (-1 before, 1 at or after,
 * 0 any); the one that came first on ties. -1: none. */
static int nearest(const bank *b, const bool *taken, int64_t frame, int side)
{
    int best = -1;
    for (int i = 0; i < b->prompted_count; i++) {
        int64_t f = b->prompted[i]->frame;
        if (taken[i] || (side < 0 && f >= frame) || (side > 0 && f < frame))
            continue;
        if (best < 0 || distance(f, frame) < distance(b->prompted[best]->frame, frame))
            best = i;
    }
    return best;
}

/* Marks the prompted moments to look at; order[] gets them, returns how many. taken [prompted_count] starts false. */
static int choose_prompted(const bank *b, int64_t frame, bool *taken, int *order)
{
    int n = 0;
    for (int i = 0; b->prompted_count <= BANK_PROMPTED && i < b->prompted_count; i++) {
        taken[i] = true;
        order[n++] = i;
    }
    static const int sides[BANK_PROMPTED] = {-1, 1, 0, 0};
    for (int k = 0; b->prompted_count > BANK_PROMPTED && (k < BANK_PROMPTED || n < BANK_PROMPTED); k++) {
        int i = nearest(b, taken, frame, k < BANK_PROMPTED ? sides[k] : 0);
        if (i < 0)
            continue;
        taken[i] = true;
        order[n++] = i;
    }
    return n;
}

/* The tracked moment next to `frame` on the side time comes from, beyond `beyond`; NULL when there is none. */
static const moment *next_back(const bank *b, int64_t beyond, bool backward)
{
    const moment *best = NULL;
    for (int i = 0; i < b->tracked_count; i++) {
        const moment *m = b->tracked[i];
        bool further = backward ? m->frame > beyond : m->frame < beyond;
        if (further && (!best || distance(m->frame, beyond) < distance(best->frame, beyond)))
            best = m;
    }
    return best;
}

/* Frames worth remembering, nearest first: those of enough quality, never frame 0 when time runs forward, and the frame
 * just before in any case. Returns how many. */
static int good_frames(const bank *b, int64_t frame, bool backward, int64_t frames, int most, int64_t *good)
{
    int64_t before = backward ? frame + 1 : frame - 1, at = frame;
    int n = 0;
    bool has_before = false;
    if (backward ? frames && frame == frames - 1 : frame == 0)
        return 0;
    for (const moment *m; (m = next_back(b, at, backward)) != NULL && (backward || m->frame > 0); at = m->frame) {
        if (m->quality < 0)
            continue;
        if (m->quality > LEAST_QUALITY) {
            good[n++] = m->frame;
            has_before |= m->frame == before;
        }
        if (n >= most - 1)
            break;
    }
    if (has_before)
        return n;
    for (int i = n; i > 0; i--)
        good[i] = good[i - 1];
    good[0] = before;
    return n + 1;
}

/* The moment of a frame as one that was not prompted: tracked, or prompted but not looked at as such. */
static const moment *plain_moment(const bank *b, const bool *taken, int64_t frame)
{
    const moment *m = bank_tracked(b, frame);
    int i = m ? -1 : find(b->prompted, b->prompted_count, frame);
    return i >= 0 && !taken[i] ? b->prompted[i] : m;
}

static void add_map(recall *out, const moment *m, int age)
{
    if (!m || !m->memory)
        return;
    out->map[out->maps] = m;
    out->age[out->maps++] = age;
}

static void add_pointer(recall *out, const moment *m, int64_t back, int most)
{
    if (!m)
        return;
    out->pointer[out->pointers] = m;
    out->distance[out->pointers++] = (float)back / (float)(most > 1 ? most - 1 : 1);
}

bool bank_recall(const bank *b, int64_t frame, bool backward, int64_t frames, recall *out)
{
    int most = frames > 0 && frames < BANK_POINTERS ? (int)frames : BANK_POINTERS, order[BANK_PROMPTED];
    int64_t good[BANK_POINTERS + 1], sign = backward ? -1 : 1;
    bool *taken = calloc((size_t)b->prompted_count + 1, sizeof *taken);
    *out = (recall){0};
    if (!taken)
        return false;
    int chosen = choose_prompted(b, frame, taken, order);
    int usable = b->select ? good_frames(b, frame, backward, frames, most, good) : 0;
    for (int i = 0; i < chosen; i++)
        add_map(out, b->prompted[order[i]], AGE_PROMPTED);
    for (int back = BANK_MAPS; back >= 1; back--)
        if (!b->select || back <= usable)
            add_map(out, plain_moment(b, taken, b->select ? good[back - 1] : frame - sign * back), back - 1);
    for (int i = 0; i < chosen; i++) {
        const moment *m = b->prompted[order[i]];
        if ((frame - m->frame) * sign >= 0)
            add_pointer(out, m, (frame - m->frame) * sign, most);
    }
    for (int back = 1; back < most && (!b->select || back < usable); back++)
        add_pointer(out, plain_moment(b, taken, b->select ? good[back - 1] : frame - sign * back), back, most);
    free(taken);
    return true;
}
