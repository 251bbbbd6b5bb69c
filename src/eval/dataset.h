/* dataset.h - ground truth and results in COCO's JSON, read into flat arrays. */
#ifndef EVAL_DATASET_H
#define EVAL_DATASET_H

#include "base/text.h"
#include "eval/ids.h"
#include "io/mask.h"

typedef struct eval_image {
    const char *file_name;     /* NULL: not given */
    const char *text_input;    /* noun phrase of a SA-Co data point, or NULL */
    int         width, height; /* 0: not given */
    bool        exhaustive;    /* is_instance_exhaustive; true when not given */
    bool        has_prompts;   /* "prompts": only these categories are asked of the image */
    size_t      prompt, prompts;   /* range of eval_set.prompts */
} eval_image;

/* One object or one detection. */
typedef struct eval_item {
    double      box[4];        /* x, y, width, height */
    double      area, score;
    const char *mask;          /* COCO's compressed text, checked; NULL: none was kept */
    uint32_t    mask_size;
    int32_t     image, category;   /* index into images and categories; -1: not in this set, not evaluated */
    int32_t     id;            /* index into `ids`; -1: none */
    bool        crowd, ignore;
    bool        has_box, has_area;
} eval_item;

typedef struct eval_set {
    const char *path;
    id_table    image_ids, category_ids, ids;   /* index = index of the image, category; ids: of annotations */
    eval_image *images;
    const char **categories;   /* [category_ids.count] names; NULL: not given */
    eval_item  *items;
    size_t      image_room, category_room, count, room;
    int32_t    *prompts;       /* [prompt_count] index of the category */
    id_value   *prompt_ids;    /* [prompt_count] as the file has them, while it is read */
    size_t      prompt_count, prompt_room;
    int32_t    *image_order, *category_order;   /* ascending ids */
    pool        texts;
    /* what was met on the way, for notes */
    size_t      no_area, no_crowd, unknown_images, unknown_categories, repeated_ids, repeated_images, ignore_flags,
        negative_boxes, unasked;
    bool        made_categories, matched_by_name, has_prompts;   /* has_prompts: some image has */
    char        first_unknown[64], first_repeated[64], first_image[64];
} eval_set;

/* How to read. */
typedef struct eval_read_options {
    bool               masks;      /* check and keep segmentations */
    bool               strangers;  /* results on unknown images are counted and left out instead of refused */
    bool               prompts;    /* "prompts" of images are read */
    samite_progress_fn progress;   /* stage "read"; may be NULL */
    void              *user;
} eval_read_options;

/* Reads images, categories and annotations. With `masks` the segmentation of every annotation that will be evaluated is
 * checked and kept as compressed run lengths. Memory grows with objects, not with the size of the file. */
int  eval_set_read(eval_set *out, const char *path, bool masks, samite_error *err);
/* Reads results for `truth`: an array of objects, or a COCO file with "annotations". Image and category are those of
 * `truth`; a COCO file's own images and categories are matched to them by name where names are unique. A result on an
 * image that is not there is SAMITE_INPUT, unless `strangers`: then it is counted and left out. */
int eval_results_read(eval_set *out, const eval_set *truth, const char *path, bool masks, bool strangers,
                      samite_error *err);
/* The same with progress. */
int eval_set_load(eval_set *out, const char *path, const eval_read_options *o, samite_error *err);
int eval_results_load(eval_set *out, const eval_set *truth, const char *path, const eval_read_options *o,
                      samite_error *err);
/* The same from memory, prompts of images too; `name` is for messages. */
int  eval_set_parse(eval_set *out, const char *data, size_t size, const char *name, bool masks, samite_error *err);
int eval_results_parse(eval_set *out, const eval_set *truth, const char *data, size_t size, const char *name,
                       bool masks, bool strangers, samite_error *err);
void eval_set_free(eval_set *s);

/* Was `category` asked of `image`? Where an image has no list, everything is. */
bool eval_asked(const eval_set *truth, int32_t image, int32_t category);
/* Drops the items of `s` that were not asked for, and counts them in s->unasked. `truth` may be `s`. */
void eval_drop_unasked(eval_set *s, const eval_set *truth);

/* "annotation 17 (image 5)" in `out`. */
const char *eval_item_print(char *out, size_t room, const eval_set *s, const eval_set *images, const eval_item *item);

/* The mask of an item as run lengths. */
int eval_item_mask(rle *out, const eval_set *images, const eval_item *item, samite_error *err);

#endif
