/* georef.c - the six numbers that place a picture on a map, from a world file or from GeoTIFF tags. */
#include "io/georef.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include <tiffio.h>

#include "base/file.h"
#include "base/text.h"

#define LARGEST_WORLD_FILE ((size_t)1 << 16)

enum { TAG_SCALE = 33550, TAG_TIEPOINT = 33922, TAG_MATRIX = 34264, TAG_KEYS = 34735 };
enum { KEY_RASTER_TYPE = 1025, KEY_GEOGRAPHIC = 2048, KEY_PROJECTED = 3072, PIXEL_IS_POINT = 2 };

/* A transform that speaks of pixel centres, as one that speaks of corners. */
static void centres_to_corners(georef *g)
{
    g->m[0] -= (g->m[1] + g->m[2]) / 2;
    g->m[3] -= (g->m[4] + g->m[5]) / 2;
}

static bool usable(const georef *g)
{
    for (int i = 0; i < 6; i++)
        if (!isfinite(g->m[i]))
            return false;
    double area = g->m[1] * g->m[5] - g->m[2] * g->m[4];
    return isfinite(area) && fabs(area) > 0;
}

int georef_parse_world(georef *out, const char *data, size_t size, const char *name, samite_error *err)
{
    static const int place[6] = {1, 4, 2, 5, 0, 3};
    char *copy = strndup(data, size), *s = copy;
    *out = (georef){0};
    if (!copy)
        return fail(err, SAMITE_RESOURCE, "%s: out of memory", name);
    int n = 0;
    for (; n < 6; n++) {
        char *end;
        double v = strtod(s, &end);
        if (end == s)
            break;
        out->m[place[n]] = v;
        s = end;
    }
    free(copy);
    if (n < 6 || !usable(out))
        return fail(err, SAMITE_INPUT, "%s: expected the six numbers of a world file, a line each", name);
    centres_to_corners(out);
    out->found = true;
    snprintf(out->source, sizeof out->source, "world file");
    return SAMITE_OK;
}

/* photo.jpg: photo.jgw, photo.jpgw, photo.wld, and the same in capitals. NULL: none. */
static char *find_world_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    int stem = (int)(dot ? dot - path : (ptrdiff_t)strlen(path));
    const char *ending = dot ? dot + 1 : "";
    size_t n = strlen(ending);
    char names[3][16] = {"wld"};
    if (n >= 2 && n < 8) {
        snprintf(names[1], sizeof names[1], "%c%cw", ending[0], ending[n - 1]);
        snprintf(names[2], sizeof names[2], "%sw", ending);
    }
    for (int i = 0; i < 6; i++) {
        text t = {0};
        if (!names[i / 2][0])
            continue;
        text_printf(&t, "%.*s.%s", stem, path, names[i / 2]);
        for (size_t k = (size_t)stem; i % 2 && !t.failed && k < t.size; k++)
            t.data[k] = (char)(t.data[k] >= 'a' && t.data[k] <= 'z' ? t.data[k] - 32 : t.data[k]);
        if (!t.failed && access(t.data, F_OK) == 0)
            return t.data;
        text_free(&t);
    }
    return NULL;
}

static int quiet(TIFF *tiff, void *user, const char *module, const char *format, va_list args)
{
    (void)tiff, (void)user, (void)module, (void)format, (void)args;
    return 1;
}

static TIFF *open_quietly(const char *path)
{
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options)
        return NULL;
    TIFFOpenOptionsSetErrorHandlerExtR(options, quiet, NULL);
    TIFFOpenOptionsSetWarningHandlerExtR(options, quiet, NULL);
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)64 << 20);
    TIFF *t = TIFFOpenExt(path, "rm", options);
    TIFFOpenOptionsFree(options);
    return t;
}

/* `count` numbers of a tag that libtiff does not know, or NULL when there are fewer than `least`. */
static const void *tag_values(TIFF *t, uint32_t tag, size_t least, size_t *count)
{
    uint32_t n = 0;
    void *v = NULL;
    bool there = TIFFGetField(t, tag, &n, &v) == 1 && v && n >= least;
    *count = there ? n : 0;
    return there ? v : NULL;
}

static bool has_type(TIFF *t, uint32_t tag, TIFFDataType type)
{
    const TIFFField *f = TIFFFindField(t, tag, TIFF_ANY);
    return f && TIFFFieldDataType(f) == type && TIFFFieldPassCount(f) && TIFFFieldReadCount(f) == TIFF_VARIABLE2;
}

static void register_tags(TIFF *t)
{
    static const TIFFFieldInfo tags[] = {
        {TAG_SCALE, -3, -3, TIFF_DOUBLE, FIELD_CUSTOM, 1, 1, (char *)"ModelPixelScale"},
        {TAG_TIEPOINT, -3, -3, TIFF_DOUBLE, FIELD_CUSTOM, 1, 1, (char *)"ModelTiepoint"},
        {TAG_MATRIX, -3, -3, TIFF_DOUBLE, FIELD_CUSTOM, 1, 1, (char *)"ModelTransformation"},
        {TAG_KEYS, -3, -3, TIFF_SHORT, FIELD_CUSTOM, 1, 1, (char *)"GeoKeyDirectory"},
    };
    TIFFMergeFieldInfo(t, tags, sizeof tags / sizeof *tags);
}

static void read_keys(georef *g, TIFF *t, bool *point)
{
    size_t n;
    const uint16_t *k = has_type(t, TAG_KEYS, TIFF_SHORT) ? tag_values(t, TAG_KEYS, 4, &n) : NULL;
    for (size_t i = 4; k && i + 4 <= n && (i - 4) / 4 < k[3]; i += 4) {
        if (k[i + 1] != 0)                 /* the value stands elsewhere */
            continue;
        if (k[i] == KEY_RASTER_TYPE)
            *point = k[i + 3] == PIXEL_IS_POINT;
        bool known = k[i + 3] > 0 && k[i + 3] < 32767;
        if (known && (k[i] == KEY_PROJECTED || (k[i] == KEY_GEOGRAPHIC && !g->epsg)))
            g->epsg = k[i + 3];
    }
}

/* The directory is read again after the tags were made known, so that their types are the expected ones. */
static void read_geotiff(georef *g, const char *path)
{
    TIFF *t = open_quietly(path);
    size_t n;
    bool point = false;
    if (!t)
        return;
    register_tags(t);
    if (!TIFFSetDirectory(t, 0)) {
        TIFFClose(t);
        return;
    }
    const double *matrix = has_type(t, TAG_MATRIX, TIFF_DOUBLE) ? tag_values(t, TAG_MATRIX, 16, &n) : NULL;
    const double *scale = has_type(t, TAG_SCALE, TIFF_DOUBLE) ? tag_values(t, TAG_SCALE, 2, &n) : NULL;
    const double *tie = has_type(t, TAG_TIEPOINT, TIFF_DOUBLE) ? tag_values(t, TAG_TIEPOINT, 6, &n) : NULL;
    if (matrix) {
        memcpy(g->m, (double[]){matrix[3], matrix[0], matrix[1], matrix[7], matrix[4], matrix[5]}, sizeof g->m);
    } else if (scale && tie) {
        memcpy(g->m, (double[]){tie[3] - tie[0] * scale[0], scale[0], 0, tie[4] + tie[1] * scale[1], 0, -scale[1]},
               sizeof g->m);
    }
    g->found = (matrix || (scale && tie)) && usable(g);
    read_keys(g, t, &point);
    if (g->found && point)
        centres_to_corners(g);
    snprintf(g->source, sizeof g->source, "GeoTIFF");
    TIFFClose(t);
}

static bool is_tiff(const char *path)
{
    static const char *const starts[] = {"II*", "MM", "II+"};
    char first[4] = "";
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(first, 1, 4, f) : 0;
    if (f)
        fclose(f);
    for (size_t i = 0; i < 3; i++)
        if (n == 4 && strncmp(first, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

int georef_read(georef *out, const char *path, samite_error *err)
{
    *out = (georef){0};
    if (strcmp(path, "-") == 0)
        return SAMITE_OK;
    if (is_tiff(path))
        read_geotiff(out, path);
    char *world = find_world_file(path);
    if (!world || out->found) {
        free(world);
        return SAMITE_OK;
    }
    uint8_t *data = NULL;
    size_t size;
    int epsg = out->epsg, code = file_read(&data, &size, world, LARGEST_WORLD_FILE, err);
    if (!code)
        code = georef_parse_world(out, (const char *)data, size, world, err);
    out->epsg = epsg;
    free(data);
    free(world);
    return code;
}
