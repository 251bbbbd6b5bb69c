/* track_ask.c - prompts of `samite track`: F:X,Y, F:X0,Y0,X1,Y1, F:mask.png. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "mask_file.h"
#include "track.h"

#define MOST_FRAME 1e9
#define MOST_NUMBERS 4

/* ---- reading ---- */

/* "F:rest"; *rest points behind the colon. */
static int parse_frame(int64_t *frame, const char **rest, const char *name, const char *value, samite_error *err)
{
    char digits[24];
    double v;
    size_t n = strcspn(value, ":");
    if (n && n < sizeof digits && value[n] == ':') {
        memcpy(digits, value, n);
        digits[n] = '\0';
        if (parse_number(&v, digits) && v >= 0 && v <= MOST_FRAME && v == floor(v)) {
            *frame = (int64_t)v;
            *rest = value + n + 1;
            return SAMITE_OK;
        }
    }
    return fail(err, SAMITE_USAGE, "%s wants the number of a frame and a colon in front, not \"%s\"", name, value);
}

/* `count` numbers with commas between them; *end: what follows. false: they are not there. */
static bool parse_numbers(double *v, int count, const char *s, const char **end)
{
    for (int i = 0; i < count; i++) {
        char number[64];
        size_t n = strcspn(s, ",");
        if (n >= sizeof number)
            return false;
        memcpy(number, s, n);
        number[n] = '\0';
        if (!parse_number(&v[i], number))
            return false;
        s += n;
        if (i + 1 < count && *s++ != ',')
            return false;
    }
    *end = s;
    return true;
}

static int add(asks *a, const ask *one, samite_error *err)
{
    if (a->count == a->room) {
        int room = a->room ? 2 * a->room : 8;
        ask *more = realloc(a->item, sizeof *more * (size_t)room);
        if (!more)
            return fail(err, SAMITE_RESOURCE, "out of memory for %d prompts", room);
        a->item = more;
        a->room = room;
    }
    a->item[a->count++] = *one;
    return SAMITE_OK;
}

int parse_ask_point(void *to, const char *name, const char *value, samite_error *err)
{
    asks *a = to;
    ask one = {.kind = ASK_POINT, .object = a->object};
    const char *rest = NULL, *end;
    double v[2];
    int code = parse_frame(&one.frame, &rest, name, value, err);
    if (code)
        return code;
    if (!parse_numbers(v, 2, rest, &end) || (*end && strcmp(end, ",neg") != 0 && strcmp(end, ",pos") != 0))
        return fail(err, SAMITE_USAGE, "%s wants F:X,Y or F:X,Y,neg in pixels, not \"%s\"", name, value);
    one.point = (samite_point){(float)v[0], (float)v[1], strcmp(end, ",neg") == 0};
    return add(a, &one, err);
}

static int parse_box(asks *a, ask *one, const char *name, const char *value, samite_error *err)
{
    const char *rest = NULL, *end;
    double v[MOST_NUMBERS];
    int code = parse_frame(&one->frame, &rest, name, value, err);
    if (code)
        return code;
    bool like = one->kind == ASK_LIKE;
    if (!parse_numbers(v, 4, rest, &end) || (*end && !(like && strcmp(end, ",neg") == 0)))
        return fail(err, SAMITE_USAGE, "%s wants F:X0,Y0,X1,Y1%s in pixels, not \"%s\"", name, like ? " or ...,neg"
                    : "",
                    value);
    if (!(v[0] < v[2] && v[1] < v[3]))
        return fail(err, SAMITE_USAGE, "%s %s: the box is empty; expected X0 < X1 and Y0 < Y1", name, value);
    one->box = (samite_box){(float)v[0], (float)v[1], (float)v[2], (float)v[3], *end != '\0'};
    return add(a, one, err);
}

int parse_ask_box(void *to, const char *name, const char *value, samite_error *err)
{
    asks *a = to;
    return parse_box(a, &(ask){.kind = ASK_BOX, .object = a->object}, name, value, err);
}

int parse_ask_like(void *to, const char *name, const char *value, samite_error *err)
{
    return parse_box(to, &(ask){.kind = ASK_LIKE}, name, value, err);
}

int parse_ask_mask(void *to, const char *name, const char *value, samite_error *err)
{
    asks *a = to;
    ask one = {.kind = ASK_MASK, .object = a->object};
    int code = parse_frame(&one.frame, &one.mask, name, value, err);
    if (!code && !*one.mask)
        code = fail(err, SAMITE_USAGE, "%s wants F:FILE, not \"%s\"", name, value);
    return code ? code : add(a, &one, err);
}

static int parse_id(int64_t *id, const char *name, const char *s, samite_error *err)
{
    double v;
    if (!parse_number(&v, s) || v < 0 || v > MOST_FRAME || v != floor(v))
        return fail(err, SAMITE_USAGE, "%s wants the number of an object, not \"%s\"", name, s);
    *id = (int64_t)v;
    return SAMITE_OK;
}

int parse_ask_remove(void *to, const char *name, const char *value, samite_error *err)
{
    ask one = {.kind = ASK_REMOVE};
    const char *rest = NULL;
    int code = parse_frame(&one.frame, &rest, name, value, err);
    if (!code)
        code = parse_id(&one.object, name, rest, err);
    return code ? code : add(to, &one, err);
}

int parse_ask_object(void *to, const char *name, const char *value, samite_error *err)
{
    asks *a = to;
    if (a->named == a->count)
        return fail(err, SAMITE_USAGE, "no --point, --box or --mask between --object %lld and --object %s",
                    (long long)a->object, value);
    a->named = a->count;
    return parse_id(&a->object, name, value, err);
}

/* ---- asking ---- */

/* A failure names the frame of the prompt. */
static int ask_video(samite_video *v, int64_t frame, int64_t *object, const samite_click *c,
                     samite_video_results **shown, samite_error *err)
{
    samite_error why = {0};
    int code = samite_video_click(v, object, c, shown, &why);
    return code ? fail(err, code, "frame %lld: %s", (long long)frame, why.text) : SAMITE_OK;
}

/* All points and the box of one object on a frame make one question; `first` is the first of them. */
static int ask_object(asks *a, samite_video *v, int first, const samite_pixels *px, samite_video_results **shown,
                      samite_error *err)
{
    const ask *head = &a->item[first];
    samite_click c = SAMITE_CLICK_INIT;
    samite_mask mask = {0};
    samite_point *points = calloc((size_t)a->count, sizeof *points);
    int64_t object = head->object;
    bool unnamed = object < 0;
    int code = points ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "out of memory for points");
    c.points = points;
    for (int i = first; i < a->count && !code; i++) {
        ask *one = &a->item[i];
        if (one->frame != head->frame || one->object != head->object || one->kind > ASK_MASK)
            continue;
        one->done = true;
        if (one->kind == ASK_POINT)
            points[c.point_count++] = one->point;
        else if (one->kind == ASK_BOX && c.box)
            code = fail(err, SAMITE_USAGE, "two boxes for one object on frame %lld", (long long)one->frame);
        else if (one->kind == ASK_BOX)
            c.box = &one->box;
        else if (!c.mask && !(code = mask_file_read(&mask, one->mask, px->width, px->height, "frames", err)))
            c.mask = &mask;
    }
    samite_video_results_free(*shown);
    *shown = NULL;
    if (!code)
        code = ask_video(v, head->frame, &object, &c, shown, err);
    for (int i = 0; unnamed && i < a->count && !code; i++)
        if (a->item[i].object < 0)
            a->item[i].object = object;        /* the unnamed object has its number now */
    free(points);
    mask_file_free(&mask);
    return code;
}

int asks_apply(asks *a, samite_video *v, int64_t frame, const samite_pixels *px, samite_video_results **shown,
               samite_error *err)
{
    int code = SAMITE_OK;
    *shown = NULL;
    for (int i = 0; i < a->count && !code; i++) {
        ask *one = &a->item[i];
        if (one->done || one->frame != frame)
            continue;
        if (one->kind == ASK_REMOVE)
            code = samite_video_remove(v, one->object, err);
        else if (one->kind != ASK_LIKE)
            code = ask_object(a, v, i, px, shown, err);
        one->done = true;
    }
    return code;
}

int asks_check(const asks *a, samite_error *err)
{
    for (int i = 0; i < a->count; i++)
        if (!a->item[i].done)
            return fail(err, SAMITE_INPUT, "frame %lld of a prompt was not among the frames looked at",
                        (long long)a->item[i].frame);
    return SAMITE_OK;
}
