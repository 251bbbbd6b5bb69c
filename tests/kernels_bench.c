/* kernels_bench.c - `test_kernels --bench`: milliseconds, GFLOP/s and GB/s of the slots on the shapes of the network. */
#include <omp.h>
#include <time.h>

#include "kernels/gemm.h"
#include "numbers.h"

static double rate;     /* GFLOP/s of a large product: the roofline */

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
} attention_bench;

static const attention_bench attention_shapes[] = {
    {"trunk windows", 9, 16, 64, 576, 576, true, false, false},
    {"trunk global", 1, 16, 64, 5184, 5184, true, false, false},
    {"fusion self", 1, 8, 32, 5184, 5184, false, false, false},
    {"fusion text", 1, 8, 32, 5184, 33, false, false, false},
    {"fusion text", 1, 8, 32, 5184, 7, false, false, false},
    {"decoder image", 1, 8, 32, 201, 5184, false, false, true},
    {"decoder self", 1, 8, 32, 201, 201, false, false, false},
    {"text causal", 1, 16, 64, 32, 32, false, true, false},
    {"memory", 1, 1, 256, 5184, 20736, true, false, false},
};

static void bench_attention(const kernels *k, const attention_bench *s)
{
    int64_t cols = s->heads * s->dim, best_runs = s->nq * s->nk > 4000000 ? 2 : 8;
    float *q = random_floats(s->batch * s->nq * cols, 0, 1), *kv = random_floats(2 * s->batch * s->nk * cols, 0, 2),
          *y = random_floats(s->batch * s->nq * cols, 0, 3), *rope = random_floats(s->nq * s->dim, 0, 4),
          *bias = random_floats(s->batch * s->nq * 72 * s->heads, 0, 5);
    attention_args a = {.y = y, .q = q, .k = kv, .v = kv + s->batch * s->nk * cols, .batch = s->batch, .heads = s->heads,
                        .dim = s->dim, .nq = s->nq, .nk = s->nk, .q_stride = cols, .k_stride = cols, .v_stride = cols,
                        .y_stride = cols, .q_batch = s->nq * cols, .k_batch = s->nk * cols, .v_batch = s->nk * cols,
                        .y_batch = s->nq * cols, .scale = 1 / sqrtf((float)s->dim), .causal = s->causal,
                        .rope = s->rope ? rope : NULL, .rope_rows = s->nq, .rope_keys = s->nk,
                        .bias_x = s->bias ? bias : NULL, .bias_y = s->bias ? bias : NULL, .grid_w = 72, .grid_h = 72};
    double best = 1e30, flops = 4e-9 * (double)(s->batch * s->nq * s->nk * cols) * (s->causal ? 0.5 : 1);

    a.scratch = aligned_alloc(64, (attention_scratch(&a) + 63) / 64 * 64);
    for (int i = 0; i < best_runs; i++) {
        double start = now();
        k->attention(&a);
        best = fmin(best, now() - start);
    }
    printf("  attention %-14s %3ld x %2ld heads x %3ld, %5ld x %5ld  %9.3f ms %7.1f GFLOP/s %5.1f %%\n", s->name, (long)s->batch,
           (long)s->heads, (long)s->dim, (long)s->nq, (long)s->nk, best * 1e3, flops / best, 100 * flops / best / rate);
    free(a.scratch);
    drop(q, 0), drop(kv, 0), drop(y, 0), drop(rope, 0), drop(bias, 0);
}

int kernels_bench(void)
{
    const kernels *levels[8];
    int n = kernels_levels(levels, 8);

    rate = gemm_rate(GEMM_F32);
    printf("%s\n%d threads, product %.1f GFLOP/s in f32, %.1f in bf16\n", kernels_cpu_features(), omp_get_max_threads(), rate,
           gemm_rate(GEMM_BF16));
    for (int l = 1; l < n; l++) {
        printf("%s\n", levels[l]->level);
        for (size_t i = 0; i < sizeof attention_shapes / sizeof *attention_shapes; i++)
            bench_attention(levels[l], &attention_shapes[i]);
    }
    return 0;
}
