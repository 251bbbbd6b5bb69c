/* geometry.h - example boxes and points as prompt tokens that have looked at the picture. */
#ifndef MODEL_GEOMETRY_H
#define MODEL_GEOMETRY_H

#include "model/blocks.h"

#define ROI_SIZE 7

/* A transformer layer with norms before: self-attention, attention to something, feed-forward. */
typedef struct encoder_layer {
    attend_w self, cross;
    norm_w   norm1, norm2, norm3;
    linear_w fc1, fc2;
} encoder_layer;
void declare_encoder_layer(registry *g, encoder_layer *l, int64_t d, int heads, int64_t hidden);

typedef struct geometry_encoder {
    param   *label;                                    /* [2, d]: negative, positive */
    param   *cls;                                      /* [1, d] */
    linear_w point_direct, point_pool, point_position; /* [d, 2], [d, d], [d, d] */
    linear_w box_direct, box_position;                 /* [d, 4], [d, d + 2] */
    conv_w   box_pool;                                 /* 7x7 over the pooled region */
    linear_w final;
    norm_w   final_norm, image_norm, encode_norm;
    encoder_layer *layer;
    int      layers;
} geometry_encoder;

bool geometry_open(geometry_encoder *e, registry *g, const config *c);
void geometry_close(geometry_encoder *e);

/* Example boxes as values of the run, for exports, where numbers and labels come in later; n for each of B pictures. */
typedef struct box_values {
    tensor *boxes;                 /* [B n, 4] cx cy w h as fractions of the picture */
    tensor *corners;               /* [B n, 4] x0 y0 x1 y1 in feature pixels */
    tensor *labels;                /* [B n, d] rows of `label` */
    tensor *unused;                /* [B, n + 1] 1 = there is no such box; NULL = all are there. The last is CLS: 0 */
} box_values;

/* Example boxes and points of one prompt; coordinates are fractions of the picture. */
typedef struct examples {
    const float *boxes;            /* [n, 4] cx cy w h */
    const int   *box_positive;     /* [n] 1 or 0 */
    int          box_count;
    const float *points;           /* [m, 2] x y */
    const int   *point_positive;
    int          point_count;
    const box_values *values;      /* instead of all above, or NULL */
} examples;

/* image [B, t, t, d] and its position codes [t, t, d] -> [B, points + boxes + 1, d]; the last token is CLS. Examples need a
 * single picture, unless they are `values`. `prompts` above 1: that many answers to one picture, which differ by what is dropped. Notes geometry. */
tensor *geometry_forward(run *r, const geometry_encoder *e, const examples *x, tensor *image, tensor *codes,
                         int64_t prompts);

#endif
