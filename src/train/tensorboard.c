/* tensorboard.c - TFRecord framing around Event messages of a few fields. */
#include "train/tensorboard.h"

#include <string.h>

#include "formats/protobuf.h"

/* Event: 1 wall_time (double), 2 step, 3 file_version, 5 summary. Summary: 1 value. Value: 1 tag, 2 simple_value. */
enum {
    EVENT_TIME = 1,
    EVENT_STEP,
    EVENT_VERSION,
    EVENT_SUMMARY = 5,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_NUMBER = 2
};

#define CASTAGNOLI 0x82f63b78u

uint32_t tensorboard_checksum(const void *data, size_t size)
{
    const uint8_t *p = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? CASTAGNOLI : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void add_little(text *t, uint64_t v, int bytes)
{
    char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (char)(v >> 8 * i & 0xff);
    text_add(t, out, (size_t)bytes);
}

static void add_record(text *out, text *event)
{
    char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (char)((uint64_t)event->size >> 8 * i & 0xff);
    text_add(out, length, 8);
    add_little(out, tensorboard_checksum(length, 8), 4);
    text_add(out, event->data, event->size);
    add_little(out, tensorboard_checksum(event->data, event->size), 4);
    out->failed |= event->failed;
    text_free(event);
}

static void add_time(text *event, double wall_time)
{
    uint64_t bits;
    memcpy(&bits, &wall_time, sizeof bits);
    char tag = EVENT_TIME << 3 | 1;
    text_add(event, &tag, 1);
    add_little(event, bits, 8);
}

void tensorboard_start(text *out, double wall_time)
{
    text event = {0};
    add_time(&event, wall_time);
    pb_string(&event, EVENT_VERSION, "brain.Event:2");
    add_record(out, &event);
}

void tensorboard_scalar(text *out, double wall_time, int64_t step, const char *tag, float value)
{
    text event = {0}, summary = {0}, one = {0};
    pb_string(&one, VALUE_TAG, tag);
    pb_float(&one, VALUE_NUMBER, value);
    pb_message(&summary, SUMMARY_VALUE, &one);
    add_time(&event, wall_time);
    pb_varint(&event, EVENT_STEP, (uint64_t)step);
    pb_message(&event, EVENT_SUMMARY, &summary);
    add_record(out, &event);
}
