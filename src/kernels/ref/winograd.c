/* winograd.c - reference: 3x3 convolution from transformed weights. */
#include "kernels/ref/ref.h"

static const double B[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};     /* rows of B^T */
static const double A[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};                                  /* rows of A^T */

static double pixel(const winograd_args *a, int64_t b, int64_t y, int64_t x, int64_t i)
{
    if (y < 0 || y >= a->height || x < 0 || x >= a->width)
        return 0;
    return a->x[((b * a->height + y) * a->width + x) * a->in + i];
}

/* Adds B^T d B of the 4 x 4 pixels of channel i from (y, x) on, times the weights of output o. */
static void add_products(double *m, const winograd_args *a, int64_t b, int64_t y, int64_t x, int64_t i, int64_t o)
{
    const float *w = (const float *)a->w + (o / WINOGRAD_PANEL * a->in + i) * WINOGRAD_PANEL + o % WINOGRAD_PANEL;
    int64_t step = (a->out + WINOGRAD_PANEL - 1) / WINOGRAD_PANEL * WINOGRAD_PANEL * a->in;

    for (int k = 0; k < 16; k++) {
        double d = 0;
        for (int j = 0; j < 16; j++)
            d += B[k / 4][j / 4] * B[k % 4][j % 4] * pixel(a, b, y + j / 4, x + j % 4, i);
        m[k] += d * w[k * step];
    }
}

/* The outputs of channel o at (y, x) and its neighbours to the right and below. */
static void tile(const winograd_args *a, int64_t b, int64_t y, int64_t x, int64_t o)
{
    double m[16] = {0};

    for (int64_t i = 0; i < a->in; i++)
        add_products(m, a, b, y - 1, x - 1, i, o);
    for (int k = 0; k < 4; k++) {
        double sum = a->bias[o];
        if (y + k / 2 >= a->height || x + k % 2 >= a->width)
            continue;
        for (int j = 0; j < 16; j++)
            sum += A[k / 2][j / 4] * A[k % 2][j % 4] * m[j];
        a->y[((b * a->height + y + k / 2) * a->width + x + k % 2) * a->out + o] = (float)sum;
    }
}

void ref_winograd(const winograd_args *a)
{
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < a->batch * ((a->height + 1) / 2); row++)
        for (int64_t x = 0; x < a->width; x += 2)
            for (int64_t o = 0; o < a->out; o++)
                tile(a, row / ((a->height + 1) / 2), row % ((a->height + 1) / 2) * 2, x, o);
}
