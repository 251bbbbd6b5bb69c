/* pack_cache.c - fuzz target: a file of packed weights with changed bytes, and a checksum that fits them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "runtime/pack_cache.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As pack_cache.c writes it: magic and checksum, then what the checksum is of: the count, the key, the places. */
enum { HEAD = 16, COUNT_AND_KEY = 8 + 768, PLACE = 16, ITEMS = 3, OUT = 24, IN = 20 };

static char folder[] = "/tmp/samite-fuzz-pack-XXXXXX", path[96];
static uint8_t *original;
static size_t bytes;

static void items_of(pack_item *item, gemm_weights **w)
{
    static const gemm_type types[ITEMS] = {GEMM_F32, GEMM_BF16, GEMM_INT8};
    for (int i = 0; i < ITEMS; i++)
        item[i] = (pack_item){&w[i], OUT, IN, i != 1, types[i]};
}

static void remove_all(void)
{
    char line[96];
    snprintf(line, sizeof line, "rm -rf %s", folder);
    if (system(line))
        _Exit(1);
}

/* One genuine file, whose path and bytes are kept. */
static void make_original(void)
{
    gemm_weights *w[ITEMS];
    pack_item item[ITEMS];
    float values[OUT * IN], bias[OUT] = {1, 2, 3};
    char find[160];
    for (int i = 0; i < OUT * IN; i++)
        values[i] = (float)(i % 7) - 3;
    if (!mkdtemp(folder))
        abort();
    atexit(remove_all);
    pack_cache *c = pack_cache_open(folder, "fuzz", 1);
    items_of(item, w);
    for (int i = 0; i < ITEMS; i++)
        if (!(w[i] = gemm_pack(values, item[i].bias ? bias : NULL, OUT, IN, IN, item[i].type)))
            abort();
    pack_cache_put(c, 0, item, ITEMS);
    if (pack_cache_finish(c, NULL))
        abort();
    pack_cache_close(c);
    for (int i = 0; i < ITEMS; i++)
        gemm_weights_free(w[i]);
    snprintf(find, sizeof find, "echo %s/*/00.pack", folder);
    FILE *f = popen(find, "r");
    if (!f || fscanf(f, "%95s", path) != 1 || pclose(f) || file_read(&original, &bytes, path, 1 << 20, NULL))
        abort();
}

static void fit_checksum(uint8_t *image, size_t size)
{
    uint64_t count;
    if (size < HEAD + COUNT_AND_KEY)
        return;
    memcpy(&count, image + HEAD, sizeof count);
    if (count > (size - HEAD - COUNT_AND_KEY) / PLACE)
        return;
    uint64_t sum = hash_bytes(HASH_START, image + HEAD, COUNT_AND_KEY + (size_t)count * PLACE);
    memcpy(image + HEAD / 2, &sum, sizeof sum);
}

static void take(const uint8_t *image, size_t size)
{
    gemm_weights *w[ITEMS] = {NULL};
    pack_item item[ITEMS];
    float x[IN] = {1}, y[OUT], scratch[1024];
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(image, 1, size, f) != size || fclose(f))
        abort();
    pack_cache *c = pack_cache_open(folder, "fuzz", 1);
    items_of(item, w);
    if (pack_cache_take(c, 0, item, ITEMS))
        for (int i = 0; i < ITEMS; i++) {
            if (gemm_scratch(w[i], 1) <= sizeof scratch)
                gemm_run(w[i], y, OUT, x, IN, 1, ACT_NONE, NULL, scratch);
            gemm_weights_free(w[i]);
        }
    pack_cache_close(c);
}

/* data: size of the file modulo its genuine one (2 bytes, 0 = whole), then places (2 bytes) and what is put there (1). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!original)
        make_original();
    if (size < 2)
        return 0;
    uint8_t *image = malloc(bytes);
    if (!image)
        return 0;
    size_t cut = (size_t)(data[0] | data[1] << 8) % bytes, left = cut ? cut : bytes;
    memcpy(image, original, bytes);
    for (size_t i = 2; i + 3 <= size; i += 3)
        image[(size_t)(data[i] | data[i + 1] << 8) % bytes] = data[i + 2];
    fit_checksum(image, left);
    take(image, left);
    free(image);
    return 0;
}
