/* cgroup.h - limits that a container or service manager sets for this process. */
#ifndef BASE_CGROUP_H
#define BASE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>

/* The process's folder below /sys/fs/cgroup (cgroup v2), "" at the root or without. */
void cgroup_folder(char *out, size_t size);
/* Up to two numbers of the file NAME in `folder`; how many there were ("max" is none). */
int  cgroup_numbers(const char *folder, const char *name, long long value[2]);
/* The number behind `key` in the file NAME of `folder`; 0 when it is not there. */
long long cgroup_number_of(const char *folder, const char *name, const char *key);

#endif
