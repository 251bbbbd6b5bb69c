/* pickle.c - fuzz target: any bytes as a pickle; the values that come out are walked. */
#include "formats/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Looks at values to a small depth: they may hold themselves. */
static size_t walk(const pickle_value *v, int depth)
{
    char text[80];
    size_t seen = pickle_describe(v, text, sizeof text)[0] != '\0';
    bool list = v->kind == PICKLE_TUPLE || v->kind == PICKLE_LIST || v->kind == PICKLE_DICT ||
                v->kind == PICKLE_STORAGE;
    for (size_t i = 0; list && depth > 0 && i < v->list.count && i < 64; i++)
        seen += walk(v->list.item[i], depth - 1);
    pickle_get(v, "model");
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pickle *p;
    samite_error err;
    if (pickle_open(&p, data, size, "fuzz.pkl", &err) == SAMITE_OK) {
        walk(pickle_root(p), 3);
        pickle_close(p);
    }
    return 0;
}
