/* pack_cache.c - a file per part: a header with the key and the place of every matrix, then their bytes. */
#define _GNU_SOURCE
#include "runtime/pack_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"

#define MAGIC "samipk1"          /* with its NUL: 8 bytes; another number for another layout of file or matrices */
#define KEY_ROOM 768
#define ALIGNMENT 64
#define FREE_BYTES ((uint64_t)1 << 30)     /* left on the disk after writing */

typedef struct header {
    char     magic[8];
    uint64_t checksum;           /* of everything behind it up to the end of the places */
    uint64_t count;
    char     key[KEY_ROOM];
} header;

typedef struct place { uint64_t offset, bytes; } place;

typedef struct pack_job {
    pack_cache *cache;
    pthread_t   thread;
    bool        running;
    char       *path;
    pack_item  *item;
    size_t      count;
    int         code;
    samite_error error;
} pack_job;

struct pack_cache {
    char    *folder, key[KEY_ROOM];
    size_t   least;
    file_map map[PACK_FILES];
    pack_job job[PACK_FILES];
};

pack_cache *pack_cache_open(const char *folder, const char *key, size_t least)
{
    pack_cache *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->least = least;
    snprintf(c->key, sizeof c->key, "samite %s %.16s; %s; %s; %s; %s", SAMITE_VERSION, SAMITE_PACK_ID, gemm_library(),
             kernels_get()->level, kernels_cpu_features(), key);
    text path = {0};
    text_printf(&path, "%s/%016llx", folder, (unsigned long long)hash_bytes(HASH_START, c->key, strlen(c->key)));
    c->folder = path.data;
    if (path.failed) {
        pack_cache_close(c);
        return NULL;
    }
    return c;
}

static char *path_of(const pack_cache *c, int part)
{
    text path = {0};
    text_printf(&path, "%s/%02d.pack", c->folder, part);
    return path.failed ? NULL : path.data;
}

static uint64_t padded(uint64_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t checksum(const header *h, const place *p)
{
    uint64_t sum = hash_bytes(HASH_START, &h->count, sizeof h->count);
    sum = hash_bytes(sum, h->key, sizeof h->key);
    return hash_bytes(sum, p, sizeof *p * (size_t)h->count);
}

/* ---- taking ---- */

/* The places of a mapped file, or NULL: it is another's, of another version, or damaged. */
static const place *check(const pack_cache *c, const file_map *m, size_t count)
{
    const header *h = (const void *)m->data;
    const place *p = (const void *)(m->data + sizeof *h);
    if (m->size < sizeof *h || memcmp(h->magic, MAGIC, sizeof h->magic) != 0 || h->count != count ||
        count > (m->size - sizeof *h) / sizeof *p || memcmp(h->key, c->key, sizeof h->key) != 0 ||
        checksum(h, p) != h->checksum)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (p[i].offset % ALIGNMENT || p[i].offset > m->size || p[i].bytes > m->size - p[i].offset)
            return NULL;
    return p;
}

bool pack_cache_take(pack_cache *c, int part, const pack_item *item, size_t count)
{
    char *path = path_of(c, part);
    file_map m = {0};
    if (!path || c->map[part].data || file_map_open(&m, path, NULL)) {
        free(path);
        return false;
    }
    free(path);
    const place *p = m.data ? check(c, &m, count) : NULL;
    size_t done = 0;
    for (; p && done < count; done++) {
        const pack_item *it = &item[done];
        *it->packed = gemm_adopt(m.data + p[done].offset, (size_t)p[done].bytes, it->bias, it->out, it->in, it->type);
        if (!*it->packed)
            break;
    }
    if (p && done == count) {
        c->map[part] = m;
        return true;
    }
    while (done-- > 0) {
        gemm_weights_free(*item[done].packed);
        *item[done].packed = NULL;
    }
    file_map_close(&m);
    return false;
}

void pack_cache_drop(pack_cache *c, int part)
{
    file_map_drop(c->map[part].data, c->map[part].size);
}

bool pack_cache_mapped(const pack_cache *c, int part)
{
    return c->map[part].data != NULL;
}

/* ---- writing ---- */

static uint64_t bytes_of(const pack_item *it)
{
    gemm_piece piece[GEMM_PIECES];
    uint64_t bytes = 0;
    for (int i = 0, n = gemm_pieces(*it->packed, piece); i < n; i++)
        bytes += piece[i].bytes;
    return bytes;
}

/* The header and places of a job in one block, yours to free; *total: size of the file. NULL: out of memory. */
static header *lay_out(const pack_job *j, uint64_t *total)
{
    size_t head = sizeof(header) + j->count * sizeof(place);
    header *h = calloc(1, (size_t)padded(head));
    if (!h)
        return NULL;
    place *p = (place *)(h + 1);
    uint64_t at = padded(head);
    memcpy(h->magic, MAGIC, sizeof h->magic);
    memcpy(h->key, j->cache->key, sizeof h->key);
    h->count = j->count;
    for (size_t i = 0; i < j->count; i++) {
        p[i] = (place){at, bytes_of(&j->item[i])};
        at += padded(p[i].bytes);
    }
    h->checksum = checksum(h, p);
    *total = at;
    return h;
}

static void write_item(file_writer *w, const pack_item *it)
{
    static const char zeros[ALIGNMENT];
    gemm_piece piece[GEMM_PIECES];
    uint64_t bytes = bytes_of(it);
    for (int i = 0, n = gemm_pieces(*it->packed, piece); i < n; i++)
        file_write(w, piece[i].data, piece[i].bytes);
    file_write(w, zeros, (size_t)(padded(bytes) - bytes));
}

static int write_file(const pack_job *j, const header *h, samite_error *err)
{
    file_writer w;
    int code = make_folders(j->cache->folder, err);
    if (!code)
        code = file_writer_open(&w, j->path, err);
    if (code)
        return code;
    file_write(&w, h, (size_t)padded(sizeof *h + j->count * sizeof(place)));
    for (size_t i = 0; i < j->count && !w.failed; i++)
        write_item(&w, &j->item[i]);
    return file_writer_commit(&w, err);
}

static void *write_job(void *data)
{
    pack_job *j = data;
    uint64_t total;
    header *h = lay_out(j, &total);
    if (!h)
        j->code = fail(&j->error, SAMITE_RESOURCE, "out of memory");
    else
        j->code = write_file(j, h, &j->error);
    free(h);
    return NULL;
}

/* Is there room for `bytes` and some more in the nearest folder above `path` that exists? */
static bool disk_has(const char *path, uint64_t bytes)
{
    struct statvfs s;
    char *folder = text_copy(path), *slash = folder;
    bool known = false;
    while (folder && !known && (slash = strrchr(folder, '/')) && slash != folder) {
        *slash = '\0';
        known = statvfs(folder, &s) == 0;
    }
    free(folder);
    return known && (uint64_t)s.f_bavail * s.f_frsize >= bytes + FREE_BYTES;
}

void pack_cache_put(pack_cache *c, int part, const pack_item *item, size_t count)
{
    pack_job *j = &c->job[part];
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += bytes_of(&item[i]);
    if (bytes < c->least || j->path)
        return;
    *j = (pack_job){.cache = c, .path = path_of(c, part), .count = count, .item = malloc(count * sizeof *item + 1)};
    if (j->path && j->item && !disk_has(j->path, bytes))
        j->code = fail(&j->error, SAMITE_RESOURCE, "%s: less than %llu MB of disk are free", c->folder,
                       (unsigned long long)((bytes + FREE_BYTES) >> 20));
    else if (j->path && j->item) {
        memcpy(j->item, item, count * sizeof *item);
        j->running = pthread_create(&j->thread, NULL, write_job, j) == 0;
    }
}

void pack_cache_settle(pack_cache *c, int part)
{
    pack_job *j = &c->job[part];
    if (j->running)
        pthread_join(j->thread, NULL);
    j->running = false;
}

int pack_cache_finish(pack_cache *c, samite_error *err)
{
    int code = SAMITE_OK;
    for (int i = 0; i < PACK_FILES; i++) {
        pack_cache_settle(c, i);
        if (c->job[i].code && !code) {
            code = c->job[i].code;
            if (err)
                *err = c->job[i].error;
        }
    }
    return code;
}

void pack_cache_close(pack_cache *c)
{
    if (!c)
        return;
    pack_cache_finish(c, NULL);
    for (int i = 0; i < PACK_FILES; i++) {
        free(c->job[i].path);
        free(c->job[i].item);
        file_map_close(&c->map[i]);
    }
    free(c->folder);
    free(c);
}
