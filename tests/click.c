/* click.c - clicks on a picture and a prompted clip at the tiny size: against the original, and by the public API. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "samite.h"

#define TINY TEST_DATA "/tiny"

static samite_model *model;
static samite_image *picture;
static samite_pixels scene;

static int open_picture(void **state)
{
    samite_error e = {0};
    if (!samite_model_open(&model, "formula:tiny", NULL, &e) && !samite_pixels_read(&scene, TINY "/scene.png", 0, &e) &&
        !samite_image_open(&picture, model, &scene, &e))
        return 0;
    print_error("%s\n", e.text);
    return -1;
}

static int close_picture(void **state)
{
    samite_image_free(picture);
    samite_pixels_free(&scene);
    samite_model_free(model);
    return 0;
}

/* ---- the original's numbers ---- */

typedef struct tally { int clicks, track, wrong; } tally;

static void count(void *user, const samite_compared *c)
{
    tally *t = user;
    bool click = strncmp(c->name, "click.", 6) == 0, track = strncmp(c->name, "track.", 6) == 0;
    t->clicks += click;
    t->track += track;
    if ((click || track) && !c->within) {
        t->wrong++;
        print_error("%s: difference %g (%g of the largest value), cosine %.7f %s\n", c->name, c->max_difference,
                    c->relative, c->cosine, c->note);
    }
}

static void agrees_with_original(void **state)
{
    tally t = {0};
    samite_align_options o = {.size = sizeof o, .reference = TINY, .each = count, .user = &t};
    samite_align_summary s;
    samite_error e = {0};
    assert_int_equal(samite_align(model, &o, &s, &e), 0);
    assert_int_equal(t.wrong, 0);
    assert_int_equal(t.clicks, 15);       /* 5 clicks: masks, overlap, logits */
    assert_int_equal(t.track, 45);        /* 9 frames: masks, logits, score, pointer, memory */
    assert_int_equal(s.skipped, 0);
}

static void notices_other_weights(void **state)
{
    tally t = {0};
    samite_model *other;
    samite_error e = {0};
    samite_align_options o = {.size = sizeof o, .reference = TINY, .each = NULL, .user = &t};
    samite_align_summary s;
    assert_int_equal(samite_model_open(&other, "formula:tiny,seed=2", NULL, &e), 0);
    assert_int_equal(samite_align(other, &o, &s, &e), SAMITE_FAILED);
    assert_true(s.outside > 60);
    samite_model_free(other);
}

/* ---- the public API ---- */

static samite_answer *ask(samite_click c)
{
    samite_answer *a = NULL;
    samite_error e = {0};
    if (samite_image_click(picture, &c, &a, &e))
        fail_msg("%s", e.text);
    assert_non_null(a);
    return a;
}

static samite_click one_point(const samite_point *p)
{
    samite_click c = SAMITE_CLICK_INIT;
    c.points = p;
    c.point_count = 1;
    return c;
}

static uint64_t painted(const samite_mask *m, int box[4])
{
    uint8_t *pixel = malloc((size_t)m->width * (size_t)m->height);
    uint64_t area = 0;
    assert_non_null(pixel);
    samite_mask_paint(m, pixel);
    memcpy(box, (int[]){m->width, m->height, 0, 0}, 4 * sizeof *box);
    for (int y = 0; y < m->height; y++)
        for (int x = 0; x < m->width; x++) {
            if (!pixel[y * m->width + x])
                continue;
            area++;
            box[0] = x < box[0] ? x : box[0];
            box[1] = y < box[1] ? y : box[1];
            box[2] = x + 1 > box[2] ? x + 1 : box[2];
            box[3] = y + 1 > box[3] ? y + 1 : box[3];
        }
    free(pixel);
    return area;
}

static void alternatives_come_best_first(void **state)
{
    samite_point p = {60, 55, 0};
    samite_click c = one_point(&p);
    c.several = 1;
    samite_answer *three = ask(c);
    assert_int_equal(three->count, 3);
    assert_int_equal(three->side, 32);
    assert_true(three->presence > 0.5f && three->presence < 1);
    for (int i = 0; i < 3; i++) {
        const samite_instance *s = &three->instance[i];
        int box[4];
        assert_true(i == 0 || s->score <= three->instance[i - 1].score);
        assert_int_equal(s->mask.width, scene.width);
        assert_int_equal(painted(&s->mask, box), s->area);
        for (int k = 0; k < 4 && s->area; k++)
            assert_int_equal((int)s->box[k], box[k]);
    }
    c.several = 0;
    samite_answer *one = ask(c);         /* a single point: the best of the three */
    assert_int_equal(one->count, 1);
    assert_float_equal(one->instance[0].score, three->instance[0].score, 0);
    assert_memory_equal(one->logits, three->logits, sizeof(float) * 32 * 32);
    samite_answer_free(one);
    samite_answer_free(three);
}

/* The same question gives the same bits, whatever was asked in between. */
static void questions_are_independent(void **state)
{
    samite_point p[2] = {{60, 55, 0}, {40, 70, 0}};
    samite_box b = {20, 15, 90, 80, 0};
    samite_click c = one_point(p), other = SAMITE_CLICK_INIT;
    samite_answer *first = ask(c);
    other.box = &b;
    other.points = p;
    other.point_count = 2;
    samite_answer *between = ask(other), *again = ask(c);
    assert_memory_equal(first->logits, again->logits, sizeof(float) * 32 * 32);
    assert_memory_not_equal(first->logits, between->logits, sizeof(float) * 32 * 32);
    samite_answer_free(first);
    samite_answer_free(between);
    samite_answer_free(again);
}

static void answers_can_be_refined(void **state)
{
    samite_point p[2] = {{60, 55, 0}, {40, 70, 1}};
    samite_click c = one_point(p);
    samite_answer *first = ask(c);
    c.point_count = 2;
    samite_answer *plain = ask(c);
    c.logits = first->logits;
    samite_answer *refined = ask(c);
    assert_memory_not_equal(plain->logits, refined->logits, sizeof(float) * 32 * 32);
    samite_click rough = SAMITE_CLICK_INIT;      /* a mask alone, at the picture's size */
    rough.mask = &first->instance[0].mask;
    samite_answer *from_mask = ask(rough);
    assert_int_equal(from_mask->count, 1);
    samite_answer_free(from_mask);
    samite_answer_free(refined);
    samite_answer_free(plain);
    samite_answer_free(first);
}

static void bad_clicks_are_refused(void **state)
{
    samite_point inside = {5, 5, 0}, outside = {150.5f, 5, 0}, none = {NAN, 5, 0};
    samite_box good = {1, 2, 30, 40, 0}, swapped = {30, 2, 1, 40, 0}, away = {200, 2, 300, 40, 0},
               nan_box = {1, NAN, 3, 4, 0}, negative = {1, 2, 30, 40, 1};
    uint32_t counts[2] = {100, 20};
    samite_mask wrong_size = {10, 12, counts, 2}, wrong_runs = {150, 110, counts, 2};
    static float logits[32 * 32];
    logits[7] = INFINITY;
    const struct { samite_click c; const char *says; } cases[] = {
        {SAMITE_CLICK_INIT, "needs points"},
        {{sizeof(samite_click), &outside, 1, NULL, NULL, NULL, 0}, "outside the picture of 150 x 110"},
        {{sizeof(samite_click), &none, 1, NULL, NULL, NULL, 0}, "outside"},
        {{sizeof(samite_click), NULL, 1, NULL, NULL, NULL, 0}, "1 points"},
        {{sizeof(samite_click), &inside, -1, NULL, NULL, NULL, 0}, "-1 points"},
        {{sizeof(samite_click), &inside, 100000, NULL, NULL, NULL, 0}, "100000 points"},
        {{sizeof(samite_click), NULL, 0, &swapped, NULL, NULL, 0}, "empty"},
        {{sizeof(samite_click), NULL, 0, &away, NULL, NULL, 0}, "outside the picture"},
        {{sizeof(samite_click), NULL, 0, &nan_box, NULL, NULL, 0}, "no number"},
        {{sizeof(samite_click), NULL, 0, &negative, NULL, NULL, 0}, "negative"},
        {{sizeof(samite_click), NULL, 0, NULL, NULL, &wrong_size, 0}, "10 x 12"},
        {{sizeof(samite_click), NULL, 0, NULL, NULL, &wrong_runs, 0}, "mask"},
        {{sizeof(samite_click), NULL, 0, &good, logits, NULL, 0}, "no number"},
        {{sizeof(samite_click), NULL, 0, &good, logits, &wrong_size, 0}, "not both"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        samite_answer *a = (samite_answer *)&a;
        samite_error e = {0};
        int code = samite_image_click(picture, &cases[i].c, &a, &e);
        assert_true(code == SAMITE_USAGE || code == SAMITE_INPUT);
        assert_null(a);
        if (!strstr(e.text, cases[i].says))
            fail_msg("case %zu says '%s', not '%s'", i, e.text, cases[i].says);
    }
    assert_int_equal(samite_image_click(NULL, &cases[0].c, NULL, NULL), SAMITE_USAGE);
    samite_answer_free(NULL);
}

/* Another picture in the same memory: its features are its own. */
static void a_new_picture_is_seen(void **state)
{
    samite_error e = {0};
    samite_point p = {60, 55, 0};
    samite_pixels turned = {.width = scene.width, .height = scene.height,
                            .rgb = malloc((size_t)scene.width * (size_t)scene.height * 3)};
    assert_non_null(turned.rgb);
    for (int i = 0; i < scene.width * scene.height * 3; i++)
        turned.rgb[i] = 255 - scene.rgb[i];
    samite_answer *before = ask(one_point(&p));
    assert_int_equal(samite_image_replace(picture, &turned, &e), 0);
    samite_answer *other = ask(one_point(&p));
    assert_int_equal(samite_image_replace(picture, &scene, &e), 0);
    samite_answer *after = ask(one_point(&p));
    assert_memory_not_equal(before->logits, other->logits, sizeof(float) * 32 * 32);
    assert_memory_equal(before->logits, after->logits, sizeof(float) * 32 * 32);
    samite_answer_free(before);
    samite_answer_free(other);
    samite_answer_free(after);
    samite_pixels_free(&turned);
}

/* Words and clicks share an encoded picture. */
static void words_still_work(void **state)
{
    samite_prompt p = SAMITE_PROMPT_INIT;
    samite_result *before, *after;
    samite_error e = {0};
    samite_point at = {60, 55, 0};
    p.text = "cat";
    p.score = 0;
    assert_int_equal(samite_image_replace(picture, &scene, &e), 0);
    assert_int_equal(samite_image_segment(picture, &p, &before, &e), 0);
    samite_answer_free(ask(one_point(&at)));
    assert_int_equal(samite_image_segment(picture, &p, &after, &e), 0);
    assert_int_equal(before->count, after->count);
    for (int i = 0; i < before->count; i++) {
        assert_float_equal(before->instance[i].score, after->instance[i].score, 0);
        assert_int_equal(before->instance[i].area, after->instance[i].area);
    }
    samite_result_free(before);
    samite_result_free(after);
}

/* ---- everything ---- */

static samite_result *everything(samite_everything o, const samite_pixels *pixels)
{
    samite_result *res = NULL;
    samite_error e = {0};
    if (samite_image_everything(picture, pixels, &o, &res, &e))
        fail_msg("%s", e.text);
    assert_non_null(res);
    return res;
}

/* With nothing filtered, the points of a grid give what single clicks give. */
static void a_grid_is_many_clicks(void **state)
{
    samite_everything o = SAMITE_EVERYTHING_INIT;
    o.points = 3;
    o.overlap = o.stability = 0;
    o.duplicate = 1;
    samite_result *all = everything(o, NULL);
    assert_int_equal(all->count, 27);
    for (int i = 0; i < 9; i++) {
        samite_point p = {((float)(i % 3) + 0.5f) / 3 * (float)scene.width,
                          ((float)(i / 3) + 0.5f) / 3 * (float)scene.height, 0};
        samite_click c = one_point(&p);
        c.several = 1;
        samite_answer *a = ask(c);
        for (int k = 0; k < 3; k++) {
            int same = 0;
            for (int n = 0; n < all->count; n++)
                same += fabsf(all->instance[n].score - a->instance[k].score) < 1e-5f;
            assert_true(same >= 1);
        }
        samite_answer_free(a);
    }
    for (int n = 1; n < all->count; n++)
        assert_true(all->instance[n].score <= all->instance[n - 1].score);
    samite_result_free(all);
}

static void everything_is_filtered(void **state)
{
    samite_everything o = SAMITE_EVERYTHING_INIT;
    o.points = 4;
    o.overlap = o.stability = 0;
    o.duplicate = 1;
    samite_result *all = everything(o, NULL);
    o.overlap = all->instance[10].score;
    samite_result *sure = everything(o, NULL);
    assert_true(sure->count >= 11 && sure->count < all->count);
    assert_true(sure->instance[sure->count - 1].score >= o.overlap);
    o.overlap = 0;
    o.duplicate = 0.5f;
    samite_result *different = everything(o, NULL);
    assert_true(different->count < all->count);
    assert_float_equal(different->instance[0].score, all->instance[0].score, 0);
    o.max_results = 1;
    samite_result *one = everything(o, NULL);
    assert_int_equal(one->count, 1);
    samite_result_free(all);
    samite_result_free(sure);
    samite_result_free(different);
    samite_result_free(one);
}

/* Masks found in crops lie where they belong; the picture itself stays encoded. */
static void crops_are_put_back(void **state)
{
    samite_everything o = SAMITE_EVERYTHING_INIT;
    samite_point p = {60, 55, 0};
    samite_answer *before = ask(one_point(&p));
    o.points = 8;
    o.overlap = o.stability = 0;
    o.duplicate = 1;
    o.crops = 1;
    samite_result *res = everything(o, &scene);
    assert_true(res->count > 0);
    for (int i = 0; i < res->count; i++) {
        int box[4];
        assert_int_equal(res->instance[i].mask.width, scene.width);
        assert_int_equal(painted(&res->instance[i].mask, box), res->instance[i].area);
        for (int k = 0; k < 4; k++)
            assert_int_equal((int)res->instance[i].box[k], box[k]);
    }
    samite_answer *after = ask(one_point(&p));
    assert_memory_equal(before->logits, after->logits, sizeof(float) * 32 * 32);
    samite_answer_free(before);
    samite_answer_free(after);
    samite_result_free(res);
}

static void bad_grids_are_refused(void **state)
{
    const struct { int points, crops; float overlap, stability, duplicate; } cases[] = {
        {0, 0, 0, 0, 0}, {257, 0, 0, 0, 0}, {1, -1, 0, 0, 0}, {1, 4, 0, 0, 0}, {1, 0, 2, 0, 0}, {1, 0, 0, -1, 0},
        {1, 0, 0, 0, NAN}, {1, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        samite_everything o = SAMITE_EVERYTHING_INIT;
        samite_result *res;
        samite_error e = {0};
        o.points = cases[i].points;
        o.crops = cases[i].crops;
        o.overlap = cases[i].overlap;
        o.stability = cases[i].stability;
        o.duplicate = cases[i].duplicate;
        assert_int_equal(samite_image_everything(picture, NULL, &o, &res, &e), SAMITE_USAGE);
        assert_null(res);
        assert_true(strlen(e.text) > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_original), cmocka_unit_test(notices_other_weights),
        cmocka_unit_test(alternatives_come_best_first), cmocka_unit_test(questions_are_independent),
        cmocka_unit_test(answers_can_be_refined), cmocka_unit_test(bad_clicks_are_refused),
        cmocka_unit_test(a_new_picture_is_seen), cmocka_unit_test(words_still_work),
        cmocka_unit_test(a_grid_is_many_clicks), cmocka_unit_test(everything_is_filtered),
        cmocka_unit_test(crops_are_put_back), cmocka_unit_test(bad_grids_are_refused),
    };
    return cmocka_run_group_tests(tests, open_picture, close_picture);
}
