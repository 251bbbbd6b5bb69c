/* simd_stub.c - levels without kernels of their own yet. */
#include "kernels/levels.h"
void kernels_fill_avx2(kernels *k) { k->level = "avx2"; }
void kernels_fill_avx512(kernels *k) { k->level = "avx512"; }
