/* api_everything.c - clicks a grid of points, on the whole picture and on crops of it; duplicates are dropped. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "click.h"
#include "io/mask.h"
#include "track/choose.h"
#include "track/planes.h"

#define MOST_POINTS   256
#define MOST_CROPS    3
#define STABLE_DELTA  1.0f
#define CROP_OVERLAP  (512.0 / 1500.0)     /* of the shorter side, shared by neighbours of the first layer */
#define EDGE_PIXELS   20                   /* a mask that near to an edge made by cropping is cut off */
#define BATCH_BYTES   ((int64_t)64 << 20)  /* of one map of a batch of points */
#define MOST_BATCH    64

typedef struct found {
    float  overlap;
    double box[4];          /* x, y, width, height in the whole picture */
    double crop_area;
    rle    mask;
} found;

/* A part of the picture: x0, y0, x1, y1; layer 0 is the whole. */
typedef struct crop { int x0, y0, x1, y1, layer; } crop;

typedef struct search {
    samite_image            *im;
    const samite_pixels     *pixels;        /* NULL: the picture that is encoded already */
    int                      width, height; /* of the whole picture */
    const samite_everything *o;
    found                   *item;
    size_t                   count, room;
} search;

static void search_free(search *s)
{
    for (size_t i = 0; i < s->count; i++)
        rle_free(&s->item[i].mask);
    free(s->item);
}

/* ---- crops ---- */

/* Crop number i of 4^layer, cut from the picture with overlap. */
static crop crop_of(const search *s, int layer, int i)
{
    int n = 1 << layer, w = s->width, h = s->height, shorter = w < h ? w : h;
    int shared = n > 1 ? (int)(CROP_OVERLAP * shorter * 2.0 / n) : 0;
    int cw = (int)ceil((double)(shared * (n - 1) + w) / n), ch = (int)ceil((double)(shared * (n - 1) + h) / n);
    int x0 = (cw - shared) * (i % n), y0 = (ch - shared) * (i / n);
    return (crop){x0, y0, x0 + cw < w ? x0 + cw : w, y0 + ch < h ? y0 + ch : h, layer};
}

static int encode_crop(search *s, const crop *c, samite_error *err)
{
    if (c->layer == 0)
        return s->pixels ? samite_image_replace(s->im, s->pixels, err) : 0;
    samite_pixels part = {.width = c->x1 - c->x0, .height = c->y1 - c->y0};
    size_t line = (size_t)part.width * 3;
    part.rgb = malloc(line * (size_t)part.height);
    if (!part.rgb)
        return fail(err, SAMITE_RESOURCE, "not enough memory for a crop of %d x %d", part.width, part.height);
    for (int y = 0; y < part.height; y++)
        memcpy(part.rgb + (size_t)y * line,
               s->pixels->rgb + 3 * ((size_t)(c->y0 + y) * (size_t)s->pixels->width + (size_t)c->x0), line);
    int code = samite_image_replace(s->im, &part, err);
    free(part.rgb);
    return code;
}

/* Does the mask touch an edge that only the crop has? */
static bool cut_off(const search *s, const crop *c, const double *box)
{
    double right = c->x1 - c->x0 - (box[0] + box[2]), bottom = c->y1 - c->y0 - (box[1] + box[3]);
    return (c->x0 > 0 && box[0] < EDGE_PIXELS) || (c->y0 > 0 && box[1] < EDGE_PIXELS) ||
           (c->x1 < s->width && right < EDGE_PIXELS) || (c->y1 < s->height && bottom < EDGE_PIXELS);
}

/* A mask of the crop as one of the whole picture. */
static int place_mask(const search *s, const crop *c, rle *mask, samite_error *err)
{
    int w = s->width, h = s->height, cw = mask->width;
    if (c->layer == 0)
        return 0;
    uint8_t *part = malloc((size_t)cw * (size_t)mask->height), *all = calloc((size_t)w * (size_t)h, 1);
    int code = part && all ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a mask of %d x %d", w, h);
    if (!code) {
        rle_decode(part, mask);
        for (int y = 0; y < mask->height; y++)
            memcpy(all + (size_t)(c->y0 + y) * (size_t)w + (size_t)c->x0, part + (size_t)y * (size_t)cw, (size_t)cw);
        rle placed;
        if (!(code = rle_encode(&placed, all, w, h, err))) {
            rle_free(mask);
            *mask = placed;
        }
    }
    free(part);
    free(all);
    return code;
}

/* ---- candidates ---- */

static int add_found(search *s, const found *f, samite_error *err)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 256;
        found *more = realloc(s->item, room * sizeof *more);
        if (!more)
            return fail(err, SAMITE_RESOURCE, "not enough memory for %zu masks", s->count);
        s->item = more;
        s->room = room;
    }
    s->item[s->count++] = *f;
    return 0;
}

/* One guess for one point: kept if it is sure, sharp, not empty and not cut off. */
static int consider(search *s, const crop *c, const float *plane, float overlap, samite_error *err)
{
    int side = (int)s->im->clicks.fine0->dim[0];
    found f = {.overlap = overlap, .crop_area = (double)(c->x1 - c->x0) * (c->y1 - c->y0)};
    if (!(overlap >= s->o->overlap) || mask_stability(plane, (int64_t)side * side, STABLE_DELTA) < s->o->stability)
        return 0;
    int code = mask_from_logits(&f.mask, plane, side, side, s->im->width, s->im->height, 0.0f, err);
    if (code)
        return code;
    rle_bbox(f.box, &f.mask);
    if (rle_area(&f.mask) == 0 || cut_off(s, c, f.box)) {
        rle_free(&f.mask);
        return 0;
    }
    f.box[0] += c->x0;
    f.box[1] += c->y0;
    if ((code = place_mask(s, c, &f.mask, err)) || (code = add_found(s, &f, err)))
        rle_free(&f.mask);
    return code;
}

/* Clicks `batch` points of the grid, from number `first` on. */
static int click_batch(search *s, const crop *c, int per_side, int first, int batch, samite_error *err)
{
    float xy[2 * MOST_BATCH], side = (float)s->im->model->n->net->c.image;
    int kind[MOST_BATCH], code;
    for (int i = 0; i < batch; i++) {
        xy[2 * i] = ((float)((first + i) % per_side) + 0.5f) / (float)per_side * side;
        xy[2 * i + 1] = ((float)((first + i) / per_side) + 0.5f) / (float)per_side * side;
        kind[i] = POINT_POSITIVE;
    }
    run *r = s->im->r;
    run_point before = run_save(r);
    guesses g;
    sam3_click(r, s->im->model->n->net, &s->im->clicks, NULL, &(clicks){batch, 1, xy, kind}, NULL, &g);
    code = run_status(r, err);
    for (int i = 0; i < batch * MASK_GUESSES && !code; i++)
        if (i % MASK_GUESSES)
            code = consider(s, c, g.masks->data + i * g.masks->dim[2], g.overlap->data[i], err);
    run_restore(r, before);
    return code;
}

static int best_first(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->overlap != y->overlap)
        return x->overlap < y->overlap ? 1 : -1;
    for (int k = 0; k < 4; k++)
        if (x->box[k] != y->box[k])
            return x->box[k] < y->box[k] ? -1 : 1;
    return 0;
}

/* Smaller crops see more detail: their masks win over those of larger ones. */
static int detail_first(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->crop_area != y->crop_area)
        return x->crop_area < y->crop_area ? -1 : 1;
    return best_first(a, b);
}

/* Sorts the masks from number `from` on, and drops those whose box overlaps that of an earlier one. */
static int drop_duplicates(search *s, size_t from, int (*order)(const void *, const void *), samite_error *err)
{
    size_t n = s->count - from, kept = from;
    double (*box)[4] = malloc(sizeof *box * (n + 1));
    uint8_t *keep = malloc(n + 1);
    int code = box && keep ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory to compare %zu masks", n);
    if (!code) {
        if (n)
            qsort(s->item + from, n, sizeof *s->item, order);
        for (size_t i = 0; i < n; i++)
            memcpy(box[i], s->item[from + i].box, sizeof *box);
        box_nms(keep, (const double (*)[4])box, n, (double)s->o->duplicate);
        for (size_t i = 0; i < n; i++) {
            if (keep[i])
                s->item[kept++] = s->item[from + i];
            else
                rle_free(&s->item[from + i].mask);
        }
        s->count = kept;
    }
    free(box);
    free(keep);
    return code;
}

static int search_crop(search *s, const crop *c, samite_error *err)
{
    const config *net = &s->im->model->n->net->c;
    int64_t map = (int64_t)config_tokens(net) * config_tokens(net) * net->d * (int64_t)sizeof(float);
    int most = (int)(BATCH_BYTES / map < 1 ? 1 : BATCH_BYTES / map), per_side = s->o->points >> c->layer;
    most = most > MOST_BATCH ? MOST_BATCH : most;
    per_side = per_side < 1 ? 1 : per_side;
    size_t from = s->count;
    int total = per_side * per_side, code = encode_crop(s, c, err);
    if (!code)
        code = image_clicks(s->im, err);
    image_stage(s->im, "everything", (uint64_t)((total + most - 1) / most) * 8);
    for (int first = 0; first < total && !code; first += most)
        code = click_batch(s, c, per_side, first, total - first < most ? total - first : most, err);
    return code ? code : drop_duplicates(s, from, best_first, err);
}

/* ---- the whole ---- */

static int check(const samite_image *im, const samite_pixels *p, const samite_everything *o, samite_error *err)
{
    const float share[3] = {o->overlap, o->stability, o->duplicate};
    if (p ? !p->rgb || p->width < 1 || p->height < 1 : o->crops > 0 || !im->encoded.begun)
        return fail(err, SAMITE_USAGE, "samite_image_everything: no picture given");
    if (o->points < 1 || o->points > MOST_POINTS)
        return fail(err, SAMITE_USAGE, "%d points per side: expected 1 to %d", o->points, MOST_POINTS);
    if (o->crops < 0 || o->crops > MOST_CROPS)
        return fail(err, SAMITE_USAGE, "%d layers of crops: expected 0 to %d", o->crops, MOST_CROPS);
    for (int i = 0; i < 3; i++)
        if (!(share[i] >= 0 && share[i] <= 1))
            return fail(err, SAMITE_USAGE, "a threshold of %g: expected 0 to 1", (double)share[i]);
    return 0;
}

static int hand_out(search *s, samite_result *res, samite_error *err)
{
    if (s->count)
        qsort(s->item, s->count, sizeof *s->item, best_first);
    size_t n = s->o->max_results > 0 && s->count > (size_t)s->o->max_results ? (size_t)s->o->max_results : s->count;
    res->presence = 1;
    res->instance = calloc(n + 1, sizeof *res->instance);
    if (!res->instance)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %zu results", n);
    for (size_t i = 0; i < n; i++) {
        found *f = &s->item[i];
        samite_instance *to = &res->instance[res->count++];
        *to = (samite_instance){.score = f->overlap, .area = rle_area(&f->mask),
                                .mask = {f->mask.width, f->mask.height, f->mask.counts, f->mask.runs}};
        for (int k = 0; k < 4; k++)
            to->box[k] = (float)(k < 2 ? f->box[k] : f->box[k - 2] + f->box[k]);
        f->mask = (rle){0};
    }
    return 0;
}

/* Crops first: afterwards the image holds the whole picture. */
static int search_all(search *s, samite_result *res, samite_error *err)
{
    int code = 0;
    for (int layer = s->o->crops; layer >= 0 && !code; layer--)
        for (int i = 0; i < 1 << 2 * layer && !code; i++) {
            crop c = crop_of(s, layer, i);
            if (c.x1 > c.x0 && c.y1 > c.y0)
                code = search_crop(s, &c, err);
        }
    if (!code && s->o->crops)
        code = drop_duplicates(s, 0, detail_first, err);
    return code ? code : hand_out(s, res, err);
}

int samite_image_everything(samite_image *im, const samite_pixels *pixels, const samite_everything *options,
                            samite_result **out, samite_error *err)
{
    if (!im || !out)
        return fail(err, SAMITE_USAGE, "samite_image_everything: no image given");
    *out = NULL;
    samite_everything o = SAMITE_EVERYTHING_INIT;
    if (options)
        options_copy(&o, sizeof o, options, options->size);
    int code = check(im, pixels, &o, err);
    if (code)
        return code;
    samite_result *res = calloc(1, sizeof *res);
    if (!res)
        return fail(err, SAMITE_RESOURCE, "not enough memory for the result");
    search s = {.im = im, .pixels = pixels, .width = pixels ? pixels->width : im->width,
                .height = pixels ? pixels->height : im->height, .o = &o};
    code = search_all(&s, res, err);
    search_free(&s);
    if (code) {
        samite_result_free(res);
        return code;
    }
    *out = res;
    return 0;
}
