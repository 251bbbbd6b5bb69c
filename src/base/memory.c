/* memory.c - how much memory this process could still get. */
#include "base/memory.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cgroup.h"

static uint64_t of_system(void)
{
    unsigned long long kilobytes = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "MemAvailable: %llu kB", &kilobytes) != 1)
        kilobytes = 0;
    if (f)
        fclose(f);
    return (uint64_t)kilobytes * 1024;
}

static uint64_t left_of(long long most, long long used)
{
    return most > used ? (uint64_t)(most - used) : 1;      /* 0 would mean that nothing is known */
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* What the group of `folder` may still take; its file caches count as free. 0: no limit. */
static uint64_t of_group(const char *folder, const char *limit, const char *usage, const char *caches)
{
    long long most[2], used[2];
    if (!cgroup_numbers(folder, limit, most) || most[0] >= LLONG_MAX / 4 || !cgroup_numbers(folder, usage, used))
        return 0;
    return left_of(most[0], used[0] - cgroup_number_of(folder, "memory.stat", caches));
}

static uint64_t of_groups(void)
{
    char folder[PATH_MAX];
    uint64_t best = of_group("/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
    cgroup_folder(folder, sizeof folder);
    for (;;) {
        best = lesser(best, of_group(folder, "memory.max", "memory.current", "inactive_file"));
        char *slash = strrchr(folder, '/');
        if (!slash)
            return best;
        *slash = '\0';
    }
}

uint64_t memory_available(void)
{
    return lesser(of_system(), of_groups());
}
