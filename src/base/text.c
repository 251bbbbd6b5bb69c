/* text.c - growing strings, name order, spelling help, and the map from names to indices. */
#define _GNU_SOURCE
#include "base/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Makes room for `n` more bytes and the terminator. */
static bool reserve(text *t, size_t n)
{
    if (t->failed)
        return false;
    if (n < t->room - t->size)
        return true;
    size_t room = t->room < 64 ? 64 : t->room;
    while (room - t->size <= n) {
        if (room > SIZE_MAX / 2) {
            t->failed = true;
            return false;
        }
        room *= 2;
    }
    char *data = realloc(t->data, room);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->room = room;
    return true;
}

void text_add(text *t, const char *s, size_t n)
{
    if (!reserve(t, n))
        return;
    if (n)
        memcpy(t->data + t->size, s, n);
    t->size += n;
    t->data[t->size] = '\0';
}

void text_printf(text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        t->failed = true;
    else if (reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->size, (size_t)n + 1, format, again);
        t->size += (size_t)n;
    }
    va_end(again);
}

void text_free(text *t)
{
    free(t->data);
    memset(t, 0, sizeof *t);
}

/* Compares two runs of digits by value, moving both pointers behind them; leading zeros do not count. */
static int compare_numbers(const char **a, const char **b)
{
    while (**a == '0')
        ++*a;
    while (**b == '0')
        ++*b;
    size_t na = strspn(*a, "0123456789"), nb = strspn(*b, "0123456789");
    int order = na != nb ? (na < nb ? -1 : 1) : strncmp(*a, *b, na);
    *a += na;
    *b += nb;
    return order;
}

int natural_compare(const char *a, const char *b)
{
    const char *x = a, *y = b;
    while (*x && *y) {
        if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
            int order = compare_numbers(&x, &y);
            if (order)
                return order;
        } else if (*x != *y) {
            return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
        } else {
            x++;
            y++;
        }
    }
    if (*x || *y)
        return *x ? 1 : -1;
    return strcmp(a, b);
}

bool starts_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

char *text_copy(const char *s)
{
    return strdup(s);
}

char *path_join(const char *folder, const char *name)
{
    size_t n = strlen(folder);
    const char *slash = n == 0 || folder[n - 1] == '/' ? "" : "/";
    char *path = NULL;
    return asprintf(&path, "%s%s%s", folder, slash, name) < 0 ? NULL : path;
}

#define LONGEST_WORD 63

/* Edits between two short words: insert, delete, replace, swap neighbours. Case does not count. */
static int edit_distance(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    if (n > LONGEST_WORD || m > LONGEST_WORD)
        return LONGEST_WORD + 1;
    int d[LONGEST_WORD + 1][LONGEST_WORD + 1];
    for (int i = 0; i <= n; i++)
        for (int j = 0; j <= m; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = i + j;
                continue;
            }
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            int best = d[i - 1][j - 1] + (x != y);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]))
                best = d[i - 2][j - 2] + 1 < best ? d[i - 2][j - 2] + 1 : best;
            d[i][j] = best;
        }
    return d[n][m];
}

const char *closest_word(const char *word, const char *const *words, size_t count)
{
    size_t length = strlen(word);
    const char *best = NULL;
    int least = length < 4 ? 2 : (int)(length / 3 + 2);      /* must be below this to count as near */
    for (size_t i = 0; i < count; i++) {
        int distance = edit_distance(word, words[i]);
        if (distance < least && (size_t)distance < strlen(words[i])) {
            least = distance;
            best = words[i];
        }
    }
    return best;
}

typedef struct slot {
    const char *name;      /* NULL: free */
    uint64_t    hash;
    int64_t     index;
} slot;

struct name_map {
    slot    *slots;
    size_t   room, count;  /* room is a power of two, at most half of it used */
    uint64_t seed;         /* names come from files: a hash that they cannot aim at */
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 29);
}

static uint64_t hash_name(const name_map *m, const char *name)
{
    uint64_t h = m->seed;
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        h = mix(h ^ *c);
    return h;
}

name_map *name_map_new(size_t expected)
{
    if (expected > SIZE_MAX / (4 * sizeof(slot)))
        return NULL;
    name_map *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->room = 16;
    while (m->room < 2 * expected)
        m->room *= 2;
    m->slots = calloc(m->room, sizeof *m->slots);
    if (!m->slots) {
        free(m);
        return NULL;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    m->seed = mix((uint64_t)(uintptr_t)m->slots ^ mix((uint64_t)now.tv_nsec + ((uint64_t)now.tv_sec << 30)));
    return m;
}

/* The slot that holds `name`, or the free one where it belongs. */
static slot *find(slot *slots, size_t room, const char *name, uint64_t hash)
{
    for (size_t at = hash & (room - 1);; at = (at + 1) & (room - 1)) {
        slot *s = &slots[at];
        if (!s->name || (s->hash == hash && strcmp(s->name, name) == 0))
            return s;
    }
}

static bool grow(name_map *m)
{
    if (m->room > SIZE_MAX / (4 * sizeof(slot)))
        return false;
    size_t room = 2 * m->room;
    slot *slots = calloc(room, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < m->room; i++)
        if (m->slots[i].name)
            *find(slots, room, m->slots[i].name, m->slots[i].hash) = m->slots[i];
    free(m->slots);
    m->slots = slots;
    m->room = room;
    return true;
}

bool name_map_put(name_map *m, const char *name, int64_t index)
{
    if (2 * (m->count + 1) > m->room && !grow(m))
        return false;
    uint64_t hash = hash_name(m, name);
    slot *s = find(m->slots, m->room, name, hash);
    if (s->name)
        return false;
    *s = (slot){name, hash, index};
    m->count++;
    return true;
}

int64_t name_map_get(const name_map *m, const char *name)
{
    const slot *s = find(m->slots, m->room, name, hash_name(m, name));
    return s->name ? s->index : -1;
}

void name_map_free(name_map *m)
{
    if (m)
        free(m->slots);
    free(m);
}
