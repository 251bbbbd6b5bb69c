/* zip.c - reads and writes archives of stored files. */
#include "formats/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/text.h"

#define LOCAL_SIGNATURE 0x04034B50u
#define CENTRAL_SIGNATURE 0x02014B50u
#define DESCRIPTOR_SIGNATURE 0x08074B50u
#define END_SIGNATURE 0x06054B50u
#define END64_SIGNATURE 0x06064B50u
#define LOCATOR64_SIGNATURE 0x07064B50u
#define LOCAL_SIZE 30
#define CENTRAL_SIZE 46
#define END_SIZE 22
#define END64_SIZE 56
#define LOCATOR64_SIZE 20
#define ENTRY_LIMIT ((uint64_t)1 << 20)
#define ALIGN 64
#define MAX32 0xFFFFFFFFu

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

bool zip_detect(const uint8_t *data, size_t size)
{
    return size >= 4 && (get(data, 4) == LOCAL_SIGNATURE || get(data, 4) == END_SIGNATURE);
}

typedef struct archive {
    const uint8_t *data;
    uint64_t       size;
    const char    *path;
} archive;

typedef struct directory {
    uint64_t at, size, count;
} directory;

/* Offset of the end record, searched from the back because a comment may follow it; -1: none. */
static int64_t find_end(const archive *a)
{
    uint64_t lowest = a->size > END_SIZE + 0xFFFF ? a->size - END_SIZE - 0xFFFF : 0;
    for (uint64_t at = a->size >= END_SIZE ? a->size - END_SIZE + 1 : 0; at-- > lowest;)
        if (get(a->data + at, 4) == END_SIGNATURE)
            return (int64_t)at;
    return -1;
}

static int find_directory(directory *d, const archive *a, samite_error *err)
{
    int64_t end = find_end(a);
    if (end < 0)
        return fail(err, SAMITE_INPUT, "%s: starts as a zip file but its end is missing after %" PRIu64
                    " bytes; it is cut short, get it again", a->path, a->size);
    const uint8_t *p = a->data + end;
    *d = (directory){.count = get(p + 10, 2), .size = get(p + 12, 4), .at = get(p + 16, 4)};
    const uint8_t *locator = p - LOCATOR64_SIZE;
    if (end >= LOCATOR64_SIZE && get(locator, 4) == LOCATOR64_SIGNATURE) {
        uint64_t at = get(locator + 8, 8);
        if (at > a->size || a->size - at < END64_SIZE || get(a->data + at, 4) != END64_SIGNATURE)
            return fail(err, SAMITE_INPUT, "%s: damaged zip file: its ZIP64 end record is not where it should be",
                        a->path);
        p = a->data + at;
        *d = (directory){.count = get(p + 32, 8), .size = get(p + 40, 8), .at = get(p + 48, 8)};
    }
    if (d->at > a->size || d->size > a->size - d->at || d->count > ENTRY_LIMIT || d->count > d->size / CENTRAL_SIZE)
        return fail(err, SAMITE_INPUT, "%s: damaged zip file: a directory of %" PRIu64 " entries at byte %" PRIu64
                    " does not fit into %" PRIu64 " bytes", a->path, d->count, d->at, a->size);
    return SAMITE_OK;
}

/* Sizes and offset that the 32-bit fields cannot hold stand in an extra field, in this order, only those needed. */
static bool read_zip64(const uint8_t *extra, size_t size, uint64_t *full, uint64_t *packed, uint64_t *offset)
{
    uint64_t *wanted[3] = {full, packed, offset};
    while (size >= 4) {
        size_t n = get(extra + 2, 2);
        if (n > size - 4)
            return false;
        if (get(extra, 2) == 1) {
            const uint8_t *p = extra + 4, *stop = p + n;
            for (int i = 0; i < 3; i++) {
                if (*wanted[i] != MAX32)
                    continue;
                if (stop - p < 8)
                    return false;
                *wanted[i] = get(p, 8);
                p += 8;
            }
            return true;
        }
        extra += 4 + n;
        size -= 4 + n;
    }
    return *full != MAX32 && *packed != MAX32 && *offset != MAX32;
}

/* Where the entry's bytes start: behind its local header, whose lengths may differ from the directory's. */
static int locate(zip_entry *e, const archive *a, uint64_t offset, samite_error *err)
{
    bool inside = offset <= a->size && a->size - offset >= LOCAL_SIZE && get(a->data + offset, 4) == LOCAL_SIGNATURE;
    if (inside) {
        offset += LOCAL_SIZE + get(a->data + offset + 26, 2) + get(a->data + offset + 28, 2);
        inside = offset <= a->size && e->size <= a->size - offset;
    }
    if (!inside)
        return fail(err, SAMITE_INPUT, "%s: damaged zip file: entry \"%s\" of %" PRIu64 " bytes at byte %" PRIu64
                    " lies outside the file", a->path, e->name, e->size, offset);
    e->data = a->data + offset;
    return SAMITE_OK;
}

/* Reads the directory record at *p (before `stop`) into *e and moves on. */
static int read_record(zip_entry *e, const uint8_t **p, const uint8_t *stop, const archive *a, samite_error *err)
{
    const uint8_t *r = *p;
    bool good = stop - r >= CENTRAL_SIZE && get(r, 4) == CENTRAL_SIGNATURE;
    size_t name = good ? get(r + 28, 2) : 0, extra = good ? get(r + 30, 2) : 0, note = good ? get(r + 32, 2) : 0;
    if (!good || name + extra + note > (size_t)(stop - r) - CENTRAL_SIZE)
        return fail(err, SAMITE_INPUT, "%s: damaged zip file: its directory breaks off", a->path);
    unsigned flags = (unsigned)get(r + 8, 2), method = (unsigned)get(r + 10, 2);
    uint64_t packed = get(r + 20, 4), offset = get(r + 42, 4);
    e->crc = (uint32_t)get(r + 16, 4);
    e->size = get(r + 24, 4);
    e->name = calloc(name + 1, 1);
    if (!e->name)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", a->path);
    memcpy(e->name, r + CENTRAL_SIZE, name);
    *p = r + CENTRAL_SIZE + name + extra + note;
    if (strlen(e->name) != name || !read_zip64(r + CENTRAL_SIZE + name, extra, &e->size, &packed, &offset))
        return fail(err, SAMITE_INPUT, "%s: damaged zip file: bad record of entry \"%s\"", a->path, e->name);
    if (method != 0 || packed != e->size || (flags & 1))
        return SAMITE_OK;            /* compressed or encrypted: listed without data */
    return locate(e, a, offset, err);
}

int zip_open(zip *out, const uint8_t *data, size_t size, const char *path, samite_error *err)
{
    archive a = {data, size, path};
    directory d = {0};
    memset(out, 0, sizeof *out);
    int code = find_directory(&d, &a, err);
    if (code)
        return code;
    out->entries = calloc(d.count ? d.count : 1, sizeof *out->entries);
    if (!out->entries)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    const uint8_t *p = data + d.at, *stop = p + d.size;
    while (!code && out->count < d.count) {
        code = read_record(&out->entries[out->count], &p, stop, &a, err);
        out->count++;
    }
    if (code)
        zip_close(out);
    return code;
}

void zip_close(zip *z)
{
    for (size_t i = 0; i < z->count; i++)
        free(z->entries[i].name);
    free(z->entries);
    memset(z, 0, sizeof *z);
}

/* A header being put together; all of them are far smaller than this. */
typedef struct header {
    uint8_t bytes[128];
    size_t  size;
} header;

static void put(header *h, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        h->bytes[h->size++] = (uint8_t)(value >> (8 * i));
}

static void emit(zip_writer *z, const void *data, size_t size)
{
    file_write(&z->file, data, size);
    z->at += size;
}

int zip_create(zip_writer *z, const char *path, samite_error *err)
{
    memset(z, 0, sizeof *z);
    return file_writer_open(&z->file, path, err);
}

/* The descriptor behind the data gives checksum and size, which the local header could not know yet. */
static void end_entry(zip_writer *z)
{
    if (!z->count)
        return;
    z->misused |= z->left != 0;
    const zip_record *r = &z->records[z->count - 1];
    int width = r->size >= MAX32 ? 8 : 4;
    header h = {.size = 0};
    put(&h, DESCRIPTOR_SIGNATURE, 4);
    put(&h, r->crc, 4);
    put(&h, r->size, width);
    put(&h, r->size, width);
    emit(z, h.bytes, h.size);
}

static zip_record *new_record(zip_writer *z, const char *name)
{
    if (z->count == z->room) {
        size_t room = z->room ? 2 * z->room : 256;
        zip_record *grown = realloc(z->records, room * sizeof *grown);
        if (!grown)
            return NULL;
        z->records = grown;
        z->room = room;
    }
    zip_record *r = &z->records[z->count];
    *r = (zip_record){.name = text_copy(name), .offset = z->at, .crc = (uint32_t)crc32(0, NULL, 0)};
    if (!r->name)
        return NULL;
    z->count++;
    return r;
}

void zip_begin(zip_writer *z, const char *name, uint64_t size)
{
    static const char filling[ALIGN] = "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
    end_entry(z);
    z->left = size;
    zip_record *r = new_record(z, name);
    if (!r) {
        z->no_memory = true;
        return;
    }
    r->size = size;
    bool large = size >= MAX32;
    size_t length = strlen(name), sizes = large ? 20 : 0;
    size_t pad = (ALIGN - (z->at + LOCAL_SIZE + length + sizes + 4) % ALIGN) % ALIGN;
    z->misused |= length > 0xFFFF;
    header h = {.size = 0};
    put(&h, LOCAL_SIGNATURE, 4);
    put(&h, large ? 45 : 20, 2);
    put(&h, 0x0808, 2);                     /* sizes in the descriptor, name in UTF-8 */
    put(&h, 0, 6);                          /* stored; no time */
    put(&h, 0, 4);                          /* checksum: in the descriptor */
    put(&h, large ? MAX32 : 0, 4);
    put(&h, large ? MAX32 : 0, 4);
    put(&h, length, 2);
    put(&h, sizes + 4 + pad, 2);
    emit(z, h.bytes, h.size);
    emit(z, name, length);
    h.size = 0;
    if (large) {
        put(&h, 1, 2);
        put(&h, 16, 2);
        put(&h, size, 8);
        put(&h, size, 8);
    }
    put(&h, 'F' | 'B' << 8, 2);
    put(&h, pad, 2);
    emit(z, h.bytes, h.size);
    emit(z, filling, pad);
}

void zip_put(zip_writer *z, const void *data, size_t size)
{
    if (z->no_memory || !z->count || size > z->left) {
        z->misused |= !z->no_memory;
        return;
    }
    zip_record *r = &z->records[z->count - 1];
    r->crc = (uint32_t)crc32_z(r->crc, data, size);
    z->left -= size;
    emit(z, data, size);
}

static void write_record(zip_writer *z, const zip_record *r)
{
    uint64_t size = r->size >= MAX32 ? MAX32 : r->size, offset = r->offset >= MAX32 ? MAX32 : r->offset;
    size_t extra = (size == MAX32 ? 16 : 0) + (offset == MAX32 ? 8 : 0);
    header h = {.size = 0};
    put(&h, CENTRAL_SIGNATURE, 4);
    put(&h, 45, 2);
    put(&h, extra ? 45 : 20, 2);
    put(&h, 0x0808, 2);
    put(&h, 0, 6);
    put(&h, r->crc, 4);
    put(&h, size, 4);
    put(&h, size, 4);
    put(&h, strlen(r->name), 2);
    put(&h, extra ? extra + 4 : 0, 2);
    put(&h, 0, 6);
    put(&h, 0, 4);
    put(&h, offset, 4);
    emit(z, h.bytes, h.size);
    emit(z, r->name, strlen(r->name));
    h.size = 0;
    if (extra) {
        put(&h, 1, 2);
        put(&h, extra, 2);
    }
    if (size == MAX32) {
        put(&h, r->size, 8);
        put(&h, r->size, 8);
    }
    if (offset == MAX32)
        put(&h, r->offset, 8);
    emit(z, h.bytes, h.size);
}

/* The end of the archive; the ZIP64 records are there when a number does not fit the old ones. */
static void write_end(zip_writer *z, uint64_t start)
{
    uint64_t end = z->at, size = end - start;
    header h = {.size = 0};
    if (z->count >= 0xFFFF || start >= MAX32 || size >= MAX32) {
        put(&h, END64_SIGNATURE, 4);
        put(&h, END64_SIZE - 12, 8);
        put(&h, 45, 2);
        put(&h, 45, 2);
        put(&h, 0, 8);
        put(&h, z->count, 8);
        put(&h, z->count, 8);
        put(&h, size, 8);
        put(&h, start, 8);
        put(&h, LOCATOR64_SIGNATURE, 4);
        put(&h, 0, 4);
        put(&h, end, 8);
        put(&h, 1, 4);
    }
    uint64_t count = z->count < 0xFFFF ? z->count : 0xFFFF;
    put(&h, END_SIGNATURE, 4);
    put(&h, 0, 4);
    put(&h, count, 2);
    put(&h, count, 2);
    put(&h, size < MAX32 ? size : MAX32, 4);
    put(&h, start < MAX32 ? start : MAX32, 4);
    put(&h, 0, 2);
    emit(z, h.bytes, h.size);
}

int zip_commit(zip_writer *z, samite_error *err)
{
    int code = SAMITE_OK;
    end_entry(z);
    if (z->no_memory)
        code = fail(err, SAMITE_RESOURCE, "%s: out of memory", z->file.path);
    else if (z->misused)
        code = fail(err, SAMITE_FAILED, "%s: an entry did not get the bytes that were announced", z->file.path);
    if (!code) {
        uint64_t start = z->at;
        for (size_t i = 0; i < z->count; i++)
            write_record(z, &z->records[i]);
        write_end(z, start);
        code = file_writer_commit(&z->file, err);
    }
    zip_abort(z);
    return code;
}

void zip_abort(zip_writer *z)
{
    file_writer_abort(&z->file);
    for (size_t i = 0; i < z->count; i++)
        free(z->records[i].name);
    free(z->records);
    memset(z, 0, sizeof *z);
}
