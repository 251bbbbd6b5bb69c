/* font.c - short texts: glyphs from the system's fonts or from the built-in ones, blended into pixels. */
#include "io/font.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <fontconfig/fontconfig.h>
#include <ft2build.h>
#include FT_FREETYPE_H

#include "io/coco.h"

#define MOST_FACES    8
#define BUILTIN_ROWS  9     /* of which 2 below the baseline */
#define BUILTIN_WIDTH 6     /* 5 pixels and a gap */
#define BOX           95    /* the built-in glyph for what is missing */

struct font {
    int        height, ascent, descent;
    FT_Library library;             /* NULL: built-in letters only */
    FcConfig  *config;
    FT_Face    faces[MOST_FACES];   /* [0] serves most characters, the others those that it lacks */
    int        face_count;
    uint32_t   hopeless[64];        /* characters that no font has, so that they are looked up once */
    int        hopeless_count;
};

/* Coverage of one character, 0..255, top left corner relative to the pen. */
typedef struct glyph {
    int      width, height, left, top, advance;
    uint8_t *coverage;              /* [height, width]; yours to free */
} glyph;

/* ---- built-in letters ---- */

static double builtin_pixel(int index, int x, int y)
{
    return x >= 0 && x < 5 && y >= 0 && y < BUILTIN_ROWS && font_builtin[index][y] >> (4 - x) & 1;
}

/* Enlarged bilinearly and cut at half height, which rounds corners and turns staircases into slopes. */
static uint8_t builtin_coverage(int index, double x, double y, double scale)
{
    double fx = floor(x - .5), fy = floor(y - .5), ax = x - .5 - fx, ay = y - .5 - fy;
    int ix = (int)fx, iy = (int)fy;
    double top = builtin_pixel(index, ix, iy) * (1 - ax) + builtin_pixel(index, ix + 1, iy) * ax;
    double bottom = builtin_pixel(index, ix, iy + 1) * (1 - ax) + builtin_pixel(index, ix + 1, iy + 1) * ax;
    double v = ((top * (1 - ay) + bottom * ay) - .45) * fmax(scale, 1) + .5;
    return (uint8_t)(255 * fmin(fmax(v, 0), 1));
}

/* Letters with accents are drawn without them. */
static uint32_t without_accent(uint32_t c)
{
    static const char plain[] = "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYPsaaaaaaaceeeeiiiidnooooo/ouuuuypy";
    return c >= 0xc0 && c <= 0xff ? (uint32_t)plain[c - 0xc0] : c;
}

static bool builtin_glyph(glyph *g, const font *f, uint32_t c)
{
    double scale = (double)f->height / BUILTIN_ROWS;
    c = without_accent(c);
    int index = c >= 32 && c < 127 ? (int)c - 32 : BOX;
    *g = (glyph){.width = (int)ceil(5 * scale) + 1, .height = f->height, .top = f->ascent};
    g->advance = (int)lround(BUILTIN_WIDTH * scale);
    g->coverage = malloc((size_t)g->width * (size_t)g->height);
    for (int y = 0; g->coverage && y < g->height; y++) {
        for (int x = 0; x < g->width; x++)
            g->coverage[y * g->width + x] = builtin_coverage(index, (x + .5) / scale, (y + .5) / scale, scale);
    }
    return g->coverage != NULL;
}

/* ---- fonts of the system ---- */

/* Opens the system's best font for sans-serif text that has character `c` (0: any). */
static FT_Face open_face(const font *f, uint32_t c)
{
    FT_Face face = NULL;
    FcChar8 *path = NULL;
    FcResult result;
    int index = 0;
    FcPattern *wanted = FcPatternCreate();
    FcCharSet *set = FcCharSetCreate();
    if (c)
        FcCharSetAddChar(set, c);
    FcPatternAddString(wanted, FC_FAMILY, (const FcChar8 *)"DejaVu Sans");
    FcPatternAddString(wanted, FC_FAMILY, (const FcChar8 *)"sans-serif");
    FcPatternAddInteger(wanted, FC_WEIGHT, FC_WEIGHT_MEDIUM);
    FcPatternAddBool(wanted, FC_SCALABLE, FcTrue);
    if (c)
        FcPatternAddCharSet(wanted, FC_CHARSET, set);
    FcConfigSubstitute(f->config, wanted, FcMatchPattern);
    FcDefaultSubstitute(wanted);
    FcPattern *match = FcFontMatch(f->config, wanted, &result);
    if (match && FcPatternGetString(match, FC_FILE, 0, &path) == FcResultMatch) {
        FcPatternGetInteger(match, FC_INDEX, 0, &index);
        if (FT_New_Face(f->library, (const char *)path, index & 0xffff, &face) != 0)
            face = NULL;
    }
    if (match)
        FcPatternDestroy(match);
    FcPatternDestroy(wanted);
    FcCharSetDestroy(set);
    return face;
}

/* Sets the size so that a line is f->height high. false: no outline font. */
static bool size_face(FT_Face face, int height)
{
    if (!FT_IS_SCALABLE(face) || face->units_per_EM == 0)
        return false;
    double line = (double)(face->ascender - face->descender) / face->units_per_EM;
    int em = (int)lround(height / (line > .5 ? line : 1.2));
    return FT_Set_Pixel_Sizes(face, 0, (FT_UInt)(em < 1 ? 1 : em)) == 0;
}

static bool add_face(font *f, FT_Face face)
{
    if (face && f->face_count < MOST_FACES && size_face(face, f->height)) {
        f->faces[f->face_count++] = face;
        return true;
    }
    if (face)
        FT_Done_Face(face);
    return false;
}

static bool is_hopeless(const font *f, uint32_t c)
{
    for (int i = 0; i < f->hopeless_count; i++) {
        if (f->hopeless[i] == c)
            return true;
    }
    return f->face_count == MOST_FACES || f->hopeless_count == (int)(sizeof f->hopeless / sizeof *f->hopeless);
}

/* An opened font that has the character, looking for one if need be; NULL if there is none. */
static FT_Face face_for(font *f, uint32_t c)
{
    for (int i = 0; i < f->face_count; i++) {
        if (FT_Get_Char_Index(f->faces[i], c))
            return f->faces[i];
    }
    if (f->face_count == 0 || is_hopeless(f, c))
        return NULL;
    FT_Face face = open_face(f, c);
    if (face && FT_Get_Char_Index(face, c)) {
        if (add_face(f, face))
            return face;
    } else if (face) {
        FT_Done_Face(face);
    }
    f->hopeless[f->hopeless_count++] = c;
    return NULL;
}

static bool system_glyph(glyph *g, FT_Face face, uint32_t c)
{
    if (FT_Load_Char(face, c, FT_LOAD_RENDER | FT_LOAD_TARGET_LIGHT) != 0)
        return false;
    const FT_GlyphSlot s = face->glyph;
    if (s->bitmap.pixel_mode != FT_PIXEL_MODE_GRAY || s->bitmap.pitch < 0)
        return false;
    *g = (glyph){
        .width = (int)s->bitmap.width, .height = (int)s->bitmap.rows, .left = s->bitmap_left, .top = s->bitmap_top};
    g->advance = (int)((s->advance.x + 32) >> 6);
    g->coverage = malloc((size_t)g->width * (size_t)g->height + 1);
    for (int y = 0; g->coverage && y < g->height; y++)
        memcpy(g->coverage + y * g->width, s->bitmap.buffer + y * s->bitmap.pitch, (size_t)g->width);
    return g->coverage != NULL;
}

/* ---- texts ---- */

static bool find_glyph(glyph *g, font *f, uint32_t c)
{
    if (c < 32 || c == 127)
        c = ' ';
    FT_Face face = face_for(f, c);
    return (face && system_glyph(g, face, c)) || builtin_glyph(g, f, c);
}

font *font_open(int height, bool plain)
{
    font *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->height = height < 7 ? 7 : height > 2000 ? 2000 : height;
    f->descent = (int)lround(f->height * 2.0 / BUILTIN_ROWS);
    f->ascent = f->height - f->descent;
    if (plain || FT_Init_FreeType(&f->library) != 0) {
        f->library = NULL;
        return f;
    }
    f->config = FcInitLoadConfigAndFonts();
    if (f->config && add_face(f, open_face(f, 0))) {
        const FT_Size_Metrics *m = &f->faces[0]->size->metrics;
        f->ascent = (int)((m->ascender + 32) >> 6);
        f->descent = (int)((32 - m->descender) >> 6);
    }
    return f;
}

void font_free(font *f)
{
    if (!f)
        return;
    for (int i = 0; i < f->face_count; i++)
        FT_Done_Face(f->faces[i]);
    if (f->library)
        FT_Done_FreeType(f->library);
    if (f->config)
        FcConfigDestroy(f->config);
    free(f);
}

int font_ascent(const font *f)
{
    return f->ascent;
}

int font_descent(const font *f)
{
    return f->descent;
}

int font_measure(font *f, const char *utf8)
{
    int width = 0;
    for (uint32_t c; (c = utf8_next(&utf8)) != 0 && width < 1 << 20;) {
        glyph g;
        if (!find_glyph(&g, f, c))
            continue;
        width += g.advance;
        free(g.coverage);
    }
    return width;
}

static void blend_glyph(uint8_t *rgb, int width, int height, int x0, int y0, const glyph *g, const uint8_t colour[3])
{
    for (int y = 0; y < g->height; y++) {
        for (int x = 0; x < g->width; x++) {
            int to_x = x0 + x, to_y = y0 + y, a = g->coverage[y * g->width + x];
            if (a == 0 || to_x < 0 || to_y < 0 || to_x >= width || to_y >= height)
                continue;
            uint8_t *p = rgb + ((size_t)to_y * (size_t)width + (size_t)to_x) * 3;
            for (int c = 0; c < 3; c++)
                p[c] = (uint8_t)((p[c] * (255 - a) + colour[c] * a + 127) / 255);
        }
    }
}

void font_draw(font *f, uint8_t *rgb, int width, int height, int x, int baseline, const char *utf8,
               const uint8_t colour[3])
{
    for (uint32_t c; (c = utf8_next(&utf8)) != 0 && x < width;) {
        glyph g;
        if (!find_glyph(&g, f, c))
            continue;
        blend_glyph(rgb, width, height, x + g.left, baseline - g.top, &g, colour);
        x += g.advance;
        free(g.coverage);
    }
}
