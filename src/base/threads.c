/* threads.c - how many cores this process may really use. */
#define _GNU_SOURCE
#include "base/threads.h"

#include <limits.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"

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

static int quota_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    long long cpus = quota / period + (quota % period != 0);
    return cpus < INT_MAX ? (int)cpus : 0;
}

/* CPUs that the quota at `folder` allows, rounded up; 0 when there is none. cgroup v2: "max 100000" or
 * "150000 100000". */
static int quota_v2(const char *folder)
{
    long long value[2];
    return cgroup_numbers(folder, "cpu.max", value) == 2 ? quota_of(value[0], value[1]) : 0;
}

static int quota_v1(void)
{
    long long quota[2], period[2];
    return cgroup_numbers("/cpu", "cpu.cfs_quota_us", quota) && cgroup_numbers("/cpu", "cpu.cfs_period_us", period)
               ? quota_of(quota[0], period[0])
               : 0;
}

/* The tightest quota from this process's cgroup up to the root; 0 when there is none. */
static int quota(void)
{
    char folder[PATH_MAX];
    int best = quota_v1();
    cgroup_folder(folder, sizeof folder);
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
