/* seams.c - masks of windows joined to whole objects, masks moved and cropped, TIFFs read in parts. */
#include "io/seams.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>
#include <unistd.h>

#include "io/image.h"
#include "io/region.h"

#define W 200
#define H 90
#define TILE 60
#define OVERLAP 16

/* The mask that shows the box x0 y0 x1 y1 of a picture, as window `w` sees it (NULL: all of it). */
static piece make_piece(const int box[4], const window *w, int index, float score)
{
    static uint8_t m[W * H];
    piece p = {.score = score, .window = index};
    window all = {0, 0, W, H};
    const window *see = w ? w : &all;
    memset(m, 0, sizeof m);
    for (int y = see->y0; y < see->y1; y++)
        for (int x = see->x0; x < see->x1; x++)
            m[y * W + x] = x >= box[0] && x < box[2] && y >= box[1] && y < box[3];
    assert_int_equal(rle_encode(&p.mask, m, W, H, NULL), SAMITE_OK);
    double b[4];
    rle_bbox(b, &p.mask);
    for (int k = 0; k < 4; k++)
        p.box[k] = (float)(b[k & 1] + (k > 1 ? b[k] : 0));
    return p;
}

static int make_windows(window *out)
{
    int across = window_count(W, TILE, OVERLAP), down = window_count(H, TILE, OVERLAP);
    for (int i = 0; i < across * down; i++) {
        int x = window_start(i % across, W, TILE, OVERLAP), y = window_start(i / across, H, TILE, OVERLAP);
        out[i] = (window){x, y, x + TILE, y + TILE};
    }
    return across * down;
}

/* Every window that sees something of the box finds that part. */
static int see_box(piece_list *l, const window *windows, int count, const int box[4], float score)
{
    int seen = 0;
    for (int i = 0; i < count; i++) {
        piece p = make_piece(box, &windows[i], i, score - 0.01f * (float)i);
        if (rle_area(&p.mask) == 0) {
            rle_free(&p.mask);
            continue;
        }
        assert_int_equal(pieces_add(l, &p, NULL), SAMITE_OK);
        seen++;
    }
    return seen;
}

static void check_box(const piece *p, const int box[4])
{
    piece whole = make_piece(box, NULL, -1, 0);
    assert_int_equal(p->mask.runs, whole.mask.runs);
    assert_memory_equal(p->mask.counts, whole.mask.counts, whole.mask.runs * sizeof *whole.mask.counts);
    for (int k = 0; k < 4; k++)
        assert_true(p->box[k] == (float)box[k]);
    rle_free(&whole.mask);
}

static void test_windows(void **state)
{
    (void)state;
    assert_int_equal(window_count(60, 60, 16), 1);
    assert_int_equal(window_count(61, 60, 16), 2);
    assert_int_equal(window_start(1, 61, 60, 16), 1);
    assert_int_equal(window_count(104, 60, 16), 2);
    assert_int_equal(window_count(105, 60, 16), 3);
    assert_int_equal(window_count(10, 60, 0), 1);
    window w[32];
    int n = make_windows(w);
    static uint8_t seen[W * H];
    for (int i = 0; i < n; i++)
        for (int y = w[i].y0; y < w[i].y1; y++)
            for (int x = w[i].x0; x < w[i].x1; x++)
                seen[y * W + x] = 1;
    assert_int_equal(w[n - 1].x1, W);
    assert_int_equal(w[n - 1].y1, H);
    assert_null(memchr(seen, 0, sizeof seen));
}

static void test_cut_objects_come_out_whole(void **state)
{
    (void)state;
    static const int boxes[][4] = {{40, 20, 70, 50},       /* cut by one edge */
                                   {50, 30, 190, 85},      /* cut by many, in both directions */
                                   {2, 2, 12, 12},         /* in one window */
                                   {46, 2, 58, 14},        /* within a strip: found twice, whole */
                                   {50, 40, 51, 41}};      /* a pixel that four windows see */
    window w[32];
    int n = make_windows(w);
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
        piece_list l = {0};
        int seen = see_box(&l, w, n, boxes[i], 0.9f);
        assert_true(i == 2 ? seen == 1 : seen > 1);
        float best = l.item[0].score;
        assert_int_equal(seams_join(&l, w, 0.5, NULL), SAMITE_OK);
        assert_int_equal(l.count, 1);
        check_box(&l.item[0], boxes[i]);
        assert_true(l.item[0].score == best);
        pieces_free(&l);
    }
}

static void test_neighbours_stay_apart(void **state)
{
    (void)state;
    static const int a[4] = {30, 10, 50, 50}, b[4] = {50, 10, 80, 50};      /* they touch inside a strip */
    window w[32];
    int n = make_windows(w);
    piece_list l = {0};
    see_box(&l, w, n, b, 0.8f);
    see_box(&l, w, n, a, 0.9f);
    assert_int_equal(seams_join(&l, w, 0.5, NULL), SAMITE_OK);
    assert_int_equal(l.count, 2);
    check_box(&l.item[0], a);
    check_box(&l.item[1], b);
    pieces_free(&l);
}

static void test_whole_picture(void **state)
{
    (void)state;
    static const int box[4] = {40, 20, 70, 50}, rough[4] = {39, 19, 72, 52}, other[4] = {100, 0, 200, 90};
    window w[32];
    int n = make_windows(w);
    piece_list l = {0};
    see_box(&l, w, n, box, 0.6f);
    piece p = make_piece(rough, NULL, -1, 0.95f), q = make_piece(other, NULL, -1, 0.3f);
    pieces_add(&l, &p, NULL);
    pieces_add(&l, &q, NULL);
    assert_int_equal(seams_join(&l, w, 0.5, NULL), SAMITE_OK);
    assert_int_equal(l.count, 2);
    check_box(&l.item[0], box);                  /* the sharper mask, the better score */
    assert_true(l.item[0].score == 0.95f);
    check_box(&l.item[1], other);                /* no window found it */
    pieces_free(&l);

    /* Two cut-off ends of an object whose middle no window found belong to the whole. */
    static const int object[4] = {0, 5, 200, 45}, left[4] = {0, 5, 60, 45}, right[4] = {140, 5, 200, 45},
                     small[4] = {110, 10, 120, 20};
    piece ends[4] = {make_piece(left, NULL, 0, 0.5f), make_piece(right, NULL, window_count(W, TILE, OVERLAP) - 1, 0.7f),
                     make_piece(object, NULL, -1, 0.6f), make_piece(small, NULL, 2, 0.4f)};
    for (int i = 0; i < 4; i++)
        pieces_add(&l, &ends[i], NULL);
    assert_int_equal(seams_join(&l, w, 0.5, NULL), SAMITE_OK);
    assert_int_equal(l.count, 2);                /* the small one is whole, and another object */
    check_box(&l.item[0], object);
    assert_true(l.item[0].score == 0.7f);
    check_box(&l.item[1], small);
    pieces_free(&l);
}

/* 640 objects, many on seams; the order in which windows are looked at does not matter. */
static void test_many(void **state)
{
    (void)state;
    window w[32];
    int n = make_windows(w);
    piece_list l = {0}, turned = {0};
    size_t objects = 0;
    for (int y = 1; y + 3 < H; y += 4)
        for (int x = 1; x + 4 < W; x += 6, objects++)
            see_box(&l, w, n, (int[]){x, y, x + 4, y + 3}, 1 - 0.001f * (float)objects);
    assert_true(objects > 600 && l.count > objects);
    for (size_t i = l.count; i-- > 0;) {
        piece copy = l.item[i];
        assert_int_equal(rle_copy(&copy.mask, &l.item[i].mask, NULL), SAMITE_OK);
        pieces_add(&turned, &copy, NULL);
    }
    assert_int_equal(seams_join(&l, w, 0.5, NULL), SAMITE_OK);
    assert_int_equal(seams_join(&turned, w, 0.5, NULL), SAMITE_OK);
    assert_int_equal(l.count, objects);
    assert_int_equal(turned.count, objects);
    for (size_t i = 0; i < objects; i++) {
        assert_int_equal(rle_area(&l.item[i].mask), 12);
        assert_true(i == 0 || l.item[i].score <= l.item[i - 1].score);
        assert_memory_equal(l.item[i].box, turned.item[i].box, sizeof l.item[i].box);
    }
    pieces_free(&l);
    pieces_free(&turned);
}

static void test_place_and_crop(void **state)
{
    (void)state;
    uint8_t part[7 * 5], all[W * H] = {0}, got[W * H];
    for (int i = 0; i < 35; i++)
        part[i] = i * 7 % 3 != 0;
    for (int y = 0; y < 5; y++)
        memcpy(all + (40 + y) * W + 20, part + y * 7, 7);
    rle r, placed, back;
    samite_error err;
    rle_encode(&r, part, 7, 5, NULL);
    assert_int_equal(rle_place(&placed, &r, 20, 40, W, H, NULL), SAMITE_OK);
    rle_decode(got, &placed);
    assert_memory_equal(got, all, sizeof all);
    assert_int_equal(rle_crop(&back, &placed, &(window){20, 40, 27, 45}, NULL), SAMITE_OK);
    assert_int_equal(back.runs, r.runs);
    assert_memory_equal(back.counts, r.counts, r.runs * sizeof *r.counts);
    rle_free(&back);
    assert_int_equal(rle_crop(&back, &placed, &(window){0, 42, 24, 90}, NULL), SAMITE_OK);
    rle_decode(got, &back);
    for (int y = 42; y < 90; y++)
        assert_memory_equal(got + (y - 42) * 24, all + y * W, 24);
    rle_free(&back);
    assert_int_equal(rle_place(&back, &r, W - 6, 0, W, H, &err), SAMITE_USAGE);
    rle_free(&r);
    rle_free(&placed);
}

/* ---- TIFF ---- */

static void write_tiff(const char *path, bool tiled, bool apart, uint16_t orientation)
{
    TIFF *t = TIFFOpen(path, "w");
    assert_non_null(t);
    TIFFSetField(t, TIFFTAG_IMAGEWIDTH, W);
    TIFFSetField(t, TIFFTAG_IMAGELENGTH, H);
    TIFFSetField(t, TIFFTAG_BITSPERSAMPLE, 8);
    TIFFSetField(t, TIFFTAG_SAMPLESPERPIXEL, 3);
    TIFFSetField(t, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_RGB);
    TIFFSetField(t, TIFFTAG_ORIENTATION, orientation);
    TIFFSetField(t, TIFFTAG_PLANARCONFIG, apart ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
    TIFFSetField(t, TIFFTAG_COMPRESSION, COMPRESSION_LZW);
    uint8_t buffer[64 * 64 * 3];
    int planes = apart ? 3 : 1, columns = tiled ? 64 : W, rows = tiled ? 32 : 7;
    TIFFSetField(t, tiled ? TIFFTAG_TILEWIDTH : TIFFTAG_ROWSPERSTRIP, tiled ? columns : rows);
    if (tiled)
        TIFFSetField(t, TIFFTAG_TILELENGTH, rows);
    for (int plane = 0; plane < planes; plane++)
        for (int y = 0; y < H; y += rows)
            for (int x = 0; x < W; x += columns) {
                for (int i = 0; i < rows * columns; i++)
                    for (int c = 0; c < 3 / planes; c++)
                        buffer[i * (3 / planes) + c] = (uint8_t)((x + i % columns) * 3 + (y + i / columns) * 5 +
                                                                 (c + plane) * 50);
                uint32_t index = tiled ? TIFFComputeTile(t, (uint32_t)x, (uint32_t)y, 0, (uint16_t)plane)
                                       : TIFFComputeStrip(t, (uint32_t)y, (uint16_t)plane);
                tmsize_t bytes = (tmsize_t)columns * (tiled || H - y > rows ? rows : H - y) * (3 / planes);
                assert_true(tiled ? TIFFWriteEncodedTile(t, index, buffer, bytes) > 0
                                  : TIFFWriteEncodedStrip(t, index, buffer, bytes) > 0);
            }
    TIFFClose(t);
}

static void test_regions(void **state)
{
    (void)state;
    char path[] = "/tmp/samite-seams-XXXXXX";
    int fd = mkstemp(path), width, height;
    samite_error err;
    tiff_regions *t;
    uint8_t got[50 * 40 * 3];
    close(fd);
    for (int kind = 0; kind < 4; kind++) {
        pixels all;
        write_tiff(path, kind & 1, kind & 2, 1);
        assert_int_equal(image_read(&all, path, NULL, NULL), SAMITE_OK);
        assert_int_equal(tiff_regions_open(&t, path, NULL), SAMITE_OK);
        tiff_regions_size(t, &width, &height);
        assert_true(width == W && height == H);
        for (int y = 0; y + 40 <= H; y += 25)
            for (int x = 0; x + 50 <= W; x += 37) {
                assert_int_equal(tiff_regions_read(t, got, x, y, 50, 40, NULL), SAMITE_OK);
                for (int i = 0; i < 40; i++)
                    assert_memory_equal(got + (size_t)i * 150, all.rgb + ((size_t)(y + i) * W + (size_t)x) * 3, 150);
            }
        assert_int_equal(all.rgb[3 * (5 * W + 9) + 2], (9 * 3 + 5 * 5 + 100) % 256);
        assert_int_equal(tiff_regions_read(t, got, W - 49, 0, 50, 40, &err), SAMITE_USAGE);
        tiff_regions_close(t);
        pixels_free(&all);
    }
    write_tiff(path, false, false, 6);
    assert_int_equal(tiff_regions_open(&t, path, &err), SAMITE_INPUT);
    assert_non_null(strstr(err.text, "upright"));
    assert_null(t);
    assert_int_equal(truncate(path, 300), 0);
    assert_int_not_equal(tiff_regions_open(&t, path, &err), SAMITE_OK);
    unlink(path);
    assert_int_equal(tiff_regions_open(&t, path, &err), SAMITE_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows), cmocka_unit_test(test_cut_objects_come_out_whole),
        cmocka_unit_test(test_neighbours_stay_apart), cmocka_unit_test(test_whole_picture), cmocka_unit_test(test_many),
        cmocka_unit_test(test_place_and_crop), cmocka_unit_test(test_regions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
