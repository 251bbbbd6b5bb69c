/* draw.c - translucent masks with crisp outlines, boxes, and labels that keep out of each other's way. */
#include "io/draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/coco.h"
#include "io/font.h"

#define GOLDEN_ANGLE 2.399963229728653
#define LABEL_LENGTH 160
#define MOST_LABELS  2000   /* beyond this a picture is covered anyway */

typedef struct canvas {
    uint8_t *rgb;
    int      width, height;
} canvas;

typedef struct area {
    int x, y, width, height;
} area;

/* ---- colours ---- */

static double clamp01(double v)
{
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

/* Oklab lightness, chroma and hue to linear RGB. */
static void oklch_to_linear(double rgb[3], double lightness, double chroma, double hue)
{
    double a = chroma * cos(hue), b = chroma * sin(hue);
    double l = lightness + 0.3963377774 * a + 0.2158037573 * b, m = lightness - 0.1055613458 * a - 0.0638541728 * b;
    double s = lightness - 0.0894841775 * a - 1.2914855480 * b;
    l = l * l * l;
    m = m * m * m;
    s = s * s * s;
    rgb[0] = 4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s;
    rgb[1] = -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s;
    rgb[2] = -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s;
}

static bool in_gamut(const double rgb[3])
{
    for (int c = 0; c < 3; c++) {
        if (rgb[c] < -1e-4 || rgb[c] > 1 + 1e-4)
            return false;
    }
    return true;
}

/* Hues a golden angle apart at three lightnesses, as saturated as the screen allows up to a common limit. */
void draw_colour(uint8_t rgb[3], int index)
{
    static const double lightness[3] = {0.70, 0.80, 0.62};
    double linear[3], chroma = 0.19, i = index < 0 ? 0 : index;
    do {
        oklch_to_linear(linear, lightness[(int)fmod(i, 3)], chroma, 0.45 + fmod(i * GOLDEN_ANGLE, 2 * M_PI));
        chroma -= 0.005;
    } while (!in_gamut(linear) && chroma > 0);
    for (int c = 0; c < 3; c++) {
        double v = clamp01(linear[c]);
        v = v <= 0.0031308 ? 12.92 * v : 1.055 * pow(v, 1 / 2.4) - 0.055;
        rgb[c] = (uint8_t)lround(255 * v);
    }
}

static void blend(uint8_t *p, const uint8_t colour[3], int alpha)
{
    for (int c = 0; c < 3; c++)
        p[c] = (uint8_t)((p[c] * (255 - alpha) + colour[c] * alpha + 127) / 255);
}

static uint8_t *pixel(const canvas *c, int x, int y)
{
    return c->rgb + ((size_t)y * (size_t)c->width + (size_t)x) * 3;
}

/* Fills what of the area lies inside the picture. */
static void fill(const canvas *c, area a, const uint8_t colour[3], int alpha)
{
    int x1 = a.x + a.width < c->width ? a.x + a.width : c->width,
        y1 = a.y + a.height < c->height ? a.y + a.height : c->height;
    for (int y = a.y < 0 ? 0 : a.y; y < y1; y++) {
        for (int x = a.x < 0 ? 0 : a.x; x < x1; x++)
            blend(pixel(c, x, y), colour, alpha);
    }
}

/* ---- masks ---- */

/* The part of a mask inside its box, widened by `pad` on all sides (it may reach beyond the picture). */
typedef struct patch {
    area     at;
    uint8_t *mask, *line;   /* [height, width] the mask; how much of a pixel the outline covers, 0..255 */
} patch;

static bool patch_make(patch *p, const rle *r, int pad)
{
    double box[4];
    rle_bbox(box, r);
    p->at = (area){(int)box[0] - pad, (int)box[1] - pad, (int)box[2] + 2 * pad, (int)box[3] + 2 * pad};
    size_t bytes = (size_t)p->at.width * (size_t)p->at.height, height = (size_t)r->height, at = 0;
    p->mask = calloc(bytes, 1);
    p->line = calloc(bytes, 1);
    if (!p->mask || !p->line)
        return false;
    for (size_t i = 0; i < r->runs; at += r->counts[i++]) {
        size_t x = at / height, y = at % height;
        for (uint32_t k = 0; i % 2 && k < r->counts[i]; k++) {
            p->mask[(y - (size_t)p->at.y) * (size_t)p->at.width + x - (size_t)p->at.x] = 1;
            if (++y == height)
                y = 0, x++;
        }
    }
    return true;
}

static void patch_free(patch *p)
{
    free(p->mask);
    free(p->line);
}

/* Coverage of a round dot of the line's width whose middle is half a pixel right of (or below) a pixel's middle. Dots
 * on the middles of all pixel edges make a line that is straight where the border is a staircase. */
typedef struct dot {
    int      reach;      /* pixels from -reach + 1 to reach along the edge's normal, -reach to reach across */
    uint8_t *coverage;   /* [2 reach + 1, 2 reach] */
} dot;

static bool dot_make(dot *d, double width)
{
    d->reach = (int)ceil(width / 2 + 1);
    int n = 2 * d->reach;
    d->coverage = malloc((size_t)n * (size_t)(n + 1));
    for (int across = 0; d->coverage && across <= n; across++) {
        for (int along = 0; along < n; along++) {
            double distance = hypot(along - d->reach + .5, across - d->reach);
            d->coverage[across * n + along] = (uint8_t)lround(255 * clamp01(width / 2 + .5 - distance));
        }
    }
    return d->coverage != NULL;
}

/* Puts a dot between the pixel at `index` of the patch and its neighbour `normal` further. */
static void put_dot(patch *p, const dot *d, size_t index, ptrdiff_t normal, ptrdiff_t across)
{
    int n = 2 * d->reach;
    for (int i = 0; i <= n; i++) {
        uint8_t *to = p->line + index + (i - d->reach) * across + (1 - d->reach) * normal;
        for (int j = 0; j < n; j++, to += normal) {
            uint8_t v = d->coverage[i * n + j];
            *to = v > *to ? v : *to;
        }
    }
}

static void put_outline(patch *p, const dot *d, int pad)
{
    ptrdiff_t stride = p->at.width;
    for (int y = pad - 1; y < p->at.height - pad; y++) {
        for (int x = pad - 1; x < p->at.width - pad; x++) {
            size_t i = (size_t)y * (size_t)stride + (size_t)x;
            if (p->mask[i] != p->mask[i + 1])
                put_dot(p, d, i, 1, stride);
            if (p->mask[i] != p->mask[i + (size_t)stride])
                put_dot(p, d, i, stride, 1);
        }
    }
}

static void blend_patch(const canvas *c, const patch *p, const uint8_t colour[3], int alpha)
{
    for (int y = 0; y < p->at.height; y++) {
        int to_y = p->at.y + y;
        for (int x = 0; x < p->at.width && to_y >= 0 && to_y < c->height; x++) {
            size_t i = (size_t)y * (size_t)p->at.width + (size_t)x;
            int a = p->mask[i] ? alpha : 0, to_x = p->at.x + x;
            a = p->line[i] > a ? p->line[i] : a;
            if (a && to_x >= 0 && to_x < c->width)
                blend(pixel(c, to_x, to_y), colour, a);
        }
    }
}

/* false: out of memory. */
static bool draw_mask(const canvas *c, const draw_instance *in, const draw_style *style, double line)
{
    uint8_t colour[3];
    patch p = {0};
    dot d = {0};
    bool ok = dot_make(&d, line);
    int pad = d.reach + 1;
    ok = ok && patch_make(&p, in->mask, pad);
    if (ok) {
        draw_colour(colour, in->colour);
        if (style->outlines)
            put_outline(&p, &d, pad);
        blend_patch(c, &p, colour, style->masks ? (int)lround(255 * clamp01(style->opacity)) : 0);
    }
    patch_free(&p);
    free(d.coverage);
    return ok;
}

/* ---- boxes ---- */

/* The box in whole pixels, inside the picture; false if nothing of it is. */
static bool box_area(area *a, const canvas *c, const double box[4])
{
    if (!(box[2] > 0) || !(box[3] > 0) || !isfinite(box[0] + box[1] + box[2] + box[3]))
        return false;
    double x0 = fmax(box[0], 0), y0 = fmax(box[1], 0), x1 = fmin(box[0] + box[2], c->width),
           y1 = fmin(box[1] + box[3], c->height);
    if (x0 >= x1 || y0 >= y1)
        return false;
    *a = (area){(int)lround(x0), (int)lround(y0), 0, 0};
    a->width = (int)lround(x1) - a->x;
    a->height = (int)lround(y1) - a->y;
    return a->width > 0 && a->height > 0;
}

static void draw_box(const canvas *c, const draw_instance *in, double line)
{
    area a;
    uint8_t colour[3];
    if (!box_area(&a, c, in->box))
        return;
    int t = line < 1.5 ? 1 : (int)lround(line), least = a.width < a.height ? a.width : a.height;
    t = 2 * t > least ? (least + 1) / 2 : t;
    draw_colour(colour, in->colour);
    fill(c, (area){a.x, a.y, a.width, t}, colour, 235);
    if (a.height > t)
        fill(c, (area){a.x, a.y + a.height - t, a.width, t}, colour, 235);
    fill(c, (area){a.x, a.y + t, t, a.height - 2 * t}, colour, 235);
    if (a.width > t)
        fill(c, (area){a.x + a.width - t, a.y + t, t, a.height - 2 * t}, colour, 235);
}

/* ---- labels ---- */

static int64_t common_area(area a, area b)
{
    int x0 = a.x > b.x ? a.x : b.x, x1 = a.x + a.width < b.x + b.width ? a.x + a.width : b.x + b.width;
    int y0 = a.y > b.y ? a.y : b.y, y1 = a.y + a.height < b.y + b.height ? a.y + a.height : b.y + b.height;
    return x1 > x0 && y1 > y0 ? (int64_t)(x1 - x0) * (y1 - y0) : 0;
}

static area move_inside(area a, const canvas *c)
{
    a.x = a.x + a.width > c->width ? c->width - a.width : a.x;
    a.y = a.y + a.height > c->height ? c->height - a.height : a.y;
    a.x = a.x < 0 ? 0 : a.x;
    a.y = a.y < 0 ? 0 : a.y;
    return a;
}

/* Best of a few places along the box's edges: the first one that is free, else the one that hides least. */
static area place_label(area box, int width, int height, const canvas *c, const area *taken, size_t count)
{
    int right = box.x + box.width - width, bottom = box.y + box.height;
    const int places[][2] = {{box.x, box.y - height}, {box.x, box.y}, {box.x, bottom},
                             {right, box.y - height}, {right, box.y}, {box.x, bottom - height},
                             {right, bottom}, {right, bottom - height}, {box.x, box.y + height},
                             {box.x, box.y - 2 * height}, {box.x, box.y + 2 * height}};
    area best = {0};
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < sizeof places / sizeof *places && least > 0; i++) {
        area a = {places[i][0], places[i][1], width, height}, inside = move_inside(a, c);
        int64_t cost = (llabs((long long)inside.x - a.x) + llabs((long long)inside.y - a.y)) / 4;
        for (size_t k = 0; k < count; k++)
            cost += common_area(inside, taken[k]);
        if (cost < least)
            least = cost, best = inside;
    }
    return best;
}

/* "name 0.93", shortened at a character until it fits. */
static void make_label(char *to, size_t room, const draw_instance *in, font *f, int width)
{
    char score[16] = "", *name = utf8_repair(in->name);
    size_t n = name ? strlen(name) : 0;
    if (in->score >= 0)
        snprintf(score, sizeof score, "%s%.2f", n ? " " : "", in->score < 100 ? in->score : 99.99);
    n = n < room - 32 ? n : room - 32;
    for (bool cut = false;; cut = true) {
        while (n > 0 && name && (name[n] & 0xc0) == 0x80)
            n--;
        snprintf(to, room, "%.*s%s%s", (int)n, name ? name : "", cut || (name && name[n]) ? "..." : "", score);
        if (n == 0 || font_measure(f, to) <= width)
            break;
        n--;
    }
    free(name);
}

static void draw_label(const canvas *c, const draw_instance *in, font *f, area *taken, size_t *count)
{
    area box;
    uint8_t colour[3];
    char label[LABEL_LENGTH];
    static const uint8_t black[3] = {16, 16, 16}, white[3] = {255, 255, 255};
    double from_mask[4];
    if (!box_area(&box, c, in->box)) {
        if (!in->mask)
            return;
        rle_bbox(from_mask, in->mask);
        if (!box_area(&box, c, from_mask))
            return;
    }
    int pad = (font_ascent(f) + font_descent(f)) / 5 + 1;
    int room = c->width * 2 / 5 > box.width ? c->width * 2 / 5 : box.width;
    make_label(label, sizeof label, in, f, room - 2 * pad);
    int width = font_measure(f, label) + 2 * pad, height = font_ascent(f) + font_descent(f) + pad;
    area a = place_label(box, width, height, c, taken, *count);
    draw_colour(colour, in->colour);
    bool bright = 299 * colour[0] + 587 * colour[1] + 114 * colour[2] > 115000;
    fill(c, a, colour, 225);
    font_draw(f, c->rgb, c->width, c->height, a.x + pad, a.y + pad / 2 + font_ascent(f), label, bright ? black : white);
    taken[(*count)++] = a;
}

/* ---- all together ---- */

typedef struct by_area {
    uint64_t pixels;
    size_t   index;
} by_area;

static int larger_first(const void *a, const void *b)
{
    const by_area *x = a, *y = b;
    if (x->pixels != y->pixels)
        return x->pixels < y->pixels ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

static int draw_masks(const canvas *c, const draw_instance *in, size_t count, const draw_style *style, double line,
                      samite_error *err)
{
    by_area *order = malloc((count + 1) * sizeof *order);
    size_t used = 0;
    bool ok = order != NULL;
    for (size_t i = 0; ok && i < count; i++) {
        if (in[i].mask && rle_area(in[i].mask) > 0)
            order[used++] = (by_area){rle_area(in[i].mask), i};
    }
    if (used > 1)
        qsort(order, used, sizeof *order, larger_first);
    for (size_t i = 0; ok && i < used; i++)
        ok = draw_mask(c, &in[order[i].index], style, line);
    free(order);
    return ok ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "no memory for drawing masks");
}

static int draw_labels(const canvas *c, const draw_instance *in, size_t count, const draw_style *style, double unit,
                       samite_error *err)
{
    size_t most = count < MOST_LABELS ? count : MOST_LABELS, used = 0;
    area *taken = malloc((most + 1) * sizeof *taken);
    font *f = font_open((int)lround(unit * 14), style->plain_font);
    bool ok = taken && f;
    for (size_t i = 0; ok && i < most; i++) {
        if (in[i].name)
            draw_label(c, &in[i], f, taken, &used);
    }
    free(taken);
    font_free(f);
    return ok ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "no memory for drawing labels");
}

int draw_overlay(uint8_t *rgb, int width, int height, const draw_instance *in, size_t count, const draw_style *style,
                 samite_error *err)
{
    static const draw_style defaults = DRAW_STYLE_INIT;
    canvas c = {rgb, width, height};
    style = style ? style : &defaults;
    for (size_t i = 0; i < count; i++) {
        if (in[i].mask && (in[i].mask->width != width || in[i].mask->height != height))
            return fail(err, SAMITE_USAGE, "mask %zu is %d x %d, the picture %d x %d", i, in[i].mask->width,
                        in[i].mask->height, width, height);
    }
    double scale = style->scale > 0.1 && style->scale < 20 ? style->scale : 1;
    double unit = fmax(sqrt((double)width * height) / 555, 0.5) * scale, line = fmax(1.6 * unit, 1);
    int code = SAMITE_OK;
    if (style->masks || style->outlines)
        code = draw_masks(&c, in, count, style, line, err);
    for (size_t i = count; style->boxes && code == SAMITE_OK && i-- > 0;)
        draw_box(&c, &in[i], line);
    if (style->labels && code == SAMITE_OK && count > 0)
        code = draw_labels(&c, in, count, style, unit, err);
    return code;
}
