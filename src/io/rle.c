/* rle.c - run-length masks: to and from bytes and COCO's text, area, box, union and intersection. */
#include <stdlib.h>
#include <string.h>

#include "io/runs.h"

void runs_grow(run_list *l)
{
    size_t room = l->room ? l->room * 2 : 64;
    uint32_t *p = room <= SIZE_MAX / sizeof *p ? realloc(l->counts, room * sizeof *p) : NULL;
    if (!p) {
        l->failed = true;
        return;
    }
    l->counts = p;
    l->room = room;
}

int runs_finish(rle *out, run_list *l, int width, int height, samite_error *err)
{
    *out = (rle){0};
    if (l->failed || l->runs == 0) {
        free(l->counts);
        return fail(err, SAMITE_RESOURCE, "no memory for a mask of %d x %d pixels", width, height);
    }
    *out = (rle){width, height, l->counts, l->runs};
    return SAMITE_OK;
}

int runs_check_size(int width, int height, samite_error *err)
{
    if (width < 1 || height < 1 || (uint64_t)width * (uint64_t)height > UINT32_MAX)
        return fail(err, SAMITE_INPUT, "a mask of %d x %d pixels: expected at least 1 x 1 and less than 2^32 pixels",
                    width, height);
    return SAMITE_OK;
}

void rle_free(rle *r)
{
    if (!r)
        return;
    free(r->counts);
    *r = (rle){0};
}

int rle_encode(rle *out, const uint8_t *mask, int width, int height, samite_error *err)
{
    *out = (rle){0};
    int code = runs_check_size(width, height, err);
    if (code != SAMITE_OK)
        return code;
    run_list l = {0};
    for (int x = 0; x < width; x++) {
        const uint8_t *p = mask + x;
        int start = 0;
        bool on = *p != 0;
        for (int y = 1; y <= height; y++) {
            if (y < height && (p[(size_t)y * (size_t)width] != 0) == on)
                continue;
            runs_add(&l, on, (uint32_t)(y - start));
            start = y;
            on = !on;
        }
    }
    return runs_finish(out, &l, width, height, err);
}

void rle_decode(uint8_t *mask, const rle *r)
{
    size_t width = (size_t)r->width, height = (size_t)r->height, at = 0;
    memset(mask, 0, width * height);
    for (size_t i = 0; i < r->runs; at += r->counts[i++]) {
        if (i % 2 == 0)
            continue;
        size_t x = at / height, y = at % height;
        for (uint32_t k = 0; k < r->counts[i]; k++) {
            mask[y * width + x] = 1;
            if (++y == height)
                y = 0, x++;
        }
    }
}

int rle_copy(rle *out, const rle *in, samite_error *err)
{
    run_list l = {.runs = in->runs, .counts = malloc(in->runs * sizeof *in->counts)};
    if (l.counts)
        memcpy(l.counts, in->counts, in->runs * sizeof *in->counts);
    l.failed = !l.counts;
    return runs_finish(out, &l, in->width, in->height, err);
}

int rle_from_counts(rle *out, const uint32_t *counts, size_t runs, int width, int height, const char *what,
                    samite_error *err)
{
    *out = (rle){0};
    int code = runs_check_size(width, height, err);
    if (code != SAMITE_OK)
        return code;
    uint64_t sum = 0, expected = (uint64_t)width * (uint64_t)height;
    for (size_t i = 0; i < runs && sum <= expected; i++)
        sum += counts[i];
    if (sum != expected || runs == 0)
        return fail(err, SAMITE_INPUT, "%s: run lengths of the mask do not add up to %d x %d pixels", what, width,
                    height);
    rle in = {width, height, (uint32_t *)(uintptr_t)counts, runs};
    return rle_copy(out, &in, err);
}

/* One number: 5 bits a character, low ones first, bit 5 says more follow, bit 4 of the last is the sign. */
static bool read_number(int64_t *out, const char *s, size_t size, size_t *at)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 40; shift += 5) {
        unsigned c = *at < size ? (unsigned)(uint8_t)s[*at] - 48u : 64u;
        if (c >= 64)
            return false;
        (*at)++;
        v |= (uint64_t)(c & 31) << shift;
        if (c & 32)
            continue;
        if (c & 16)
            v |= ~(uint64_t)0 << (shift + 5);
        *out = (int64_t)v;
        return true;
    }
    return false;
}

int rle_from_string(rle *out, const char *s, size_t size, int width, int height, const char *what, samite_error *err)
{
    *out = (rle){0};
    int code = runs_check_size(width, height, err);
    if (code != SAMITE_OK)
        return code;
    run_list l = {0};
    uint64_t left = (uint64_t)width * (uint64_t)height;
    for (size_t at = 0; at < size && !l.failed;) {
        int64_t v;
        size_t start = at;
        bool ok = read_number(&v, s, size, &at);
        if (ok && l.runs > 2)
            v += l.counts[l.runs - 2];
        if (!ok || v < 0 || (uint64_t)v > left) {
            free(l.counts);
            return fail(err, SAMITE_INPUT,
                        "%s: compressed mask is damaged at character %zu: not run lengths of %d x %d pixels", what,
                        start, width, height);
        }
        if (l.runs == l.room)
            runs_grow(&l);
        if (!l.failed)
            l.counts[l.runs++] = (uint32_t)v;
        left -= (uint64_t)v;
    }
    if (left > 0 && !l.failed) {
        free(l.counts);
        return fail(err, SAMITE_INPUT, "%s: compressed mask ends %llu pixels before the end of %d x %d", what,
                    (unsigned long long)left, width, height);
    }
    return runs_finish(out, &l, width, height, err);
}

int rle_to_string(char **out, const rle *r, samite_error *err)
{
    *out = r->runs < SIZE_MAX / 7 ? malloc(r->runs * 7 + 1) : NULL;
    if (!*out)
        return fail(err, SAMITE_RESOURCE, "no memory for a mask of %d x %d pixels as text", r->width, r->height);
    char *p = *out;
    for (size_t i = 0; i < r->runs; i++) {
        int64_t v = (int64_t)r->counts[i] - (i > 2 ? (int64_t)r->counts[i - 2] : 0);
        for (bool more = true; more;) {
            unsigned c = (unsigned)v & 31;
            v = v < 0 ? ~(~v >> 5) : v >> 5;
            more = c & 16 ? v != -1 : v != 0;
            *p++ = (char)(c + (more ? 32 : 0) + 48);
        }
    }
    *p = '\0';
    return SAMITE_OK;
}

uint64_t rle_area(const rle *r)
{
    uint64_t area = 0;
    for (size_t i = 1; i < r->runs; i += 2)
        area += r->counts[i];
    return area;
}

void rle_bbox(double box[4], const rle *r)
{
    uint64_t height = (uint64_t)r->height, at = 0, x0 = UINT64_MAX, y0 = height, x1 = 0, y1 = 0;
    for (size_t i = 0; i < r->runs; at += r->counts[i++]) {
        if (i % 2 == 0 || r->counts[i] == 0)
            continue;
        uint64_t last = at + r->counts[i] - 1, left = at / height, right = last / height;
        uint64_t top = left == right ? at % height : 0, bottom = left == right ? last % height : height - 1;
        x0 = left < x0 ? left : x0;
        x1 = right > x1 ? right : x1;
        y0 = top < y0 ? top : y0;
        y1 = bottom > y1 ? bottom : y1;
    }
    bool empty = x0 == UINT64_MAX;
    box[0] = empty ? 0 : (double)x0;
    box[1] = empty ? 0 : (double)y0;
    box[2] = empty ? 0 : (double)(x1 - x0 + 1);
    box[3] = empty ? 0 : (double)(y1 - y0 + 1);
}

static void merge_two(run_list *l, const rle *a, const rle *b, bool intersect)
{
    size_t i = 0, j = 0;
    uint32_t left_a = a->runs ? a->counts[0] : 0, left_b = b->runs ? b->counts[0] : 0;
    for (;;) {
        while (left_a == 0 && i + 1 < a->runs)
            left_a = a->counts[++i];
        while (left_b == 0 && j + 1 < b->runs)
            left_b = b->counts[++j];
        uint32_t n = left_a < left_b ? left_a : left_b;
        if (n == 0)
            return;
        bool in_a = i % 2, in_b = j % 2;
        runs_add(l, intersect ? in_a && in_b : in_a || in_b, n);
        left_a -= n;
        left_b -= n;
    }
}

int rle_merge(rle *out, const rle *masks, size_t count, bool intersect, samite_error *err)
{
    *out = (rle){0};
    for (size_t i = 0; i < count; i++) {
        if (masks[i].width != masks[0].width || masks[i].height != masks[0].height)
            return fail(err, SAMITE_INPUT, "masks of %d x %d and %d x %d pixels cannot be joined", masks[0].width,
                        masks[0].height, masks[i].width, masks[i].height);
    }
    if (count == 0)
        return fail(err, SAMITE_USAGE, "no masks to join");
    run_list none = {0};
    merge_two(&none, &masks[0], &masks[0], false);
    int code = runs_finish(out, &none, masks[0].width, masks[0].height, err);
    for (size_t i = 1; i < count && code == SAMITE_OK; i++) {
        run_list l = {0};
        merge_two(&l, out, &masks[i], intersect);
        rle_free(out);
        code = runs_finish(out, &l, masks[0].width, masks[0].height, err);
    }
    return code;
}
