/* report_gallery.c - pictures of the surest results that are wrong and of the largest objects that were not found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "eval/report.h"
#include "io/draw.h"
#include "io/image.h"
#include "io/preprocess.h"

#define SHOWN      24
#define SIDE       500         /* of the pictures on the page, at most */
#define QUALITY    80
#define LETTERS    1.5         /* larger than usual: pages show pictures smaller than they are */
#define LARGEST    ((size_t)64 << 20)
#define MOST_DRAWN 60

/* An item with what it is sorted by. */
typedef struct worst {
    double weight;
    size_t item;
} worst;

static int heavier_first(const void *a, const void *b)
{
    const worst *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight ? 1 : -1) : (x->item > y->item) - (x->item < y->item);
}

static worst *list_worst(const eval_set *s, const int32_t *match, bool by_score, size_t *count)
{
    worst *w = malloc((s->count + 1) * sizeof *w);
    *count = 0;
    for (size_t i = 0; w && i < s->count; i++)
        if (match[i] == MATCH_NONE)
            w[(*count)++] = (worst){by_score ? s->items[i].score : s->items[i].area, i};
    if (w && *count > 1)
        qsort(w, *count, sizeof *w, heavier_first);
    return w;
}

static void base64(text *t, const uint8_t *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
        char c[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
                     i + 2 < n ? digits[v & 63] : '='};
        text_add(t, c, 4);
    }
}

/* The picture, or a grey one of its size when there is no folder or it cannot be read. false: its size is not known. */
static bool get_picture(pixels *out, const report_data *d, int32_t image)
{
    const eval_image *im = &d->truth->images[image];
    char *path = d->o->images && im->file_name ? path_join(d->o->images, im->file_name) : NULL;
    image_options how = IMAGE_OPTIONS_INIT;
    bool read = false;
    *out = (pixels){0};
    for (int turned = 0; turned < 2 && path && !read; turned++) {
        how.apply_exif = turned;
        read = image_read(out, path, &how, NULL) == SAMITE_OK;
        if (read && im->width && (out->width != im->width || out->height != im->height)) {
            pixels_free(out);
            read = false;
        }
    }
    free(path);
    if (read)
        return true;
    size_t bytes = (size_t)im->width * (size_t)im->height * 3;
    if (im->width < 1 || im->height < 1 || bytes > LARGEST * 4)
        return false;
    *out = (pixels){.width = im->width, .height = im->height, .rgb = malloc(bytes)};
    if (out->rgb)
        memset(out->rgb, 200, bytes);
    return out->rgb != NULL;
}

typedef struct drawing {
    draw_instance instance[MOST_DRAWN];
    rle           mask[MOST_DRAWN];
    size_t        count;
} drawing;

static void draw_item(drawing *w, const report_data *d, const eval_item *item, const char *name, double score,
                      int colour)
{
    if (w->count == MOST_DRAWN)
        return;
    rle *m = &w->mask[w->count];
    *m = (rle){0};
    bool shown = d->masks && item->mask && eval_item_mask(m, d->truth, item, NULL) == SAMITE_OK;
    w->instance[w->count] = (draw_instance){.mask = shown ? m : NULL, .name = name, .score = score, .colour = colour};
    memcpy(w->instance[w->count].box, item->box, sizeof item->box);
    w->count++;
}

/* The item in question and, for a wrong result, the objects of its category; for a missed object, the results. */
static void collect(drawing *w, const report_data *d, const eval_set *s, size_t at, bool wrong)
{
    const eval_item *item = &s->items[at];
    const eval_set *other = wrong ? d->truth : d->results;
    draw_item(w, d, item, wrong ? "result" : "missed", wrong ? item->score : -1, 0);
    for (size_t i = 0; i < other->count; i++) {
        const eval_item *b = &other->items[i];
        if (b->image == item->image && b->category == item->category && (wrong || b->score >= 0.3))
            draw_item(w, d, b, wrong ? "object" : "result", wrong ? -1 : b->score, 2);
    }
}

int html_picture(text *t, const pixels *big, samite_error *err)
{
    int longest = big->width > big->height ? big->width : big->height;
    int width = longest > SIDE ? (int)((int64_t)big->width * SIDE / longest) : big->width;
    int height = longest > SIDE ? (int)((int64_t)big->height * SIDE / longest) : big->height;
    width = width < 1 ? 1 : width;
    height = height < 1 ? 1 : height;
    uint8_t *small = malloc((size_t)width * (size_t)height * 3), *data = NULL;
    size_t size;
    int code = small ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "not enough memory for a picture of the report");
    if (!code)
        code = resize_rgb(small, width, height, big, err);
    if (!code)
        code = image_encode_jpeg(&data, &size, small, width, height, QUALITY, "picture of the report", err);
    if (!code) {
        text_printf(t, "<img alt=\"\" src=\"data:image/jpeg;base64,");
        base64(t, data, size);
        text_printf(t, "\">");
    }
    free(data);
    free(small);
    return code;
}

static int add_figure(text *t, const report_data *d, const eval_set *s, size_t at, bool wrong,
                      samite_error *err)
{
    const eval_item *item = &s->items[at];
    pixels px;
    drawing w = {.count = 0};
    draw_style style = DRAW_STYLE_INIT;
    char id[64];
    int code = SAMITE_OK;
    style.scale = LETTERS;
    text_printf(t, "<figure>");
    if (get_picture(&px, d, item->image)) {
        collect(&w, d, s, at, wrong);
        code = draw_overlay(px.rgb, px.width, px.height, w.instance, w.count, &style, err);
        if (!code)
            code = html_picture(t, &px, err);
        pixels_free(&px);
    }
    for (size_t i = 0; i < w.count; i++)
        rle_free(&w.mask[i]);
    text_printf(t, "<figcaption>");
    html_category(t, d->truth, item->category);
    text_printf(t, ", image ");
    html_escape(t, id_print(id, sizeof id, &d->truth->image_ids.item[item->image]));
    if (d->truth->images[item->image].file_name) {
        text_printf(t, " (");
        html_escape(t, d->truth->images[item->image].file_name);
        text_printf(t, ")");
    }
    if (wrong)
        text_printf(t, ", score %.3f, best IoU %.2f", item->score, d->result->result_iou[at]);
    else
        text_printf(t, ", area %.0f", item->area);
    text_printf(t, "</figcaption></figure>\n");
    return code;
}

int report_galleries(text *t, const report_data *d, samite_error *err)
{
    int code = SAMITE_OK;
    for (int wrong = 1; wrong >= 0 && !code; wrong--) {
        const eval_set *s = wrong ? d->results : d->truth;
        size_t count;
        worst *w = list_worst(s, wrong ? d->result->result_match : d->result->truth_match, wrong, &count);
        if (!w)
            return fail(err, SAMITE_RESOURCE, "not enough memory for the report");
        text_printf(t, "<h3>%s</h3>\n<p>At IoU 0.5: %zu.%s</p>\n<div class=\"gallery pictures\">\n",
                    wrong ? "Wrong results" : "Missed objects", count,
                    !count ? "" : wrong ? " The surest first, in red; in violet the objects of that category."
                                        : " The largest first, in red; in violet results of that category.");
        for (size_t i = 0; i < count && i < SHOWN && !code; i++)
            code = add_figure(t, d, s, w[i].item, wrong, err);
        text_printf(t, "</div>\n");
        free(w);
    }
    return code;
}
