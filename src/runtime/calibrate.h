/* calibrate.h - how much every layer loses in 8 bits, measured on the rows that it meets. */
#ifndef RUNTIME_CALIBRATE_H
#define RUNTIME_CALIBRATE_H

#include "runtime/native.h"

/* What is known of one tensor of weights; several layers may share it. */
typedef struct calibrated {
    entry  *e;
    double  error;           /* |8 bits - f32| / |f32 - its mean| of the outputs, the mean of each output over the rows, of
                                the layer that loses most; may be NaN */
    int64_t rows;            /* compared, of the layer that met fewest: 0 says nothing about the error */
} calibrated;

typedef struct calibration calibration;

/* For a model in f32. Errors: 8 bits are not computed on this CPU, or out of memory. */
int  calibration_open(calibration **out, const native *n, samite_error *err);
void calibration_close(calibration *c);                 /* accepts NULL */
/* For run_options.rows; `user` is the calibration. Some rows, evenly spread, are computed in 8 bits too. */
void calibration_rows(void *user, const linear_w *w, const float *x, int64_t ld, int64_t rows);
/* The tensors of all layers that 8 bits are for, in the order of the registry; borrowed. A failure on the way (memory)
 * is told here. */
int  calibration_result(calibration *c, const calibrated **list, size_t *count, samite_error *err);

#endif
