/* augment.c - resizing as the official data pipeline does it, and the arithmetic of boxes. */
#include "train/augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/random.h"

#define OFFICIAL_SIDE  1008
#define OFFICIAL_LEAST 480
#define SIZE_STEP      32
#define FIXED_BITS     22      /* of weights in 8-bit resizing */

/* ---- random placement ---- */

placement placement_draw(uint64_t seed, uint64_t epoch, uint64_t image, int side)
{
    int least = (OFFICIAL_LEAST * side + OFFICIAL_SIDE * SIZE_STEP - 1) / (OFFICIAL_SIDE * SIZE_STEP) * SIZE_STEP;
    int sizes = side >= least ? (side - least) / SIZE_STEP + 1 : 0;
    placement p = placement_whole(side);
    uint64_t place = image << 2;
    if (sizes > 0)
        p.size = least + SIZE_STEP * random_below(random_at(seed, RANDOM_DRAW, epoch, place), sizes);
    p.left = random_below(random_at(seed, RANDOM_DRAW, epoch, place + 1), side - p.size + 1);
    p.top = random_below(random_at(seed, RANDOM_DRAW, epoch, place + 2), side - p.size + 1);
    return p;
}

placement placement_whole(int side)
{
    return (placement){side, 0, 0};
}

/* ---- weights of a triangle filter that grows with the reduction ---- */

typedef struct filter {
    int     taps;           /* room per output */
    int    *first, *count;  /* [out] */
    double *weight;         /* [out, taps] */
} filter;

static void filter_free(filter *f)
{
    free(f->first), free(f->count), free(f->weight);
}

static bool filter_make(filter *f, int in, int out)
{
    double step = (double)in / out, wide = step > 1 ? step : 1, narrow = 1 / wide;     /* products, as PIL: ties hang on it */
    f->taps = (int)ceil(wide) * 2 + 1;
    f->first = malloc(sizeof(int) * (size_t)out);
    f->count = malloc(sizeof(int) * (size_t)out);
    f->weight = malloc(sizeof(double) * (size_t)out * (size_t)f->taps);
    if (!f->first || !f->count || !f->weight)
        return false;
    for (int i = 0; i < out; i++) {
        double center = (i + 0.5) * step, sum = 0, *w = f->weight + (int64_t)i * f->taps;
        int low = (int)(center - wide + 0.5), high = (int)(center + wide + 0.5);
        low = low < 0 ? 0 : low;
        high = high > in ? in : high;
        f->first[i] = low;
        f->count[i] = high - low;
        for (int k = 0; k < high - low; k++) {
            double d = fabs((k + low - center + 0.5) * narrow);
            w[k] = d < 1 ? 1 - d : 0;
            sum += w[k];
        }
        for (int k = 0; k < high - low && sum != 0; k++)
            w[k] /= sum;
    }
    return true;
}

/* ---- pictures ---- */

static int *fixed_weights(const filter *f, int out)
{
    size_t n = (size_t)out * (size_t)f->taps;
    int *w = calloc(n + 1, sizeof *w);
    for (int i = 0; w && i < out; i++)
        for (int k = 0; k < f->count[i]; k++)
            w[(size_t)i * (size_t)f->taps + (size_t)k] = (int)(f->weight[(size_t)i * (size_t)f->taps + (size_t)k] *
                                                               (1 << FIXED_BITS) + 0.5);
    return w;
}

static uint8_t rounded_byte(int sum)
{
    int v = sum >> FIXED_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void resize_across(uint8_t *out, int to, const uint8_t *row, const filter *f, const int *weight)
{
    for (int x = 0; x < to; x++) {
        const uint8_t *p = row + (size_t)f->first[x] * 3;
        const int *w = weight + (size_t)x * (size_t)f->taps;
        int sum[3] = {1 << (FIXED_BITS - 1), 1 << (FIXED_BITS - 1), 1 << (FIXED_BITS - 1)};
        for (int k = 0; k < f->count[x]; k++, p += 3)
            for (int c = 0; c < 3; c++)
                sum[c] += w[k] * p[c];
        for (int c = 0; c < 3; c++)
            out[x * 3 + c] = rounded_byte(sum[c]);
    }
}

static void resize_down(uint8_t *out, int columns, int y, const uint8_t *in, const filter *f, const int *weight)
{
    const int *w = weight + (size_t)y * (size_t)f->taps;
    for (int x = 0; x < columns; x++) {
        int sum = 1 << (FIXED_BITS - 1);
        for (int k = 0; k < f->count[y]; k++)
            sum += w[k] * in[(size_t)(f->first[y] + k) * (size_t)columns + (size_t)x];
        out[x] = rounded_byte(sum);
    }
}

/* A pass that would change nothing is left out, so that no rounding happens in it. */
static bool resize_passes(uint8_t *out, int to, const pixels *in, uint8_t *middle, const filter *across,
                          const filter *down)
{
    int *wide = fixed_weights(across, to), *tall = fixed_weights(down, to);
    size_t row = (size_t)in->width * 3, line = (size_t)to * 3;
    bool ok = wide && tall;
    if (ok) {
#pragma omp parallel for schedule(static)
        for (int y = 0; y < in->height; y++) {
            if (in->width == to)
                memcpy(middle + (size_t)y * line, in->rgb + (size_t)y * row, line);
            else
                resize_across(middle + (size_t)y * line, to, in->rgb + (size_t)y * row, across, wide);
        }
#pragma omp parallel for schedule(static)
        for (int y = 0; y < to; y++) {
            if (in->height == to)
                memcpy(out + (size_t)y * line, middle + (size_t)y * line, line);
            else
                resize_down(out + (size_t)y * line, to * 3, y, middle, down, tall);
        }
    }
    free(wide);
    free(tall);
    return ok;
}

int resize_as_pil(uint8_t *out, int to, const pixels *in, samite_error *err)
{
    filter across = {0}, down = {0};
    uint8_t *middle = malloc((size_t)to * 3 * (size_t)in->height);
    bool ok = middle && filter_make(&across, in->width, to) && filter_make(&down, in->height, to) &&
              resize_passes(out, to, in, middle, &across, &down);
    filter_free(&across);
    filter_free(&down);
    free(middle);
    return ok ? 0
              : fail(err, SAMITE_RESOURCE, "not enough memory to resize a picture of %d x %d", in->width, in->height);
}

int place_picture(float *out, int side, const pixels *in, placement at, samite_error *err)
{
    uint8_t *small = malloc((size_t)at.size * (size_t)at.size * 3);
    int code =
        small ? resize_as_pil(small, at.size, in, err) : fail(err, SAMITE_RESOURCE, "not enough memory for a picture");
    float table[256];
    for (int v = 0; v < 256; v++)
        table[v] = ((float)v / 255.0f - 0.5f) / 0.5f;
    if (!code) {
#pragma omp parallel for schedule(static)
        for (int y = 0; y < side; y++) {
            float *row = out + (size_t)y * (size_t)side * 3;
            for (int i = 0; i < side * 3; i++)
                row[i] = -1;
            if (y < at.top || y >= at.top + at.size)
                continue;
            const uint8_t *from = small + (size_t)(y - at.top) * (size_t)at.size * 3;
            for (int i = 0; i < at.size * 3; i++)
                row[at.left * 3 + i] = table[from[i]];
        }
    }
    free(small);
    return code;
}

/* ---- masks ---- */

static float *float_weights(const filter *f, int in, int out)
{
    float *w = calloc((size_t)out * (size_t)f->taps + 1, sizeof *w), step = (float)in / (float)out,
          wide = step > 1 ? step : 1;
    for (int i = 0; w && i < out; i++) {
        float center = step * ((float)i + 0.5f), sum = 0, *own = w + (size_t)i * (size_t)f->taps;
        for (int k = 0; k < f->count[i]; k++) {
            float d = fabsf(((float)(k + f->first[i]) - center + 0.5f) * (1 / wide));
            own[k] = d < 1 ? 1 - d : 0;
            sum += own[k];
        }
        for (int k = 0; k < f->count[i] && sum != 0; k++)
            own[k] /= sum;
    }
    return w;
}

/* Columns first, into `middle` [height, to_width]; then rows. */
static void mask_passes(uint8_t *out, int to_width, int to_height, const uint8_t *in, int width, int height,
                        float *middle, const filter *across, const float *wide, const filter *down, const float *tall)
{
#pragma omp parallel for schedule(static)
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < to_width; x++) {
            const uint8_t *row = in + (size_t)y * (size_t)width + across->first[x];
            const float *w = wide + (size_t)x * (size_t)across->taps;
            float sum = 0;
            for (int k = 0; k < across->count[x]; k++)
                sum += w[k] * row[k];
            middle[(size_t)y * (size_t)to_width + (size_t)x] = sum;
        }
    }
#pragma omp parallel for schedule(static)
    for (int y = 0; y < to_height; y++) {
        const float *w = tall + (size_t)y * (size_t)down->taps;
        for (int x = 0; x < to_width; x++) {
            float sum = 0;
            for (int k = 0; k < down->count[y]; k++)
                sum += w[k] * middle[(size_t)(down->first[y] + k) * (size_t)to_width + (size_t)x];
            out[(size_t)y * (size_t)to_width + (size_t)x] = (uint8_t)nearbyintf(sum);
        }
    }
}

int resize_mask(uint8_t *out, int to_width, int to_height, const uint8_t *in, int width, int height, samite_error *err)
{
    if (width == to_width && height == to_height) {
        memcpy(out, in, (size_t)width * (size_t)height);
        return 0;
    }
    filter across = {0}, down = {0};
    float *wide = NULL, *tall = NULL, *middle = malloc(sizeof(float) * (size_t)to_width * (size_t)height);
    bool ok = middle && filter_make(&across, width, to_width) && filter_make(&down, height, to_height) &&
              (wide = float_weights(&across, width, to_width)) && (tall = float_weights(&down, height, to_height));
    if (ok)
        mask_passes(out, to_width, to_height, in, width, height, middle, &across, wide, &down, tall);
    filter_free(&across);
    filter_free(&down);
    free(wide), free(tall), free(middle);
    return ok ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to resize a mask");
}

/* Polygons become one mask; run lengths are checked against their own size. */
static int shape_runs(rle *out, const segment *s, int width, int height, samite_error *err)
{
    *out = (rle){0};
    if (s->kind == SEGMENT_TEXT)
        return rle_from_string(out, s->text, s->count, s->width, s->height, "segmentation", err);
    if (s->kind == SEGMENT_COUNTS)
        return rle_from_counts(out, s->counts, s->count, s->width, s->height, "segmentation", err);
    rle *part = calloc(s->count, sizeof *part);
    int code = part ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a mask");
    for (size_t i = 0, first = 0; i < s->count && !code; first = s->ends[i++])
        code = rle_from_polygon(&part[i], s->xy + first, (s->ends[i] - first) / 2, width, height, err);
    if (!code)
        code = rle_merge(out, part, s->count, false, err);
    for (size_t i = 0; part && i < s->count; i++)
        rle_free(&part[i]);
    free(part);
    return code;
}

/* x0 y0 x1 y1 in pixels of the decoded picture. */
static void absolute_box(float *out, float *fraction, const train_object *x, const train_image *record, int width,
                         int height)
{
    float size[2] = {(float)(record->width ? record->width : width), (float)(record->height ? record->height : height)};
    float full[2] = {(float)width, (float)height};
    for (int i = 0; i < 4; i++)
        fraction[i] = fminf(fmaxf((float)x->box[i] / size[i % 2], 0), 1);
    for (int i = 0; i < 4; i++) {
        float v = i < 2 ? fraction[i] : fraction[i - 2] + fraction[i];
        out[i] = fminf(fmaxf(v * full[i % 2], 0), full[i % 2]);
    }
}

/* A mask without a pixel: the box stands in. */
static void fill_box(uint8_t *mask, int width, int height, const float *box)
{
    int x0 = (int)box[0], y0 = (int)box[1], x1 = (int)box[2], y1 = (int)box[3];
    x1 = x1 > x0 ? x1 : x0 + 1;
    y1 = y1 > y0 ? y1 : y0 + 1;
    for (int y = y0; y < y1 && y < height; y++)
        for (int x = x0; x < x1 && x < width; x++)
            mask[(size_t)y * (size_t)width + (size_t)x] = 1;
}

/* The mask at the size of the decoded picture. */
static int full_mask(uint8_t *out, const train_object *x, const train_image *record, int width, int height,
                     samite_error *err)
{
    rle r;
    int code =
        shape_runs(&r, x->shape, record->width ? record->width : width, record->height ? record->height : height, err);
    if (code)
        return code;
    if (rle_area(&r) == 0) {
        float box[4], fraction[4];
        absolute_box(box, fraction, x, record, width, height);
        memset(out, 0, (size_t)width * (size_t)height);
        fill_box(out, width, height, box);
    } else {
        uint8_t *own = malloc((size_t)r.width * (size_t)r.height);
        if (own)
            rle_decode(own, &r);
        code = own ? resize_mask(out, width, height, own, r.width, r.height, err)
                   : fail(err, SAMITE_RESOURCE, "not enough memory for a mask");
        free(own);
    }
    rle_free(&r);
    return code;
}

int place_mask(uint8_t *out, bool *valid, int side, const train_object *x, const train_image *record, int width,
               int height, placement at, samite_error *err)
{
    memset(out, 0, (size_t)side * (size_t)side);
    *valid = x->shape != NULL;
    if (!x->shape)
        return 0;
    uint8_t *full = malloc((size_t)width * (size_t)height), *small = malloc((size_t)at.size * (size_t)at.size);
    int code = full && small ? full_mask(full, x, record, width, height, err)
                             : fail(err, SAMITE_RESOURCE, "not enough memory for a mask");
    if (!code)
        code = resize_mask(small, at.size, at.size, full, width, height, err);
    for (int y = 0; y < at.size && !code; y++)
        memcpy(out + (size_t)(y + at.top) * (size_t)side + (size_t)at.left, small + (size_t)y * (size_t)at.size,
               (size_t)at.size);
    free(full);
    free(small);
    return code;
}

/* ---- boxes ---- */

double place_box(float *out, int side, const train_object *x, const train_image *record, int width, int height,
                 placement at)
{
    float box[4], fraction[4], ratio[2];
    double wide = (double)at.size / width, tall = (double)at.size / height;
    absolute_box(box, fraction, x, record, width, height);
    double area = (double)(fraction[2] * fraction[3]) * (wide * tall);
    ratio[0] = (float)wide;
    ratio[1] = (float)tall;
    for (int i = 0; i < 4; i++)
        box[i] = box[i] * ratio[i % 2] + (float)(i % 2 ? at.top : at.left);
    float whole = (float)side;
    out[0] = (box[0] + box[2]) / 2 / whole;
    out[1] = (box[1] + box[3]) / 2 / whole;
    out[2] = (box[2] - box[0]) / whole;
    out[3] = (box[3] - box[1]) / whole;
    return area;
}
