/* file.c - mapping, reading and atomic writing of files. */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a failed system call means, and what to do about it where that is clear. */
static const char *reason(int code)
{
    switch (code) {
    case ENOENT: return "no such file or folder; check the path";
    case EACCES: case EPERM: return "permission denied; check owner and mode";
    case EISDIR: return "is a folder, a file is needed";
    case ENOTDIR: return "a part of the path is not a folder";
    case ENOSPC: case EDQUOT: return "the disk is full; free some space";
    case EFBIG: return "larger than the file system or the limit of this process allows (ulimit -f)";
    case EROFS: return "the file system is read-only";
    case ENOMEM: return "not enough memory or address space";
    case EMFILE: case ENFILE: return "too many open files";
    default: return strerror(code);
    }
}

static int code_for(int error)
{
    return error == ENOSPC || error == EFBIG || error == EDQUOT || error == ENOMEM || error == EMFILE || error == ENFILE || error == EIO
               ? SAMITE_RESOURCE : SAMITE_INPUT;
}

int file_cannot(samite_error *err, const char *what, const char *path, int error)
{
    return fail(err, code_for(error), "cannot %s %s: %s", what, path, reason(error));
}

/* Opens a regular file for reading and says its size. Returns the descriptor or a negative SAMITE_ code. */
static int open_regular(const char *path, size_t *size, samite_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);    /* a pipe must not block; it is refused below */
    if (fd < 0)
        return file_cannot(err, "open", path, errno);
    struct stat st;
    int error = fstat(fd, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;
    if (error) {
        close(fd);
        return file_cannot(err, "open", path, error);
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return fail(err, SAMITE_INPUT, "cannot open %s: not a regular file", path);
    }
    *size = (size_t)st.st_size;
    return fd;
}

int file_map_open(file_map *out, const char *path, samite_error *err)
{
    memset(out, 0, sizeof *out);
    int fd = open_regular(path, &out->size, err);
    if (fd < 0)
        return fd;
    out->path = strdup(path);
    void *data = NULL;
    int error = out->path ? 0 : ENOMEM;
    if (!error && out->size) {
        data = mmap(NULL, out->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            error = errno;
    }
    close(fd);
    if (error) {
        free(out->path);
        memset(out, 0, sizeof *out);
        return file_cannot(err, "map", path, error);
    }
    out->data = data;
    return SAMITE_OK;
}

void file_map_close(file_map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->size);
    free(m->path);
    memset(m, 0, sizeof *m);
}

void file_map_drop(const void *data, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)data + size) / page * page;
    if (data && from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

int file_read(uint8_t **data, size_t *size, const char *path, size_t limit, samite_error *err)
{
    return file_read_if(data, size, path, limit, NULL, err);
}

int file_read_if(uint8_t **data, size_t *size, const char *path, size_t limit, file_look_fn *look, samite_error *err)
{
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    *data = NULL;
    *size = 0;
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    if (!f)
        return file_cannot(err, "open", path, errno);
    size_t room = 0, used = 0;
    uint8_t *bytes = NULL;
    int code = SAMITE_OK;
    for (;;) {
        if (room - used < 2) {
            size_t more = room ? 2 * room : 1 << 16;
            uint8_t *grown = room > SIZE_MAX / 2 ? NULL : realloc(bytes, more);
            if (!grown) {
                code = fail(err, SAMITE_RESOURCE, "out of memory while reading %s after %zu bytes", name, used);
                break;
            }
            bytes = grown;
            room = more;
        }
        size_t n = fread(bytes + used, 1, room - used - 1, f);
        bool first = used == 0 && n > 0 && look;
        used += n;
        if (used > limit)
            code = fail(err, SAMITE_INPUT, "%s is larger than the %zu bytes that make sense here", name, limit);
        else if (n == 0 && ferror(f))
            code = file_cannot(err, "read", name, errno);
        else if (first)
            code = look(bytes, used, name, err);
        if (n == 0 || code)
            break;
    }
    if (f != stdin)
        fclose(f);
    if (code) {
        free(bytes);
        return code;
    }
    bytes[used] = '\0';
    *data = bytes;
    *size = used;
    return SAMITE_OK;
}

/* Devices and pipes are written in place; links are followed, so that the file they point to is replaced. */
int file_writer_open(file_writer *w, const char *path, samite_error *err)
{
    static atomic_uint serial;
    memset(w, 0, sizeof *w);
    struct stat st;
    bool exists = stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode))
        return file_cannot(err, "write", path, EISDIR);
    w->path = exists ? realpath(path, NULL) : strdup(path);
    int fd = -1, error = w->path ? 0 : errno;
    if (!error && exists && !S_ISREG(st.st_mode)) {
        fd = open(path, O_WRONLY | O_CLOEXEC);
        error = fd < 0 ? errno : 0;
    } else if (!error) {
        if (asprintf(&w->temp, "%s.tmp-%ld-%u", w->path, (long)getpid(), atomic_fetch_add(&serial, 1)) < 0)
            w->temp = NULL;
        mode_t mode = exists ? st.st_mode & 0777 : 0666;
        fd = w->temp ? open(w->temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode) : -1;
        error = fd < 0 ? (w->temp ? errno : ENOMEM) : 0;
    }
    if (!error && !(w->f = fdopen(fd, "wb")))
        error = errno;
    if (!error)
        return SAMITE_OK;
    if (fd >= 0) {
        close(fd);
        if (w->temp)
            unlink(w->temp);
    }
    free(w->path);
    free(w->temp);
    memset(w, 0, sizeof *w);
    return file_cannot(err, "write", path, error);
}

void file_write(file_writer *w, const void *data, size_t size)
{
    if (w->failed || size == 0)
        return;
    errno = 0;
    if (fwrite(data, 1, size, w->f) != size)
        w->failed = errno ? errno : EIO;
}

void file_printf(file_writer *w, const char *format, ...)
{
    if (w->failed)
        return;
    va_list args;
    va_start(args, format);
    errno = 0;
    if (vfprintf(w->f, format, args) < 0)
        w->failed = errno ? errno : EIO;
    va_end(args);
}

/* Makes the rename itself last: syncs the folder. Some file systems cannot; that is no failure. */
static void sync_folder(const char *path)
{
    char *folder = strdup(path);
    if (!folder)
        return;
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!fsync(fd);
        close(fd);
    }
    free(folder);
}

int file_writer_commit(file_writer *w, samite_error *err)
{
    if (!w->failed && fflush(w->f) != 0)
        w->failed = errno;
    if (!w->failed && w->temp && fsync(fileno(w->f)) != 0)
        w->failed = errno;
    if (fclose(w->f) != 0 && !w->failed)
        w->failed = errno;
    w->f = NULL;
    if (!w->failed && w->temp && rename(w->temp, w->path) != 0)
        w->failed = errno;
    int code = SAMITE_OK;
    if (w->failed)
        code = file_cannot(err, "write", w->path, w->failed);
    else if (w->temp) {
        sync_folder(w->path);
        free(w->temp);
        w->temp = NULL;            /* nothing left to remove */
    }
    file_writer_abort(w);
    return code;
}

void file_writer_abort(file_writer *w)
{
    if (w->f)
        fclose(w->f);
    if (w->temp)
        unlink(w->temp);
    free(w->temp);
    free(w->path);
    memset(w, 0, sizeof *w);
}

int make_folders(const char *path, samite_error *err)
{
    char *copy = strdup(path);
    if (!copy)
        return file_cannot(err, "create", path, ENOMEM);
    int error = 0;
    for (char *c = copy + (copy[0] == '/');; c++) {
        if (*c != '/' && *c != '\0')
            continue;
        char kept = *c;
        *c = '\0';
        struct stat st;
        if (*copy && mkdir(copy, 0777) != 0)
            error = errno != EEXIST ? errno : stat(copy, &st) != 0 ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
        *c = kept;
        if (error || kept == '\0')
            break;
    }
    free(copy);
    return error ? file_cannot(err, "create", path, error) : SAMITE_OK;
}
