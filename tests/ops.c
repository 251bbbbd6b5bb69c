/* ops.c - every op: forward and gradients against PyTorch's numbers and finite differences, TRACE against RUN. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "formats/safetensors.h"
#include "ops/ops.h"

#include <cmocka.h>

enum { INPUTS = 6, PARAMS = 2 };

/* What one case needs: copies of its numbers, so that finite differences may change them. */
typedef struct subject {
    const char *name;
    const weight *in[INPUTS], *p[PARAMS], *y, *dy;
    float *in_data[INPUTS], *p_data[PARAMS];
} subject;

/* One run over a subject. */
typedef struct scene {
    run     *r;
    tensor  *x[INPUTS], *y;
    param    p[PARAMS];
    linear_w linear[2];
    conv_w   conv;
    up_w     up;
    norm_w   norm;
    bool     pack;
} scene;

typedef struct op_case {
    const char *name;
    tensor *(*build)(scene *s);
} op_case;

static file_map file;
static tensor_list fixtures;

/* ---- builders, one per case ---- */

#define X(i) s->x[i]
#define R s->r
#define DIMS(...) (int64_t[]){__VA_ARGS__}
#define BUILD(name, expression) static tensor *build_##name(scene *s) { return expression; }

static param *bias(scene *s)
{
    return s->p[1].t.axes ? &s->p[1] : NULL;
}

static const linear_w *lin(scene *s, int slot, int64_t first, int64_t in, int64_t out)
{
    linear_w *w = &s->linear[slot];
    *w = (linear_w){&s->p[0], bias(s), first, in, out, NULL};
    if (s->pack)
        assert_true(linear_pack(w, GEMM_F32));
    return w;
}

static const conv_w *conv_of(scene *s, int64_t in, int64_t out, int64_t stride, int64_t pad, int64_t groups)
{
    s->conv = (conv_w){&s->p[0], bias(s), {in, out, 3, stride, pad, groups}, NULL};
    if (s->pack)
        assert_true(conv_w_pack(&s->conv, GEMM_F32));
    return &s->conv;
}

static const up_w *up(scene *s)
{
    s->up = (up_w){&s->p[0], &s->p[1], 5, 4, NULL};
    if (s->pack)
        assert_true(up_w_pack(&s->up, GEMM_F32));
    return &s->up;
}

static const norm_w *gain_shift(scene *s)
{
    s->norm = (norm_w){&s->p[0], &s->p[1], 1e-5f};
    return &s->norm;
}

BUILD(linear, linear(R, X(0), lin(s, 0, 0, 8, 6)))
BUILD(linear_relu, linear_act(R, X(0), lin(s, 0, 0, 8, 6), ACT_RELU))
BUILD(linear_gelu, linear_act(R, X(0), lin(s, 0, 0, 8, 6), ACT_GELU))
BUILD(linear_sigmoid, linear_act(R, X(0), lin(s, 0, 0, 8, 6), ACT_SIGMOID))
BUILD(linear_add, linear_add(R, X(0), lin(s, 0, 0, 8, 6), X(1)))
BUILD(linear_pixels, linear(R, X(0), lin(s, 0, 0, 12, 5)))
BUILD(linear_view, linear(R, columns(R, X(0), 2, 8), lin(s, 0, 0, 8, 6)))
BUILD(linear_rows, multiply(R, linear(R, X(0), lin(s, 0, 4, 8, 4)), linear(R, X(0), lin(s, 1, 8, 8, 4))))
BUILD(product, product(R, X(0), X(1)))
BUILD(product_view, product(R, columns(R, X(0), 8, 8), columns(R, X(1), 0, 8)))

BUILD(attention, attention(R, X(0), X(1), X(2), &(attend_options){.heads = 2}))
BUILD(attention_causal, attention(R, X(0), X(1), X(2), &(attend_options){.heads = 1, .causal = true}))
BUILD(attention_mask, attention(R, X(0), X(1), X(2), &(attend_options){.heads = 2, .key_mask = X(3), .scale = 0.5f}))
BUILD(attention_narrow, attention(R, X(0), X(1), X(2), &(attend_options){.heads = 4, .key_mask = X(3)}))
BUILD(attention_bias, attention(R, X(0), X(1), X(2), &(attend_options){.heads = 2, .bias_x = X(3), .bias_y = X(4)}))

/* Tables of rotations outlive the run and exist in TRACE: they are not values of the run. */
static tensor *build_attention_rope(scene *s)
{
    static const float table[64];
    attend_options o = {.heads = 2, .rope = X(1)->data ? X(1)->data : table, .rope_rows = 3};
    return attention(R, columns(R, X(0), 0, 16), columns(R, X(0), 16, 16), columns(R, X(0), 32, 16), &o);
}

static tensor *build_attention_rope_keys(scene *s)
{
    static const float table[64];
    attend_options o = {.heads = 1, .rope = X(3)->data ? X(3)->data : table, .rope_rows = 3, .rope_keys = 4};
    return attention(R, X(0), X(1), X(2), &o);
}

BUILD(norm, norm(R, X(0), gain_shift(s)))
BUILD(norm_view, norm(R, columns(R, X(0), 3, 8), gain_shift(s)))
BUILD(group_norm, group_norm(R, X(0), gain_shift(s), 2, false))
BUILD(group_norm_relu, group_norm(R, X(0), gain_shift(s), 2, true))

BUILD(conv, conv(R, X(0), conv_of(s, 4, 4, 1, 0, 1), ACT_NONE))
BUILD(conv_relu, conv(R, X(0), conv_of(s, 4, 4, 2, 1, 1), ACT_RELU))
BUILD(conv_gelu, conv(R, X(0), conv_of(s, 4, 4, 1, 1, 1), ACT_GELU))
BUILD(conv_groups, conv(R, X(0), conv_of(s, 8, 8, 1, 1, 8), ACT_NONE))
BUILD(conv_up2, conv_up2(R, X(0), up(s), ACT_NONE))
BUILD(conv_up2_gelu, conv_up2(R, X(0), up(s), ACT_GELU))
BUILD(patches, patches(R, X(0), 2))
BUILD(window_partition, window_partition(R, X(0), 2))
BUILD(window_merge, window_merge(R, X(0), 2, 4, 6, 2))
BUILD(max_pool2, max_pool2(R, X(0)))

BUILD(add, add(R, X(0), X(1)))
BUILD(add_view, add(R, columns(R, X(0), 1, 4), X(1)))
BUILD(add_twice, add(R, add(R, X(0), X(0)), scale(R, X(0), 3)))
BUILD(multiply, multiply(R, X(0), X(1)))
BUILD(multiply_suffix, multiply(R, columns(R, X(0), 1, 4), X(1)))
BUILD(scale, scale(R, X(0), -2.5f))
BUILD(scale_view, scale(R, columns(R, X(0), 1, 3), 0.5f))
BUILD(relu, activate(R, X(0), ACT_RELU))
BUILD(gelu, activate(R, X(0), ACT_GELU))
BUILD(sigmoid_view, activate(R, columns(R, X(0), 2, 5), ACT_SIGMOID))
BUILD(clamp, clamp(R, X(0), -0.7f, 0.9f))
BUILD(inverse_sigmoid, inverse_sigmoid(R, X(0)))
BUILD(detach, add(R, X(0), scale(R, detach(R, X(0)), 2)))

BUILD(reshape, scale(R, reshape(R, X(0), 2, DIMS(3, 8)), 2))
BUILD(columns, concat(R, concat(R, columns(R, X(0), 4, 3), columns(R, X(0), 1, 2), 2),
                      columns(R, columns(R, X(0), 2, 2), 1, 1), 2))
BUILD(rows, scale(R, rows(R, X(0), 1, 2), 2))
BUILD(concat0, concat(R, X(0), X(1), 0))
BUILD(concat1, concat(R, X(0), X(1), 1))
BUILD(concat_last, concat(R, X(0), X(1), 2))
BUILD(pad_front, pad_front(R, columns(R, X(0), 1, 4), 2))
BUILD(copy, copy(R, columns(R, X(0), 1, 4)))
BUILD(repeat, repeat(R, X(0), 3))
BUILD(gather_rows, gather_rows(R, X(0), (int32_t[]){2, 0, 2, 3}, 4))
BUILD(gather_pixels, gather_rows(R, X(0), (int32_t[]){1, 1, 0}, 3))
BUILD(embed, embed(R, &s->p[0], X(0)))
BUILD(masked_mean, masked_mean(R, X(0), X(1)))
BUILD(mean, masked_mean(R, columns(R, X(0), 1, 3), NULL))
BUILD(parameter, add(R, X(0), run_param(R, &s->p[0])))

BUILD(upsample_add, upsample_add(R, X(0), X(1)))
BUILD(resize_up, resize_bilinear(R, X(0), 7, 9))
BUILD(resize_down, resize_bilinear(R, X(0), 3, 2))
BUILD(resize_same, resize_bilinear(R, X(0), 4, 5))
BUILD(roi_align, roi_align(R, X(0), X(1), 3))
BUILD(point_sample, point_sample(R, X(0), X(1)))
BUILD(sine_embed, sine_embed(R, X(0), (int[]){1, 0, 2, 3}, 4, 8))
BUILD(sine_view, sine_embed(R, columns(R, X(0), 1, 2), (int[]){1}, 1, 6))
BUILD(fourier_embed, fourier_embed(R, X(0), &s->p[0]))
BUILD(fourier_view, fourier_embed(R, columns(R, X(0), 1, 2), &s->p[0]))
BUILD(box_distances0, box_distances(R, X(0), 0, 5))
BUILD(box_distances1, box_distances(R, X(0), 1, 5))

static const op_case cases[] = {
    {"linear", build_linear}, {"linear_no_bias", build_linear}, {"linear_relu", build_linear_relu},
    {"linear_gelu", build_linear_gelu}, {"linear_sigmoid", build_linear_sigmoid}, {"linear_add", build_linear_add},
    {"linear_rows", build_linear_rows}, {"linear_pixels", build_linear_pixels}, {"linear_view", build_linear_view},
    {"product", build_product}, {"product_shared", build_product}, {"product_view", build_product_view},
    {"attention", build_attention}, {"attention_causal", build_attention_causal},
    {"attention_mask", build_attention_mask}, {"attention_narrow", build_attention_narrow},
    {"attention_bias", build_attention_bias},
    {"attention_rope", build_attention_rope}, {"attention_rope_keys", build_attention_rope_keys},
    {"norm", build_norm}, {"norm_view", build_norm_view}, {"group_norm", build_group_norm},
    {"group_norm_relu", build_group_norm_relu},
    {"conv", build_conv}, {"conv_relu", build_conv_relu}, {"conv_gelu", build_conv_gelu},
    {"conv_groups", build_conv_groups}, {"conv_up2", build_conv_up2}, {"conv_up2_gelu", build_conv_up2_gelu},
    {"patches", build_patches}, {"window_partition", build_window_partition}, {"window_merge", build_window_merge},
    {"max_pool2", build_max_pool2},
    {"add", build_add}, {"add_suffix", build_add}, {"add_row", build_add}, {"add_view", build_add_view},
    {"add_twice", build_add_twice}, {"multiply", build_multiply}, {"multiply_suffix", build_multiply_suffix},
    {"scale", build_scale}, {"scale_view", build_scale_view}, {"relu", build_relu}, {"gelu", build_gelu},
    {"sigmoid_view", build_sigmoid_view}, {"clamp", build_clamp}, {"inverse_sigmoid", build_inverse_sigmoid},
    {"detach", build_detach},
    {"reshape", build_reshape}, {"columns", build_columns}, {"rows", build_rows}, {"concat0", build_concat0},
    {"concat1", build_concat1}, {"concat_last", build_concat_last}, {"concat_pixels", build_concat_last},
    {"pad_front", build_pad_front}, {"copy", build_copy}, {"repeat", build_repeat}, {"gather_rows", build_gather_rows},
    {"gather_pixels", build_gather_pixels}, {"embed", build_embed}, {"masked_mean", build_masked_mean},
    {"mean", build_mean}, {"parameter", build_parameter},
    {"upsample_add", build_upsample_add}, {"upsample_add_shared", build_upsample_add}, {"resize_up", build_resize_up},
    {"resize_down", build_resize_down}, {"resize_same", build_resize_same}, {"roi_align", build_roi_align},
    {"point_sample", build_point_sample}, {"sine_embed", build_sine_embed}, {"sine_view", build_sine_view},
    {"fourier_embed", build_fourier_embed}, {"fourier_view", build_fourier_view},
    {"box_distances0", build_box_distances0}, {"box_distances1", build_box_distances1},
};

/* ---- fixtures ---- */

static const weight *find(const char *name, const char *kind, int i)
{
    char full[96];
    if (i < 0)
        snprintf(full, sizeof full, "%s.%s", name, kind);
    else
        snprintf(full, sizeof full, "%s.%s%d", name, kind, i);
    for (size_t k = 0; k < fixtures.count; k++)
        if (!strcmp(fixtures.items[k].name, full))
            return &fixtures.items[k];
    return NULL;
}

/* A copy that ends where its memory ends, for sanitizers. */
static float *copy_of(const weight *w)
{
    size_t bytes = weight_bytes(w);
    float *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    memcpy(p, w->data, bytes);
    return p;
}

static subject subject_open(const char *name)
{
    subject s = {.name = name, .y = find(name, "y", -1), .dy = find(name, "dy", -1)};
    if (!s.y || !s.dy)
        fail_msg("no numbers for case %s", name);
    for (int i = 0; i < INPUTS; i++)
        if ((s.in[i] = find(name, "in", i)) != NULL)
            s.in_data[i] = copy_of(s.in[i]);
    for (int i = 0; i < PARAMS; i++)
        if ((s.p[i] = find(name, "p", i)) != NULL)
            s.p_data[i] = copy_of(s.p[i]);
    return s;
}

static void subject_close(subject *s)
{
    for (int i = 0; i < INPUTS; i++)
        free(s->in_data[i]);
    for (int i = 0; i < PARAMS; i++)
        free(s->p_data[i]);
}

/* Leaves NaN where the values to come will lie: no op may count on what it finds there. */
static void poison(run *r)
{
    size_t mark = run_mark(r);
    tensor *t = run_constant(r, 1, DIMS(1 << 15));
    for (int64_t i = 0; i < tensor_count(t); i++)
        t->data[i] = NAN;
    run_drop(r, mark);
}

/* Gradients are added to what is there; so there is something. */
static const float earlier = 0.5f;

static void start_gradient(float *grad, int64_t n)
{
    for (int64_t i = 0; grad && i < n; i++)
        grad[i] = earlier;
}

/* frozen: parameters take no gradient. The run's records point into the scene: it must stay where it is. */
static void scene_open(scene *s, const op_case *c, const subject *of, run_mode mode, bool pack, bool frozen)
{
    samite_error err;
    *s = (scene){.r = run_open(&(run_options){.mode = mode}, &err), .pack = pack};
    assert_non_null(s->r);
    if (mode == TAPE || pack)
        poison(s->r);
    for (int i = 0; i < INPUTS; i++) {
        const weight *w = of->in[i];
        if (!w)
            continue;
        s->x[i] = w->type == DT_I32 ? run_indices(s->r, (int32_t *)of->in_data[i], w->axes, w->dim)
                                   : run_input(s->r, of->in_data[i], w->axes, w->dim);
        if (mode == TAPE && find(of->name, "din", i))
            run_want_grad(s->r, s->x[i]);
        start_gradient(s->x[i]->grad, weight_count(w));
    }
    for (int i = 0; i < PARAMS; i++) {
        const weight *w = of->p[i];
        if (!w)
            continue;
        bool learns = !frozen && find(of->name, "dp", i);
        s->p[i] = (param){.name = of->name, .t = {.axes = w->axes, .data = of->p_data[i]}, .trainable = learns};
        memcpy(s->p[i].t.dim, w->dim, sizeof s->p[i].t.dim);
        s->p[i].t.stride = w->dim[w->axes - 1];
        s->p[i].t.grad = mode == TAPE && learns ? malloc(weight_bytes(w)) : NULL;
        start_gradient(s->p[i].t.grad, weight_count(w));
    }
    run_part(s->r, "part.of.%s", c->name);
    s->y = c->build(s);
    if (run_status(s->r, &err))
        fail_msg("%s: %s", c->name, err.text);
}

static void scene_close(scene *s)
{
    run_close(s->r);
    for (int i = 0; i < PARAMS; i++)
        free(s->p[i].t.grad);
    for (int i = 0; i < 2; i++)
        gemm_weights_free(s->linear[i].packed);
    conv_weights_free(s->conv.packed);
    gemm_weights_free(s->up.packed);
}

/* ---- comparisons ---- */

static void assert_shape(const char *name, const tensor *t, const weight *w)
{
    bool same = t->axes == w->axes;
    for (int i = 0; same && i < t->axes; i++)
        same = t->dim[i] == w->dim[i];
    if (!same)
        fail_msg("%s: another shape than expected", name);
}

/* `got` starts at `zero`. Largest difference relative to the largest expected number (at least 1e-3). */
static void assert_close(const char *name, const char *what, const float *got, float zero, int64_t stride,
                         const weight *w, double limit)
{
    const float *want = w->data;
    int64_t cols = w->dim[w->axes - 1], n = weight_count(w);
    double most = 1e-3, off = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)got[i / cols * stride + i % cols] - zero - want[i]);
        most = fmax(most, fabs((double)want[i]));
        off = d > off || isnan(d) ? d : off;
    }
    if (!(off <= limit * most))
        fail_msg("%s: %s is off by %.3g of %.3g, more than %.3g", name, what, off, most, limit);
}

static void check_gradients(const subject *of, const scene *s, bool frozen)
{
    for (int i = 0; i < INPUTS; i++)
        if (s->x[i] && find(of->name, "din", i))
            assert_close(of->name, "the gradient of an input", s->x[i]->grad, earlier, s->x[i]->stride,
                         find(of->name, "din", i), 2e-5);
    for (int i = 0; i < PARAMS && !frozen; i++)
        if (find(of->name, "dp", i))
            assert_close(of->name, "the gradient of a parameter", s->p[i].t.grad, earlier, s->p[i].t.stride,
                         find(of->name, "dp", i), 2e-5);
}

/* ---- tests ---- */

#define FOR_EACH_CASE(c) for (const op_case *c = cases; c < cases + sizeof cases / sizeof *cases; c++)

static void test_forward(void **state)
{
    (void)state;
    FOR_EACH_CASE(c) {
        subject of = subject_open(c->name);
        for (int pack = 0; pack < 2; pack++) {
            scene s;
            scene_open(&s, c, &of, RUN, pack, true);
            assert_shape(c->name, s.y, of.y);
            assert_close(c->name, pack ? "the packed output" : "the output", s.y->data, 0, s.y->stride, of.y, 1e-5);
            assert_int_equal(run_nodes(s.r), 0);
            scene_close(&s);
        }
        subject_close(&of);
    }
}

/* Packed weights serve frozen layers only; gradients must pass through those to the inputs all the same. */
static void test_backward(void **state)
{
    (void)state;
    FOR_EACH_CASE(c) {
        subject of = subject_open(c->name);
        for (int variant = 0; variant < 3; variant++) {
            bool pack = variant > 0, frozen = variant > 1;
            scene s;
            scene_open(&s, c, &of, TAPE, pack, frozen);
            samite_error err;
            float *dy = run_seed(s.r, s.y);
            assert_close(c->name, "the output", s.y->data, 0, s.y->stride, of.y, 1e-5);
            if (!dy && frozen) {
                scene_close(&s);
                continue;
            }
            assert_non_null(dy);
            memcpy(dy, of.dy->data, weight_bytes(of.dy));
            if (run_backward(s.r, NULL, &err))
                fail_msg("%s: %s", c->name, err.text);
            check_gradients(&of, &s, frozen);
            scene_close(&s);
        }
        subject_close(&of);
    }
}

static void test_trace(void **state)
{
    (void)state;
    FOR_EACH_CASE(c) {
        subject of = subject_open(c->name);
        scene s, t;
        scene_open(&s, c, &of, RUN, false, true);
        scene_open(&t, c, &of, TRACE, false, true);
        assert_shape(c->name, t.y, of.y);
        assert_null(t.y->data);
        if (run_peak(s.r) != run_peak(t.r))
            fail_msg("%s: a run takes %zu bytes, its trace says %zu", c->name, run_peak(s.r), run_peak(t.r));
        assert_true(run_nodes(t.r) > 0);
        const op_node *last = run_node(t.r, run_nodes(t.r) - 1);
        assert_ptr_equal(last->out, t.y);
        assert_string_equal(last->part + strlen("part.of."), c->name);
        scene_close(&s);
        scene_close(&t);
        subject_close(&of);
    }
}

/* sum(y dy) of a fresh run. */
static double loss_of(const op_case *c, const subject *of)
{
    scene s;
    scene_open(&s, c, of, RUN, false, true);
    const float *dy = of->dy->data;
    int64_t cols = tensor_cols(s.y), n = tensor_count(s.y);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)dy[i] * s.y->data[i / cols * s.y->stride + i % cols];
    scene_close(&s);
    return sum;
}

/* Central differences of numbers spread over `data` against the op's own gradient. A difference of two f32 sums of size
 * |loss| carries their rounding divided by the step, on top of the third derivative times the step squared. */
static void check_differences(const op_case *c, const subject *of, float *data, const float *grad, int64_t n)
{
    const float step = 2e-3f;
    double most = 1e-1;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)grad[i] - earlier));
    for (int64_t i = 0; i < n; i += n / 24 + 1) {
        float old = data[i];
        data[i] = old + step;
        float above = data[i];
        double up_loss = loss_of(c, of);
        data[i] = old - step;
        double slope = (up_loss - loss_of(c, of)) / ((double)above - data[i]);
        data[i] = old;
        if (!(fabs(slope - grad[i] + earlier) <= 1e-2 * most))
            fail_msg("%s: element %lld has slope %g, its gradient is %g", c->name, (long long)i, slope,
                     (double)grad[i] - earlier);
    }
}

static void test_finite_differences(void **state)
{
    (void)state;
    FOR_EACH_CASE(c) {
        if (!strcmp(c->name, "detach") || !strcmp(c->name, "inverse_sigmoid"))
            continue;    /* the first lies by design, the second has kinks and poles closer than the step */
        subject of = subject_open(c->name);
        scene s;
        scene_open(&s, c, &of, TAPE, false, false);
        memcpy(run_seed(s.r, s.y), of.dy->data, weight_bytes(of.dy));
        assert_int_equal(run_backward(s.r, NULL, NULL), 0);
        for (int i = 0; i < INPUTS; i++)
            if (of.in[i] && find(c->name, "din", i))
                check_differences(c, &of, of.in_data[i], s.x[i]->grad, weight_count(of.in[i]));
        for (int i = 0; i < PARAMS; i++)
            if (find(c->name, "dp", i))
                check_differences(c, &of, of.p_data[i], s.p[i].t.grad, weight_count(of.p[i]));
        scene_close(&s);
        subject_close(&of);
    }
}

static double flops_of(const char *name)
{
    FOR_EACH_CASE(c) {
        if (strcmp(c->name, name))
            continue;
        subject of = subject_open(name);
        scene t;
        scene_open(&t, c, &of, TRACE, false, true);
        double sum = 0;
        for (size_t i = 0; i < run_nodes(t.r); i++)
            sum += run_node(t.r, i)->flops;
        scene_close(&t);
        subject_close(&of);
        return sum;
    }
    fail_msg("no case %s", name);
    return 0;
}

static void test_flops(void **state)
{
    (void)state;
    assert_true(flops_of("linear") == 2.0 * 6 * 8 * 6);
    assert_true(flops_of("product") == 2.0 * 2 * 3 * 5 * 8);
    assert_true(flops_of("attention") == 4.0 * 2 * 3 * 5 * 16);
    assert_true(flops_of("conv") == 2.0 * (2 * 2 * 3) * 4 * (4 * 3 * 3));
    assert_true(flops_of("conv_groups") == 2.0 * (4 * 3) * 8 * (3 * 3));
    assert_true(flops_of("conv_up2") == 2.0 * (2 * 2 * 3) * 4 * 4 * 5);
    assert_true(flops_of("reshape") == 24);    /* of the scale behind it */
}

static int open_fixtures(void **state)
{
    (void)state;
    samite_error err;
    const char *path = TEST_DATA "/ops/ops.safetensors";
    threads_set(1);    /* thousands of tiny runs; tests/run.c compares numbers of threads */
    if (file_map_open(&file, path, &err) || safetensors_read(&fixtures, file.data, file.size, path, &err)) {
        print_error("%s\n", err.text);
        return -1;
    }
    return 0;
}

static int close_fixtures(void **state)
{
    (void)state;
    tensor_list_free(&fixtures);
    file_map_close(&file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward), cmocka_unit_test(test_backward), cmocka_unit_test(test_trace),
        cmocka_unit_test(test_finite_differences), cmocka_unit_test(test_flops),
    };
    return cmocka_run_group_tests_name("ops", tests, open_fixtures, close_fixtures);
}
