/* cgroup.c - limits that a container or service manager sets for this process. */
#include "base/cgroup.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

void cgroup_folder(char *out, size_t size)
{
    char line[PATH_MAX];
    FILE *f = fopen("/proc/self/cgroup", "r");
    out[0] = '\0';
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(out, size, "%s", line + 3);
        }
    if (f)
        fclose(f);
}

static FILE *open_in(const char *folder, const char *name)
{
    char path[PATH_MAX];
    bool fits = snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", folder, name) < (int)sizeof path;
    return fits ? fopen(path, "r") : NULL;
}

int cgroup_numbers(const char *folder, const char *name, long long value[2])
{
    FILE *f = open_in(folder, name);
    if (!f)
        return 0;
    int n = fscanf(f, "%lld %lld", &value[0], &value[1]);
    fclose(f);
    return n > 0 ? n : 0;
}

long long cgroup_number_of(const char *folder, const char *name, const char *key)
{
    char word[64];
    long long value, found = 0;
    FILE *f = open_in(folder, name);
    while (f && fscanf(f, "%63s %lld", word, &value) == 2)
        if (strcmp(word, key) == 0)
            found = value;
    if (f)
        fclose(f);
    return found;
}
