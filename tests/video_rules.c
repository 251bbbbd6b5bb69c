/* video_rules.c - decisions about detections and tracks, and what the bank keeps: without the network. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "track/lifecycle.h"
#include "track/planes.h"
#include "track/tracker.h"

#include <cmocka.h>

/* Masks of 8 pixels: one string each, '#' inside. */
static bit_masks masks(const char *const *rows, int count)
{
    float planes[16 * 8] = {0};
    bit_masks m;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 8; k++)
            planes[8 * i + k] = rows[i][k] == '#' ? 1.0f : -1.0f;
    assert_true(bits_of_logits(&m, planes, count, 8));
    return m;
}

static void overlaps(void **state)
{
    bit_masks m = masks((const char *const[]){"####....", "..####..", "........"}, 3);
    assert_float_equal(bits_iou(&m, 0, &m, 1), 2.0 / 6, 1e-6);
    assert_float_equal(bits_iou(&m, 0, &m, 0), 1, 0);
    assert_float_equal(bits_iou(&m, 2, &m, 2), 0, 0);
    assert_int_equal(m.area[1], 4);
    bits_free(&m);
}

static const float boxes[16] = {0.4f, 0.4f, 0.6f, 0.6f, 0, 0, 0.04f, 0.04f, 0.2f, 0.2f, 0.4f, 0.4f, 0.9f, 0.2f, 1, 0.3f};

static void first_frames_take_everything(void **state)
{
    track_options o = TRACK_OPTIONS_INIT;
    association a;
    bit_masks det = masks((const char *const[]){"##......", "..##....", "....##.."}, 3), none = masks(NULL, 0);
    assert_int_equal(associate(&a, &o, &det, (float[]){0.55f, 0.9f, 0.51f}, boxes, &none, NULL), 0);
    assert_int_equal(a.fresh_count, 3);
    association_free(&a);
    o.avoid_border = true;
    assert_int_equal(associate(&a, &o, &det, (float[]){0.55f, 0.9f, 0.51f}, boxes, &none, NULL), 0);
    assert_int_equal(a.fresh_count, 2);         /* the second box lies in the corner */
    assert_int_equal(a.fresh[1], 2);
    association_free(&a);
    bits_free(&det);
    bits_free(&none);
}

static void known_and_new(void **state)
{
    track_options o = TRACK_OPTIONS_INIT;
    association a;
    bit_masks det = masks((const char *const[]){"####....", "......##", "....#..."}, 3);
    bit_masks track = masks((const char *const[]){"####....", "###.....", "........", ".....##."}, 4);
    assert_int_equal(associate(&a, &o, &det, (float[]){0.85f, 0.9f, 0.69f}, boxes, &track, NULL), 0);
    assert_int_equal(a.fresh_count, 0);         /* 1 overlaps track 3 by a third, 2 is not sure enough */
    assert_true(a.covers[0] && a.covers[1] && a.covers[4 + 3]);
    assert_true(!a.unmatched[0] && !a.unmatched[1] && !a.unmatched[2] && a.unmatched[3]);
    assert_true(a.empty[2] && !a.empty[3]);
    assert_int_equal(a.renewed_count, 1);
    assert_int_equal(a.renewed[0], 0);
    assert_int_equal(a.renewal[0], 0);
    assert_int_equal(a.renewal[1], -1);
    association_free(&a);
    o.overlap = 0.5f;
    o.max_objects = 4;
    assert_int_equal(associate(&a, &o, &det, (float[]){0.85f, 0.9f, 0.69f}, boxes, &track, NULL), 0);
    assert_int_equal(a.fresh_count, 0);         /* no room */
    assert_int_equal(a.dropped, 1);
    association_free(&a);
    o.one_to_one = true;
    assert_int_equal(associate(&a, &o, &det, (float[]){0.85f, 0.9f, 0.69f}, boxes, &track, NULL), 0);
    assert_true(!a.unmatched[0] && a.unmatched[1]);
    association_free(&a);
    bits_free(&det);
    bits_free(&track);
}

static void the_best_new_ones_stay(void **state)
{
    track_options o = TRACK_OPTIONS_INIT;
    association a;
    bit_masks det = masks((const char *const[]){"##......", "..##....", "....##.."}, 3), none = masks(NULL, 0);
    o.max_objects = 2;
    assert_int_equal(associate(&a, &o, &det, (float[]){0.6f, 0.9f, 0.7f}, boxes, &none, NULL), 0);
    assert_int_equal(a.fresh_count, 2);
    assert_int_equal(a.fresh[0], 1);
    assert_int_equal(a.fresh[1], 2);
    association_free(&a);
    bits_free(&det);
    bits_free(&none);
}

/* ---- lives ---- */

/* Judges one frame on which detections `det` and the tracks are given. */
static void judge(lifecycle *l, const track_options *o, const char *const *det, int dets, const char *const *tracks,
                  int64_t frame)
{
    association a;
    bit_masks d = masks(det, dets), t = masks(tracks, l->count);
    float scores[8] = {0.9f, 0.9f, 0.9f, 0.9f, 0.9f, 0.9f, 0.9f, 0.9f}, where[32] = {0};
    assert_int_equal(associate(&a, o, &d, scores, where, &t, NULL), 0);
    assert_int_equal(lifecycle_judge(l, o, &a, frame, false, NULL), 0);
    association_free(&a);
    bits_free(&d);
    bits_free(&t);
}

static void young_objects_must_be_seen(void **state)
{
    track_options o = TRACK_OPTIONS_INIT;
    lifecycle l = {0};
    o.unmatched_limit = 3;
    o.delay = 5;
    lifecycle_add(&l, 0, &o, 0.9f, -10);        /* old */
    lifecycle_add(&l, 1, &o, 0.9f, 0);
    lifecycle_add(&l, 2, &o, 0.9f, 0);
    l.object[2].asked = true;
    const char *tracks[] = {"##......", "..##....", "....##.."};
    for (int f = 1; f <= 3; f++) {
        judge(&l, &o, NULL, 0, tracks, f);
        assert_int_equal(l.object[1].removed, f == 3);
        assert_false(l.object[0].removed || l.object[2].removed);
    }
    assert_int_equal(l.object[0].unmatched, 3);
    assert_int_equal(l.object[0].alive, 27);
    assert_int_equal(l.next_id, 3);
    lifecycle_free(&l);
}

static void the_older_of_two_stays(void **state)
{
    track_options o = TRACK_OPTIONS_INIT;
    lifecycle l = {0};
    o.duplicate_limit = 2;
    lifecycle_add(&l, 0, &o, 0.9f, 4);
    lifecycle_add(&l, 1, &o, 0.9f, 3);
    const char *tracks[] = {"####....", ".####..."}, *det[] = {"####...."};
    judge(&l, &o, det, 1, tracks, 5);
    assert_false(l.object[0].removed || l.object[1].removed);
    judge(&l, &o, det, 1, tracks, 6);
    assert_true(l.object[0].removed && !l.object[1].removed);
    assert_int_equal(l.pairs, 1);
    lifecycle_drop(&l, 0, false);
    assert_int_equal(l.pairs, 0);
    assert_int_equal(lifecycle_find(&l, 1), 0);
    lifecycle_free(&l);
}

static void who_was_hidden_last_yields(void **state)
{
    track_options o = TRACK_OPTIONS_INIT;
    lifecycle l = {0};
    bool suppressed[2];
    bit_masks t = masks((const char *const[]){"########", "#######."}, 2);
    lifecycle_add(&l, 0, &o, 0.9f, 0);
    lifecycle_add(&l, 1, &o, 0.9f, 0);
    lifecycle_occlude(&l, &o, &t, 5, false, suppressed);
    assert_false(suppressed[0] || suppressed[1]);       /* nobody was hidden before */
    l.object[0].occluded = 2;
    l.object[1].occluded = 4;
    lifecycle_occlude(&l, &o, &t, 6, false, suppressed);
    assert_true(!suppressed[0] && suppressed[1]);
    assert_int_equal(l.object[1].occluded, 6);
    lifecycle_occlude(&l, &o, &t, 3, true, suppressed);
    assert_true(suppressed[0] && !suppressed[1]);       /* backward in time: the earlier one */
    bits_free(&t);
    lifecycle_free(&l);
}

/* ---- masks ---- */

static void holes_and_specks(void **state)
{
    static const char picture[] =
        "#####..."
        "#.###..#"
        "#####..."
        "#####...";
    float plane[32];
    for (int i = 0; i < 32; i++)
        plane[i] = picture[i] == '#' ? 5.0f : -5.0f;
    assert_int_equal(plane_tidy(plane, 8, 4, 0, NULL), 0);
    assert_float_equal(plane[9], -5, 0);
    assert_int_equal(plane_tidy(plane, 8, 4, 2, NULL), 0);
    assert_float_equal(plane[9], 0.1, 1e-6);
    assert_float_equal(plane[15], -0.1, 1e-6);
    assert_float_equal(plane[7], -5, 0);
    float tiny[4] = {1, -1, -1, -1};                    /* half of what there is may go, and half of 1 is 0 */
    assert_int_equal(plane_tidy(tiny, 2, 2, 2, NULL), 0);
    assert_float_equal(tiny[0], 1, 0);
}

/* ---- what is kept ---- */

static void remember(bank *b, int64_t frame, bool prompted, float score)
{
    moment *m = moment_new(b, frame);
    assert_non_null(m);
    for (int i = 0; i < b->objects; i++) {
        m->score[i] = score;
        m->overlap[i] = 1;
        m->pointer[i * b->d] = (float)(10 * frame + i);
        m->memory[i * b->tokens * b->width] = (uint16_t)(100 * i + 1);
    }
    m->quality = prompted ? -1 : moment_quality(m, b->objects);
    assert_int_equal(bank_put(b, m, prompted, NULL), 0);
}

/* The same maps and pointers; prompted ones may come in another order, which means nothing. */
static void same_recall(const recall *x, const recall *y)
{
    assert_int_equal(x->maps, y->maps);
    assert_int_equal(x->pointers, y->pointers);
    for (int i = 0; i < x->maps; i++) {
        int found = 0;
        for (int k = 0; k < y->maps; k++)
            found += x->map[i]->frame == y->map[k]->frame && x->age[i] == y->age[k];
        assert_int_equal(found, 1);
    }
    for (int i = 0; i < x->pointers; i++) {
        int found = 0;
        for (int k = 0; k < y->pointers; k++)
            found += x->pointer[i]->frame == y->pointer[k]->frame && fabsf(x->distance[i] - y->distance[k]) < 1e-6f;
        assert_int_equal(found, 1);
    }
}

/* A bank that is trimmed recalls what one that keeps everything recalls, and does not grow. */
static void trimming_changes_nothing(void **state)
{
    bank all, few;
    size_t most = 0;
    bank_init(&all, 2, 4, 2, 4, 2);
    bank_init(&few, 2, 4, 2, 4, 2);
    all.select = few.select = true;
    for (int64_t f = 0; f < 200; f++) {
        bool prompted = f % 37 == 0;
        recall x, y;
        if (f) {
            assert_true(bank_recall(&all, f, false, 0, &x) && bank_recall(&few, f, false, 0, &y));
            same_recall(&x, &y);
        }
        remember(&all, f, prompted, f % 5 == 2 ? -1 : 3);
        remember(&few, f, prompted, f % 5 == 2 ? -1 : 3);
        bank_trim(&few, f, false, false);
        if (f == 120)
            most = bank_bytes(&few);
        if (f > 120)
            assert_true(bank_bytes(&few) <= most + 200);
    }
    assert_true(bank_bytes(&all) > 5 * bank_bytes(&few));
    bank_free(&all);
    bank_free(&few);
}

static void objects_leave_a_batch(void **state)
{
    bank b;
    bank_init(&b, 3, 4, 2, 4, 2);
    remember(&b, 0, true, 3);
    remember(&b, 1, false, 3);
    bank_remove(&b, 1);
    assert_int_equal(b.objects, 2);
    const moment *m = bank_tracked(&b, 1);
    assert_float_equal(m->pointer[0], 10, 0);
    assert_float_equal(m->pointer[4], 12, 0);
    assert_int_equal(m->memory[4 * 2], 201);
    assert_true(bank_prompted(&b, 0)->quality >= 0);    /* counts as tracked once it is no longer prompted */
    bank_demote(&b, 0);
    assert_null(bank_prompted(&b, 0));
    assert_non_null(bank_tracked(&b, 0));
    bank_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overlaps), cmocka_unit_test(first_frames_take_everything), cmocka_unit_test(known_and_new),
        cmocka_unit_test(the_best_new_ones_stay), cmocka_unit_test(young_objects_must_be_seen),
        cmocka_unit_test(the_older_of_two_stays), cmocka_unit_test(who_was_hidden_last_yields),
        cmocka_unit_test(holes_and_specks), cmocka_unit_test(trimming_changes_nothing),
        cmocka_unit_test(objects_leave_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
