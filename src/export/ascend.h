/* ascend.h - what converts exported ONNX files for Ascend NPUs: command lines, precision lists, pre-processing on the
 * chip. */
#ifndef EXPORT_ASCEND_H
#define EXPORT_ASCEND_H

#include "export/parts.h"

typedef struct ascend_options {
    const char *soc;           /* "Ascend310P3": as npu-smi info shows the chip, with "Ascend" in front */
    const char *precision;     /* "fast", "mixed", "exact" */
    bool        aipp;          /* 8-bit pictures in, normalised on the chip */
    const char *config;        /* JSON of the network's sizes */
    const char *source;        /* what it was exported from */
    int         side, prompt;
} ascend_options;

/* The values that exist, for messages; false: `precision` is none of them. */
bool ascend_precision(const char *precision);
/* Writes convert.sh, keep_dtype_PART.txt, aipp.cfg, parts.json and README.md into `folder`, which holds the ONNX files
 * of the parts that are in `parts` (bits by export_part). */
int  ascend_write(const char *folder, unsigned parts, const ascend_options *o, samite_error *err);

#endif
