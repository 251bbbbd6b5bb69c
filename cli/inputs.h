/* inputs.h - the pictures a command was given: files, folders, standard input; and the names their results get. */
#ifndef CLI_INPUTS_H
#define CLI_INPUTS_H

#include "options.h"

typedef struct input {
    char *path;      /* to open; "-" is standard input */
    char *name;      /* base of the names of result files: unlike that of any other input of the list */
    bool  failed, finished;
} input;

typedef struct inputs {
    input *item;
    int    count, room;
    bool   single;   /* one file was named, no folder: results are about one picture */
} inputs;

/* Files in the order given, folders in natural order of their names, pictures only; below folders too if `recursive`.
 * The same path twice counts once. In folders, `skip` (NULL: none) and what lies in it is left out. A file that is not
 * there stays in the list: opening it will say so. Nothing at all is an error. */
int  inputs_collect(inputs *in, const words *paths, bool recursive, const char *skip, samite_error *err);
/* Leaves items shard, shard + shards, ... (shard from 1). Names stay those of the whole list. */
void inputs_take_shard(inputs *in, int shard, int shards);
void inputs_free(inputs *in);

#endif
