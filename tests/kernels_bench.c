/* kernels_bench.c - `test_kernels --bench`: milliseconds, GFLOP/s and GB/s on the shapes of the network. */
#include <omp.h>
#include <time.h>

#include "kernels/gemm.h"
#include "numbers.h"

static double rate[2];  /* GFLOP/s of a large product in f32 and bf16: the roofline */

/* Seconds. With one thread its CPU time, which other processes disturb less. */
static double now(void)
{
    struct timespec t;

    if (omp_get_max_threads() > 1)
        return omp_get_wtime();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct attention_bench {
    const char *name;
    int64_t batch, heads, dim, nq, nk;
    bool rope, causal, bias;
    int64_t v_dim;      /* 0: dim */
} attention_bench;

static const attention_bench attention_shapes[] = {
    {"trunk windows", 9, 16, 64, 576, 576, true, false, false, 0},
    {"trunk global", 1, 16, 64, 5184, 5184, true, false, false, 0},
    {"fusion self", 1, 8, 32, 5184, 5184, false, false, false, 0},
    {"fusion text", 1, 8, 32, 5184, 33, false, false, false, 0},
    {"fusion text", 1, 8, 32, 5184, 7, false, false, false, 0},
    {"decoder image", 1, 8, 32, 201, 5184, false, false, true, 0},
    {"decoder self", 1, 8, 32, 201, 201, false, false, false, 0},
    {"text causal", 1, 16, 64, 32, 32, false, true, false, 0},
    {"memory", 1, 1, 256, 5184, 36348, true, false, false, 64},
};

static void bench_attention(const kernels *k, const attention_bench *s, gemm_type type)
{
    int64_t cols = s->heads * s->dim, wide = s->v_dim ? s->heads * s->v_dim : cols;
    int64_t best_runs = s->nq * s->nk > 4000000 ? 2 : 8;
    float *q = random_floats(s->batch * s->nq * cols, 0, 1), *kv = random_floats(2 * s->batch * s->nk * cols, 0, 2),
          *y = random_floats(s->batch * s->nq * cols, 0, 3), *rope = random_floats(s->nq * s->dim, 0, 4),
          *bias = random_floats(s->batch * s->nq * 72 * s->heads, 0, 5);
    attention_args a = {.y = y,
                        .q = q,
                        .k = kv,
                        .v = kv + s->batch * s->nk * cols,
                        .batch = s->batch,
                        .heads = s->heads,
                        .dim = s->dim,
                        .nq = s->nq,
                        .nk = s->nk,
                        .v_dim = s->v_dim,
                        .q_stride = cols,
                        .k_stride = cols,
                        .v_stride = cols,
                        .y_stride = wide,
                        .q_batch = s->nq * cols,
                        .k_batch = s->nk * cols,
                        .v_batch = s->nk * cols,
                        .y_batch = s->nq * wide,
                        .scale = 1 / sqrtf((float)s->dim),
                        .causal = s->causal,
                        .rope = s->rope ? rope : NULL,
                        .rope_rows = s->nq,
                        .rope_keys = s->nk,
                        .bias_x = s->bias ? bias : NULL,
                        .bias_y = s->bias ? bias : NULL,
                        .grid_w = 72,
                        .grid_h = 72};
    double best = 1e30, flops = 2e-9 * (double)(s->batch * s->nq * s->nk * (cols + wide)) * (s->causal ? 0.5 : 1);
    void (*const kinds[])(const attention_args *) = {k->attention, k->attention_bf16, k->attention_int8};
    static const char *const names[] = {"", " bf16", " int8"};

    a.scratch = aligned_alloc(64, (attention_scratch(&a) + 63) / 64 * 64);
    for (int i = 0; i < best_runs; i++) {
        double start = now();
        kinds[type](&a);
        best = fmin(best, now() - start);
    }
    printf("  attention%s %-14s %3ld x %2ld heads x %3ld, %5ld x %5ld  %9.3f ms %7.1f GFLOP/s %5.1f %%\n",
           names[type], s->name, (long)s->batch, (long)s->heads, (long)s->dim, (long)s->nq, (long)s->nk,
           best * 1e3, flops / best,
           100 * flops / best / rate[type != GEMM_F32]);
    free(a.scratch);
    drop(q, 0), drop(kv, 0), drop(y, 0), drop(rope, 0), drop(bias, 0);
}

/* One call of a slot over `rows` x `cols` values of each of the buffers. */
typedef struct row_bench {
    const char *name;
    void (*run)(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols);
    int64_t rows, cols;
    double passes;      /* how often a value of this many bytes / 4 is read or written */
} row_bench;

static void call_add(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols)
{
    k->add(y, x, small, rows * cols, cols);
}

static void call_axpy(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols)
{
    k->axpy(y, x, 1e-9f, rows * cols);
}

static void call_gelu(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols)
{
    k->activate(y, x, ACT_GELU, rows * cols);
}

static void call_sigmoid(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols)
{
    k->activate(y, x, ACT_SIGMOID, rows * cols);
}

static void call_gelu_backward(const kernels *k, float *y, const float *x, const float *small, int64_t rows,
                               int64_t cols)
{
    k->activate_backward(y, x, x, ACT_GELU, rows * cols);
}

static void call_norm(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols)
{
    k->norm(y, NULL, NULL, x, small, small, rows, cols, 1e-5f);
}

static void call_group_norm(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols)
{
    k->group_norm(y, NULL, NULL, x, small, small, 1, rows, cols, 8, 1e-5f, true);
}

static void call_to_bf16(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols)
{
    k->to_bf16((uint16_t *)y, x, rows * cols);
}

static void call_quantize(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols)
{
    float *scale = y + rows * cols / 2;

    k->quantize((uint8_t *)y, cols, scale, (int32_t *)(scale + rows), x, cols, rows, cols);
}

static void call_column_sums(const kernels *k, float *y, const float *x, const float *small, int64_t rows, int64_t cols)
{
    k->column_sums(y, x, rows, cols, cols);
}

static const row_bench row_calls[] = {
    {"add", call_add, 5184, 1024, 2},
    {"axpy", call_axpy, 5184, 1024, 3},
    {"gelu", call_gelu, 5184, 1024, 2},
    {"sigmoid", call_sigmoid, 5184, 1024, 2},
    {"gelu backward", call_gelu_backward, 5184, 1024, 3},
    {"norm", call_norm, 5184, 1024, 2},
    {"norm", call_norm, 5184, 256, 2},
    {"group_norm + relu", call_group_norm, 82944, 256, 3},
    {"to_bf16", call_to_bf16, 5184, 1024, 1.5},
    {"quantize", call_quantize, 5184, 1024, 1.25},
    {"column_sums", call_column_sums, 5184, 1024, 1},
};

static void bench_rows(const kernels *k, const row_bench *b)
{
    int64_t n = b->rows * b->cols;
    float *x = random_floats(n, 0, 1), *y = random_floats(n, 0, 2), *small = random_floats(b->cols, 0, 3);
    double best = 1e30;

    for (int i = 0; i < 15; i++) {
        double start = now();
        b->run(k, y, x, small, b->rows, b->cols);
        best = fmin(best, now() - start);
    }
    printf("  %-18s %6ld x %5ld  %9.3f ms %6.1f GB/s\n", b->name, (long)b->rows, (long)b->cols, best * 1e3,
           4e-9 * b->passes * (double)n / best);
    drop(x, 0), drop(y, 0), drop(small, 0);
}

typedef struct linear_bench { int64_t rows, in, out; activation act; bool residual; } linear_bench;

static const linear_bench linear_shapes[] = {
    {5184, 1024, 3072, ACT_NONE, false}, {5184, 1024, 1024, ACT_NONE, true}, {5184, 1024, 4736, ACT_GELU, false},
    {5184, 4736, 1024, ACT_NONE, true},  {5184, 256, 2048, ACT_RELU, false}, {5184, 2048, 256, ACT_NONE, true},
    {201, 256, 2048, ACT_RELU, false},   {32, 1024, 4096, ACT_GELU, false},  {8, 1024, 3072, ACT_NONE, false},
    {1, 256, 256, ACT_RELU, false},
};

static void bench_linear(const linear_bench *b, gemm_type type)
{
    float *x = random_floats(b->rows * b->in, 0, 1), *w = random_floats(b->out * b->in, 0, 2),
          *y = random_floats(b->rows * b->out, 0, 3);
    gemm_weights *packed = gemm_pack(w, w, b->out, b->in, b->in, type);
    void *scratch = malloc(gemm_scratch(packed, b->rows) + 1);
    double best = 1e30, flops = 2e-9 * (double)(b->rows * b->in * b->out);

    for (int i = 0; i < (flops > 1 ? 4 : 50); i++) {
        double start = now();
        gemm_run(packed, y, b->out, x, b->in, b->rows, b->act, b->residual ? y : NULL, scratch);
        best = fmin(best, now() - start);
    }
    printf("  linear %s %5ld x %4ld -> %4ld%s%s  %9.3f ms %7.1f GFLOP/s, weights %5.1f GB/s\n",
           type == GEMM_INT8 ? "int8" : type == GEMM_BF16 ? "bf16" : "f32 ", (long)b->rows, (long)b->in, (long)b->out,
           b->act ? " + act" : "",
           b->residual ? " + residual" : "", best * 1e3, flops / best,
           1e-9 * (double)gemm_weights_bytes(packed) / best);
    gemm_weights_free(packed);
    free(scratch);
    drop(x, 0), drop(w, 0), drop(y, 0);
}

typedef struct conv_bench { conv_shape s; int64_t side; } conv_bench;

static const conv_bench conv_shapes[] = {
    {{256, 256, 3, 1, 1, 1}, 288},   {{256, 256, 3, 1, 1, 1}, 144},  {{256, 256, 3, 1, 1, 1}, 72},
    {{3, 1024, 14, 14, 0, 1}, 1008}, {{256, 256, 7, 1, 3, 256}, 72},
};

static void bench_conv(const conv_bench *b, gemm_type type)
{
    const conv_shape *s = &b->s;
    int64_t side = (b->side + 2 * s->pad - s->kernel) / s->stride + 1,
            inner = s->in / s->groups * s->kernel * s->kernel;
    float *x = random_floats(b->side * b->side * s->in, 0, 1), *w = random_floats(inner * s->out, 0, 2),
          *y = random_floats(side * side * s->out, 0, 3);
    conv_weights *packed = conv_pack(w, w, s, type);
    double best = 1e30, flops = 2e-9 * (double)(side * side * s->out * inner);

    for (int i = 0; i < (flops > 20 ? 2 : 5); i++) {
        double start = now();
        conv_run(packed, y, x, 1, b->side, b->side, ACT_NONE);
        best = fmin(best, now() - start);
    }
    printf("  convolution %s %ld x %ld, stride %ld, groups %ld, %4ld -> %4ld, side %4ld  %9.3f ms %7.1f GFLOP/s\n",
           type == GEMM_BF16 ? "bf16" : "f32 ", (long)s->kernel, (long)s->kernel, (long)s->stride, (long)s->groups,
           (long)s->in, (long)s->out, (long)b->side, best * 1e3, flops / best);
    conv_weights_free(packed);
    drop(x, 0), drop(w, 0), drop(y, 0);
}

#define EACH(array, i) size_t i = 0; i < sizeof array / sizeof *array; i++

/* Products and convolutions run at the level that kernels_cap() allows, the slots at every level. */
int kernels_bench(void)
{
    const kernels *levels[8];
    int n = kernels_levels(levels, 8);

    for (int type = GEMM_F32; type <= GEMM_BF16; type++)
        rate[type] = gemm_rate((gemm_type)type);
    printf("%s\n%d threads, product %.1f GFLOP/s in f32, %.1f in bf16\n", kernels_cpu_features(), omp_get_max_threads(),
           rate[0], rate[1]);
    printf("%s\n", kernels_get()->level);
    for (int type = GEMM_F32; type <= GEMM_INT8; type++) {
        for (EACH(linear_shapes, i))
            bench_linear(&linear_shapes[i], (gemm_type)type);
        for (size_t i = 0; type != GEMM_INT8 && i < sizeof conv_shapes / sizeof *conv_shapes; i++)
            bench_conv(&conv_shapes[i], (gemm_type)type);
    }
    for (int l = 1; l < n; l++) {
        printf("%s\n", levels[l]->level);
        for (EACH(row_calls, i))
            bench_rows(levels[l], &row_calls[i]);
        for (EACH(attention_shapes, i))
            bench_attention(levels[l], &attention_shapes[i], GEMM_F32);
        for (EACH(attention_shapes, i))
            if (levels[l]->attention_bf16 != levels[l]->attention)
                bench_attention(levels[l], &attention_shapes[i], GEMM_BF16);
        for (EACH(attention_shapes, i))
            if (levels[l]->attention_int8 != levels[l]->attention_bf16)
                bench_attention(levels[l], &attention_shapes[i], GEMM_INT8);
    }
    return 0;
}
