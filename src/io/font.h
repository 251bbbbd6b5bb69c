/* font.h - short anti-aliased texts in pictures. */
#ifndef IO_FONT_H
#define IO_FONT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct font font;

/* Letters about `height` pixels from the top of the highest to the bottom of the lowest. Uses the fonts of the system,
 * by FreeType and fontconfig, for whatever script a text needs; with `plain`, or where none is installed, a built-in
 * one that knows ASCII. NULL: out of memory. */
font *font_open(int height, bool plain);
void  font_free(font *f);

/* Distance from the baseline to the top and to the bottom of a line, both positive. */
int font_ascent(const font *f);
int font_descent(const font *f);

/* Width of a UTF-8 text in pixels. Characters that no font has are drawn as a box. */
int font_measure(font *f, const char *utf8);
/* Draws on [height, width, 3] pixels from (x, baseline) to the right; what lies outside is cut off. */
void font_draw(font *f, uint8_t *rgb, int width, int height, int x, int baseline, const char *utf8,
               const uint8_t colour[3]);

/* The built-in letters: 9 rows of 5 pixels (bit 4 left) for ' '..'~', the baseline below row 6; then a box. */
extern const uint8_t font_builtin[96][9];

#endif
