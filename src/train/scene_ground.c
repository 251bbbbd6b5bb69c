/* scene_ground.c - gradients, stripes, checks, noise and lines behind the objects; blur and grain over all. */
#include <math.h>
#include <string.h>

#include "train/scene.h"

#define TURN 6.2831853f

typedef struct colour { float c[3]; } colour;

static colour any_colour(dice *d)
{
    colour x;
    for (int i = 0; i < 3; i++)
        x.c[i] = dice_real(d, 0, 256);
    return x;
}

static colour mixed(colour a, colour b, float t)
{
    for (int i = 0; i < 3; i++)
        a.c[i] += (b.c[i] - a.c[i]) * t;
    return a;
}

/* A value from 0 to 1 along a direction, or its stripes, or checks. */
typedef enum pattern { GRADIENT, STRIPES, CHECKS } pattern;

static void fill(float *rgb, int side, pattern p, colour a, colour b, dice *d)
{
    float angle = dice_real(d, 0, TURN), cx = cosf(angle), cy = sinf(angle), often = dice_real(d, 3, 12);
    float low = fminf(cx, 0) + fminf(cy, 0), span = fabsf(cx) + fabsf(cy);
    for (int y = 0; y < side; y++) {
        for (int x = 0; x < side; x++) {
            float u = (float)x / (float)side, v = (float)y / (float)side, t = (u * cx + v * cy - low) / span;
            if (p == STRIPES)
                t = fmodf(t * often, 1) < 0.5f;
            else if (p == CHECKS)
                t = ((int)(u * often) + (int)(v * often)) % 2 != 0;
            colour now = mixed(a, b, t);
            memcpy(rgb + 3 * ((int64_t)y * side + x), now.c, sizeof now.c);
        }
    }
}

/* One octave: random colours on a grid, smoothly between. */
static void add_noise(float *rgb, int side, int cells, float strength, dice *d)
{
    float grid[26 * 26][3];
    for (int i = 0; i < (cells + 1) * (cells + 1); i++)
        for (int c = 0; c < 3; c++)
            grid[i][c] = dice_real(d, -128, 128) * strength;
    for (int y = 0; y < side; y++) {
        float v = (float)y * (float)cells / (float)side, fy = v - floorf(v);
        fy = fy * fy * (3 - 2 * fy);
        for (int x = 0; x < side; x++) {
            float u = (float)x * (float)cells / (float)side, fx = u - floorf(u);
            int at = (int)v * (cells + 1) + (int)u, below = at + cells + 1;
            fx = fx * fx * (3 - 2 * fx);
            for (int c = 0; c < 3; c++) {
                float top = grid[at][c] + (grid[at + 1][c] - grid[at][c]) * fx;
                float bottom = grid[below][c] + (grid[below + 1][c] - grid[below][c]) * fx;
                rgb[3 * ((int64_t)y * side + x) + c] += top + (bottom - top) * fy;
            }
        }
    }
}

static void draw_line(float *rgb, int side, dice *d)
{
    float x0 = dice_real(d, 0, (float)side), y0 = dice_real(d, 0, (float)side), x1 = dice_real(d, 0, (float)side),
          y1 = dice_real(d, 0, (float)side), half = dice_real(d, 0.5f, 3), dx = x1 - x0, dy = y1 - y0;
    float length = fmaxf(dx * dx + dy * dy, 1);
    colour ink = any_colour(d);
    for (int y = 0; y < side; y++) {
        for (int x = 0; x < side; x++) {
            float px = (float)x - x0, py = (float)y - y0, t = fminf(fmaxf((px * dx + py * dy) / length, 0), 1);
            float ex = px - t * dx, ey = py - t * dy;
            if (ex * ex + ey * ey <= half * half)
                memcpy(rgb + 3 * ((int64_t)y * side + x), ink.c, sizeof ink.c);
        }
    }
}

void scene_background(float *rgb, int side, dice *d)
{
    int kind = dice_below(d, 6);
    colour a = any_colour(d), b = any_colour(d);
    if (kind)
        b = mixed(a, b, dice_real(d, 0.1f, kind < 3 ? 0.6f : 1));
    fill(rgb, side, kind == 1 ? STRIPES : kind == 2 ? CHECKS : GRADIENT, a, b, d);
    int octaves = kind >= 3 ? 1 + dice_below(d, 4) : 0, lines = kind == 5 ? 2 + dice_below(d, 10) : 0;
    for (int i = 0, cells = 3; i < octaves; i++, cells *= 2)
        add_noise(rgb, side, cells, dice_real(d, 0.1f, 0.6f), d);
    for (int i = 0; i < lines; i++)
        draw_line(rgb, side, d);
    for (int64_t i = 0; i < (int64_t)side * side * 3; i++)
        rgb[i] = fminf(fmaxf(rgb[i], 0), 255);
}

/* ---- the whole picture ---- */

/* [side, beside] the two neighbours weigh `w` each; `step` numbers apart. */
static void blur_along(float *out, const float *in, int side, bool down, float w)
{
    int64_t step = down ? 3 * (int64_t)side : 3;
    for (int y = 0; y < side; y++) {
        for (int x = 0; x < side; x++) {
            int64_t at = 3 * ((int64_t)y * side + x);
            int place = down ? y : x;
            int64_t before = place ? at - step : at, after = place + 1 < side ? at + step : at;
            for (int c = 0; c < 3; c++)
                out[at + c] = (1 - 2 * w) * in[at + c] + w * (in[before + c] + in[after + c]);
        }
    }
}

void scene_finish(float *rgb, float *room, int side, dice *d)
{
    int64_t n = (int64_t)side * side * 3;
    if (dice_real(d, 0, 1) < 0.3f) {
        float w = dice_real(d, 0.03f, 0.28f);
        blur_along(room, rgb, side, false, w);
        blur_along(rgb, room, side, true, w);
    }
    if (dice_real(d, 0, 1) < 0.4f) {
        float strength = dice_real(d, 2, 12) * 1.2247f;       /* three numbers from -1 to 1 have variance 1 */
        for (int64_t i = 0; i < n; i++) {
            uint64_t bits = random_next(d->key, d->at++);
            float sum = (float)((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF)) * 0x1p-15f - 3;
            rgb[i] += strength * 0.8165f * sum;
        }
    }
}
