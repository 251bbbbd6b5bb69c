/* blocks.c - attention, perceptrons and position codes shared by the parts. */
#include "model/blocks.h"

#include <math.h>
#include <stdio.h>

void declare_attend(registry *g, const char *name, attend_w *w, int64_t d, int heads)
{
    size_t mark = registry_enter(g, "%s", name);
    declare_linear_rows(g, "in_proj", &w->q, d, 0, d, 3 * d);
    declare_linear_rows(g, "in_proj", &w->k, d, d, d, 3 * d);
    declare_linear_rows(g, "in_proj", &w->v, d, 2 * d, d, 3 * d);
    declare_linear(g, "out_proj", &w->out, d, d);
    w->heads = heads;
    registry_leave(g, mark);
}

tensor *attend_add(run *r, tensor *residual, const attend_w *w, tensor *q, tensor *k, tensor *v, const attend_options *o)
{
    attend_options options = o ? *o : (attend_options){0};
    options.heads = w->heads;
    tensor *y = attention(r, linear(r, q, &w->q), linear(r, k, &w->k), linear(r, v, &w->v), &options);
    return residual ? linear_add(r, y, &w->out, residual) : linear(r, y, &w->out);
}

tensor *attend_drop_add(run *r, tensor *residual, const attend_w *w, tensor *q, tensor *k, tensor *v,
                        const attend_options *o)
{
    attend_options options = o ? *o : (attend_options){0};
    if (!(run_drop_rate(r) > 0))
        return attend_add(r, residual, w, q, k, v, o);
    options.heads = w->heads;
    tensor *y = attention_drop(r, linear(r, q, &w->q), linear(r, k, &w->k), linear(r, v, &w->v), &options);
    return add(r, drop(r, linear(r, y, &w->out)), residual);
}

void declare_mlp(registry *g, const char *name, mlp_w *w, int64_t in, int64_t hidden, int64_t out, int count)
{
    size_t mark = registry_enter(g, "%s", name);
    w->count = count;
    for (int i = 0; i < count; i++) {
        char name_of_layer[32];
        snprintf(name_of_layer, sizeof name_of_layer, "layers.%d", i);
        declare_linear(g, name_of_layer, &w->layer[i], i ? hidden : in, i + 1 < count ? hidden : out);
    }
    registry_leave(g, mark);
}

tensor *mlp(run *r, tensor *x, const mlp_w *w)
{
    for (int i = 0; i + 1 < w->count; i++)
        x = linear_act(r, x, &w->layer[i], ACT_RELU);
    return linear(r, x, &w->layer[w->count - 1]);
}

tensor *mlp_drop(run *r, tensor *x, const mlp_w *w)
{
    for (int i = 0; i + 1 < w->count; i++)
        x = drop(r, linear_act(r, x, &w->layer[i], ACT_RELU));
    return linear(r, x, &w->layer[w->count - 1]);
}

tensor *feed_forward_drop(run *r, tensor *x, const norm_w *n, const linear_w *up, const linear_w *down,
                              activation act)
{
    if (!(run_drop_rate(r) > 0))
        return feed_forward(r, x, n, up, down, act);
    tensor *y = drop(r, linear_act(r, n ? norm(r, x, n) : x, up, act));
    return add(r, drop(r, linear(r, y, down)), x);
}

/* sin and cos of position * 2 pi / 10000^(2 floor(i / 2) / half), written in turn into out[0..half). */
static void sine_code(float *out, float position, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        float divisor = powf(10000.0f, (float)(2 * (i / 2)) / (float)half);
        out[i] = i % 2 ? cosf(position / divisor) : sinf(position / divisor);
    }
}

void grid_codes(float *out, int64_t height, int64_t width, int64_t d)
{
    const float two_pi = 6.2831853071795864769f, eps = 1e-6f;
    int64_t half = d / 2;
    #pragma omp parallel for schedule(static)
    for (int64_t y = 0; y < height; y++) {
        float *row = out + y * width * d;
        for (int64_t x = 0; x < width; x++) {
            sine_code(row + x * d, (float)(y + 1) / ((float)height + eps) * two_pi, half);
            sine_code(row + x * d + half, (float)(x + 1) / ((float)width + eps) * two_pi, half);
        }
    }
}

/* Row of grid position (x, y) when the grid is cut into windows that follow each other. */
static int64_t window_row(int64_t x, int64_t y, int64_t side, int64_t window)
{
    if (window <= 0)
        return y * side + x;
    int64_t index = y / window * (side / window) + x / window;
    return index * window * window + y % window * window + x % window;
}

void rope_table(float *out, int64_t side, int64_t dim, float step, int64_t window)
{
    int64_t quarter = dim / 4;
    for (int64_t y = 0; y < side; y++) {
        for (int64_t x = 0; x < side; x++) {
            float *row = out + window_row(x, y, side, window) * dim;
            for (int64_t i = 0; i < quarter; i++) {
                float frequency = 1.0f / powf(10000.0f, (float)(4 * i) / (float)dim);
                float ax = (float)x * step * frequency, ay = (float)y * step * frequency;
                row[2 * i] = cosf(ax);
                row[2 * i + 1] = sinf(ax);
                row[2 * (quarter + i)] = cosf(ay);
                row[2 * (quarter + i) + 1] = sinf(ay);
            }
        }
    }
}
