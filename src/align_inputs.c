/* align_inputs.c - compares what happens before the network: token ids of strings and pixels of photos. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "align.h"
#include "base/file.h"
#include "base/text.h"
#include "io/preprocess.h"
#include "model/tokenizer.h"

#define CONTEXT    32
#define LINE_LIMIT ((size_t)1 << 28)

/* Two grey levels after normalising, anywhere; and on average. Resizers differ in rounding. */
#define PIXEL_MOST 0.0157
#define PIXEL_MEAN 0.002

static int compare_line(aligner *a, const char *line, int number, int *wrong, samite_error *err)
{
    json_t *o = json_loads(line, 0, NULL), *ids = json_object_get(o, "ids");
    const char *said = json_string_value(json_object_get(o, "text"));
    if (!said || json_array_size(ids) != CONTEXT) {
        json_decref(o);
        return fail(err, SAMITE_INPUT, "tokens.jsonl line %d: expected {\"text\": .., \"ids\": [%d numbers]}", number,
                    CONTEXT);
    }
    int32_t mine[CONTEXT];
    bool cut;
    int differ = 0;
    tokenize(mine, CONTEXT, said, json_string_length(json_object_get(o, "text")), &cut);
    for (size_t i = 0; i < CONTEXT; i++)
        differ += json_integer_value(json_array_get(ids, i)) != mine[i];
    if (differ) {
        char name[32], note[96];
        snprintf(name, sizeof name, "tokens line %d", number);
        snprintf(note, sizeof note, "%d ids differ for '%.40s'", differ, said);
        align_row(a, &(samite_compared){.name = name, .max_difference = differ, .relative = 1, .note = note});
        ++*wrong;
    }
    json_decref(o);
    return 0;
}

int align_tokens(aligner *a, const char *path, samite_error *err)
{
    uint8_t *data;
    size_t size;
    int code = file_read(&data, &size, path, LINE_LIMIT, err), number = 0, wrong = 0;
    if (code)
        return code;
    for (char *line = (char *)data, *next; !code && line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        number++;
        if (*line)
            code = compare_line(a, line, number, &wrong, err);
    }
    free(data);
    char note[64];
    snprintf(note, sizeof note, "%d strings, %d differ", number, wrong);
    if (!code && !wrong)
        align_row(a, &(samite_compared){.name = "tokens", .cosine = 1, .within = 1, .note = note});
    return code;
}

/* FILE.SIDE#everyK: the normalised input as the original makes it, channels first, every K-th value. */
static bool parse_name(const char *name, char *file, size_t room, int *side, int64_t *step)
{
    const char *every = strstr(name, "#every");
    if (!every || (*step = strtoll(every + 6, NULL, 10)) < 1)
        return false;
    const char *dot = every;
    while (dot > name && dot[-1] != '.')
        dot--;
    *side = atoi(dot);
    size_t size = (size_t)(dot - name);
    if (size < 2 || size > room || *side < 1 || *side > 4096)
        return false;
    memcpy(file, name, size - 1);
    file[size - 1] = 0;
    return true;
}

static void compare_pixels(aligner *a, const weight *w, const float *ours, int side, int64_t step)
{
    int64_t n = weight_count(w), area = (int64_t)side * side;
    float *theirs = malloc(sizeof(float) * (size_t)(n + 1));
    samite_compared row = {.name = w->name, .cosine = 1, .note = ""};
    if (!theirs || n != (3 * area + step - 1) / step) {
        row.note = theirs ? "another number of values" : "out of memory";
        align_row(a, &row);
        free(theirs);
        return;
    }
    weight_to_f32(theirs, w);
    double sum = 0, ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i * step, channel = at / area;
        double x = ours[at % area * 3 + channel], y = theirs[i], d = fabs(x - y);
        sum += d;
        row.max_difference = d > row.max_difference ? d : row.max_difference;
        ab += x * y, aa += x * x, bb += y * y;
    }
    row.relative = row.max_difference;
    row.cosine = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : aa == bb;
    row.within = row.max_difference <= PIXEL_MOST && sum / (double)n <= PIXEL_MEAN;
    align_row(a, &row);
    free(theirs);
}

static int compare_photo(aligner *a, const weight *w, const char *path, int side, int64_t step, samite_error *err)
{
    pixels p;
    image_options o = IMAGE_OPTIONS_INIT;
    o.apply_exif = false;      /* the original does not turn pictures */
    int code = image_read(&p, path, &o, err);
    if (code)
        return code;
    float *x = malloc(sizeof(float) * 3 * (size_t)side * (size_t)side);
    code = x ? preprocess(x, &p, side, err) : fail(err, SAMITE_RESOURCE, "not enough memory for %s", path);
    if (!code)
        compare_pixels(a, w, x, side, step);
    free(x);
    pixels_free(&p);
    return code;
}

int align_pixels(aligner *a, const char *photos, samite_error *err)
{
    int code = 0;
    for (size_t i = 0; i < a->reference.count && !code; i++) {
        const weight *w = &a->reference.items[i];
        char file[256];
        int side;
        int64_t step;
        a->used[i] = true;
        if (!parse_name(w->name, file, sizeof file, &side, &step))
            continue;
        char *path = path_join(photos, file);
        code = path ? compare_photo(a, w, path, side, step, err) : fail(err, SAMITE_RESOURCE, "not enough memory");
        free(path);
    }
    return code;
}
