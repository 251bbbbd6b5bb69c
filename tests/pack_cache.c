/* pack_cache.c - packed weights in files: taken by the next model, never when they do not fit; a failing cache is no failure. */
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

#include "runtime/native.h"

#include <cmocka.h>

static char folder[] = "/tmp/samite-pack-XXXXXX";
static char file[64], cache[64];

static void run_command(const char *format, const char *what)
{
    char line[256];
    snprintf(line, sizeof line, format, what);
    assert_int_equal(system(line), 0);
}

static int set_up(void **state)
{
    samite_model *m;
    samite_error e;
    if (!mkdtemp(folder))
        return -1;
    snprintf(file, sizeof file, "%s/tiny.safetensors", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    if (samite_model_open(&m, "formula:tiny", NULL, &e))
        return -1;
    int code = samite_model_write(m, file, NULL, &e);
    samite_model_free(m);
    return code;
}

static int clean_up(void **state)
{
    run_command("rm -rf %s", folder);
    return 0;
}

static native *open_with(const char *where, const char *precision)
{
    native *n;
    samite_error e = {0};
    native_options o = {.precision = precision, .cache = where, .cache_least = 1};
    if (native_open(&n, file, &o, &e))
        print_error("%s\n", e.text);
    assert_non_null(n);
    return n;
}

/* Prepares everything and waits for the files; returns how many parts came from the cache. */
static int prepare(native *n)
{
    samite_error e = {0};
    assert_int_equal(native_prepare(n, PARTS_IMAGE | PARTS_TEXT | PARTS_GROUND | PARTS_MASKS, NULL, NULL, &e), 0);
    assert_int_equal(native_keep(n, &e), 0);
    return __builtin_popcountll(n->mapped);
}

static int files_kept(void)
{
    uint64_t bytes;
    int files;
    assert_int_equal(pack_cache_survey(cache, false, &bytes, &files, NULL), 0);
    return files;
}

static void clear(void)
{
    uint64_t bytes;
    int files;
    assert_int_equal(pack_cache_survey(cache, true, &bytes, &files, NULL), 0);
    assert_int_equal(files_kept(), 0);
}

/* The text encoder's answer to three tokens. */
static void say(const native *n, float *out, size_t room)
{
    static const int32_t ids[] = {1, 5, 2};
    samite_error e;
    run *r = run_open(&(run_options){.mode = RUN, .type = n->type}, &e);
    assert_non_null(r);
    tensor *t = text_forward(r, &n->net->text, run_indices(r, ids, 2, (int64_t[]){1, 3}));
    assert_true(run_ok(r) && (size_t)tensor_count(t) <= room);
    memset(out, 0, room * sizeof *out);
    memcpy(out, t->data, (size_t)tensor_count(t) * sizeof *out);
    run_close(r);
}

static void second_start_packs_nothing(void **state)
{
    static const char *const types[] = {"f32", "bf16", "int8"};
    float first[1024], second[1024];
    for (int i = 0; i < 3; i++) {
        native *n = open_with(cache, types[i]);
        assert_int_equal(prepare(n), 0);
        say(n, first, 1024);
        native_close(n);
        n = open_with(cache, types[i]);
        assert_true(prepare(n) >= 4);
        say(n, second, 1024);
        assert_memory_equal(first, second, sizeof first);
        native_release(n, PARTS_TEXT);
        say(n, second, 1024);                    /* mapped pages come back by themselves */
        assert_memory_equal(first, second, sizeof first);
        native_close(n);
    }
    clear();
}

static void gives_back_and_reads_again(void **state)
{
    float first[1024], second[1024];
    native *n = open_with(NULL, "f32");
    prepare(n);
    say(n, first, 1024);
    native_release(n, PARTS_TEXT);
    assert_false(n->ready[PART_TEXT]);
    prepare(n);
    say(n, second, 1024);
    assert_memory_equal(first, second, sizeof first);
    native_close(n);
}

static void other_weights_are_other_files(void **state)
{
    native *n = open_with(cache, "f32");
    prepare(n);
    native_close(n);
    int before = files_kept();
    run_command("touch -d 2001-01-01 %s", file);
    n = open_with(cache, "f32");
    assert_int_equal(prepare(n), 0);
    native_close(n);
    assert_int_equal(files_kept(), 2 * before);
    clear();
}

/* Overwrites the byte at `at` of all files, or cuts them there. */
static void damage(const char *how, long at)
{
    char line[256];
    if (strcmp(how, "cut") == 0)
        snprintf(line, sizeof line, "for f in %s/*/*.pack; do truncate -s %ld $f; done", cache, at);
    else
        snprintf(line, sizeof line, "for f in %s/*/*.pack; do printf '\\251' | dd of=$f bs=1 seek=%ld conv=notrunc "
                 "status=none; done", cache, at);
    assert_int_equal(system(line), 0);
}

static void damaged_files_are_packed_anew(void **state)
{
    static const struct { const char *how; long at; } cases[] = {
        {"cut", 0}, {"cut", 900}, {"byte", 0}, {"byte", 17}, {"byte", 801}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        native *n = open_with(cache, "f32");
        prepare(n);
        native_close(n);
        damage(cases[i].how, cases[i].at);
        n = open_with(cache, "f32");
        assert_int_equal(prepare(n), 0);
        native_close(n);
        n = open_with(cache, "f32");             /* the damaged files were replaced */
        assert_true(prepare(n) >= 4);
        native_close(n);
        clear();
    }
}

static void failing_is_no_failure(void **state)
{
    samite_error e = {0};
    native *n = open_with(file, "f32");          /* a folder that cannot be: it is a file */
    assert_int_equal(native_prepare(n, PARTS_TEXT, NULL, NULL, &e), 0);
    assert_true(native_keep(n, &e) != 0);
    assert_non_null(strstr(e.text, file));
    native_close(n);
}

static void clearing_leaves_others_alone(void **state)
{
    uint64_t bytes;
    int files;
    run_command("cd %s && mkdir -p 0123456789abcdef && cd 0123456789abcdef && touch 01.pack 02.pack.tmp-7-1 mine.txt", cache);
    run_command("cd %s && mkdir -p photos && touch photos/01.pack", cache);
    assert_int_equal(pack_cache_survey(cache, true, &bytes, &files, NULL), 0);
    assert_int_equal(files, 2);
    run_command("test -f %s/0123456789abcdef/mine.txt", cache);
    run_command("test -f %s/photos/01.pack", cache);
}

static void folder_follows_the_environment(void **state)
{
    setenv("SAMITE_CACHE_DIR", "/somewhere", 1);
    char *path = pack_cache_folder();
    assert_string_equal(path, "/somewhere");
    free(path);
    setenv("SAMITE_NO_CACHE", "1", 1);
    assert_null(pack_cache_folder());
    setenv("SAMITE_NO_CACHE", "0", 1);
    unsetenv("SAMITE_CACHE_DIR");
    setenv("XDG_CACHE_HOME", "/xdg", 1);
    path = pack_cache_folder();
    assert_string_equal(path, "/xdg/samite");
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(second_start_packs_nothing),
        cmocka_unit_test(gives_back_and_reads_again),
        cmocka_unit_test(other_weights_are_other_files),
        cmocka_unit_test(damaged_files_are_packed_anew),
        cmocka_unit_test(failing_is_no_failure),
        cmocka_unit_test(clearing_leaves_others_alone),
        cmocka_unit_test(folder_follows_the_environment),
    };
    return cmocka_run_group_tests(tests, set_up, clean_up);
}
