/* tokenizer.c - any bytes become ids: bounds, the shape of the result, and the same again. The first byte chooses the
 * context. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int32_t ids[80], again[80];
    bool cut, cut_again;
    if (size == 0)
        return 0;
    int context = data[0] % 79 + 2;
    int n = tokenize(ids, context, (const char *)data + 1, size - 1, &cut);
    if (n < 2 || n > context || ids[0] != BPE_START || ids[n - 1] != BPE_END || (cut && n < context))
        abort();
    for (int i = 0; i < context; i++)
        if (ids[i] < 0 || ids[i] >= BPE_VOCABULARY || (i >= n && ids[i] != 0))
            abort();
    /* a shorter context gives the same ids, cut */
    int fewer = context > 2 ? context - 1 : context;
    int m = tokenize(again, fewer, (const char *)data + 1, size - 1, &cut_again);
    if (m != (n < fewer ? n : fewer) || cut_again != (n > fewer || cut) ||
        memcmp(ids, again, ((size_t)m - 1) * sizeof *ids) != 0)
        abort();
    return 0;
}
