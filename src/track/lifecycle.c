/* lifecycle.c - young objects must prove themselves; of two that share a detection the older one stays. */
#include "track/lifecycle.h"

#include <stdlib.h>

void lifecycle_free(lifecycle *l)
{
    free(l->object);
    free(l->pair);
    *l = (lifecycle){0};
}

int lifecycle_find(const lifecycle *l, int64_t id)
{
    for (int i = 0; i < l->count; i++)
        if (l->object[i].id == id)
            return i;
    return -1;
}

masklet *lifecycle_add(lifecycle *l, int64_t id, const track_options *o, float score, int64_t frame)
{
    if (l->count == l->room) {
        int room = l->room ? 2 * l->room : 16;
        masklet *more = realloc(l->object, sizeof *more * (size_t)room);
        if (!more)
            return NULL;
        l->object = more;
        l->room = room;
    }
    masklet *m = &l->object[l->count++];
    *m = (masklet){.id = id, .score = score, .first_frame = frame, .alive = o->alive_start};
    if (id >= l->next_id)
        l->next_id = id + 1;
    return m;
}

void lifecycle_drop(lifecycle *l, int i, bool keep_pairs)
{
    int64_t id = l->object[i].id;
    int kept = 0;
    for (int k = 0; k < l->pairs; k++)
        if (keep_pairs || (l->pair[k].keeper != id && l->pair[k].other != id))
            l->pair[kept++] = l->pair[k];
    l->pairs = kept;
    l->count--;
    for (; i < l->count; i++)
        l->object[i] = l->object[i + 1];
}

/* ---- seen and not seen ---- */

static bool is_young(const masklet *m, const track_options *o, int64_t frame, bool backward)
{
    return backward ? m->first_frame < frame + o->delay : m->first_frame > frame - o->delay;
}

static void wear_out(masklet *m, const track_options *o)
{
    m->alive = m->alive - 1 > o->alive_least ? m->alive - 1 : o->alive_least;
}

static bool is_covered(const association *a, int track)
{
    for (int d = 0; d < a->dets; d++)
        if (a->covers[d * a->tracks + track])
            return true;
    return false;
}

static void count_sightings(lifecycle *l, const track_options *o, const association *a)
{
    for (int i = 0; i < a->tracks; i++) {
        masklet *m = &l->object[i];
        m->removed = m->hidden = false;
        if (is_covered(a, i))
            m->alive = m->alive + 1 < o->alive_most ? m->alive + 1 : o->alive_most;
        if (a->unmatched[i]) {
            m->unmatched++;
            wear_out(m, o);
        }
        if (a->empty[i] && o->empty_counts)
            wear_out(m, o);
    }
}

static void judge_unmatched(lifecycle *l, const track_options *o, const association *a, int64_t frame, bool backward)
{
    for (int i = 0; i < a->tracks; i++) {
        masklet *m = &l->object[i];
        if (!m->unmatched || m->asked)
            continue;
        if (m->unmatched >= o->unmatched_limit && is_young(m, o, frame, backward))
            m->removed = true;
        else if (m->alive <= 0 && o->hide_unmatched)
            m->hidden = true;
    }
}

/* ---- duplicates ---- */

static rivalry *find_pair(lifecycle *l, int64_t keeper, int64_t other)
{
    for (int k = 0; k < l->pairs; k++)
        if (l->pair[k].keeper == keeper && l->pair[k].other == other)
            return &l->pair[k];
    if (l->pairs == l->pair_room) {
        int room = l->pair_room ? 2 * l->pair_room : 16;
        rivalry *more = realloc(l->pair, sizeof *more * (size_t)room);
        if (!more)
            return NULL;
        l->pair = more;
        l->pair_room = room;
    }
    l->pair[l->pairs] = (rivalry){keeper, other, 0};
    return &l->pair[l->pairs++];
}

/* The object that was there first (backward in time: last) of those that detection `d` covers; -1: fewer than two. */
static int keeper_of(const lifecycle *l, const association *a, int d, bool backward)
{
    int keeper = -1, count = 0;
    for (int t = 0; t < a->tracks; t++) {
        if (!a->covers[d * a->tracks + t])
            continue;
        int64_t born = l->object[t].first_frame, best = keeper < 0 ? born : l->object[keeper].first_frame;
        if (!count++ || (backward ? born > best : born < best))
            keeper = t;
    }
    return count < 2 ? -1 : keeper;
}

static bool count_rivals(lifecycle *l, const association *a, bool backward)
{
    for (int d = 0; d < a->dets; d++) {
        int keeper = keeper_of(l, a, d, backward);
        for (int t = 0; keeper >= 0 && t < a->tracks; t++) {
            if (t == keeper || !a->covers[d * a->tracks + t])
                continue;
            rivalry *p = find_pair(l, l->object[keeper].id, l->object[t].id);
            if (!p)
                return false;
            p->count++;
        }
    }
    return true;
}

static void judge_rivals(lifecycle *l, const track_options *o, int64_t frame, bool backward)
{
    for (int k = 0; k < l->pairs; k++) {
        int i = lifecycle_find(l, l->pair[k].other);
        if (i < 0 || l->object[i].removed || l->object[i].asked)
            continue;
        if (l->pair[k].count >= o->duplicate_limit && is_young(&l->object[i], o, frame, backward))
            l->object[i].removed = true;
    }
}

int lifecycle_judge(lifecycle *l, const track_options *o, const association *a, int64_t frame, bool backward,
                    samite_error *err)
{
    count_sightings(l, o, a);
    judge_unmatched(l, o, a, frame, backward);
    if (!count_rivals(l, a, backward))
        return fail(err, SAMITE_RESOURCE, "not enough memory to compare %d objects", l->count);
    judge_rivals(l, o, frame, backward);
    return 0;
}

/* ---- occlusion ---- */

/* Does `m` yield to `other`, with which it overlaps? It was hidden more recently than the other, which was hidden
 * too. */
static bool yields(const masklet *m, const masklet *other, bool backward)
{
    return other->occluded > OCCLUDED_NEVER && (backward ? m->occluded < other->occluded
                                                : m->occluded > other->occluded);
}

void lifecycle_occlude(lifecycle *l, const track_options *o, const bit_masks *tracks, int64_t frame, bool backward,
                       bool *suppressed)
{
    int n = tracks->count;
    for (int i = 0; i < n; i++) {
        suppressed[i] = false;
        if (!l->object[i].has_occluded)
            l->object[i].occluded = l->object[i].removed ? OCCLUDED_ALWAYS : OCCLUDED_NEVER;
    }
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            if (bits_iou(tracks, i, tracks, j) < o->occlusion)
                continue;
            suppressed[i] |= yields(&l->object[i], &l->object[j], backward);
            suppressed[j] |= yields(&l->object[j], &l->object[i], backward);
        }
    for (int i = 0; i < n; i++) {
        l->object[i].has_occluded = true;
        if (suppressed[i] || !tracks->area[i])
            l->object[i].occluded = frame;
    }
}

/* ---- confirmation ---- */

static void confirm(masklet *m, const track_options *o, bool seen)
{
    m->seen_in_row = seen ? m->seen_in_row + 1 : 0;
    m->confirmed |= m->seen_in_row >= o->confirm;
}

void lifecycle_confirm(lifecycle *l, const track_options *o, const association *a, const bool *gone)
{
    int at = 0;
    for (int i = 0; i < a->tracks; i++)
        if (!gone[i])
            confirm(&l->object[at++], o, is_covered(a, i));
    for (; at < l->count; at++)
        confirm(&l->object[at], o, true);
}
