/* base.c - tests of src/base. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail          /* the project has a function of that name */

#include "base/arena.h"
#include "base/dtype.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/threads.h"

/* A fresh folder; its name lives until the next call. */
static const char *temporary(void)
{
    static char name[64];
    snprintf(name, sizeof name, "/tmp/samite-base-XXXXXX");
    assert_non_null(mkdtemp(name));
    return name;
}

static void test_error(void **state)
{
    samite_error e;
    assert_int_equal(fail(NULL, SAMITE_INPUT, "x"), SAMITE_INPUT);
    assert_int_equal(fail(&e, SAMITE_RESOURCE, "%s: %d", "a\nb\x1b[1m", 7), SAMITE_RESOURCE);
    assert_string_equal(e.text, "a?b?[1m: 7");
    assert_int_equal(e.code, SAMITE_RESOURCE);
    fail(&e, SAMITE_INPUT, "again: %s", e.text);
    assert_string_equal(e.text, "again: a?b?[1m: 7");
    char longer[2000];
    for (size_t i = 0; i + 1 < sizeof longer; i += 2)
        memcpy(longer + i, "\xC3\xA4", 2);
    longer[sizeof longer - 2] = '\0';
    fail(&e, SAMITE_INPUT, "x%s", longer);
    size_t n = strlen(e.text);
    assert_true(n < sizeof e.text && n > sizeof e.text - 8);
    const char *cut = strstr(e.text, "...");
    assert_non_null(cut);
    assert_int_equal((unsigned char)cut[-1], 0xA4);            /* whole characters only */
    assert_int_equal((unsigned char)cut[3], 0xC3);
    for (size_t k = 0; k < 9000; k += 611) {
        char *name = malloc(k + 1);
        memset(name, 'n', k);
        name[k] = '\0';
        fail(&e, SAMITE_INPUT, "cannot open %s: the reason", name);
        assert_true(strlen(e.text) < sizeof e.text && strncmp(e.text, "cannot open ", 12) == 0);
        if (k < 8000)                                          /* what is wrong stays, however long the name */
            assert_string_equal(e.text + strlen(e.text) - 12, ": the reason");
        free(name);
    }
}

static void test_arena(void **state)
{
    arena a;
    assert_true(arena_open(&a, 0, false));
    char *first = arena_take(&a, 100);
    assert_int_equal((uintptr_t)first % ARENA_ALIGN, 0);
    size_t mark = arena_mark(&a);
    assert_int_equal(mark, 128);
    char *second = arena_take(&a, (size_t)600 << 20);
    assert_ptr_equal(second, first + 128);
    second[0] = second[((size_t)600 << 20) - 1] = 1;
    assert_non_null(arena_take(&a, 0));
    size_t peak = a.peak;
    arena_release(&a, mark);
    assert_int_equal(arena_mark(&a), mark);
    assert_int_equal(a.peak, peak);
    assert_true(a.committed <= mark + ARENA_SLACK + ((size_t)16 << 20));
    memset((char *)arena_take(&a, (size_t)590 << 20) + ((size_t)500 << 20), 7, (size_t)90 << 20);
    arena_close(&a);
}

static void test_arena_limit(void **state)
{
    arena a;
    assert_true(arena_open(&a, 1 << 20, false));
    assert_null(arena_take(&a, (size_t)1 << 40));
    assert_true(a.full);
    assert_int_equal(a.wanted, (size_t)1 << 40);
    assert_null(arena_take(&a, SIZE_MAX));
    assert_int_equal(a.used, 0);
    arena_release(&a, 0);
    assert_false(a.full);
    assert_non_null(arena_take(&a, 64));
    arena_close(&a);

    assert_true(arena_open(&a, 0, true));
    assert_null(arena_take(&a, (size_t)1 << 50));
    assert_null(arena_take(&a, 1));
    assert_false(a.full);
    assert_int_equal(a.peak, ((size_t)1 << 50) + 64);
    arena_release(&a, 0);
    assert_int_equal(a.used, 0);
    arena_close(&a);
}

/* The value of a half-precision number by its definition. */
static double half_value(unsigned h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double v = exponent == 31 ? (mantissa ? NAN : INFINITY)
             : exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -v : v;
}

static void test_half(void **state)
{
    for (unsigned h = 0; h < 65536; h++) {
        uint16_t in = (uint16_t)h, back;
        float f;
        dtype_to_f32(&f, &in, DT_F16, 1);
        double expected = half_value(h);
        if (isnan(expected)) {
            assert_true(isnan(f));
            dtype_from_f32(&back, DT_F16, &f, 1);
            assert_true((back & 0x7C00) == 0x7C00 && (back & 0x3FF));
            continue;
        }
        assert_true((double)f == expected && !signbit(f) == !signbit(expected));
        dtype_from_f32(&back, DT_F16, &f, 1);
        assert_int_equal(back, h);
    }
}

/* Between two neighbours the nearer one is taken, half-way the even one. */
static void test_half_rounding(void **state)
{
    for (unsigned h = 0; h < 0x7C00; h++) {
        double low = half_value(h), high = h == 0x7BFF ? 65536 : half_value(h + 1), middle = (low + high) / 2;
        float in[3] = {nextafterf((float)middle, 0), (float)middle, nextafterf((float)middle, INFINITY)};
        uint16_t out[3];
        dtype_from_f32(out, DT_F16, in, 3);
        assert_int_equal(out[0], h);
        assert_int_equal(out[1], h + (h & 1));
        assert_int_equal(out[2], h + 1);
    }
}

static void test_bfloat(void **state)
{
    for (unsigned h = 0; h < 65536; h++) {
        uint16_t in = (uint16_t)h, back;
        uint32_t bits = h << 16;
        float f, expected;
        memcpy(&expected, &bits, 4);
        dtype_to_f32(&f, &in, DT_BF16, 1);
        assert_memory_equal(&f, &expected, 4);
        dtype_from_f32(&back, DT_BF16, &f, 1);
        if (isnan(f))
            assert_int_equal(back | 0x40, h | 0x40);
        else
            assert_int_equal(back, h);
        if ((h & 0x7FFF) >= 0x7F80)
            continue;
        for (unsigned low = 0; low < 3; low++) {       /* just below, at and above the middle to the next */
            bits = h << 16 | (0x7FFF + low);
            memcpy(&f, &bits, 4);
            dtype_from_f32(&back, DT_BF16, &f, 1);
            assert_int_equal(back, low == 0 ? h : low == 1 ? h + (h & 1) : h + 1);
        }
    }
}

static void test_other_types(void **state)
{
    char misaligned[40];
    float out[3];
    double d[3] = {0.1, -1e300, 3};
    memcpy(misaligned + 1, d, sizeof d);
    dtype_to_f32(out, misaligned + 1, DT_F64, 3);
    assert_true(out[0] == 0.1f && isinf(out[1]) && out[1] < 0 && out[2] == 3);
    int64_t i[2] = {-5, (int64_t)1 << 40};
    memcpy(misaligned + 3, i, sizeof i);
    dtype_to_f32(out, misaligned + 3, DT_I64, 2);
    assert_true(out[0] == -5 && out[1] == 1099511627776.0f);
    dtype_to_f32(out, "\xFF\x02", DT_I8, 2);
    assert_true(out[0] == -1 && out[1] == 2);
    dtype_to_f32(out, "\xFF\x02", DT_U8, 2);
    assert_true(out[0] == 255);
    dtype_to_f32(out, "\x07\x00", DT_BOOL, 2);
    assert_true(out[0] == 1 && out[1] == 0);
    static const size_t sizes[DT_COUNT] = {4, 2, 2, 8, 8, 4, 2, 1, 1, 1, 8};
    for (int t = 0; t < DT_COUNT; t++)
        assert_int_equal(dtype_size((dtype)t), sizes[t]);
    assert_string_equal(dtype_name(DT_BF16), "bf16");
    assert_int_equal(dtype_size(DT_COUNT), 0);
}

static void test_text(void **state)
{
    text t = {0};
    for (int i = 0; i < 1000; i++)
        text_printf(&t, "%d,", i);
    assert_false(t.failed);
    assert_int_equal(strlen(t.data), t.size);
    assert_int_equal(t.size, 3890);
    assert_true(starts_with(t.data, "0,1,2") && ends_with(t.data, ",999,"));
    text_free(&t);
    assert_null(t.data);
    assert_false(ends_with("ab", "xab"));
    char *path = path_join("a/", "b");
    assert_string_equal(path, "a/b");
    free(path);
    path = path_join("a", "b");
    assert_string_equal(path, "a/b");
    free(path);
    path = path_join("", "b");
    assert_string_equal(path, "b");
    free(path);
}

static void test_natural_order(void **state)
{
    static const char *const sorted[] = {"", "a", "a1", "a2", "a10", "a10b", "a100000000000000000000", "b"};
    int n = sizeof sorted / sizeof *sorted;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            int order = natural_compare(sorted[i], sorted[j]);
            assert_true((order > 0) == (i > j) && (order < 0) == (i < j));
        }
    assert_true(natural_compare("a01b", "a1c") < 0);           /* leading zeros do not count ... */
    assert_true(natural_compare("a1", "a01") != 0);            /* ... but equal names only are equal */
}

static void test_closest_word(void **state)
{
    static const char *const words[] = {"segment", "convert", "align", "info"};
    assert_string_equal(closest_word("segmnet", words, 4), "segment");
    assert_string_equal(closest_word("Aling", words, 4), "align");
    assert_string_equal(closest_word("covert", words, 4), "convert");
    assert_null(closest_word("train", words, 4));
    assert_null(closest_word("x", words, 4));
}

static void test_name_map(void **state)
{
    static char names[5000][24];
    name_map *m = name_map_new(4);
    for (int i = 0; i < 5000; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%d", i);
        assert_int_equal(name_map_get(m, names[i]), -1);
        assert_true(name_map_put(m, names[i], i));
        assert_false(name_map_put(m, names[i / 2], 0));
    }
    for (int i = 0; i < 5000; i++)
        assert_int_equal(name_map_get(m, names[i]), i);
    assert_int_equal(name_map_get(m, "tensor.5000"), -1);
    name_map_free(m);
    name_map_free(NULL);
}

static void test_files(void **state)
{
    samite_error e;
    const char *folder = temporary();
    char *deep = path_join(folder, "a/b//c"), *path = path_join(folder, "a/b/c/file");
    assert_int_equal(make_folders(deep, &e), 0);
    assert_int_equal(make_folders(deep, &e), 0);
    file_writer w;
    assert_int_equal(file_writer_open(&w, path, &e), 0);
    file_write(&w, "hello ", 6);
    file_printf(&w, "%d", 42);
    assert_int_equal(access(path, F_OK), -1);            /* not there before commit */
    assert_int_equal(file_writer_commit(&w, &e), 0);
    file_map m;
    assert_int_equal(file_map_open(&m, path, &e), 0);
    assert_int_equal(m.size, 8);
    assert_memory_equal(m.data, "hello 42", 8);
    file_map_drop(m.data, m.size);
    file_map_close(&m);

    assert_int_equal(file_writer_open(&w, path, &e), 0);
    file_write(&w, "bad", 3);
    file_writer_abort(&w);
    uint8_t *data;
    size_t size;
    assert_int_equal(file_read(&data, &size, path, 100, &e), 0);
    assert_int_equal(size, 8);
    assert_string_equal((char *)data, "hello 42");       /* the old one survived */
    free(data);
    assert_int_equal(file_read(&data, &size, path, 7, &e), SAMITE_INPUT);
    assert_int_equal(file_read(&data, &size, path, 8, &e), 0);
    free(data);
    assert_int_equal(make_folders(path, &e), SAMITE_INPUT);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(deep), 0);                    /* nothing else was left behind */
    free(deep);
    free(path);
}

static void test_file_errors(void **state)
{
    samite_error e;
    file_map m;
    file_writer w;
    const char *folder = temporary();
    assert_int_equal(file_map_open(&m, "/no/such/file", &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "/no/such/file"));
    assert_int_equal(file_map_open(&m, folder, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "folder"));
    assert_int_equal(file_map_open(&m, "/dev/zero", &e), SAMITE_INPUT);
    assert_int_equal(file_writer_open(&w, folder, &e), SAMITE_INPUT);
    assert_int_equal(file_writer_open(&w, "/no/such/file", &e), SAMITE_INPUT);
    assert_int_equal(file_writer_open(&w, "/dev/full", &e), 0);
    file_write(&w, "x", 1);
    assert_int_equal(file_writer_commit(&w, &e), SAMITE_RESOURCE);
    assert_non_null(strstr(e.text, "disk is full"));
    char *empty = path_join(folder, "empty");
    assert_int_equal(file_writer_open(&w, empty, &e), 0);
    assert_int_equal(file_writer_commit(&w, &e), 0);
    assert_int_equal(file_map_open(&m, empty, &e), 0);
    assert_null(m.data);
    file_map_close(&m);
    unlink(empty);
    free(empty);
    rmdir(folder);
}

/* A link stays a link: the file behind it is replaced, and keeps its mode. */
static void test_file_link(void **state)
{
    samite_error e;
    const char *folder = temporary();
    char *target = path_join(folder, "target"), *link = path_join(folder, "link");
    file_writer w;
    struct stat st;
    assert_int_equal(file_writer_open(&w, target, &e), 0);
    assert_int_equal(file_writer_commit(&w, &e), 0);
    assert_int_equal(chmod(target, 0600), 0);
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(file_writer_open(&w, link, &e), 0);
    file_write(&w, "new", 3);
    assert_int_equal(file_writer_commit(&w, &e), 0);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(st.st_mode & 0777, 0600);
    unlink(link);
    unlink(target);
    rmdir(folder);
    free(target);
    free(link);
}

static void test_threads(void **state)
{
    int cores = threads_available();
    assert_true(cores >= 1 && cores <= 4096);
    assert_int_equal(threads_set(3), 3);
    assert_int_equal(threads_count(), 3);
    assert_int_equal(threads_set(0), cores);
}

static void test_progress(void **state)
{
    progress p;
    progress_open(&p, true);
    assert_false(p.shown);
    progress_update(&p, "load", 1, 2);
    assert_string_equal(p.stage, "load");
    assert_true(p.done == 1 && p.total == 2 && p.last_draw == 0);
    double before = p.started;
    progress_update(&p, "encode", 0, 0);
    assert_true(p.started >= before && seconds_now() >= p.started);
    progress_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error),        cmocka_unit_test(test_arena),         cmocka_unit_test(test_arena_limit),
        cmocka_unit_test(test_half),         cmocka_unit_test(test_half_rounding), cmocka_unit_test(test_bfloat),
        cmocka_unit_test(test_other_types),  cmocka_unit_test(test_text),          cmocka_unit_test(test_natural_order),
        cmocka_unit_test(test_closest_word), cmocka_unit_test(test_name_map),      cmocka_unit_test(test_files),
        cmocka_unit_test(test_file_errors),  cmocka_unit_test(test_file_link),     cmocka_unit_test(test_threads),
        cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
