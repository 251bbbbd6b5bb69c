/* api_annotations.h - data sets of annotations in folders and files, for samite_convert_annotations. */
#ifndef API_ANNOTATIONS_H
#define API_ANNOTATIONS_H

#include "io/annotations.h"

/* Paths of a folder's files with one of the endings ("|.jpg|.png|", lower case), in natural order, not below it. */
typedef struct file_list {
    char **item;
    size_t count, room;
} file_list;
int  file_list_read(file_list *out, const char *folder, const char *endings, samite_error *err);
void file_list_free(file_list *l);

/* Everything in `path` in the format; *set is to be freed also on failure. */
int set_read(annotations *set, const samite_convert_options *o, samite_error *err);
int set_write(annotations *set, const samite_convert_options *o, samite_error *err);
/* Calls the progress function. */
int set_progress(const samite_convert_options *o, const char *stage, size_t done, size_t total, samite_error *err);

#endif
