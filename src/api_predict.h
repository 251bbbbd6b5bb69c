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
    uint8_t   *positive;         /* [images of the set, category_count], with positive_only */
    json_t    *settings;
    char      *settings_text;
} prediction_job;

/* Reads the ground truth and everything else that does not need the model. */
int  job_open(prediction_job *j, const samite_predict_options *o, const samite_model *m, samite_error *err);
void job_free(prediction_job *j);

/* Writes the record of image number `at`; `error`: the picture could not be used. */
int  record_write(const prediction_job *j, size_t at, const detection *d, size_t count, int width, int height,
                  const char *error, samite_error *err);
/* Is there a record of image `at` made with the same settings? *failed: it says that the picture could not be used. */
bool record_finished(const prediction_job *j, size_t at, bool *failed);
/* Joins all records. out->complete = 0 when one is missing. */
int  records_join(const prediction_job *j, samite_predicted *out, samite_error *err);

#endif
