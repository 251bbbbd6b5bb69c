/* align.c - samite_align: what is in the folder decides what is compared. */
#include "align.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "formats/safetensors.h"

/* Tolerances in f32: relative to the largest magnitude of the reference, and cosine. A deep network sums more noise. */
#define SHALLOW_RELATIVE 5e-4
#define SHALLOW_COSINE   0.99999
#define DEEP_RELATIVE    2e-3
#define DEEP_COSINE      0.9999
#define DEEP_BLOCKS      16
/* In bf16 single values may be far off, the direction of a tensor not. What later parts begin with is held tighter. */
#define BF16_RELATIVE    1.0
#define BF16_COSINE      0.9995
#define BF16_DEEP_START  0.9999
#define INT8_COSINE      0.99
#define INT8_NECKS       0.9996
#define INT8_BOXES       0.01
#define SAME_SIDE        0.98

#define MAX_FILES 16

typedef struct folder {
    file_map file[MAX_FILES];
    int      count;
    bool     prompts, tokens, train, video;
} folder;

static void folder_close(folder *f)
{
    for (int i = 0; i < f->count; i++)
        file_map_close(&f->file[i]);
}

static int add_file(aligner *a, folder *f, const char *path, samite_error *err)
{
    if (f->count == MAX_FILES)
        return fail(err, SAMITE_INPUT, "%s: more than %d reference files in one folder", path, MAX_FILES);
    file_map *m = &f->file[f->count];
    int code = file_map_open(m, path, err);
    if (code)
        return code;
    f->count++;
    return safetensors_read(&a->reference, m->data, m->size, path, err);
}

/* Each variant of training and video is a world of its own: read when it is run. */
static bool is_read_later(const char *name)
{
    static const char *const begins[] = {"train_", "video_", "overrides", "load."};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (starts_with(name, begins[i]))
            return true;
    return false;
}

/* Maps every *.safetensors of the folder and notes which of prompts.json and tokens.jsonl are there. */
static int read_folder(aligner *a, folder *f, samite_error *err)
{
    const char *path = a->o->reference;
    DIR *d = opendir(path);
    if (!d)
        return fail(err, SAMITE_INPUT, "%s: cannot be opened as a folder of reference numbers", path);
    int code = 0;
    for (struct dirent *e; !code && (e = readdir(d)) != NULL;) {
        f->prompts |= strcmp(e->d_name, "prompts.json") == 0;
        f->tokens |= strcmp(e->d_name, "tokens.jsonl") == 0;
        f->train |= starts_with(e->d_name, "train_");
        f->video |= starts_with(e->d_name, "video_");
        if (is_read_later(e->d_name))
            continue;
        if (!ends_with(e->d_name, ".safetensors") || ends_with(e->d_name, ".weights.safetensors"))
            continue;
        char *full = path_join(path, e->d_name);
        code = full ? add_file(a, f, full, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
        free(full);
    }
    closedir(d);
    if (!code && !f->count && !f->tokens && !f->train && !f->video)
        code = fail(err, SAMITE_INPUT, "%s: no reference numbers here (expected *.safetensors with prompts.json, or "
                    "tokens.jsonl)", path);
    return code;
}

static void report_uncompared(aligner *a)
{
    for (size_t i = 0; i < a->reference.count; i++)
        if (!a->used[i])
            align_row(a, &(samite_compared){.name = a->reference.items[i].name, .relative = INFINITY,
                                            .note = "not computed here"});
}

static int compare_folder(aligner *a, const folder *f, samite_model *m, samite_error *err)
{
    int code = 0;
    if ((f->prompts || f->train || f->video) && !m)
        return fail(err, SAMITE_USAGE, "%s holds a model's numbers: name the model with -m", a->o->reference);
    if (f->train)
        return align_train(a, m, err);
    if (f->video)
        return align_video(a, m, err);
    if (f->prompts)
        return align_reference(a, m, err);
    if (f->tokens) {
        char *path = path_join(a->o->reference, "tokens.jsonl");
        code = path ? align_tokens(a, path, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
        free(path);
    }
    if (!code && a->o->photos)
        code = align_pixels(a, a->o->photos, err);
    if (!a->o->photos)
        align_skip(a, "");
    return code;
}

static int align_folder(aligner *a, samite_model *m, samite_error *err)
{
    folder f = {0};
    int code = read_folder(a, &f, err);
    a->used = calloc(a->reference.count + 1, sizeof *a->used);
    if (!code && !a->used)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for the comparison");
    if (!code)
        code = compare_folder(a, &f, m, err);
    if (!code)
        report_uncompared(a);
    tensor_list_free(&a->reference);
    free(a->used);
    folder_close(&f);
    return code;
}

static void set_tolerance(aligner *a, const samite_model *m)
{
    a->type = m ? m->n->type : GEMM_F32;
    a->deep = m && m->n->net->c.vit_depth > DEEP_BLOCKS;
    bool exact = a->type == GEMM_F32;
    double relative = exact ? a->deep ? DEEP_RELATIVE : SHALLOW_RELATIVE : BF16_RELATIVE;
    double cosine = a->type == GEMM_INT8 ? INT8_COSINE : a->type == GEMM_BF16 ? BF16_COSINE
                  : a->deep ? DEEP_COSINE : SHALLOW_COSINE;
    a->by_part = !exact && !(a->o->min_cosine > 0);
    a->min_side = exact ? 0 : SAME_SIDE;
    a->max_relative = a->o->max_relative > 0 ? a->o->max_relative : relative;
    a->min_cosine = a->o->min_cosine > 0 ? a->o->min_cosine : cosine;
}

double align_least_cosine(const aligner *a, const char *name)
{
    bool neck = starts_with(name, "neck.") || starts_with(name, "tracker_neck.");
    if (!a->by_part || a->decided)
        return a->min_cosine;
    if (a->type == GEMM_INT8 && neck)
        return INT8_NECKS;
    if (a->type == GEMM_BF16 && a->deep && (neck || starts_with(name, "text.")))
        return BF16_DEEP_START;
    return a->min_cosine;
}

double align_most_difference(const aligner *a, const char *name)
{
    if (!a->by_part || a->type != GEMM_INT8 || !ends_with(name, "boxes"))
        return 0;
    return INT8_BOXES * (ends_with(name, "final_boxes") ? a->side : 1);
}

int samite_align(samite_model *m, const samite_align_options *options, samite_align_summary *out, samite_error *err)
{
    samite_align_options o = {0};
    samite_align_summary summary = {.least_cosine = 1};
    if (!options || !out)
        return fail(err, SAMITE_USAGE, "samite_align: no options given");
    options_copy(&o, sizeof o, options, options->size);
    aligner a = {.o = &o, .summary = &summary};
    set_tolerance(&a, m);
    int code;
    if (o.against)
        code = m ? (o.against->parts ? align_engine : align_models)(&a, m, err) : fail(err, SAMITE_USAGE, "comparing two models needs both");
    else if (o.reference)
        code = align_folder(&a, m, err);
    else
        code = fail(err, SAMITE_USAGE, "nothing to compare with: give a reference folder or a second model");
    *out = summary;
    if (!code && a.out_of_memory)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for the comparison");
    if (!code && summary.outside)
        code = fail(err, SAMITE_FAILED, "%d of %d tensors are out of tolerance, worst %s (%.2g of its largest value)",
                    summary.outside, summary.compared, summary.worst, summary.worst_relative);
    if (!code && !summary.compared)
        code = fail(err, SAMITE_FAILED, "nothing was compared");
    return code;
}
