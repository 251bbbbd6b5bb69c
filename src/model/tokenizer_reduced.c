/* tokenizer_reduced.c - official token ids to places in a reduced table, and the choice of what such a table holds. */
#include "model/tokenizer_reduced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Room for more ids than any network takes, so that unknown ones push no others out. */
#define ROOM 256

static int place_of(const config *c, int32_t id)
{
    int low = 0, high = c->kept;
    while (low < high) {
        int middle = (low + high) / 2;
        if (c->kept_ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->kept && c->kept_ids[low] == id ? low : -1;
}

int tokenize_reduced(int32_t *ids, const config *c, const char *utf8, size_t size, bool *cut, int *unknown)
{
    int32_t all[ROOM];
    int context = c->context, used = 0, missing = 0;
    if (unknown)
        *unknown = 0;
    if (!c->kept)
        return tokenize(ids, context, utf8, size, cut);
    int n = tokenize(all, ROOM, utf8, size, cut);
    if (n < 0)
        return n;
    memset(ids, 0, sizeof *ids * (size_t)context);
    for (int i = 0; i < n; i++) {
        int place = place_of(c, all[i]);
        missing += place < 0;
        if (place >= 0 && used < context)
            ids[used++] = place;
        else if (place >= 0 && cut)
            *cut = true;
    }
    if (used)
        ids[used - 1] = c->kept - 1;       /* the end, also of a text that was cut */
    if (unknown)
        *unknown = missing;
    return used;
}

/* ---- words that are not there ---- */

enum { LONGEST_WORD = 48 };

typedef struct known_words {
    char  spelt[MAX_KEPT_TOKENS][LONGEST_WORD];
    const char *word[MAX_KEPT_TOKENS];
    int   count;
} known_words;

/* Words that are one token each. */
static void list_words(known_words *k, const config *c)
{
    for (int i = 0; i < c->kept; i++) {
        bool whole;
        char *to = k->spelt[k->count];
        size_t n = bpe_spell((uint8_t *)to, LONGEST_WORD - 1, c->kept_ids[i], &whole);
        to[n] = '\0';
        if (n > 1 && whole && strcmp(to, "visual") != 0) {
            k->word[k->count] = to;
            k->count++;
        }
    }
}

static void name_word(char *out, size_t room, const known_words *k, const char *word, size_t length, bool first)
{
    char copy[LONGEST_WORD];
    size_t at = strlen(out);
    snprintf(copy, sizeof copy, "%.*s", (int)length, word);
    const char *near = closest_word(copy, k->word, (size_t)k->count);
    if (near)
        snprintf(out + at, room - at, "%s'%s' (near: '%s')", first ? "" : ", ", copy, near);
    else
        snprintf(out + at, room - at, "%s'%s'", first ? "" : ", ", copy);
}

int tokens_unknown(char *out, size_t room, const config *c, const char *utf8, size_t size)
{
    int32_t ids[ROOM];
    int lacking = 0;
    known_words *k = c->kept ? calloc(1, sizeof *k) : NULL;
    out[0] = '\0';
    if (!k)
        return 0;
    list_words(k, c);
    for (size_t i = 0, n; i < size; i += n + 1) {
        int unknown;
        for (n = 0; i + n < size && !strchr(" \t\r\n", utf8[i + n]);)
            n++;
        if (n && tokenize_reduced(ids, c, utf8 + i, n, NULL, &unknown) >= 0 && unknown)
            name_word(out, room, k, utf8 + i, n, lacking++ == 0);
    }
    free(k);
    return lacking;
}

/* ---- what is kept ---- */

bool tokens_keep(config *c, char *const *texts, int count)
{
    uint8_t *seen = calloc(BPE_VOCABULARY, 1);
    int32_t ids[ROOM];
    bool ok = seen != NULL;
    for (int i = -1; ok && i < count; i++) {
        const char *said = i < 0 ? "visual" : texts[i];      /* what example boxes alone are asked with */
        int n = tokenize(ids, ROOM, said, strlen(said), NULL);
        for (int k = 0; k < n; k++)
            seen[ids[k]] = 1;
        ok = n > 0;
    }
    if (ok)
        seen[0] = seen[BPE_START] = seen[BPE_END] = 1;
    c->kept = 0;
    for (int id = 0; ok && id < BPE_VOCABULARY; id++) {
        if (!seen[id])
            continue;
        ok = c->kept < MAX_KEPT_TOKENS;
        if (ok)
            c->kept_ids[c->kept++] = (uint16_t)id;
    }
    free(seen);
    c->vocabulary = c->kept;
    return ok;
}
