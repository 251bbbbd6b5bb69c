/* video_jf.c - J (overlap of masks) and F (agreement of borders) over the frames of a video, as in DAVIS. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assign.h"
#include "eval/coco.h"
#include "eval/video.h"

#define BORDER_SHARE 0.008      /* of the diagonal: how far apart borders may lie */
#define QUARTERS     4

const char *const jf_names[JF_NUMBERS] = {"J-Mean", "J-Recall", "J-Decay", "F-Mean", "F-Recall", "F-Decay"};

/* ---- borders ---- */

/* A pixel is border where it differs from its neighbour to the right, below or diagonally below; at the last row and
 * column the neighbour that exists decides. Returns the number of border pixels. */
static size_t find_border(uint8_t *border, const uint8_t *m, int width, int height)
{
    size_t count = 0, w = (size_t)width, last_x = w - 1, last_y = (size_t)height - 1;
    for (size_t y = 0; y <= last_y; y++)
        for (size_t x = 0; x <= last_x; x++) {
            const uint8_t *p = m + y * w + x;
            bool b = false;
            if (x < last_x)
                b = p[0] != p[1];
            if (y < last_y)
                b = b || p[0] != p[w];
            if (x < last_x && y < last_y)
                b = b || p[0] != p[w + 1];
            border[y * w + x] = b;
            count += b;
        }
    return count;
}

/* Everything within `radius` of a border pixel. */
static void widen(uint8_t *out, const uint8_t *border, int width, int height, int radius)
{
    memset(out, 0, (size_t)width * (size_t)height);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            if (!border[(size_t)y * (size_t)width + (size_t)x])
                continue;
            for (int dy = -radius; dy <= radius; dy++) {
                int row = y + dy, reach = (int)sqrt((double)radius * radius - (double)dy * dy);
                if (row < 0 || row >= height)
                    continue;
                int from = x - reach < 0 ? 0 : x - reach, to = x + reach >= width ? width - 1 : x + reach;
                memset(out + (size_t)row * (size_t)width + (size_t)from, 1, (size_t)(to - from) + 1);
            }
        }
}

static size_t count_both(const uint8_t *a, const uint8_t *b, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += a[i] & b[i];
    return count;
}

int border_f(double *out, const uint8_t *found, const uint8_t *truth, int width, int height, samite_error *err)
{
    size_t n = (size_t)width * (size_t)height;
    uint8_t *a = malloc(n), *b = malloc(n), *wide = malloc(n);
    if (!a || !b || !wide) {
        free(a);
        free(b);
        free(wide);
        return fail(err, SAMITE_RESOURCE, "not enough memory for borders in %d x %d pixels", width, height);
    }
    int radius = (int)ceil(BORDER_SHARE * sqrt((double)height * height + (double)width * width));
    size_t in_found = find_border(a, found, width, height), in_truth = find_border(b, truth, width, height);
    double precision = in_found == 0 ? 1 : 0, recall = in_truth == 0 ? 1 : 0;
    if (in_found && in_truth) {
        widen(wide, b, width, height, radius);
        precision = (double)count_both(a, wide, n) / (double)in_found;
        widen(wide, a, width, height, radius);
        recall = (double)count_both(b, wide, n) / (double)in_truth;
    }
    *out = precision + recall == 0 ? 0 : 2 * precision * recall / (precision + recall);
    free(a);
    free(b);
    free(wide);
    return SAMITE_OK;
}

/* ---- one object and its track ---- */

static double overlap(const sequence *s, size_t d, size_t g, size_t frame)
{
    bool there = sequence_sees(s, true, g, frame), said = d < s->found && sequence_sees(s, false, d, frame);
    return there && said ? s->iou[frame][g * s->found + d] : there || said ? 0 : 1;
}

static int decode(uint8_t *out, const sequence *s, bool truth, size_t which, size_t frame, samite_error *err)
{
    const video_size *v = &s->truth->videos[s->video];
    rle r = {0};
    memset(out, 0, (size_t)v->width * (size_t)v->height);
    if (!truth && which >= s->found)
        return SAMITE_OK;
    const track *t = truth ? &s->truth->tracks[s->g[which]] : &s->results->tracks[s->d[which]];
    int code = track_mask(&r, s->truth, t, frame, err);
    if (!code)
        rle_decode(out, &r);
    rle_free(&r);
    return code;
}

static int frame_f(double *out, const sequence *s, size_t d, size_t g, size_t frame, samite_error *err)
{
    const video_size *v = &s->truth->videos[s->video];
    size_t n = (size_t)v->width * (size_t)v->height;
    uint8_t *a = malloc(n), *b = malloc(n);
    int code = a && b
                   ? SAMITE_OK
                   : fail(err, SAMITE_RESOURCE, "not enough memory for masks of %d x %d pixels", v->width, v->height);
    if (!code)
        code = decode(a, s, false, d, frame, err);
    if (!code)
        code = decode(b, s, true, g, frame, err);
    if (!code)
        code = border_f(out, a, b, v->width, v->height, err);
    free(a);
    free(b);
    return code;
}

/* Mean, share above one half, and fall from the first quarter of the video to the last. */
static void three_numbers(double out[3], const double *v, size_t frames, double *room)
{
    size_t edge[QUARTERS + 1];
    for (int i = 0; i <= QUARTERS; i++) {
        double at = i == QUARTERS ? (double)frames : 1 + i * (((double)frames - 1) / QUARTERS);
        edge[i] = (size_t)nearbyint(at + 1e-10) - 1;
    }
    for (size_t f = 0; f < frames; f++)
        room[f] = v[f] > 0.5 + DBL_EPSILON;
    out[0] = mean_as_numpy(v, frames);
    out[1] = mean_as_numpy(room, frames);
    out[2] = mean_as_numpy(v, edge[1] + 1) - mean_as_numpy(v + edge[QUARTERS - 1], frames - edge[QUARTERS - 1]);
}

static int score_object(double out[JF_NUMBERS], const sequence *s, size_t d, size_t g, double *room, samite_error *err)
{
    size_t frames = s->truth->videos[s->video].frames;
    int failed = SAMITE_OK;
    for (size_t f = 0; f < frames; f++)
        room[f] = overlap(s, d, g, f);
    three_numbers(out + JF_J, room, frames, room + frames);
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t f = 0; f < frames; f++) {
        samite_error own = {0};
        int code = frame_f(&room[f], s, d, g, f, &own);
        if (code) {
#pragma omp critical(samite_jf_failed)
            failed = failed ? failed : fail(err, code, "%s", own.text);
        }
    }
    if (!failed)
        three_numbers(out + JF_F, room, frames, room + frames);
    return failed;
}

/* ---- sequences ---- */

/* track_of[object]: the track that it is judged by, >= found: none. The sum of mean overlaps is greatest. */
static int pair_up(size_t *track_of, const sequence *s, double *room, samite_error *err)
{
    size_t rows = s->found > s->truths ? s->found : s->truths, columns = s->truths,
           frames = s->truth->videos[s->video].frames;
    double *cost = malloc((rows * columns + 1) * sizeof *cost);
    int32_t *to = malloc((rows + 1) * sizeof *to);
    int code = cost && to ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory to pair %zu tracks", rows);
    for (size_t d = 0; d < rows && !code; d++)
        for (size_t g = 0; g < columns; g++) {
            for (size_t f = 0; f < frames; f++)
                room[f] = overlap(s, d, g, f);
            cost[d * columns + g] = -mean_as_numpy(room, frames);
        }
    if (!code)
        code = assign_least(to, cost, (int32_t)rows, (int32_t)columns, err);
    for (size_t d = 0; d < rows && !code; d++)
        if (to[d] >= 0)
            track_of[to[d]] = d;
    free(cost);
    free(to);
    return code;
}

int jf_sequence(double out[JF_NUMBERS], const sequence *s, samite_error *err)
{
    size_t n = s->truths, frames = s->truth->videos[s->video].frames;
    double *room = malloc((2 * frames + 1) * sizeof *room), *all = malloc((n * JF_NUMBERS + 1) * sizeof *all),
           one[JF_NUMBERS];
    size_t *track_of = malloc((n + 1) * sizeof *track_of);
    int code = room && all && track_of ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for %zu objects", n);
    if (!code)
        code = pair_up(track_of, s, room, err);
    for (size_t g = 0; g < n && !code; g++) {
        code = score_object(one, s, track_of[g], g, room, err);
        for (size_t i = 0; i < JF_NUMBERS; i++)
            all[i * n + g] = one[i];
    }
    for (size_t i = 0; i < JF_NUMBERS && !code; i++)
        out[i] = mean_as_numpy(all + i * n, n);
    free(room);
    free(all);
    free(track_of);
    return code;
}
