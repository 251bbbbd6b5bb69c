/* conv.c - convolutions and the movements of pixels around them, channels last. */
#include <stdlib.h>
#include <string.h>

#include "ops/op.h"

/* ---- convolution ---- */

bool conv_w_pack(conv_w *w, gemm_type type)
{
    conv_weights_free(w->packed);
    w->packed = conv_pack(w->w->t.data, w->b ? w->b->t.data : NULL, &w->shape, type);
    return w->packed != NULL;
}

static bool conv_weights_fit(const conv_w *w)
{
    const conv_shape *s = &w->shape;
    return w->w && s->in > 0 && s->out > 0 && s->kernel > 0 && s->stride > 0 && s->pad >= 0 && s->groups > 0 &&
           s->in % s->groups == 0 && s->out % s->groups == 0 && w->w->t.dim[0] == s->out &&
           tensor_count(&w->w->t) == s->out * (s->in / s->groups) * s->kernel * s->kernel &&
           (!w->b || tensor_count(&w->b->t) == s->out);
}

static bool conv_use_packed(const conv_w *w)
{
    return w->packed && !w->w->trainable && !(w->b && w->b->trainable);
}

static bool conv_compute(run *r, const conv_w *w, float *y, const tensor *x, activation act)
{
    if (conv_use_packed(w))
        return conv_run(w->packed, y, x->data, x->dim[0], x->dim[1], x->dim[2], act);
    conv_weights *p = conv_pack(w->w->t.data, w->b ? w->b->t.data : NULL, &w->shape, run_products(r));
    bool ok = p && conv_run(p, y, x->data, x->dim[0], x->dim[1], x->dim[2], act);
    conv_weights_free(p);
    return ok;
}

static void conv_backward_op(run *r, const op_node *n)
{
    const conv_attributes *a = n->attributes;
    tensor *x = n->in[0];
    const float *pre = n->saved[0] ? n->saved[0] : n->out->data;
    const float *dy = activation_gradient(r, n->out->grad, pre, a->act, tensor_count(n->out));
    float *dx = op_grad(r, x), *fresh = dx ? op_scratch_floats(r, tensor_count(x)) : NULL;

    if (!dy || !run_ok(r))
        return;
    if (!conv_backward(fresh, param_grad(a->w->w), a->w->b ? param_grad(a->w->b) : NULL, dy, x->data, a->w->w->t.data,
                       &a->w->shape, x->dim[0], x->dim[1], x->dim[2], run_products(r)))
        run_fail(r, SAMITE_RESOURCE, "backward of conv: the matrix engine refused the work");
    else if (dx)
        kernels_get()->axpy(dx, fresh, 1, tensor_count(x));
}

static const op_info conv_op = {"conv", conv_backward_op, false};

tensor *conv(run *r, tensor *x, const conv_w *w, activation act)
{
    const conv_shape *s = &w->shape;
    conv_attributes a = {w, act};
    op_call c = {.op = &conv_op, .in = {x}, .inputs = 1, .params = {w->w, w->b}, .attributes = &a,
                 .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (!conv_weights_fit(w) || x->axes != 4 || x->dim[3] != s->in || !is_contiguous(x))
        return op_mismatch_param(r, &c, x, w->w, "wants [B, h, w, in] without gaps, in as the weights have it");
    if (x->dim[1] + 2 * s->pad < s->kernel || x->dim[2] + 2 * s->pad < s->kernel)
        return op_mismatch_param(r, &c, x, w->w, "the picture is smaller than the kernel");
    int64_t oh = (x->dim[1] + 2 * s->pad - s->kernel) / s->stride + 1;
    int64_t ow = (x->dim[2] + 2 * s->pad - s->kernel) / s->stride + 1;
    tensor *y = op_output(r, &c, 4, (int64_t[]){x->dim[0], oh, ow, s->out});
    c.flops = 2.0 * (double)tensor_count(y) * (double)(s->in / s->groups * s->kernel * s->kernel);
    float *pre = act == ACT_NONE || act == ACT_RELU ? NULL : op_save(r, &c, 0, tensor_count(y));
    if (op_computes(r, y)) {
        if (!conv_compute(r, w, pre ? pre : y->data, x, pre ? ACT_NONE : act))
            return op_engine_failed(r, &c);
        if (pre)
            kernels_get()->activate(y->data, pre, act, tensor_count(y));
    }
    return op_finish(r, &c, y);
}

/* ---- transposed convolution with kernel 2, stride 2 ----
 *
 * Every pixel becomes four: a product with [4 out, in] weights whose row (dy * 2 + dx) * out + o makes channel o of the
 * pixel at (dy, dx).
 */

static void up_order(float *rows, float *bias, const up_w *w)
{
    const float *from = w->w->t.data;
    for (int64_t tap = 0; tap < 4; tap++)
        for (int64_t o = 0; o < w->out; o++) {
            for (int64_t i = 0; i < w->in; i++)
                rows[(tap * w->out + o) * w->in + i] = from[(i * w->out + o) * 4 + tap];
            bias[tap * w->out + o] = w->b ? w->b->t.data[o] : 0.0f;
        }
}

/* rows, bias: as up_order made them; those of the linear layer behind are multiplied in. NULL: out of memory. */
static gemm_weights *up_fold(const up_w *w, const float *rows, const float *bias, gemm_type type)
{
    const linear_w *t = w->then;
    const float *values = t->w->t.data + t->first * t->in, *shift = t->b ? t->b->t.data + t->first : NULL;
    float *all = malloc((size_t)(4 * t->out) * (size_t)(w->in + 1) * sizeof *all), *sums = all + 4 * t->out * w->in;
    gemm_weights *folded = NULL;
    bool ok = all != NULL;

    for (int64_t tap = 0; tap < 4 && ok; tap++) {
        ok = gemm(false, false, t->out, w->in, w->out, 1, values, t->in, rows + tap * w->out * w->in, w->in, 0,
                  all + tap * t->out * w->in, w->in);
        for (int64_t o = 0; o < t->out; o++) {
            double sum = shift ? shift[o] : 0;
            for (int64_t i = 0; i < w->out; i++)
                sum += (double)values[o * t->in + i] * bias[i];
            sums[tap * t->out + o] = (float)sum;
        }
    }
    if (ok)
        folded = gemm_pack(all, sums, 4 * t->out, w->in, w->in, type);
    free(all);
    return folded;
}

bool up_w_pack(up_w *w, gemm_type type)
{
    float *rows = malloc((size_t)(4 * w->out) * (size_t)(w->in + 1) * sizeof *rows);
    bool folds = w->then && w->then->in == w->out && w->then->w->t.data && (!w->then->b || w->then->b->t.data);
    if (!rows)
        return false;
    float *bias = rows + 4 * w->out * w->in;
    up_order(rows, bias, w);
    gemm_weights_free(w->packed);
    gemm_weights_free(w->folded);
    w->packed = gemm_pack(rows, bias, 4 * w->out, w->in, w->in, type);
    w->folded = folds ? up_fold(w, rows, bias, type) : NULL;
    free(rows);
    return w->packed && (!folds || w->folded);
}

static bool up_use_packed(const up_w *w)
{
    return w->packed && !w->w->trainable && !(w->b && w->b->trainable);
}

/* Moves between a pixel's row of four results and the 2 x 2 pixels of the enlarged picture. */
static void up_move(float *big, float *wide, const tensor *x, int64_t out, bool to_big)
{
    int64_t height = x->dim[0] * x->dim[1], width = x->dim[2];
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < height; i++)
        for (int64_t j = 0; j < width; j++)
            for (int64_t dy = 0; dy < 2; dy++) {
                float *b = big + ((2 * i + dy) * 2 * width + 2 * j) * out;
                float *s = wide + ((i * width + j) * 4 + 2 * dy) * out;
                memcpy(to_big ? b : s, to_big ? s : b, (size_t)(2 * out) * sizeof *b);
            }
}

static bool up_compute(run *r, const up_w *w, float *wide, const tensor *x, activation act, float *rows, void *scratch)
{
    int64_t pixels = tensor_rows(x), wide_out = 4 * w->out;
    if (up_use_packed(w))
        return gemm_run(w->packed, wide, wide_out, x->data, x->stride, pixels, act, NULL, scratch);
    float *bias = rows + wide_out * w->in;
    up_order(rows, bias, w);
    bool narrow = op_narrows(r, pixels, wide_out, w->in);
    factor fx = op_factor(r, narrow, x->data, x->stride, pixels, w->in);
    factor fw = op_factor(r, narrow, rows, w->in, wide_out, w->in);
    if (!run_ok(r) || !op_product(false, true, pixels, wide_out, w->in, fx, fw, false, wide, wide_out))
        return false;
    kernels_get()->add(wide, wide, bias, pixels * wide_out, wide_out);
    if (act != ACT_NONE)
        kernels_get()->activate(wide, wide, act, pixels * wide_out);
    return true;
}

/* Adds gradients of the reordered weights to those of the parameters. */
static void up_collect(const up_w *w, const float *drows, const float *dbias)
{
    float *dw = param_grad(w->w), *db = param_grad(w->b);
    for (int64_t tap = 0; tap < 4; tap++)
        for (int64_t o = 0; o < w->out; o++) {
            for (int64_t i = 0; dw && i < w->in; i++)
                dw[(i * w->out + o) * 4 + tap] += drows[(tap * w->out + o) * w->in + i];
            if (db)
                db[o] += dbias[tap * w->out + o];
        }
}

static void conv_up2_backward(run *r, const op_node *n)
{
    const up_attributes *a = n->attributes;
    const up_w *w = a->w;
    tensor *x = n->in[0];
    int64_t pixels = tensor_rows(x), wide_out = 4 * w->out, taken = wide_out * (w->in + 1);
    const float *pre = n->saved[0] ? n->saved[0] : n->out->data;
    const float *dy = activation_gradient(r, n->out->grad, pre, a->act, tensor_count(n->out));
    float *wide = op_scratch_floats(r, pixels * wide_out), *rows = op_scratch_floats(r, taken);
    float *drows = op_scratch_floats(r, taken), *dx = op_grad(r, x);
    bool ok = true;

    if (!dy || !run_ok(r))
        return;
    float *bias = rows + wide_out * w->in, *dbias = drows + wide_out * w->in;
    up_order(rows, bias, w);
    memset(drows, 0, (size_t)taken * sizeof *drows);
    up_move((float *)dy, wide, x, w->out, false);
    bool narrow = op_narrows(r, pixels, wide_out, w->in);
    factor fdy = op_factor(r, narrow, wide, wide_out, pixels, wide_out);
    if (dx)
        ok &= op_product(false, false, pixels, w->in, wide_out, fdy, op_factor(r, narrow, rows, w->in, wide_out, w->in),
                         true, dx, x->stride);
    if (param_grad(w->w))
        ok &= op_product(true, false, wide_out, w->in, pixels, fdy,
                         op_factor(r, narrow, x->data, x->stride, pixels, w->in), false, drows, w->in);
    kernels_get()->column_sums(dbias, wide, pixels, wide_out, wide_out);
    up_collect(w, drows, dbias);
    if (!ok)
        run_fail(r, SAMITE_RESOURCE, "backward of conv_up2: the matrix engine refused the work");
}

static const op_info conv_up2_op = {"conv_up2", conv_up2_backward, false};

tensor *conv_up2(run *r, tensor *x, const up_w *w, activation act)
{
    up_attributes a = {w, act};
    op_call c = {.op = &conv_up2_op, .in = {x}, .inputs = 1, .params = {w->w, w->b}, .attributes = &a,
                 .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 4 || x->dim[3] != w->in || !w->w || w->w->t.dim[0] != w->in || w->out < 1 ||
        tensor_count(&w->w->t) != w->in * w->out * 4 || (w->b && tensor_count(&w->b->t) != w->out))
        return op_mismatch_param(r, &c, x, w->w, "wants [B, h, w, in] and weights [in, out, 2, 2]");
    tensor *y = op_output(r, &c, 4, (int64_t[]){x->dim[0], 2 * x->dim[1], 2 * x->dim[2], w->out});
    int64_t pixels = tensor_rows(x);
    c.flops = 2.0 * (double)pixels * 4.0 * (double)w->out * (double)w->in;
    float *pre = act == ACT_NONE || act == ACT_RELU ? NULL : op_save(r, &c, 0, tensor_count(y));
    float *wide = op_scratch_floats(r, tensor_count(y));
    bool packed = up_use_packed(w);
    void *scratch = packed ? op_scratch(r, gemm_scratch(w->packed, pixels)) : NULL;
    float *rows = packed ? NULL : op_scratch_floats(r, 4 * w->out * (w->in + 1));
    if (op_computes(r, y)) {
        if (!up_compute(r, w, wide, x, pre ? ACT_NONE : act, rows, scratch))
            return op_engine_failed(r, &c);
        up_move(pre ? pre : y->data, wide, x, w->out, true);
        if (pre)
            kernels_get()->activate(y->data, pre, act, tensor_count(y));
    }
    return op_finish(r, &c, y);
}

static const op_info conv_up2_linear_op = {"conv_up2_linear", NULL, false};

tensor *conv_up2_linear(run *r, tensor *x, const up_w *w, const linear_w *then)
{
    op_call c = {.op = &conv_up2_linear_op, .in = {x}, .inputs = 1};

    if (!run_ok(r) || run_mode_of(r) != RUN || !w->folded || w->then != then || then->adapter || x->axes != 4 ||
        x->dim[3] != w->in || !is_contiguous(x))
        return linear(r, conv_up2(r, x, w, ACT_NONE), then);
    if (!op_begin(r, &c))
        return run_bad(r);
    tensor *y = op_output(r, &c, 4, (int64_t[]){x->dim[0], 2 * x->dim[1], 2 * x->dim[2], then->out});
    int64_t pixels = tensor_rows(x);
    float *wide = op_scratch_floats(r, tensor_count(y));
    void *scratch = op_scratch(r, gemm_scratch(w->folded, pixels));
    c.flops = 2.0 * (double)tensor_count(y) * (double)w->in;
    if (op_computes(r, y)) {
        if (!gemm_run(w->folded, wide, 4 * then->out, x->data, x->stride, pixels, ACT_NONE, NULL, scratch))
            return op_engine_failed(r, &c);
        up_move(y->data, wide, x, then->out, true);
    }
    return op_finish(r, &c, y);
}

/* ---- patches ---- */

/* x [B, h p, w p, C] <-> y [B, h, w, C p p]; `back` adds y to x instead. */
static void patch_move(float *y, float *x, int64_t rows, int64_t across, int64_t p, int64_t channels, bool back)
{
    int64_t line = across * p * channels;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < across; j++)
            for (int64_t ch = 0; ch < channels; ch++)
                for (int64_t v = 0; v < p; v++)
                    for (int64_t u = 0; u < p; u++) {
                        float *in = x + (i * p + v) * line + (j * p + u) * channels + ch;
                        float *out = y + ((i * across + j) * channels + ch) * p * p + v * p + u;
                        if (back)
                            *in += *out;
                        else
                            *out = *in;
                    }
}

static void patches_backward(run *r, const op_node *n)
{
    tensor *x = n->in[0], *y = n->out;
    int64_t p = ((const window_attributes *)n->attributes)->size;
    float *dx = op_grad(r, x);

    if (dx)
        patch_move(y->grad, dx, y->dim[0] * y->dim[1], y->dim[2], p, x->dim[3], true);
}

static const op_info patches_op = {"patches", patches_backward, false};

tensor *patches(run *r, tensor *x, int patch)
{
    window_attributes a = {patch};
    op_call c = {.op = &patches_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 4 || patch < 1 || x->dim[1] % patch || x->dim[2] % patch || !is_contiguous(x))
        return op_mismatch(r, &c, x, NULL, "wants [B, S, S, C] with sides divisible by the patch");
    int64_t p = patch;
    tensor *y = op_output(r, &c, 4, (int64_t[]){x->dim[0], x->dim[1] / p, x->dim[2] / p, x->dim[3] * p * p});
    if (op_computes(r, y))
        patch_move(y->data, x->data, y->dim[0] * y->dim[1], y->dim[2], patch, x->dim[3], false);
    return op_finish(r, &c, y);
}

/* ---- windows ---- */

typedef enum move { COPY_OUT, COPY_BACK, ADD_OUT, ADD_BACK } move;

/* Between the picture [B, H, W, C] and its windows [B * (H/s) * (W/s), s * s, C]; OUT: picture to windows. */
static void window_move(float *windows, float *picture, const int64_t *dim, int64_t s, move how)
{
    int64_t lines = dim[0] * dim[1], down = dim[1] / s, across = dim[2] / s, width = s * dim[3];
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < lines; i++) {
        int64_t b = i / dim[1], y = i % dim[1];
        for (int64_t j = 0; j < across; j++) {
            float *p = picture + i * dim[2] * dim[3] + j * width;
            float *w = windows + (((b * down + y / s) * across + j) * s + y % s) * width;
            if (how == COPY_OUT)
                memcpy(w, p, (size_t)width * sizeof *p);
            else if (how == COPY_BACK)
                memcpy(p, w, (size_t)width * sizeof *p);
            else
                for (int64_t k = 0; k < width; k++)
                    *(how == ADD_OUT ? w + k : p + k) += how == ADD_OUT ? p[k] : w[k];
        }
    }
}

static void window_partition_backward(run *r, const op_node *n)
{
    int64_t s = ((const window_attributes *)n->attributes)->size;
    float *dx = op_grad(r, n->in[0]);

    if (dx)
        window_move(n->out->grad, dx, n->in[0]->dim, s, ADD_BACK);
}

static const op_info window_partition_op = {"window_partition", window_partition_backward, false};

tensor *window_partition(run *r, tensor *x, int window)
{
    window_attributes a = {window};
    op_call c = {.op = &window_partition_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 4 || window < 1 || x->dim[1] % window || x->dim[2] % window || !is_contiguous(x))
        return op_mismatch(r, &c, x, NULL, "wants [B, H, W, C] with sides divisible by the window");
    int64_t count = x->dim[0] * (x->dim[1] / window) * (x->dim[2] / window);
    tensor *y = op_output(r, &c, 3, (int64_t[]){count, (int64_t)window * window, x->dim[3]});
    if (op_computes(r, y))
        window_move(y->data, x->data, x->dim, window, COPY_OUT);
    return op_finish(r, &c, y);
}

static void window_merge_backward(run *r, const op_node *n)
{
    int64_t s = ((const window_attributes *)n->attributes)->size;
    float *dx = op_grad(r, n->in[0]);

    if (dx)
        window_move(dx, n->out->grad, n->out->dim, s, ADD_OUT);
}

static const op_info window_merge_op = {"window_merge", window_merge_backward, false};

tensor *window_merge(run *r, tensor *x, int64_t batch, int64_t height, int64_t width, int window)
{
    window_attributes a = {window};
    op_call c = {.op = &window_merge_op, .in = {x}, .inputs = 1, .attributes = &a, .attribute_bytes = sizeof a};
    int64_t dim[] = {batch, height, width, last_dim(x)};

    if (!op_begin(r, &c))
        return run_bad(r);
    tensor *y = op_output(r, &c, 4, dim);
    if (!run_ok(r))
        return run_bad(r);
    if (x->axes != 3 || window < 1 || height % window || width % window || x->dim[1] != (int64_t)window * window ||
        tensor_count(x) != tensor_count(y) || !is_contiguous(x))
        return op_mismatch(r, &c, x, y, "wants the windows of that picture, [B (H/w) (W/w), w w, C]");
    if (op_computes(r, y))
        window_move(x->data, y->data, dim, window, COPY_BACK);
    return op_finish(r, &c, y);
}

/* ---- max pooling 2 x 2 ---- */

/* Offset from x of the first largest of the four pixels at channel c. */
static int64_t largest_of_four(const float *x, int64_t line, int64_t channels, int64_t c)
{
    int64_t at[4] = {c, channels + c, line + c, line + channels + c}, best = at[0];
    for (int i = 1; i < 4; i++)
        if (x[at[i]] > x[best])
            best = at[i];
    return best;
}

/* y gets the largest of each four pixels of x; or, given dx, dy is added to the place it came from. */
static void pool_move(float *y, const float *x, float *dx, const tensor *shape, const int64_t *out)
{
    int64_t lines = out[0] * out[1], channels = out[3], line = shape->dim[2] * channels;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < lines; i++) {
        int64_t from = (i / out[1] * shape->dim[1] + i % out[1] * 2) * line;
        for (int64_t j = 0; j < out[2]; j++)
            for (int64_t c = 0; c < channels; c++) {
                int64_t at = from + 2 * j * channels;
                int64_t best = at + largest_of_four(x + at, line, channels, c);
                float *v = y + (i * out[2] + j) * channels + c;
                if (dx)
                    dx[best] += *v;
                else
                    *v = x[best];
            }
    }
}

static void max_pool2_backward(run *r, const op_node *n)
{
    float *dx = op_grad(r, n->in[0]);
    if (dx)
        pool_move(n->out->grad, n->in[0]->data, dx, n->in[0], n->out->dim);
}

static const op_info max_pool2_op = {"max_pool2", max_pool2_backward, false};

tensor *max_pool2(run *r, tensor *x)
{
    op_call c = {.op = &max_pool2_op, .in = {x}, .inputs = 1};

    if (!op_begin(r, &c))
        return run_bad(r);
    if (x->axes != 4 || x->dim[1] < 2 || x->dim[2] < 2 || !is_contiguous(x))
        return op_mismatch(r, &c, x, NULL, "wants [B, h, w, C] with sides of at least 2");
    tensor *y = op_output(r, &c, 4, (int64_t[]){x->dim[0], x->dim[1] / 2, x->dim[2] / 2, x->dim[3]});
    c.flops = 3.0 * (double)tensor_count(y);
    if (op_computes(r, y))
        pool_move(y->data, x->data, NULL, x, y->dim);
    return op_finish(r, &c, y);
}
