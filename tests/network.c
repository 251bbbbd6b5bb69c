/* network.c - the whole detector at the tiny size: against the original's numbers, across threads, files and types. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "samite.h"
#define TINY TEST_DATA "/tiny"

static samite_model *open_model(const char *path, int threads, int side)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = NULL;
    o.threads = threads;
    o.input_side = side;
    if (samite_model_open(&m, path, &o, &e))
        fail_msg("%s", e.text);
    return m;
}

static void say(void *user, const samite_compared *c)
{
    int *seen = user;
    ++*seen;
    if (!c->within)
        print_error("%s: difference %g (%g of the largest value), cosine %.7f %s\n", c->name, c->max_difference, c->relative,
                    c->cosine, c->note);
}

/* Every tensor of the reference folder, within the stated tolerance. */
static void agrees_with_original(void **state)
{
    samite_model *m = open_model("formula:tiny", 0, 0);
    int seen = 0;
    samite_align_options o = {.size = sizeof o, .reference = TINY, .each = say, .user = &seen};
    samite_align_summary s;
    samite_error e = {0};
    int code = samite_align(m, &o, &s, &e);
    assert_string_equal(e.text, "");
    assert_int_equal(code, 0);
    assert_int_equal(s.outside, 0);
    assert_int_equal(seen, s.compared);
    assert_true(s.compared >= 103);
    samite_model_free(m);
}

/* Another seed is another model: the comparison must notice. */
static void notices_other_weights(void **state)
{
    samite_model *m = open_model("formula:tiny,seed=1", 0, 0);
    samite_align_options o = {.size = sizeof o, .reference = TINY};
    samite_align_summary s;
    samite_error e = {0};
    assert_int_equal(samite_align(m, &o, &s, &e), SAMITE_FAILED);
    assert_true(s.outside > s.compared / 2);
    assert_non_null(strstr(e.text, "out of tolerance"));
    samite_model_free(m);
}

static samite_image *encode(samite_model *m)
{
    samite_pixels p;
    samite_error e = {0};
    samite_image *im = NULL;
    if (samite_pixels_read(&p, TINY "/scene.png", 0, &e) || samite_image_open(&im, m, &p, &e))
        fail_msg("%s", e.text);
    samite_pixels_free(&p);
    return im;
}

static samite_result *segment(samite_image *im, const char *said, const samite_box *boxes, int count, float score)
{
    samite_prompt p = SAMITE_PROMPT_INIT;
    p.text = said;
    p.boxes = boxes;
    p.box_count = count;
    p.score = score;
    samite_result *r = NULL;
    samite_error e = {0};
    if (samite_image_segment(im, &p, &r, &e))
        fail_msg("%s", e.text);
    return r;
}

static void assert_same(const samite_result *a, const samite_result *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(&a->presence, &b->presence, sizeof a->presence);
    for (int i = 0; i < a->count; i++) {
        const samite_instance *x = &a->instance[i], *y = &b->instance[i];
        assert_memory_equal(&x->score, &y->score, sizeof x->score);
        assert_memory_equal(x->box, y->box, sizeof x->box);
        assert_int_equal(x->mask.runs, y->mask.runs);
        assert_memory_equal(x->mask.counts, y->mask.counts, x->mask.runs * sizeof *x->mask.counts);
    }
}

static samite_result *once(const char *path, int threads)
{
    samite_model *m = open_model(path, threads, 0);
    samite_image *im = encode(m);
    samite_model_free(m);                 /* the picture holds on to it */
    samite_box like = {20, 15, 90, 80, 0};
    samite_result *r = segment(im, "a yellow school bus", &like, 1, 0.0f);
    samite_image_free(im);
    return r;
}

/* The same bits for one, two and three threads. */
static void threads_change_nothing(void **state)
{
    samite_result *a = once("formula:tiny", 1);
    assert_true(a->count > 0);
    for (int threads = 2; threads <= 3; threads++) {
        samite_result *b = once("formula:tiny", threads);
        assert_same(a, b);
        samite_result_free(b);
    }
    samite_result_free(a);
}

/* Prompts on one encoded picture do not disturb each other; results are sorted, inside the picture, above the score. */
static void prompts_are_independent(void **state)
{
    samite_model *m = open_model("formula:tiny", 0, 0);
    samite_image *im = encode(m);
    samite_result *first = segment(im, "cat", NULL, 0, 0.1f);
    samite_result *other = segment(im, "person", NULL, 0, 0.1f);
    samite_result *again = segment(im, "cat", NULL, 0, 0.1f);
    assert_same(first, again);
    for (int i = 0; i < first->count; i++) {
        const samite_instance *s = &first->instance[i];
        assert_true(s->score > 0.1f);
        assert_true(i == 0 || s->score <= first->instance[i - 1].score);
        assert_true(s->box[0] >= 0 && s->box[1] >= 0 && s->box[2] <= 150 && s->box[3] <= 110);
        assert_true(s->box[0] <= s->box[2] && s->box[1] <= s->box[3]);
        assert_int_equal(s->mask.width, 150);
        assert_int_equal(s->mask.height, 110);
        uint64_t pixels = 0, inside = 0;
        for (size_t k = 0; k < s->mask.runs; k++) {
            pixels += s->mask.counts[k];
            inside += k % 2 ? s->mask.counts[k] : 0;
        }
        assert_int_equal(pixels, 150 * 110);
        assert_int_equal(inside, s->area);
    }
    samite_result *none = segment(im, "cat", NULL, 0, 1.0f);
    assert_int_equal(none->count, 0);
    samite_result_free(first);
    samite_result_free(other);
    samite_result_free(again);
    samite_result_free(none);
    samite_image_free(im);
    samite_model_free(m);
}

static void check_error(samite_image *im, samite_prompt p, int code, const char *word)
{
    samite_result *r = NULL;
    samite_error e = {0};
    assert_int_equal(samite_image_segment(im, &p, &r, &e), code);
    assert_null(r);
    assert_non_null(strstr(e.text, word));
}

static void bad_prompts_are_refused(void **state)
{
    samite_model *m = open_model("formula:tiny", 0, 0);
    samite_image *im = encode(m);
    samite_box bad[] = {{50, 10, 20, 40, 0}, {500, 10, 600, 40, 0}, {10, 10, 0.0f / 0.0f, 40, 0}};
    samite_prompt p = SAMITE_PROMPT_INIT;
    check_error(im, p, SAMITE_USAGE, "text or example boxes");
    p.box_count = 1;
    for (int i = 0; i < 3; i++) {
        static const char *const words[] = {"empty", "outside", "no number"};
        p.boxes = &bad[i];
        check_error(im, p, SAMITE_USAGE, words[i]);
    }
    p = (samite_prompt)SAMITE_PROMPT_INIT;
    p.text = "cat";
    p.score = 2;
    check_error(im, p, SAMITE_USAGE, "score");
    samite_result *r = segment(im, "cat", NULL, 0, 0.5f);      /* the picture still works */
    samite_result_free(r);
    samite_image_free(im);
    samite_model_free(m);
}

static void write_model(const char *from, const char *path, const char *type)
{
    samite_model *m = open_model(from, 0, 0);
    samite_error e = {0};
    if (samite_model_write(m, path, type, &e))
        fail_msg("%s", e.text);
    samite_model_free(m);
}

/* A model written as safetensors or .pt and opened again is the same model; in f16 and bf16 nearly so. */
static void files_keep_the_model(void **state)
{
    char folder[] = "/tmp/samite-test-XXXXXX", path[64], second[64];
    assert_non_null(mkdtemp(folder));
    samite_result *a = once("formula:tiny", 1);
    static const struct { const char *ending, *type; int exact; } kinds[] = {
        {"safetensors", NULL, 1}, {"pt", "f32", 1}, {"safetensors", "f16", 0}, {"pt", "bf16", 0}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        snprintf(path, sizeof path, "%s/model.%s", folder, kinds[i].ending);
        write_model("formula:tiny", path, kinds[i].type);
        samite_result *b = once(path, 1);
        if (kinds[i].exact)
            assert_same(a, b);
        assert_true(b->count > 0 && b->instance[0].score > a->instance[0].score - 0.05f &&
                    b->instance[0].score < a->instance[0].score + 0.05f);
        samite_result_free(b);
        snprintf(second, sizeof second, "%s/again.safetensors", folder);
        write_model(path, second, "f32");
        unlink(path);
        unlink(second);
    }
    samite_result_free(a);
    assert_int_equal(rmdir(folder), 0);
}

static samite_result *segment_without_doubles(samite_image *im, float nms)
{
    samite_prompt p = SAMITE_PROMPT_INIT;
    samite_error e = {0};
    samite_result *r;
    p.text = "cat";
    p.score = 0;
    p.nms = nms;
    p.whole_boxes = 1;                    /* doubles are told before boxes are cut */
    if (samite_image_segment(im, &p, &r, &e))
        fail_msg("%s", e.text);
    return r;
}

static double overlap(const samite_instance *a, const samite_instance *b)
{
    const float *x = a->box, *y = b->box;
    double w = fmin((double)x[2], (double)y[2]) - fmax((double)x[0], (double)y[0]);
    double h = fmin((double)x[3], (double)y[3]) - fmax((double)x[1], (double)y[1]);
    double both = w > 0 && h > 0 ? w * h : 0;
    return both / ((double)(x[2] - x[0]) * (double)(x[3] - x[1]) + (double)(y[2] - y[0]) * (double)(y[3] - y[1]) - both);
}

/* What stays overlaps little, what goes overlaps something that stays; a file can make it the rule. */
static void doubles_are_dropped(void **state)
{
    const float most = 0.5f;
    char path[] = "/tmp/samite-test-XXXXXX.safetensors";
    samite_model *m = open_model("formula:tiny", 0, 0);
    samite_image *im = encode(m);
    samite_result *all = segment_without_doubles(im, 0), *usual = segment_without_doubles(im, -1),
                  *few = segment_without_doubles(im, most);
    assert_same(all, usual);
    assert_true(few->count > 0 && few->count < all->count);
    for (int i = 0, k = 0; i < all->count; i++) {
        double worst = 0;
        bool kept = k < few->count && memcmp(few->instance[k].box, all->instance[i].box, sizeof few->instance[k].box) == 0;
        for (int j = 0; j < k; j++)
            worst = fmax(worst, overlap(&few->instance[j], &all->instance[i]));
        assert_true(kept ? worst < 0.501 : worst > 0.499);
        k += kept;
    }
    samite_write_options o = SAMITE_WRITE_OPTIONS_INIT;
    samite_model_info info = {.size = sizeof info};
    samite_error e = {0};
    close(mkstemps(path, 12));
    o.nms = most;
    o.detector_only = 1;
    assert_int_equal(samite_model_write_with(m, path, &o, &e), 0);
    samite_image_free(im);
    samite_model_free(m);
    m = open_model(path, 0, 0);
    unlink(path);
    assert_int_equal(samite_model_describe(m, &info, &e), 0);
    assert_true(info.has_masks && !info.has_tracker);
    im = encode(m);
    samite_result_free(usual);
    usual = segment_without_doubles(im, -1);
    assert_same(few, usual);
    samite_result_free(all);
    samite_result_free(usual);
    samite_result_free(few);
    samite_image_free(im);
    samite_model_free(m);
}

static samite_model *open_precise(const char *precision, int threads)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m = NULL;
    o.threads = threads;
    o.precision = precision;
    if (samite_model_open(&m, "formula:tiny", &o, &e))
        fail_msg("%s", e.text);
    return m;
}

typedef struct closeness { double least; int seen; } closeness;

/* The pyramid and the words: what every prompt starts from. */
static void see_closeness(void *user, const samite_compared *c)
{
    closeness *least = user;
    bool neck = strncmp(c->name, "neck.", 5) == 0, words = strncmp(c->name, "text.", 5) == 0;
    if (!neck && !words)
        return;
    least->seen++;
    least->least = c->cosine < least->least ? c->cosine : least->least;
}

/* Lower precision stays close, is not f32 in disguise, and gives the same bits for any number of threads. */
static void precisions_are_close(void **state)
{
    static const struct { const char *name; double least; } kinds[] = {{"f32", 0.9999999}, {"bf16", 0.9999},
                                                                       {"int8", 0.9996}};
    double before = 1;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        closeness seen = {1, 0};
        samite_align_options o = {.size = sizeof o, .reference = TINY, .each = see_closeness, .user = &seen};
        samite_align_summary s;
        samite_error e = {0};
        samite_result *r[2];
        samite_model *m = open_precise(kinds[i].name, 2);
        samite_align(m, &o, &s, &e);
        samite_model_free(m);
        assert_true(seen.seen > 5 && seen.least >= kinds[i].least && seen.least <= before);
        before = seen.least;
        for (int threads = 1; threads <= 2; threads++) {
            m = open_precise(kinds[i].name, threads);
            samite_image *im = encode(m);
            samite_model_free(m);
            r[threads - 1] = segment(im, "a yellow school bus", NULL, 0, 0.0f);
            samite_image_free(im);
        }
        assert_same(r[0], r[1]);
        samite_result_free(r[0]);
        samite_result_free(r[1]);
    }
}

static void sides_are_checked(void **state)
{
    samite_model *m = open_model("formula:tiny", 0, 168);
    int sides[4];
    assert_int_equal(samite_model_sides(m, sides, 4), 4);
    assert_int_equal(sides[0], 56);
    assert_int_equal(sides[3], 224);
    samite_image *im = encode(m);
    samite_result_free(segment(im, "cat", NULL, 0, 0.0f));
    samite_image_free(im);
    samite_model_free(m);
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    o.input_side = 100;
    assert_int_equal(samite_model_open(&m, "formula:tiny", &o, &e), SAMITE_USAGE);
    assert_non_null(strstr(e.text, "multiple of 56"));
    assert_null(m);
}

static void wrong_paths_are_refused(void **state)
{
    static const struct { const char *path; int code; } cases[] = {
        {"formula:huge", SAMITE_USAGE}, {"formula:tiny,seed=x", SAMITE_USAGE}, {"formula:tiny,sed=1", SAMITE_USAGE},
        {"/nowhere/sam3.pt", SAMITE_INPUT}, {TINY "/scene.png", SAMITE_INPUT}, {TINY "/tiny.safetensors", SAMITE_INPUT},
        {"", SAMITE_USAGE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        samite_error e = {0};
        samite_model *m;
        assert_int_equal(samite_model_open(&m, cases[i].path, NULL, &e), cases[i].code);
        assert_null(m);
        assert_true(strlen(e.text) > 10);
    }
}

static void describes_itself(void **state)
{
    samite_model *m = open_model("formula:tiny", 0, 0);
    samite_model_info info = {.size = sizeof info};
    samite_error e = {0};
    assert_int_equal(samite_model_describe(m, &info, &e), 0);
    assert_int_equal(info.input_side, 112);
    assert_int_equal(info.trunk_depth, 4);
    assert_true(info.activation_bytes > 100000 && info.activation_bytes < 100000000);
    double flops = 0;
    for (int i = 0; i < info.parts; i++)
        flops += info.part[i].flops;
    assert_true(flops > 1e7 && flops < 1e10);
    samite_model_free(m);
}

static int stop_at(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)total;
    return strcmp(stage, user) == 0 && done > 2;
}

/* A callback that asks to stop is obeyed, and the picture can be used afterwards. */
static void can_be_stopped(void **state)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_error e = {0};
    samite_model *m;
    char stage[16] = "ground";
    o.progress = stop_at;
    o.user = stage;
    assert_int_equal(samite_model_open(&m, "formula:tiny", &o, &e), 0);
    samite_image *im = encode(m);
    samite_prompt p = SAMITE_PROMPT_INIT;
    p.text = "cat";
    check_error(im, p, SAMITE_CANCELLED, "");
    strcpy(stage, "never");
    samite_result_free(segment(im, "cat", NULL, 0, 0.0f));
    samite_image_free(im);
    samite_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_original), cmocka_unit_test(notices_other_weights),
        cmocka_unit_test(threads_change_nothing), cmocka_unit_test(prompts_are_independent),
        cmocka_unit_test(bad_prompts_are_refused), cmocka_unit_test(doubles_are_dropped), cmocka_unit_test(files_keep_the_model),
        cmocka_unit_test(precisions_are_close), cmocka_unit_test(sides_are_checked),
        cmocka_unit_test(wrong_paths_are_refused),
        cmocka_unit_test(describes_itself), cmocka_unit_test(can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
