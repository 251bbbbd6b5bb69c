samite_test(kernels kernels)
target_sources(test_kernels PRIVATE kernels_bench.c)
set_tests_properties(kernels PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=PASSIVE")   # more threads than cores
