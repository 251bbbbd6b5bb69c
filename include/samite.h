/* samite.h - SAM 3 in C: open a model, encode a picture once, ask for as many things in it as you like.
 *
 *     samite_error e; samite_model *m; samite_image *im; samite_result *res;
 *     samite_options o = SAMITE_OPTIONS_INIT;
 *     samite_model_open(&m, "sam3.pt", &o, &e);
 *     samite_image_open(&im, m, &pixels, &e);
 *     samite_prompt p = SAMITE_PROMPT_INIT; p.text = "dog";
 *     samite_image_segment(im, &p, &res, &e);          then res->count instances, best first
 *
 * Every function returns 0 or a negative SAMITE_ code and then fills *err (which may be NULL). `**out` is yours to free
 * with the matching _free, which accepts NULL; a returned `const` pointer is borrowed. A model is immutable after open
 * and may be shared by threads; an image belongs to one thread at a time. The library never prints, exits or signals.
 */
#ifndef SAMITE_H
#define SAMITE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SAMITE_API __attribute__((visibility("default")))
#else
#define SAMITE_API
#endif

#define SAMITE_VERSION "0.1.0"

/* Error codes. The command line exits with the positive number. */
enum {
    SAMITE_OK = 0,
    SAMITE_FAILED = -1,      /* a check did not hold: out of tolerance, internal error */
    SAMITE_USAGE = -2,       /* wrong argument or option */
    SAMITE_INPUT = -3,       /* a file or other input cannot be used */
    SAMITE_RESOURCE = -4,    /* memory, disk space */
    SAMITE_CANCELLED = -130  /* the progress callback asked to stop */
};

/* One line for a person: names the file and the item, what was expected and found, and what to do. */
typedef struct samite_error {
    int  code;
    char text[512];
} samite_error;


/* ---- 1. Options and callbacks ------------------------------------------------------------------------------------ */

/* Called from long work: stage "load", "encode", "text", "ground", ...; done of total steps. Nonzero return = stop. */
typedef int  (*samite_progress_fn)(void *user, const char *stage, uint64_t done, uint64_t total);
/* A line for a log: a warning a person should see (a prompt cut at 32 tokens, ignored tensors). */
typedef void (*samite_log_fn)(void *user, const char *line);

typedef struct samite_options {
    size_t             size;           /* sizeof(samite_options): set by the initializer */
    int                threads;        /* 0 = all physical cores this process may use */
    const char        *cpu;            /* highest instruction level: NULL = best, "ref", "avx2", "avx512"; first open decides */
    const char        *precision;      /* arithmetic: "f32", "bf16", "int8", "auto" (the fastest that keeps its bounds on
                                          this CPU; int8 for calibrated files only); NULL = f32, calibrated files: auto */
    int                input_side;     /* pixels; 0 = the model's own. A multiple of patch x window, see samite_model_sides */
    uint64_t           memory_limit;   /* bytes for activations; 0 = none */
    samite_progress_fn progress;       /* may be NULL */
    samite_log_fn      log;            /* may be NULL */
    void              *user;           /* handed to both */
    const char        *engine;         /* who computes: NULL or "native"; "onnxruntime[:PROVIDER]" runs exported parts */
    const char        *engine_library; /* path of the engine's library, or NULL = look for it */
    const char        *engine_settings;/* "key=value,key=value" for the provider or device, or NULL */
    const char        *cache_folder;   /* weights as the network wants them are kept here, for a faster start; NULL = nowhere */
    int                low_memory;     /* 1: weights that were used are given back, and read again when needed */
} samite_options;
#define SAMITE_OPTIONS_INIT {sizeof(samite_options), 0, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0}

/* ---- 2. Model ---------------------------------------------------------------------------------------------------- */

typedef struct samite_model samite_model;

/* `path`: sam3.pt, .safetensors, a folder (Hugging Face or sharded), or "formula:tiny|small|full[,seed=N]".
 * Files are memory-mapped; weights are prepared on first use. SAMITE_INPUT when a needed tensor is missing.
 * With another engine: the folder of the exported parts (samite_export_onnx), which segment pictures by text. */
SAMITE_API int  samite_model_open(samite_model **out, const char *path, const samite_options *options, samite_error *err);
SAMITE_API void samite_model_free(samite_model *m);

/* One part of the network as `info` shows it. */
typedef struct samite_part_info {
    const char *name;                  /* "image encoder", "text encoder", ... borrowed from the model */
    uint64_t    parameters;            /* elements */
    uint64_t    bytes;                 /* as stored in the file */
    double      flops;                 /* of one image, or of one prompt; from a trace at the current input side */
} samite_part_info;

typedef struct samite_model_info {
    size_t      size;                  /* sizeof(samite_model_info), set by the caller */
    const char *kind;                  /* "SAM 3", "SAM 3 detector", ... */
    const char *source;                /* the path as opened */
    int         input_side, patch, window, queries, context;   /* pixels, pixels, tokens, count, tokens */
    int         trunk_width, trunk_depth, trunk_heads, text_width, text_layers, width;
    uint64_t    loaded, ignored, missing;   /* tensors; missing ones belong to optional parts (tracker, mask head) */
    const char *types;                 /* "f32 1188, bf16 3" */
    int         has_masks, has_tracker;
    uint64_t    weight_bytes;          /* held while running */
    uint64_t    activation_bytes;      /* peak for one image and one prompt, from a trace */
    int         parts;
    samite_part_info part[12];
} samite_model_info;
SAMITE_API int samite_model_describe(const samite_model *m, samite_model_info *out, samite_error *err);

/* The input sides that work, ascending, at most `max` of them; returns how many were written. */
SAMITE_API int samite_model_sides(const samite_model *m, int *sides, int max);

/* Writes the model under official names: ".safetensors" (with samite.config in its metadata) or ".pt" (loads in PyTorch
 * with weights_only=True and in the official code). type "f32", "f16", "bf16" or NULL = as stored. Atomic. */
SAMITE_API int samite_model_write(const samite_model *m, const char *path, const char *type, samite_error *err);

typedef struct samite_write_options {
    size_t      size;                  /* set by the initializer */
    const char *type;                  /* as above */
    int         detector_only;         /* 1: leave out the tracker and the head for clicks */
    float       nms;                   /* what samite_prompt.nms is by default with this file; less than 0: as it is */
} samite_write_options;
#define SAMITE_WRITE_OPTIONS_INIT {sizeof(samite_write_options), NULL, 0, -1}
SAMITE_API int samite_model_write_with(const samite_model *m, const char *path, const samite_write_options *options,
                                       samite_error *err);

/* One big product of the network after calibration. */
typedef struct samite_calibrated {
    const char *name;                  /* of its weights; valid during the callback */
    double      error;                 /* |8 bits - f32| / |f32 - mean| of its outputs on the pictures; negative: never computed */
    int         eight;                 /* 1: stored in 8 bits, 0: stays bf16 */
    const char *why;                   /* "" or why it stays bf16 */
} samite_calibrated;

typedef struct samite_calibrate_options {
    size_t             size;           /* set by the initializer */
    const char *const *pictures;       /* files */
    int                picture_count;
    const char *const *texts;          /* prompts, all asked about every picture; NULL = a few common ones, in turns */
    int                text_count;
    double             bound;          /* largest error of a product in 8 bits; 0 = 0.05 */
    void             (*each)(void *user, const samite_calibrated *row);     /* may be NULL */
    void              *user;
    int                detector_only;  /* these two as in samite_write_options */
    float              nms;
} samite_calibrate_options;
#define SAMITE_CALIBRATE_OPTIONS_INIT {sizeof(samite_calibrate_options), NULL, 0, NULL, 0, 0, NULL, NULL, 0, -1}
/* Measures on pictures what every big product loses in 8 bits and writes a .safetensors file with weights in 8 bits, each
 * row with its scale, where that is within the bound. Such a file opens like any other; precision "auto" (and NULL) then
 * computes in 8 bits what is stored so. The model must be open with precision "f32", natively, and not from such a file. */
SAMITE_API int samite_model_calibrate(samite_model *m, const char *path, const samite_calibrate_options *options,
                                      samite_error *err);

/* ---- 3. Pictures ------------------------------------------------------------------------------------------------- */

/* 8-bit RGB, rows top to bottom. */
typedef struct samite_pixels {
    int      width, height;
    uint8_t *rgb;                      /* [height, width, 3] */
    int      exif_orientation;         /* 1..8 as found in the file */
    int      exif_applied;             /* 1: rgb is upright already */
} samite_pixels;

/* Decodes a file, or standard input for "-". flags: SAMITE_NO_EXIF. */
enum { SAMITE_NO_EXIF = 1 };
SAMITE_API int  samite_pixels_read(samite_pixels *out, const char *path, unsigned flags, samite_error *err);
SAMITE_API int  samite_pixels_decode(samite_pixels *out, const void *data, size_t bytes, const char *name, unsigned flags,
                                     samite_error *err);
SAMITE_API void samite_pixels_free(samite_pixels *p);      /* frees rgb only */

/* A picture encoded once, ready for any number of prompts. Keeps a reference to the model. */
typedef struct samite_image samite_image;
SAMITE_API int  samite_image_open(samite_image **out, samite_model *m, const samite_pixels *pixels, samite_error *err);
/* Encodes another picture of any size in place, reusing the memory. */
SAMITE_API int  samite_image_replace(samite_image *im, const samite_pixels *pixels, samite_error *err);
SAMITE_API void samite_image_free(samite_image *im);

/* An encoded picture as a .safetensors file, for later prompts and clicks with the same model at the same input side; the
 * file appears whole or not at all. type: "f16" (NULL), "bf16" or "f32". `pixels`: the picture itself goes in too (NULL:
 * only its size), so that it is there where one is needed, as for overlays. */
SAMITE_API int  samite_image_save(const samite_image *im, const char *path, const char *type, const samite_pixels *pixels,
                                  samite_error *err);
/* Reads such a file instead of encoding. *pixels (may be NULL): size and, where the file has it, the picture; free it with
 * samite_pixels_free. A file of another model, another side or with damage is SAMITE_INPUT. */
SAMITE_API int  samite_image_load(samite_image **out, samite_model *m, const char *path, samite_pixels *pixels,
                                  samite_error *err);

/* ---- 4. Prompts and results -------------------------------------------------------------------------------------- */

typedef struct samite_box {
    float x0, y0, x1, y1;              /* pixels of the picture; x0 <= x1, y0 <= y1 */
    int   negative;                    /* 0: "all like this", 1: "nothing like this" */
} samite_box;

typedef struct samite_prompt {
    size_t            size;            /* set by the initializer */
    const char       *text;            /* UTF-8 noun phrase; NULL with boxes = "visual" */
    const samite_box *boxes;           /* example boxes */
    int               box_count;
    float             score;           /* least score of a result, 0..1 */
    int               max_results;     /* 0 = no limit */
    int               no_masks;        /* 1: boxes and scores only, much cheaper */
    int               whole_boxes;     /* 1: boxes are not cut at the border of the picture, as in official evaluations */
    float             nms;             /* results whose box overlaps that of a better one more than this (intersection over
                                          union) are dropped; 0 = none are; less than 0 = as the model's file says, which
                                          is none with the official weights */
} samite_prompt;
#define SAMITE_PROMPT_INIT {sizeof(samite_prompt), NULL, NULL, 0, 0.5f, 0, 0, 0, -1}

/* COCO run lengths: column by column, background first. */
typedef struct samite_mask {
    int             width, height;     /* of the picture */
    const uint32_t *counts;
    size_t          runs;
} samite_mask;

typedef struct samite_instance {
    float       score;                 /* sigmoid(logit) x sigmoid(presence) */
    float       box[4];                /* x0 y0 x1 y1 in pixels, inside the picture (but see whole_boxes) */
    uint64_t    area;                  /* pixels of the mask; of the box when there is none */
    samite_mask mask;                  /* runs == 0 without masks */
} samite_instance;

typedef struct samite_result {
    int              count;            /* best first */
    samite_instance *instance;
    float            presence;         /* sigmoid of the presence logit: is it in the picture at all? */
    int              tokens;           /* of the text, start and end included */
    int              cut;              /* 1: the text was longer than fits and was cut */
} samite_result;

/* The last few answers on a picture are remembered: an identical prompt costs nothing. */
SAMITE_API int  samite_image_segment(samite_image *im, const samite_prompt *p, samite_result **out, samite_error *err);
SAMITE_API void samite_result_free(samite_result *r);

/* Paints a mask into out[height, width]: 1 inside, 0 outside. Run lengths that do not fill it paint nothing but 0. */
SAMITE_API void samite_mask_paint(const samite_mask *m, uint8_t *out);

/* ---- 5. Alignment: compare with reference numbers ------------------------------------------------------------------ */

typedef struct samite_compared {
    const char *name;                  /* valid during the callback */
    double      max_difference, relative, cosine;   /* relative = max |difference| / max |reference| */
    int         within;                /* 1: inside the tolerance */
    const char *note;                  /* "shape [1,2] expected [1,3]", "missing here", or "" */
} samite_compared;
typedef void (*samite_compared_fn)(void *user, const samite_compared *c);

typedef struct samite_align_options {
    size_t             size;
    const char        *reference;      /* folder with prompts.json and *.safetensors, or with tokens.jsonl / pixels.safetensors */
    const char        *photos;         /* folder of the pictures that pixels.safetensors speaks of, or NULL */
    samite_model      *against;        /* or compare two models of ours on image + text; where it is opened from exported
                                          parts, every output of every part (image and text may be NULL then) */
    const char        *image, *text;
    double             max_relative, min_cosine;    /* 0 = by the size of the model */
    samite_compared_fn each;           /* called once per tensor */
    void              *user;
} samite_align_options;
typedef struct samite_align_summary {
    int    compared, outside, skipped; /* skipped: parts that this build does not compute */
    char   worst[128];                 /* tensor with the largest relative difference */
    double worst_relative, least_cosine;
} samite_align_summary;
/* SAMITE_FAILED when anything is out of tolerance. `m` may be NULL for an inputs folder. */
SAMITE_API int samite_align(samite_model *m, const samite_align_options *o, samite_align_summary *out, samite_error *err);

/* ---- 6. Speed and this machine --------------------------------------------------------------------------------------- */

typedef struct samite_timing {
    double load, image_encode, text, ground;        /* seconds, best of the repeats */
    double image_gflops, text_gflops, ground_gflops;/* work of one call, 10^9 operations */
    double gemm_rate;                               /* GFLOP/s reached by a plain product in the same run */
    uint64_t peak_bytes;                            /* largest resident size of the process so far */
    double image_slowest, text_slowest, ground_slowest;   /* of the repeats: how far the machine is from quiet */
    const char *precision;                          /* arithmetic in use: "f32", "bf16" or "int8"; static */
} samite_timing;
SAMITE_API int samite_bench(samite_model *m, const samite_pixels *pixels, const char *text, int repeats,
                            samite_timing *out, samite_error *err);

/* What prompts cost as a caller sees them, weights being ready: seconds, the best of the repeats. */
typedef struct samite_prompt_timing {
    double first;                      /* a picture and new words, from pixels to masks */
    double second;                     /* other new words on it */
    double identical;                  /* the same words again */
    double found, nothing;             /* known words asked anew: 5 masks, and no result at all */
} samite_prompt_timing;
SAMITE_API int samite_bench_prompts(samite_model *m, const samite_pixels *pixels, int repeats, samite_prompt_timing *out,
                                    samite_error *err);

/* One op of a profiled pass. */
typedef struct samite_op_time {
    const char *stage;                 /* "image_encode", "text", "ground", "masks" */
    const char *part, *op;             /* "trunk.block.3", "linear" */
    double      start, seconds;        /* start: since the pass began */
    double      gflops;                /* work, 10^9 operations */
} samite_op_time;
/* One pass over the same stages after a warm-up, with a call for every op in order of computation. */
SAMITE_API int samite_bench_profile(samite_model *m, const samite_pixels *pixels, const char *text,
                                    void (*each)(void *user, const samite_op_time *op), void *user, samite_error *err);

typedef struct samite_machine {
    char     cpu[128];                 /* brand string */
    char     features[256];            /* "AVX2 FMA AVX512F ..." */
    char     kernels[16];              /* level in use */
    int      threads, cores;
    uint64_t memory_bytes, memory_free;
    char     libraries[256];           /* "oneDNN 2.6.3, libjpeg-turbo 2.1.5, ..." */
} samite_machine;
SAMITE_API void samite_machine_describe(samite_machine *out);

/* The usual folder for samite_options.cache_folder: $SAMITE_CACHE_DIR, else samite in the user's cache folder; give it back
 * to samite_free. NULL: $SAMITE_NO_CACHE is set, or there is no such folder. */
SAMITE_API char *samite_cache_folder(void);
/* What is kept in `folder`; remove = 1 deletes it. */
SAMITE_API int samite_cache_survey(const char *folder, int remove, uint64_t *bytes, int *files, samite_error *err);

/* ---- 7. Result files ----------------------------------------------------------------------------------------------- */

/* One object on a page; objects are numbered 1, 2, ... in the order they are given, in every file alike. */
typedef struct samite_object {
    const samite_instance *instance;
    int                    name;       /* index into the page's names */
} samite_object;

/* A picture and what was found in it, as the writers below take it. All pointers are borrowed. */
typedef struct samite_page {
    size_t               size;         /* set by the initializer */
    const char          *file;         /* name of the picture, as it shall stand in the files */
    const samite_pixels *pixels;       /* rgb may be NULL where only the size is needed: everywhere but in overlays */
    const char *const   *names;        /* the prompts: categories 1, 2, ... of a COCO file; equal names are one category */
    int                  name_count;
    const samite_object *object;
    int                  object_count;
    const int64_t       *track;        /* [object_count] ids that an object keeps from frame to frame; NULL: none */
} samite_page;
#define SAMITE_PAGE_INIT {sizeof(samite_page), NULL, NULL, NULL, 0, NULL, 0, NULL}

/* Every file appears whole or not at all. A mask of another size than the picture is SAMITE_USAGE. */

/* COCO file of one picture: annotations with bbox, area, score, run lengths as "segmentation" (exact) and outlines as
 * "polygons". `info`: a JSON object that becomes the file's "info", or NULL. */
SAMITE_API int samite_write_coco(const samite_page *page, const char *info, const char *path, samite_error *err);
/* 8-bit PNG, 255 inside. */
SAMITE_API int samite_write_mask(const samite_mask *m, const char *path, samite_error *err);
/* 16-bit gray PNG: number of the object, 0 = none. Where masks overlap the object named first is on top. */
SAMITE_API int samite_write_label_map(const samite_page *page, const char *path, samite_error *err);

typedef struct samite_overlay_options {
    size_t size;
    int    no_masks, no_boxes, no_names;
} samite_overlay_options;
#define SAMITE_OVERLAY_OPTIONS_INIT {sizeof(samite_overlay_options), 0, 0, 0}
/* The picture with masks, boxes, names and scores drawn in; `options` may be NULL. PNG, or JPEG when `path` ends so. */
SAMITE_API int samite_write_overlay(const samite_page *page, const samite_overlay_options *options, const char *path,
                                    samite_error *err);

/* The formats of annotation tools. docs/formats.md says what each can hold.
 * YOLO: one line per object, holes and further parts joined by cuts; samite_write_yolo_names writes its data.yaml.
 * labelme: polygons (several parts share a group_id), boxes as rectangles. CVAT for images 1.1: masks and boxes, exact.
 * VOC: boxes. GeoJSON: (Multi)Polygons with holes, in map coordinates when `picture`, a path that may be NULL, has a world
 * file beside it or GeoTIFF tags; a picture that was turned upright (exif_applied) has none. */
SAMITE_API int samite_write_yolo(const samite_page *page, const char *path, samite_error *err);
SAMITE_API int samite_write_yolo_names(const samite_page *page, const char *path, samite_error *err);
SAMITE_API int samite_write_labelme(const samite_page *page, const char *path, samite_error *err);
SAMITE_API int samite_write_cvat(const samite_page *page, const char *path, samite_error *err);
SAMITE_API int samite_write_voc(const samite_page *page, const char *path, samite_error *err);
SAMITE_API int samite_write_geojson(const samite_page *page, const char *picture, const char *path, samite_error *err);

/* Run lengths in COCO's compressed text form; give it back to samite_free. */
SAMITE_API int  samite_mask_string(char **out, const samite_mask *m, samite_error *err);
SAMITE_API void samite_free(void *p);

/* Does the name end like a picture file (".jpg", ".PNG", ...)? For listing folders. */
SAMITE_API int samite_is_picture_name(const char *name);

/* Annotations from one format to another. from, to: "coco", "cvat" (file), "yolo" (folder), "labelme", "voc" (folder;
 * from: also a file), "png" (folder of gray or palette masks). Polygons stay as they were drawn where both formats have
 * them. Folders are made; files that are there are replaced. */
typedef struct samite_convert_options {
    size_t             size;           /* set by the initializer */
    const char        *input, *output, *from, *to;
    const char        *images;         /* folder of the pictures, whose sizes YOLO's files need; NULL = looked for near `input` */
    const char        *classes;        /* YOLO: data.yaml or a list of names; NULL = looked for near `input` */
    samite_progress_fn progress;       /* "read" and "write"; may be NULL */
    void              *user;
} samite_convert_options;
#define SAMITE_CONVERT_OPTIONS_INIT {sizeof(samite_convert_options), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL}

typedef struct samite_dropped {
    const char *why;                   /* "points, lines and other shapes without an area" */
    uint64_t    count;
    char        first[96];             /* the first case */
} samite_dropped;

typedef struct samite_conversion {
    uint64_t       images, categories, objects;    /* written */
    int            drops;
    samite_dropped drop[24];           /* what was left out or lost, by reason */
} samite_conversion;
SAMITE_API int samite_convert_annotations(const samite_convert_options *o, samite_conversion *out, samite_error *err);

/* ---- 8. Evaluation --------------------------------------------------------------------------------------------------- */

enum { SAMITE_EVAL_COCO, SAMITE_EVAL_CGF1, SAMITE_EVAL_VIDEO };
enum { SAMITE_IOU_BBOX = 1, SAMITE_IOU_SEGM = 2 };

typedef struct samite_eval_options {
    size_t             size;           /* set by the initializer */
    int                kind;           /* COCO: the twelve numbers of pycocotools; CGF1: the SA-Co metric; VIDEO: J&F, HOTA */
    const char *const *gt;             /* ground truth files; CGF1 takes several alternatives, the others one */
    int                gt_count;
    const char        *dt;             /* results: a list of objects as pycocotools reads it, or a COCO file */
    unsigned           iou;            /* SAMITE_IOU_..., one or both; 0 = boxes. VIDEO: masks always */
    int                compat;         /* 1: an object with id 0 never counts as found, as in pycocotools */
    double             threshold;      /* CGF1: results with a lower score do not count */
    int                limit;          /* N images as the official loader chooses them; 0 = all */
    const char        *image_list;     /* JSON list of image ids: only these; NULL = all */
    const char *const *classes;        /* only these categories, by name; NULL = all */
    int                class_count;
    int                positive_only;  /* 1: only results of categories that the image has */
    int                arrays;         /* 1: precision, recall and scores go into the JSON too (COCO) */
    const char        *report;         /* folder for report.html, metrics.csv, metrics.json; NULL = none */
    const char        *images;         /* folder of the pictures, for galleries in the report; may be NULL */
    const char        *model;          /* what the results were made with, for the report; NULL: not known */
    samite_progress_fn progress;       /* may be NULL */
    void              *user;
    int                all_prompts;    /* 1: "prompts" of images, which say what is asked of each, are not looked at (COCO) */
    const char        *presence;       /* JSON list of {"image_id", "category_id", "presence"}: how often presence above
                                          `threshold` is right; NULL = not measured (COCO) */
    double             nms;            /* more than 0: the numbers once more without results whose box overlaps a better one
                                          of the same image and category by more than this (COCO) */
} samite_eval_options;
#define SAMITE_EVAL_OPTIONS_INIT {sizeof(samite_eval_options), SAMITE_EVAL_COCO, NULL, 0, NULL, 0, 0, 0.5, 0, NULL, NULL, 0, 0, \
                                  0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0}

typedef struct samite_metric {
    const char *group, *name;          /* "bbox" "AP50", "cgf1_segm" "IL_MCC", "bbox/category" "3 dog", "video" "HOTA" */
    double      value;                 /* -1: nothing to measure, as in pycocotools */
} samite_metric;

typedef struct samite_evaluation {
    int                  count;
    const samite_metric *metric;
    int                  notes;        /* remarks for a person: unknown categories, missing areas, ids that are 0 */
    const char *const   *note;
    const char          *json;         /* all of it, as one JSON object */
} samite_evaluation;
SAMITE_API int  samite_evaluate(samite_evaluation **out, const samite_eval_options *o, samite_error *err);
SAMITE_API void samite_evaluation_free(samite_evaluation *e);

/* Results of a model on the images of a ground truth file, by the official protocol: every category name is a prompt, one
 * encoding per image, the 100 best of all categories. Files in `out`: records/N.json per finished image (a killed run goes
 * on where it stopped) and, when all are there, predictions.json and images.json (ids of the images that could be read).
 * Where images of `gt` have "prompts", a list of ids or names of categories, only these are asked of them, the 100 best of
 * each are kept, and presence.json says how present each was.
 * Pictures are taken as stored, as the official loader does, unless only the upright one has the size that `gt` says. */
typedef struct samite_predict_options {
    size_t             size;           /* set by the initializer */
    const char        *gt, *images, *out;
    unsigned           iou;            /* SAMITE_IOU_SEGM: masks too */
    int                limit;          /* as in samite_eval_options, likewise classes */
    const char *const *classes;
    int                class_count;
    const char        *prompts;        /* JSON object or lines "name<TAB>text": text for a category; NULL = its name */
    int                positive_only;  /* 1: prompts only for categories that the image has */
    int                most;           /* results per image; 0 = 100 */
    int                shard, shards;  /* this is shard 1..shards; 0 = the whole */
    int                check_masks;    /* 1: a mask of `gt` that cannot be evaluated is an error before the work begins */
    int                join_only;      /* 1: no image is looked at; see whether all records are there */
    samite_progress_fn each;           /* "image" at of total; "prompt" at of total; nonzero = stop; may be NULL */
    void              *user;
    int                all_prompts;    /* 1: "prompts" of images are not looked at */
} samite_predict_options;
#define SAMITE_PREDICT_OPTIONS_INIT {sizeof(samite_predict_options), NULL, NULL, NULL, 0, 0, NULL, 0, NULL, 0, 0, 0, 0, 0, 0, \
                                     NULL, NULL, 0}

typedef struct samite_predicted {
    int  images, done_before, failed;  /* of this shard; failed: pictures that are missing or broken */
    int  complete;                     /* 1: the records of all shards are there, joined */
    int  left_out;                     /* when complete: images of all shards whose picture could not be used */
    char failures[2048];               /* what was wrong with the first few, a line each */
} samite_predicted;
SAMITE_API int samite_predict(samite_model *m, const samite_predict_options *o, samite_predicted *out, samite_error *err);

/* ---- 9. Clicks: this one object ------------------------------------------------------------------------------------ */

typedef struct samite_point {
    float x, y;                        /* pixels of the picture */
    int   negative;                    /* 0: "this is part of it", 1: "this is not" */
} samite_point;

/* Any of points, box and one earlier mask; at least one of them. */
typedef struct samite_click {
    size_t              size;          /* set by the initializer */
    const samite_point *points;
    int                 point_count;
    const samite_box   *box;           /* around the object; NULL = none. `negative` must be 0 */
    const float        *logits;        /* [side, side] of an earlier answer, which this one refines; NULL = none */
    const samite_mask  *mask;          /* or a rough mask of the picture's size; NULL = none */
    int                 several;       /* 1: three alternatives. 0: one answer; for a single point the best of three */
    int                 logits_side;   /* side of `logits`, to be checked; 0 = it is known to be right */
} samite_click;
#define SAMITE_CLICK_INIT {sizeof(samite_click), NULL, 0, NULL, NULL, NULL, 0, 0}

typedef struct samite_answer {
    int              count;            /* best first */
    samite_instance *instance;         /* score: expected overlap (IoU) with what is meant; box: around the mask */
    int              side;             /* of the logits */
    float           *logits;           /* [count, side, side] to be handed back for refinement */
    float            presence;         /* sigmoid of the logit "there is an object", which was trained for video */
} samite_answer;

/* The first click on a picture takes longer: the tracker's features are made then. SAMITE_INPUT when the model has no
 * tracker. Holes of up to 256 of 288 x 288 pixels are filled, as the original does. */
SAMITE_API int  samite_image_click(samite_image *im, const samite_click *click, samite_answer **out, samite_error *err);
SAMITE_API void samite_answer_free(samite_answer *a);
/* Logits of an answer in a file, for a refinement in another run: safetensors with one tensor "logits" [count, side, side]. */
SAMITE_API int  samite_logits_write(const float *logits, int count, int side, const char *path, samite_error *err);
/* *out [*count, *side, *side]: give it back to samite_free. */
SAMITE_API int  samite_logits_read(float **out, int *count, int *side, const char *path, samite_error *err);

/* Everything in a picture, without a prompt: a grid of points is clicked, and what is sure and sharp enough stays. */
typedef struct samite_everything {
    size_t size;                       /* set by the initializer */
    int    points;                     /* per side of the grid, 1 to 256 */
    float  overlap;                    /* least expected overlap (IoU) of a mask, 0 to 1 */
    float  stability;                  /* least share of a mask that stays when its threshold moves by 1, 0 to 1 */
    float  duplicate;                  /* boxes that overlap more (IoU) are one object, 0 to 1 */
    int    crops;                      /* 0 to 3 layers of crops: 1 = 2 x 2 crops, 2 = 4 x 4 besides, each with half the points */
    int    max_results;                /* 0 = no limit */
} samite_everything;
#define SAMITE_EVERYTHING_INIT {sizeof(samite_everything), 32, 0.8f, 0.95f, 0.7f, 0, 0}
/* Encodes `pixels` as samite_image_replace does, and its crops. NULL: the picture that is encoded already, without crops.
 * score: expected overlap; presence is 1, tokens is 0. */
SAMITE_API int samite_image_everything(samite_image *im, const samite_pixels *pixels, const samite_everything *options,
                                       samite_result **out, samite_error *err);

/* ---- 10. Export: files for other engines --------------------------------------------------------------------------- */

enum {
    SAMITE_PART_IMAGE = 1, SAMITE_PART_TEXT = 2, SAMITE_PART_HEAD = 4, SAMITE_PARTS_DETECTOR = 7,
    SAMITE_PART_CLICK_IMAGE = 8, SAMITE_PART_CLICK = 16, SAMITE_PARTS_CLICK = 24,     /* interactive_encoder, interactive_head */
    SAMITE_PARTS_MEMORY = 0x7E0        /* tracker_neck, tracked_head, memory_attention, memory_encoder, object_pointers,
                                          mask_prompt; the image encoder gets one more output, which the first one wants */
};

typedef struct samite_export_options {
    size_t      size;                  /* set by the initializer */
    const char *folder;                /* made if missing; files image_encoder.onnx, text_encoder.onnx, grounding_head.onnx */
    unsigned    parts;                 /* SAMITE_PART_..; 0 = the detector's three */
    int         prompt_length;         /* tokens of a prompt, padding included; 0 = the model's context */
    int         external;              /* weights in a file beside: 1 always, -1 never, 0 when larger than 1 GB */
    samite_compared_fn each;           /* check: called once per output of every part; may be NULL */
    const char *engine;                /* check: "onnxruntime[:PROVIDER]"; NULL = onnxruntime */
    const char *library;               /* check: path of its library, or NULL = look for it */
    void       *user;                  /* handed to `each` */
    const char *soc;                   /* ascend: the chip, "Ascend310P3" */
    const char *precision;             /* ascend: "fast" (NULL), "mixed", "exact" */
    int         aipp;                  /* ascend: 1 = pictures come in as 8-bit RGB and are normalised on the chip */
    int         half;                  /* onnx: 1 = weights and products in f16; inputs and outputs stay f32 */
    int         batch;                 /* onnx: pictures and prompts at once; 0 = 1, -1 = any number. Parts
                                          about one object always take one */
    int         boxes;                 /* example boxes that the head takes besides words, 0..64: inputs boxes [1, n, 4]
                                          (cx cy w h in 0..1) and box_labels [1, n] (1, 0 = nothing like this, -1 = none) */
    int         points;                /* points of a click prompt, corners of a box included; 0 = 4; onnx: -1 = any */
} samite_export_options;
#define SAMITE_EXPORT_OPTIONS_INIT {sizeof(samite_export_options), NULL, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0}

/* Writes ONNX files (opset 17, fixed shapes) from the model; every file is checked for its structure afterwards. The input
 * side is that of the model as opened. */
SAMITE_API int samite_export_onnx(samite_model *m, const samite_export_options *o, samite_error *err);
/* PaddlePaddle 3: PART.json and PART.pdiparams of the same parts, and sam3.pdparams with all weights (matrices of linear
 * layers [in, out]). Of the options, `external` has no meaning here. */
SAMITE_API int samite_export_paddle(samite_model *m, const samite_export_options *o, samite_error *err);
/* Ascend NPUs: the ONNX files in the form that ATC likes best, and convert.sh with its command lines. */
SAMITE_API int samite_export_ascend(samite_model *m, const samite_export_options *o, samite_error *err);
typedef struct samite_import_options {
    size_t      size;                  /* set by the initializer */
    const char *path;                  /* a folder of exported files, or one: PART.onnx, PART.json, PART.pdiparams, .pdparams */
    const char *out;                   /* .safetensors or .pt */
    const char *base;                  /* a model that gives what the files do not hold; NULL = it is left out */
    samite_progress_fn progress;       /* stage "import"; may be NULL */
    void       *user;                  /* handed to progress */
} samite_import_options;
#define SAMITE_IMPORT_OPTIONS_INIT {sizeof(samite_import_options), NULL, NULL, NULL, NULL, NULL}
typedef struct samite_imported {
    int  files;                        /* read */
    int  tensors, from_base, missing;  /* of the network: taken from the files, from `base`, in neither */
    int  rounded;                      /* of `tensors`: stored as f16 */
    char first_missing[160];           /* its name, or "" */
} samite_imported;

/* Weights back from files that samite exported, for ONNX Runtime or PaddlePaddle, under the official names; bit by bit
 * those that were exported, unless they were rounded to f16. */
SAMITE_API int samite_import(const samite_import_options *o, samite_imported *out, samite_error *err);
/* Runs the files of `folder` in another engine and compares every output with the model's. SAMITE_FAILED when one differs
 * by more than 1e-3 of its largest value (or of 1), or its cosine is below 0.9999; with `half`: 0.05 and 0.999. */
SAMITE_API int samite_export_check(samite_model *m, const samite_export_options *o, samite_error *err);

/* ---- 11. Training ---------------------------------------------------------------------------------------------------- */

/* A training: settings first, then a check or a run. Settings are known by name ("trainer.max_epochs", or its last word);
 * samite_training_help lists them. */
typedef struct samite_training samite_training;
SAMITE_API int  samite_training_new(samite_training **out, samite_error *err);
SAMITE_API void samite_training_free(samite_training *t);
/* A YAML file on top of what is set, and one setting. Unknown names and values that do not fit are SAMITE_USAGE. */
SAMITE_API int  samite_training_read(samite_training *t, const char *path, samite_error *err);
SAMITE_API int  samite_training_set(samite_training *t, const char *key, const char *value, samite_error *err);
/* All settings as YAML; all names with what they mean. Give the string back to samite_free. */
SAMITE_API int  samite_training_print(const samite_training *t, char **out, samite_error *err);
SAMITE_API int  samite_training_help(char **out, samite_error *err);

/* A row of the annotations that cannot be used (rejected), or is used as `why` says. */
typedef struct samite_training_row {
    const char *image, *annotation, *why;   /* ids as text, "" where there is none; the picture's name for missing files */
    int         rejected;
} samite_training_row;
typedef struct samite_training_prompt {
    const char *text;
    int         objects, pictures;          /* objects of that kind, and pictures that have some */
} samite_training_prompt;

/* What a training would do and need. Pointers are borrowed until the next call with `t`. */
typedef struct samite_training_plan {
    size_t   size;                          /* sizeof(samite_training_plan), set by the caller */
    int      pictures, objects, prompts;
    const samite_training_prompt *prompt;
    int64_t  positive, negative;            /* (picture, prompt) pairs with and without objects */
    int      rejected, noted, rows;         /* all of them; of which `rows` are listed */
    const samite_training_row *row;
    int      steps_per_epoch;
    int64_t  steps, learning, frozen;       /* steps in all; numbers that learn, and that do not */
    uint64_t memory_bytes, memory_free;     /* estimate of the whole, and what the machine has free */
    double   flops, seconds;                /* of one picture; of the whole training at the machine's matrix rate */
} samite_training_plan;
/* Reads annotations, pictures (all, or an even sample of 1000) and the model, and changes nothing. `progress` as ever. */
SAMITE_API int  samite_training_check(samite_training *t, samite_training_plan *out, samite_progress_fn progress, void *user,
                                      samite_error *err);

typedef struct samite_training_tick {
    int      epoch, epochs, iter, iters;    /* epoch from 0; iter steps of it are done */
    int64_t  step, steps;
    double   loss, grad_norm, rate;         /* rate: of all behind the encoders */
    double   images_per_s, seconds_left;
    uint64_t memory_bytes;
} samite_training_tick;
typedef struct samite_training_options {
    size_t            size;                 /* set by the initializer */
    int               resume;               /* 1: go on with what is in paths.output */
    void            (*tick)(void *user, const samite_training_tick *t);    /* after every step */
    samite_progress_fn validating;          /* "image", "prompt"; nonzero = stop */
    int             (*stop)(void *user);    /* asked between steps; nonzero: save, and SAMITE_CANCELLED */
    samite_log_fn     log;
    void             *user;
} samite_training_options;
#define SAMITE_TRAINING_OPTIONS_INIT {sizeof(samite_training_options), 0, NULL, NULL, NULL, NULL, NULL}
/* Files in paths.output: checkpoints/, logs/, tensorboard/, val/, report.html, config_resolved.yaml. */
SAMITE_API int  samite_training_run(samite_training *t, const samite_training_options *o, samite_error *err);

/* A model that knows nothing, for training: size "demo", "tiny", "small" or "full"; random weights by seed. sprites (may be
 * NULL): a sprite file (tools/make_sprites.py), whose words are then the only ones that the model's token table holds. */
SAMITE_API int  samite_start(const char *size, const char *sprites, uint64_t seed, const char *out, samite_error *err);

/* Made-up scenes as a data set: DIR/pictures/NNNNNN.png and DIR/instances.json (COCO; images name the prompts to ask). */
typedef struct samite_scenes_options {
    size_t      size;                       /* sizeof(samite_scenes_options) */
    const char *sprites;                    /* file of tools/make_sprites.py */
    int         count, side;
    int         held;                       /* nonzero: sprites kept from training, of names that have some */
    int         crowded;                    /* nonzero: 5 to 12 objects instead of 1 to 6 */
    uint64_t    seed;
} samite_scenes_options;
#define SAMITE_SCENES_OPTIONS_INIT {sizeof(samite_scenes_options), NULL, 100, 168, 0, 0, 1}
SAMITE_API int  samite_scenes(const samite_scenes_options *o, const char *folder, samite_error *err);

/* The model `base` with the adapter added to its weights, as a file that loads like any other. */
SAMITE_API int  samite_merge(const char *base, const char *adapter, const char *out, samite_error *err);

/* ---- 12. Video: everything words name, and single objects, through the frames of a clip ----------------------------- */

/* All rules of tracking, with the numbers of the official model. docs/video.md says what each does. */
typedef struct samite_video_options {
    size_t   size;                     /* set by the initializer */
    int64_t  frames;                   /* of the whole clip; 0 = not known, as in a live stream */
    int      official;                 /* 1: repeat the official program, errors included */
    int      may_turn;                 /* 1: samite_video_turn may be called later; costs some memory per object */
    int      max_objects;              /* followed at once */
    uint64_t memory_limit;             /* bytes of memories of objects: it lowers max_objects; 0 = none */
    int      detect_every;             /* look for new objects on every N-th frame */
    int      delay;                    /* frames a result waits until young objects have proven themselves; 0 = none */
    int      unmatched_limit, duplicate_limit;   /* frames after which a young object is removed */
    int      keep_alive_start, keep_alive_most, keep_alive_least, hide_unmatched, empty_counts, confirm;
    float    score, nms, overlap, match, new_score;
    int      one_to_one, avoid_border;
    int      hole_area, renew_every, click_window;
    float    occlusion, keep_share, renew_detection, renew_overlap, renew_logit, renew_box_overlap, renew_box_detection;
    int      no_selection;             /* 1: the last frames are remembered whatever their quality */
} samite_video_options;
#define SAMITE_VIDEO_OPTIONS_INIT { \
    sizeof(samite_video_options), 0, 0, 0, 10000, 0, 1, 15, 8, 8, 30, 30, -1, 0, 0, 0, 0.5f, 0.1f, 0.1f, 0.5f, 0.7f, 0, 0, \
    16, 16, 16, 0.7f, 0.3f, 0.8f, 0.8f, 0.8f, 0, 0, 0}

typedef struct samite_video samite_video;
/* Keeps a reference to the model. SAMITE_INPUT when it has no tracker. */
SAMITE_API int  samite_video_open(samite_video **out, samite_model *m, const samite_video_options *o, samite_error *err);
SAMITE_API void samite_video_free(samite_video *v);

/* What is looked for. `no_masks` and `max_results` of the prompt have no meaning here, nor has `score`. Words count for all
 * frames, boxes are examples on frame `frame` (the next one pushed when negative). All objects so far are forgotten. */
SAMITE_API int  samite_video_prompt(samite_video *v, const samite_prompt *p, int64_t frame, samite_error *err);

typedef struct samite_tracked {
    int64_t     id;                    /* from 0, never used again */
    float       score;                 /* of the detection it began with; 1 after a click */
    float       presence;              /* how sure it is that the object is there on this frame, 0..1 */
    float       box[4];                /* x0 y0 x1 y1 in pixels */
    uint64_t    area;
    samite_mask mask;
} samite_tracked;

typedef struct samite_frame_result {
    int64_t         frame;
    double          time;              /* as pushed */
    int             width, height;
    int             count;             /* in order of ids; masks do not overlap */
    samite_tracked *object;
    int             tracked, dropped;  /* objects followed after this frame; detections for which there was no room */
} samite_frame_result;

typedef struct samite_video_results {
    int                  count;        /* often 0: results wait `delay` frames */
    samite_frame_result *frame;
} samite_video_results;
SAMITE_API void samite_video_results_free(samite_video_results *r);

/* One frame. Numbers grow from frame to frame (fall after samite_video_turn); gaps are allowed, sizes may change.
 * *out: frames that are decided now. After a failure other than SAMITE_USAGE only reset and free are of use. */
SAMITE_API int  samite_video_push(samite_video *v, const samite_pixels *pixels, int64_t frame, double time,
                                  samite_video_results **out, samite_error *err);
/* The frames that wait, decided by what is known now. */
SAMITE_API int  samite_video_flush(samite_video *v, samite_video_results **out, samite_error *err);

/* A person points at an object of the frame pushed last: points or a box, or else a mask of its own. *object: its id, or
 * -1 for a new one, whose id it becomes. *out (may be NULL): this frame with the answer. A failure leaves no trace. */
SAMITE_API int  samite_video_click(samite_video *v, int64_t *object, const samite_click *click, samite_video_results **out,
                                   samite_error *err);
SAMITE_API int  samite_video_remove(samite_video *v, int64_t object, samite_error *err);
/* From now on frames come with falling (backward 1) or growing numbers. Flush first. */
SAMITE_API int  samite_video_turn(samite_video *v, int backward, samite_error *err);
/* Forgets objects, words and frames. */
SAMITE_API void samite_video_reset(samite_video *v);

typedef struct samite_video_status {
    size_t   size;                     /* sizeof(samite_video_status), set by the caller */
    int      objects, waiting;         /* followed; frames whose results wait */
    int      max_objects;              /* after memory_limit */
    uint64_t bytes;                    /* held for objects and waiting results */
    double   encode_seconds, track_seconds;    /* since the session was opened */
    double   detect_seconds;           /* the part of track_seconds that looked for new objects */
} samite_video_status;
SAMITE_API void samite_video_state(const samite_video *v, samite_video_status *out);

/* Frames of a video file, a folder of pictures in natural order, "-" (standard input: MJPEG, Y4M, MPEG-TS ...),
 * "raw:WIDTHxHEIGHT[@RATE]:PATH" or "device:FORMAT:NAME", one at a time. All have the size of the first one. */
typedef struct samite_clip samite_clip;
typedef struct samite_clip_info {
    size_t      size;                  /* sizeof(samite_clip_info), set by the caller */
    int64_t     frames;                /* 0: not known before the end */
    double      rate;                  /* frames per second; 0: not known */
    int         seekable;              /* frames that were read can be read again */
    const char *codec;                 /* borrowed */
    const char *damage;                /* what is wrong with the data so far, or NULL; borrowed */
} samite_clip_info;
/* flags: SAMITE_NO_EXIF takes frames as stored, not upright; SAMITE_SKIP_BAD leaves pictures of a folder out that cannot
 * be read, the others keep their numbers (`damage` tells). */
enum { SAMITE_SKIP_BAD = 2 };
SAMITE_API int  samite_clip_open(samite_clip **out, const char *path, unsigned flags, samite_error *err);
SAMITE_API void samite_clip_describe(const samite_clip *c, samite_clip_info *out);
/* Frame `index`, or the next one for -1. 1: *out is yours to free; 0: there is none; negative: an error. Files are read
 * forward, or one by one backward from where they were read to. *found is larger than asked for where frames were left
 * out. */
SAMITE_API int  samite_clip_read(samite_clip *c, int64_t index, samite_pixels *out, int64_t *found, double *time,
                                 samite_error *err);
SAMITE_API void samite_clip_free(samite_clip *c);

/* A video file: H.264 where FFmpeg has an encoder, else MJPEG. It appears when finished. */
typedef struct samite_movie samite_movie;
SAMITE_API int  samite_movie_open(samite_movie **out, const char *path, int width, int height, double rate,
                                  samite_error *err);
/* time: seconds since the first frame; not a number: by the rate. */
SAMITE_API int  samite_movie_add(samite_movie *m, const samite_pixels *pixels, double time, samite_error *err);
SAMITE_API const char *samite_movie_codec(const samite_movie *m);      /* "h264", "mjpeg" */
SAMITE_API int  samite_movie_finish(samite_movie *m, samite_error *err);        /* frees it */
SAMITE_API void samite_movie_free(samite_movie *m);                    /* nothing is left behind */

/* Objects drawn into the pixels of their frame, each id in its own colour; `name` stands before the id. */
SAMITE_API int  samite_frame_draw(samite_pixels *pixels, const samite_frame_result *f, const char *name, samite_error *err);
/* 16-bit gray PNG: id + 1 of the object, 0 = none. */
SAMITE_API int  samite_frame_labels(const samite_frame_result *f, const char *path, samite_error *err);

/* ---- 13. Large pictures: windows of it, and the whole ----------------------------------------------------------- */

/* A TIFF that is read in parts, strip by strip or tile by tile, and need not fit into memory. */
typedef struct samite_raster samite_raster;
SAMITE_API int  samite_raster_open(samite_raster **out, const char *path, samite_error *err);
SAMITE_API void samite_raster_size(const samite_raster *r, int *width, int *height);
SAMITE_API void samite_raster_free(samite_raster *r);

typedef struct samite_tiles {
    size_t               size;         /* set by the initializer */
    const samite_pixels *pixels;       /* the picture, or */
    samite_raster       *raster;       /* one that is read in parts; the other is NULL */
    int                  tile, overlap;/* pixels: side of a window, and what neighbours share; overlap at most half of tile */
    int                  no_whole;     /* 1: the picture as a whole is not looked at */
    float                agree;        /* least IoU in the shared strip of two masks that are one object, 0 to 1 */
} samite_tiles;
#define SAMITE_TILES_INIT {sizeof(samite_tiles), NULL, NULL, 1008, 128, 0, 0.5f}

/* Asks `count` prompts without boxes in every window and in the whole, and joins what belongs together: an object that a
 * window's edge cuts comes out once, with a mask of the picture's size. There is no limit of 200 objects. results[count] are
 * yours to free one by one. presence: the largest one met. Progress: stage "tile". */
SAMITE_API int samite_segment_tiled(samite_model *m, const samite_tiles *tiles, const samite_prompt *prompts, int count,
                                    samite_result **results, samite_error *err);

#ifdef __cplusplus
}
#endif
#endif
