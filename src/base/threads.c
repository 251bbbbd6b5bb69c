/* threads.c - how many cores this process may really use. */
#define _GNU_SOURCE
#include "base/threads.h"

#include <limits.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Lowest-numbered CPU of the core that `cpu` belongs to; `cpu` itself where the system does not say. */
static int first_sibling(int cpu)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    int first = cpu;
    if (f) {
        if (fscanf(f, "%d", &first) != 1)
            first = cpu;
        fclose(f);
    }
    return first >= 0 && first < CPU_SETSIZE ? first : cpu;
}

static int allowed_cores(void)
{
    cpu_set_t allowed, cores;
    CPU_ZERO(&allowed);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        return n > 0 && n < INT_MAX ? (int)n : 1;
    }
    CPU_ZERO(&cores);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            CPU_SET(first_sibling(cpu), &cores);
    return CPU_COUNT(&cores);
}

/* CPUs that the quota at `folder` allows, rounded up; 0 when there is none. cgroup v2: "max 100000" or
 * "150000 100000". */
static int quota_v2(const char *folder)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", folder) >= (int)sizeof path)
        return 0;
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    long long quota = 0, period = 0;
    int n = fscanf(f, "%lld %lld", &quota, &period);
    fclose(f);
    if (n != 2 || quota <= 0 || period <= 0)
        return 0;
    long long cpus = (quota + period - 1) / period;
    return cpus < INT_MAX ? (int)cpus : 0;
}

static int quota_v1(void)
{
    static const char *const names[2] = {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
                                         "/sys/fs/cgroup/cpu/cpu.cfs_period_us"};
    long long value[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(names[i], "r");
        if (!f)
            return 0;
        if (fscanf(f, "%lld", &value[i]) != 1)
            value[i] = 0;
        fclose(f);
    }
    if (value[0] <= 0 || value[1] <= 0)
        return 0;
    long long cpus = (value[0] + value[1] - 1) / value[1];
    return cpus < INT_MAX ? (int)cpus : 0;
}

/* The tightest quota from this process's cgroup up to the root; 0 when there is none. */
static int quota(void)
{
    char line[PATH_MAX], folder[PATH_MAX] = "";
    FILE *f = fopen("/proc/self/cgroup", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(folder, sizeof folder, "%s", line + 3);
        }
    if (f)
        fclose(f);
    int best = quota_v1();
    for (;;) {
        int here = quota_v2(folder);
        if (here > 0 && (best == 0 || here < best))
            best = here;
        char *slash = strrchr(folder, '/');
        if (!slash)
            return best;
        *slash = '\0';
    }
}

int threads_available(void)
{
    int cores = allowed_cores(), most = quota();
    if (most > 0 && most < cores)
        cores = most;
    return cores > 0 ? cores : 1;
}

int threads_set(int count)
{
    omp_set_dynamic(0);
    omp_set_num_threads(count > 0 ? count : threads_available());
    return threads_count();
}

int threads_count(void)
{
    return omp_get_max_threads();
}
