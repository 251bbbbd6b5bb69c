/* api_export.h - what the files of export share. */
#ifndef API_EXPORT_H
#define API_EXPORT_H

#include "api.h"
#include "export/parts.h"

bool  export_wanted(const samite_export_options *o, int part);
/* Does the image encoder give the trunk's map, too? */
bool  export_trunk(const samite_export_options *o);
/* FOLDER/PART.onnx; yours to free. NULL: out of memory. */
char *export_path(const char *folder, export_part p);

#endif
