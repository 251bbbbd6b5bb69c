/* folder.c - several files that appear in a folder together or not at all. */
#include "base/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

int folder_writer_open(folder_writer *w, const char *path, samite_error *err)
{
    struct stat st;
    *w = (folder_writer){.made = stat(path, &st) != 0};
    int code = make_folders(path, err);
    if (code)
        return code;
    w->path = text_copy(path);
    w->temp = path_join(path, ".unfinished-XXXXXX");
    if (!w->path || !w->temp)
        code = fail(err, SAMITE_RESOURCE, "not enough memory to write to %s", path);
    else if (!mkdtemp(w->temp))
        code = file_cannot(err, "write to", path, errno);
    if (code) {
        free(w->path);
        free(w->temp);
        *w = (folder_writer){0};
    }
    return code;
}

static int move_file(const folder_writer *w, const char *name, samite_error *err)
{
    char *from = path_join(w->temp, name), *to = path_join(w->path, name);
    int code = 0;
    if (!from || !to)
        code = fail(err, SAMITE_RESOURCE, "not enough memory to write to %s", w->path);
    else if (rename(from, to))
        code = file_cannot(err, "write", to, errno);
    free(from);
    free(to);
    return code;
}

static void remove_file(const char *folder, const char *name)
{
    char *path = path_join(folder, name);
    if (path)
        unlink(path);
    free(path);
}

static int each_file(const folder_writer *w, bool move, samite_error *err)
{
    DIR *d = opendir(w->temp);
    int code = d ? 0 : file_cannot(err, "read", w->temp, errno);
    for (struct dirent *e; !code && (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        if (move)
            code = move_file(w, e->d_name, err);
        else
            remove_file(w->temp, e->d_name);
    }
    if (d)
        closedir(d);
    return code;
}

int folder_writer_commit(folder_writer *w, samite_error *err)
{
    int code = each_file(w, true, err);
    folder_writer_abort(w);
    return code;
}

void folder_writer_abort(folder_writer *w)
{
    if (!w->temp)
        return;
    each_file(w, false, NULL);
    rmdir(w->temp);
    if (w->made)
        rmdir(w->path);
    free(w->path);
    free(w->temp);
    *w = (folder_writer){0};
}
