/* video_memory.c - the resident set stays flat however long a video is.
 *
 * SAMITE_VIDEO_FRAMES sets the number of frames, for example 2000; without it few are enough to fill every bank, which
 * is when growth would show.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "samite.h"

#include <cmocka.h>       /* last: it has a macro called fail */

enum { WIDTH = 128, HEIGHT = 96, OBJECTS = 20, WARM_UP = 60, USUAL_FRAMES = 150 };

#if defined(__SANITIZE_ADDRESS__)
#define MEASURED 0        /* freed memory is kept back */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MEASURED 0
#endif
#endif
#ifndef MEASURED
#define MEASURED 1
#endif

static double resident_mb(void)
{
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &pages, &resident) != 2)
        fail_msg("/proc/self/statm cannot be read");
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

/* A picture with squares that drift. */
static samite_pixels scene(int64_t frame)
{
    samite_pixels p = {WIDTH, HEIGHT, malloc(3 * WIDTH * HEIGHT), 1, 0};
    assert_non_null(p.rgb);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            int64_t u = (x + frame) % 25, v = (y + frame / 2) % 24;
            bool inside = u > 4 && u < 20 && v > 4 && v < 19;
            uint8_t *rgb = p.rgb + 3 * (y * WIDTH + x);
            rgb[0] = inside ? 220 : (uint8_t)(40 + x);
            rgb[1] = inside ? (uint8_t)(100 + y) : 80;
            rgb[2] = (uint8_t)(y + frame % 60);
        }
    return p;
}

static void push(samite_video *v, int64_t frame)
{
    samite_video_results *r = NULL;
    samite_error e = {0};
    samite_pixels p = scene(frame);
    if (samite_video_push(v, &p, frame, (double)frame / 25, &r, &e))
        fail_msg("%s", e.text);
    samite_video_results_free(r);
    samite_pixels_free(&p);
}

static void click_all(samite_video *v)
{
    for (int i = 0; i < OBJECTS; i++) {
        float x = 4 + 25 * (float)(i % 5), y = 4 + 24 * (float)(i / 5);
        samite_box box = {x, y, x + 16, y + 15, 0};
        samite_click c = SAMITE_CLICK_INIT;
        samite_error e = {0};
        int64_t id = i;
        c.box = &box;
        if (samite_video_click(v, &id, &c, NULL, &e))
            fail_msg("%s", e.text);
    }
}

static void twenty_objects(void **state)
{
    const char *asked = getenv("SAMITE_VIDEO_FRAMES");
    int64_t frames = asked ? atol(asked) : USUAL_FRAMES;
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_model *m;
    samite_video *v;
    samite_error e = {0};
    double warm = 0, most = 0;
    o.threads = 1;
    if (samite_model_open(&m, "formula:tiny", &o, &e) || samite_video_open(&v, m, NULL, &e))
        fail_msg("%s", e.text);
    for (int64_t f = 0; f < frames; f++) {
        push(v, f);
        if (f == 0)
            click_all(v);
        double now = resident_mb();
        if (f < WARM_UP)
            warm = now > warm ? now : warm;
        most = now > most ? now : most;
        if (f == 10 || f == 100 || f == 1000 || f == frames - 1)
            print_message("frame %lld: %.1f MB resident\n", (long long)f, now);
    }
    samite_video_status st = {.size = sizeof st};
    samite_video_state(v, &st);
    assert_int_equal(st.objects, OBJECTS);
    print_message("growth after warm-up: %.2f %%\n", 100 * (most - warm) / warm);
    if (MEASURED)
        assert_true(most <= 1.02 * warm);
    samite_video_free(v);
    samite_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(twenty_objects)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
