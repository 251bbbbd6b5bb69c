/* api_tiled.c - large pictures: every window and the whole are segmented, and masks joined across the seams. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "io/mask.h"
#include "io/region.h"
#include "io/seams.h"

#define SMALLEST_TILE 32
#define LARGEST_TILE  16384
#define LARGEST_BAND  ((size_t)512 << 20)   /* bytes of a row of windows that is kept decoded */

/* ---- rasters ---- */

struct samite_raster {
    tiff_regions *tiff;
    int           width, height;
    uint8_t      *band;               /* rows y0 .. y1 of the picture, whole width */
    int           y0, y1;
};

int samite_raster_open(samite_raster **out, const char *path, samite_error *err)
{
    if (!out || !path)
        return fail(err, SAMITE_USAGE, "samite_raster_open: no path given");
    samite_raster *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r)
        return fail(err, SAMITE_RESOURCE, "not enough memory to open %s", path);
    int code = tiff_regions_open(&r->tiff, path, err);
    if (code) {
        free(r);
        return code;
    }
    tiff_regions_size(r->tiff, &r->width, &r->height);
    *out = r;
    return 0;
}

void samite_raster_size(const samite_raster *r, int *width, int *height)
{
    *width = r->width;
    *height = r->height;
}

void samite_raster_free(samite_raster *r)
{
    if (!r)
        return;
    tiff_regions_close(r->tiff);
    free(r->band);
    free(r);
}

/* Strips run over the whole width: a row of windows is decoded at once when it is not too large. */
static int raster_read(samite_raster *r, uint8_t *rgb, const window *w, samite_error *err)
{
    size_t line = (size_t)r->width * 3, rows = (size_t)(w->y1 - w->y0), part = (size_t)(w->x1 - w->x0) * 3;
    if (line > LARGEST_BAND / rows)
        return tiff_regions_read(r->tiff, rgb, w->x0, w->y0, w->x1 - w->x0, w->y1 - w->y0, err);
    if (!r->band || r->y0 != w->y0 || r->y1 != w->y1) {
        free(r->band);
        r->band = malloc(line * rows);
        int code = r->band ? tiff_regions_read(r->tiff, r->band, 0, w->y0, r->width, (int)rows, err)
                           : fail(err, SAMITE_RESOURCE, "not enough memory for %zu rows of %d pixels", rows, r->width);
        if (code) {
            free(r->band);
            r->band = NULL;
            return code;
        }
        r->y0 = w->y0;
        r->y1 = w->y1;
    }
    for (size_t y = 0; y < rows; y++)
        memcpy(rgb + y * part, r->band + y * line + (size_t)w->x0 * 3, part);
    return 0;
}

/* Averages squares of `factor` pixels into out[height / factor, width / factor], rounded up, reading few rows at a
 * time. */
static int raster_shrink(samite_raster *r, const samite_pixels *out, int factor, samite_error *err)
{
    size_t line = (size_t)r->width * 3, columns = (size_t)out->width * 3;
    uint8_t *rows = malloc(line * (size_t)factor);
    uint64_t *sum = malloc(columns * sizeof *sum);
    int code =
        rows && sum ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for %d rows of %d pixels", factor, r->width);
    for (int y = 0; y < out->height && !code; y++) {
        int left = r->height - y * factor, count = left < factor ? left : factor;
        code = tiff_regions_read(r->tiff, rows, 0, y * factor, r->width, count, err);
        memset(sum, 0, columns * sizeof *sum);
        for (size_t i = 0; i < (size_t)count * (size_t)r->width && !code; i++)
            for (size_t c = 0; c < 3; c++)
                sum[i % (size_t)r->width / (size_t)factor * 3 + c] += rows[3 * i + c];
        for (int x = 0; x < out->width && !code; x++) {
            int wide = r->width - x * factor;
            uint64_t n = (uint64_t)count * (uint64_t)(wide < factor ? wide : factor);
            for (size_t c = 0; c < 3; c++)
                out->rgb[(size_t)y * columns + (size_t)x * 3 + c] = (uint8_t)((sum[(size_t)x * 3 + c] + n / 2) / n);
        }
    }
    free(rows);
    free(sum);
    return code;
}

/* ---- the work ---- */

typedef struct tiled {
    samite_model        *m;
    const samite_tiles  *o;
    const samite_prompt *prompts;
    int                  count, width, height, across, down;
    samite_image        *im;
    window              *windows;     /* [across * down] */
    piece_list          *found;       /* [count] */
    samite_result      **results;
} tiled;

static void take_window(const samite_pixels *p, uint8_t *rgb, const window *w)
{
    size_t part = (size_t)(w->x1 - w->x0) * 3;
    for (int y = w->y0; y < w->y1; y++)
        memcpy(rgb + (size_t)(y - w->y0) * part, p->rgb + ((size_t)y * (size_t)p->width + (size_t)w->x0) * 3, part);
}

static int encode(tiled *t, const samite_pixels *p, samite_error *err)
{
    return t->im ? samite_image_replace(t->im, p, err) : samite_image_open(&t->im, t->m, p, err);
}

/* An instance as a piece of the picture. Empty masks are passed over. */
static int add_piece(tiled *t, int prompt, samite_instance *s, const window *w, int index, samite_error *err)
{
    rle mask = {s->mask.width, s->mask.height, (uint32_t *)(uintptr_t)s->mask.counts, s->mask.runs};
    piece p = {.score = s->score, .window = index};
    if (!mask.runs)
        return fail(err, SAMITE_INPUT, "windows are joined by their masks, and this model has no mask head");
    if (rle_area(&mask) == 0)
        return 0;
    for (int k = 0; k < 4; k++)
        p.box[k] = s->box[k] + (float)(k % 2 ? w->y0 : w->x0);
    int code = index < 0 ? rle_copy(&p.mask, &mask, err)
                         : rle_place(&p.mask, &mask, w->x0, w->y0, t->width, t->height, err);
    return code ? code : pieces_add(&t->found[prompt], &p, err);
}

/* Asks every prompt about what is encoded. */
static int ask(tiled *t, const window *w, int index, samite_error *err)
{
    int code = 0;
    for (int i = 0; i < t->count && !code; i++) {
        samite_prompt p = t->prompts[i];
        samite_result *r = NULL;
        p.max_results = 0;
        code = samite_image_segment(t->im, &p, &r, err);
        for (int k = 0; !code && k < r->count; k++)
            code = add_piece(t, i, &r->instance[k], w, index, err);
        if (!code) {
            samite_result *to = t->results[i];
            to->presence = r->presence > to->presence ? r->presence : to->presence;
            to->tokens = r->tokens;
            to->cut = r->cut;
        }
        samite_result_free(r);
    }
    return code;
}

static int segment_window(tiled *t, int index, uint8_t *rgb, samite_error *err)
{
    const window *w = &t->windows[index];
    samite_pixels part = {.width = w->x1 - w->x0, .height = w->y1 - w->y0, .rgb = rgb};
    int code = 0;
    if (t->o->raster)
        code = raster_read(t->o->raster, rgb, w, err);
    else
        take_window(t->o->pixels, rgb, w);
    if (!code)
        code = encode(t, &part, err);
    return code ? code : ask(t, w, index, err);
}

/* Results get the size of the picture, whatever size was encoded. */
static int segment_whole(tiled *t, samite_error *err)
{
    int side = 2 * t->m->n->net->c.image, longer = t->width > t->height ? t->width : t->height;
    int factor = t->o->raster && longer > side ? (longer + side - 1) / side : 1, code = 0;
    samite_pixels small = {.width = (t->width + factor - 1) / factor, .height = (t->height + factor - 1) / factor};
    const samite_pixels *p = t->o->pixels;
    if (t->o->raster) {
        small.rgb = malloc((size_t)small.width * (size_t)small.height * 3);
        code = small.rgb ? raster_shrink(t->o->raster, &small, factor, err)
                         : fail(err, SAMITE_RESOURCE, "not enough memory for the whole picture");
        p = &small;
    }
    if (!code)
        code = encode(t, p, err);
    free(small.rgb);
    if (code)
        return code;
    t->im->width = t->width;
    t->im->height = t->height;
    return ask(t, &(window){0, 0, t->width, t->height}, -1, err);
}

static int progress(const tiled *t, int done, samite_error *err)
{
    const samite_options *o = &t->m->options;
    int total = t->across * t->down + !t->o->no_whole;
    return o->progress && o->progress(o->user, "tile", (uint64_t)done, (uint64_t)total)
               ? fail(err, SAMITE_CANCELLED, "stopped by the caller") : 0;
}

/* A picture no larger than a window is looked at once. */
static int segment_all(tiled *t, samite_error *err)
{
    int n = t->across * t->down, side = t->o->tile;
    uint8_t *rgb = malloc((size_t)side * (size_t)side * 3);
    int code = rgb ? 0 : fail(err, SAMITE_RESOURCE, "not enough memory for a window of %d x %d", side, side);
    for (int i = 0; i < n && !code; i++) {
        code = progress(t, i, err);
        if (!code)
            code = segment_window(t, i, rgb, err);
    }
    free(rgb);
    if (!code && n > 1 && !t->o->no_whole) {
        code = progress(t, n, err);
        if (!code)
            code = segment_whole(t, err);
    }
    return code;
}

/* The joined objects of a prompt become its result. */
static int hand_out(tiled *t, int i, samite_error *err)
{
    piece_list *l = &t->found[i];
    samite_result *r = t->results[i];
    int code = seams_join(l, t->windows, (double)t->o->agree, err);
    if (code)
        return code;
    int most = t->prompts[i].max_results;
    size_t n = most > 0 && (size_t)most < l->count ? (size_t)most : l->count;
    r->instance = n <= INT_MAX ? calloc(n + 1, sizeof *r->instance) : NULL;
    if (!r->instance)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %zu results", n);
    for (size_t k = 0; k < n; k++) {
        piece *p = &l->item[k];
        samite_instance *to = &r->instance[r->count++];
        *to = (samite_instance){.score = p->score, .area = rle_area(&p->mask),
                                .mask = {p->mask.width, p->mask.height, p->mask.counts, p->mask.runs}};
        memcpy(to->box, p->box, sizeof to->box);
        p->mask = (rle){0};
    }
    return 0;
}

static int check(const samite_model *m, const samite_tiles *o, const samite_prompt *prompts, int count,
                 samite_error *err)
{
    const samite_pixels *p = o->pixels;
    if (!m || !prompts || count < 1 || !p == !o->raster || (p && (!p->rgb || p->width < 1 || p->height < 1)))
        return fail(err, SAMITE_USAGE,
                    "samite_segment_tiled: a model, prompts, and either pixels or a raster are needed");
    if (o->tile < SMALLEST_TILE || o->tile > LARGEST_TILE || o->overlap < 0 || o->overlap > o->tile / 2)
        return fail(err, SAMITE_USAGE, "windows of %d pixels that share %d: expected %d to %d, sharing at most half",
                    o->tile, o->overlap, SMALLEST_TILE, LARGEST_TILE);
    if (!(o->agree >= 0 && o->agree <= 1))
        return fail(err, SAMITE_USAGE, "agreement %g: expected 0 to 1", (double)o->agree);
    for (int i = 0; i < count; i++)
        if (prompts[i].box_count || prompts[i].no_masks)
            return fail(err, SAMITE_USAGE, "prompt %d has boxes or wants no masks, which does not go with windows",
                        i + 1);
    if (p && (uint64_t)p->width * (uint64_t)p->height > UINT32_MAX)
        return fail(err, SAMITE_USAGE, "%d x %d pixels are more than 2^32", p->width, p->height);
    return 0;
}

static int prepare(tiled *t, samite_error *err)
{
    const samite_tiles *o = t->o;
    t->width = o->raster ? o->raster->width : o->pixels->width;
    t->height = o->raster ? o->raster->height : o->pixels->height;
    t->across = window_count(t->width, o->tile, o->overlap);
    t->down = window_count(t->height, o->tile, o->overlap);
    if (t->across > INT_MAX / 2 / t->down)
        return fail(err, SAMITE_USAGE, "%d x %d windows are too many: make them larger", t->across, t->down);
    t->windows = malloc((size_t)t->across * (size_t)t->down * sizeof *t->windows);
    t->found = calloc((size_t)t->count, sizeof *t->found);
    if (!t->windows || !t->found)
        return fail(err, SAMITE_RESOURCE, "not enough memory for %d x %d windows", t->across, t->down);
    for (int i = 0; i < t->across * t->down; i++) {
        int x = window_start(i % t->across, t->width, o->tile, o->overlap);
        int y = window_start(i / t->across, t->height, o->tile, o->overlap);
        t->windows[i] = (window){x, y, t->width - x < o->tile ? t->width : x + o->tile,
                                 t->height - y < o->tile ? t->height : y + o->tile};
    }
    for (int i = 0; i < t->count; i++)
        if (!(t->results[i] = calloc(1, sizeof **t->results)))
            return fail(err, SAMITE_RESOURCE, "not enough memory for the results");
    return 0;
}

int samite_segment_tiled(samite_model *m, const samite_tiles *tiles, const samite_prompt *prompts, int count,
                         samite_result **results, samite_error *err)
{
    samite_tiles o = SAMITE_TILES_INIT;
    if (!tiles || !results)
        return fail(err, SAMITE_USAGE, "samite_segment_tiled: no options or no place for results given");
    options_copy(&o, sizeof o, tiles, tiles->size);
    int code = check(m, &o, prompts, count, err);
    if (code)
        return code;
    tiled t = {.m = m, .o = &o, .prompts = prompts, .count = count, .results = results};
    memset(results, 0, (size_t)count * sizeof *results);
    code = prepare(&t, err);
    if (!code)
        code = segment_all(&t, err);
    for (int i = 0; i < count && !code; i++)
        code = hand_out(&t, i, err);
    for (int i = 0; i < count && t.found; i++)
        pieces_free(&t.found[i]);
    for (int i = 0; i < count && code; i++) {
        samite_result_free(results[i]);
        results[i] = NULL;
    }
    samite_image_free(t.im);
    free(t.windows);
    free(t.found);
    return code;
}
