/* cpu.c - finds out what this CPU can do and fills the table of kernels, lowest level first. */
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <string.h>

#include <dnnl.h>

#include "kernels/kernels.h"
#include "kernels/levels.h"

enum { LEVELS = 3 };

static const char *const level_names[LEVELS] = {"ref", "avx2", "avx512"};
/* The last stands for any level, and is never set: 2.x and 3.x of oneDNN name it differently. */
static const dnnl_cpu_isa_t level_isa[LEVELS] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2, (dnnl_cpu_isa_t)0};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int cap = LEVELS - 1;    /* highest level allowed */
static int built;               /* levels in `tables` */
static bool settled;            /* the choice was used, the cap is closed */
static kernels tables[LEVELS];

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports knows the name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C;
}
#endif

static bool level_runs(int level)
{
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();

    if (level == 1)
        return avx2;
    if (level == 2)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    return level == 0;
}

/* With the lock held. Every level starts from the one below it. */
static void build_tables(void)
{
    static void (*const fill[LEVELS])(kernels *) = {
        kernels_fill_ref,
#if defined(__x86_64__)
        kernels_fill_avx2, kernels_fill_avx512,
#endif
    };

    for (int i = built; i < LEVELS && level_runs(i); i++) {
        if (i > 0)
            tables[i] = tables[i - 1];
        fill[i](&tables[i]);
#if defined(__x86_64__)
        if (i == 2 && __builtin_cpu_supports("avx512bf16"))
            kernels_fill_avx512_bf16(&tables[i]);
        if (i == 2 && __builtin_cpu_supports("avx512vnni"))
            kernels_fill_avx512_vnni(&tables[i]);
#endif
        built = i + 1;
    }
}

const kernels *kernels_get(void)
{
    kernels_settle();
    return &tables[cap < built ? cap : built - 1];
}

void kernels_settle(void)
{
    pthread_mutex_lock(&lock);
    if (!settled) {
        build_tables();
        if (cap < LEVELS - 1)
            dnnl_set_max_cpu_isa(level_isa[cap]);
        settled = true;
    }
    pthread_mutex_unlock(&lock);
}

bool kernels_cap(const char *level)
{
    int wanted = level ? -1 : LEVELS - 1;
    bool ok;

    for (int i = 0; level && i < LEVELS; i++)
        if (!strcmp(level, level_names[i]))
            wanted = i;
    pthread_mutex_lock(&lock);
    ok = wanted >= 0 && (!settled || wanted == cap);
    if (ok)
        cap = wanted;
    pthread_mutex_unlock(&lock);
    return ok;
}

int kernels_levels(const kernels **list, int max)
{
    int n;

    pthread_mutex_lock(&lock);
    build_tables();
    n = built;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < n && i < max; i++)
        list[i] = &tables[i];
    return n < max ? n : max;
}

#if defined(__x86_64__)
#define FEATURE(list, size, cpu, name) \
    do { \
        if (__builtin_cpu_supports(cpu)) \
            append(list, size, name); \
    } while (0)

static void append(char *list, size_t size, const char *name)
{
    size_t used = strlen(list);

    if (used + strlen(name) + 2 > size)
        return;
    if (used)
        list[used++] = ' ';
    strcpy(list + used, name);
}
#endif

const char *kernels_cpu_features(void)
{
    static char line[256];

    pthread_mutex_lock(&lock);
#if defined(__x86_64__)
    if (!line[0]) {
        FEATURE(line, sizeof line, "sse4.1", "SSE4.1");
        FEATURE(line, sizeof line, "avx", "AVX");
        FEATURE(line, sizeof line, "avx2", "AVX2");
        FEATURE(line, sizeof line, "fma", "FMA");
        if (has_f16c())
            append(line, sizeof line, "F16C");
        FEATURE(line, sizeof line, "avx512f", "AVX512F");
        FEATURE(line, sizeof line, "avx512bw", "AVX512BW");
        FEATURE(line, sizeof line, "avx512vl", "AVX512VL");
        FEATURE(line, sizeof line, "avx512dq", "AVX512DQ");
        FEATURE(line, sizeof line, "avx512bf16", "AVX512_BF16");
        FEATURE(line, sizeof line, "avx512vnni", "AVX512_VNNI");
    }
#endif
    pthread_mutex_unlock(&lock);
    return line;
}
