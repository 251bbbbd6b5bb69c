/* file.h - files mapped for reading, and files written whole or not at all. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdio.h>

#include "base/error.h"

typedef struct file_map {
    const uint8_t *data;   /* NULL when size is 0 */
    size_t         size;
    char          *path;   /* as given, owned */
} file_map;

/* Maps a regular file read-only (private). Errors name the path and the reason in plain words. */
int  file_map_open(file_map *out, const char *path, samite_error *err);
void file_map_close(file_map *m);
/* Tells the system that these bytes are not needed again soon (drops resident pages). */
void file_map_drop(const void *data, size_t size);

/* Reads a whole file or, for "-", standard input; at most `limit` bytes. *data is yours to free (NUL-terminated). */
int file_read(uint8_t **data, size_t *size, const char *path, size_t limit, samite_error *err);
/* The same, but `look` sees the beginning (64 KB, or all of it) first and may refuse the file: endless streams end. */
typedef int file_look_fn(const uint8_t *start, size_t size, const char *name, samite_error *err);
int file_read_if(uint8_t **data, size_t *size, const char *path, size_t limit, file_look_fn *look, samite_error *err);

/* A file that appears at `path` only on commit: written to a temporary beside it, fsync'ed, renamed. */
typedef struct file_writer {
    FILE *f;
    char *path, *temp;
    int   failed;          /* errno of the first failed write, or 0 */
} file_writer;

int  file_writer_open(file_writer *w, const char *path, samite_error *err);
void file_write(file_writer *w, const void *data, size_t size);       /* errors are remembered until commit */
void file_printf(file_writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
int  file_writer_commit(file_writer *w, samite_error *err);            /* closes in any case */
void file_writer_abort(file_writer *w);                                /* removes the temporary */

/* "cannot WHAT PATH: why, and what to do" for an errno; returns the code of the error. */
int file_cannot(samite_error *err, const char *what, const char *path, int error);

/* mkdir -p. */
int make_folders(const char *path, samite_error *err);

#endif
