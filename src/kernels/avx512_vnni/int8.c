/* int8.c - products of 8-bit rows with 8-bit weights, four at a time. */
#include "kernels/levels.h"
#include "kernels/x86/int8_tile.h"

static void product_int8(const int8_product *p)
{
    int8_blocks(p);
}

void kernels_fill_avx512_vnni(kernels *k)
{
    k->product_int8 = product_int8;
    k->int8_limit = 127;
}
