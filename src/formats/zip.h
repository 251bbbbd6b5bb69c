/* zip.h - zip archives of stored (uncompressed) files, as torch.save makes them, with ZIP64. */
#ifndef FORMATS_ZIP_H
#define FORMATS_ZIP_H

#include <stdbool.h>

#include "base/file.h"

typedef struct zip_entry {
    char          *name;       /* owned */
    const uint8_t *data;       /* NULL if compressed or encrypted */
    uint64_t       size;
    uint32_t       crc;        /* as the archive states it; not checked on opening */
} zip_entry;

typedef struct zip {
    zip_entry *entries;
    size_t     count;
} zip;

bool zip_detect(const uint8_t *data, size_t size);
/* Reads the directory of an archive in memory, which must outlive *out. Every entry lies inside it. */
int  zip_open(zip *out, const uint8_t *data, size_t size, const char *path, samite_error *err);
void zip_close(zip *z);

typedef struct zip_record {
    char    *name;
    uint64_t offset, size;
    uint32_t crc;
} zip_record;

/* Writes an archive entry by entry; the data of each starts at a multiple of 64 bytes. Errors are remembered until
 * commit. */
typedef struct zip_writer {
    file_writer file;
    uint64_t    at, left;      /* bytes written; bytes that the open entry still expects */
    zip_record *records;
    size_t      count, room;
    bool        misused, no_memory;
} zip_writer;

int  zip_create(zip_writer *z, const char *path, samite_error *err);
/* Starts an entry of exactly `size` bytes; zip_put() then hands them over in any number of calls. */
void zip_begin(zip_writer *z, const char *name, uint64_t size);
void zip_put(zip_writer *z, const void *data, size_t size);
int  zip_commit(zip_writer *z, samite_error *err);
void zip_abort(zip_writer *z);

#endif
