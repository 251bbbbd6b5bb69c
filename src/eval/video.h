/* video.h - how well objects are followed: HOTA and its parts, J and F of DAVIS. */
#ifndef EVAL_VIDEO_H
#define EVAL_VIDEO_H

#include "eval/tracks.h"

#define HOTA_ALPHAS 19      /* 0.05, 0.1 .. 0.95 */

/* Tracks of one category in one video: numbers into the sets' tracks. */
typedef struct sequence {
    const track_set *truth, *results;
    int32_t          video, category;
    uint32_t        *g, *d;
    size_t           truths, found;
    double         **iou;       /* [frames] of [truths, found]: overlap where both are seen, else 0 */
} sequence;

/* Fills `iou`, on all threads. sequence_free frees it; g and d are borrowed. */
int  sequence_open(sequence *s, samite_error *err);
void sequence_free(sequence *s);
bool sequence_sees(const sequence *s, bool truth, size_t which, size_t frame);

typedef struct hota {
    double tp[HOTA_ALPHAS], fn[HOTA_ALPHAS], fp[HOTA_ALPHAS];
    double located[HOTA_ALPHAS];                 /* sum of overlaps of matches */
    double ass_a[HOTA_ALPHAS], ass_re[HOTA_ALPHAS], ass_pr[HOTA_ALPHAS];   /* means over matches; in sums: times tp */
} hota;
int  hota_sequence(hota *out, const sequence *s, samite_error *err);
/* Adds a sequence to the sums (which start as zeros). */
void hota_add(hota *sum, const hota *one);

enum {
    HOTA_HOTA,
    HOTA_DETA,
    HOTA_ASSA,
    HOTA_DETRE,
    HOTA_DETPR,
    HOTA_ASSRE,
    HOTA_ASSPR,
    HOTA_LOCA,
    HOTA_OWTA,
    HOTA_NUMBERS
};
extern const char *const hota_names[HOTA_NUMBERS];
void hota_numbers(double out[HOTA_NUMBERS][HOTA_ALPHAS], const hota *sum);

enum { JF_J, JF_J_RECALL, JF_J_DECAY, JF_F, JF_F_RECALL, JF_F_DECAY, JF_NUMBERS };
extern const char *const jf_names[JF_NUMBERS];
/* Means over the objects of a sequence; each object is judged by the track that fits it best (one to one). */
int  jf_sequence(double out[JF_NUMBERS], const sequence *s, samite_error *err);

/* F of two masks (row-major, 0 or 1): agreement of their borders within a distance of 0.8 % of the diagonal. Pure. */
int  border_f(double *out, const uint8_t *found, const uint8_t *truth, int width, int height, samite_error *err);

#endif
