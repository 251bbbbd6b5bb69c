/* video.c - folders of pictures, raw frames, and whatever else by way of FFmpeg. */
#define _GNU_SOURCE
#include "io/video.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "io/preprocess.h"
#include "io/video_inside.h"

#define KEPT_FRAMES 16
#define KEPT_BYTES  ((size_t)256 << 20)
#define MOST_FRAMES 10000000   /* pictures in a folder */

/* ---- folders ---- */

typedef struct folder { char **name; size_t count, room; } folder;

static void folder_close(video_reader *v)
{
    folder *f = v->inside;
    for (size_t i = 0; f && i < f->count; i++)
        free(f->name[i]);
    if (f)
        free(f->name);
    free(f);
}

/* Goes on behind a picture that cannot be read, and notes why. true. */
static bool leave_out(video_reader *v, samite_error *why)
{
    if (v->next >= v->skipped_to && ++v->skipped > 1)
        video_note(v, "%d pictures that cannot be read were left out", v->skipped);
    else if (v->skipped == 1)
        video_note(v, "a picture was left out: %s", why->text);
    v->skipped_to = v->next + 1 > v->skipped_to ? v->next + 1 : v->skipped_to;
    *why = (samite_error){0};
    v->next++;
    return true;
}

static int folder_next(video_reader *v, video_frame *out, samite_error *err)
{
    folder *f = v->inside;
    image_options o = IMAGE_OPTIONS_INIT;
    samite_error own = {0}, *why = err ? err : &own;
    o.apply_exif = !v->options.skip_rotation;
    int code = 0;
    do {
        if ((size_t)v->next >= f->count)
            return 0;
        code = image_read(&out->picture, f->name[v->next], &o, why);
    } while (code == SAMITE_INPUT && v->options.skip_bad && leave_out(v, why));
    out->index = v->next;
    out->time = v->facts.rate > 0 ? (double)v->next / v->facts.rate : 0;
    return code ? code : 1;
}

static int folder_seek(video_reader *v, int64_t index, samite_error *err)
{
    v->next = index;
    return 0;
}

static const video_source folder_source = {folder_next, folder_seek, folder_close};

static int by_nature(const void *a, const void *b)
{
    return natural_compare(*(char *const *)a, *(char *const *)b);
}

static bool add_name(folder *f, char *name)
{
    if (f->count == f->room) {
        size_t room = f->room ? 2 * f->room : 64;
        char **more = realloc(f->name, sizeof *more * room);
        if (!more)
            return false;
        f->name = more;
        f->room = room;
    }
    f->name[f->count++] = name;
    return true;
}

static int open_folder(video_reader *v, samite_error *err)
{
    folder *f = calloc(1, sizeof *f);
    DIR *d = opendir(v->path);
    int code = f ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to read the folder %s", v->path);
    v->inside = f;
    v->source = &folder_source;
    v->facts = (video_facts){.folder = true, .seekable = true, .codec = "pictures"};
    if (!d)
        return fail(err, SAMITE_INPUT, "%s: cannot be read: %s", v->path, strerror(errno));
    for (struct dirent *e; !code && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || !image_has_known_ending(e->d_name))
            continue;
        char *name = path_join(v->path, e->d_name);
        struct stat st;
        if (name && stat(name, &st) == 0 && S_ISDIR(st.st_mode)) {
            free(name);
            continue;
        }
        if (!name || f->count >= MOST_FRAMES || !add_name(f, name)) {
            free(name);
            code = fail(err, SAMITE_RESOURCE, "not enough memory for the pictures in %s", v->path);
        }
    }
    closedir(d);
    if (!code && !f->count)
        code = fail(err, SAMITE_INPUT, "%s: no pictures in this folder", v->path);
    if (!code)
        qsort(f->name, f->count, sizeof *f->name, by_nature);
    v->facts.frames = code ? 0 : (int64_t)f->count;
    return code;
}

/* A picture by itself is a video of one frame. */
static int open_picture(video_reader *v, samite_error *err)
{
    v->source->close(v);
    folder *f = calloc(1, sizeof *f);
    char *name = text_copy(v->path);
    v->inside = f;
    v->source = &folder_source;
    v->facts = (video_facts){.frames = 1, .folder = true, .seekable = true, .codec = "pictures"};
    if (!f || !name || !add_name(f, name)) {
        free(name);
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", v->path);
    }
    if (err)
        *err = (samite_error){0};
    return 0;
}

/* ---- raw frames ---- */

typedef struct raw { FILE *file; int width, height; } raw;

static void raw_close(video_reader *v)
{
    raw *r = v->inside;
    if (r && r->file && r->file != stdin)
        fclose(r->file);
    free(r);
}

static int raw_next(video_reader *v, video_frame *out, samite_error *err)
{
    raw *r = v->inside;
    size_t bytes = 3 * (size_t)r->width * (size_t)r->height;
    uint8_t *rgb = malloc(bytes);
    if (!rgb)
        return fail(err, SAMITE_RESOURCE, "%s: not enough memory for a frame of %d x %d", v->path, r->width, r->height);
    size_t got = fread(rgb, 1, bytes, r->file);
    if (got == bytes) {
        out->picture = (pixels){r->width, r->height, rgb, 1, false, false, "raw"};
        out->time = v->facts.rate > 0 ? (double)v->next / v->facts.rate : 0;
        return 1;
    }
    free(rgb);
    if (ferror(r->file))
        return fail(err, SAMITE_INPUT, "%s: cannot be read: %s", v->path, strerror(errno));
    if (got)
        video_note(v, "the last frame has %zu of %zu bytes; frames up to there were used", got, bytes);
    return 0;
}

static const video_source raw_source = {raw_next, NULL, raw_close};

/* "WIDTHxHEIGHT[@RATE]:PATH" */
static int open_raw(video_reader *v, const char *what, samite_error *err)
{
    raw *r = calloc(1, sizeof *r);
    int used = 0;
    double rate = 0;
    v->inside = r;
    v->source = &raw_source;
    if (!r)
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", v->path);
    bool ok = sscanf(what, "%6dx%6d%n", &r->width, &r->height, &used) == 2 && used;
    what += ok ? used : 0;
    if (ok && *what == '@')
        ok = sscanf(what, "@%lf%n", &rate, &used) == 1 && rate > 0 && rate < 1e6 && (what += used);
    if (!ok || *what != ':' || !what[1] || r->width < 1 || r->height < 1 ||
        (uint64_t)r->width * (uint64_t)r->height > IMAGE_MAX_PIXELS)
        return fail(err, SAMITE_USAGE,
                    "%s: raw frames are given as raw:WIDTHxHEIGHT[@RATE]:PATH, as in raw:640x480@30:-",
                    v->path);
    v->facts = (video_facts){.rate = rate, .codec = "raw RGB"};
    r->file = strcmp(what + 1, "-") == 0 ? stdin : fopen(what + 1, "rb");
    return r->file ? 0 : fail(err, SAMITE_INPUT, "%s: cannot be opened: %s", what + 1, strerror(errno));
}

/* ---- opening ---- */

/* Why a camera that is a file did not open; FFmpeg's words stay where nothing better is known. */
static int explain_device(const video_reader *v, const char *name, samite_error *err)
{
    struct stat st;
    if (name[0] != '/')
        return SAMITE_INPUT;
    if (stat(name, &st) != 0)
        return errno == EACCES ? fail(err, SAMITE_INPUT, "%s: %s may not be read: %s", v->path, name, strerror(errno))
             : fail(err, SAMITE_INPUT, "%s: there is no %s: is the camera plugged in, and its number right?", v->path,
                    name);
    if (access(name, R_OK | W_OK) != 0)
        return fail(err, SAMITE_INPUT, "%s: %s may not be read: cameras are often for members of the group 'video'",
                    v->path, name);
    int file = open(name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (file < 0 && errno == EBUSY)
        return fail(err, SAMITE_INPUT, "%s: another program has %s", v->path, name);
    if (file >= 0)
        close(file);
    return S_ISCHR(st.st_mode) && strstr(name, "video") ? SAMITE_INPUT
         : fail(err, SAMITE_INPUT, "%s: %s is no camera", v->path, name);
}

/* "FORMAT:NAME" */
static int open_device(video_reader *v, const char *what, samite_error *err)
{
    char format[32];
    size_t n = strcspn(what, ":");
    if (n == 0 || n >= sizeof format || !what[n] || !what[n + 1])
        return fail(err, SAMITE_USAGE, "%s: a camera is given as device:FORMAT:NAME, as in device:v4l2:/dev/video0",
                    v->path);
    memcpy(format, what, n);
    format[n] = '\0';
    int code = video_open_stream(v, what + n + 1, format, err);
    return code == SAMITE_INPUT ? explain_device(v, what + n + 1, err) : code;
}

static int open_any(video_reader *v, samite_error *err)
{
    struct stat st;
    if (starts_with(v->path, "raw:"))
        return open_raw(v, v->path + 4, err);
    if (starts_with(v->path, "device:"))
        return open_device(v, v->path + 7, err);
    if (strcmp(v->path, "-") == 0)
        return video_open_stream(v, "pipe:0", NULL, err);
    if (stat(v->path, &st) != 0)
        return fail(err, SAMITE_INPUT, "%s: cannot be opened: %s", v->path, strerror(errno));
    if (S_ISREG(st.st_mode) && st.st_size == 0)
        return fail(err, SAMITE_INPUT, "%s: the file is empty", v->path);
    if (S_ISDIR(st.st_mode))
        return open_folder(v, err);
    int code = video_open_stream(v, v->path, NULL, err);
    return code == SAMITE_INPUT && image_has_known_ending(v->path) ? open_picture(v, err) : code;
}

int video_open(video_reader **out, const char *path, const video_reader_options *o, samite_error *err)
{
    video_reader *v = calloc(1, sizeof *v);
    *out = NULL;
    if (!v || !(v->path = text_copy(path))) {
        free(v);
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", path);
    }
    v->last_at = -1;
    if (o)
        v->options = *o;
    int code = open_any(v, err);
    if (code)
        video_close(v);
    else
        *out = v;
    return code;
}

static void drop_kept(video_reader *v)
{
    for (int i = 0; i < v->kept_count; i++)
        pixels_free(&v->kept[i].picture);
    v->kept_count = 0;
}

void video_close(video_reader *v)
{
    if (!v)
        return;
    if (v->source)
        v->source->close(v);
    drop_kept(v);
    free(v->kept);
    free(v->path);
    free(v);
}

const video_facts *video_facts_of(const video_reader *v)
{
    return &v->facts;
}

void video_note(video_reader *v, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(v->damage, sizeof v->damage, format, args);
    va_end(args);
}

const char *video_damage(const video_reader *v)
{
    return v->damage[0] ? v->damage : NULL;
}

/* ---- reading ---- */

/* All frames have the size of the first one. */
static int fit_frame(video_reader *v, video_frame *f, samite_error *err)
{
    pixels *p = &f->picture;
    if (!v->width) {
        v->width = p->width;
        v->height = p->height;
    }
    if (p->width == v->width && p->height == v->height)
        return 0;
    pixels scaled = *p;
    scaled.width = v->width;
    scaled.height = v->height;
    scaled.rgb = malloc(3 * (size_t)v->width * (size_t)v->height);
    int code = scaled.rgb ? resize_rgb(scaled.rgb, v->width, v->height, p, err)
             : fail(err, SAMITE_RESOURCE, "%s: not enough memory for a frame", v->path);
    pixels_free(p);
    if (code)
        free(scaled.rgb);
    else
        *p = scaled;
    return code;
}

int video_next(video_reader *v, video_frame *out, samite_error *err)
{
    *out = (video_frame){.index = v->next};
    int code = v->source->next(v, out, err);
    if (code != 1) {
        pixels_free(&out->picture);
        return code;
    }
    v->next++;
    code = fit_frame(v, out, err);
    if (code)
        pixels_free(&out->picture);
    return code ? code : 1;
}

/* Is the frame among those decoded before? It is handed over. */
static bool take_kept(video_reader *v, int64_t index, video_frame *out)
{
    for (int i = 0; i < v->kept_count; i++) {
        if (v->kept[i].index != index)
            continue;
        *out = v->kept[i];
        v->kept[i] = v->kept[--v->kept_count];
        return true;
    }
    return false;
}

/* Decodes up to `index` from some frames before, which are kept: whoever walks backwards wants them next. */
static int decode_back(video_reader *v, int64_t index, video_frame *out, samite_error *err)
{
    size_t each = 3 * (size_t)v->width * (size_t)v->height;
    int64_t many = each ? (int64_t)(KEPT_BYTES / each) : 1, first;
    many = many < 1 ? 1 : many > KEPT_FRAMES ? KEPT_FRAMES : many;
    first = index - many + 1 > 0 ? index - many + 1 : 0;
    drop_kept(v);
    if (!v->kept && !(v->kept = calloc(KEPT_FRAMES, sizeof *v->kept)))
        return fail(err, SAMITE_RESOURCE, "%s: not enough memory for %d frames", v->path, KEPT_FRAMES);
    int code = v->source->seek(v, first, err);
    while (!code) {
        video_frame f;
        int got = video_next(v, &f, err);
        if (got != 1)
            return got < 0 ? got : fail(err, SAMITE_INPUT, "%s: frame %lld cannot be read again", v->path,
                                        (long long)index);
        if (f.index >= index) {
            *out = f;
            return 1;
        }
        v->kept[v->kept_count++] = f;
    }
    return code;
}

int video_at(video_reader *v, int64_t index, video_frame *out, samite_error *err)
{
    *out = (video_frame){0};
    if (take_kept(v, index, out))
        return 1;
    if (index == v->next)
        return video_next(v, out, err);
    if (!v->source->seek || index < 0)
        return fail(err, SAMITE_USAGE, "%s: frame %lld cannot be read out of order from this source", v->path,
                    (long long)index);
    if (!v->facts.folder)
        return decode_back(v, index, out, err);
    v->next = index;
    return video_next(v, out, err);
}
