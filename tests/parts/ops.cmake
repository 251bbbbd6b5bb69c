samite_test(ops base kernels formats ops)
samite_test(ops_fused base kernels ops)
samite_test(run base kernels ops)
samite_test(tape base kernels ops)
