/* scene.c - objects one after the other onto a background: which, how large, where; no earlier one is hidden. */
#include "train/scene.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SMALLEST 0.16f         /* of the side: an object's longer side */
#define LARGEST  0.55f
#define TRIES    8
#define LEAST_SEEN 60          /* pixels of a new object */
#define LEAST_LEFT 0.65f       /* of an earlier one */
#define DEGREE   0.017453293f

static const uint8_t colours[SCENE_COLOURS][3] = {{215, 35, 35}, {40, 160, 60}, {40, 80, 215}, {240, 210, 40},
                                                  {140, 50, 170}, {240, 240, 240}, {25, 25, 25}};

/* An object before it is drawn: a sprite, turned, stretched and recoloured. */
typedef struct cut {
    const sprite *from;
    float across, down;        /* size in the picture before it is turned */
    float cosine, sine;
    bool  mirrored, flat;      /* flat: one colour instead of the sprite's */
    float ink[3], contrast, light;
} cut;

typedef struct patch {
    int    x0, y0, width, height;      /* may stick out */
    float *rgba;                       /* [height, width, 4] premultiplied, 0..255 */
    int    room;
} patch;

typedef struct painter {
    scene             *s;
    const scene_world *w;
    dice               d;
    float             *canvas;
    patch              p;
    int                area[SCENE_MOST];
} painter;

bool scene_true(const scene_world *w, int class, int prompt)
{
    return class == prompt ||
           (class >= w->name_count && prompt >= w->classes && (class - w->name_count) % SCENE_SHAPES == prompt - w->classes);
}

/* ---- one object ---- */

static const sprite *choose_sprite(painter *p, int class, bool held)
{
    const sprite_name *n = &p->w->names[class];
    bool from_held = n->held == n->count || (held && n->held);
    int first = from_held ? n->first + n->count - n->held : n->first, count = from_held ? n->held : n->count - n->held;
    return &p->w->sprites[first + dice_below(&p->d, count)];
}

static void choose_cut(painter *p, cut *c, int class, float size, bool held)
{
    dice *d = &p->d;
    int kind = class - p->w->name_count;
    float most = kind >= 0 && kind % SCENE_SHAPES == 1 ? 15 : 25;         /* a square turned further is another shape */
    *c = (cut){.flat = kind >= 0, .contrast = 1};
    c->from = kind >= 0 ? &p->w->shape[kind % SCENE_SHAPES] : choose_sprite(p, class, held);
    for (int i = 0; i < 3 && kind >= 0; i++)
        c->ink[i] = fminf(fmaxf((float)colours[kind / SCENE_SHAPES][i] + dice_real(d, -25, 26), 0), 255);
    float angle = dice_real(d, -most, most) * DEGREE, aspect = expf(dice_real(d, -0.15f, 0.15f));
    c->mirrored = dice_below(d, 2);
    int wide = c->from->width[0], tall = c->from->height[0];
    float scale = size / (float)(wide > tall ? wide : tall);
    c->across = fmaxf(4, (float)wide * scale * aspect);
    c->down = fmaxf(4, (float)tall * scale / aspect);
    c->cosine = cosf(angle);
    c->sine = sinf(angle);
    if (dice_real(d, 0, 1) < 0.7f) {
        c->contrast = dice_real(d, 0.75f, 1.2f);
        c->light = dice_real(d, -25, 25);
    }
}

/* The sprite at (u, v) in pixels of that level, between its pixels; nothing outside. */
static void look_up(float out[4], const sprite *s, int level, float u, float v)
{
    int w = s->width[level], h = s->height[level], x = (int)floorf(u), y = (int)floorf(v);
    float fx = u - (float)x, fy = v - (float)y;
    memset(out, 0, 4 * sizeof *out);
    for (int k = 0; k < 4; k++) {
        int px = x + (k & 1), py = y + (k >> 1);
        if (px < 0 || py < 0 || px >= w || py >= h)
            continue;
        float share = (k & 1 ? fx : 1 - fx) * (k >> 1 ? fy : 1 - fy);
        const uint8_t *from = s->rgba[level] + 4 * ((int64_t)py * w + px);
        for (int c = 0; c < 4; c++)
            out[c] += share * from[c];
    }
}

static void recolour(float rgba[4], const cut *c)
{
    float alpha = rgba[3] / 255;
    for (int i = 0; i < 3; i++) {
        float full = c->flat ? c->ink[i] * alpha : rgba[i];
        rgba[i] = fminf(fmaxf((full - 128 * alpha) * c->contrast + (128 + c->light) * alpha, 0), 255 * alpha);
    }
}

/* Draws the cut at a random place, most of it inside. false: out of memory. */
static bool draw_cut(painter *p, const cut *c)
{
    patch *to = &p->p;
    int side = p->s->side, level = 0;
    float wide = fabsf(c->across * c->cosine) + fabsf(c->down * c->sine);
    float tall = fabsf(c->across * c->sine) + fabsf(c->down * c->cosine);
    to->width = (int)wide + 1;
    to->height = (int)tall + 1;
    to->x0 = -to->width / 6 + dice_below(&p->d, side - to->width + 2 * (to->width / 6) + 1);
    to->y0 = -to->height / 6 + dice_below(&p->d, side - to->height + 2 * (to->height / 6) + 1);
    if (to->width * to->height > to->room) {
        float *more = realloc(to->rgba, sizeof(float) * 4 * (size_t)to->width * (size_t)to->height);
        if (!more)
            return false;
        to->rgba = more;
        to->room = to->width * to->height;
    }
    while (level + 1 < SPRITE_LEVELS && (float)c->from->width[level] > 1.5f * c->across)
        level++;
    float kx = (float)c->from->width[level] / c->across, ky = (float)c->from->height[level] / c->down;
    for (int y = 0; y < to->height; y++) {
        for (int x = 0; x < to->width; x++) {
            float dx = (float)x + 0.5f - wide / 2, dy = (float)y + 0.5f - tall / 2;
            float u = dx * c->cosine + dy * c->sine, v = dy * c->cosine - dx * c->sine;
            float *pixel = to->rgba + 4 * ((int64_t)y * to->width + x);
            u = (c->mirrored ? -u : u) + c->across / 2;
            look_up(pixel, c->from, level, u * kx - 0.5f, (v + c->down / 2) * ky - 0.5f);
            recolour(pixel, c);
        }
    }
    return true;
}

/* How many pixels of the patch are inside; covered[i] gets those that object i has now. */
static int look_below(const painter *p, int *covered)
{
    int side = p->s->side, seen = 0;
    memset(covered, 0, sizeof *covered * SCENE_MOST);
    for (int y = 0; y < p->p.height; y++)
        for (int x = 0; x < p->p.width; x++) {
            int px = p->p.x0 + x, py = p->p.y0 + y;
            if (px < 0 || py < 0 || px >= side || py >= side || p->p.rgba[4 * (y * p->p.width + x) + 3] <= 127)
                continue;
            int owner = p->s->owner[py * side + px];
            seen++;
            covered[owner ? owner - 1 : 0] += owner > 0;
        }
    return seen;
}

static void lay_down(painter *p)
{
    int side = p->s->side;
    for (int y = 0; y < p->p.height; y++)
        for (int x = 0; x < p->p.width; x++) {
            int px = p->p.x0 + x, py = p->p.y0 + y;
            if (px < 0 || py < 0 || px >= side || py >= side)
                continue;
            const float *from = p->p.rgba + 4 * (y * p->p.width + x);
            float *to = p->canvas + 3 * (py * side + px), keep = 1 - from[3] / 255;
            for (int c = 0; c < 3; c++)
                to[c] = to[c] * keep + from[c];
            if (from[3] > 127)
                p->s->owner[py * side + px] = (uint8_t)(p->s->objects + 1);
        }
}

/* Tries a few sizes and places; an object that fits nowhere is left out. false: out of memory. */
static bool add_object(painter *p, int class, float largest, bool held)
{
    scene *s = p->s;
    for (int t = 0; t < TRIES; t++) {
        int covered[SCENE_MOST], visible[SCENE_MOST] = {0};
        cut c;
        float size = (float)s->side * expf(dice_real(&p->d, logf(SMALLEST), logf(largest)));
        choose_cut(p, &c, class, size, held);
        if (!draw_cut(p, &c))
            return false;
        int seen = look_below(p, covered);
        bool fits = seen >= LEAST_SEEN;
        for (int i = 0; fits && i < s->side * s->side; i++)
            if (s->owner[i])
                visible[s->owner[i] - 1]++;
        for (int i = 0; fits && i < s->objects; i++)
            fits = covered[i] == 0 || (float)(visible[i] - covered[i]) >= LEAST_LEFT * (float)p->area[i];
        if (!fits)
            continue;
        lay_down(p);
        p->area[s->objects] = seen;
        s->class[s->objects++] = class;
        return true;
    }
    return true;
}

/* ---- the scene ---- */

static bool paint(painter *p, const scene_options *o)
{
    dice *d = &p->d;
    int count = o->least + dice_below(d, o->most - o->least + 1), kinds = count, pick[SCENE_MOST];
    if (!o->all_differ)
        kinds = 1 + dice_below(d, count < 4 ? count : 4);
    for (int i = 0; i < kinds; i++)
        pick[i] = dice_real(d, 0, 1) < 0.25f ? p->w->name_count + dice_below(d, p->w->classes - p->w->name_count)
                                             : dice_below(d, p->w->name_count);
    float largest = LARGEST * (o->all_differ ? 0.75f : count <= 2 ? 1 : count <= 4 ? 0.85f : 0.7f);
    for (int i = 0; i < count; i++)
        if (!add_object(p, pick[i < kinds ? i : dice_below(d, kinds)], largest, o->held))
            return false;
    return true;
}

int scene_make(scene *s, const scene_world *w, const scene_options *o, uint64_t seed, samite_error *err)
{
    size_t n = (size_t)o->side * (size_t)o->side;
    *s = (scene){.side = o->side, .rgb = malloc(3 * n + 1), .owner = calloc(n + 1, 1)};
    painter p = {.s = s, .w = w, .d = {random_mix(seed), 0}, .canvas = malloc(sizeof(float) * (6 * n + 1))};
    bool ok = s->rgb && s->owner && p.canvas;
    if (ok) {
        scene_background(p.canvas, o->side, &p.d);
        ok = paint(&p, o);
    }
    if (ok) {
        scene_finish(p.canvas, p.canvas + 3 * n, o->side, &p.d);
        for (size_t i = 0; i < 3 * n; i++)
            s->rgb[i] = (uint8_t)(fminf(fmaxf(p.canvas[i], 0), 255) + 0.5f);
    }
    free(p.canvas);
    free(p.p.rgba);
    if (ok)
        return 0;
    scene_free(s);
    return fail(err, SAMITE_RESOURCE, "not enough memory for a scene of %d pixels", o->side);
}

void scene_free(scene *s)
{
    free(s->rgb), free(s->owner);
    *s = (scene){0};
}
