/* pack_folder.c - where packed weights are kept, how much there is, and a way to be rid of it. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "runtime/pack_cache.h"

char *pack_cache_folder(void)
{
    const char *off = getenv("SAMITE_NO_CACHE"), *own = getenv("SAMITE_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    text path = {0};
    if (off && *off && strcmp(off, "0") != 0)
        return NULL;
    if (own && *own)
        return text_copy(own);
    if (xdg && *xdg == '/')
        text_printf(&path, "%s/samite", xdg);
    else if (home && *home == '/')
        text_printf(&path, "%s/.cache/samite", home);
    return path.failed ? NULL : path.data;
}

/* Sixteen hexadecimal digits: a folder of ours. */
static bool is_key(const char *name)
{
    return strlen(name) == 16 && strspn(name, "0123456789abcdef") == 16;
}

/* "03.pack", or the temporary beside it of a process that ended early. */
static bool is_pack(const char *name)
{
    return strspn(name, "0123456789") == 2 && (strcmp(name + 2, ".pack") == 0 || starts_with(name + 2, ".pack.tmp-"));
}

static int survey_key(const char *folder, bool remove, uint64_t *bytes, int *files, samite_error *err)
{
    DIR *d = opendir(folder);
    int code = SAMITE_OK;
    for (struct dirent *e; d && !code && (e = readdir(d));) {
        struct stat st;
        char *path = is_pack(e->d_name) ? path_join(folder, e->d_name) : NULL;
        if (path && lstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            *bytes += (uint64_t)st.st_size;
            ++*files;
            if (remove && unlink(path) != 0)
                code = fail(err, SAMITE_INPUT, "cannot remove %s: %s", path, strerror(errno));
        }
        free(path);
    }
    if (d)
        closedir(d);
    if (remove && !code)
        rmdir(folder);               /* stays where it holds something else */
    return code;
}

int pack_cache_survey(const char *folder, bool remove, uint64_t *bytes, int *files, samite_error *err)
{
    DIR *d = opendir(folder);
    int code = SAMITE_OK;
    *bytes = 0;
    *files = 0;
    for (struct dirent *e; d && !code && (e = readdir(d));) {
        char *path = is_key(e->d_name) ? path_join(folder, e->d_name) : NULL;
        if (path)
            code = survey_key(path, remove, bytes, files, err);
        free(path);
    }
    if (d)
        closedir(d);
    return code;
}
