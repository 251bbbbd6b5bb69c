/* pack_cache.h - packed weights kept in files: the next process maps them instead of packing again. */
#ifndef RUNTIME_PACK_CACHE_H
#define RUNTIME_PACK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "ops/tensor.h"

#define PACK_FILES 16            /* parts of a model, numbered from 0 */

/* One packed matrix of a part: where its weights are or shall be, and what they must be. */
typedef struct pack_item {
    gemm_weights **packed;
    int64_t        out, in;
    bool           bias;
    gemm_type      type;
} pack_item;

typedef struct pack_cache pack_cache;

/* Files are FOLDER/HASH-OF-KEY/PART.pack. `key` says all that the bytes depend on besides the library and the processor,
 * which are added. Parts of fewer than `least` bytes are not kept. NULL: out of memory. Nothing is made yet. */
pack_cache *pack_cache_open(const char *folder, const char *key, size_t least);
/* Fills every *packed of the part from its file, which stays mapped as long as the cache is open; false: there is none that
 * fits, and nothing was changed. */
bool pack_cache_take(pack_cache *c, int part, const pack_item *item, size_t count);
/* Begins to write the part's file from *packed in the background, unless it is small or the disk is nearly full. */
void pack_cache_put(pack_cache *c, int part, const pack_item *item, size_t count);
/* Waits until the part's weights may be freed. */
void pack_cache_settle(pack_cache *c, int part);
/* The part's pages need not stay in memory: they are read again when touched. */
void pack_cache_drop(pack_cache *c, int part);
bool pack_cache_mapped(const pack_cache *c, int part);
/* Waits for all writing; the code and line of the first failure, which is nothing but a pity. */
int  pack_cache_finish(pack_cache *c, samite_error *err);
void pack_cache_close(pack_cache *c);                  /* accepts NULL; no weights taken from it may be in use */

/* $SAMITE_CACHE_DIR, else $XDG_CACHE_HOME/samite, else ~/.cache/samite, yours to free; NULL: SAMITE_NO_CACHE is set and
 * not "0", there is no such folder to be named, or memory is out. */
char *pack_cache_folder(void);
/* Bytes and files kept in `folder`; `remove`: deletes them, half-written ones too. Other files are left alone. */
int  pack_cache_survey(const char *folder, bool remove, uint64_t *bytes, int *files, samite_error *err);

#endif
