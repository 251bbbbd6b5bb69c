/* pnm.c - PBM, PGM, PPM (P1 to P6) and PAM (P7), own parser. */
#include <stdlib.h>
#include <string.h>

#include "io/decoders.h"

typedef struct pnm_reader {
    const image_source *src;
    size_t              at;
    int                 kind;              /* the digit after P */
    uint64_t            width, height;
    unsigned            channels, maxval;
    bool                bits, one_is_black;
    uint8_t            *scale;             /* [maxval + 1] sample to 0..255 */
} pnm_reader;

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_blank(pnm_reader *r)
{
    const image_source *s = r->src;
    while (r->at < s->size && (is_space(s->data[r->at]) || s->data[r->at] == '#')) {
        if (s->data[r->at] == '#') {
            while (r->at < s->size && s->data[r->at] != '\n' && s->data[r->at] != '\r')
                r->at++;
        } else {
            r->at++;
        }
    }
}

/* Decimal number after blanks and comments; false if there is none or it is beyond 2^31. */
static bool read_number(pnm_reader *r, uint64_t *out)
{
    const image_source *s = r->src;
    skip_blank(r);
    size_t start = r->at;
    uint64_t v = 0;
    for (; r->at < s->size && s->data[r->at] >= '0' && s->data[r->at] <= '9'; r->at++) {
        v = v * 10 + (uint64_t)(s->data[r->at] - '0');
        if (v > INT32_MAX)
            return false;
    }
    *out = v;
    return r->at > start;
}

static int fail_header(const pnm_reader *r, samite_error *err)
{
    if (r->at >= r->src->size)
        return fail_truncated(r->src, "PNM", err);
    return fail(err, SAMITE_INPUT,
                "%s: damaged PNM header at byte %zu: expected width, height and a largest value up to 65535",
                r->src->name, r->at);
}

static int read_pnm_header(pnm_reader *r, samite_error *err)
{
    uint64_t maxval = 1;
    r->bits = r->kind == 1 || r->kind == 4;
    r->one_is_black = r->bits;
    r->channels = r->kind == 3 || r->kind == 6 ? 3 : 1;
    if (!read_number(r, &r->width) || !read_number(r, &r->height) || (!r->bits && !read_number(r, &maxval)))
        return fail_header(r, err);
    if (r->at >= r->src->size || !is_space(r->src->data[r->at]) || maxval < 1 || maxval > 65535)
        return fail_header(r, err);
    r->at++;
    r->maxval = (unsigned)maxval;
    return SAMITE_OK;
}

static bool at_word(pnm_reader *r, const char *word)
{
    size_t n = strlen(word);
    if (r->src->size - r->at <= n || memcmp(r->src->data + r->at, word, n) != 0 || !is_space(r->src->data[r->at + n]))
        return false;
    r->at += n;
    return true;
}

static void skip_line(pnm_reader *r)
{
    while (r->at < r->src->size && r->src->data[r->at] != '\n')
        r->at++;
}

static int read_pam_header(pnm_reader *r, samite_error *err)
{
    uint64_t depth = 0, maxval = 0;
    for (;;) {
        bool ok = true;
        skip_blank(r);
        if (at_word(r, "WIDTH"))
            ok = read_number(r, &r->width);
        else if (at_word(r, "HEIGHT"))
            ok = read_number(r, &r->height);
        else if (at_word(r, "DEPTH"))
            ok = read_number(r, &depth);
        else if (at_word(r, "MAXVAL"))
            ok = read_number(r, &maxval);
        else if (at_word(r, "TUPLTYPE"))
            skip_line(r);
        else if (at_word(r, "ENDHDR"))
            break;
        else
            ok = false;
        if (!ok)
            return fail_header(r, err);
    }
    skip_line(r);
    if (r->at >= r->src->size || maxval < 1 || maxval > 65535)
        return fail_header(r, err);
    r->at++;
    if (depth < 1 || depth > 4)
        return fail(err, SAMITE_INPUT, "%s: PAM with %llu channels: expected 1 to 4", r->src->name,
                    (unsigned long long)depth);
    r->channels = (unsigned)depth;
    r->maxval = (unsigned)maxval;
    return SAMITE_OK;
}

/* v * 255 / maxval rounded to nearest, halves to even. */
static bool make_scale(pnm_reader *r)
{
    r->scale = malloc(r->maxval + 1u);
    for (unsigned v = 0; r->scale && v <= r->maxval; v++) {
        unsigned twice = 2 * v * 255 + r->maxval, q = twice / (2 * r->maxval);
        bool tie = twice % (2 * r->maxval) == 0;
        r->scale[v] = (uint8_t)(tie ? q & ~1u : q);
    }
    return r->scale != NULL;
}

/* Samples of binary files that are above maxval count as maxval. */
static uint8_t to_byte(const pnm_reader *r, uint64_t v)
{
    uint8_t b = r->scale[v > r->maxval ? r->maxval : v];
    return r->one_is_black ? (uint8_t)(255 - b) : b;
}

/* Plain samples; PBM digits need no blanks between them. */
static bool read_plain(pnm_reader *r, uint64_t *v)
{
    if (!r->bits)
        return read_number(r, v);
    skip_blank(r);
    if (r->at >= r->src->size || (r->src->data[r->at] | 1) != '1')
        return false;
    *v = (uint64_t)(r->src->data[r->at++] - '0');
    return true;
}

static int fail_sample(const pnm_reader *r, samite_error *err)
{
    if (r->at >= r->src->size)
        return fail_truncated(r->src, "PNM", err);
    return fail(err, SAMITE_INPUT, "%s: damaged PNM: expected a sample at byte %zu", r->src->name, r->at);
}

static int read_plain_samples(pixels *out, pnm_reader *r, samite_error *err)
{
    size_t count = (size_t)out->width * (size_t)out->height;
    for (size_t i = 0; i < count; i++) {
        uint8_t *p = out->rgb + 3 * i;
        for (unsigned c = 0; c < r->channels; c++) {
            uint64_t v;
            if (!read_plain(r, &v))
                return fail_sample(r, err);
            if (v > r->maxval)
                return fail(err, SAMITE_INPUT, "%s: damaged PNM: a sample of %llu, and the header says at most %u",
                            r->src->name, (unsigned long long)v, r->maxval);
            p[c] = to_byte(r, v);
        }
        if (r->channels == 1)
            p[1] = p[2] = p[0];
    }
    return SAMITE_OK;
}

static void unpack_row(uint8_t *rgb, const pnm_reader *r, const uint8_t *from, size_t width)
{
    size_t wide = r->maxval > 255 ? 2 : 1;
    for (size_t x = 0; x < width; x++, rgb += 3) {
        if (r->bits) {
            rgb[0] = rgb[1] = rgb[2] = to_byte(r, from[x / 8] >> (7 - x % 8) & 1);
            continue;
        }
        const uint8_t *p = from + x * r->channels * wide;
        for (unsigned c = 0; c < 3; c++) {
            const uint8_t *s = p + (r->channels >= 3 ? c : 0) * wide;
            rgb[c] = to_byte(r, wide == 2 ? (unsigned)s[0] << 8 | s[1] : s[0]);
        }
    }
}

static int read_samples(pixels *out, pnm_reader *r, samite_error *err)
{
    if (r->kind <= 3)
        return read_plain_samples(out, r, err);
    size_t width = (size_t)out->width, height = (size_t)out->height;
    size_t row = r->bits ? (width + 7) / 8 : width * r->channels * (r->maxval > 255 ? 2 : 1);
    if ((r->src->size - r->at) / row < height)
        return fail_truncated(r->src, "PNM", err);
    for (size_t y = 0; y < height; y++)
        unpack_row(out->rgb + y * width * 3, r, r->src->data + r->at + y * row, width);
    return SAMITE_OK;
}

int decode_pnm(pixels *out, const image_source *src, samite_error *err)
{
    pnm_reader r = {.src = src, .at = 2, .kind = src->data[1] - '0'};
    int code = r.kind == 7 ? read_pam_header(&r, err) : read_pnm_header(&r, err);
    if (code != SAMITE_OK)
        return code;
    /* A sample takes at least a bit (or, in plain files, a digit). */
    if (r.width && r.height > (uint64_t)src->size * 8 / r.width && r.height <= src->max_pixels / r.width)
        return fail_truncated(src, "PNM", err);
    code = pixels_alloc(out, src, r.width, r.height, err);
    if (code != SAMITE_OK)
        return code;
    if (!make_scale(&r))
        return fail(err, SAMITE_RESOURCE, "%s: no memory for reading PNM", src->name);
    code = read_samples(out, &r, err);
    free(r.scale);
    return code;
}
