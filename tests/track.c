/* track.c - the tracker's decisions outside the network: guesses, masks, which moments are recalled. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "track/bank.h"
#include "track/choose.h"
#include "track/planes.h"

#include <cmocka.h>

/* ---- guesses ---- */

static void unclear_prompts_take_the_best(void **state)
{
    const float masks[4 * 4] = {1, 1, 1, 1};
    assert_int_equal(choose_guess(masks, (float[]){0.9f, 0.1f, 0.3f, 0.2f}, 4, true), 2);
    assert_int_equal(choose_guess(masks, (float[]){0.9f, 0.3f, 0.3f, 0.2f}, 4, true), 1);    /* first on ties */
    assert_int_equal(choose_guess(masks, (float[]){0.1f, 0.3f, 0.3f, 0.5f}, 4, true), 3);
}

/* 98 of 100 pixels must keep their side of the threshold. */
static void vague_edges_fall_back(void **state)
{
    float masks[4 * 100];
    const float overlap[4] = {0.9f, 0.1f, 0.2f, 0.1f};
    for (int i = 0; i < 400; i++)
        masks[i] = 1;
    masks[0] = masks[1] = 0.04f;
    assert_float_equal(mask_stability(masks, 100, 0.05f), 0.98, 1e-6);
    assert_int_equal(choose_guess(masks, overlap, 100, false), 0);
    masks[2] = -0.04f;
    assert_int_equal(choose_guess(masks, overlap, 100, false), 2);
    for (int i = 0; i < 100; i++)
        masks[i] = -1;
    assert_float_equal(mask_stability(masks, 100, 0.05f), 1, 0);      /* nothing is as sharp as can be */
    assert_int_equal(choose_guess(masks, overlap, 100, false), 0);
}

/* ---- masks ---- */

/* Numbers of F.interpolate(mode="bilinear", antialias=True). */
static void shrinking_is_antialiased(void **state)
{
    float in[35], out[72];
    for (int i = 0; i < 35; i++)
        in[i] = (float)((i * 37 + 11) % 23) / 7 - 1.5f;
    const float small[6] = {0.018552866f, 0.27807492f, 0.023654973f, 0.0046381764f, 0.10351411f, 0.18042669f};
    assert_int_equal(plane_shrink(out, 3, 2, in, 7, 5, NULL), 0);
    for (int i = 0; i < 6; i++)
        assert_float_equal(out[i], small[i], 1e-6);
    const float big[12] = {0.071428575f, -0.7857144f, -0.3253969f, 0.49999982f, -0.5f, 1.0555553f,
                           0.785714f, -0.21428591f, -1.0714285f, 0.44642857f, -0.41071439f, 0.0496031f};
    assert_int_equal(plane_shrink(out, 9, 8, in, 7, 5, NULL), 0);
    for (int i = 0; i < 12; i++)
        assert_float_equal(out[i], big[i], 2e-6);
    const float mixed[5] = {0.43877548f, -0.26836732f, -0.34693879f, 1.05306125f, 0.31734708f};
    assert_int_equal(plane_shrink(out, 10, 3, in, 7, 5, NULL), 0);
    for (int i = 0; i < 5; i++)
        assert_float_equal(out[i], mixed[i], 2e-6);
    assert_int_equal(plane_shrink(out, 0, 3, in, 7, 5, NULL), SAMITE_USAGE);
}

static void the_strongest_wins_a_pixel(void **state)
{
    float planes[3 * 4] = {5, -20, 1, 2, /**/ 4, -5, 1, 3, /**/ -3, -30, 0, 9};
    const float expected[12] = {5, -20, 1, -10, /**/ -10, -5, -10, -10, /**/ -10, -30, -10, 9};
    planes_settle_overlap(planes, 3, 4);
    for (int i = 0; i < 12; i++)
        assert_float_equal(planes[i], expected[i], 0);
}

static void small_holes_are_filled(void **state)
{
    static const char picture[] =
        "#######."
        "#.###.#."
        "##.####."
        "#######."
        "#...###."
        "#######.";
    float plane[48];
    for (int i = 0; i < 48; i++)
        plane[i] = picture[i] == '#' ? 1.0f : i == 9 ? 0.0f : -1.0f;
    assert_int_equal(plane_fill_holes(plane, 8, 6, 2, 10, NULL), 0);
    assert_float_equal(plane[9], 10, 0);        /* two that touch at their corners */
    assert_float_equal(plane[18], 10, 0);
    assert_float_equal(plane[13], 10, 0);
    assert_float_equal(plane[33], -1, 0);       /* three in a row are too many */
    assert_float_equal(plane[7], -1, 0);
    assert_float_equal(plane[0], 1, 0);
}

static void memory_scale(void **state)
{
    float a[4] = {-3, 0, 0.001f, 200}, b[4] = {-3, 0, 0.001f, 200};
    plane_as_memory(a, 4, true);
    plane_as_memory(b, 4, false);
    const float signs[4] = {-10, -10, 10, 10};
    for (int i = 0; i < 4; i++)
        assert_float_equal(a[i], signs[i], 0);
    assert_float_equal(b[0], 20 / (1 + exp(3.0)) - 10, 1e-5);
    assert_float_equal(b[1], 0, 1e-6);
    assert_float_equal(b[3], 10, 0);
}

/* ---- moments ---- */

static moment *put(bank *b, int64_t frame, bool prompted)
{
    moment *m = moment_new(b, frame);
    assert_non_null(m);
    assert_int_equal(bank_put(b, m, prompted, NULL), 0);
    return m;
}

static void prompted_frames_nearby(void **state)
{
    static const struct { int64_t frame; int prompted[6], count, order[4]; } cases[] = {
        {10, {0, 5, 8, 12, 20}, 5, {8, 12, 5, 0}},
        {10, {0, 1, 2, 3, 4, 5}, 6, {5, 4, 3, 2}},
        {3, {9, 4, 30, 5, 6, 7}, 6, {4, 5, 6, 7}},
        {10, {10, 12, 8, 14, 6}, 5, {8, 10, 12, 14}},
        {7, {20, 19, 0, 18, 17, 1}, 6, {1, 17, 0, 18}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bank b;
        recall past;
        bank_init(&b, 1, 4, 2, 4, 2);
        for (int k = 0; k < cases[i].count; k++)
            put(&b, cases[i].prompted[k], true);
        assert_true(bank_recall(&b, cases[i].frame, false, 100, &past));
        for (int k = 0; k < 4; k++) {
            assert_int_equal(past.map[k]->frame, cases[i].order[k]);
            assert_int_equal(past.age[k], AGE_PROMPTED);
        }
        bank_free(&b);
    }
}

/* Frame 8 of a long video, prompted on 0, tracked since: six maps, oldest first, and all pointers. */
static void the_last_frames(void **state)
{
    bank b;
    recall past;
    bank_init(&b, 2, 4, 2, 4, 2);
    put(&b, 0, true);
    for (int f = 1; f < 8; f++)
        put(&b, f, false);
    assert_true(bank_recall(&b, 8, false, 100, &past));
    assert_int_equal(past.maps, 7);
    for (int k = 1; k < 7; k++) {
        assert_int_equal(past.map[k]->frame, k + 1);
        assert_int_equal(past.age[k], 6 - k);
    }
    assert_int_equal(past.pointers, 8);
    assert_float_equal(past.distance[0], 8.0 / 15, 1e-7);     /* the prompted one */
    for (int k = 1; k < 8; k++) {
        assert_int_equal(past.pointer[k]->frame, 8 - k);
        assert_float_equal(past.distance[k], k / 15.0, 1e-7);
    }
    assert_true(bank_recall(&b, 8, false, 5, &past));          /* a short video counts fewer pointers */
    assert_int_equal(past.pointers, 5);
    assert_float_equal(past.distance[1], 0.25, 1e-7);
    bank_free(&b);
}

/* Time runs backwards: memories come from later frames, pointers of prompted frames only from there too. */
static void backwards(void **state)
{
    bank b;
    recall past;
    bank_init(&b, 1, 4, 2, 4, 2);
    put(&b, 0, true);
    put(&b, 9, true);
    put(&b, 8, false);
    put(&b, 5, false);
    assert_true(bank_recall(&b, 7, true, 10, &past));
    assert_int_equal(past.maps, 3);
    assert_int_equal(past.map[2]->frame, 8);
    assert_int_equal(past.age[2], 0);
    assert_int_equal(past.pointers, 2);
    assert_int_equal(past.pointer[0]->frame, 9);
    assert_int_equal(past.pointer[1]->frame, 8);
    bank_free(&b);
}

/* With more prompted frames than are looked at as such, the others count as plain frames. */
static void prompted_frames_left_over(void **state)
{
    bank b;
    recall past;
    bank_init(&b, 1, 4, 2, 4, 2);
    for (int f = 0; f < 6; f++)
        put(&b, f, true);
    assert_true(bank_recall(&b, 6, false, 100, &past));
    assert_int_equal(past.maps, 6);
    assert_int_equal(past.map[4]->frame, 0);
    assert_int_equal(past.age[4], 5);
    assert_int_equal(past.map[5]->frame, 1);
    bank_free(&b);
}

static void only_good_frames(void **state)
{
    bank b;
    recall past;
    bank_init(&b, 1, 4, 2, 4, 2);
    b.select = true;
    put(&b, 0, true);
    for (int f = 1; f < 10; f++)
        put(&b, f, false)->quality = f % 2 ? 0.5f : 0.001f;
    assert_true(bank_recall(&b, 10, false, 100, &past));
    static const int frames[5] = {1, 3, 5, 7, 9};
    assert_int_equal(past.maps, 6);
    for (int k = 0; k < 5; k++) {
        assert_int_equal(past.map[k + 1]->frame, frames[k]);
        assert_int_equal(past.age[k + 1], 4 - k);              /* the rank counts, not the distance */
    }
    assert_int_equal(past.pointers, 5);                        /* all but the oldest, and the prompted one */
    assert_int_equal(past.pointer[4]->frame, 3);
    assert_true(bank_recall(&b, 9, false, 100, &past));        /* frame 8 is bad, but the one before counts always */
    assert_int_equal(past.map[past.maps - 1]->frame, 8);
    assert_int_equal(past.age[past.maps - 1], 0);
    bank_free(&b);
}

static void a_prompt_displaces_a_tracked_frame(void **state)
{
    bank b;
    bank_init(&b, 1, 4, 2, 4, 2);
    put(&b, 3, false);
    put(&b, 4, false);
    moment *m = put(&b, 3, true);
    assert_null(bank_tracked(&b, 3));
    assert_ptr_equal(bank_prompted(&b, 3), m);
    assert_int_equal(b.tracked_count, 1);
    m = put(&b, 3, true);
    assert_int_equal(b.prompted_count, 1);
    assert_ptr_equal(bank_prompted(&b, 3), m);
    bank_free(&b);
}

/* A product of means, not a mean of products. */
static void quality_of_a_batch(void **state)
{
    bank b;
    bank_init(&b, 2, 4, 2, 4, 2);
    moment *m = moment_new(&b, 0);
    assert_non_null(m);
    m->score[0] = 2;
    m->score[1] = -1;
    m->overlap[0] = 0.8f;
    m->overlap[1] = 0.4f;
    assert_float_equal(moment_quality(m, 2), (2 / (1 + exp(-2.0)) - 1) / 2 * 0.6, 1e-6);
    moment_free(m);
    bank_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unclear_prompts_take_the_best), cmocka_unit_test(vague_edges_fall_back),
        cmocka_unit_test(shrinking_is_antialiased), cmocka_unit_test(the_strongest_wins_a_pixel),
        cmocka_unit_test(small_holes_are_filled), cmocka_unit_test(memory_scale),
        cmocka_unit_test(prompted_frames_nearby), cmocka_unit_test(the_last_frames), cmocka_unit_test(backwards),
        cmocka_unit_test(prompted_frames_left_over), cmocka_unit_test(only_good_frames),
        cmocka_unit_test(a_prompt_displaces_a_tracked_frame), cmocka_unit_test(quality_of_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
