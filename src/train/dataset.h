/* dataset.h - pictures and annotations to learn from: COCO files, each row checked, categories as prompts. */
#ifndef TRAIN_DATASET_H
#define TRAIN_DATASET_H

#include "eval/ids.h"
#include "io/mask.h"

/* A shape as the file has it; turned into pixels when its picture comes up. */
typedef enum segment_kind { SEGMENT_NONE, SEGMENT_POLYGONS, SEGMENT_COUNTS, SEGMENT_TEXT } segment_kind;
typedef struct segment {
    segment_kind kind;
    size_t       count;      /* polygons, counts, characters */
    size_t      *ends;       /* POLYGONS: [count] index of the number behind each */
    double      *xy;         /* POLYGONS */
    uint32_t    *counts;     /* COUNTS */
    char        *text;       /* TEXT */
    int          width, height;   /* of run lengths; 0: those of the picture's record */
} segment;

typedef struct train_object {
    int32_t image, prompt;   /* indices; -1: not in this set */
    int32_t category;        /* index into category_ids */
    int32_t id;              /* index into annotation_ids; -1: none */
    double  box[4];          /* x y width height as the file has them */
    bool    crowd;
    const segment *shape;    /* NULL: none (or masks were not asked for) */
} train_object;

typedef struct train_image {
    const char *file_name;   /* NULL: there is an id, but no picture (rejected, or only annotations name it) */
    int         width, height;    /* of the record; 0: not given */
    int         first, count;     /* its objects, once the set is complete */
} train_image;

/* What was found in one row, for a person. */
typedef struct train_row {
    const char *image, *annotation, *why;    /* ids as text; "" where there is none */
    bool        rejected;    /* false: kept, as `why` says */
} train_row;

typedef struct train_options {
    const char *annotations, *pictures;      /* COCO file, folder */
    int         limit;       /* images, chosen as the official loader does; 0 = all */
    bool        masks;
    bool        keep_unused; /* a first category without objects that only names a group of others stays a prompt */
} train_options;

typedef struct train_set {
    char        *path, *pictures;
    id_table     image_ids, category_ids, annotation_ids;
    train_image *images;
    size_t       image_room;
    const char **names;      /* [category_ids.count] NULL: rejected */
    const char **groups;     /* supercategory or NULL */
    size_t       name_room, group_room;
    int32_t     *prompt_of;  /* [category_ids.count] */
    train_object *objects;   /* by image, in the order of the file */
    size_t       count, room;
    int32_t     *order;      /* [chosen] images, in the order of the official loader */
    int          chosen;
    const char **prompts;    /* category names, each once, by ascending id */
    int          prompt_count;
    bool         masks;
    const struct scene_source *scenes;       /* pictures are made up; there are no objects then */
    train_row   *rows;       /* the first ROWS_KEPT */
    size_t       row_count, row_room;
    int          rejected, noted;    /* all rows */
    pool         memory;
} train_set;
#define ROWS_KEPT 10000

/* SAMITE_INPUT when the file cannot be used at all. Rows that cannot be used are listed and left out. */
int  train_set_read(train_set *out, const train_options *o, samite_error *err);
void train_set_free(train_set *s);

/* Adds a row. false: out of memory. annotation may be NULL. */
bool train_set_row(train_set *s, bool rejected, const id_value *image, const id_value *annotation, const char *format,
                   ...) __attribute__((format(printf, 5, 6)));

/* Path of the picture, yours to free. */
char *train_set_picture(const train_set *s, int32_t image);

/* Objects that count, crowds left out. */
int   train_set_objects(const train_set *s);
/* (picture, prompt) pairs with an object and without. */
void  train_set_pairs(const train_set *s, long *positive, long *negative);
/* Objects of one prompt and the pictures that have it. */
void  train_set_prompt(const train_set *s, int prompt, int *objects, int *pictures);

#endif
