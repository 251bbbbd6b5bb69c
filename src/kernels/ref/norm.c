/* norm.c - reference: LayerNorm with its backward, GroupNorm. */
#include "kernels/ref/ref.h"

#include <math.h>

void ref_norm(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift, int64_t rows,
              int64_t cols, float eps)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *xr = x + r * cols;
        float *yr = y + r * cols;
        double m = 0, v = 0, s;
        for (int64_t c = 0; c < cols; c++)
            m += xr[c];
        m /= (double)cols;
        for (int64_t c = 0; c < cols; c++)
            v += (xr[c] - m) * (xr[c] - m);
        s = 1 / sqrt(v / (double)cols + eps);
        for (int64_t c = 0; c < cols; c++)
            yr[c] = (float)((xr[c] - m) * s * gain[c] + shift[c]);
        if (mean)
            mean[r] = (float)m;
        if (rstd)
            rstd[r] = (float)s;
    }
}

/* dx = rstd (g - mean(g) - h mean(g h)) with g = dy gain and h = (x - mean) rstd */
static void norm_backward_row(float *dx, const float *dy, const float *x, double m, double s, const float *gain,
                              int64_t cols)
{
    double sum_g = 0, sum_gh = 0;

    for (int64_t c = 0; c < cols; c++) {
        double g = (double)dy[c] * gain[c];
        sum_g += g;
        sum_gh += g * (x[c] - m) * s;
    }
    sum_g /= (double)cols;
    sum_gh /= (double)cols;
    for (int64_t c = 0; c < cols; c++)
        dx[c] = (float)(dx[c] + s * ((double)dy[c] * gain[c] - sum_g - (x[c] - m) * s * sum_gh));
}

void ref_norm_backward(float *dx, float *dgain, float *dshift, const float *dy, const float *x, const float *mean,
                       const float *rstd, const float *gain, int64_t rows, int64_t cols)
{
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < (dx ? rows : 0); r++)
        norm_backward_row(dx + r * cols, dy + r * cols, x + r * cols, mean[r], rstd[r], gain, cols);
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < cols; c++) {
        double sum_gain = 0, sum_shift = 0;
        for (int64_t r = 0; r < rows; r++) {
            sum_gain += ((double)x[r * cols + c] - mean[r]) * rstd[r] * dy[r * cols + c];
            sum_shift += dy[r * cols + c];
        }
        if (dgain)
            dgain[c] = (float)(dgain[c] + sum_gain);
        if (dshift)
            dshift[c] = (float)(dshift[c] + sum_shift);
    }
}

void ref_group_norm(float *y, float *mean, float *rstd, const float *x, const float *gain, const float *shift,
                    int64_t batch, int64_t pixels, int64_t channels, int64_t groups, float eps, bool relu)
{
    int64_t width = channels / groups;

#pragma omp parallel for schedule(static)
    for (int64_t item = 0; item < batch * groups; item++) {
        int64_t b = item / groups, first = item % groups * width;
        double count = (double)(pixels * width), m = 0, v = 0, s;
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = first; c < first + width; c++)
                m += x[(b * pixels + p) * channels + c];
        m /= count;
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = first; c < first + width; c++) {
                double d = x[(b * pixels + p) * channels + c] - m;
                v += d * d;
            }
        s = 1 / sqrt(v / count + eps);
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = first; c < first + width; c++) {
                int64_t i = (b * pixels + p) * channels + c;
                double t = (x[i] - m) * s * gain[c] + shift[c];
                y[i] = (float)(relu && t < 0 ? 0 : t);
            }
        if (mean)
            mean[item] = (float)m;
        if (rstd)
            rstd[item] = (float)s;
    }
}
