/* text.h - growing strings, natural order of names, string to index maps. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct text {
    char  *data;     /* NUL-terminated once anything was added; free with text_free */
    size_t size, room;
    bool   failed;   /* out of memory at some point; later calls do nothing */
} text;

void text_add(text *t, const char *s, size_t n);
void text_printf(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(text *t);

/* Order of names in which "2" comes before "10". For qsort over char *. */
int natural_compare(const char *a, const char *b);

bool starts_with(const char *s, const char *prefix);
bool ends_with(const char *s, const char *suffix);
char *text_copy(const char *s);                                       /* strdup; NULL when out of memory */
/* dir/name in a new string; yours to free. */
char *path_join(const char *folder, const char *name);

/* Closest of `count` words to `word` by edit distance, or NULL if none is near. For "did you mean". */
const char *closest_word(const char *word, const char *const *words, size_t count);

/* Map from names (borrowed, must outlive the map) to indices >= 0. */
typedef struct name_map name_map;
name_map *name_map_new(size_t expected);
bool      name_map_put(name_map *m, const char *name, int64_t index); /* false: already there or out of memory */
int64_t   name_map_get(const name_map *m, const char *name);          /* -1: absent */
void      name_map_free(name_map *m);

#endif
