/* video.c - videos at the tiny size: against the original, by the public API, and files in and out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "samite.h"

#define CLIP TEST_DATA "/video_tiny"
#define WIDTH  96
#define HEIGHT 64

static samite_model *model;

static int open_model(void **state)
{
    samite_error e = {0};
    return samite_model_open(&model, "formula:tiny", NULL, &e);
}

static int close_model(void **state)
{
    samite_model_free(model);
    return 0;
}

/* ---- the original's numbers ---- */

static void count_wrong(void *user, const samite_compared *c)
{
    int *wrong = user;
    if (c->within)
        return;
    ++*wrong;
    print_error("%s: difference %g (%g of the largest value), cosine %.7f %s\n", c->name, c->max_difference, c->relative,
                c->cosine, c->note);
}

static void agrees_with_original(void **state)
{
    int wrong = 0;
    samite_align_options o = {.size = sizeof o, .reference = CLIP, .each = count_wrong, .user = &wrong};
    samite_align_summary s;
    samite_error e = {0};
    assert_int_equal(samite_align(model, &o, &s, &e), 0);
    assert_int_equal(wrong, 0);
    assert_int_equal(s.compared, 1099);
}

/* ---- the public API ---- */

/* A grey picture with a bright square that moves. */
static samite_pixels scene(int64_t frame)
{
    samite_pixels p = {WIDTH, HEIGHT, malloc(3 * WIDTH * HEIGHT), 1, 0};
    assert_non_null(p.rgb);
    int x0 = 10 + (int)(frame * 2 % 50), y0 = 20;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            bool inside = x >= x0 && x < x0 + 24 && y >= y0 && y < y0 + 24;
            uint8_t *rgb = p.rgb + 3 * (y * WIDTH + x);
            rgb[0] = inside ? 230 : (uint8_t)(60 + x);
            rgb[1] = inside ? 200 : 90;
            rgb[2] = inside ? 40 : (uint8_t)(80 + y);
        }
    return p;
}

static samite_video *open_video(int delay)
{
    samite_video *v;
    samite_video_options o = SAMITE_VIDEO_OPTIONS_INIT;
    o.delay = delay;
    o.score = 0.3f;
    assert_int_equal(samite_video_open(&v, model, &o, NULL), 0);
    return v;
}

static samite_video_results *push(samite_video *v, int64_t frame)
{
    samite_video_results *r = NULL;
    samite_error e = {0};
    samite_pixels p = scene(frame);
    int code = samite_video_push(v, &p, frame, (double)frame / 10, &r, &e);
    if (code)
        print_error("%s\n", e.text);
    assert_int_equal(code, 0);
    samite_pixels_free(&p);
    return r;
}

static int64_t click_box(samite_video *v, int64_t object, float x0, float y0, float x1, float y1)
{
    samite_box box = {x0, y0, x1, y1, 0};
    samite_click c = SAMITE_CLICK_INIT;
    c.box = &box;
    assert_int_equal(samite_video_click(v, &object, &c, NULL, NULL), 0);
    return object;
}

static samite_video_status state_of(const samite_video *v)
{
    samite_video_status s = {.size = sizeof s};
    samite_video_state(v, &s);
    return s;
}

static void results_wait(void **state)
{
    samite_video *v = open_video(3);
    samite_prompt p = SAMITE_PROMPT_INIT;
    p.text = "person";
    assert_int_equal(samite_video_prompt(v, &p, -1, NULL), 0);
    for (int64_t f = 0; f < 5; f++) {
        samite_video_results *r = push(v, f);
        assert_int_equal(r->count, f >= 2);
        if (r->count) {
            assert_int_equal(r->frame[0].frame, f - 2);
            assert_float_equal(r->frame[0].time, (double)(f - 2) / 10, 1e-9);
        }
        samite_video_results_free(r);
    }
    assert_int_equal(state_of(v).waiting, 2);
    samite_video_results *r;
    assert_int_equal(samite_video_flush(v, &r, NULL), 0);
    assert_int_equal(r->count, 2);
    assert_int_equal(r->frame[1].frame, 4);
    samite_video_results_free(r);
    samite_video_free(v);
}

/* Boxes of what is shown lie around the masks, whole; no two masks share a pixel. */
static void check_frame(const samite_frame_result *f)
{
    uint8_t *taken = calloc(WIDTH * HEIGHT, 1), *one = malloc(WIDTH * HEIGHT);
    for (int i = 0; i < f->count; i++) {
        const samite_tracked *t = &f->object[i];
        uint64_t area = 0;
        assert_true(i == 0 || f->object[i - 1].id < t->id);
        samite_mask_paint(&t->mask, one);
        for (int k = 0; k < WIDTH * HEIGHT; k++) {
            assert_false(one[k] && taken[k]);
            taken[k] |= one[k];
            area += one[k];
            float x = (float)(k % WIDTH), y = (float)(k / WIDTH);
            if (one[k])
                assert_true(x >= t->box[0] && x + 1 <= t->box[2] && y >= t->box[1] && y + 1 <= t->box[3]);
        }
        assert_int_equal(area, t->area);
        assert_true(area > 0);
    }
    free(taken);
    free(one);
}

static void objects_that_a_person_names(void **state)
{
    samite_video *v = open_video(4);
    samite_video_results_free(push(v, 10));
    assert_int_equal(click_box(v, -1, 10, 10, 60, 60), 0);
    assert_int_equal(click_box(v, 7, 50, 5, 90, 40), 7);
    int seen = 0;
    for (int64_t f = 11; f < 20; f++) {
        samite_video_results *r = push(v, f);
        for (int i = 0; i < r->count; i++) {
            check_frame(&r->frame[i]);
            seen += r->frame[i].count > 0;
        }
        samite_video_results_free(r);
        if (f == 14)
            assert_int_equal(samite_video_remove(v, 7, NULL), 0);
    }
    assert_true(seen > 0);                      /* without words nothing that was clicked is taken away */
    assert_int_equal(state_of(v).objects, 1);
    assert_int_equal(samite_video_remove(v, 7, NULL), SAMITE_USAGE);
    assert_int_equal(click_box(v, -1, 20, 20, 40, 40), 8);
    samite_video_reset(v);
    assert_int_equal(state_of(v).objects, 0);
    samite_video_results_free(push(v, 0));
    samite_video_free(v);
}

static void failed_clicks_leave_no_trace(void **state)
{
    samite_video *v = open_video(4);
    samite_click c = SAMITE_CLICK_INIT;
    samite_point far = {1000, 5, 0};
    samite_mask small = {4, 4, (uint32_t[]){16}, 1};
    int64_t id = -1;
    c.points = &far;
    c.point_count = 1;
    assert_int_equal(samite_video_click(v, &id, &c, NULL, NULL), SAMITE_USAGE);       /* nothing was pushed */
    samite_video_results_free(push(v, 0));
    uint64_t bytes = state_of(v).bytes;
    assert_int_equal(samite_video_click(v, &id, &c, NULL, NULL), SAMITE_USAGE);
    c.point_count = 0;
    c.mask = &small;
    assert_int_equal(samite_video_click(v, &id, &c, NULL, NULL), SAMITE_USAGE);
    samite_box wrong = {10, 10, 5, 20, 0}, odd = {NAN, 0, 5, 5, 0};
    c.mask = NULL;
    c.box = &wrong;
    assert_int_equal(samite_video_click(v, &id, &c, NULL, NULL), SAMITE_USAGE);
    c.box = &odd;
    assert_int_equal(samite_video_click(v, &id, &c, NULL, NULL), SAMITE_USAGE);
    assert_int_equal(id, -1);
    assert_int_equal(state_of(v).objects, 0);
    assert_int_equal(state_of(v).bytes, bytes);
    samite_video_results_free(push(v, 1));
    samite_video_free(v);
}

static void a_mask_starts_an_object(void **state)
{
    samite_video *v = open_video(2);
    samite_video_results_free(push(v, 0));
    uint32_t counts[2] = {WIDTH / 2 * HEIGHT, WIDTH / 2 * HEIGHT};      /* the right half */
    samite_mask half = {WIDTH, HEIGHT, counts, 2};
    samite_click c = SAMITE_CLICK_INIT;
    samite_video_results *r;
    int64_t id = -1;
    c.mask = &half;
    assert_int_equal(samite_video_click(v, &id, &c, &r, NULL), 0);
    assert_int_equal(r->count, 1);
    assert_int_equal(r->frame[0].count, 1);
    assert_true(labs((long)r->frame[0].object[0].area - WIDTH / 2 * HEIGHT) < WIDTH * HEIGHT / 20);
    samite_video_results_free(r);
    samite_video_results_free(push(v, 1));
    samite_video_free(v);
}

static void misuse(void **state)
{
    samite_video *v = open_video(2);
    samite_video_results *r;
    samite_pixels p = scene(0);
    samite_prompt nothing = SAMITE_PROMPT_INIT;
    samite_video_options o = SAMITE_VIDEO_OPTIONS_INIT;
    assert_int_equal(samite_video_prompt(v, &nothing, -1, NULL), SAMITE_USAGE);
    samite_video_results_free(push(v, 5));
    assert_int_equal(samite_video_push(v, &p, 5, 0, &r, NULL), SAMITE_USAGE);
    assert_int_equal(samite_video_push(v, &p, 4, 0, &r, NULL), SAMITE_USAGE);
    assert_int_equal(samite_video_push(v, NULL, 6, 0, &r, NULL), SAMITE_USAGE);
    assert_int_equal(samite_video_turn(v, 1, NULL), SAMITE_USAGE);
    samite_video_results_free(push(v, 6));      /* none of these did harm */
    samite_video_free(v);
    o.score = 2;
    assert_int_equal(samite_video_open(&v, model, &o, NULL), SAMITE_USAGE);
    o.score = 0.5f;
    o.memory_limit = 10;
    assert_int_equal(samite_video_open(&v, model, &o, NULL), SAMITE_RESOURCE);
    o.memory_limit = 200000;
    assert_int_equal(samite_video_open(&v, model, &o, NULL), 0);
    assert_true(state_of(v).max_objects >= 1 && state_of(v).max_objects < 20);
    samite_video_free(v);
    samite_pixels_free(&p);
}

static void backward(void **state)
{
    samite_video *v;
    samite_video_options o = SAMITE_VIDEO_OPTIONS_INIT;
    samite_video_results *r;
    o.may_turn = 1;
    o.delay = 2;
    assert_int_equal(samite_video_open(&v, model, &o, NULL), 0);
    samite_video_results_free(push(v, 6));
    click_box(v, -1, 20, 15, 60, 50);
    for (int64_t f = 7; f < 10; f++)
        samite_video_results_free(push(v, f));
    assert_int_equal(samite_video_turn(v, 1, NULL), SAMITE_USAGE);
    assert_int_equal(samite_video_flush(v, &r, NULL), 0);
    samite_video_results_free(r);
    assert_int_equal(samite_video_turn(v, 1, NULL), 0);
    for (int64_t f = 5; f >= 0; f--)
        samite_video_results_free(push(v, f));
    assert_int_equal(samite_video_flush(v, &r, NULL), 0);
    assert_int_equal(r->frame[r->count - 1].frame, 0);
    assert_true(r->frame[r->count - 1].count > 0);
    samite_video_results_free(r);
    samite_video_free(v);
}

/* After warm-up the session holds no more, however long the clip is. */
static void memory_is_bounded(void **state)
{
    samite_video *v = open_video(5);
    uint64_t most = 0;
    samite_video_results_free(push(v, 0));
    for (int i = 0; i < 4; i++)
        click_box(v, -1, 5 + 20 * (float)i, 10, 25 + 20 * (float)i, 50);
    for (int64_t f = 1; f < 120; f++) {
        samite_video_results_free(push(v, f));
        uint64_t bytes = state_of(v).bytes;
        if (f < 40)
            most = bytes > most ? bytes : most;
        else
            assert_true(bytes <= most + most / 50);
    }
    assert_int_equal(state_of(v).objects, 4);
    samite_video_free(v);
}

/* ---- files ---- */

static char folder[64];

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/samite-video-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void movies_come_back(void **state)
{
    char path[128];
    samite_movie *m;
    samite_clip *c;
    samite_clip_info info = {.size = sizeof info};
    snprintf(path, sizeof path, "%s/clip.mp4", folder);
    assert_int_equal(samite_movie_open(&m, path, WIDTH + 1, HEIGHT, 10, NULL), 0);
    samite_pixels odd = {WIDTH + 1, HEIGHT, calloc(3 * (WIDTH + 1) * HEIGHT, 1), 1, 0};
    for (int f = 0; f < 40; f++) {
        memset(odd.rgb, 6 * f, 3 * (WIDTH + 1) * HEIGHT);
        assert_int_equal(samite_movie_add(m, &odd, f / 10.0, NULL), 0);
    }
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(samite_movie_finish(m, NULL), 0);
    assert_int_equal(samite_clip_open(&c, path, 0, NULL), 0);
    samite_clip_describe(c, &info);
    assert_float_equal(info.rate, 10, 0.01);
    samite_pixels p;
    int64_t found;
    double time;
    for (int f = 0; f < 40; f++) {
        assert_int_equal(samite_clip_read(c, -1, &p, &found, &time, NULL), 1);
        assert_int_equal(found, f);
        assert_float_equal(time, f / 10.0, 1e-3);
        assert_true(abs(p.rgb[3 * 100] - 6 * f) < 12);
        samite_pixels_free(&p);
    }
    assert_int_equal(samite_clip_read(c, -1, &p, &found, &time, NULL), 0);
    for (int f = 38; f >= 0; f--) {
        assert_int_equal(samite_clip_read(c, f, &p, &found, &time, NULL), 1);
        assert_int_equal(found, f);
        assert_float_equal(time, f / 10.0, 1e-3);
        assert_true(abs(p.rgb[3 * 100] - 6 * f) < 12);
        samite_pixels_free(&p);
    }
    samite_clip_free(c);
    free(odd.rgb);
}

static void folders_in_natural_order(void **state)
{
    samite_clip *c;
    samite_pixels p;
    char path[128];
    static const char *const names[] = {"f10", "f9", "f1"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s.ppm", folder, names[i]);
        FILE *f = fopen(path, "w");
        fprintf(f, "P3 %d 1 255 %d 0 0 0 0 0 0 0 0\n", i == 0 ? 3 : 2, 10 * i + 1);     /* one is wider */
        fclose(f);
    }
    snprintf(path, sizeof path, "%s/notes.txt", folder);
    fclose(fopen(path, "w"));
    assert_int_equal(samite_clip_open(&c, folder, 0, NULL), 0);
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(samite_clip_read(c, -1, &p, NULL, NULL, NULL), 1);
        assert_int_equal(p.width, 2);
        if (i)
            assert_int_equal(p.rgb[0], 10 * i + 1);
        samite_pixels_free(&p);
    }
    assert_int_equal(samite_clip_read(c, -1, &p, NULL, NULL, NULL), 0);
    samite_clip_free(c);
}

static void what_is_no_video(void **state)
{
    samite_clip *c;
    samite_error e;
    char path[128];
    snprintf(path, sizeof path, "%s/noise.mp4", folder);
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 5000; i++)
        fputc(i * 7919 % 251, f);
    fclose(f);
    assert_int_equal(samite_clip_open(&c, path, 0, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "noise.mp4"));
    assert_null(c);
    assert_int_equal(samite_clip_open(&c, "/nowhere/at/all.mp4", 0, &e), SAMITE_INPUT);
    assert_int_equal(samite_clip_open(&c, "raw:0x5:-", 0, &e), SAMITE_USAGE);
    snprintf(path, sizeof path, "%s/empty", folder);
    mkdir(path, 0700);
    assert_int_equal(samite_clip_open(&c, path, 0, &e), SAMITE_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_original), cmocka_unit_test(results_wait),
        cmocka_unit_test(objects_that_a_person_names), cmocka_unit_test(failed_clicks_leave_no_trace),
        cmocka_unit_test(a_mask_starts_an_object), cmocka_unit_test(misuse), cmocka_unit_test(backward),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test_setup_teardown(movies_come_back, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(folders_in_natural_order, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_no_video, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
