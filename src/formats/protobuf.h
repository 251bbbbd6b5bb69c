/* protobuf.h - the wire format of Protocol Buffers: messages written into growing memory, and read in place. */
#ifndef FORMATS_PROTOBUF_H
#define FORMATS_PROTOBUF_H

#include "base/text.h"

/* Writing. A message is a `text`; out of memory shows in its `failed`. */
void pb_varint(text *m, int field, uint64_t value);
void pb_float(text *m, int field, float value);
void pb_bytes(text *m, int field, const void *data, size_t size);
void pb_string(text *m, int field, const char *s);
void pb_message(text *m, int field, text *inner);             /* adds and frees `inner` */
/* Tag and length of a field whose `size` bytes follow by other means. */
void pb_header(text *m, int field, uint64_t size);

/* Reading. Fields are looked at one after the other; nothing is copied. */
typedef struct pb_reader {
    const uint8_t *at, *end;
    bool           broken;       /* the bytes are no message; every later call returns false */
} pb_reader;

typedef struct pb_field {
    int            number;
    int            wire;         /* 0 varint, 1 eight bytes, 2 bytes, 5 four bytes */
    uint64_t       value;        /* wires 0, 1, 5 */
    const uint8_t *data;         /* wire 2 */
    size_t         size;
} pb_field;

pb_reader pb_read(const void *data, size_t size);
bool      pb_next(pb_reader *r, pb_field *f);                 /* false: no more fields, or broken */
/* The numbers of a repeated integer field, whether packed or not: appends to out[0..*count), at most `room`; false:
 * more. */
bool      pb_integers(const pb_field *f, int64_t *out, int *count, int room);

#endif
