samite_test(kernels kernels)
target_sources(test_kernels PRIVATE kernels_bench.c)
set_tests_properties(kernels PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=PASSIVE")   # more threads than cores
samite_test(gemm kernels)
foreach(level avx2 ref)
  add_test(NAME gemm_${level} COMMAND test_gemm ${level})
endforeach()
set_tests_properties(gemm gemm_avx2 gemm_ref PROPERTIES ENVIRONMENT "OMP_WAIT_POLICY=PASSIVE")
