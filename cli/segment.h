/* segment.h - inside `samite segment`: settings, one picture with its results, and where these go. */
#ifndef CLI_SEGMENT_H
#define CLI_SEGMENT_H

#include <jansson.h>

#include "inputs.h"
#include "page_files.h"
#include "report.h"
#include "session.h"

/* What --out writes. */
#define FORMAT_OPTION(T) \
    {"--format", 0, OPTION_CALL, offsetof(T, formats), "LIST", \
     .help = "files in DIR: coco,png,overlay (default), yolo, labelme, geojson, cvat, voc", .parse = parse_formats}

typedef struct box_list {
    samite_box *item;
    int         count;
} box_list;

/* "This one object": points, a box, a rough mask. */
typedef struct click_settings {
    samite_point *point;
    int           count;
    bool          has_box, several;
    samite_box    box;
    const char   *mask;            /* path of a picture of the same size */
    int           pick;            /* refine the pick-th best result, or alternative of `logits`; 0: none is picked */
    const char   *logits, *save;   /* files: what an earlier click left, and where this one leaves it */
} click_settings;

/* `samite everything`: no prompt at all. */
typedef struct everything_settings {
    bool   on;
    int    points, crops;
    double overlap, stability, duplicate;
} everything_settings;

typedef struct segment_settings {
    engine_settings engine;
    words           texts;
    box_list        boxes;
    click_settings  click;
    everything_settings everything;
    double          score, nms;    /* nms < 0: the model's own */
    int             most;
    const char     *out;
    bool            json, jsonl, no_exif, recursive, resume;
    shard           part;
    unsigned        formats;       /* FORMAT_..; 0: FORMATS_USUAL */
    int             tile, overlap; /* windows of large pictures; tile = 0: none. overlap < 0: an eighth of tile */
} segment_settings;

/* What is looked for in every picture; names[i] belongs to prompt[i]. A click that is a result of its own has the last
 * name. */
typedef struct prompts {
    samite_prompt *prompt;
    const char   **names;
    int            count, name_count;
    const click_settings *click;   /* NULL: none */
    int         tile, overlap;     /* tile = 0: pictures are looked at as a whole only */
    const everything_settings *everything;   /* NULL: no; else prompt[0] only stands for it */
} prompts;

/* A picture and what was found in it. */
typedef struct picture {
    const input    *in;
    samite_pixels   pixels;        /* rgb = NULL when the picture is read in parts */
    samite_raster  *raster;        /* the picture that is read in parts, or NULL */
    bool            encoded;       /* p->in is a file of samite encode; pixels has no rgb where that has no picture */
    samite_result **result;        /* [prompts] */
    samite_answer  *answer;        /* to the click, or NULL */
    samite_object  *object;        /* all results, best score first */
    int             objects;
} picture;

/* "X0,Y0,X1,Y1" in order. */
int  parse_corners(double *v, const char *name, const char *value, samite_error *err);
int  parse_point(void *to, const char *name, const char *value, samite_error *err);
int  parse_click_box(void *to, const char *name, const char *value, samite_error *err);
bool click_wanted(const click_settings *c);
/* Does it change a result of the words, in place of one of its own? */
bool click_refines(const click_settings *c);
/* words: is something else looked for too? */
int  click_check(const click_settings *c, bool words, samite_error *err);
json_t *click_json(const click_settings *c);
/* Asks the click and adds what it finds under `name`, or refines what was picked. */
int  picture_click(picture *p, samite_image *image, const click_settings *c, int name, samite_error *err);

/* A command over pictures: parses, works, cleans up; returns the exit status. `s` holds the defaults. */
int  segment_run(const command *c, segment_settings *s, int argc, char **argv);

json_t *everything_json(const everything_settings *e);

int  prompts_make(prompts *p, const segment_settings *s, samite_error *err);
void prompts_free(prompts *p);

/* Decodes p->in; files of samite encode are left to picture_load. */
int  picture_read(picture *p, const segment_settings *s, samite_error *err);
/* Fills p->pixels and *image from a file of samite encode. */
int  picture_load(picture *p, samite_image **image, samite_model *model, const segment_settings *s, samite_error *err);
/* Encodes, unless that is done, and asks every prompt. *image is made on first use and reused. */
int  picture_segment(picture *p, samite_image **image, samite_model *model, const prompts *ask, samite_error *err);
void picture_free(picture *p, const prompts *ask);
samite_page picture_page(const picture *p, const prompts *ask);

/* Printing. */
void    print_table(const picture *p, const prompts *ask, bool with_name);
json_t *picture_json(const picture *p, const prompts *ask, const char *model);    /* NULL: out of memory */

/* What the prompts are, as JSON; one text and its boxes each. */
json_t *prompt_json(const samite_prompt *p);
/* Results in a folder. */
typedef struct results {
    const char *folder;
    json_t     *settings;          /* what a finished picture must have been made with to be skipped */
    unsigned    formats;
    char       *merged;            /* path of result.json, or of the shard's own */
} results;
int  results_open(results *r, const segment_settings *s, const prompts *ask, samite_error *err);
void results_free(results *r);
/* Are all files of this picture there, made with the same settings from the same file? */
bool results_complete(const results *r, const input *in);
/* Writes all files of a picture; its record comes last. */
int  results_write(const results *r, const picture *p, const prompts *ask, samite_error *err);
/* Joins the records of all inputs that did not fail into one COCO file. */
int  results_merge(const results *r, const inputs *in, samite_error *err);

#endif
