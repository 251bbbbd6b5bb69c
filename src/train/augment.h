/* augment.h - a picture and its objects as the network is shown them: resized to a random square, put somewhere on
 * black. */
#ifndef TRAIN_AUGMENT_H
#define TRAIN_AUGMENT_H

#include "io/image.h"
#include "train/dataset.h"

/* Where the picture lands on the input. */
typedef struct placement {
    int size, left, top;
} placement;

/* The official choice: side from {480, 512, .. up to the input's side} (480 in proportion to other sides than 1008),
 * place uniform. Depends on its arguments only. */
placement placement_draw(uint64_t seed, uint64_t epoch, uint64_t image, int side);
/* The whole input, as in validation. */
placement placement_whole(int side);

/* Resized as PIL's bilinear filter does it (antialiased, 8 bits between the passes). out [to, to, 3]. */
int resize_as_pil(uint8_t *out, int to, const pixels *in, samite_error *err);
/* A mask of zeros and ones, as torchvision resizes bytes: antialiased in f32, rounded half to even. */
int resize_mask(uint8_t *out, int to_width, int to_height, const uint8_t *in, int width, int height, samite_error *err);

/* The picture on the input: out [side, side, 3], -1..1, black where it is not. */
int place_picture(float *out, int side, const pixels *in, placement at, samite_error *err);
/* The object's mask on the input, out [side, side]; *valid = false (and an empty mask): the object has none. */
int place_mask(uint8_t *out, bool *valid, int side, const train_object *x, const train_image *record, int width,
               int height, placement at, samite_error *err);
/* The box as fractions of the input, cx cy w h, in the official order of operations in f32. width and height: of the
 * decoded picture. Returns the area that decides whether the object is large enough to be learnt. */
double place_box(float *out, int side, const train_object *x, const train_image *record, int width, int height,
                 placement at);
#define LEAST_AREA 1e-6

#endif
