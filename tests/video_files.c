/* video_files.c - what comes as a video: rates, rotation, odd and broken files, folders, pipes, cameras. */
#define _GNU_SOURCE
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

#include <libavformat/avformat.h>
#include <libavutil/display.h>

#include "samite.h"

#include <cmocka.h>       /* last: it has a macro called fail */

#define WIDTH  48
#define HEIGHT 32

static char folder[64], name[128];

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/samite-files-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static const char *in_folder(const char *file)
{
    snprintf(name, sizeof name, "%s/%s", folder, file);
    return name;
}

/* ---- making ---- */

/* Every frame of one grey, 20 brighter from one to the next; the left half is dark. */
static void make_movie(const char *path, int width, int height, const double *times, int frames)
{
    samite_movie *m;
    samite_pixels p = {width, height, malloc(3 * (size_t)width * (size_t)height), 1, 0};
    assert_int_equal(samite_movie_open(&m, path, width, height, 10, NULL), 0);
    for (int f = 0; f < frames; f++) {
        for (int i = 0; i < 3 * width * height; i++)
            p.rgb[i] = i / 3 % width < width / 2 ? 16 : (uint8_t)(40 + 20 * f);
        assert_int_equal(samite_movie_add(m, &p, times[f], NULL), 0);
    }
    assert_int_equal(samite_movie_finish(m, NULL), 0);
    samite_pixels_free(&p);
}

/* The streams of `from` in another file, to be shown turned by `degrees`. */
static void copy_turned(const char *from, const char *to, double degrees)
{
    AVFormatContext *in = NULL, *out = NULL;
    AVPacket *packet = av_packet_alloc();
    assert_int_equal(avformat_open_input(&in, from, NULL, NULL), 0);
    assert_true(avformat_find_stream_info(in, NULL) >= 0);
    assert_true(avformat_alloc_output_context2(&out, NULL, "mov", to) >= 0);
    AVStream *video = avformat_new_stream(out, NULL);
    assert_non_null(video);
    assert_true(avcodec_parameters_copy(video->codecpar, in->streams[0]->codecpar) >= 0);
    video->codecpar->codec_tag = 0;
    int32_t matrix[9];
    av_display_rotation_set(matrix, degrees);
    uint8_t *side = av_stream_new_side_data(video, AV_PKT_DATA_DISPLAYMATRIX, sizeof matrix);
    assert_non_null(side);
    memcpy(side, matrix, sizeof matrix);
    assert_true(avio_open(&out->pb, to, AVIO_FLAG_WRITE) >= 0);
    assert_true(avformat_write_header(out, NULL) >= 0);
    while (av_read_frame(in, packet) >= 0) {
        av_packet_rescale_ts(packet, in->streams[0]->time_base, video->time_base);
        packet->stream_index = 0;
        assert_true(av_interleaved_write_frame(out, packet) >= 0);
    }
    assert_int_equal(av_write_trailer(out), 0);
    avio_closep(&out->pb);
    avformat_free_context(out);
    avformat_close_input(&in);
    av_packet_free(&packet);
}

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
}

static char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*size + 1);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

/* ---- reading ---- */

static samite_clip *open_clip(const char *path, unsigned flags)
{
    samite_clip *c;
    samite_error e = {0};
    if (samite_clip_open(&c, path, flags, &e))
        fail_msg("%s", e.text);
    return c;
}

static void refused(const char *path, int code, const char *says)
{
    samite_clip *c;
    samite_error e = {0};
    assert_int_equal(samite_clip_open(&c, path, 0, &e), code);
    assert_null(c);
    if (!strstr(e.text, says) || strchr(e.text, '\n'))
        fail_msg("\"%s\" does not say \"%s\" in one line", e.text, says);
}

/* Reads to the end; every frame has that size (0: any). Returns how many there were. */
static int count_frames(samite_clip *c, int width, int height)
{
    samite_pixels p;
    int64_t found;
    int n = 0, code;
    double time, last = -1;
    while ((code = samite_clip_read(c, -1, &p, &found, &time, NULL)) == 1) {
        assert_int_equal(found, n++);
        assert_true(!width || (p.width == width && p.height == height));
        assert_true(time >= last);
        last = time;
        samite_pixels_free(&p);
    }
    assert_int_equal(code, 0);
    return n;
}

static const char *damage_of(samite_clip *c)
{
    samite_clip_info info = {.size = sizeof info};
    samite_clip_describe(c, &info);
    return info.damage;
}

static int frames_of(const char *path, int width, int height)
{
    samite_clip *c = open_clip(path, 0);
    int n = count_frames(c, width, height);
    samite_clip_free(c);
    return n;
}

static const double regular[] = {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7};
enum { REGULAR = 8 };

static void variable_rate(void **state)
{
    static const double times[] = {0, 0.1, 0.5, 0.6, 1.9, 2.0};
    make_movie(in_folder("v.mkv"), WIDTH, HEIGHT, times, 6);
    samite_clip *c = open_clip(name, 0);
    for (int backward = 0; backward < 2; backward++)
        for (int i = 0; i < 6; i++) {
            int f = backward ? 5 - i : i;
            samite_pixels p;
            int64_t found;
            double time;
            assert_int_equal(samite_clip_read(c, backward ? f : -1, &p, &found, &time, NULL), 1);
            assert_int_equal(found, f);
            assert_float_equal(time, times[f], 2e-3);
            samite_pixels_free(&p);
        }
    samite_clip_free(c);
}

static void rotation(void **state)
{
    char straight[128];
    make_movie(in_folder("straight.mp4"), WIDTH, HEIGHT, regular, 3);
    strcpy(straight, name);
    copy_turned(straight, in_folder("turned.mov"), 90);
    samite_clip *c = open_clip(name, 0);
    samite_pixels p;
    assert_int_equal(samite_clip_read(c, -1, &p, NULL, NULL, NULL), 1);
    assert_true(p.width == HEIGHT && p.height == WIDTH);
    int top = p.rgb[3 * (4 * HEIGHT + HEIGHT / 2)], bottom = p.rgb[3 * ((WIDTH - 4) * HEIGHT + HEIGHT / 2)];
    assert_true(top < 30 && bottom > 30);       /* a quarter with the clock: what was left is at the top */
    samite_pixels_free(&p);
    samite_clip_free(c);
    c = open_clip(in_folder("turned.mov"), SAMITE_NO_EXIF);
    assert_int_equal(count_frames(c, WIDTH, HEIGHT), frames_of(name, HEIGHT, WIDTH));
    samite_clip_free(c);
}

static void sizes_and_lengths(void **state)
{
    make_movie(in_folder("odd.mp4"), 47, 31, regular, 2);
    assert_int_equal(frames_of(name, 48, 32), 2);       /* encoders want even sizes: the last row is doubled */
    make_movie(in_folder("one.mp4"), WIDTH, HEIGHT, regular, 1);
    assert_int_equal(frames_of(name, WIDTH, HEIGHT), 1);
    make_movie(in_folder("small.avi"), 2, 2, regular, 2);
    assert_int_equal(frames_of(name, 2, 2), 2);
}

static void broken_files(void **state)
{
    size_t size;
    write_file(in_folder("empty.mp4"), "", 0);
    refused(name, SAMITE_INPUT, "empty");
    make_movie(in_folder("whole.mp4"), WIDTH, HEIGHT, regular, REGULAR);
    char *data = read_file(name, &size);
    write_file(in_folder("short.mp4"), data, size / 2);
    refused(name, SAMITE_INPUT, "short.mp4");
    free(data);
    make_movie(in_folder("whole.mkv"), WIDTH, HEIGHT, regular, REGULAR);
    data = read_file(name, &size);
    for (size_t part = 1; part < 8; part++) {
        samite_clip *c;
        write_file(in_folder("part.mkv"), data, size * part / 8);
        if (samite_clip_open(&c, name, 0, NULL))
            continue;
        assert_true(count_frames(c, WIDTH, HEIGHT) <= REGULAR);
        samite_clip_free(c);
    }
    free(data);
}

/* What is wrong with a file that was read to its end, or NULL. */
static const char *read_damage(const char *path, int least, int most)
{
    static char text[256];
    samite_clip *c = open_clip(path, 0);
    int n = count_frames(c, 0, 0);
    if (n < least || n > most)
        fail_msg("%s: %d frames, expected %d to %d", path, n, least, most);
    const char *d = damage_of(c);
    snprintf(text, sizeof text, "%s", d ? d : "");
    samite_clip_free(c);
    return d ? text : NULL;
}

static void no_damage(const char *path, int frames)
{
    const char *d = read_damage(path, frames, frames);
    if (d)
        fail_msg("%s: %s", path, d);
}

/* The first `size` bytes of a file are read up to where they go, and what is missing is told. */
static void cut_is_told(const char *data, size_t size, const char *ending, int most)
{
    char file[32];
    snprintf(file, sizeof file, "cut%s", ending);
    write_file(in_folder(file), data, size);
    if (!read_damage(name, 0, most))
        fail_msg("%s: %zu bytes, and nothing is told", file, size);
}

/* The same movie with its index in front, as files made for the web have it. */
static void put_index_first(const char *from, const char *to)
{
    AVFormatContext *in = NULL, *out = NULL;
    AVPacket *p = av_packet_alloc();
    AVDictionary *o = NULL;
    assert_int_equal(avformat_open_input(&in, from, NULL, NULL), 0);
    assert_true(avformat_find_stream_info(in, NULL) >= 0);
    assert_true(avformat_alloc_output_context2(&out, NULL, NULL, to) >= 0);
    AVStream *s = avformat_new_stream(out, NULL);
    assert_true(avcodec_parameters_copy(s->codecpar, in->streams[0]->codecpar) >= 0);
    s->time_base = in->streams[0]->time_base;
    s->codecpar->codec_tag = 0;
    av_dict_set(&o, "movflags", "faststart", 0);
    assert_true(avio_open(&out->pb, to, AVIO_FLAG_WRITE) >= 0);
    assert_true(avformat_write_header(out, &o) >= 0);
    while (av_read_frame(in, p) >= 0) {
        p->duration = av_rescale_q(1, (AVRational){1, 10}, in->streams[0]->time_base);
        av_packet_rescale_ts(p, in->streams[0]->time_base, s->time_base);
        assert_true(av_interleaved_write_frame(out, p) >= 0);
    }
    assert_int_equal(av_write_trailer(out), 0);
    av_packet_free(&p);
    av_dict_free(&o);
    avio_closep(&out->pb);
    avformat_free_context(out);
    avformat_close_input(&in);
}

static void cut_behind_its_index(void **state)
{
    double times[12];
    char from[128];
    size_t size;
    for (int i = 0; i < 12; i++)
        times[i] = 0.1 * i;
    make_movie(in_folder("late.mp4"), WIDTH, HEIGHT, times, 12);
    snprintf(from, sizeof from, "%s", name);
    put_index_first(from, in_folder("early.mp4"));
    no_damage(name, 12);
    char *data = read_file(name, &size);
    const char *frames = memmem(data, size, "mdat", 4);
    assert_non_null(frames);
    assert_true(frames > (const char *)memmem(data, size, "moov", 4));
    size_t head = (size_t)(frames - data);
    for (size_t part = 1; part < 8; part++)
        cut_is_told(data, head + (size - head) * part / 8, ".mp4", 11);
    free(data);
}

static void cut_containers(void **state)
{
    static const char *const ending[] = {".avi", ".mkv", ".ts"};
    double times[12];
    size_t size;
    for (int i = 0; i < 12; i++)
        times[i] = 0.1 * i;
    make_movie(in_folder("long.mp4"), WIDTH, HEIGHT, times, 12);
    no_damage(name, 12);
    for (int i = 0; i < 3; i++) {
        char file[32];
        snprintf(file, sizeof file, "long%s", ending[i]);
        make_movie(in_folder(file), WIDTH, HEIGHT, times, 12);
        no_damage(name, 12);
        char *data = read_file(name, &size);
        const char *frames = memmem(data, size, "movi", 4);     /* behind an AVI file's long head */
        size_t head = frames ? (size_t)(frames - data) : 0;
        cut_is_told(data, head + (size - head) / 2 + 1, ending[i], 11);
        free(data);
    }
}

/* ---- folders ---- */

static void write_ppm(const char *path, int width, int height, int value)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "P6 %d %d 255\n", width, height);
    for (int i = 0; i < 3 * width * height; i++)
        fputc(value, f);
    fclose(f);
}

/* Of seven pictures the third cannot be read: the others keep their numbers, in both directions. */
static void left_out(const char *list)
{
    samite_clip *c = open_clip(list, SAMITE_SKIP_BAD);
    samite_pixels p;
    int64_t found;
    for (int i = 0; i < 7; i++) {
        if (i == 2)
            continue;
        assert_int_equal(samite_clip_read(c, -1, &p, &found, NULL, NULL), 1);
        assert_int_equal(found, i);
        samite_pixels_free(&p);
    }
    assert_int_equal(samite_clip_read(c, -1, &p, &found, NULL, NULL), 0);
    for (int i = 6; i >= 0; i--) {
        assert_int_equal(samite_clip_read(c, i, &p, &found, NULL, NULL), 1);
        assert_int_equal(found, i == 2 ? 3 : i);
        samite_pixels_free(&p);
    }
    assert_non_null(strstr(damage_of(c), "3.png"));
    samite_clip_free(c);
}

static void folders(void **state)
{
    static const char *const order[] = {"1.ppm", "2.ppm", "10.ppm", "a.ppm", "shot2.ppm", "shot11.ppm"};
    char path[192], list[128];
    snprintf(list, sizeof list, "%s/frames", folder);
    mkdir(list, 0700);
    for (int i = 5; i >= 0; i--) {
        snprintf(path, sizeof path, "%s/%s", list, order[i]);
        write_ppm(path, i == 3 ? 9 : 6, i == 4 ? 7 : 4, 10 * i);
    }
    snprintf(path, sizeof path, "%s/readme.txt", list);
    write_file(path, "no picture", 10);
    snprintf(path, sizeof path, "%s/below.png", list);
    mkdir(path, 0700);
    samite_clip *c = open_clip(list, 0);
    for (int i = 0; i < 6; i++) {
        samite_pixels p;
        assert_int_equal(samite_clip_read(c, -1, &p, NULL, NULL, NULL), 1);
        assert_true(p.width == 6 && p.height == 4);
        assert_int_equal(p.rgb[0], 10 * i);
        samite_pixels_free(&p);
    }
    samite_clip_free(c);
    refused(path, SAMITE_INPUT, "no pictures");
    snprintf(path, sizeof path, "%s/3.png", list);
    write_file(path, "no picture", 10);
    c = open_clip(list, 0);
    samite_pixels p;
    samite_error e = {0};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(samite_clip_read(c, -1, &p, NULL, NULL, NULL), 1);
        samite_pixels_free(&p);
    }
    assert_int_equal(samite_clip_read(c, -1, &p, NULL, NULL, &e), SAMITE_INPUT);
    assert_non_null(strstr(e.text, "3.png"));
    samite_clip_free(c);
    left_out(list);
}

/* ---- without a container ---- */

static void bare_frames(void **state)
{
    static const char head[] = "YUV4MPEG2 W16 H8 F10:1 Ip A1:1 C420jpeg\n";
    char data[sizeof head + 3 * (6 + 16 * 8 * 3 / 2)], path[192];
    size_t at = sizeof head - 1;
    memcpy(data, head, at);
    for (int f = 0; f < 3; f++) {
        memcpy(data + at, "FRAME\n", 6);
        memset(data + at + 6, 100 + f, 16 * 8 * 3 / 2);
        at += 6 + 16 * 8 * 3 / 2;
    }
    write_file(in_folder("a.y4m"), data, at);
    assert_int_equal(frames_of(name, 16, 8), 3);
    write_file(in_folder("cut.y4m"), data, at - 50);
    assert_int_equal(frames_of(name, 16, 8), 2);
    no_damage(in_folder("a.y4m"), 3);
    cut_is_told(data, at - 50, ".y4m", 2);
    cut_is_told(data, at - 16 * 8 * 3 / 2 - 3, ".y4m", 2);      /* within a frame's head */
    size_t size;
    char *jpeg = read_file(TEST_DATA "/io/jpeg_420.jpg", &size), *three = malloc(3 * size);
    for (int f = 0; f < 3; f++)
        memcpy(three + f * size, jpeg, size);
    write_file(in_folder("a.mjpeg"), three, 3 * size);
    no_damage(name, 3);
    cut_is_told(three, 3 * size - size / 3, ".mjpeg", 3);
    free(jpeg);
    free(three);
    write_file(in_folder("a.rgb"), data, 4 * 4 * 3 * 4 + 5);
    snprintf(path, sizeof path, "raw:4x4@8:%s", name);
    samite_clip *c = open_clip(path, 0);
    assert_int_equal(count_frames(c, 4, 4), 4);
    assert_non_null(damage_of(c));
    samite_clip_free(c);
}

/* Opening a camera fails with a line that holds `says`, or with the build's own remark that it has no cameras. */
static void no_camera(const char *path, const char *says)
{
    samite_clip *c;
    samite_error e = {0};
    int code = samite_clip_open(&c, path, 0, &e);
    const char *expected = code == SAMITE_USAGE ? "knows no device" : says;
    if (!code || strchr(e.text, '\n') || !strstr(e.text, expected))
        fail_msg("%s: %d, \"%s\"", path, code, e.text);
}

/* A source of FFmpeg's own stands for a camera where it is built in: the same code reads both. */
static void cameras(void **state)
{
    samite_clip *c;
    samite_error e = {0};
    char path[192];
    refused("device:v4l2", SAMITE_USAGE, "device:FORMAT:NAME");
    refused("device:nothing:x", SAMITE_USAGE, "nothing");
    no_camera("device:v4l2:/no/such/camera", "there is no");
    no_camera("device:v4l2:/dev/null", "is no camera");
    write_file(in_folder("locked"), "x", 1);
    snprintf(path, sizeof path, "device:v4l2:%s", name);
    no_camera(path, "is no camera");
    if (geteuid() && chmod(name, 0) == 0)
        no_camera(path, "may not be read");
    if (samite_clip_open(&c, "device:lavfi:color=red:size=32x16:rate=10:duration=0.5", 0, &e)) {
        assert_int_equal(e.code, SAMITE_USAGE);
        skip();
    }
    samite_clip_info info = {.size = sizeof info};
    samite_clip_describe(c, &info);
    assert_false(info.seekable);
    samite_pixels p;
    assert_int_equal(samite_clip_read(c, -1, &p, NULL, NULL, NULL), 1);
    assert_true(p.rgb[0] > 200 && p.rgb[1] < 60 && p.rgb[2] < 60);
    samite_pixels_free(&p);
    samite_clip_free(c);
    samite_clip_open(&c, "device:lavfi:testsrc=size=32x16:rate=10:duration=0.5", 0, NULL);
    assert_int_equal(count_frames(c, 32, 16), 5);
    assert_null(damage_of(c));
    samite_clip_free(c);
    refused("device:lavfi:no_such_filter=1", SAMITE_INPUT, "no_such_filter");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variable_rate), cmocka_unit_test(rotation), cmocka_unit_test(sizes_and_lengths),
        cmocka_unit_test(broken_files), cmocka_unit_test(cut_containers), cmocka_unit_test(cut_behind_its_index),
        cmocka_unit_test(folders),
        cmocka_unit_test(bare_frames), cmocka_unit_test(cameras),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
