/* demo_model.c - the small model that comes with samite: where it lies, and what it is good for. */
#define _GNU_SOURCE
#include "demo_model.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "share/samite/demo.safetensors"

/* Folder of the running program, links followed; false when it is not known. */
static bool program_folder(char *out, size_t room)
{
    ssize_t n = readlink("/proc/self/exe", out, room - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

const char *demo_model_path(void)
{
    static char path[2 * PATH_MAX];
    static const char *const below[] = {"/../", "/"};        /* of an installation; of a build folder */
    char folder[PATH_MAX];
    for (int i = 0; i < 2 && program_folder(folder, sizeof folder); i++) {
        snprintf(path, sizeof path, "%s%s" FILE_NAME, folder, below[i]);
        if (access(path, R_OK) == 0)
            return path;
    }
    snprintf(path, sizeof path, "%s/" FILE_NAME, SAMITE_PREFIX);
    return access(path, R_OK) == 0 ? path : NULL;
}
