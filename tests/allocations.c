/* allocations.c - after a warm-up, the network takes no memory of any size worth naming.
 *
 * oneDNN makes small handles for every call (a few hundred bytes each), so requests up to SMALL do not count.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "api.h"
#include "track/tracker.h"

#include <cmocka.h>       /* last: it has a macro called fail */

enum { SMALL = 4096 };

static atomic_size_t large, largest;
static atomic_bool counting;

#if defined(__SANITIZE_ADDRESS__)
#define INTERPOSED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define INTERPOSED 0
#endif
#endif
#if !defined(INTERPOSED) && defined(__GLIBC__)
#define INTERPOSED 1

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void see(size_t size)
{
    if (!atomic_load(&counting) || size <= SMALL)
        return;
    atomic_fetch_add(&large, 1);
    if (size > atomic_load(&largest))
        atomic_store(&largest, size);
}

void *malloc(size_t size)
{
    see(size);
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    see(count * size);
    return __libc_calloc(count, size);
}

void *realloc(void *p, size_t size)
{
    see(size);
    return __libc_realloc(p, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    see(size);
    return __libc_memalign(alignment, size);
}

void *memalign(size_t alignment, size_t size)
{
    see(size);
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
    see(size);
    *p = __libc_memalign(alignment, size);
    return *p || !size ? 0 : ENOMEM;
}
#endif

enum { MASKS = 5 };

/* A picture, a text, a prompt with an example box, and the masks of some queries. */
static void forward(samite_image *im)
{
    static const float box[] = {0.5f, 0.4f, 0.3f, 0.2f};
    static const int positive[] = {1};
    static const int32_t ids[] = {49406, 1929, 49407}, query[MASKS] = {0, 1, 4, 9, 11};
    const sam3 *net = im->model->n->net;
    examples x = {.boxes = box, .box_positive = positive, .box_count = 1};
    samite_error e = {0};
    grounded g;

    if (image_encode(im, false, &e))
        fail_msg("%s", e.text);
    tensor *said = text_forward(im->r, &net->text, run_indices(im->r, ids, 2, (int64_t[]){1, 3}));
    sam3_ground(im->r, net, &im->encoded, said, NULL, &x, &g);
    tensor *masks = sam3_masks(im->r, net, &im->encoded, &g, query, MASKS);
    assert_int_equal(run_status(im->r, &e), 0);
    assert_int_equal(masks->dim[1], MASKS);
}

/* A click, then two objects that are followed and remembered. */
static void follow(samite_image *im, const track_tables *t, const float *values)
{
    static const float xy[] = {30, 40, 200, 210};
    static const int point[] = {POINT_POSITIVE, POINT_NEGATIVE}, none[] = {POINT_NONE, POINT_NONE}, age[] = {6, 0, 1};
    static const float distance[] = {0.2f, 0.1f};
    enum { OBJECTS = 2, MAPS = 3, POINTERS = 2 };
    const sam3 *net = im->model->n->net;
    int64_t side = config_tokens(&net->c), n = side * side, w = net->c.mem_dim, rows = POINTERS * (net->c.d / w);
    run *r = im->r;
    samite_error e = {0};
    click_image seen;
    guesses g;

    if (image_encode(im, true, &e))
        fail_msg("%s", e.text);
    sam3_click_image(r, net, &im->encoded, &seen);
    sam3_click(r, net, &seen, NULL, &(clicks){1, 2, xy, point}, NULL, &g);
    tensor *grid = run_input(r, t->grid, 2, (int64_t[]){n, w});
    memories past = {.tokens = run_input(r, values, 3, (int64_t[]){OBJECTS, MAPS * n + rows, w}),
                     .places = memory_places(r, &net->memory, grid, age, MAPS, distance, POINTERS),
                     .pointer_rows = rows, .rotations = t->rotations};
    tensor *begun = memory_begin(r, &net->memory, seen.image, seen.codes, t->rotations);
    sam3_click(r, net, &seen, memory_look(r, &net->memory, begun, &past), &(clicks){OBJECTS, 1, xy, none}, NULL, &g);
    tensor *masks = run_input(r, values, 4, (int64_t[]){OBJECTS, 16 * side, 16 * side, 1});
    memory_encode(r, &net->memory, seen.image, masks, (bool[]){false, true});
    tensor *tokens = reshape(r, g.tokens, 2, (int64_t[]){OBJECTS * MASK_GUESSES, net->c.d});
    tokens = gather_rows(r, tokens, (int32_t[]){1, 5}, OBJECTS);
    memory_pointers(r, &net->memory, tokens, (bool[]){true, false});
    if (run_status(r, &e))
        fail_msg("%s", e.text);
}

static void following_takes_no_memory(const char *precision)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_model *m;
    samite_image *im;
    samite_error e = {0};
    track_tables t;

    o.threads = 2;
    o.precision = precision;
    o.input_side = 336;
    if (samite_model_open(&m, "formula:tiny", &o, &e) || image_new(&im, m, &e) ||
        image_prepare(im, PARTS_IMAGE | PARTS_TRACK, &e) || track_tables_make(&t, m->n->net, &e))
        fail_msg("%s", e.text);
    float *values = malloc(sizeof *values * 2 * 384 * 384);
    for (int i = 0; i < 2 * 384 * 384; i++)
        values[i] = (float)(i % 397) / 50 - 4;
    for (int i = 0; i < 336 * 336 * 3; i++)
        im->input[i] = (float)(i % 1013) / 506 - 1;
    for (int i = 0; i < 2; i++)
        follow(im, &t, values);
    large = largest = 0;
    counting = true;
    follow(im, &t, values);
    counting = false;
    if (large)
        fail_msg("%s: %zu requests above %d bytes, the largest of %zu", precision, (size_t)large, SMALL,
                 (size_t)largest);
    free(values);
    track_tables_free(&t);
    samite_image_free(im);
    samite_model_free(m);
}

static void takes_no_memory(const char *precision)
{
    samite_options o = SAMITE_OPTIONS_INIT;
    samite_model *m;
    samite_image *im;
    samite_error e = {0};

    o.threads = 2;
    o.precision = precision;
    o.input_side = 336;     /* large enough that maps are far above SMALL */
    if (samite_model_open(&m, "formula:tiny", &o, &e) || image_new(&im, m, &e) ||
        image_prepare(im, PARTS_IMAGE | PARTS_TEXT | PARTS_GROUND | PARTS_MASKS, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < 336 * 336 * 3; i++)
        im->input[i] = (float)(i % 1013) / 506 - 1;
    for (int i = 0; i < 2; i++)
        forward(im);
    large = largest = 0;
    counting = true;
    forward(im);
    counting = false;
    if (large)
        fail_msg("%s: %zu requests above %d bytes, the largest of %zu", precision, (size_t)large, SMALL,
                 (size_t)largest);
    samite_image_free(im);
    samite_model_free(m);
}

/* The counters work: otherwise the other tests could not fail. */
static void counts(void **state)
{
    large = 0;
    counting = true;
    char *volatile p = malloc(SMALL + 1);
    free(p);
    counting = false;
#if INTERPOSED
    assert_int_equal((size_t)large, 1);
#else
    skip();
#endif
}

static void in_f32(void **state)
{
    takes_no_memory("f32");
}

static void in_bf16(void **state)
{
    takes_no_memory("bf16");
}

static void in_int8(void **state)
{
    takes_no_memory("int8");
}

static void video_in_f32(void **state)
{
    following_takes_no_memory("f32");
}

static void video_in_bf16(void **state)
{
    following_takes_no_memory("bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counts), cmocka_unit_test(in_f32), cmocka_unit_test(in_bf16),
                                       cmocka_unit_test(in_int8), cmocka_unit_test(video_in_f32),
                                       cmocka_unit_test(video_in_bf16)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
