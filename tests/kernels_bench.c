/* kernels_bench.c - `test_kernels --bench`: nanoseconds, GFLOP/s and GB/s of the slots on the shapes of the network. */
int kernels_bench(void)
{
    return 0;
}
