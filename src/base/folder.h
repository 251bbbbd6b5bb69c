/* folder.h - several files that appear in a folder together or not at all. */
#ifndef BASE_FOLDER_H
#define BASE_FOLDER_H

#include <stdbool.h>

#include "base/error.h"

typedef struct folder_writer {
    char *path, *temp;             /* owned; temp is a folder inside path */
    bool  made;                    /* path was not there before */
} folder_writer;

/* Makes `path` (mkdir -p) and an empty folder inside it, whose name starts with a dot. */
int  folder_writer_open(folder_writer *w, const char *path, samite_error *err);
/* Moves every file from temp to path, over what has the same name, and removes temp. When that fails, the rest is removed. */
int  folder_writer_commit(folder_writer *w, samite_error *err);
/* Removes temp with all files in it, and path if it was made for this. */
void folder_writer_abort(folder_writer *w);

#endif
