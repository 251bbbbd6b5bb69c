/* align_video_loaders.c - frames as our readers and the official arithmetic make them, beside the official loaders'. */
#include <stdio.h>
#include <stdlib.h>

#include "align_video.h"
#include "base/file.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "io/video.h"
#include "io/video_official.h"

#define MAX_FRAMES 64

#define LOADER_BAR 1e-6
#define LOSSY_BAR  4e-3        /* one step of 8 bits: decoders and colour conversions round differently */

/* Frames of a source as [frames, 3, side, side]; `most` of them. *count: how many there were. */
static int load(float *out, int *count, int most, const char *path, int side, samite_error *err)
{
    video_reader *v;
    int code = video_open(&v, path, NULL, err), got = 0;
    size_t n = (size_t)side * (size_t)side;
    float *one = malloc(sizeof *one * 3 * n);
    *count = 0;
    if (!code && !one)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for a frame");
    while (!code && *count < most) {
        video_frame f;
        if ((got = video_next(v, &f, err)) != 1)
            break;
        code = video_facts_of(v)->folder ? official_picture(one, &f.picture, side, err)
                                         : official_video_frame(one, &f.picture, side, err);
        for (size_t i = 0; !code && i < n; i++)
            for (size_t c = 0; c < 3; c++)
                out[((size_t)*count * 3 + c) * n + i] = one[3 * i + c];
        pixels_free(&f.picture);
        ++*count;
    }
    free(one);
    video_close(v);
    return code ? code : got < 0 ? got : 0;
}

static int compare_source(aligner *a, const char *name, const char *file, int most, int side, samite_error *err)
{
    int count = 0;
    char *path = path_join(a->o->reference, file);
    float *values = malloc(sizeof *values * 3 * (size_t)side * (size_t)side * MAX_FRAMES);
    int code = path && values ? load(values, &count, most, path, side, err)
             : fail(err, SAMITE_RESOURCE, "not enough memory for %d frames", most);
    if (!code)
        align_tensor(a, name, values, 4, (int64_t[]){count, 3, side, side}, AS_IS);
    free(values);
    free(path);
    return code;
}

int align_loaders(aligner *a, samite_model *m, samite_error *err)
{
    char *path = path_join(a->o->reference, "load.safetensors");
    file_map file;
    int side = m->n->net->c.image;
    if (!path)
        return fail(err, SAMITE_RESOURCE, "not enough memory");
    int code = file_map_open(&file, path, NULL);
    if (code) {                    /* there is none */
        free(path);
        return 0;
    }
    code = safetensors_read(&a->reference, file.data, file.size, path, err);
    a->used = calloc(a->reference.count + 1, sizeof *a->used);
    if (!code && !a->used)
        code = fail(err, SAMITE_RESOURCE, "not enough memory for the comparison");
    a->title = "load";
    double limit = a->max_relative;
    a->max_relative = LOADER_BAR;
    if (!code)
        code = compare_source(a, "frames", "frames", MAX_FRAMES, side, err);
    if (!code)
        code = compare_source(a, "jpeg", "frames_jpeg", MAX_FRAMES, side, err);
    if (!code)
        a->max_relative = LOSSY_BAR;
    if (!code)
        code = compare_source(a, "clip.avi_first", "clip.avi", 1, side, err);
    if (!code)
        code = compare_source(a, "clip.mp4_first", "clip.mp4", 1, side, err);
    if (!code)
        align_skip(a, "pil_list_first");       /* pictures of another library in memory: nothing of ours takes them */
    a->title = NULL;
    a->max_relative = limit;
    free(a->used);
    a->used = NULL;
    tensor_list_free(&a->reference);
    a->reference = (tensor_list){0};
    file_map_close(&file);
    free(path);
    return code;
}
