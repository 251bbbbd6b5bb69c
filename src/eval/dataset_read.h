/* dataset_read.h - one record of a COCO file at a time, out of the stream of JSON events. For dataset*.c only. */
#ifndef EVAL_DATASET_READ_H
#define EVAL_DATASET_READ_H

#include "eval/json_stream.h"
#include "eval/segmentation.h"

typedef enum section { SECTION_OTHER, SECTION_IMAGES, SECTION_ANNOTATIONS, SECTION_CATEGORIES } section;

typedef enum field {
    FIELD_OTHER,
    FIELD_ID,
    FIELD_IMAGE_ID,
    FIELD_CATEGORY_ID,
    FIELD_SCORE,
    FIELD_AREA,
    FIELD_CROWD,
    FIELD_IGNORE,
    FIELD_BOX,
    FIELD_SEGMENTATION,
    FIELD_FILE_NAME,
    FIELD_NAME,
    FIELD_WIDTH,
    FIELD_HEIGHT,
    FIELD_EXHAUSTIVE,
    FIELD_TEXT_INPUT,
    FIELD_PROMPTS,
    FIELDS
} field;

/* What the current record has said so far. */
typedef struct record {
    bool     seen[FIELDS];         /* with a usable value */
    double   value[FIELDS];        /* numbers, true and false */
    id_value id[3];                /* FIELD_ID .. FIELD_CATEGORY_ID, minus FIELD_ID */
    text     id_text[3], names[3]; /* names: file_name, name, text_input */
    double   box[4], size[2];
    int      box_numbers, size_numbers;
    shape    shape;
    bool     flat;                 /* a list of numbers where a list of polygons belongs */
    size_t   first_prompt;         /* in set->prompt_ids */
} record;

/* Names of the ground truth, for results that come with images and categories of their own. */
typedef struct name_match {
    bool      open;
    name_map *paths, *bases, *categories;   /* NULL: names are missing or not unique, ids decide */
} name_match;

int32_t match_image(name_match *m, const eval_set *truth, const eval_set *results, const id_value *id);
int32_t match_category(name_match *m, const eval_set *truth, const eval_set *results, const id_value *id);
void    match_free(name_match *m);

typedef struct reader {
    eval_set       *set;
    const eval_set *truth;         /* results: the set they belong to; else NULL */
    bool            masks;
    bool            images_read, again, second;   /* annotations came before images: they are read in a second walk */
    bool            has[SECTION_CATEGORIES + 1];
    bool            take_shapes, by_mask;         /* results: see decide_mode */
    section         in;
    int             depth, section_depth, record_depth;   /* 0: not inside */
    field           field;
    int             part;          /* inside a segmentation: 'p' polygons, 's' size, 'c' counts, 0 */
    size_t          records;       /* annotations so far, of the file */
    record          now;
    shape_batch     batch;
    id_table        raw_categories;
    name_match      names;
    size_t          flush_at;
    const eval_read_options *how;
    samite_error   *err;
} reader;

extern const json_events reader_events;
bool reader_piece(void *to, size_t at, size_t size);

/* The prompts of images, so far ids or names, become categories. */
int resolve_prompts(eval_set *s, samite_error *err);
/* Takes the finished record in; false with *err set when it cannot be. */
bool record_end(reader *r);

#endif
