/* tensorboard.h - event files that TensorBoard reads: scalars only. */
#ifndef TRAIN_TENSORBOARD_H
#define TRAIN_TENSORBOARD_H

#include <stdint.h>
#include <stdio.h>

#include "base/text.h"

/* One record: length, its checksum, the event, its checksum. */
void tensorboard_start(text *out, double wall_time);
void tensorboard_scalar(text *out, double wall_time, int64_t step, const char *tag, float value);
/* CRC-32C as the format masks it. */
uint32_t tensorboard_checksum(const void *data, size_t size);

#endif
