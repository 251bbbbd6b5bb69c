/* protobuf.c - tags, varints and lengths. */
#include "formats/protobuf.h"

#include <string.h>

static void put_varint(text *m, uint64_t v)
{
    char bytes[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        bytes[n++] = (char)(v | 0x80);
    bytes[n++] = (char)v;
    text_add(m, bytes, n);
}

static void put_tag(text *m, int field, int wire)
{
    put_varint(m, (uint64_t)field << 3 | (uint64_t)wire);
}

void pb_varint(text *m, int field, uint64_t value)
{
    put_tag(m, field, 0);
    put_varint(m, value);
}

void pb_float(text *m, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    char bytes[4] = {(char)bits, (char)(bits >> 8), (char)(bits >> 16), (char)(bits >> 24)};
    put_tag(m, field, 5);
    text_add(m, bytes, sizeof bytes);
}

void pb_header(text *m, int field, uint64_t size)
{
    put_tag(m, field, 2);
    put_varint(m, size);
}

void pb_bytes(text *m, int field, const void *data, size_t size)
{
    pb_header(m, field, size);
    text_add(m, data, size);
}

void pb_string(text *m, int field, const char *s)
{
    pb_bytes(m, field, s, strlen(s));
}

void pb_message(text *m, int field, text *inner)
{
    m->failed |= inner->failed;
    pb_bytes(m, field, inner->data ? inner->data : "", inner->size);
    text_free(inner);
}

/* ---- reading ---- */

pb_reader pb_read(const void *data, size_t size)
{
    const uint8_t *p = data;
    return (pb_reader){p, p ? p + size : p, false};
}

static bool get_varint(pb_reader *r, uint64_t *v)
{
    *v = 0;
    for (int shift = 0; shift < 70 && r->at < r->end; shift += 7) {
        uint8_t byte = *r->at++;
        if (shift < 64)
            *v |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool get_fixed(pb_reader *r, int bytes, uint64_t *v)
{
    *v = 0;
    if (r->end - r->at < bytes)
        return false;
    for (int i = 0; i < bytes; i++)
        *v |= (uint64_t)*r->at++ << 8 * i;
    return true;
}

static bool get_value(pb_reader *r, pb_field *f)
{
    uint64_t size;
    switch (f->wire) {
    case 0: return get_varint(r, &f->value);
    case 1: return get_fixed(r, 8, &f->value);
    case 5: return get_fixed(r, 4, &f->value);
    case 2:
        if (!get_varint(r, &size) || size > (uint64_t)(r->end - r->at))
            return false;
        f->data = r->at;
        f->size = (size_t)size;
        r->at += size;
        return true;
    default: return false;
    }
}

bool pb_next(pb_reader *r, pb_field *f)
{
    uint64_t tag;
    if (r->broken || r->at >= r->end)
        return false;
    *f = (pb_field){0};
    if (!get_varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > INT32_MAX) {
        r->broken = true;
        return false;
    }
    f->number = (int)(tag >> 3);
    f->wire = (int)(tag & 7);
    r->broken = !get_value(r, f);
    return !r->broken;
}

bool pb_integers(const pb_field *f, int64_t *out, int *count, int room)
{
    pb_reader r = pb_read(f->data, f->size);
    uint64_t v = f->value;
    if (f->wire != 2 && *count < room) {
        out[(*count)++] = (int64_t)v;
        return true;
    }
    if (f->wire != 2)
        return false;
    while (r.at < r.end) {
        if (!get_varint(&r, &v) || *count >= room)
            return false;
        out[(*count)++] = (int64_t)v;
    }
    return true;
}
