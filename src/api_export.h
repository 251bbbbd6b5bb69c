/* api_export.h - what the files of export share. */
#ifndef API_EXPORT_H
#define API_EXPORT_H

#include "api.h"
#include "export/parts.h"

bool  export_wanted(const samite_export_options *o, int part);
/* Does the image encoder give the trunk's map, too? */
bool  export_trunk(const samite_export_options *o);
/* A comparison of exported parts with a model. */
typedef struct check_request {
    const samite_export_options *o;
    engine      *theirs;
    double       most, least;      /* difference, as a share of the largest value or of 1; cosine */
    const float *picture;          /* [S, S, 3] normalised, or NULL = a made-up one */
    const char  *said;             /* NULL = a made-up prompt */
    const samite_model *folder;    /* opened from the parts, or NULL: they are files of ONNX in o->folder */
    int          compared, outside;
} check_request;
/* Runs every part that o->parts names in both, and hands each output's row to o->each. */
int   export_compare(samite_model *m, check_request *q, samite_error *err);

/* FOLDER/PART.onnx; yours to free. NULL: out of memory. */
char *export_path(const char *folder, export_part p);

#endif
