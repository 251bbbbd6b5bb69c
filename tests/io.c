/* io.c - pictures: every format and variant, bad files, the official resize, writers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "io/image.h"
#include "io/preprocess.h"

#include <cmocka.h>

#define FOLDER TEST_DATA "/io/"

static void read_fixture(pixels *p, const char *name, const image_options *opt)
{
    char path[512];
    samite_error err = {0};
    snprintf(path, sizeof path, FOLDER "%s", name);
    if (image_read(p, path, opt, &err) != SAMITE_OK)
        fail_msg("%s", err.text);
}

static uint8_t *read_bytes(size_t *size, const char *name)
{
    char path[512];
    uint8_t *data;
    snprintf(path, sizeof path, FOLDER "%s", name);
    assert_int_equal(file_read(&data, size, path, 1 << 20, NULL), SAMITE_OK);
    return data;
}

static int largest_difference(const pixels *a, const pixels *b)
{
    int largest = 0;
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->height, b->height);
    for (size_t i = 0; i < (size_t)a->width * (size_t)a->height * 3; i++) {
        int d = abs(a->rgb[i] - b->rgb[i]);
        largest = d > largest ? d : largest;
    }
    return largest;
}

/* Calls `visit` with the words of every line of cases.txt that starts with `kind`; returns how many. */
static int each_case(const char *kind, void (*visit)(char word[4][64]))
{
    FILE *f = fopen(FOLDER "cases.txt", "r");
    char line[320], first[16], word[4][64];
    int count = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(sscanf(line, "%15s %63s %63s %63s %63s", first, word[0], word[1], word[2], word[3]), 5);
        if (strcmp(first, kind) != 0)
            continue;
        visit(word);
        count++;
    }
    fclose(f);
    return count;
}

static void check_decode(char word[4][64])
{
    pixels p, expected;
    read_fixture(&p, word[0], NULL);
    read_fixture(&expected, word[1], NULL);
    int d = largest_difference(&p, &expected);
    if (d > atoi(word[2]))
        fail_msg("%s differs from %s by %d levels", word[0], word[1], d);
    if (p.exif_orientation != atoi(word[3]))
        fail_msg("%s: orientation %d, expected %s", word[0], p.exif_orientation, word[3]);
    assert_true(p.exif_applied);
    assert_false(p.truncated);
    pixels_free(&p);
    pixels_free(&expected);
}

static void test_decode(void **state)
{
    (void)state;
    assert_true(each_case("decode", check_decode) >= 90);
}

static void test_exif_off(void **state)
{
    (void)state;
    image_options as_stored = {.apply_exif = false};
    pixels turned, stored, plain;
    read_fixture(&turned, "exif6.jpg", NULL);
    read_fixture(&stored, "exif6.jpg", &as_stored);
    read_fixture(&plain, "exif1.jpg", NULL);
    assert_int_equal(stored.exif_orientation, 6);
    assert_false(stored.exif_applied);
    assert_int_equal(turned.width, stored.height);
    assert_int_equal(largest_difference(&stored, &plain), 0);
    pixels_free(&turned);
    pixels_free(&stored);
    pixels_free(&plain);
}

/* The message must be one line that names the file and says `part`. */
static void expect_refusal(const uint8_t *data, size_t size, const image_options *opt, const char *part)
{
    pixels p;
    samite_error err = {0};
    assert_int_equal(image_decode(&p, data, size, "a.jpg", opt, &err), SAMITE_INPUT);
    assert_null(p.rgb);
    assert_null(strchr(err.text, '\n'));
    if (strncmp(err.text, "a.jpg: ", 7) != 0 || !strstr(err.text, part))
        fail_msg("expected \"%s\" in \"%s\"", part, err.text);
}

static void test_strangers(void **state)
{
    (void)state;
    static const struct { const char *bytes; size_t size; const char *part; } cases[] = {
        {"", 0, "empty"},
        {"GIF89a\1\0\1\0", 10, "GIF"},
        {"\0\0\0\x18" "ftypheic\0\0\0\0", 16, "HEIC"},
        {"\0\0\0\x1c" "ftypavif\0\0\0\0", 16, "AVIF"},
        {"\0\0\0\x18" "ftypisom\0\0\0\0", 16, "video"},
        {"%PDF-1.7\n", 9, "PDF"},
        {"  <!DOCTYPE html><html>", 23, "HTML"},
        {"<?xml version=\"1.0\"?><svg/>", 27, "SVG"},
        {"{\"error\": 404}", 14, "JSON"},
        {"PK\3\4abcd", 8, "zip"},
        {"version https://git-lfs.github.com/spec/v1", 42, "Git LFS"},
        {"\1\2abc", 5, "first bytes 01 02 61 62 63 \"..abc\""},
        {"\xff\xd8\xff", 3, "JPEG"},
        {"\x89PNG\r\n\x1a\n", 8, "PNG"},
        {"RIFF\4\0\0\0WEBP", 12, "WebP"},
        {"II*\0", 4, "TIFF"},
        {"BM", 2, "BMP"},
        {"P6", 2, "PNM"},
        {"P5 3 x", 6, "PNM"},
        {"P5 0 3 255\n", 11, "no pixels"},
        {"P2 2 1 255 3 z", 14, "sample"},
        {"P3 1 1 200 3 4 201\n", 19, "at most 200"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refusal((const uint8_t *)cases[i].bytes, cases[i].size, NULL, cases[i].part);
}

static void test_bombs(void **state)
{
    (void)state;
    size_t size;
    uint8_t *png = read_bytes(&size, "png_rgb8.png");
    memcpy(png + 16, "\0\1\x86\xa0\0\1\x86\xa0", 8);    /* 100000 x 100000; the checksum no longer fits either */
    expect_refusal(png, size, NULL, "PNG");
    free(png);
    const char *pnm = "P6 100000 100000 255\n";
    expect_refusal((const uint8_t *)pnm, strlen(pnm), NULL, "limit");
    pnm = "P6 10000 10000 255\n";
    expect_refusal((const uint8_t *)pnm, strlen(pnm), NULL, "truncated");
    static const uint8_t bmp[54] = {'B', 'M', [10] = 54, [14] = 40, [20] = 16, [24] = 16, [26] = 1, [28] = 24};
    expect_refusal(bmp, sizeof bmp, NULL, "limit");
    image_options small = {.max_pixels = 37 * 26 - 1};
    const char *names[] = {"jpeg_420.jpg",   "png_gray1.png", "webp_lossy.webp",
                           "tiff_tiles.tif", "p4.pbm",        "bmp8_rle.bmp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint8_t *data = read_bytes(&size, names[i]);
        expect_refusal(data, size, &small, "limit of 961 pixels");
        free(data);
    }
}

/* Cut anywhere and damaged anywhere: an error of one line or a picture, never more than that; half a file is no
 * picture. */
static void check_damaged(char word[4][64])
{
    size_t size;
    uint8_t *data = read_bytes(&size, word[0]);
    uint32_t random = 1;
    for (size_t n = 0; n < size; n += size / 40 + 1) {
        uint8_t *cut = malloc(n + 1);
        pixels p;
        samite_error err = {0};
        memcpy(cut, data, n);
        int code = image_decode(&p, cut, n, word[0], NULL, &err);
        assert_true(code == SAMITE_OK ? p.rgb != NULL : err.text[0] && !strchr(err.text, '\n'));
        if (n < size / 2 && code == SAMITE_OK)
            fail_msg("%zu of %zu bytes of %s are taken for a picture", n, size, word[0]);
        pixels_free(&p);
        free(cut);
    }
    for (int round = 0; round < 40; round++) {
        uint8_t *bad = malloc(size);
        pixels p;
        image_options opt = {.apply_exif = true, .max_pixels = 1 << 20};
        memcpy(bad, data, size);
        for (int k = 0; k <= round % 4; k++) {
            random = random * 1664525 + 1013904223;
            bad[random % size] = (uint8_t)(random >> 24);
        }
        samite_error err = {0};
        if (image_decode(&p, bad, size, word[0], &opt, &err) != SAMITE_OK)
            assert_true(err.text[0] && !strchr(err.text, '\n'));
        pixels_free(&p);
        free(bad);
    }
    free(data);
}

static void test_damaged(void **state)
{
    (void)state;
    each_case("decode", check_damaged);
}

static void test_keep_truncated(void **state)
{
    (void)state;
    const char *names[] = {"jpeg_444.jpg", "jpeg_progressive.jpg", "png_rgb8.png", "bmp24.bmp", "bmp8_rle.bmp"};
    image_options keep = {.apply_exif = true, .keep_truncated = true};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size;
        pixels p, whole;
        samite_error err = {0};
        uint8_t *data = read_bytes(&size, names[i]);
        size = size * 3 / 4;
        expect_refusal(data, size, NULL, "truncated");
        if (image_decode(&p, data, size, names[i], &keep, &err) != SAMITE_OK)
            fail_msg("%s", err.text);
        assert_true(p.truncated);
        read_fixture(&whole, names[i], NULL);
        assert_int_equal(p.width, whole.width);
        size_t end = strstr(names[i], "bmp") ? (size_t)p.width * (size_t)p.height * 3 : (size_t)p.width * 3;
        if (!strstr(names[i], "progressive"))    /* there all rows are blurred instead */
            assert_memory_equal(p.rgb + end - (size_t)p.width * 3, whole.rgb + end - (size_t)p.width * 3,
                                (size_t)p.width * 3);
        pixels_free(&p);
        pixels_free(&whole);
        free(data);
    }
}

static void check_resize(char word[4][64])
{
    pixels in, expected, got = {.width = atoi(word[1]), .height = atoi(word[2])};
    read_fixture(&in, word[0], NULL);
    read_fixture(&expected, word[3], NULL);
    got.rgb = malloc((size_t)got.width * (size_t)got.height * 3);
    assert_int_equal(resize_rgb(got.rgb, got.width, got.height, &in, NULL), SAMITE_OK);
    if (largest_difference(&got, &expected) != 0)
        fail_msg("%s resized to %s x %s differs from %s", word[0], word[1], word[2], word[3]);
    if (got.width == got.height) {
        float *scaled = malloc((size_t)got.width * (size_t)got.width * 3 * sizeof *scaled);
        assert_int_equal(preprocess(scaled, &in, got.width, NULL), SAMITE_OK);
        for (size_t i = 0; i < (size_t)got.width * (size_t)got.width * 3; i++)
            assert_true(scaled[i] >= got.rgb[i] / 127.5f - 1 - 1e-6f && scaled[i] <= got.rgb[i] / 127.5f - 1 + 1e-6f);
        free(scaled);
    }
    pixels_free(&in);
    pixels_free(&expected);
    pixels_free(&got);
}

static void test_resize(void **state)
{
    (void)state;
    assert_true(each_case("resize", check_resize) >= 10);
    pixels none = {0};
    samite_error err = {0};
    uint8_t out[3];
    assert_int_equal(resize_rgb(out, 1, 1, &none, &err), SAMITE_USAGE);
}

/* A plain picture stays plain at any size, and a very long one costs no more memory than its weights. */
static void test_resize_extremes(void **state)
{
    (void)state;
    const int sizes[][2] = {{1, 1}, {1, 5000}, {30000, 2}, {200, 3000}};
    float out[14 * 14 * 3];
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pixels p = {.width = sizes[i][0], .height = sizes[i][1]};
        size_t bytes = (size_t)p.width * (size_t)p.height * 3;
        p.rgb = malloc(bytes);
        memset(p.rgb, 255, bytes);
        assert_int_equal(preprocess(out, &p, 14, NULL), SAMITE_OK);
        for (int k = 0; k < 14 * 14 * 3; k++)
            assert_true(out[k] > 0.98f && out[k] <= 1.0f);
        pixels_free(&p);
    }
}

static char *in_temporary(char *path, size_t room, const char *name)
{
    static char folder[64];
    if (!folder[0]) {
        strcpy(folder, "/tmp/samite-io-XXXXXX");
        assert_non_null(mkdtemp(folder));
    }
    snprintf(path, room, "%s/%s", folder, name);
    return path;
}

static void test_write_png(void **state)
{
    (void)state;
    enum { W = 11, H = 5, N = W * H };
    static const int channels[] = {
        [PNG_BIT] = 1, [PNG_GRAY8] = 1, [PNG_GRAY16] = 1, [PNG_PALETTE] = 1, [PNG_RGB8] = 3, [PNG_RGBA8] = 4};
    uint8_t bytes[N * 4], palette[5 * 3];
    uint16_t wide[N];
    char path[128];
    for (int i = 0; i < N * 4; i++)
        bytes[i] = (uint8_t)(i * 37);
    for (int i = 0; i < 15; i++)
        palette[i] = (uint8_t)(i * 17);
    for (png_kind kind = PNG_BIT; kind <= PNG_RGBA8; kind++) {
        uint8_t data[N * 4];
        for (int i = 0; i < N * 4; i++)
            data[i] = kind == PNG_PALETTE ? bytes[i] % 5 : kind == PNG_BIT ? bytes[i] & 4 : bytes[i];
        for (int i = 0; i < N; i++)
            wide[i] = (uint16_t)(i * 1021);
        png_image_data image = {W, H, kind, kind == PNG_GRAY16 ? (void *)wide : (void *)data, palette, 5};
        assert_int_equal(image_write_png(in_temporary(path, sizeof path, "a.png"), &image, NULL), SAMITE_OK);
        pixels p;
        assert_int_equal(image_read(&p, path, NULL, NULL), SAMITE_OK);
        assert_int_equal(p.width, W);
        for (int i = 0; i < N * 3; i++) {
            int v = data[i / 3 * channels[kind] + (channels[kind] >= 3 ? i % 3 : 0)];
            v = kind == PNG_BIT       ? (v ? 255 : 0)
                : kind == PNG_GRAY16  ? wide[i / 3] >> 8
                : kind == PNG_PALETTE ? palette[v * 3 + i % 3]
                                      : v;
            assert_int_equal(p.rgb[i], v);
        }
        pixels_free(&p);
        unlink(path);
    }
    samite_error err = {0};
    png_image_data image = {W, H, PNG_GRAY8, bytes, NULL, 0};
    assert_int_not_equal(image_write_png("/nonexistent/folder/a.png", &image, &err), SAMITE_OK);
    assert_non_null(strstr(err.text, "/nonexistent/folder/a.png"));
}

static void test_write_jpeg(void **state)
{
    (void)state;
    pixels in, out;
    char path[128];
    read_fixture(&in, "png_rgb8.png", NULL);
    assert_int_equal(image_write_jpeg(in_temporary(path, sizeof path, "a.jpg"), in.rgb, in.width, in.height, 95, NULL),
                     SAMITE_OK);
    assert_int_equal(image_read(&out, path, NULL, NULL), SAMITE_OK);
    assert_string_equal(out.format, "JPEG");
    assert_true(largest_difference(&in, &out) < 120);
    long sum = 0, n = (long)in.width * in.height * 3;
    for (long i = 0; i < n; i++)
        sum += abs(in.rgb[i] - out.rgb[i]);
    assert_true(sum < 6 * n);
    assert_int_equal(image_write_jpeg(path, in.rgb, 70000, 1, 90, NULL), SAMITE_USAGE);
    unlink(path);
    rmdir(in_temporary(path, sizeof path, ""));
    pixels_free(&in);
    pixels_free(&out);
}

static void test_missing_file(void **state)
{
    (void)state;
    pixels p;
    samite_error err = {0};
    assert_int_equal(image_read(&p, FOLDER "no-such-file.jpg", NULL, &err), SAMITE_INPUT);
    assert_non_null(strstr(err.text, "no-such-file.jpg"));
    assert_true(image_has_known_ending("a/b.JPG") && image_has_known_ending("x.webp"));
    assert_false(image_has_known_ending("jpg") || image_has_known_ending("a.txt"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode), cmocka_unit_test(test_exif_off), cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_bombs), cmocka_unit_test(test_damaged), cmocka_unit_test(test_keep_truncated),
        cmocka_unit_test(test_resize), cmocka_unit_test(test_resize_extremes), cmocka_unit_test(test_write_png),
        cmocka_unit_test(test_write_jpeg), cmocka_unit_test(test_missing_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
