/* align_engine.c - exported parts in another engine beside our own network: every output of every part, and scores. */
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "api_export.h"
#include "io/preprocess.h"

/* In f16, as NPUs compute, single values are coarse; elsewhere parts compute in f32. */
#define HALF_RELATIVE 0.05
#define HALF_COSINE   0.999
#define FULL_RELATIVE 1e-3
#define FULL_COSINE   0.9999

static void note_row(void *user, const samite_compared *row)
{
    align_row(user, row);
}

/* The picture as the network sees it, yours to free. */
static int read_picture(float **out, const char *path, int side, samite_error *err)
{
    pixels p;
    image_options o = IMAGE_OPTIONS_INIT;
    int code = image_read(&p, path, &o, err);
    if (code)
        return code;
    *out = malloc(sizeof **out * 3 * (size_t)side * (size_t)side);
    code = *out ? preprocess(*out, &p, side, err) : fail(err, SAMITE_RESOURCE, "not enough memory for %s", path);
    pixels_free(&p);
    return code;
}

static int check_sizes(const samite_model *m, const samite_model *parts, samite_error *err)
{
    const config *a = &m->n->net->c, *b = &parts->n->net->c;
    if (a->image != b->image)
        return fail(err, SAMITE_USAGE, "the parts see %d x %d pixels, the model %d x %d: open it with --size %d", b->image,
                    b->image, a->image, a->image, b->image);
    if (a->d != b->d || a->queries != b->queries || a->vit_dim != b->vit_dim || a->vit_depth != b->vit_depth)
        return fail(err, SAMITE_INPUT, "%s: parts of another model than %s", parts->parts->folder, m->n->source);
    return 0;
}

/* The detector's parts, and the others where they are. */
static int find_parts(samite_model *parts, unsigned *found, samite_error *err)
{
    int code = 0;
    *found = SAMITE_PARTS_DETECTOR;
    for (int p = EXPORT_DETECTOR; p < EXPORT_PARTS && !code; p++)
        if (engine_has_part(parts, (export_part)p) && !(code = engine_check_part(parts, (export_part)p, false, err)))
            *found |= 1u << p;
    if (!engine_gives_trunk(parts))
        *found &= ~(unsigned)SAMITE_PARTS_MEMORY;
    return code;
}

int align_engine(aligner *a, samite_model *m, samite_error *err)
{
    samite_model *parts = (samite_model *)(uintptr_t)a->o->against;
    bool half = parts->parts->converted;
    samite_export_options o = SAMITE_EXPORT_OPTIONS_INIT;
    float *picture = NULL;
    int code = check_sizes(m, parts, err);
    if (!code)
        code = find_parts(parts, &o.parts, err);
    if (!code && a->o->image)
        code = read_picture(&picture, a->o->image, m->n->net->c.image, err);
    o.folder = parts->parts->folder;
    o.prompt_length = parts->parts->prompt;
    o.boxes = parts->parts->boxes;
    o.points = parts->parts->points;
    o.each = note_row;
    o.user = a;
    check_request q = {.o = &o, .theirs = parts->parts->e, .picture = picture, .said = a->o->text, .folder = parts,
                       .most = a->o->max_relative > 0 ? a->o->max_relative : half ? HALF_RELATIVE : FULL_RELATIVE,
                       .least = a->o->min_cosine > 0 ? a->o->min_cosine : half ? HALF_COSINE : FULL_COSINE};
    if (!code)
        code = export_compare(m, &q, err);
    free(picture);
    return code;
}
