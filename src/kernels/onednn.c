/* onednn.c - the oneDNN engine shared by matrix products and convolutions. */
#include "kernels/onednn.h"

#include <pthread.h>

#include "kernels/levels.h"
#include "kernels/pool.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static dnnl_engine_t engine;
static dnnl_stream_t stream;

static void make_engine(void)
{
    kernels_settle();
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

dnnl_engine_t onednn_engine(void)
{
    return engine;
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

bool onednn_wrap(dnnl_memory_t *m, const dnnl_memory_desc_t *desc, const void *data)
{
    *m = NULL;
    if (dnnl_memory_create(m, desc, engine, (void *)(uintptr_t)data) != dnnl_success)
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
         dnnl_memory_create(owner, to, engine, DNNL_MEMORY_ALLOCATE) == dnnl_success &&
         dnnl_reorder_primitive_desc_create(&pd, from, engine, to, engine, NULL) == dnnl_success &&
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
        ok = dnnl_post_ops_append_eltwise(ops, 1, kinds[act], 0, 0) == dnnl_success;
    if (ok && sum)
        ok = dnnl_post_ops_append_sum(ops, 1) == dnnl_success;
    if (ok && residual)
        ok = dnnl_post_ops_append_binary(ops, dnnl_binary_add, residual) == dnnl_success;
    ok = ok && dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success &&
         dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success;
    dnnl_post_ops_destroy(ops);
    if (!ok) {
        dnnl_primitive_attr_destroy(attr);
        attr = NULL;
    }
    return attr;
}

dnnl_memory_desc_t onednn_scratch(const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *d = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);

    return d ? *d : (dnnl_memory_desc_t){0};
}

bool onednn_execute(const_dnnl_primitive_t p, const dnnl_memory_desc_t *scratch, dnnl_exec_arg_t *args, int n)
{
    size_t bytes = dnnl_memory_desc_get_size(scratch);
    void *data = bytes ? pool_borrow(bytes) : NULL;
    dnnl_memory_t memory = NULL;
    bool ok = !bytes || (data && onednn_wrap(&memory, scratch, data));

    if (memory)
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, memory};
    ok = ok && dnnl_primitive_execute(p, stream, n, args) == dnnl_success && dnnl_stream_wait(stream) == dnnl_success;
    dnnl_memory_destroy(memory);
    pool_return(data);
    return ok;
}
