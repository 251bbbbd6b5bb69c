/* library.c - names the library behind gemm.h. */
#include <dnnl.h>
#include <stdio.h>

#include "kernels/gemm.h"

const char *gemm_library(void)
{
    static char name[48];
    const dnnl_version_t *v = dnnl_version();
    snprintf(name, sizeof name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return name;
}
