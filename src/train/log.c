/* log.c - lines appended as they come; series of numbers kept for the page. */
#define _GNU_SOURCE
#include "train/log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "train/log_page.h"
#include "train/tensorboard.h"

#define STEPS "logs/steps.jsonl"
#define LARGEST_STEPS ((size_t)4 << 30)

struct train_log {
    char       *folder, *events;     /* events: path of the TensorBoard file, NULL without */
    const char *title;
    series      list[SERIES_MOST];
    int         count;
    int         failed;              /* errno */
};

static double wall_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Appends and closes, so that what was said is there whenever the process dies. */
static void append(train_log *l, const char *path, const char *data, size_t size)
{
    FILE *f = fopen(path, "ab");
    errno = 0;
    if (!f || fwrite(data, 1, size, f) != size)
        l->failed = errno ? errno : EIO;
    if (f && fclose(f) != 0 && !l->failed)
        l->failed = errno;
}

static void append_line(train_log *l, const char *name, const json_t *o)
{
    char *path = path_join(l->folder, name), *line = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(17)),
         *whole = NULL;
    if (path && line && asprintf(&whole, "%s\n", line) >= 0)
        append(l, path, whole, strlen(whole));
    else
        l->failed = ENOMEM;
    free(whole);
    free(line);
    free(path);
}

/* ---- series ---- */

static void remember(train_log *l, const char *name, double x, double y)
{
    series *s = NULL;
    for (int i = 0; i < l->count && !s; i++)
        if (strcmp(l->list[i].name, name) == 0)
            s = &l->list[i];
    if (!s) {
        if (l->count == SERIES_MOST)
            return;
        s = &l->list[l->count++];
        snprintf(s->name, sizeof s->name, "%s", name);
    }
    if (s->count == s->room) {
        int room = 2 * s->room + 256;
        double *px = realloc(s->x, sizeof *px * (size_t)room);
        if (px)
            s->x = px;
        double *py = px ? realloc(s->y, sizeof *py * (size_t)room) : NULL;
        if (!py)
            return;
        s->y = py;
        s->room = room;
    }
    s->x[s->count] = x;
    s->y[s->count++] = y;
}

static void remember_all(train_log *l, double x, const json_t *numbers)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)numbers, name, v)
        if (json_is_number(v) && strcmp(name, "step") != 0)
            remember(l, name, x, json_number_value(v));
}

/* ---- opening ---- */

/* Keeps the lines up to `step`. */
static int read_back(train_log *l, int64_t step, samite_error *err)
{
    char *path = path_join(l->folder, STEPS);
    uint8_t *data = NULL;
    size_t size = 0;
    text kept = {0};
    file_writer w;
    if (!path || access(path, F_OK) != 0) {
        free(path);
        return 0;
    }
    int code = file_read(&data, &size, path, LARGEST_STEPS, err);
    for (char *line = (char *)data, *next; !code && line && *line; line = next) {
        size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        json_t *o = json_loadb(line, n, 0, NULL);
        const json_t *at = json_object_get(o, "step");
        if (json_is_integer(at) && json_integer_value(at) <= step) {
            remember_all(l, (double)json_integer_value(at), o);
            text_printf(&kept, "%.*s\n", (int)n, line);
        }
        json_decref(o);
    }
    if (!code && !(code = file_writer_open(&w, path, err))) {
        file_write(&w, kept.data, kept.size);
        code = file_writer_commit(&w, err);
    }
    text_free(&kept);
    free(data);
    free(path);
    return code;
}

static int make_place(const char *folder, const char *name, samite_error *err)
{
    char *path = path_join(folder, name);
    int code = path ? make_folders(path, err) : fail(err, SAMITE_RESOURCE, "out of memory");
    free(path);
    return code;
}

static int open_events(train_log *l, samite_error *err)
{
    text start = {0};
    int code = make_place(l->folder, "tensorboard", err);
    if (code)
        return code;
    if (asprintf(&l->events, "%s/tensorboard/events.out.tfevents.%lld.samite", l->folder, (long long)wall_time()) < 0) {
        l->events = NULL;
        return fail(err, SAMITE_RESOURCE, "out of memory");
    }
    if (access(l->events, F_OK) != 0) {
        tensorboard_start(&start, wall_time());
        append(l, l->events, start.data, start.size);
        text_free(&start);
    }
    return train_log_status(l, err);
}

int train_log_open(train_log **out, const char *folder, const char *title, int64_t step, bool tensorboard,
                   samite_error *err)
{
    train_log *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l || !(l->folder = text_copy(folder))) {
        free(l);
        return fail(err, SAMITE_RESOURCE, "out of memory");
    }
    l->title = title;
    int code = make_place(folder, "logs", err);
    if (!code)
        code = read_back(l, step, err);
    if (!code && tensorboard)
        code = open_events(l, err);
    if (code)
        train_log_close(l);
    else
        *out = l;
    return code;
}

void train_log_close(train_log *l)
{
    if (!l)
        return;
    for (int i = 0; i < l->count; i++)
        free(l->list[i].x), free(l->list[i].y);
    free(l->folder), free(l->events);
    free(l);
}

/* ---- writing ---- */

static void to_events(train_log *l, int64_t step, const json_t *numbers, const char *prefix)
{
    const char *name;
    json_t *v;
    text out = {0};
    char tag[160];
    double now = wall_time();
    if (!l->events)
        return;
    json_object_foreach((json_t *)(uintptr_t)numbers, name, v) {
        if (!json_is_number(v) || strcmp(name, "step") == 0)
            continue;
        snprintf(tag, sizeof tag, "%s%s", prefix, name);
        tensorboard_scalar(&out, now, step, tag, (float)json_number_value(v));
    }
    if (out.failed)
        l->failed = ENOMEM;
    else if (out.size)
        append(l, l->events, out.data, out.size);
    text_free(&out);
}

void train_log_step(train_log *l, int64_t step, json_t *numbers)
{
    append_line(l, STEPS, numbers);
    to_events(l, step, numbers, "Step_Losses/train/");
    remember_all(l, (double)step, numbers);
    json_decref(numbers);
}

void train_log_object(train_log *l, const char *name, int64_t step, json_t *object)
{
    char full[64];
    snprintf(full, sizeof full, "logs/%s", name);
    append_line(l, full, object);
    to_events(l, step, object, "");
    if (starts_with(name, "val"))
        remember_all(l, (double)step, object);
    json_decref(object);
}

int train_log_page(train_log *l, json_t *facts, samite_error *err)
{
    text page = {0};
    file_writer w;
    char *path = path_join(l->folder, "report.html");
    log_page(&page, l->title, facts, l->list, l->count, l->folder);
    json_decref(facts);
    int code = path && !page.failed ? file_writer_open(&w, path, err)
                                    : fail(err, SAMITE_RESOURCE, "not enough memory for the report");
    if (!code) {
        file_write(&w, page.data, page.size);
        code = file_writer_commit(&w, err);
    }
    text_free(&page);
    free(path);
    return code;
}

int train_log_status(train_log *l, samite_error *err)
{
    int failed = l->failed;
    l->failed = 0;
    return failed ? fail(err, SAMITE_RESOURCE, "%s: the logs cannot be written: %s", l->folder, strerror(failed)) : 0;
}
