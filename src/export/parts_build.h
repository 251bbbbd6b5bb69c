/* parts_build.h - what the files share that put parts together. */
#ifndef EXPORT_PARTS_BUILD_H
#define EXPORT_PARTS_BUILD_H

#include "export/lower.h"
#include "export/parts.h"

/* What is at hand while a part is put together. */
typedef struct building {
    graph      *g;
    run        *r;
    const sam3 *m;
    const part_options *o;
    lowering    l;
} building;

/* A picture-like input [n, C, side, side], which the trace sees with its channels last. */
tensor *build_map_input(building *b, const char *name, int64_t n, int64_t channels, int64_t side);
/* Lowers what was traced; false: an error, which is in the graph. */
bool build_lower(building *b);

/* Lowers, and gives out a coarse level [1, t, t, d] under that name and the fine levels of a picture for clicks. */
void build_click_levels(building *b, tensor *coarse, const click_image *c, const char *name);

void build_click_image(building *b);
void build_click(building *b);
void build_tracked(building *b);
void build_tracker_neck(building *b);
void build_memory_attention(building *b);
void build_memory_encoder(building *b);
void build_pointers(building *b);
void build_mask_prompt(building *b);

#endif
