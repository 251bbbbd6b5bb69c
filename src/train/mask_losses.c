/* mask_losses.c - focal and dice losses of masks, on logits enlarged to the size of the target. */
#include <math.h>
#include <string.h>

#include "train/losses.h"

#define MASK_ALPHA     0.25f
#define SEMANTIC_ALPHA 0.6f

/* Where output index i of an enlargement looks: between `low` and `high`, `weight` of the way. */
typedef struct tap { int low, high; float weight; } tap;

static tap tap_of(int i, int side, int to)
{
    float at = fmaxf(((float)i + 0.5f) * ((float)side / (float)to) - 0.5f, 0);
    int low = (int)at;
    low = low > side - 1 ? side - 1 : low;
    return (tap){low, low + 1 < side ? low + 1 : low, at - (float)low};
}

void enlarge(float *out, int to, const float *in, int side)
{
    for (int y = 0; y < to; y++) {
        tap v = tap_of(y, side, to);
        const float *a = in + (int64_t)v.low * side, *b = in + (int64_t)v.high * side;
        for (int x = 0; x < to; x++) {
            tap h = tap_of(x, side, to);
            float top = (1 - h.weight) * a[h.low] + h.weight * a[h.high];
            float bottom = (1 - h.weight) * b[h.low] + h.weight * b[h.high];
            out[(int64_t)y * to + x] = (1 - v.weight) * top + v.weight * bottom;
        }
    }
}

void enlarge_backward(float *din, int side, const float *dout, int to)
{
    for (int y = 0; y < to; y++) {
        tap v = tap_of(y, side, to);
        float *a = din + (int64_t)v.low * side, *b = din + (int64_t)v.high * side;
        for (int x = 0; x < to; x++) {
            tap h = tap_of(x, side, to);
            float d = dout[(int64_t)y * to + x], top = (1 - v.weight) * d, bottom = v.weight * d;
            a[h.low] += (1 - h.weight) * top;
            a[h.high] += h.weight * top;
            b[h.low] += (1 - h.weight) * bottom;
            b[h.high] += h.weight * bottom;
        }
    }
}

typedef struct pixel_sums {
    double focal;            /* sum over pixels */
    double both, answered, wanted;   /* sums of s g, s, g */
    double shared, either;           /* pixels inside the answer (s > 0.5) and the target, or one of them */
} pixel_sums;

static float softplus(float x)
{
    return fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
}

/* alpha_t (1 - p_t)^2 BCE of one pixel, and its slope. */
static float focal(float x, bool inside, float alpha, float *slope)
{
    float p = 1.0f / (1.0f + expf(-x)), sign = inside ? 1 : -1, share = inside ? alpha : 1 - alpha;
    float right = inside ? p : 1 - p, wrong = 1 - right, bce = softplus(-sign * x);
    *slope = -sign * share * (2 * wrong * wrong * right * bce + wrong * wrong * wrong);
    return share * wrong * wrong * bce;
}

static pixel_sums sum_pixels(float *slope, const float *logits, const uint8_t *target, int64_t n, float alpha)
{
    pixel_sums s = {0};
    for (int64_t i = 0; i < n; i++) {
        float p = 1.0f / (1.0f + expf(-logits[i]));
        s.focal += focal(logits[i], target[i], alpha, &slope[i]);
        s.both += target[i] ? p : 0;
        s.answered += p;
        s.wanted += target[i] != 0;
        s.shared += target[i] && logits[i] > 0;
        s.either += target[i] || logits[i] > 0;
    }
    return s;
}

/* Adds the gradient of focal_weight x (mean focal) + dice_weight x dice; returns dice. */
static double add_gradient(float *dlogits, int side, float *slope, const float *logits, const uint8_t *target, int to,
                           const pixel_sums *s, double focal_weight, double dice_weight)
{
    int64_t n = (int64_t)to * to;
    double above = 2 * s->both + 1, below = s->answered + s->wanted + 1;
    for (int64_t i = 0; i < n; i++) {
        float p = 1.0f / (1.0f + expf(-logits[i]));
        double by = -(2.0 * (target[i] != 0) * below - above) / (below * below);
        slope[i] = (float)(focal_weight / (double)n * slope[i] + dice_weight * by * p * (1 - p));
    }
    enlarge_backward(dlogits, side, slope, to);
    return 1 - above / below;
}

void loss_mask(double *mask, double *dice, float *dlogits, const float *logits, int side, const uint8_t *target,
               int target_side, const loss_norms *n, const loss_weights *w, float *room)
{
    int64_t pixels = (int64_t)target_side * target_side;
    float *big = room, *slope = room + pixels;
    enlarge(big, target_side, logits, side);
    pixel_sums s = sum_pixels(slope, big, target, pixels, MASK_ALPHA);
    double share = n->scale / n->boxes_total;
    *mask += s.focal / (double)pixels / n->boxes_total;
    *dice += add_gradient(dlogits, side, slope, big, target, target_side, &s, share * w->mask, share * w->dice) /
             n->boxes_total;
}

void loss_semantic(double *seg, double *dice, double *iou, float *dlogits, const float *logits, int side,
                   const uint8_t *target, int target_side, double present, double scale, const loss_weights *w, float *room)
{
    int64_t pixels = (int64_t)target_side * target_side;
    float *big = room, *slope = room + pixels;
    double share = 1 / (present + 1e-6);
    enlarge(big, target_side, logits, side);
    pixel_sums s = sum_pixels(slope, big, target, pixels, SEMANTIC_ALPHA);
    if (s.wanted == 0)
        return;
    *seg += s.focal / (double)pixels * share;
    *iou += s.shared / s.either / present;
    *dice += share * add_gradient(dlogits, side, slope, big, target, target_side, &s, scale * share * w->semantic,
                                  scale * share * w->semantic_dice);
}
