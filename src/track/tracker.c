/* tracker.c - a batch of objects: its drafts, where it was prompted, and objects that leave it. */
#include "track/tracker_inside.h"

#include <stdlib.h>
#include <string.h>

#define VEIL_FRAMES 7          /* on each side of a prompted frame */
#define BATCH_TOKENS 12288     /* of all objects computed together: enough for the matrix engine */

int track_tables_make(track_tables *t, const sam3 *net, samite_error *err)
{
    int64_t tokens = config_tokens(&net->c), n = tokens * tokens;
    *t = (track_tables){.net = net, .rotations = malloc(sizeof(float) * (size_t)(n * net->c.d)),
                        .grid = malloc(sizeof(float) * (size_t)(n * net->c.mem_dim))};
    if (!t->rotations || !t->grid) {
        track_tables_free(t);
        return fail(err, SAMITE_RESOURCE, "not enough memory for the tables of the tracker");
    }
    int64_t batch = BATCH_TOKENS / n;
    t->batch = batch < 1 ? 1 : batch > TRACKER_BATCH ? TRACKER_BATCH : (int)batch;
    memory_rotations(t->rotations, tokens, net->c.d);
    grid_codes(t->grid, tokens, tokens, net->c.mem_dim);
    return 0;
}

void track_tables_free(track_tables *t)
{
    free(t->rotations);
    free(t->grid);
    *t = (track_tables){0};
}

int tracker_open(tracker *t, const track_tables *tables, int objects, int64_t frames, samite_error *err)
{
    const config *c = &tables->net->c;
    int64_t tokens = config_tokens(c);
    *t = (tracker){.tables = tables, .frames = frames};
    if (objects < 1)
        return fail(err, SAMITE_USAGE, "%d objects to track: expected at least 1", objects);
    bank_init(&t->bank, objects, tokens * tokens, c->mem_dim, c->d, 4 * tokens);
    return 0;
}

static void free_draft(draft *d)
{
    free(d->mask);
    free(d->given);
}

void tracker_close(tracker *t)
{
    bank_free(&t->bank);
    for (int i = 0; i < t->draft_count; i++)
        free_draft(&t->drafts[i]);
    free(t->drafts);
    free(t->inputs);
    *t = (tracker){0};
}

/* ---- drafts ---- */

draft *tracker_draft(const tracker *t, int64_t frame, int object)
{
    for (int i = 0; i < t->draft_count; i++)
        if (t->drafts[i].frame == frame && t->drafts[i].object == object)
            return &t->drafts[i];
    return NULL;
}

draft *tracker_new_draft(tracker *t, int64_t frame, int object)
{
    if (t->draft_count == t->draft_room) {
        int room = t->draft_room ? 2 * t->draft_room : 8;
        draft *more = realloc(t->drafts, sizeof *more * (size_t)room);
        if (!more)
            return NULL;
        t->drafts = more;
        t->draft_room = room;
    }
    float *values = malloc(sizeof *values * (size_t)(t->bank.pixels + t->bank.d));
    if (!values)
        return NULL;
    draft *d = &t->drafts[t->draft_count++];
    *d = (draft){.frame = frame, .object = object, .mask = values, .pointer = values + t->bank.pixels};
    return d;
}

bool tracker_has_drafts(const tracker *t, int64_t frame)
{
    for (int i = 0; i < t->draft_count; i++)
        if (t->drafts[i].frame == frame)
            return true;
    return false;
}

void tracker_drop_drafts(tracker *t, int64_t frame)
{
    int kept = 0;
    for (int i = 0; i < t->draft_count; i++) {
        if (t->drafts[i].frame == frame)
            free_draft(&t->drafts[i]);
        else
            t->drafts[kept++] = t->drafts[i];
    }
    t->draft_count = kept;
}

void tracker_undo(tracker *t)
{
    for (int i = 0; i < t->draft_count; i++)
        free_draft(&t->drafts[i]);
    t->draft_count = 0;
}

/* ---- what clicks see ---- */

const moment *tracker_known(const tracker *t, int64_t frame)
{
    const moment *m = bank_prompted(&t->bank, frame);
    if (!m && (m = bank_tracked(&t->bank, frame)) != NULL && m->veiled)
        m = NULL;
    return m && m->mask ? m : NULL;
}

void tracker_veil(tracker *t, int64_t frame)
{
    for (int i = 0; t->bank.objects == 1 && i < t->bank.tracked_count; i++) {
        moment *m = t->bank.tracked[i];
        m->veiled |= m->frame >= frame - VEIL_FRAMES && m->frame <= frame + VEIL_FRAMES;
    }
}

/* ---- who was prompted where ---- */

static int find_input(const tracker *t, int64_t frame, int object)
{
    for (int i = 0; i < t->input_count; i++)
        if (t->inputs[i].frame == frame && t->inputs[i].object == object)
            return i;
    return -1;
}

bool tracker_note_input(tracker *t, int64_t frame, int object, bool by_person)
{
    int i = find_input(t, frame, object);
    if (i < 0 && t->input_count == t->input_room) {
        int room = t->input_room ? 2 * t->input_room : 16;
        prompted_at *more = realloc(t->inputs, sizeof *more * (size_t)room);
        if (!more)
            return false;
        t->inputs = more;
        t->input_room = room;
    }
    t->inputs[i < 0 ? t->input_count++ : i] = (prompted_at){frame, object, by_person};
    return true;
}

static void remove_input(tracker *t, int i)
{
    t->input_count--;
    memmove(t->inputs + i, t->inputs + i + 1, sizeof *t->inputs * (size_t)(t->input_count - i));
}

/* Forgets that the object was prompted there. A frame without prompts is no prompted one, unless it is the last. */
static void clear_input(tracker *t, int64_t frame, int object)
{
    int i = find_input(t, frame, object);
    if (i >= 0)
        remove_input(t, i);
    for (i = 0; i < t->input_count; i++)
        if (t->inputs[i].frame == frame)
            return;
    if (t->bank.prompted_count > 1)
        bank_demote(&t->bank, frame);
}

int tracker_remove(tracker *t, int object, samite_error *err)
{
    tracker_undo(t);
    if (object < 0 || object >= t->bank.objects || t->bank.objects < 2)
        return fail(err, SAMITE_USAGE, "object %d of %d cannot be taken out of its batch", object + 1, t->bank.objects);
    for (int i = t->input_count - 1; i >= 0; i--)
        if (t->inputs[i].object == object)
            clear_input(t, t->inputs[i].frame, object);
    for (int i = 0; i < t->input_count; i++)
        t->inputs[i].object -= t->inputs[i].object > object;
    bank_remove(&t->bank, object);
    return 0;
}

void tracker_clear_detected(tracker *t, int object, int64_t frame, int window)
{
    for (int i = 0; i < t->input_count;) {
        prompted_at at = t->inputs[i];
        if (at.object != object || at.by_person || at.frame < frame - window || at.frame > frame + window) {
            i++;
            continue;
        }
        for (int k = 0; k < t->bank.objects; k++)
            clear_input(t, at.frame, k);
        i = 0;
    }
}

/* ---- memory ---- */

void tracker_trim(tracker *t, int64_t frame, bool turn)
{
    bank_trim(&t->bank, frame, t->backward, turn);
    for (int i = t->input_count - 1; i >= 0; i--)
        if (!bank_prompted(&t->bank, t->inputs[i].frame))
            remove_input(t, i);
}

size_t tracker_bytes(const tracker *t)
{
    size_t bytes = bank_bytes(&t->bank) + sizeof *t->drafts * (size_t)t->draft_room;
    return bytes + sizeof *t->inputs * (size_t)t->input_room;
}
