/* parts.h - the parts that a deployment consists of, traced from the one model definition. */
#ifndef EXPORT_PARTS_H
#define EXPORT_PARTS_H

#include "export/graph.h"
#include "model/sam3.h"

/* The detector's three parts, those for clicks, and those that follow objects through a video. */
typedef enum export_part {
    EXPORT_IMAGE,
    EXPORT_TEXT,
    EXPORT_HEAD,
    EXPORT_DETECTOR,
    EXPORT_CLICK_IMAGE = EXPORT_DETECTOR,
    EXPORT_CLICK,
    EXPORT_TRACKER_NECK,
    EXPORT_MEMORY_ATTENTION,
    EXPORT_TRACKED_HEAD,
    EXPORT_MEMORY_ENCODER,
    EXPORT_POINTERS,
    EXPORT_MASK_PROMPT,
    EXPORT_PARTS
} export_part;

typedef struct part_options {
    int batch;             /* pictures, prompts; 1 */
    int prompt;            /* tokens of a prompt, padding included; 0 = as the model has them */
    int boxes;             /* example boxes that the head takes; 0: none. Inputs boxes [1, n, 4], box_labels [1, n] */
    int points;            /* points of a click prompt, corners of a box included; 0 = 4 */
    int maps, pointers;    /* places for remembered frames and pointers; 0 = as many as the tracker ever looks at */
    bool trunk;            /* the image encoder also gives the trunk's map, for the tracker's neck */
} part_options;

#define EXPORT_MAPS     10 /* four prompted frames and six before this one */
#define EXPORT_POINTERS_KEPT 20

const char *export_part_name(export_part p);       /* "image_encoder", ...: also the name of the file */

/* Names of inputs and outputs in their order; NULL at the end. The image encoder's last output is there only on demand. */
typedef struct part_io {
    const char *name;
    const char *in[16], *out[16];
} part_io;
const part_io *export_io(export_part p);

/* Makes the graph of a part, inputs and outputs named and ordered as the migration guides have them. Close it in any
 * case. */
int export_part_graph(graph *g, const sam3 *m, export_part p, const part_options *o, samite_error *err);

#endif
