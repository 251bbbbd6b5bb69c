/* detect.h - what the detector sees on a frame of a video. */
#ifndef TRACK_DETECT_H
#define TRACK_DETECT_H

#include "model/sam3.h"
#include "track/net.h"
#include "track/options.h"

typedef struct detections {
    int    queries;
    float *logits;             /* [queries] presence inside; with suppression, those that are out lost 10,000 */
    float *corners;            /* [queries, 4] x0 y0 x1 y1 in 0..1 */
    int    count;              /* of what is left, in the order of queries */
    int   *query;
    float *scores;             /* [count] */
    float *boxes;              /* [count, 4] as corners */
    float *masks;              /* [count, pixels] logits */
} detections;

/* words [1, n, d] and examples (may be NULL) in the picture. Nothing stays in the run. On failure *out is empty. */
int  detect(detections *out, run *r, const sam3 *net, const encoded_image *im, tensor *words, const examples *x,
            const track_options *o, samite_error *err);
/* The same computed elsewhere; pixels: of a mask. */
int  detect_elsewhere(detections *out, const elsewhere *e, int64_t pixels, const float *words, int tokens,
                      const examples *x, const track_options *o, samite_error *err);
/* A frame on which nothing is looked for. */
void detections_free(detections *d);

#endif
