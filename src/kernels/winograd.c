/* winograd.c - weights of 3x3 convolutions transformed once for Winograd's method. */
#include "kernels/winograd.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/onednn.h"
#include "kernels/pool.h"

enum { ALIGNMENT = 64 };

struct winograd_weights {
    int64_t in, out;
    bool    bf16;
    void   *w;
    float  *bias;           /* [whole panels], in the same block */
    size_t  bytes;
};

bool winograd_pays(const conv_shape *s, bool bf16)
{
    const kernels *k = kernels_get(), *lowest;

    if (s->kernel != 3 || s->stride != 1 || s->pad != 1 || s->groups != 1 || s->in % WINOGRAD_CHANNELS ||
        s->out % WINOGRAD_CHANNELS || kernels_levels(&lowest, 1) < 1)
        return false;
    return bf16 ? k->winograd_bf16 && !onednn_has_tiles() : k->winograd != lowest->winograd;
}

/* G g G^T of the 3 x 3 weights of one input and output. */
static void transform(float *u, const float *g)
{
    static const float G[4][3] = {{1, 0, 0}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0, 0, 1}};

    for (int k = 0; k < 16; k++) {
        u[k] = 0;
        for (int j = 0; j < 9; j++)
            u[k] += G[k / 4][j / 3] * G[k % 4][j % 3] * g[j];
    }
}

enum { AT_ONCE = 64 };          /* inputs transformed together */

/* Input i of output o: its 16 transformed values go to the 16 matrices, whose elements have `size` bytes. */
static void place(winograd_weights *w, const char *u, size_t size, int64_t o, int64_t i)
{
    int64_t whole = (w->out + WINOGRAD_PANEL - 1) / WINOGRAD_PANEL * WINOGRAD_PANEL, first = o / WINOGRAD_PANEL * w->in;
    int64_t at = o % WINOGRAD_PANEL, inside = w->bf16 ? (i / 2 * WINOGRAD_PANEL + at) * 2 + i % 2
                                                      : i * WINOGRAD_PANEL + at;

    for (int k = 0; k < 16; k++) {
        int64_t panel = (k * whole / WINOGRAD_PANEL * w->in + first) * WINOGRAD_PANEL;
        memcpy((char *)w->w + (size_t)(panel + inside) * size, u + (size_t)k * size, size);
    }
}

static void pack_output(winograd_weights *w, const kernels *kernel, const float *src, int64_t o)
{
    float u[AT_ONCE * 16];
    uint16_t narrow[AT_ONCE * 16];
    size_t size = w->bf16 ? sizeof *narrow : sizeof *u;

    for (int64_t first = 0; first < w->in; first += AT_ONCE) {
        int64_t n = w->in - first < AT_ONCE ? w->in - first : AT_ONCE;
        for (int64_t i = 0; i < n; i++)
            transform(u + i * 16, src + (o * w->in + first + i) * 9);
        if (w->bf16)
            kernel->to_bf16(narrow, u, n * 16);
        for (int64_t i = 0; i < n; i++)
            place(w, w->bf16 ? (const char *)(narrow + i * 16) : (const char *)(u + i * 16), size, o, first + i);
    }
}

winograd_weights *winograd_pack(const float *src, const float *bias, const conv_shape *s, bool bf16)
{
    int64_t whole = (s->out + WINOGRAD_PANEL - 1) / WINOGRAD_PANEL * WINOGRAD_PANEL;
    size_t matrices = (size_t)(16 * whole * s->in) * (bf16 ? 2 : 4), vector = (size_t)whole * sizeof(float);
    const kernels *kernel = kernels_get();
    winograd_weights *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    *w = (winograd_weights){.in = s->in, .out = s->out, .bf16 = bf16,
                            .bytes = (matrices + vector + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT};
    w->w = aligned_alloc(ALIGNMENT, w->bytes);
    if (!w->w) {
        free(w);
        return NULL;
    }
    w->bias = (float *)((char *)w->w + matrices);
    memset(w->bias, 0, vector);
    if (bias)
        memcpy(w->bias, bias, (size_t)s->out * sizeof *bias);
    if (whole != s->out)
        memset(w->w, 0, matrices);
#pragma omp parallel for schedule(static)
    for (int64_t o = 0; o < s->out; o++)
        pack_output(w, kernel, src, o);
    return w;
}

void winograd_free(winograd_weights *w)
{
    if (w)
        free(w->w);
    free(w);
}

size_t winograd_bytes(const winograd_weights *w)
{
    return w->bytes;
}

bool winograd_conv(const winograd_weights *w, float *y, const float *x, int64_t batch, int64_t height, int64_t width)
{
    const kernels *k = kernels_get();
    winograd_args a = {.y = y, .x = x, .w = w->w, .bias = w->bias, .batch = batch, .height = height, .width = width,
                       .in = w->in, .out = w->out};

    a.scratch = pool_borrow((size_t)omp_get_max_threads() * winograd_scratch(w->in));
    if (!a.scratch)
        return false;
    (w->bf16 ? k->winograd_bf16 : k->winograd)(&a);
    pool_return(a.scratch);
    return true;
}
