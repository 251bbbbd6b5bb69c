/* api_predict.h - records of predictions: one file per image, joined at the end. */
#ifndef API_PREDICT_H
#define API_PREDICT_H

#include <jansson.h>

#include "eval/evaluation.h"

/* A kept detection. */
typedef struct detection {
    float    score, box[4];      /* x0 y0 x1 y1 */
    int32_t  category;           /* rank in ascending order of ids */
    char    *counts;             /* compressed mask, owned, or NULL */
} detection;

typedef struct prediction_job {
    const samite_predict_options *o;
    eval_set   truth;
    int32_t   *images;           /* [image_count] index into the set, in the order of work */
    size_t     image_count;
    int32_t   *categories;       /* [category_count] ascending ids */
    size_t     category_count;
    char     **text;             /* [category_count] prompts */
    uint8_t   *asked;            /* [images of the set, category_count] where not everything is asked of all, else NULL */
    json_t    *settings;
    char      *settings_text;
} prediction_job;

/* Reads the ground truth and everything else that does not need the model. */
int  job_open(prediction_job *j, const samite_predict_options *o, const samite_model *m, samite_error *err);
void job_free(prediction_job *j);

/* Is prompt `category` asked of image number `at`? */
bool job_asks(const prediction_job *j, size_t at, size_t category);

/* What became of one image. */
typedef struct record_data {
    const detection *d;
    size_t       count;
    const float *presence;       /* [category_count], of the prompts that were asked; NULL: not kept */
    int          width, height;
    const char  *error;          /* NULL, or why the picture could not be used */
} record_data;
/* Writes the record of image number `at`. */
int  record_write(const prediction_job *j, size_t at, const record_data *data, samite_error *err);
/* Is there a record of image `at` made with the same settings? *failed: it says that the picture could not be used. */
bool record_finished(const prediction_job *j, size_t at, bool *failed);
/* Joins all records; presence.json only where images have prompts of their own. out->complete = 0 when one is missing. */
int  records_join(const prediction_job *j, samite_predicted *out, samite_error *err);

#endif
