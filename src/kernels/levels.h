/* levels.h - inside src/kernels: the functions by which each level puts its slots into the table. */
#ifndef KERNELS_LEVELS_H
#define KERNELS_LEVELS_H

#include "kernels/kernels.h"

/* Each overwrites the slots it has and sets `level`; called in ascending order. */
void kernels_fill_ref(kernels *k);
void kernels_fill_avx2(kernels *k);
void kernels_fill_avx512(kernels *k);
/* On top of avx512 where the CPU has these instructions; not levels of their own. */
void kernels_fill_avx512_bf16(kernels *k);
void kernels_fill_avx512_vnni(kernels *k);

/* What kernels_fill_avx512_bf16 puts in from another file. */
void avx512_bf16_winograd(const winograd_args *a);

/* Makes the choice of kernels_cap() binding for oneDNN; called before oneDNN's first use. */
void kernels_settle(void);

#endif
