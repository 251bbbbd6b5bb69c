/* onednn.c - the oneDNN engine shared by matrix products and convolutions. */
#define _GNU_SOURCE
#include "kernels/onednn.h"

#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#include "kernels/levels.h"
#include "kernels/pool.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;
static dnnl_stream_t stream;
static pthread_key_t deaf_key;      /* per thread: how many of its OpenMP threads take no signals, see deafen_workers */
static bool deaf_key_made;

static void make_engine(void)
{
    kernels_settle();
    deaf_key_made = pthread_key_create(&deaf_key, NULL) == 0;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        engine = NULL;
    else if (dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success)
        stream = NULL;
}

bool onednn_ready(void)
{
    pthread_once(&once, make_engine);
    return engine && stream;
}

bool onednn_has_bf16(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();

    return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

bool onednn_has_tiles(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
}

/* ---- what differs between 2.x, where descriptions are structs, and 3.x, where they are objects ---- */

#if DNNL_VERSION_MAJOR >= 3

bool onednn_matrix(dnnl_memory_desc_t *d, int64_t rows, int64_t cols, dnnl_data_type_t type, int64_t row, int64_t col)
{
    dnnl_dims_t dims = {rows, cols}, strides = {row, col};

    *d = NULL;
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides) == dnnl_success;
}

bool onednn_tensor(dnnl_memory_desc_t *d, int axes, const int64_t *dim, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_dims_t dims = {0};

    *d = NULL;
    memcpy(dims, dim, (size_t)axes * sizeof *dim);
    return dnnl_memory_desc_create_with_tag(d, axes, dims, type, tag) == dnnl_success;
}

bool onednn_same(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b)
{
    return dnnl_memory_desc_equal(*a, *b);
}

size_t onednn_bytes(const dnnl_memory_desc_t *d)
{
    return *d ? dnnl_memory_desc_get_size(*d) : 0;
}

void onednn_forget(dnnl_memory_desc_t *d)
{
    if (*d)
        dnnl_memory_desc_destroy(*d);
    *d = NULL;
}

bool onednn_product(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *w,
                    const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *y, dnnl_primitive_attr_t attr)
{
    *pd = NULL;
    return dnnl_matmul_primitive_desc_create(pd, engine, *x, *w, bias ? *bias : NULL, *y, attr) == dnnl_success;
}

bool onednn_convolution(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *w,
                        const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *y, int64_t stride, int64_t pad,
                        dnnl_primitive_attr_t attr)
{
    dnnl_dims_t strides = {stride, stride}, pads = {pad, pad}, dense = {0, 0};

    *pd = NULL;
    return dnnl_convolution_forward_primitive_desc_create(pd, engine, dnnl_forward_inference, dnnl_convolution_direct, *x,
                                                          *w, bias ? *bias : NULL, *y, strides, dense, pads, pads,
                                                          attr) == dnnl_success;
}

static bool copy_description(dnnl_memory_desc_t *d, const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    const_dnnl_memory_desc_t found = dnnl_primitive_desc_query_md(pd, what, 0);

    *d = NULL;
    return !found || dnnl_memory_desc_clone(d, found) == dnnl_success;
}

static bool describe_reorder(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *to, const dnnl_memory_desc_t *from)
{
    return dnnl_reorder_primitive_desc_create(pd, *from, engine, *to, engine, NULL) == dnnl_success;
}

static bool new_memory(dnnl_memory_t *m, const dnnl_memory_desc_t *desc, void *data)
{
    return dnnl_memory_create(m, *desc, engine, data) == dnnl_success;
}

static bool append_activation(dnnl_post_ops_t ops, dnnl_alg_kind_t kind)
{
    return dnnl_post_ops_append_eltwise(ops, kind, 0, 0) == dnnl_success;
}

static bool append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1, 0, dnnl_data_type_undef) == dnnl_success;
}

static bool append_residual(dnnl_post_ops_t ops, const dnnl_memory_desc_t *residual)
{
    return dnnl_post_ops_append_binary(ops, dnnl_binary_add, *residual) == dnnl_success;
}

#else

bool onednn_matrix(dnnl_memory_desc_t *d, int64_t rows, int64_t cols, dnnl_data_type_t type, int64_t row, int64_t col)
{
    dnnl_dims_t dims = {rows, cols}, strides = {row, col};

    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides) == dnnl_success;
}

bool onednn_tensor(dnnl_memory_desc_t *d, int axes, const int64_t *dim, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(d, axes, dim, type, tag) == dnnl_success;
}

bool onednn_same(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b)
{
    return dnnl_memory_desc_equal(a, b);
}

size_t onednn_bytes(const dnnl_memory_desc_t *d)
{
    return dnnl_memory_desc_get_size(d);
}

void onednn_forget(dnnl_memory_desc_t *d)
{
    memset(d, 0, sizeof *d);
}

bool onednn_product(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *w,
                    const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *y, dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t op;

    *pd = NULL;
    return dnnl_matmul_desc_init(&op, x, w, bias, y) == dnnl_success &&
           dnnl_primitive_desc_create(pd, &op, attr, engine, NULL) == dnnl_success;
}

bool onednn_convolution(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *w,
                        const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *y, int64_t stride, int64_t pad,
                        dnnl_primitive_attr_t attr)
{
    dnnl_dims_t strides = {stride, stride}, pads = {pad, pad};
    dnnl_convolution_desc_t op;

    *pd = NULL;
    return dnnl_convolution_forward_desc_init(&op, dnnl_forward_inference, dnnl_convolution_direct, x, w, bias, y,
                                              strides, pads, pads) == dnnl_success &&
           dnnl_primitive_desc_create(pd, &op, attr, engine, NULL) == dnnl_success;
}

static bool copy_description(dnnl_memory_desc_t *d, const_dnnl_primitive_desc_t pd, dnnl_query_t what)
{
    const dnnl_memory_desc_t *found = dnnl_primitive_desc_query_md(pd, what, 0);

    *d = found ? *found : (dnnl_memory_desc_t){0};
    return true;
}

static bool describe_reorder(dnnl_primitive_desc_t *pd, const dnnl_memory_desc_t *to, const dnnl_memory_desc_t *from)
{
    return dnnl_reorder_primitive_desc_create(pd, from, engine, to, engine, NULL) == dnnl_success;
}

static bool new_memory(dnnl_memory_t *m, const dnnl_memory_desc_t *desc, void *data)
{
    return dnnl_memory_create(m, desc, engine, data) == dnnl_success;
}

static bool append_activation(dnnl_post_ops_t ops, dnnl_alg_kind_t kind)
{
    return dnnl_post_ops_append_eltwise(ops, 1, kind, 0, 0) == dnnl_success;
}

static bool append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1) == dnnl_success;
}

static bool append_residual(dnnl_post_ops_t ops, const dnnl_memory_desc_t *residual)
{
    return dnnl_post_ops_append_binary(ops, dnnl_binary_add, residual) == dnnl_success;
}

#endif

/* ---- the same for both ---- */

bool onednn_wanted(dnnl_memory_desc_t *weights, const_dnnl_primitive_desc_t pd)
{
    return copy_description(weights, pd, dnnl_query_weights_md);
}

bool onednn_scratch(dnnl_memory_desc_t *scratch, const_dnnl_primitive_desc_t pd)
{
    return copy_description(scratch, pd, dnnl_query_scratchpad_md);
}

/* Every signal but those that a fault of the thread itself raises. */
static void outside_signals(sigset_t *set)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};

    sigfillset(set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(set, faults[i]);
}

/* The threads that OpenMP starts for this one take no signals, from now on. Looks again when their number has grown. */
static void deafen_workers(const sigset_t *signals)
{
    intptr_t threads = omp_get_max_threads();

    pthread_once(&once, make_engine);
    if (!deaf_key_made || threads <= 1 || threads <= (intptr_t)pthread_getspecific(deaf_key) || omp_in_parallel())
        return;
#pragma omp parallel num_threads((int)threads)
    if (omp_get_thread_num())
        pthread_sigmask(SIG_BLOCK, signals, NULL);
    pthread_setspecific(deaf_key, (void *)threads);
}

/* Some of oneDNN's product kernels point the stack register into a block of the heap. A signal that comes then lays its
 * frame over whatever the heap keeps below that block. So no thread that may run such a kernel takes a signal meanwhile:
 * this one gets it afterwards, or another one of the program does now. */
static void hold_signals(sigset_t *before)
{
    sigset_t signals;

    outside_signals(&signals);
    deafen_workers(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, before);
}

static void release_signals(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

bool onednn_sgemm(char op_a, char op_b, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                  const float *b, int64_t ldb, float beta, float *c, int64_t ldc)
{
    sigset_t before;
    bool ok;

    hold_signals(&before);
    ok = dnnl_sgemm(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) == dnnl_success;
    release_signals(&before);
    return ok;
}

bool onednn_wrap(dnnl_memory_t *m, const dnnl_memory_desc_t *desc, const void *data)
{
    *m = NULL;
    if (!new_memory(m, desc, (void *)(uintptr_t)data))
        *m = NULL;
    return *m != NULL;
}

bool onednn_reorder(dnnl_memory_t *owner, const dnnl_memory_desc_t *to, const dnnl_memory_desc_t *from,
                    const void *data)
{
    dnnl_memory_t source = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_primitive_t reorder = NULL;
    bool ok;

    *owner = NULL;
    ok = onednn_wrap(&source, from, data) &&
         new_memory(owner, to, DNNL_MEMORY_ALLOCATE) && describe_reorder(&pd, to, from) &&
         dnnl_primitive_create(&reorder, pd) == dnnl_success;
    if (ok) {
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, *owner}};
        ok = dnnl_primitive_execute(reorder, stream, 2, args) == dnnl_success &&
             dnnl_stream_wait(stream) == dnnl_success;
    }
    dnnl_primitive_destroy(reorder);
    dnnl_primitive_desc_destroy(pd);
    dnnl_memory_destroy(source);
    if (!ok) {
        dnnl_memory_destroy(*owner);
        *owner = NULL;
    }
    return ok;
}

dnnl_primitive_attr_t onednn_epilogue(activation act, bool sum, const dnnl_memory_desc_t *residual)
{
    static const dnnl_alg_kind_t kinds[] = {
        [ACT_RELU] = dnnl_eltwise_relu, [ACT_GELU] = dnnl_eltwise_gelu_erf, [ACT_SIGMOID] = dnnl_eltwise_logistic};
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    bool ok = dnnl_primitive_attr_create(&attr) == dnnl_success && dnnl_post_ops_create(&ops) == dnnl_success;

    if (ok && act != ACT_NONE)
        ok = append_activation(ops, kinds[act]);
    if (ok && sum)
        ok = append_sum(ops);
    if (ok && residual)
        ok = append_residual(ops, residual);
    ok = ok && dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success &&
         dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success;
    dnnl_post_ops_destroy(ops);
    if (!ok) {
        dnnl_primitive_attr_destroy(attr);
        attr = NULL;
    }
    return attr;
}

bool onednn_execute(const_dnnl_primitive_t p, const dnnl_memory_desc_t *scratch, dnnl_exec_arg_t *args, int n)
{
    size_t bytes = onednn_bytes(scratch);
    void *data = bytes ? pool_borrow(bytes) : NULL;
    dnnl_memory_t memory = NULL;
    sigset_t before;
    bool ok = !bytes || (data && onednn_wrap(&memory, scratch, data));

    if (memory)
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, memory};
    hold_signals(&before);
    ok = ok && dnnl_primitive_execute(p, stream, n, args) == dnnl_success && dnnl_stream_wait(stream) == dnnl_success;
    release_signals(&before);
    dnnl_memory_destroy(memory);
    pool_return(data);
    return ok;
}
