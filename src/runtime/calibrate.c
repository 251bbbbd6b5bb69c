/* calibrate.c - runs some rows of each layer's input through 8-bit weights beside the f32 ones. */
#include "runtime/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_AT_ONCE = 64 };      /* of one call, which has 576 or more where it matters */

typedef struct measured {
    const linear_w *w;
    size_t          tensor;      /* index into calibration.list */
    gemm_weights   *eight;       /* made when the layer is first met */
    double          wrong, all;  /* sums of squares */
    double         *sum;         /* [out] of the exact outputs */
    int64_t         rows;
} measured;

struct calibration {
    const native *n;
    measured     *layer;
    size_t        layers;
    calibrated   *list;
    size_t        count;
    bool          failed;
};

static size_t tensor_of(calibration *c, const linear_w *w)
{
    for (size_t i = 0; i < c->count; i++)
        if (&c->list[i].e->p == w->w)
            return i;
    c->list[c->count].e = (entry *)w->w;
    return c->count++;
}

int calibration_open(calibration **out, const native *n, samite_error *err)
{
    const registry *g = &n->net->all;
    *out = NULL;
    if (!gemm_has(GEMM_INT8))
        return fail(err, SAMITE_USAGE, "this processor (or --cpu) has no 8-bit products to measure: AVX2 is needed");
    calibration *c = calloc(1, sizeof *c);
    if (c) {
        c->layer = calloc(g->layer_count + 1, sizeof *c->layer);
        c->list = calloc(g->layer_count + 1, sizeof *c->list);
    }
    if (!c || !c->layer || !c->list) {
        calibration_close(c);
        return fail(err, SAMITE_RESOURCE, "not enough memory to calibrate %s", n->source);
    }
    c->n = n;
    for (size_t i = 0; i < g->layer_count; i++) {
        const layer *l = &g->layers[i];
        if (l->kind == LAYER_LINEAR && native_layer_type(n, l, GEMM_INT8) == GEMM_INT8)
            c->layer[c->layers++] = (measured){.w = l->linear, .tensor = tensor_of(c, l->linear)};
    }
    *out = c;
    return 0;
}

void calibration_close(calibration *c)
{
    for (size_t i = 0; c && i < c->layers; i++) {
        gemm_weights_free(c->layer[i].eight);
        free(c->layer[i].sum);
    }
    if (c) {
        free(c->layer);
        free(c->list);
    }
    free(c);
}

/* The weights in 8 bits as a file would hold them: rounded whole, on every CPU. NULL: out of memory. */
static gemm_weights *narrow(const native *n, const linear_w *w)
{
    float *values = native_values(n, (entry *)w->w), *bias = w->b ? native_values(n, (entry *)w->b) : NULL;
    int8_t *q = malloc((size_t)(w->out * w->in));
    float *scale = malloc(sizeof *scale * (size_t)w->out);
    gemm_weights *made = NULL;
    if (values && q && scale && (bias || !w->b)) {
        gemm_quantize_rows(q, scale, values + w->first * w->in, w->out, w->in);
        made = gemm_pack_rows8(q, scale, bias ? bias + w->first : NULL, w->out, w->in);
    }
    free(values);
    free(bias);
    free(q);
    free(scale);
    return made;
}

static void compare(measured *m, const float *exact, const float *ours, int64_t rows)
{
    for (int64_t i = 0; i < rows * m->w->out; i++) {
        double d = (double)ours[i] - exact[i];
        m->wrong += d * d;
        m->all += (double)exact[i] * exact[i];
        m->sum[i % m->w->out] += exact[i];
    }
    m->rows += rows;
}

/* x [rows, in] without gaps. false: out of memory. */
static bool measure(measured *m, const float *x, int64_t rows)
{
    size_t values = sizeof(float) * (size_t)(rows * m->w->out);
    float *exact = malloc(values), *ours = malloc(values);
    void *scratch = malloc(gemm_scratch(m->eight, rows) + 1);
    bool ok = exact && ours && scratch &&
              gemm_run(m->w->packed, exact, m->w->out, x, m->w->in, rows, ACT_NONE, NULL, NULL) &&
              gemm_run(m->eight, ours, m->w->out, x, m->w->in, rows, ACT_NONE, NULL, scratch);
    if (ok)
        compare(m, exact, ours, rows);
    free(exact);
    free(ours);
    free(scratch);
    return ok;
}

void calibration_rows(void *user, const linear_w *w, const float *x, int64_t ld, int64_t rows)
{
    calibration *c = user;
    measured *m = NULL;
    for (size_t i = 0; i < c->layers && !m; i++)
        m = c->layer[i].w == w ? &c->layer[i] : NULL;
    if (!m || c->failed)
        return;
    int64_t some = rows < ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
    float *picked = malloc(sizeof *picked * (size_t)(some * w->in));
    if (!m->eight) {
        m->eight = narrow(c->n, w);
        m->sum = calloc((size_t)w->out, sizeof *m->sum);
    }
    for (int64_t i = 0; picked && i < some; i++)
        memcpy(picked + i * w->in, x + i * rows / some * ld, sizeof *picked * (size_t)w->in);
    c->failed = !picked || !m->eight || !m->sum || !measure(m, picked, some);
    free(picked);
}

/* What is the same for every row, as channels of one large value make it, tells nothing about the picture. */
static double error_of(const measured *m)
{
    double varied = m->all;
    for (int64_t o = 0; m->rows > 1 && o < m->w->out; o++)
        varied -= m->sum[o] * m->sum[o] / (double)m->rows;
    if (m->wrong == 0)
        return 0;
    return varied > 0 ? sqrt(m->wrong / varied) : INFINITY;
}

int calibration_result(calibration *c, const calibrated **list, size_t *count, samite_error *err)
{
    if (c->failed)
        return fail(err, SAMITE_RESOURCE, "not enough memory to calibrate %s", c->n->source);
    for (size_t i = 0; i < c->count; i++) {
        c->list[i].error = 0;
        c->list[i].rows = INT64_MAX;
    }
    for (size_t i = 0; i < c->layers; i++) {
        const measured *m = &c->layer[i];
        calibrated *t = &c->list[m->tensor];
        double error = error_of(m);
        if (!(error <= t->error))
            t->error = error;
        t->rows = m->rows < t->rows ? m->rows : t->rows;
    }
    *list = c->list;
    *count = c->count;
    return 0;
}
