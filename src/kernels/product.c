/* product.c - plain matrix products, and the rate this machine reaches with them. */
#include <omp.h>
#include <stdlib.h>

#include "kernels/onednn.h"

enum { ROWS = 192, COLUMNS = 512, LEAST_ROWS = 48, LEAST_COLUMNS = 64, WANTED_BLOCKS = 8 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t half(int64_t n, int64_t multiple)
{
    return ((n + 1) / 2 + multiple - 1) / multiple * multiple;
}

/* Halves the larger side until there is work for several threads, but not below what pays for starting one. */
void onednn_blocks(int64_t *rows, int64_t *columns, int64_t m, int64_t n, int64_t k)
{
    const int64_t least_work = 1 << 20;

    *rows = least(m, ROWS);
    *columns = least(n, COLUMNS);
    while (((m + *rows - 1) / *rows) * ((n + *columns - 1) / *columns) < WANTED_BLOCKS &&
           *rows * *columns * k > least_work) {
        if (*columns >= *rows && *columns >= 2 * LEAST_COLUMNS)
            *columns = half(*columns, 16);
        else if (*rows >= 2 * LEAST_ROWS)
            *rows = half(*rows, 8);
        else
            break;
    }
}

/* Blocks depend on the shape alone and each is computed by one thread: the bits do not depend on their number. */
bool gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
          const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    int64_t rows, columns, across;
    bool ok = true;

    if (m < 1 || n < 1)
        return true;
    if (k < 1) {
        for (int64_t i = 0; i < m * n; i++)
            c[i / n * ldc + i % n] = beta == 0 ? 0 : beta * c[i / n * ldc + i % n];
        return true;
    }
    onednn_blocks(&rows, &columns, m, n, k);
    across = (n + columns - 1) / columns;
    onednn_ready();
#pragma omp parallel for schedule(dynamic, 1) reduction(&& : ok)
    for (int64_t i = 0; i < (m + rows - 1) / rows * across; i++) {
        int64_t r = i / across * rows, s = i % across * columns;
        ok = onednn_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', least(rows, m - r), least(columns, n - s),
                          k, alpha, a + (transpose_a ? r : r * lda), lda, b + (transpose_b ? s * ldb : s), ldb, beta,
                          c + r * ldc + s, ldc) &&
             ok;
    }
    return ok;
}

static bool narrow_matrix(dnnl_memory_desc_t *d, bool transpose, int64_t rows, int64_t cols, int64_t ld)
{
    return onednn_matrix(d, rows, cols, dnnl_bf16, transpose ? 1 : ld, transpose ? ld : 1);
}

/* oneDNN keeps what it made for a shape; its blocked product never splits a sum. */
bool gemm_bf16(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const uint16_t *a, int64_t lda,
               const uint16_t *b, int64_t ldb, bool add, float *c, int64_t ldc)
{
    dnnl_memory_desc_t all[4] = {0}, *x = &all[0], *w = &all[1], *y = &all[2], *scratch = &all[3];
    dnnl_exec_arg_t args[4] = {{DNNL_ARG_SRC, NULL}, {DNNL_ARG_WEIGHTS, NULL}, {DNNL_ARG_DST, NULL}};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t run = NULL;

    if (m < 1 || n < 1)
        return true;
    bool ok = k > 0 && onednn_ready() && narrow_matrix(x, transpose_a, m, k, lda) &&
              narrow_matrix(w, transpose_b, k, n, ldb) && onednn_matrix(y, m, n, dnnl_f32, ldc, 1) &&
              (attr = onednn_epilogue(ACT_NONE, add, NULL)) != NULL && onednn_product(&pd, x, w, NULL, y, attr) &&
              onednn_scratch(scratch, pd);
    if (ok && dnnl_primitive_create(&run, pd) != dnnl_success) {
        run = NULL;
        ok = false;
    }
    ok = ok && onednn_wrap(&args[0].memory, x, a) && onednn_wrap(&args[1].memory, w, b) &&
         onednn_wrap(&args[2].memory, y, c) && onednn_execute(run, scratch, args, 3);
    for (int i = 0; i < 3; i++)
        dnnl_memory_destroy(args[i].memory);
    dnnl_primitive_destroy(run);
    dnnl_primitive_desc_destroy(pd);
    dnnl_primitive_attr_destroy(attr);
    for (int i = 0; i < 4; i++)
        onednn_forget(&all[i]);
    return ok;
}

double gemm_rate(gemm_type type)
{
    enum { M = 4096, N = 4096, K = 1024, RUNS = 4 };
    float *x = malloc((size_t)M * K * sizeof *x), *y = malloc((size_t)M * N * sizeof *y);
    double best = 0;
    gemm_weights *w = NULL;
    void *scratch = NULL;

    for (int64_t i = 0; x && i < (int64_t)M * K; i++)
        x[i] = (float)(i * 7919 % 1013) / 1013 - 0.5f;
    if (x && y)
        w = gemm_pack(x, NULL, N, K, K, type);
    if (w)
        scratch = malloc(gemm_scratch(w, M) + 1);
    for (int i = 0; scratch && i < RUNS; i++) {
        double start = omp_get_wtime(), rate;
        if (!gemm_run(w, y, N, x, K, M, ACT_NONE, NULL, scratch))
            break;
        rate = 2e-9 * M * N * K / (omp_get_wtime() - start);
        best = rate > best ? rate : best;
    }
    gemm_weights_free(w);
    free(scratch);
    free(x);
    free(y);
    return best;
}
